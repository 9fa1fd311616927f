package main

import "fmt"

// block is one pass over the elements of a function without reduction: width
// vectors of four, or the two or one elements of the rest.
type block struct {
	f     *fn
	ptrs  []int
	width int
	lanes int // elements of a vector that exist: 4, 2 or 1; the others are zero
}

// move emits the loads or stores of vectors first to first+width-1.
func (b *block) move(p, first int, load bool) {
	r := b.ptrs[p]
	for u := 0; u < b.width; u++ {
		switch {
		case b.lanes == 4 && u+1 < b.width && load:
			b.f.load2(r, 16*u, first+u)
			u++
		case b.lanes == 4 && u+1 < b.width:
			b.f.store2(first+u, r, 16*u)
			u++
		case b.lanes == 4 && load:
			b.f.load(r, 16*u, first+u)
		case b.lanes == 4:
			b.f.store(first+u, r, 16*u)
		default:
			mnemonic := map[int]string{2: "FMOVD", 1: "FMOVS"}[b.lanes]
			v, m := fmt.Sprintf("F%d", first), mem(r, 0)
			if load {
				b.f.op(mnemonic, m, v)
			} else {
				b.f.op(mnemonic, v, m)
			}
		}
	}
}

// load reads the vectors of stream p into registers from first on, and store
// writes them.
func (b *block) load(p, first int)  { b.move(p, first, true) }
func (b *block) store(first, p int) { b.move(p, first, false) }

func (b *block) each(do func(u int)) {
	for u := range b.width {
		do(u)
	}
}

// stream emits a loop over n elements of each pointer: blocks of unroll vectors,
// single vectors, two elements, one element. n may be any number >= 0.
func stream(f *fn, n int, ptrs []int, unroll int, body func(b *block)) *fn {
	for _, width := range []int{unroll, 1} {
		step := 4 * width
		f.countedLoop(n, step, func() {
			body(&block{f, ptrs, width, 4})
			for _, p := range ptrs {
				f.addImm(4*step, p)
			}
		})
	}
	for _, lanes := range []int{2, 1} {
		skip := f.label("skip")
		f.op("TBZ", imm(lanes/2), gp(n), skip)
		body(&block{f, ptrs, 1, lanes})
		if lanes > 1 {
			for _, p := range ptrs {
				f.addImm(4*lanes, p)
			}
		}
		f.mark(skip)
	}
	return f.end()
}

// countedLoop runs body while at least step elements are left, and subtracts them
// from n.
func (f *fn) countedLoop(n, step int, body func()) {
	loop, done := f.label("loop"), f.label("done")
	f.op("SUBS", imm(step), gp(n), gp(n))
	f.op("BLT", done)
	f.mark(loop)
	body()
	f.op("SUBS", imm(step), gp(n), gp(n))
	f.op("BGE", loop)
	f.mark(done)
	f.op("ADD", imm(step), gp(n), gp(n))
}

// octet is one pass of a reduction. Reductions go by eight elements in two
// vectors, as the AVX2 set does in one, so that both sets sum in one order.
type octet struct {
	f     *fn
	n     int // register: in the rest, the number of elements left
	ptrs  []int
	units int  // of eight elements
	rest  bool // 1 to 7 elements of one unit; lanes past the end read as zero
}

// load reads stream p into registers from first on: the low and the high half of
// each unit.
func (o *octet) load(p, first int) {
	if o.rest {
		o.f.loadRest(o.n, o.ptrs[p], first)
		return
	}
	for u := range o.units {
		o.f.load2(o.ptrs[p], 32*u, first+2*u)
	}
}

// reduce emits a loop over n elements of each pointer: blocks of four units,
// single units, the rest. The order in which lanes are visited depends on n alone.
func reduce(f *fn, n int, ptrs []int, body func(o *octet)) {
	for _, units := range []int{4, 1} {
		f.countedLoop(n, 8*units, func() {
			body(&octet{f, n, ptrs, units, false})
			for _, p := range ptrs {
				f.addImm(32*units, p)
			}
		})
	}
	end := f.label("end")
	f.op("CBZ", gp(n), end)
	body(&octet{f, n, ptrs, 1, true})
	f.mark(end)
}

// loadRest reads n = 1 to 7 elements at r into v and v+1 and zeroes the lanes
// behind them. It moves r.
func (f *fn) loadRest(n, r, v int) {
	small, done := f.label("small"), f.label("loaded")
	f.op("TBZ", imm(2), gp(n), small)
	f.op("FMOVQ.P", mem(r, 16), fmt.Sprintf("F%d", v))
	f.loadPart(n, r, v+1)
	f.op("B", done)
	f.mark(small)
	f.loadPart(n, r, v)
	f.zero(v + 1)
	f.mark(done)
}

// loadPart reads the n%4 elements at r.
func (f *fn) loadPart(n, r, v int) {
	one, done := f.label("one"), f.label("part")
	f.zero(v)
	f.op("TBZ", imm(1), gp(n), one)
	f.op("FMOVD.P", mem(r, 8), fmt.Sprintf("F%d", v)) // clears the upper half
	f.op("TBZ", imm(0), gp(n), done)
	f.op("VLD1", mem(r, 0), fmt.Sprintf("V%d.S[2]", v))
	f.op("B", done)
	f.mark(one)
	f.op("TBZ", imm(0), gp(n), done)
	f.op("FMOVS", mem(r, 0), fmt.Sprintf("F%d", v))
	f.mark(done)
}

// storeRest writes the first n = 1 to 7 elements of v and v+1. It moves r and
// changes the vectors.
func (f *fn) storeRest(n, r, v int) {
	part, one, done := f.label("part"), f.label("one"), f.label("stored")
	reg := fmt.Sprintf("F%d", v)
	f.op("TBZ", imm(2), gp(n), part)
	f.op("FMOVQ.P", reg, mem(r, 16))
	f.move(v+1, v)
	f.mark(part)
	f.op("TBZ", imm(1), gp(n), one)
	f.op("FMOVD.P", reg, mem(r, 8))
	f.ext(8, v, v, v)
	f.mark(one)
	f.op("TBZ", imm(0), gp(n), done)
	f.op("FMOVS", reg, mem(r, 0))
	f.mark(done)
}

// restMask loads a mask of the first n = 1 to 7 lanes into v and v+1.
func (f *fn) restMask(n, scratch, v int) {
	f.op("MOVD", "$neonmask<>+32(SB)", gp(scratch))
	f.op("SUB", gp(n)+"<<2", gp(scratch), gp(scratch))
	f.load2(scratch, 0, v)
}
