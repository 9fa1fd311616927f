package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

const lanes = 8 // float32 values in a vector

// begin starts a kernel with the given Go signature. Its pointers do not escape.
func begin(name, signature, doc string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	Doc(doc)
}

func end() {
	VZEROUPPER()
	RET()
}

// result stores the first lane of v as the return value.
func result(v Register) {
	r, err := ReturnIndex(0).Resolve()
	if err != nil {
		panic(err)
	}
	VMOVSS(v, r.Addr)
}

func param(name string) GPVirtual { return Load(Param(name), GP64()).(GPVirtual) }

func params(names ...string) []GPVirtual {
	r := make([]GPVirtual, len(names))
	for i, n := range names {
		r[i] = param(n)
	}
	return r
}

// broadcast loads a float32 parameter into all lanes.
func broadcast(name string) VecVirtual {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	v := YMM()
	VBROADCASTSS(p.Addr, v)
	return v
}

func vectors(n int) []VecVirtual {
	r := make([]VecVirtual, n)
	for i := range r {
		r[i] = YMM()
	}
	return r
}

func zero(v VecVirtual) { VXORPS(v, v, v) }

func zeros(n int) []VecVirtual {
	r := vectors(n)
	for _, v := range r {
		zero(v)
	}
	return r
}

// globals caches the read-only data of the file by name.
var globals = map[string]Mem{}

// wide returns an eight-lane constant that can be a memory operand.
func wide(name string, bits uint32) Mem {
	if m, ok := globals[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i := range lanes {
		DATA(4*i, U32(bits))
	}
	globals[name] = m
	return m
}

func wideFloat(name string, v float32) Mem { return wide(name, math.Float32bits(v)) }

// maskTable is eight words of ones followed by eight of zeros: loading at word
// 8-r gives a mask whose first r lanes are set.
func maskTable() Mem {
	if m, ok := globals["tailmask"]; ok {
		return m
	}
	m := GLOBL("tailmask", RODATA|NOPTR)
	for i := range 2 * lanes {
		v := uint32(0)
		if i < lanes {
			v = 0xffffffff
		}
		DATA(4*i, U32(v))
	}
	globals["tailmask"] = m
	return m
}

// block is one pass of a loop body over width vectors, or over the masked rest.
type block struct {
	ptrs  []GPVirtual
	width int
	mask  VecVirtual // nil except in the rest, where the first 1 to 7 lanes are valid
}

func (b *block) at(p, u int) Mem { return Mem{Base: b.ptrs[p], Disp: 4 * lanes * u} }

// load reads vector u of stream p; lanes past the end read as zero.
func (b *block) load(p, u int, dst VecVirtual) {
	if b.mask == nil {
		VMOVUPS(b.at(p, u), dst)
		return
	}
	VMASKMOVPS(b.at(p, u), b.mask, dst)
}

// operand returns vector u of stream p for use as a source: memory in a full
// block, a register in the rest.
func (b *block) operand(p, u int) Op {
	if b.mask == nil {
		return b.at(p, u)
	}
	v := YMM()
	b.load(p, u, v)
	return v
}

// store writes vector u of stream p and nothing past the end.
func (b *block) store(v VecVirtual, p, u int) {
	if b.mask == nil {
		VMOVUPS(v, b.at(p, u))
		return
	}
	VMASKMOVPS(v, b.mask, b.at(p, u))
}

// valid clears the lanes of v that lie past the end.
func (b *block) valid(v VecVirtual) {
	if b.mask != nil {
		VANDPS(b.mask, v, v)
	}
}

func (b *block) each(f func(u int)) {
	for u := range b.width {
		f(u)
	}
}

// stream emits a loop over n elements of each pointer: blocks of unroll
// vectors, then single vectors, then the masked rest. n may be any number >= 0.
// The order in which lanes are visited depends on n alone.
func stream(n GPVirtual, ptrs []GPVirtual, unroll int, body func(b *block)) {
	loop := func(label string, width int) {
		step := int32(width * lanes)
		SUBQ(I32(step), n)
		JLT(LabelRef(label + "done"))
		Label(label)
		body(&block{ptrs: ptrs, width: width})
		for _, p := range ptrs {
			ADDQ(I32(4*step), p)
		}
		SUBQ(I32(step), n)
		JGE(LabelRef(label))
		Label(label + "done")
		ADDQ(I32(step), n)
	}
	if unroll > 1 {
		loop(fmt.Sprintf("by%d", unroll), unroll)
	}
	loop("by1", 1)
	JEQ(LabelRef("end"))
	table, offset, mask := GP64(), GP64(), YMM()
	LEAQ(maskTable(), table)
	MOVQ(I32(lanes), offset)
	SUBQ(n, offset)
	VMOVUPS(Mem{Base: table, Index: offset, Scale: 4}, mask)
	body(&block{ptrs: ptrs, width: 1, mask: mask})
	Label("end")
}

// fold adds the vectors pairwise into the first and sums its lanes: halves,
// then pairs, then neighbours. The order is part of the kernel's definition.
func fold(acc []VecVirtual) Register {
	for n := len(acc); n > 1; n /= 2 {
		for i := range n / 2 {
			VADDPS(acc[i+n/2], acc[i], acc[i])
		}
	}
	v, t := acc[0].AsX(), XMM()
	VEXTRACTF128(Imm(1), acc[0], t)
	VADDPS(t, v, v)
	VMOVHLPS(v, v, t)
	VADDPS(t, v, v)
	VMOVSHDUP(v, t)
	VADDSS(t, v, v)
	return v
}
