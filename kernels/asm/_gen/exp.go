package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// Borders of the exponential, as bits. Below expLow the result would be
// subnormal and is 0 instead; above expHigh it overflows to +Inf.
const (
	expLowBits  = 0xc2aeac4f // -87.33654022, the smallest x with exp(x) >= 2^-126
	expHighBits = 0x42b17217 //  88.72283173, the largest x with finite exp(x)
)

// expPoly are the coefficients of (exp(r)-1-r)/r^2 on |r| <= ln2/2, highest
// power first: the minimax polynomial of the Cephes library's expf.
var expPoly = []float32{
	1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3,
	4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
}

// expInRange replaces x by exp(x) for expLow <= x <= expHigh and leaves t1 and
// t2 free for other use. Outside that range the result is arbitrary; a NaN gives
// NaN. The vectors are interleaved, since one chain alone waits for latency.
//
// n = round(x*log2 e), r = x - n*ln2 in two parts (Cody and Waite), a polynomial
// for exp(r), and n added to the exponent bits.
func expInRange(xs, t1, t2 []VecVirtual) {
	log2e := wideFloat("log2e", math.Log2E)
	ln2Hi := wideFloat("ln2hi", 0.693359375)
	ln2Lo := wideFloat("ln2lo", -2.12194440e-4)
	one := wideFloat("one", 1)
	each := func(f func(i int)) {
		for i := range xs {
			f(i)
		}
	}
	each(func(i int) { VMULPS(log2e, xs[i], t1[i]) })
	each(func(i int) { VROUNDPS(Imm(8), t1[i], t1[i]) }) // nearest even, no exception flag
	each(func(i int) { VFNMADD231PS(ln2Hi, t1[i], xs[i]) })
	each(func(i int) { VFNMADD231PS(ln2Lo, t1[i], xs[i]) })
	for p, c := range expPoly {
		m := wideFloat(fmt.Sprintf("exp%d", p), c)
		if p == 0 {
			each(func(i int) { VMOVUPS(m, t2[i]) })
			continue
		}
		each(func(i int) { VFMADD213PS(m, xs[i], t2[i]) })
	}
	each(func(i int) { VMULPS(xs[i], t2[i], t2[i]) })
	each(func(i int) { VFMADD213PS(xs[i], xs[i], t2[i]) }) // (p*r)*r + r
	each(func(i int) { VADDPS(one, t2[i], t2[i]) })
	each(func(i int) { VCVTPS2DQ(t1[i], t1[i]) })
	each(func(i int) { VPSLLD(Imm(23), t1[i], t1[i]) })
	each(func(i int) { VPADDD(t1[i], t2[i], xs[i]) })
}

// expBorders finishes expInRange: given the argument again in arg, it puts 0 and
// +Inf into the lanes of y where they belong. It overwrites t.
func expBorders(y, arg, t VecVirtual) {
	VCMPPS(Imm(17), wide("explow", expLowBits), arg, t) // arg < low, false for NaN
	VANDNPS(y, t, y)
	VCMPPS(Imm(30), wide("exphigh", expHighBits), arg, t) // arg > high, false for NaN
	VBLENDVPS(t, wideFloat("inf", float32(math.Inf(1))), y, y)
}

func expSum() {
	begin("expSumVec", "func(n int, dst, x *float32, scale, sub float32) float32",
		"expSumVec stores exp(x*scale-sub) in dst and returns the sum.")
	n, ptrs := param("n"), params("dst", "x")
	scale, sub := broadcast("scale"), broadcast("sub")
	sum := zeros(1)
	stream(n, ptrs, 4, func(b *block) {
		xs, t1, t2 := vectors(b.width), vectors(b.width), vectors(b.width)
		b.each(func(u int) { b.load(1, u, xs[u]) })
		b.each(func(u int) { VFMSUB213PS(sub, scale, xs[u]) })
		expInRange(xs, t1, t2)
		// The argument is read and formed again: there is no register to keep it in.
		b.each(func(u int) { b.load(1, u, t2[u]) })
		b.each(func(u int) { VFMSUB213PS(sub, scale, t2[u]) })
		b.each(func(u int) { expBorders(xs[u], t2[u], t1[u]) })
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

// expNeg sets xs to exp(-gate), all borders included.
func expNeg(b *block, gate, xs, t1, t2 []VecVirtual, none VecVirtual) {
	b.each(func(u int) { VSUBPS(gate[u], none, xs[u]) })
	expInRange(xs, t1, t2)
	b.each(func(u int) { VSUBPS(gate[u], none, t2[u]) })
	b.each(func(u int) { expBorders(xs[u], t2[u], t1[u]) })
}

func swiglu() {
	begin("swigluVec", "func(n int, dst, gate, up *float32)", "swigluVec stores gate*sigmoid(gate)*up in dst.")
	n, ptrs := param("n"), params("dst", "gate", "up")
	one := wideFloat("one", 1)
	none := YMM()
	zero(none)
	stream(n, ptrs, 2, func(b *block) {
		xs, t1, t2, gate := vectors(b.width), vectors(b.width), vectors(b.width), vectors(b.width)
		b.each(func(u int) { b.load(1, u, gate[u]) })
		expNeg(b, gate, xs, t1, t2, none)
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
	none, one := YMM(), YMM()
	zero(none)
	VMOVUPS(wideFloat("one", 1), one)
	stream(n, ptrs, 2, func(b *block) {
		xs, t1, t2, gate := vectors(b.width), vectors(b.width), vectors(b.width), vectors(b.width)
		b.each(func(u int) { b.load(2, u, gate[u]) })
		expNeg(b, gate, xs, t1, t2, none)
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
