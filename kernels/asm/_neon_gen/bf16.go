package main

import "fmt"

// toBF16 rounds to nearest even in integers: half a unit of the last place kept,
// less one, and that place's bit are added before the lower half is dropped. A NaN
// keeps its upper half and becomes quiet.
func toBF16() *fn {
	f := begin("toBF16Vec", "stores the bfloat16 next to each of the n floats of src in dst. n is a multiple of 16.",
		arg{name: "n", kind: integer}, arg{name: "dst", kind: pointer16}, arg{name: "src", kind: pointer})
	const n, dst, src, scratch = 0, 1, 2, 3
	const one, almost, infinite, quiet = 28, 29, 30, 31
	for _, c := range []struct {
		v    int
		word string
	}{{one, "$1"}, {almost, "$0x7fff"}, {infinite, "$0xff000000"}, {quiet, "$0x40"}} {
		f.op("MOVD", c.word, gp(scratch))
		f.op("VDUP", gp(scratch), s4(c.v))
	}
	f.countedLoop(n, 16, func() {
		f.load2(src, 0, 0)
		f.load2(src, 32, 2)
		f.addImm(64, src)
		for u := range 4 {
			const kept, low, nan = 4, 8, 12
			f.shr(16, u, kept+u)
			f.and(kept+u, one, low+u)
			f.addInt(u, low+u, low+u)
			f.addInt(low+u, almost, low+u)
			f.shr(16, low+u, low+u)
			f.or(kept+u, quiet, kept+u)
			f.shl(1, u, u) // drops the sign
			f.above(u, infinite, nan+u)
			f.bitIf(nan+u, kept+u, low+u)
		}
		for h := range 2 {
			f.op("VUZP1", h8(9+2*h), h8(8+2*h), h8(h))
		}
		f.store2(0, dst, 0)
		f.addImm(32, dst)
	})
	return f.end()
}

// fromBF16 puts a zero below each half.
func fromBF16() *fn {
	f := begin("fromBF16Vec", "stores the n values of src in dst. n is a multiple of 16.",
		arg{name: "n", kind: integer}, arg{name: "dst", kind: pointer}, arg{name: "src", kind: pointer16})
	const n, dst, src, none = 0, 1, 2, 31
	f.zero(none)
	f.countedLoop(n, 16, func() {
		f.load2(src, 0, 0)
		f.addImm(32, src)
		for h := range 2 {
			for half := range 2 {
				f.op(fmt.Sprintf("VZIP%d", half+1), h8(h), h8(none), h8(4+2*h+half))
			}
		}
		f.store2(4, dst, 0)
		f.store2(6, dst, 32)
		f.addImm(64, dst)
	})
	return f.end()
}
