package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const (
	tileRows = 6
	tileVecs = 2 // vectors a row: 16 columns
	unroll   = 8 // steps of k a pass
)

// tile emits the micro-kernel. Twelve accumulators, two vectors of B and two
// broadcasts of A fill the sixteen registers. Measured on Zen 3 at k = 256:
// 0.95 of the peak of fused multiply-adds; a 4x24 tile gave the same.
func tile() {
	begin("tileVec", "func(k int, a, b, c *float32, ldc, accumulate int)",
		"tileVec sets a 6x16 tile of C, rows ldc apart, to A*B, plus its old value when accumulate is not 0.")
	k, a, b, c, ldc := param("k"), param("a"), param("b"), param("c"), param("ldc")
	SHLQ(Imm(2), ldc)
	var acc [tileRows][tileVecs]VecVirtual
	for i := range acc {
		for j := range acc[i] {
			acc[i][j] = YMM()
			zero(acc[i][j])
		}
	}
	// rows visits the rows of C with a pointer to each.
	rows := func(f func(i int, row GPVirtual)) {
		row := GP64()
		MOVQ(c, row)
		for i := range tileRows {
			f(i, row)
			if i < tileRows-1 {
				ADDQ(ldc, row)
			}
		}
	}
	rows(func(_ int, row GPVirtual) {
		PREFETCHT0(Mem{Base: row})
		PREFETCHT0(Mem{Base: row, Disp: tileVecs*32 - 4})
	})
	bv, av := vectors(tileVecs), vectors(2)
	step := func(u int) {
		for j, v := range bv {
			VMOVUPS(Mem{Base: b, Disp: (u*tileVecs + j) * 32}, v)
		}
		for i := range tileRows {
			x := av[i%2]
			VBROADCASTSS(Mem{Base: a, Disp: (u*tileRows + i) * 4}, x)
			for j, v := range bv {
				VFMADD231PS(v, x, acc[i][j])
			}
		}
	}
	advance := func(steps int) {
		ADDQ(I32(int32(steps*tileRows*4)), a)
		ADDQ(I32(int32(steps*tileVecs*32)), b)
	}
	SUBQ(I32(unroll), k)
	JLT(LabelRef("rest"))
	Label("loop")
	PREFETCHT0(Mem{Base: a, Disp: 64 * 6})
	for u := range unroll {
		step(u)
		if u == unroll/2 {
			PREFETCHT0(Mem{Base: a, Disp: 64 * 7})
		}
	}
	advance(unroll)
	SUBQ(I32(unroll), k)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(I32(unroll), k)
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
		for j, v := range acc[i] {
			VADDPS(Mem{Base: row, Disp: j * 32}, v, v)
		}
	})
	Label("store")
	rows(func(i int, row GPVirtual) {
		for j, v := range acc[i] {
			VMOVUPS(v, Mem{Base: row, Disp: j * 32})
		}
	})
	end()
}

// transpose8 transposes eight vectors of eight. r is overwritten.
func transpose8(r []VecVirtual) []VecVirtual {
	t := vectors(8)
	for i := range 4 {
		VUNPCKLPS(r[2*i+1], r[2*i], t[2*i])
		VUNPCKHPS(r[2*i+1], r[2*i], t[2*i+1])
	}
	for half := range 2 {
		for odd := range 2 {
			lo, hi := t[4*half+odd], t[4*half+2+odd]
			VSHUFPS(Imm(0x44), hi, lo, r[4*half+2*odd])
			VSHUFPS(Imm(0xee), hi, lo, r[4*half+2*odd+1])
		}
	}
	for i := range 4 {
		VPERM2F128(Imm(0x20), r[4+i], r[i], t[i])
		VPERM2F128(Imm(0x31), r[4+i], r[i], t[4+i])
	}
	return t
}

// packRows emits the transposing packer for a panel of the given number of rows.
func packRows(rows int) {
	begin(fmt.Sprintf("packRows%dVec", rows), "func(k8 int, dst, src *float32, lds int)",
		fmt.Sprintf("packRows%dVec copies 8*k8 columns of %d rows of src, lds apart, to dst column by column. It writes up to 2 floats past the end.", rows, rows))
	k8, dst, src, lds := param("k8"), param("dst"), param("src"), param("lds")
	SHLQ(Imm(2), lds)
	lds3 := GP64()
	LEAQ(Mem{Base: lds, Index: lds, Scale: 2}, lds3)
	var fours []GPVirtual // pointers to rows 0, 4, 8, ...
	for p := range (rows + 3) / 4 {
		r := GP64()
		if p == 0 {
			MOVQ(src, r)
		} else {
			LEAQ(Mem{Base: fours[p-1], Index: lds, Scale: 4}, r)
		}
		fours = append(fours, r)
	}
	row := func(i int) Mem {
		m := Mem{Base: fours[i/4]}
		switch i % 4 {
		case 1:
			m.Index, m.Scale = lds, 1
		case 2:
			m.Index, m.Scale = lds, 2
		case 3:
			m.Index, m.Scale = lds3, 1
		}
		return m
	}
	TESTQ(k8, k8)
	JEQ(LabelRef("done"))
	Label("loop")
	for g := 0; g < rows; g += 8 {
		r := vectors(8)
		for i, v := range r {
			if g+i < rows {
				VMOVUPS(row(g+i), v)
			} else {
				zero(v)
			}
		}
		// Six rows are stored as eight: the surplus is overwritten by the next
		// column, which comes later in memory.
		for kk, v := range transpose8(r) {
			VMOVUPS(v, Mem{Base: dst, Disp: (kk*rows + g) * 4})
		}
	}
	for _, p := range fours {
		ADDQ(Imm(32), p)
	}
	ADDQ(I32(int32(rows*32)), dst)
	DECQ(k8)
	JNE(LabelRef("loop"))
	Label("done")
	end()
}

func packCols16() {
	begin("packCols16Vec", "func(k int, dst, src *float32, lds int)",
		"packCols16Vec copies k rows of 16 floats, lds apart, to dst. k is above 0.")
	k, dst, src, lds := param("k"), param("dst"), param("src"), param("lds")
	SHLQ(Imm(2), lds)
	a, b := YMM(), YMM()
	Label("loop")
	VMOVUPS(Mem{Base: src}, a)
	VMOVUPS(Mem{Base: src, Disp: 32}, b)
	VMOVUPS(a, Mem{Base: dst})
	VMOVUPS(b, Mem{Base: dst, Disp: 32})
	ADDQ(lds, src)
	ADDQ(Imm(64), dst)
	DECQ(k)
	JNE(LabelRef("loop"))
	end()
}

// packCols6 moves a row as sixteen and eight bytes, exactly six floats.
func packCols6() {
	begin("packCols6Vec", "func(k int, dst, src *float32, lds int)",
		"packCols6Vec copies k rows of 6 floats, lds apart, to dst. k is above 0.")
	k, dst, src, lds := param("k"), param("dst"), param("src"), param("lds")
	SHLQ(Imm(2), lds)
	a, b := XMM(), GP64()
	Label("loop")
	VMOVUPS(Mem{Base: src}, a)
	MOVQ(Mem{Base: src, Disp: 16}, b)
	VMOVUPS(a, Mem{Base: dst})
	MOVQ(b, Mem{Base: dst, Disp: 16})
	ADDQ(lds, src)
	ADDQ(Imm(24), dst)
	DECQ(k)
	JNE(LabelRef("loop"))
	end()
}

// fmaPeak keeps twelve independent chains busy: two units times a latency of
// four or five cycles need at least ten.
func fmaPeak() {
	begin("fmaPeakVec", "func(n int, xy *float32)",
		"fmaPeakVec runs 24*n fused multiply-adds of 8 lanes; xy holds the two factors and 8 floats receive the sum.")
	n, xy := param("n"), param("xy")
	x, y := YMM(), YMM()
	VBROADCASTSS(Mem{Base: xy}, x)
	VBROADCASTSS(Mem{Base: xy, Disp: 4}, y)
	acc := zeros(12)
	Label("loop")
	for range 2 {
		for _, v := range acc {
			VFMADD231PS(x, y, v)
		}
	}
	DECQ(n)
	JGT(LabelRef("loop"))
	for _, v := range acc[1:] {
		VADDPS(v, acc[0], acc[0])
	}
	VMOVUPS(acc[0], Mem{Base: xy})
	end()
}
