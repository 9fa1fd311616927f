package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// rounding holds the constants of a rounding to bfloat16.
type rounding struct{ one, half, quiet VecVirtual }

func newRounding() rounding {
	load := func(name string, bits uint32) VecVirtual {
		v := YMM()
		VMOVUPS(wide(name, bits), v)
		return v
	}
	return rounding{load("bf16one", 1), load("bf16half", 0x7fff), load("bf16quiet", 0x40)}
}

// round replaces eight float32 by their bfloat16 bits in 32-bit lanes: x plus
// 0x7fff plus the lowest kept bit carries exactly where the rest is above a tie, or
// is a tie below an odd value. Integers, so that subnormals count whatever the
// processor's mode. With nans a NaN is cut off and made quiet instead, lest it carry
// into an infinity.
func (c *rounding) round(x VecVirtual, nans bool) {
	up := YMM()
	VPSRLD(Imm(16), x, up)
	if !nans {
		VPAND(c.one, up, up)
		VPADDD(c.half, x, x)
		VPADDD(up, x, x)
		VPSRLD(Imm(16), x, x)
		return
	}
	nan, cut := YMM(), YMM()
	VCMPPS(Imm(unordered), x, x, nan)
	VPOR(c.quiet, up, cut)
	VPAND(c.one, up, up)
	VPADDD(c.half, up, up)
	VPADDD(x, up, up)
	VPSRLD(Imm(16), up, up)
	VPBLENDVB(nan, cut, up, x)
}

const unordered = 3 // the comparison that holds when one side is NaN

// toBF16 takes sixteen elements a pass; the caller sees to the rest. Only passes
// that meet a NaN pay for it.
func toBF16() {
	begin("toBF16Vec", "func(n int, dst *uint16, src *float32)",
		"toBF16Vec rounds src to bfloat16; n is a multiple of 16, at least 16.")
	n, dst, src := param("n"), param("dst"), param("src")
	c := newRounding()
	lo, hi, nan, any := YMM(), YMM(), YMM(), GP32()
	Label("loop")
	VMOVUPS(Mem{Base: src}, lo)
	VMOVUPS(Mem{Base: src, Disp: 32}, hi)
	VCMPPS(Imm(unordered), lo, hi, nan)
	VMOVMSKPS(nan, any)
	TESTL(any, any)
	JNE(LabelRef("nans"))
	c.round(lo, false)
	c.round(hi, false)
	Label("store")
	VPACKUSDW(hi, lo, lo) // takes turns in 128-bit halves
	VPERMQ(Imm(0xd8), lo, lo)
	VMOVDQU(lo, Mem{Base: dst})
	ADDQ(Imm(64), src)
	ADDQ(Imm(32), dst)
	SUBQ(Imm(16), n)
	JNE(LabelRef("loop"))
	end()
	Label("nans")
	c.round(lo, true)
	c.round(hi, true)
	JMP(LabelRef("store"))
}

func fromBF16() {
	begin("fromBF16Vec", "func(n int, dst *float32, src *uint16)",
		"fromBF16Vec widens src; n is a multiple of 16, at least 16.")
	n, dst, src := param("n"), param("dst"), param("src")
	Label("loop")
	for half := range 2 {
		v := YMM()
		VPMOVZXWD(Mem{Base: src, Disp: 16 * half}, v)
		VPSLLD(Imm(16), v, v)
		VMOVDQU(v, Mem{Base: dst, Disp: 32 * half})
	}
	ADDQ(Imm(32), src)
	ADDQ(Imm(64), dst)
	SUBQ(Imm(16), n)
	JNE(LabelRef("loop"))
	end()
}

const (
	rows16, vecs16 = 12, 2 // the tile of asm.MR16 x asm.NR16
	unroll16       = 4     // pairs a pass
)

// tile16 emits the micro-kernel on VDPBF16PS. Its vectors are numbered registers,
// since emitted bytes are out of reach of the register allocator: 24 accumulators,
// two vectors of B, six broadcasts of A in turn. Measured alone on Zen 4, 12x32 took
// 0.97 to 0.99 of the instruction's peak; 14x32 and broadcasts inside the
// instruction were equal.
func tile16() {
	begin("tile16Vec", "func(k2 int, a, b *uint32, c *float32, ldc, accumulate int)",
		"tile16Vec sets a 12x32 tile of C, rows ldc apart, to A*B, plus its old value when accumulate is not 0, from packed pairs of bfloat16. k2 is above 0.")
	k, a, b, c, ldc := param("k2"), param("a"), param("b"), param("c"), param("ldc")
	SHLQ(Imm(2), ldc)
	acc := func(i, j int) int { return vecs16*i + j }
	const firstB, firstA = rows16 * vecs16, rows16*vecs16 + vecs16
	rows := func(f func(i int, row GPVirtual)) {
		row := GP64()
		MOVQ(c, row)
		for i := range rows16 {
			f(i, row)
			if i < rows16-1 {
				ADDQ(ldc, row)
			}
		}
	}
	rows(func(i int, row GPVirtual) {
		for j := range vecs16 {
			z := zmm(acc(i, j))
			VPXORD(z, z, z)
			PREFETCHT0(Mem{Base: row, Disp: 64 * j})
		}
		PREFETCHT0(Mem{Base: row, Disp: 64*vecs16 - 4})
	})
	step := func(u int) {
		for j := range vecs16 {
			VMOVUPS(Mem{Base: b, Disp: (u*vecs16 + j) * 64}, zmm(firstB+j))
		}
		for i := range rows16 {
			x := firstA + i%(32-firstA)
			VBROADCASTSS(Mem{Base: a, Disp: (u*rows16 + i) * 4}, zmm(x))
			for j := range vecs16 {
				emitDot(acc(i, j), firstB+j, x)
			}
		}
	}
	advance := func(steps int) {
		ADDQ(I32(int32(steps*rows16*4)), a)
		ADDQ(I32(int32(steps*vecs16*64)), b)
	}
	SUBQ(Imm(unroll16), k)
	JLT(LabelRef("rest"))
	Label("loop")
	for j := range vecs16 {
		PREFETCHT0(Mem{Base: b, Disp: 1024 + 64*j})
	}
	for u := range unroll16 {
		step(u)
	}
	advance(unroll16)
	SUBQ(Imm(unroll16), k)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(Imm(unroll16), k)
	JEQ(LabelRef("finish"))
	Label("single")
	step(0)
	advance(1)
	DECQ(k)
	JNE(LabelRef("single"))
	Label("finish")
	accumulate := param("accumulate")
	TESTQ(accumulate, accumulate)
	JEQ(LabelRef("store"))
	rows(func(i int, row GPVirtual) {
		for j := range vecs16 {
			VADDPS(Mem{Base: row, Disp: 64 * j}, zmm(acc(i, j)), zmm(acc(i, j)))
		}
	})
	Label("store")
	rows(func(i int, row GPVirtual) {
		for j := range vecs16 {
			VMOVUPS(zmm(acc(i, j)), Mem{Base: row, Disp: 64 * j})
		}
	})
	end()
}

// vendor emits the question who made the processor.
func vendor() {
	TEXT("vendor", NOSPLIT, "func() (b, d, c uint32)")
	Doc("vendor returns the maker of the processor: four letters in each result.")
	XORL(EAX, EAX)
	XORL(ECX, ECX)
	CPUID()
	Store(EBX, Return("b"))
	Store(EDX, Return("d"))
	Store(ECX, Return("c"))
	RET()
}

// peak16 keeps 24 chains busy, as many as a tile has.
func peak16() {
	begin("peak16Vec", "func(n int, sum *float32)",
		"peak16Vec runs 24*n dot products of 16 lanes of bfloat16 pairs; 16 floats receive the sum.")
	n, sum := param("n"), param("sum")
	for i := range 32 {
		VPXORD(zmm(i), zmm(i), zmm(i))
	}
	Label("loop")
	for i := range 24 {
		emitDot(i, 30, 31)
	}
	DECQ(n)
	JGT(LabelRef("loop"))
	for i := 1; i < 24; i++ {
		VADDPS(zmm(i), zmm(0), zmm(0))
	}
	VMOVUPS(zmm(0), Mem{Base: sum})
	end()
}

// zmm returns the vector register with that number.
func zmm(n int) VecPhysical {
	return [...]VecPhysical{
		Z0, Z1, Z2, Z3, Z4, Z5, Z6, Z7, Z8, Z9, Z10, Z11, Z12, Z13, Z14, Z15,
		Z16, Z17, Z18, Z19, Z20, Z21, Z22, Z23, Z24, Z25, Z26, Z27, Z28, Z29, Z30, Z31,
	}[n]
}
