package asm

import "math"

// The plain Go kernels. They define what the assembly computes, up to rounding.
// Products are written float32(x*y), which forbids the compiler to fuse them into
// the addition that follows, so that every architecture gets the same bits.

func dotGeneric(a, b []float32) float32 {
	b = b[:len(a)]
	var s [4]float32
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s[0] += float32(a[i] * b[i])
		s[1] += float32(a[i+1] * b[i+1])
		s[2] += float32(a[i+2] * b[i+2])
		s[3] += float32(a[i+3] * b[i+3])
	}
	for ; i < len(a); i++ {
		s[0] += float32(a[i] * b[i])
	}
	return (s[0] + s[2]) + (s[1] + s[3])
}

func dot3Generic(a, b, c []float32) float32 {
	b, c = b[:len(a)], c[:len(a)]
	var s [2]float32
	for i, x := range a {
		s[i&1] += float32(float32(x*b[i]) * c[i])
	}
	return s[0] + s[1]
}

func sumSqGeneric(x []float32) float32 { return dotGeneric(x, x) }

func maxGeneric(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

func expSumGeneric(dst, x []float32, scale, sub float32) float32 {
	dst = dst[:len(x)]
	var sum [4]float32
	for i, v := range x {
		e := expGeneric(float32(v*scale) - sub)
		dst[i] = e
		sum[i&3] += e
	}
	return (sum[0] + sum[2]) + (sum[1] + sum[3])
}

// expLowN is the smallest round(x/ln2) with a result other than 0: see ExpSum.
const expLowN = -123

// expGeneric returns exp(x), or 0 where round(x/ln2) is below expLowN.
//
// n = round(x/ln2), r = x - n*ln2, the Taylor polynomial of degree 7 on
// |r| <= ln2/2 (error below 6e-9 of the result) and 2^n by its exponent bits, all
// in float64 and rounded once, to +Inf where it overflows.
func expGeneric(x float32) float32 {
	if x > 89 {
		x = 89
	}
	// The product is exact, as in the fused operation of the assembly, so that the
	// border lies at the same x.
	n := math.RoundToEven(float64(x) * float64(float32(math.Log2E)))
	if n < expLowN {
		return 0
	}
	if n != n {
		return x // NaN
	}
	r := float64(x) - float64(n*math.Ln2)
	p := 1.0 / 5040
	for _, c := range [...]float64{1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1, 1} {
		p = float64(p*r) + c
	}
	return float32(p * math.Float64frombits(uint64(1023+int64(n))<<52))
}

func scaleGeneric(x []float32, s float32) {
	for i := range x {
		x[i] *= s
	}
}

func scaleMulGeneric(dst, x, w []float32, s float32) {
	dst, w = dst[:len(x)], w[:len(x)]
	for i, v := range x {
		dst[i] = float32(v*s) * w[i]
	}
}

func addGeneric(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] += v
	}
}

func axpyGeneric(dst, x []float32, s float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] += float32(v * s)
	}
}

func ropeGeneric(a, b, cos, sin []float32) {
	for i := range a {
		x, y, c, s := a[i], b[i], cos[i], sin[i]
		a[i] = float32(x*c) - float32(y*s)
		b[i] = float32(y*c) + float32(x*s)
	}
}

func ropeInvGeneric(a, b, cos, sin []float32) {
	for i := range a {
		x, y, c, s := a[i], b[i], cos[i], sin[i]
		a[i] = float32(x*c) + float32(y*s)
		b[i] = float32(y*c) - float32(x*s)
	}
}

func swigluGeneric(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = g / (1 + expGeneric(-g)) * up[i]
	}
}

func swigluBwdGeneric(dgate, dup, gate, up, dy []float32) {
	for i, g := range gate {
		s := 1 / (1 + expGeneric(-g))
		silu, u, d := float32(g*s), up[i], dy[i]
		dup[i] = float32(d * silu)
		dgate[i] = float32(d*u) * float32(s*(1+float32(g*(1-s))))
	}
}

func rmsBwdGeneric(dx, dw, dy, w, x []float32, r, k float32) {
	for i, v := range x {
		g := float32(dy[i] * r)
		dw[i] += float32(g * v)
		dx[i] = dx[i] + float32(g*w[i]) - float32(v*k)
	}
}

func dSoftmaxGeneric(p, dp []float32, d, s float32) {
	for i, v := range p {
		dp[i] = float32((dp[i]-d)*s) * v
	}
}

func adamWGeneric(p, grad, m, v []float32, h *[NumAdam]float32) {
	for i := range p {
		g := grad[i] * h[AdamScale]
		m[i] = float32(m[i]*h[AdamBeta1]) + float32(g*h[AdamBeta1C])
		v[i] = float32(v[i]*h[AdamBeta2]) + float32(float32(g*g)*h[AdamBeta2C])
		root := float32(math.Sqrt(float64(v[i])))
		p[i] = float32(p[i]*h[AdamKeep]) - float32(m[i]*h[AdamStep])/(float32(root*h[AdamRootBias])+h[AdamEps])
	}
}
