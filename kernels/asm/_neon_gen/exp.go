package main

import "math"

// expLowN is the smallest round(x*log2 e) with a result other than 0: below it,
// the steps of exp would leave the normal numbers.
const expLowN = -123

// The registers of exp: four vectors each of arguments and of intermediate
// values, and constants. V29 to V31 are left to the caller.
const (
	expX, expT1, expT2, expT3 = 0, 4, 8, 12

	expPoly  = 16 // to 22
	expRound = 23
	expLow   = 24
	expLimit = 25
	expOne   = 26
	expFree  = 27
	expLanes = 28 // log2 e, ln 2 in two parts, 4
)

// expConstants are the words of the table: twelve constants that are broadcast to
// V16 to V27, then the lanes of V28.
//
// The polynomial is that of the Cephes library's expf on |r| <= ln2/2, highest
// power first and divided by 4; its last two coefficients are equal and use one
// register.
func expConstants() []float32 {
	return []float32{
		1.9875691500e-4 / 4, 1.3981999507e-3 / 4, 8.3334519073e-3 / 4,
		4.1665795894e-2 / 4, 1.6666665459e-1 / 4, 5.0000001201e-1 / 4, 0.25,
		1.5 * (1 << 23), expLowN, 89, 1, 0,
		math.Log2E, 0.693359375, -2.12194440e-4, 4,
	}
}

// loadExp loads the constants.
func loadExp(f *fn, scratch int) {
	f.op("MOVD", "$neonexp<>(SB)", gp(scratch))
	f.op("VLD4R.P", mem(scratch, 16), "[V16.S4, V17.S4, V18.S4, V19.S4]")
	f.op("VLD4R.P", mem(scratch, 16), "[V20.S4, V21.S4, V22.S4, V23.S4]")
	f.op("VLD4R.P", mem(scratch, 16), "[V24.S4, V25.S4, V26.S4, V27.S4]")
	f.load(scratch, 0, expLanes)
}

// exp replaces width vectors from V0 on by their exponentials and uses V4 to V15.
// The vectors are interleaved, since one chain alone waits for latency. Every step
// rounds as the AVX2 set's does.
//
// n = round(x*log2 e), r = x - n*ln2 in two parts (Cody and Waite), a polynomial
// for exp(r)/4, n added to the exponent bits, and the factor 4, which overflows to
// +Inf where it must: x is at most 89, so that exp(x)/4 does not. For low x the
// lane holds nonsense and is cleared. A NaN passes through: FMIN returns it, and no
// NaN is less than expLowN.
func exp(f *fn, width int) {
	each := func(do func(i int)) {
		for i := range width {
			do(i)
		}
	}
	each(func(i int) { f.minf(expX+i, expLimit, expX+i) })
	// Adding 1.5*2^23 rounds to the nearest integer, ties to even.
	each(func(i int) { f.move(expRound, expT1+i) })
	each(func(i int) { f.fmaLane(expX+i, expLanes, 0, expT1+i) })
	each(func(i int) { f.subf(expT1+i, expRound, expT1+i) })
	each(func(i int) { f.fmsLane(expT1+i, expLanes, 1, expX+i) })
	each(func(i int) { f.fmsLane(expT1+i, expLanes, 2, expX+i) })
	// Horner's rule. A multiply-add overwrites its addend, so the sum changes
	// between two registers.
	sum, next := expT2, expT3
	each(func(i int) { f.move(expPoly, sum+i) })
	for c := 1; c < 8; c++ {
		coefficient := expPoly + min(c, 6)
		each(func(i int) { f.move(coefficient, next+i) })
		each(func(i int) { f.fma(sum+i, expX+i, next+i) })
		sum, next = next, sum
	}
	each(func(i int) { f.toInt(expT1+i, expX+i) })
	each(func(i int) { f.shl(23, expX+i, expX+i) })
	each(func(i int) { f.addInt(expX+i, sum+i, sum+i) })
	each(func(i int) { f.greater(expLow, expT1+i, next+i) })
	each(func(i int) { f.clearIf(next+i, sum+i, sum+i) })
	each(func(i int) { f.mulLane(sum+i, expLanes, 3, expX+i) })
}

func expSum() *fn {
	// The table fills the register of scale first.
	const scale, arrives, minus, low, high, scratch = expFree, 0, 31, 29, 30, 3
	f := begin("expSumVec", "stores exp(x*scale-sub) in dst and returns the sum.",
		join(ints("n"), ptrs("dst", "x"), []arg{floatArg("scale", arrives), floatArg("sub", minus)})...)
	const n, dst, x = 0, 1, 2
	loadExp(f, scratch)
	f.broadcast(arrives, scale)
	f.broadcast(minus, minus)
	f.neg(minus, minus)
	f.zero(low)
	f.zero(high)
	// arguments sets V0 on from the values in V12 on.
	arguments := func(width int) {
		for i := range width {
			f.move(minus, expX+i)
		}
		for i := range width {
			f.fma(expT3+i, scale, expX+i)
		}
	}
	reduce(f, n, []int{dst, x}, func(o *octet) {
		if o.units == 1 {
			o.load(1, expT3)
			arguments(2)
			exp(f, 2)
			if o.rest {
				f.restMask(n, scratch, expT1)
				f.and(expX, expT1, expX)
				f.and(expX+1, expT1+1, expX+1)
			}
			f.addf(low, expX, low)
			f.addf(high, expX+1, high)
			if o.rest {
				f.storeRest(n, dst, expX)
			} else {
				f.store2(expX, dst, 0)
			}
			return
		}
		// The low halves of the four units, then the high halves: the sums of the
		// two meet at the end only.
		for half, total := range []int{low, high} {
			for u := range 4 {
				f.load(x, 32*u+16*half, expT3+u)
			}
			arguments(4)
			exp(f, 4)
			for u := range 4 {
				f.store(expX+u, dst, 32*u+16*half)
			}
			f.addf(0, 2, 0)
			f.addf(1, 3, 1)
			f.addf(0, 1, 0)
			f.addf(total, 0, total)
		}
	})
	fold(f, low, high)
	return f.returnFloat(low)
}

func swiglu() *fn {
	f := begin("swigluVec", "stores gate*sigmoid(gate)*up in dst.", join(ints("n"), ptrs("dst", "gate", "up"))...)
	loadExp(f, 4)
	return stream(f, 0, []int{1, 2, 3}, 4, func(b *block) {
		const gate, up = expT1, expT2
		b.load(1, expX)
		b.each(func(u int) { f.neg(expX+u, expX+u) })
		exp(f, b.width)
		b.load(1, gate)
		b.load(2, up)
		b.each(func(u int) {
			f.addf(expX+u, expOne, expX+u)
			f.divf(gate+u, expX+u, gate+u)
			f.mulf(gate+u, up+u, gate+u)
		})
		b.store(gate, 0)
	})
}

// swigluBwd: dgate = dy*up * s*(1 + gate*(1-s)), dup = dy * gate*s.
func swigluBwd() *fn {
	f := begin("swigluBwdVec", "stores the gradients of swiglu in dgate and dup.", join(ints("n"), ptrs("dgate", "dup", "gate", "up", "dy"))...)
	loadExp(f, 6)
	return stream(f, 0, []int{1, 2, 3, 4, 5}, 2, func(b *block) {
		// With two vectors at a time, exp leaves the upper halves of its registers.
		const s, gate, up, dy, dup, dgate = expX, expT1, expT1 + 2, expT2, expT2 + 2, expT3
		b.load(2, expX)
		b.each(func(u int) { f.neg(expX+u, expX+u) })
		exp(f, b.width)
		// Loads come before the stores, so that outputs may replace inputs.
		b.load(2, gate)
		b.load(3, up)
		b.load(4, dy)
		b.each(func(u int) {
			f.addf(expX+u, expOne, s+u)
			f.divf(expOne, s+u, s+u)
			f.mulf(gate+u, s+u, dup+u)
			f.mulf(dy+u, dup+u, dup+u)
			f.mulf(dy+u, up+u, up+u)
			f.subf(expOne, s+u, dy+u)
			f.move(expOne, dgate+u)
			f.fma(gate+u, dy+u, dgate+u)
			f.mulf(dgate+u, s+u, dgate+u)
			f.mulf(dgate+u, up+u, dgate+u)
		})
		b.store(dup, 1)
		b.store(dgate, 0)
	})
}
