package kernels

import (
	"math"

	"refrain/gpu"
)

// GuardArgs are the arguments of Guard.
type GuardArgs struct {
	Scale   gpu.Tensor // [1] f32: what AdamW multiplies gradients by
	Halt    gpu.Tensor // [1] i32, in place: stays 1 once set
	SumSq   gpu.Tensor // [1] f32: sum of squares of all gradients
	Loss    gpu.Tensor // [1] f32
	MaxNorm float32    // clip gradients to this norm; 0 for no clipping
}

// Guard decides what becomes of a step, before any weight changes. With norm =
// sqrt(sumsq): when norm or loss is not finite, or halt is already set, halt is
// 1 and scale 0. Otherwise scale is maxnorm/norm where that is below one, else 1.
var Guard = Kernel[GuardArgs]{
	Name: "guard",
	Check: func(a *GuardArgs) error {
		var c checker
		c.f32("scale", a.Scale, 1)
		c.i32("halt", a.Halt, 1)
		c.f32("sumsq", a.SumSq, 1)
		c.f32("loss", a.Loss, 1)
		if !(a.MaxNorm >= 0 && a.MaxNorm <= math.MaxFloat32) {
			c.failf("maxnorm is %v, want a finite value of at least 0", a.MaxNorm)
		}
		c.apart(names{{"scale", a.Scale}, {"halt", a.Halt}}, names{{"sumsq", a.SumSq}, {"loss", a.Loss}})
		return c.err
	},
	Access: func(a *GuardArgs) (reads, writes []gpu.Span) {
		return spans(a.Halt, a.SumSq, a.Loss), spans(a.Scale, a.Halt)
	},
	Cost: func(a *GuardArgs) gpu.Cost { return gpu.Cost{FLOPs: 2, Bytes: 20} },
	CUDA: guardCUDA,
	Ref:  func(h gpu.Host, a *GuardArgs) { guardRef(narrow(h), a) },
	Wide: func(h WideHost, a *GuardArgs) { guardRef(wide(h), a) },
	Fast: func(h gpu.Host, a *GuardArgs) func() {
		m := narrow(h)
		scale, halt, sumsq, loss := m.reals(a.Scale), m.ints(a.Halt), m.reals(a.SumSq), m.reals(a.Loss)
		return func() { scale[0], halt[0] = guard(float64(sumsq[0]), float64(loss[0]), a.MaxNorm, halt[0]) }
	},
}

func guardRef[T real](m memory[T], a *GuardArgs) {
	halt := m.ints(a.Halt)
	scale, stop := guard(float64(m.reals(a.SumSq)[0]), float64(m.reals(a.Loss)[0]), a.MaxNorm, halt[0])
	m.reals(a.Scale)[0], halt[0] = T(scale), stop
}

func guard(sumsq, loss float64, maxNorm float32, halt int32) (scale float32, stop int32) {
	norm := math.Sqrt(sumsq)
	if halt != 0 || norm-norm != 0 || loss-loss != 0 {
		return 0, 1
	}
	if maxNorm > 0 && norm > float64(maxNorm) {
		return float32(float64(maxNorm) / norm), 0
	}
	return 1, 0
}

// AdamHyper is the content of AdamWArgs.Hyper for optimiser step t, counted
// from 1. Everything is computed in float64 and rounded once; 1-beta is a
// value of its own because 1 minus a rounded 0.999 is off by 1e-5.
func AdamHyper(lr, beta1, beta2, eps float64, t int64) [8]float32 {
	return [8]float32{
		float32(lr), float32(beta1), float32(beta2), float32(eps),
		float32(1 / -math.Expm1(float64(t)*math.Log(beta1))),
		float32(1 / -math.Expm1(float64(t)*math.Log(beta2))),
		float32(1 - beta1), float32(1 - beta2),
	}
}

// AdamWArgs are the arguments of AdamW.
type AdamWArgs struct {
	P     gpu.Tensor // any shape, f32, in place: parameters
	G     gpu.Tensor // as many elements, f32: gradients
	M, V  gpu.Tensor // as many elements, f32, in place: moments
	Hyper gpu.Tensor // [8] f32: {lr, beta1, beta2, eps, 1/(1-beta1^t), 1/(1-beta2^t), 1-beta1, 1-beta2}, see AdamHyper
	Scale gpu.Tensor // [1] f32 from Guard
	Halt  gpu.Tensor // [1] i32 from Guard

	WeightDecay float32
	LRMul       float32 // learning rate multiplier of the parameter's role

	DecayFactor gpu.Tensor // [1] f32, optional: WeightDecay is multiplied by it, where it changes from step to step
}

// AdamW is one step of Adam with decoupled, learning-rate-scaled weight decay
// (Loshchilov and Hutter, 2019), in the order of operations of
// torch.optim.AdamW:
//
//	g = G * scale
//	p = p * (1 - lr*lrmul*decay)
//	m = beta1*m + (1-beta1)*g
//	v = beta2*v + (1-beta2)*g*g
//	p = p - lr*lrmul/(1-beta1^t) * m / (sqrt(v/(1-beta2^t)) + eps)
//
// When halt is set nothing is touched.
var AdamW = Kernel[AdamWArgs]{
	Name: "adamw",
	Check: func(a *AdamWArgs) error {
		var c checker
		n := c.flat("p", a.P)
		c.elems("g", a.G, n)
		c.elems("m", a.M, n)
		c.elems("v", a.V, n)
		c.f32("hyper", a.Hyper, 8)
		c.f32("scale", a.Scale, 1)
		c.i32("halt", a.Halt, 1)
		if !(a.WeightDecay >= 0 && a.WeightDecay <= math.MaxFloat32) {
			c.failf("weight decay is %v, want a finite value of at least 0", a.WeightDecay)
		}
		if !(a.LRMul >= 0 && a.LRMul <= math.MaxFloat32) {
			c.failf("learning rate multiplier is %v, want a finite value of at least 0", a.LRMul)
		}
		if !a.DecayFactor.IsZero() {
			c.f32("decay factor", a.DecayFactor, 1)
		}
		c.apart(names{{"p", a.P}, {"m", a.M}, {"v", a.V}},
			names{{"g", a.G}, {"hyper", a.Hyper}, {"scale", a.Scale}, {"halt", a.Halt}, {"decay factor", a.DecayFactor}})
		return c.err
	},
	Access: func(a *AdamWArgs) (reads, writes []gpu.Span) {
		return spans(a.P, a.G, a.M, a.V, a.Hyper, a.Scale, a.Halt, a.DecayFactor), spans(a.P, a.M, a.V)
	},
	Cost: func(a *AdamWArgs) gpu.Cost {
		return gpu.Cost{FLOPs: 14 * float64(a.P.Elems()), Bytes: bytesOf(a.P, a.P, a.G, a.M, a.M, a.V, a.V)}
	},
	Ref:  func(h gpu.Host, a *AdamWArgs) { adamwRef(narrow(h), a) },
	Wide: func(h WideHost, a *AdamWArgs) { adamwRef(wide(h), a) },
	Fast: adamwFast,
	CUDA: adamwCUDA,
}

func adamwRef[T real](ms memory[T], a *AdamWArgs) {
	if ms.ints(a.Halt)[0] != 0 {
		return
	}
	p, g, m, v := ms.reals(a.P), ms.reals(a.G), ms.reals(a.M), ms.reals(a.V)
	var h [8]float64
	for i, x := range ms.reals(a.Hyper) {
		h[i] = float64(x)
	}
	scale := float64(ms.reals(a.Scale)[0])
	lr := h[0] * float64(a.LRMul)
	decay := float64(a.WeightDecay)
	if !a.DecayFactor.IsZero() {
		decay *= float64(ms.reals(a.DecayFactor)[0])
	}
	keep := 1 - lr*decay
	for i := range p {
		g := float64(g[i]) * scale
		m[i] = T(h[1]*float64(m[i]) + h[6]*g)
		v[i] = T(h[2]*float64(v[i]) + h[7]*g*g)
		p[i] = T(float64(p[i])*keep - lr*h[4]*float64(m[i])/(math.Sqrt(float64(v[i])*h[5])+h[3]))
	}
}
