package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// In this file a matrix has rows of c floats, one after the other. Both functions do for
// every row what dotVec and axpyVec do, in the same order, without a call each: with rows
// as short as an attention head the calls would take most of the time.

// dotRows walks through the rows; rows that follow each other are independent, so that the
// processor overlaps the sum over lanes of one with the products of the next.
func dotRows() {
	begin("dotRowsVec", "func(rows, c int, dst, q, m *float32)",
		"dotRowsVec sets dst[j] to the sum of q*m[j] for every row of m. There is one at least.")
	rows, c, dst, q, m := param("rows"), param("c"), param("dst"), param("q"), param("m")
	n, a, b := GP64(), GP64(), GP64()
	Label("row")
	acc := zeros(4)
	MOVQ(c, n)
	MOVQ(q, a)
	MOVQ(m, b)
	stream(n, []GPVirtual{a, b}, 4, func(b *block) {
		b.each(func(u int) {
			v := YMM()
			b.load(0, u, v)
			VFMADD231PS(b.operand(1, u), v, acc[u])
		})
	})
	VMOVSS(fold(acc), Mem{Base: dst})
	ADDQ(Imm(4), dst)
	LEAQ(Mem{Base: m, Index: c, Scale: 4}, m)
	DECQ(rows)
	JNE(LabelRef("row"))
	end()
}

// axpyRows keeps a few columns of dst in registers while it walks down the rows.
func axpyRows() {
	begin("axpyRowsVec", "func(rows, c int, dst, p, m *float32)",
		"axpyRowsVec adds p[j]*m[j] to dst for every row of m, in order. There is one at least.")
	rows, c, dst, p, m := param("rows"), param("c"), param("dst"), param("p"), param("m")
	n, k, at, factor, s := GP64(), GP64(), GP64(), GP64(), YMM()
	MOVQ(c, n)
	down := func(label string, b *block, acc []VecVirtual) {
		b.each(func(u int) { b.load(0, u, acc[u]) })
		MOVQ(rows, k)
		MOVQ(p, factor)
		MOVQ(m, at)
		Label(label)
		VBROADCASTSS(Mem{Base: factor}, s)
		b.each(func(u int) { VFMADD231PS(b.operand(1, u), s, acc[u]) })
		ADDQ(Imm(4), factor)
		LEAQ(Mem{Base: at, Index: c, Scale: 4}, at)
		DECQ(k)
		JNE(LabelRef(label))
		b.each(func(u int) { b.store(acc[u], 0, u) })
	}
	ptrs := []GPVirtual{dst, at}
	for _, width := range []int{8, 4, 1} {
		name, step := fmt.Sprintf("by%d", width), int32(width*lanes)
		SUBQ(I32(step), n)
		JLT(LabelRef(name + "done"))
		Label(name)
		down(name+"down", &block{ptrs: ptrs, width: width}, vectors(width))
		ADDQ(I32(4*step), dst)
		ADDQ(I32(4*step), m)
		SUBQ(I32(step), n)
		JGE(LabelRef(name))
		Label(name + "done")
		ADDQ(I32(step), n)
	}
	JEQ(LabelRef("end"))
	table, offset, mask := GP64(), GP64(), YMM()
	LEAQ(maskTable(), table)
	MOVQ(I32(lanes), offset)
	SUBQ(n, offset)
	VMOVUPS(Mem{Base: table, Index: offset, Scale: 4}, mask)
	down("restdown", &block{ptrs: ptrs, width: 1, mask: mask}, vectors(1))
	Label("end")
	end()
}
