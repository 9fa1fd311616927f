package asm

import "math"

// The plain Go kernels give the bits of the assembly: they round at the same steps
// and add in the same order. Products are written float32(x*y), which forbids the
// compiler to fuse them into the addition that follows; where the assembly does fuse,
// stands fma.
//
// Elements go to lanes as in streams of the assembly: blocks of four vectors of
// eight lanes, each vector with an accumulator of its own, then single vectors, which
// go to the first accumulator.

const (
	vectorLen = 8
	blockLen  = 4 * vectorLen
)

// lanes are four vectors of partial sums.
type lanes [blockLen]float32

// lane returns where element i of n goes.
func lane(i, n int) int {
	if i < n&^(blockLen-1) {
		return i % blockLen
	}
	return i % vectorLen
}

// fold adds the vectors pairwise into the first and sums its lanes: halves, then
// pairs, then neighbours. n is the number of elements: the vector of the last few is
// filled up with zeros, and adding those turns a -0 into +0.
func (s *lanes) fold(n int) float32 {
	if n%vectorLen > 0 {
		for l := n % vectorLen; l < vectorLen; l++ {
			s[l] += 0
		}
	}
	for width := blockLen / 2; width > 0; width /= 2 {
		for l := range width {
			s[l] += s[l+width]
		}
	}
	return s[0]
}

func dotGeneric(a, b []float32) float32 {
	b = b[:len(a)]
	var s lanes
	for i, x := range a {
		l := lane(i, len(a))
		s[l] = fma(x, b[i], s[l])
	}
	return s.fold(len(a))
}

func dot3Generic(a, b, c []float32) float32 {
	b, c = b[:len(a)], c[:len(a)]
	var s lanes
	for i, x := range a {
		l := lane(i, len(a))
		s[l] = fma(float32(x*b[i]), c[i], s[l])
	}
	return s.fold(len(a))
}

func sumSqGeneric(x []float32) float32 { return dotGeneric(x, x) }

// maxGeneric goes through lanes for the sign of a zero that is the largest.
func maxGeneric(x []float32) float32 {
	var m lanes
	for l := range m {
		m[l] = float32(math.Inf(-1))
	}
	for i, v := range x {
		if l := lane(i, len(x)); v > m[l] {
			m[l] = v
		}
	}
	for width := blockLen / 2; width > 0; width /= 2 {
		for l := range width {
			if !(m[l] > m[l+width]) {
				m[l] = m[l+width]
			}
		}
	}
	return m[0]
}

func expSumGeneric(dst, x []float32, scale, sub float32) float32 {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = expGeneric(fma(v, scale, -sub))
	}
	var sum [vectorLen]float32
	for ; len(dst) >= blockLen; dst = dst[blockLen:] {
		for l := range sum {
			sum[l] += (dst[l] + dst[2*vectorLen+l]) + (dst[vectorLen+l] + dst[3*vectorLen+l])
		}
	}
	for i, e := range dst {
		sum[i%vectorLen] += e
	}
	return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]))
}

// expLowN is the smallest round(x*log2 e) with a result other than 0: see ExpSum.
const expLowN = -123

// ln2 in two parts, of which the first has few bits (Cody and Waite).
const ln2Hi, ln2Lo = 0.693359375, -2.12194440e-4

// expPoly are the coefficients of exp(r)/4 on |r| <= ln2/2, highest power first: the
// minimax polynomial of the Cephes library's expf.
var expPoly = [8]float32{
	1.9875691500e-4 / 4, 1.3981999507e-3 / 4, 8.3334519073e-3 / 4,
	4.1665795894e-2 / 4, 1.6666665459e-1 / 4, 5.0000001201e-1 / 4, 1. / 4, 1. / 4,
}

// expGeneric returns exp(x), or 0 where n = round(x*log2 e) is below expLowN. With
// r = x - n*ln2, exp(r)/4 times 2^n does not overflow at x = 89; times 4, it does
// where it must.
func expGeneric(x float32) float32 {
	if x != x {
		return x
	}
	if x > 89 {
		x = 89
	}
	const round = 1.5 * (1 << 23) // adding it rounds to the nearest integer, ties to even
	n := fma(x, math.Log2E, round) - round
	if n < expLowN {
		return 0
	}
	r := fma(-n, ln2Lo, fma(-n, ln2Hi, x))
	p := expPoly[0]
	for _, c := range expPoly[1:] {
		p = fma(p, r, c)
	}
	return math.Float32frombits(math.Float32bits(p)+uint32(int32(n))<<23) * 4
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
		dst[i] = fma(v, s, dst[i])
	}
}

func ropeGeneric(a, b, cos, sin []float32) {
	for i := range a {
		x, y, c, s := a[i], b[i], cos[i], sin[i]
		a[i] = fma(x, c, -float32(y*s))
		b[i] = fma(y, c, float32(x*s))
	}
}

func ropeInvGeneric(a, b, cos, sin []float32) {
	for i := range a {
		x, y, c, s := a[i], b[i], cos[i], sin[i]
		a[i] = fma(x, c, float32(y*s))
		b[i] = fma(y, c, -float32(x*s))
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
		dgate[i] = float32(d*u) * float32(s*fma(g, 1-s, 1))
	}
}

func rmsBwdGeneric(dx, dw, dy, w, x []float32, r, k float32) {
	for i, v := range x {
		g := float32(dy[i] * r)
		dw[i] = fma(g, v, dw[i])
		dx[i] = fma(-v, k, fma(g, w[i], dx[i]))
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
		m[i] = fma(g, h[AdamBeta1C], float32(m[i]*h[AdamBeta1]))
		v[i] = fma(float32(g*g), h[AdamBeta2C], float32(v[i]*h[AdamBeta2]))
		root := float32(math.Sqrt(float64(v[i])))
		p[i] = float32(p[i]*h[AdamKeep]) - float32(m[i]*h[AdamStep])/fma(root, h[AdamRootBias], h[AdamEps])
	}
}
