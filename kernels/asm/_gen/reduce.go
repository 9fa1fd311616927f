package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func dot() {
	begin("dotVec", "func(n int, a, b *float32) float32", "dotVec returns the sum of a*b.")
	n, ptrs := param("n"), params("a", "b")
	acc := zeros(4)
	stream(n, ptrs, 4, func(b *block) {
		b.each(func(u int) {
			v := YMM()
			b.load(0, u, v)
			VFMADD231PS(b.operand(1, u), v, acc[u])
		})
	})
	result(fold(acc))
	end()
}

func dot3() {
	begin("dot3Vec", "func(n int, a, b, c *float32) float32", "dot3Vec returns the sum of (a*b)*c.")
	n, ptrs := param("n"), params("a", "b", "c")
	acc := zeros(4)
	stream(n, ptrs, 4, func(b *block) {
		b.each(func(u int) {
			v := YMM()
			b.load(0, u, v)
			VMULPS(b.operand(1, u), v, v)
			VFMADD231PS(b.operand(2, u), v, acc[u])
		})
	})
	result(fold(acc))
	end()
}

func sumSq() {
	begin("sumSqVec", "func(n int, x *float32) float32", "sumSqVec returns the sum of x*x.")
	n, ptrs := param("n"), params("x")
	acc := zeros(4)
	stream(n, ptrs, 4, func(b *block) {
		b.each(func(u int) {
			v := YMM()
			b.load(0, u, v)
			VFMADD231PS(v, v, acc[u])
		})
	})
	result(fold(acc))
	end()
}

func maximum() {
	begin("maxVec", "func(n int, x *float32) float32", "maxVec returns the largest x, or -Inf. NaN loses against everything.")
	n, ptrs := param("n"), params("x")
	negInf := wideFloat("neginf", float32(math.Inf(-1)))
	acc := vectors(4)
	for _, v := range acc {
		VMOVUPS(negInf, v)
	}
	stream(n, ptrs, 4, func(b *block) {
		b.each(func(u int) {
			v := YMM()
			b.load(0, u, v)
			if b.mask != nil {
				low := YMM()
				VMOVUPS(negInf, low)
				VBLENDVPS(b.mask, v, low, v)
			}
			// With a NaN the instruction returns its second source, which Go
			// writes first: the accumulator, so that NaN never enters it.
			VMAXPS(acc[u], v, acc[u])
		})
	})
	VMAXPS(acc[2], acc[0], acc[0])
	VMAXPS(acc[3], acc[1], acc[1])
	VMAXPS(acc[1], acc[0], acc[0])
	v, t := acc[0].AsX(), XMM()
	VEXTRACTF128(Imm(1), acc[0], t)
	VMAXPS(t, v, v)
	VMOVHLPS(v, v, t)
	VMAXPS(t, v, v)
	VMOVSHDUP(v, t)
	VMAXSS(t, v, v)
	result(v)
	end()
}
