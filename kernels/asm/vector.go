package asm

import (
	"fmt"
	"slices"
)

// Kernels names the best set of kernels this process uses: "purego", "neon", "avx2",
// "avx512" or "avx512bf16". See the package comment for what they share.
func Kernels() string {
	return set{vector: vector, wide: wide, pairs16: pairs16}.name(vectorName)
}

// mismatch panics with the lengths a function was given. The comparisons stand in
// each function: a call on 32 elements takes about 10 ns, so that they count.
//
//go:noinline
func mismatch(name string, lengths ...int) {
	panic(fmt.Sprintf("asm: %s: slices of %d elements; all slices must have one length", name, slices.Clone(lengths)))
}

// Dot returns the sum of a[i]*b[i], summed in float32.
func Dot(a, b []float32) float32 {
	if len(b) != len(a) {
		mismatch("Dot", len(a), len(b))
	}
	if vector && len(a) > 0 {
		return dotVec(len(a), &a[0], &b[0])
	}
	return dotGeneric(a, b)
}

// Dot3 returns the sum of a[i]*b[i]*c[i], summed in float32.
func Dot3(a, b, c []float32) float32 {
	if len(b) != len(a) || len(c) != len(a) {
		mismatch("Dot3", len(a), len(b), len(c))
	}
	if vector && len(a) > 0 {
		return dot3Vec(len(a), &a[0], &b[0], &c[0])
	}
	return dot3Generic(a, b, c)
}

// SumSq returns the sum of x[i]*x[i], summed in float32.
func SumSq(x []float32) float32 {
	if vector && len(x) > 0 {
		return sumSqVec(len(x), &x[0])
	}
	return sumSqGeneric(x)
}

// Max returns the largest x[i], -Inf for an empty slice. NaN is passed over, so
// a slice of nothing but NaN gives -Inf as well.
func Max(x []float32) float32 {
	if vector && len(x) > 0 {
		return maxVec(len(x), &x[0])
	}
	return maxGeneric(x)
}

// ExpSum sets dst[i] = exp(x[i]*scale - sub) and returns the sum of dst. The
// exponential is within 2 ulp of the true value of its float32 argument. Arguments
// below -85.6 give 0 instead of a number below 6.7e-38, so -Inf gives 0; results
// above the largest float32 are +Inf; NaN gives NaN.
func ExpSum(dst, x []float32, scale, sub float32) float32 {
	if len(x) != len(dst) {
		mismatch("ExpSum", len(dst), len(x))
	}
	if wide && len(x) > 0 {
		return expSum512Vec(len(x), &dst[0], &x[0], scale, sub)
	}
	if vector && len(x) > 0 {
		return expSumVec(len(x), &dst[0], &x[0], scale, sub)
	}
	return expSumGeneric(dst, x, scale, sub)
}

// Scale sets x[i] = x[i]*s.
func Scale(x []float32, s float32) {
	if vector && len(x) > 0 {
		scaleVec(len(x), &x[0], s)
		return
	}
	scaleGeneric(x, s)
}

// ScaleMul sets dst[i] = x[i]*s*w[i].
func ScaleMul(dst, x, w []float32, s float32) {
	if len(x) != len(dst) || len(w) != len(dst) {
		mismatch("ScaleMul", len(dst), len(x), len(w))
	}
	if vector && len(x) > 0 {
		scaleMulVec(len(x), &dst[0], &x[0], &w[0], s)
		return
	}
	scaleMulGeneric(dst, x, w, s)
}

// Add sets dst[i] = dst[i] + x[i].
func Add(dst, x []float32) {
	if len(x) != len(dst) {
		mismatch("Add", len(dst), len(x))
	}
	if vector && len(x) > 0 {
		addVec(len(x), &dst[0], &x[0])
		return
	}
	addGeneric(dst, x)
}

// Axpy sets dst[i] = dst[i] + x[i]*s.
func Axpy(dst, x []float32, s float32) {
	if len(x) != len(dst) {
		mismatch("Axpy", len(dst), len(x))
	}
	if vector && len(x) > 0 {
		axpyVec(len(x), &dst[0], &x[0], s)
		return
	}
	axpyGeneric(dst, x, s)
}

// DotRows sets dst[j] to Dot(q, row j of m), with the same bits. m holds len(dst) rows of
// len(q) floats.
func DotRows(dst, q, m []float32) {
	if len(m) != len(dst)*len(q) {
		mismatch("DotRows", len(dst), len(q), len(m))
	}
	if vectorRows && vector && len(m) > 0 {
		dotRowsVec(len(dst), len(q), &dst[0], &q[0], &m[0])
		return
	}
	for j := range dst {
		dst[j] = Dot(q, m[j*len(q):(j+1)*len(q)])
	}
}

// AxpyRows adds p[j] times row j of m to dst, for one j after the other, with the bits of
// Axpy. m holds len(p) rows of len(dst) floats.
func AxpyRows(dst, p, m []float32) {
	if len(m) != len(dst)*len(p) {
		mismatch("AxpyRows", len(dst), len(p), len(m))
	}
	if vectorRows && vector && len(m) > 0 {
		axpyRowsVec(len(p), len(dst), &dst[0], &p[0], &m[0])
		return
	}
	for j, s := range p {
		Axpy(dst, m[j*len(dst):(j+1)*len(dst)], s)
	}
}

// Rope rotates the pairs (a[i], b[i]) by the angles whose cosines and sines are
// given, in place: a = a*cos - b*sin, b = b*cos + a*sin. With the two halves of a
// head as a and b this is the half-split rotary embedding.
func Rope(a, b, cos, sin []float32) {
	if len(b) != len(a) || len(cos) != len(a) || len(sin) != len(a) {
		mismatch("Rope", len(a), len(b), len(cos), len(sin))
	}
	if vector && len(a) > 0 {
		ropeVec(len(a), &a[0], &b[0], &cos[0], &sin[0])
		return
	}
	ropeGeneric(a, b, cos, sin)
}

// RopeInv rotates back: a = a*cos + b*sin, b = b*cos - a*sin. It is also the
// gradient of Rope.
func RopeInv(a, b, cos, sin []float32) {
	if len(b) != len(a) || len(cos) != len(a) || len(sin) != len(a) {
		mismatch("RopeInv", len(a), len(b), len(cos), len(sin))
	}
	if vector && len(a) > 0 {
		ropeInvVec(len(a), &a[0], &b[0], &cos[0], &sin[0])
		return
	}
	ropeInvGeneric(a, b, cos, sin)
}
