package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// expLowN is the smallest round(x*log2 e) with a result other than 0: below it,
// the steps of exp would leave the normal numbers.
const expLowN = -123

// expPoly are the coefficients of exp(r) on |r| <= ln2/2, highest power first: the
// minimax polynomial of the Cephes library's expf.
var expPoly = []float32{
	1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3,
	4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1, 1,
}

// expLimit returns a vector that exp wants: any number from 88.73 to 89.
func expLimit() VecVirtual {
	v := YMM()
	VMOVUPS(wideFloat("explimit", 89), v)
	return v
}

// exp replaces each x by exp(x). The vectors are interleaved, since one chain
// alone waits for latency.
//
// n = round(x*log2 e), r = x - n*ln2 in two parts (Cody and Waite), a polynomial
// for exp(r)/4, n added to the exponent bits, and the factor 4, which overflows to
// +Inf where it must: x is at most 89, so that exp(x)/4 does not. For low x the
// lane holds nonsense and is cleared. A NaN passes through: VMINPS returns its
// second source (which Go writes first) when there is one, and the comparison
// "not less" holds. The integer n comes from a conversion, which makes 0x80000000 of
// a NaN; taken from the bits of the rounding sum it would have the NaN's payload in
// it, which can turn the NaN into a number.
func exp(limit VecVirtual, xs, t1, t2 []VecVirtual) {
	log2e := wideFloat("log2e", math.Log2E)
	ln2Hi := wideFloat("ln2hi", 0.693359375)
	ln2Lo := wideFloat("ln2lo", -2.12194440e-4)
	round := wideFloat("round", 1.5*(1<<23))
	lowN, four := wideFloat("explown", expLowN), wideFloat("four", 4)
	const notLess = 21 // NLT_UQ
	each := func(f func(i int)) {
		for i := range xs {
			f(i)
		}
	}
	each(func(i int) { VMINPS(xs[i], limit, xs[i]) })
	// Adding 1.5*2^23 rounds to the nearest integer, ties to even.
	each(func(i int) { VMOVUPS(round, t1[i]) })
	each(func(i int) { VFMADD231PS(log2e, xs[i], t1[i]) })
	each(func(i int) { VSUBPS(round, t1[i], t1[i]) })
	each(func(i int) { VFNMADD231PS(ln2Hi, t1[i], xs[i]) })
	each(func(i int) { VFNMADD231PS(ln2Lo, t1[i], xs[i]) })
	for p, c := range expPoly {
		m := wideFloat(fmt.Sprintf("exp%d", p), c/4)
		if p == 0 {
			each(func(i int) { VMOVUPS(m, t2[i]) })
			continue
		}
		each(func(i int) { VFMADD213PS(m, xs[i], t2[i]) })
	}
	each(func(i int) { VCVTPS2DQ(t1[i], xs[i]) })
	each(func(i int) { VPSLLD(Imm(23), xs[i], xs[i]) })
	each(func(i int) { VPADDD(xs[i], t2[i], t2[i]) })
	each(func(i int) { VCMPPS(Imm(notLess), lowN, t1[i], xs[i]) })
	each(func(i int) { VANDPS(xs[i], t2[i], t2[i]) })
	each(func(i int) { VMULPS(four, t2[i], xs[i]) })
}

func expSum() {
	begin("expSumVec", "func(n int, dst, x *float32, scale, sub float32) float32",
		"expSumVec stores exp(x*scale-sub) in dst and returns the sum.")
	n, ptrs := param("n"), params("dst", "x")
	scale, sub := broadcast("scale"), broadcast("sub")
	sum, limit := zeros(1), expLimit()
	stream(n, ptrs, 4, func(b *block) {
		xs, t1, t2 := vectors(b.width), vectors(b.width), vectors(b.width)
		b.each(func(u int) { b.load(1, u, xs[u]) })
		b.each(func(u int) { VFMSUB213PS(sub, scale, xs[u]) })
		exp(limit, xs, t1, t2)
		b.each(func(u int) { b.store(xs[u], 0, u) })
		b.valid(xs[0])
		for w := b.width; w > 1; w /= 2 {
			for i := range w / 2 {
				VADDPS(xs[i+w/2], xs[i], xs[i])
			}
		}
		VADDPS(xs[0], sum[0], sum[0])
	})
	result(fold(sum))
	end()
}

func swiglu() {
	begin("swigluVec", "func(n int, dst, gate, up *float32)", "swigluVec stores gate*sigmoid(gate)*up in dst.")
	n, ptrs := param("n"), params("dst", "gate", "up")
	one := wideFloat("one", 1)
	none, limit := YMM(), expLimit()
	zero(none)
	stream(n, ptrs, 2, func(b *block) {
		xs, t1, t2, gate := vectors(b.width), vectors(b.width), vectors(b.width), vectors(b.width)
		b.each(func(u int) { b.load(1, u, gate[u]) })
		b.each(func(u int) { VSUBPS(gate[u], none, xs[u]) })
		exp(limit, xs, t1, t2)
		b.each(func(u int) {
			VADDPS(one, xs[u], xs[u])
			VDIVPS(xs[u], gate[u], gate[u])
			VMULPS(b.operand(2, u), gate[u], gate[u])
			b.store(gate[u], 0, u)
		})
	})
	end()
}

func swigluBwd() {
	begin("swigluBwdVec", "func(n int, dgate, dup, gate, up, dy *float32)",
		"swigluBwdVec stores the gradients of swiglu in dgate and dup.")
	n, ptrs := param("n"), params("dgate", "dup", "gate", "up", "dy")
	none, one, limit := YMM(), YMM(), expLimit()
	zero(none)
	VMOVUPS(wideFloat("one", 1), one)
	stream(n, ptrs, 2, func(b *block) {
		xs, t1, t2, gate := vectors(b.width), vectors(b.width), vectors(b.width), vectors(b.width)
		b.each(func(u int) { b.load(2, u, gate[u]) })
		b.each(func(u int) { VSUBPS(gate[u], none, xs[u]) })
		exp(limit, xs, t1, t2)
		b.each(func(u int) {
			VADDPS(one, xs[u], xs[u])
			VDIVPS(xs[u], one, xs[u]) // s = sigmoid(gate)
			b.load(4, u, t1[u])
			// dgate = dy*up * s*(1 + gate*(1-s)); dup = dy * gate*s. Loads come
			// before the stores, so that outputs may replace inputs.
			VMULPS(xs[u], gate[u], t2[u])
			VMULPS(t2[u], t1[u], t2[u]) // dup
			VMULPS(b.operand(3, u), t1[u], t1[u])
			b.store(t2[u], 1, u)
			VSUBPS(xs[u], one, t2[u])
			VFMADD213PS(one, gate[u], t2[u])
			VMULPS(xs[u], t2[u], t2[u])
			VMULPS(t1[u], t2[u], t2[u])
			b.store(t2[u], 0, u)
		})
	})
	end()
}
