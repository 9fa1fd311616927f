package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// The exponential and what is made of it in vectors of sixteen, with the bits of the
// kernels of eight: the same operations on each element, the same order of sums.

const lanes512 = 16

func vectors512(n int) []VecVirtual {
	r := make([]VecVirtual, n)
	for i := range r {
		r[i] = ZMM()
	}
	return r
}

// spread returns a register with a constant of the file in all its lanes.
func spread(m Mem) VecVirtual {
	v := ZMM()
	VBROADCASTSS(m, v)
	return v
}

func broadcast512(name string) VecVirtual {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return spread(p.Addr)
}

func zero512(v VecVirtual) { VPXORD(v, v, v) }

// block512 is one pass of a loop body over width vectors. In the rest, masks has a
// mask for each of them: lanes past the end read as zero and are not written.
type block512 struct {
	ptrs  []GPVirtual
	width int
	masks []OpmaskVirtual
}

func (b *block512) at(p, u int) Mem { return Mem{Base: b.ptrs[p], Disp: 4 * lanes512 * u} }

func (b *block512) load(p, u int, dst VecVirtual) {
	if b.masks == nil {
		VMOVUPS(b.at(p, u), dst)
		return
	}
	VMOVUPS_Z(b.at(p, u), b.masks[u], dst)
}

// operand is vector u of stream p as a source: memory in a full block, a register
// in the rest.
func (b *block512) operand(p, u int) Op {
	if b.masks == nil {
		return b.at(p, u)
	}
	v := ZMM()
	b.load(p, u, v)
	return v
}

func (b *block512) store(v VecVirtual, p, u int) {
	if b.masks == nil {
		VMOVUPS(v, b.at(p, u))
		return
	}
	VMOVUPS(v, b.masks[u], b.at(p, u))
}

func (b *block512) each(f func(u int)) {
	for u := range b.width {
		f(u)
	}
}

// stream512 emits a loop over n elements of each pointer: blocks of the given widths
// one after the other, then the rest, in one block of the last width with masks.
func stream512(n GPVirtual, ptrs []GPVirtual, widths []int, body func(b *block512)) {
	for _, width := range widths {
		label, step := fmt.Sprintf("wide%d", width), int32(width*lanes512)
		SUBQ(I32(step), n)
		JLT(LabelRef(label + "done"))
		Label(label)
		body(&block512{ptrs: ptrs, width: width})
		for _, p := range ptrs {
			ADDQ(I32(4*step), p)
		}
		SUBQ(I32(step), n)
		JGE(LabelRef(label))
		Label(label + "done")
		ADDQ(I32(step), n)
	}
	JEQ(LabelRef("end"))
	last := &block512{ptrs: ptrs, width: widths[len(widths)-1]}
	ones := GP64()
	MOVQ(I32(-1), ones)
	BZHIQ(n, ones, ones)
	for range last.width {
		k := K()
		KMOVW(ones.As32(), k)
		SHRQ(Imm(lanes512), ones)
		last.masks = append(last.masks, k)
	}
	body(last)
	Label("end")
}

// exp512 is exp for vectors of sixteen.
func exp512(limit VecVirtual, xs, t1, t2 []VecVirtual) {
	const notLess = 21 // NLT_UQ
	each := func(f func(i int)) {
		for i := range xs {
			f(i)
		}
	}
	each(func(i int) { VMINPS(xs[i], limit, xs[i]) })
	round, log2e := spread(wideFloat("round", 1.5*(1<<23))), spread(wideFloat("log2e", math.Log2E))
	each(func(i int) { VMOVAPS(round, t1[i]) })
	each(func(i int) { VFMADD231PS(log2e, xs[i], t1[i]) })
	each(func(i int) { VSUBPS(round, t1[i], t1[i]) })
	for _, part := range []Mem{wideFloat("ln2hi", 0.693359375), wideFloat("ln2lo", -2.12194440e-4)} {
		m := spread(part)
		each(func(i int) { VFNMADD231PS(m, t1[i], xs[i]) })
	}
	for p, c := range expPoly {
		m := spread(wideFloat(fmt.Sprintf("exp%d", p), c/4))
		if p == 0 {
			each(func(i int) { VMOVAPS(m, t2[i]) })
			continue
		}
		each(func(i int) { VFMADD213PS(m, xs[i], t2[i]) })
	}
	each(func(i int) { VCVTPS2DQ(t1[i], xs[i]) })
	each(func(i int) { VPSLLD(Imm(23), xs[i], xs[i]) })
	each(func(i int) { VPADDD(xs[i], t2[i], t2[i]) })
	lowN, four := spread(wideFloat("explown", expLowN)), spread(wideFloat("four", 4))
	kept := K()
	each(func(i int) {
		VCMPPS(Imm(notLess), lowN, t1[i], kept)
		VMULPS_Z(four, t2[i], kept, xs[i])
	})
}

func expSum512() {
	begin("expSum512Vec", "func(n int, dst, x *float32, scale, sub float32) float32",
		"expSum512Vec stores exp(x*scale-sub) in dst and returns the sum.")
	n, ptrs := param("n"), params("dst", "x")
	scale, sub, limit := broadcast512("scale"), broadcast512("sub"), spread(wideFloat("explimit", 89))
	sum := YMM()
	zero(sum)
	upper := YMM()
	stream512(n, ptrs, []int{4, 2}, func(b *block512) {
		xs, t1, t2 := vectors512(b.width), vectors512(b.width), vectors512(b.width)
		b.each(func(u int) { b.load(1, u, xs[u]) })
		b.each(func(u int) { VFMSUB213PS(sub, scale, xs[u]) })
		exp512(limit, xs, t1, t2)
		b.each(func(u int) { b.store(xs[u], 0, u) })
		if b.masks == nil {
			// Of 32 elements the four eights are added in pairs, as there.
			for u := 0; u < b.width; u += 2 {
				VADDPS(xs[u+1], xs[u], xs[u])
				VEXTRACTF32X8(Imm(1), xs[u], upper)
				VADDPS(upper, xs[u].AsY(), xs[u].AsY())
				VADDPS(xs[u].AsY(), sum, sum)
			}
			return
		}
		// One after the other; those past the end are zeros, which change nothing.
		b.each(func(u int) {
			VMOVAPS_Z(xs[u], b.masks[u], xs[u])
			VADDPS(xs[u].AsY(), sum, sum)
			VEXTRACTF32X8(Imm(1), xs[u], upper)
			VADDPS(upper, sum, sum)
		})
	})
	result(fold([]VecVirtual{sum}))
	end()
}

func swiglu512() {
	begin("swiglu512Vec", "func(n int, dst, gate, up *float32)", "swiglu512Vec stores gate*sigmoid(gate)*up in dst.")
	n, ptrs := param("n"), params("dst", "gate", "up")
	none, one, limit := ZMM(), spread(wideFloat("one", 1)), spread(wideFloat("explimit", 89))
	zero512(none)
	stream512(n, ptrs, []int{4, 1}, func(b *block512) {
		xs, t1, t2, gate := vectors512(b.width), vectors512(b.width), vectors512(b.width), vectors512(b.width)
		b.each(func(u int) { b.load(1, u, gate[u]) })
		b.each(func(u int) { VSUBPS(gate[u], none, xs[u]) })
		exp512(limit, xs, t1, t2)
		b.each(func(u int) {
			VADDPS(one, xs[u], xs[u])
			VDIVPS(xs[u], gate[u], gate[u])
			VMULPS(b.operand(2, u), gate[u], gate[u])
			b.store(gate[u], 0, u)
		})
	})
	end()
}

func swigluBwd512() {
	begin("swigluBwd512Vec", "func(n int, dgate, dup, gate, up, dy *float32)",
		"swigluBwd512Vec stores the gradients of swiglu in dgate and dup.")
	n, ptrs := param("n"), params("dgate", "dup", "gate", "up", "dy")
	none, one, limit := ZMM(), spread(wideFloat("one", 1)), spread(wideFloat("explimit", 89))
	zero512(none)
	stream512(n, ptrs, []int{4, 1}, func(b *block512) {
		xs, t1, t2, gate := vectors512(b.width), vectors512(b.width), vectors512(b.width), vectors512(b.width)
		b.each(func(u int) { b.load(2, u, gate[u]) })
		b.each(func(u int) { VSUBPS(gate[u], none, xs[u]) })
		exp512(limit, xs, t1, t2)
		b.each(func(u int) {
			VADDPS(one, xs[u], xs[u])
			VDIVPS(xs[u], one, xs[u]) // s = sigmoid(gate)
			b.load(4, u, t1[u])
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
