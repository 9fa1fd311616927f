package kernels

import (
	"fmt"
	"math"

	"refrain/gpu"
)

// DrawArgs are the arguments of Draw.
type DrawArgs struct {
	Out     gpu.Tensor // [B] i32: the token drawn, or -1 where a logit is not finite
	Logits  gpu.Tensor // [K,B,V] f32, of K models
	Uniform gpu.Tensor // [B,2] i32: low and high word of a float64 in (0,1)
	Among   int        // tokens from 0 that may be drawn, at most V: a vocabulary may be padded
	Sharp   float32    // reciprocal of the temperature
}

// Draw draws one token a row from the softmax of the mean of K models' logits at a
// temperature, by inversion: with p the probabilities and u uniform, it is the first
// token whose p, added to those of all before it, is above u. The mean is summed in
// float64 in the order of the models and rounded once, so that K copies of one model
// draw what the model draws. A row depends on nothing but itself.
var Draw = Kernel[DrawArgs]{
	Name: "draw",
	Check: func(a *DrawArgs) error {
		var c checker
		k := c.ranked("logits", a.Logits, gpu.F32, 3)
		c.i32("out", a.Out, k[1])
		c.i32("uniform", a.Uniform, k[1], 2)
		if a.Among < 1 || a.Among > k[2] {
			c.failf("Among is %d of %d tokens, want at least 1 and no more than there are", a.Among, k[2])
		}
		if !(a.Sharp > 0) || math.IsInf(float64(a.Sharp), 1) {
			c.failf("Sharp is %g, want a finite number above 0", a.Sharp)
		}
		c.apart(names{{"out", a.Out}}, names{{"logits", a.Logits}, {"uniform", a.Uniform}})
		return c.err
	},
	Access: func(a *DrawArgs) (reads, writes []gpu.Span) { return spans(a.Logits, a.Uniform), spans(a.Out) },
	Cost: func(a *DrawArgs) gpu.Cost {
		// One exponential a token, counted as one, beside the additions.
		rows := float64(a.Logits.Dim(1)) * float64(a.Among)
		return gpu.Cost{FLOPs: rows * float64(a.Logits.Dim(0)+2), Bytes: bytesOf(a.Logits, a.Uniform, a.Out)}
	},
	Ref:  func(h gpu.Host, a *DrawArgs) { drawRef(narrow(h), a) },
	Wide: func(h WideHost, a *DrawArgs) { drawRef(wide(h), a) },
	Fast: drawFast,
}

// uniformAt is the number that decides row b.
func uniformAt(words []int32, b int) float64 {
	u := math.Float64frombits(uint64(uint32(words[2*b])) | uint64(uint32(words[2*b+1]))<<32)
	if !(u > 0 && u < 1) {
		panic(fmt.Sprintf("draw: %g in row %d is not between 0 and 1", u, b))
	}
	return u
}

func drawRef[T real](m memory[T], a *DrawArgs) {
	out, logits, words := m.ints(a.Out), m.reals(a.Logits), m.ints(a.Uniform)
	k, rows, v := a.Logits.Dim(0), a.Logits.Dim(1), a.Logits.Dim(2)
	p := make([]float64, a.Among)
	for b := range out {
		u := uniformAt(words, b)
		top, ok := math.Inf(-1), true
		for i := range p {
			var sum float64
			for j := range k {
				sum += float64(logits[(j*rows+b)*v+i])
			}
			p[i] = float64(T(sum / float64(k)))
			top = max(top, p[i])
			ok = ok && !math.IsNaN(sum) && !math.IsInf(sum, 0)
		}
		if !ok {
			out[b] = -1
			continue
		}
		var sum float64
		for i := range p {
			p[i] = math.Exp((p[i] - top) * float64(a.Sharp))
			sum += p[i]
		}
		u *= sum
		for i := range p {
			if p[i] > 0 { // where rounding leaves u above the last sum, the last token that can be drawn
				out[b] = int32(i)
			}
			if u -= p[i]; u < 0 {
				break
			}
		}
	}
}
