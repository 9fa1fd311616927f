package kernels

import (
	"math"

	"refrain/gpu"
)

// SwiGLUArgs are the arguments of SwiGLU.
type SwiGLUArgs struct {
	A  gpu.Tensor // [N,F] f32 or bf16
	GU gpu.Tensor // [N,2F] of the type of A: gate, then up
}

// SwiGLU gates the up projection: a = silu(gate) * up, silu(g) = g/(1+exp(-g))
// (Shazeer, GLU variants improve transformer, 2020).
var SwiGLU = Kernel[SwiGLUArgs]{
	Name: "swiglu",
	Check: func(a *SwiGLUArgs) error {
		var c checker
		dt, s := c.stored("a", a.A, 2)
		c.is("gu", a.GU, dt, s[0], 2*s[1])
		c.apart(names{{"a", a.A}}, names{{"gu", a.GU}})
		return c.err
	},
	Access: func(a *SwiGLUArgs) (reads, writes []gpu.Span) { return spans(a.GU), spans(a.A) },
	Cost: func(a *SwiGLUArgs) gpu.Cost {
		return gpu.Cost{FLOPs: 5 * float64(a.A.Elems()), Bytes: bytesOf(a.A, a.GU)}
	},
	Ref:  func(h gpu.Host, a *SwiGLUArgs) { swigluRef(narrow(h), a) },
	Wide: func(h WideHost, a *SwiGLUArgs) { swigluRef(wide(h), a) },
	Fast: swigluFast,
	CUDA: swigluCUDA,
}

func swigluRef[T real](m memory[T], a *SwiGLUArgs) {
	gu := m.read(a.GU)
	out, store := m.values(a.A)
	n, f := a.A.Dim(0), a.A.Dim(1)
	for r := range n {
		for i := range f {
			g, u := float64(gu[r*2*f+i]), float64(gu[r*2*f+f+i])
			out[r*f+i] = T(g / (1 + math.Exp(-g)) * u)
		}
	}
	store()
}

// SwiGLUBwdArgs are the arguments of SwiGLUBwd.
type SwiGLUBwdArgs struct {
	DGU gpu.Tensor // [N,2F] of the type of DA
	DA  gpu.Tensor // [N,F] f32 or bf16, gradient of A
	GU  gpu.Tensor // [N,2F] of the type of DA
}

// SwiGLUBwd is the gradient of SwiGLU: with s = 1/(1+exp(-gate)),
//
//	dgate = da * up * s*(1 + gate*(1-s));  dup = da * gate*s
var SwiGLUBwd = Kernel[SwiGLUBwdArgs]{
	Name: "swiglu_bwd",
	Check: func(a *SwiGLUBwdArgs) error {
		var c checker
		dt, s := c.stored("da", a.DA, 2)
		c.is("gu", a.GU, dt, s[0], 2*s[1])
		c.is("dgu", a.DGU, dt, s[0], 2*s[1])
		c.apart(names{{"dgu", a.DGU}}, names{{"da", a.DA}, {"gu", a.GU}})
		return c.err
	},
	Access: func(a *SwiGLUBwdArgs) (reads, writes []gpu.Span) { return spans(a.DA, a.GU), spans(a.DGU) },
	Cost: func(a *SwiGLUBwdArgs) gpu.Cost {
		return gpu.Cost{FLOPs: 11 * float64(a.DA.Elems()), Bytes: bytesOf(a.DA, a.GU, a.DGU)}
	},
	Ref:  func(h gpu.Host, a *SwiGLUBwdArgs) { swigluBwdRef(narrow(h), a) },
	Wide: func(h WideHost, a *SwiGLUBwdArgs) { swigluBwdRef(wide(h), a) },
	Fast: swigluBwdFast,
	CUDA: swigluBwdCUDA,
}

func swigluBwdRef[T real](m memory[T], a *SwiGLUBwdArgs) {
	da, gu := m.read(a.DA), m.read(a.GU)
	dgu, store := m.values(a.DGU)
	n, f := a.DA.Dim(0), a.DA.Dim(1)
	for r := range n {
		for i := range f {
			g, u, d := float64(gu[r*2*f+i]), float64(gu[r*2*f+f+i]), float64(da[r*f+i])
			s := 1 / (1 + math.Exp(-g))
			dgu[r*2*f+i] = T(d * u * s * (1 + g*(1-s)))
			dgu[r*2*f+f+i] = T(d * g * s)
		}
	}
	store()
}
