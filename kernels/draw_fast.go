package kernels

import (
	"math"

	"refrain/gpu"
	"refrain/kernels/asm"
)

// drawRun is how many probabilities are summed before it is decided whether the token is
// among them: the sums of runs are compared first, and single tokens in one run only.
const drawRun = 256

func drawFast(h gpu.Host, a *DrawArgs) func() {
	out, logits, words := gpu.Int32s(h, a.Out), gpu.Float32s(h, a.Logits), gpu.Int32s(h, a.Uniform)
	k, rows, v, n, pool := a.Logits.Dim(0), a.Logits.Dim(1), a.Logits.Dim(2), a.Among, h.Pool()
	runs := (n + drawRun - 1) / drawRun
	// Of each worker: the mean, the exponentials, the sums of runs.
	stride := (2*n + runs + 15) &^ 15
	scratch := h.Scratch("draw", pool.Threads()*stride)
	body := func(worker, lo, hi int) {
		s := scratch[worker*stride : (worker+1)*stride]
		for b := lo; b < hi; b++ {
			u, x := uniformAt(words, b), logits[b*v:b*v+n]
			if k > 1 {
				meanLogits(s[:n], logits, k, rows, v, b)
				x = s[:n]
			}
			out[b] = -1
			if allFinite(x) {
				out[b] = drawOne(x, s[n:2*n], s[2*n:2*n+runs], a.Sharp, u)
			}
		}
	}
	return func() { pool.For(rows, 1, body) }
}

// meanLogits leaves in mean the mean over the models for row b. A reciprocal that is not
// exact is off by far less than a float32 can tell: the mean of equal numbers is that number.
func meanLogits(mean, logits []float32, k, rows, v, b int) {
	share := 1 / float64(k)
	for i := range mean {
		sum, at := 0.0, b*v+i
		for range k {
			sum += float64(logits[at])
			at += rows * v
		}
		mean[i] = float32(sum * share)
	}
}

// allFinite says that x holds neither NaN nor an infinity.
func allFinite(x []float32) bool {
	const exponent = 0x7f800000
	for _, v := range x {
		if math.Float32bits(v)&exponent == exponent {
			return false
		}
	}
	return true
}

// drawOne draws a token from logits x; p and sums are scratch.
func drawOne(x, p, sums []float32, sharp float32, u float64) int32 {
	top, total := asm.Max(x)*sharp, 0.0
	for i := range sums {
		from, to := i*drawRun, min((i+1)*drawRun, len(x))
		sums[i] = asm.ExpSum(p[from:to], x[from:to], sharp, top)
		total += float64(sums[i])
	}
	u *= total
	run := 0
	for i, s := range sums {
		if s > 0 {
			run = i
		}
		if u < float64(s) {
			break
		}
		u -= float64(s)
	}
	id := int32(0)
	for i, q := range p[run*drawRun : min((run+1)*drawRun, len(p))] {
		if q > 0 {
			id = int32(run*drawRun + i)
		}
		if u -= float64(q); u < 0 {
			break
		}
	}
	return id
}
