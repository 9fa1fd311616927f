package kernels

import (
	"math"

	"refrain/gpu"
)

// NormPartials is the number of partial sums of a norm's weight gradient. It
// is fixed, so that the sum does not depend on how many threads there are;
// partial p covers rows [p*N/NormPartials, (p+1)*N/NormPartials).
const NormPartials = 32

// RMSNormArgs are the arguments of RMSNorm.
type RMSNormArgs struct {
	Out  gpu.Tensor // [N,D] f32 or bf16
	Rstd gpu.Tensor // [N] f32, kept for the gradient
	X    gpu.Tensor // [N,D] f32
	W    gpu.Tensor // [D] f32
	Eps  float32
}

// RMSNorm scales each row: rstd = 1/sqrt(mean(x^2) + eps), out = x * rstd * w
// (Zhang and Sennrich, Root mean square layer normalization, 2019).
var RMSNorm = Kernel[RMSNormArgs]{
	Name: "rmsnorm",
	Check: func(a *RMSNormArgs) error {
		var c checker
		x := c.ranked("x", a.X, gpu.F32, 2)
		c.either("out", a.Out, gpu.BF16, x[0], x[1])
		c.f32("rstd", a.Rstd, x[0])
		c.f32("w", a.W, x[1])
		if !(a.Eps >= 0 && a.Eps < math.MaxFloat32) {
			c.failf("eps is %v, want a finite value of at least 0", a.Eps)
		}
		c.apart(names{{"out", a.Out}, {"rstd", a.Rstd}}, names{{"x", a.X}, {"w", a.W}})
		return c.err
	},
	Access: func(a *RMSNormArgs) (reads, writes []gpu.Span) {
		return spans(a.X, a.W), spans(a.Out, a.Rstd)
	},
	Cost: func(a *RMSNormArgs) gpu.Cost {
		return gpu.Cost{FLOPs: 4 * float64(a.X.Elems()), Bytes: bytesOf(a.X, a.W, a.Out, a.Rstd)}
	},
	Ref:  func(h gpu.Host, a *RMSNormArgs) { rmsnormRef(narrow(h), a) },
	Wide: func(h WideHost, a *RMSNormArgs) { rmsnormRef(wide(h), a) },
	Fast: rmsnormFast,
	CUDA: rmsnormCUDA,
}

func rmsnormRef[T real](m memory[T], a *RMSNormArgs) {
	x, w, rstd := m.reals(a.X), m.reals(a.W), m.reals(a.Rstd)
	out, store := m.values(a.Out)
	d := len(w)
	for n := range rstd {
		var s float64
		for _, v := range x[n*d : (n+1)*d] {
			s += float64(v) * float64(v)
		}
		r := 1 / math.Sqrt(s/float64(d)+float64(a.Eps))
		rstd[n] = T(r)
		for i := range d {
			out[n*d+i] = T(float64(x[n*d+i]) * r * float64(w[i]))
		}
	}
	store()
}

// RMSNormBwdArgs are the arguments of RMSNormBwd.
type RMSNormBwdArgs struct {
	DX           gpu.Tensor // [N,D] f32
	DW           gpu.Tensor // [D] f32
	DY           gpu.Tensor // [N,D] f32 or bf16, gradient of Out
	X            gpu.Tensor // [N,D] f32
	W            gpu.Tensor // [D] f32
	Rstd         gpu.Tensor // [N] f32, from the forward op
	Part         gpu.Tensor // [NormPartials,D] f32, temporary
	AccumulateDX bool       // add to DX, which then holds the residual stream's gradient
	AccumulateDW bool       // add to DW, for gradient accumulation
}

// RMSNormBwd is the gradient of RMSNorm:
//
//	dx (+)= r*w*dy - x * r^3/D * sum(dy*w*x)
//	dw (+)= sum over rows of dy*x*r
var RMSNormBwd = Kernel[RMSNormBwdArgs]{
	Name: "rmsnorm_bwd",
	Check: func(a *RMSNormBwdArgs) error {
		var c checker
		x := c.ranked("x", a.X, gpu.F32, 2)
		c.f32("dx", a.DX, x[0], x[1])
		c.either("dy", a.DY, gpu.BF16, x[0], x[1])
		c.f32("w", a.W, x[1])
		c.f32("dw", a.DW, x[1])
		c.f32("rstd", a.Rstd, x[0])
		c.f32("part", a.Part, NormPartials, x[1])
		c.apart(names{{"dx", a.DX}, {"dw", a.DW}, {"part", a.Part}},
			names{{"dy", a.DY}, {"x", a.X}, {"w", a.W}, {"rstd", a.Rstd}})
		return c.err
	},
	Access: func(a *RMSNormBwdArgs) (reads, writes []gpu.Span) {
		reads = spans(a.DY, a.X, a.W, a.Rstd)
		if a.AccumulateDX {
			reads = append(reads, a.DX.Span)
		}
		if a.AccumulateDW {
			reads = append(reads, a.DW.Span)
		}
		return reads, spans(a.DX, a.DW, a.Part)
	},
	Cost: func(a *RMSNormBwdArgs) gpu.Cost {
		c := gpu.Cost{FLOPs: 11 * float64(a.X.Elems()), Bytes: bytesOf(a.X, a.DY, a.DX, a.W, a.DW, a.Rstd)}
		if a.AccumulateDX {
			c.Bytes += bytesOf(a.DX)
		}
		return c
	},
	Ref:  func(h gpu.Host, a *RMSNormBwdArgs) { rmsnormBwdRef(narrow(h), a) },
	Wide: func(h WideHost, a *RMSNormBwdArgs) { rmsnormBwdRef(wide(h), a) },
	Fast: rmsnormBwdFast,
	CUDA: rmsnormBwdCUDA,
}

func rmsnormBwdRef[T real](m memory[T], a *RMSNormBwdArgs) {
	dx, dw, dy := m.reals(a.DX), m.reals(a.DW), m.read(a.DY)
	x, w, rstd := m.reals(a.X), m.reals(a.W), m.reals(a.Rstd)
	d := len(w)
	sum := make([]float64, d)
	if a.AccumulateDW {
		for i, g := range dw {
			sum[i] = float64(g)
		}
	}
	for n := range rstd {
		x, dy, dx, r := x[n*d:(n+1)*d], dy[n*d:(n+1)*d], dx[n*d:(n+1)*d], float64(rstd[n])
		var c float64
		for i := range d {
			c += float64(dy[i]) * float64(w[i]) * float64(x[i])
		}
		for i := range d {
			g := r*float64(w[i])*float64(dy[i]) - float64(x[i])*r*r*r*c/float64(d)
			if a.AccumulateDX {
				g += float64(dx[i])
			}
			dx[i] = T(g)
			sum[i] += float64(dy[i]) * float64(x[i]) * r
		}
	}
	for i, s := range sum {
		dw[i] = T(s)
	}
	// The partials are an implementation's own business; their content after
	// the op is unspecified, and the reference needs none.
}
