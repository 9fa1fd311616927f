package kernels

import (
	"fmt"
	"math"

	"refrain/gpu"
)

// HeadLossArgs are the arguments of HeadLoss.
type HeadLossArgs struct {
	Loss    gpu.Tensor // [N] f32, in nats; 0 where masked
	X       gpu.Tensor // [N,D] f32 or bf16, final hidden states
	W       gpu.Tensor // [V,D] of the type of X, the head
	Targets gpu.Tensor // [N] i32, each in [0,V) or -1 for masked
	Scale   gpu.Tensor // [1] f32: reciprocal of the gradient's divisor; only needed with DX or DW
	DX      gpu.Tensor // [N,D] of the type of X, optional: gradient of Scale*sum(Loss) for X
	DW      gpu.Tensor // [V,D] f32, optional: the same for W
	Logits  gpu.Tensor // [Chunk,V] f32, temporary: rows are worked off Chunk at a time

	AccumulateDW bool
}

// HeadLoss fuses the output head, the cross entropy and both their gradients,
// so that logits exist for one chunk of rows at a time:
//
//	logits = x * transpose(w);  loss[n] = logsumexp(logits[n]) - logits[n,target]
//	dlogits = (softmax(logits) - onehot(target)) * scale
//	dx = dlogits * w;  dw (+)= transpose(dlogits) * x
//
// A masked row has loss 0 and no gradient, whatever its hidden state; its row
// of dx is written as zeros. Without DX and DW it is a forward op. Logits and
// all that is computed from them are f32; dlogits is rounded where it is
// multiplied with bf16.
var HeadLoss = Kernel[HeadLossArgs]{
	Name: "head_loss",
	Check: func(a *HeadLossArgs) error {
		var c checker
		dt, x := c.stored("x", a.X, 2)
		w := c.ranked("w", a.W, dt, 2)
		c.is("w", a.W, dt, w[0], x[1])
		c.f32("loss", a.Loss, x[0])
		c.i32("targets", a.Targets, x[0])
		l := c.ranked("logits", a.Logits, gpu.F32, 2)
		c.f32("logits", a.Logits, l[0], w[0])
		if l[0] > x[0] {
			c.failf("logits has %d rows for %d tokens; want at most as many", l[0], x[0])
		}
		if a.grads() {
			c.f32("scale", a.Scale, 1)
		}
		if !a.DX.IsZero() {
			c.is("dx", a.DX, dt, x[0], x[1])
		}
		if !a.DW.IsZero() {
			c.f32("dw", a.DW, w[0], w[1])
		} else if a.AccumulateDW {
			c.failf("AccumulateDW without dw")
		}
		c.apart(names{{"loss", a.Loss}, {"dx", a.DX}, {"dw", a.DW}, {"logits", a.Logits}},
			names{{"x", a.X}, {"w", a.W}, {"targets", a.Targets}, {"scale", a.Scale}})
		return c.err
	},
	Access: func(a *HeadLossArgs) (reads, writes []gpu.Span) {
		reads = spans(a.X, a.W, a.Targets)
		if a.grads() {
			reads = append(reads, a.Scale.Span)
		}
		if a.AccumulateDW {
			reads = append(reads, a.DW.Span)
		}
		return reads, spans(a.Loss, a.DX, a.DW, a.Logits)
	},
	Cost: func(a *HeadLossArgs) gpu.Cost {
		products := 1.0
		for _, g := range []gpu.Tensor{a.DX, a.DW} {
			if !g.IsZero() {
				products++
			}
		}
		logits := float64(a.X.Dim(0)) * float64(a.W.Dim(0))
		return gpu.Cost{
			FLOPs: products*productFLOPs(a.X, a.W) + 4*logits,
			Bytes: bytesOf(a.X, a.W, a.Targets, a.Loss, a.DX, a.DW) + again(a.AccumulateDW, a.DW),
		}
	},
	Ref:  func(h gpu.Host, a *HeadLossArgs) { headLossRef(narrow(h), a) },
	Wide: func(h WideHost, a *HeadLossArgs) { headLossRef(wide(h), a) },
	Fast: headLossFast,
	CUDA: headLossCUDA,
}

func (a *HeadLossArgs) grads() bool { return !a.DX.IsZero() || !a.DW.IsZero() }

// checkTarget stops on a target that is neither a class nor the mask.
func checkTarget(n int, target int32, v int) {
	if target < -1 || int(target) >= v {
		panic(fmt.Sprintf("head_loss: target %d at position %d is outside [0,%d) and not -1; targets are checked where batches are built", target, n, v))
	}
}

func headLossRef[T real](m memory[T], a *HeadLossArgs) {
	headRef(m, a, func(_ int, dz []float64, x, w []T, target int) float64 { return crossEntropy(dz, x, w, target) })
}

// headRef is the reference of a head with a loss: one returns the loss of a row and leaves
// the gradient of its logits in dz.
func headRef[T real](m memory[T], a *HeadLossArgs, one func(row int, dz []float64, x, w []T, target int) float64) {
	loss, x, w, targets := m.reals(a.Loss), m.read(a.X), m.read(a.W), m.ints(a.Targets)
	v, d := a.W.Dim(0), a.W.Dim(1)
	var dx, dw []T
	var sum []float64
	var scale float64
	if a.grads() {
		scale = float64(m.reals(a.Scale)[0])
	}
	if !a.DX.IsZero() {
		var store func()
		dx, store = m.values(a.DX)
		clear(dx)
		defer store()
	}
	if !a.DW.IsZero() {
		dw = m.reals(a.DW)
		sum = make([]float64, v*d)
		if a.AccumulateDW {
			for i, g := range dw {
				sum[i] = float64(g)
			}
		}
	}
	p := make([]float64, v)
	row := make([]float64, d)
	for n, target := range targets {
		checkTarget(n, target, v)
		loss[n] = 0
		if target < 0 {
			continue
		}
		hidden := x[n*d : (n+1)*d]
		loss[n] = T(one(n, p, hidden, w, int(target)))
		clear(row)
		for k, g := range p {
			g = m.factor(g*scale, a.W.DType)
			for i := range row {
				row[i] += g * float64(w[k*d+i])
				if dw != nil {
					sum[k*d+i] += g * float64(hidden[i])
				}
			}
		}
		if dx != nil {
			for i, g := range row {
				dx[n*d+i] = T(g)
			}
		}
	}
	for i, s := range sum {
		dw[i] = T(s)
	}
}

// crossEntropy returns the loss of one hidden state and leaves in p the
// gradient of the logits, softmax minus one at the target.
func crossEntropy[T real](p []float64, x, w []T, target int) float64 {
	top := math.Inf(-1)
	for k := range p {
		p[k] = dot(x, w[k*len(x):(k+1)*len(x)])
		top = max(top, p[k])
	}
	z := p[target]
	var sum float64
	for k := range p {
		p[k] = math.Exp(p[k] - top)
		sum += p[k]
	}
	for k := range p {
		p[k] /= sum
	}
	p[target]--
	return top + math.Log(sum) - z
}
