package main

import "fmt"

// The tile is 12x8: 24 accumulators, two vectors of a row of B and three of a
// column of A are 29 of the 32 registers, and five loads feed 24 multiply-adds.
// Twelve rows and eight columns divide the block sizes of package gemm.
const (
	tileHigh = 12
	tileWide = 8
	firstAcc = 8 // V8 to V31 hold the tile
)

func acc(row, half int) int { return firstAcc + 2*row + half }

const tileDoc = "sets a 12x8 tile of C, rows ldc apart, to A*B, plus its old value when accumulate is not 0, from "

// Registers of the three micro-kernels: k, a, b, c, ldc and accumulate are 0 to 5
// in tilePacked; lda lies between a and b in the others.

// openTile clears the accumulators and asks for the rows of C.
func openTile(f *fn, c, ldc, scratch int) {
	f.shiftLeft(2, ldc)
	f.op("MOVD", gp(c), gp(scratch))
	for i := range tileHigh {
		f.op("PRFM", mem(scratch, 0)+", PLDL1KEEP")
		if i < tileHigh-1 {
			f.addReg(ldc, scratch)
		}
		f.zero(acc(i, 0))
		f.zero(acc(i, 1))
	}
}

// closeTile stores the accumulators, after adding the old values if asked to.
func closeTile(f *fn, c, ldc, accumulate, scratch int) *fn {
	store := f.label("store")
	f.op("CBZ", gp(accumulate), store)
	f.op("MOVD", gp(c), gp(scratch))
	for i := range tileHigh {
		f.load2(scratch, 0, 0)
		if i < tileHigh-1 {
			f.addReg(ldc, scratch)
		}
		f.addf(acc(i, 0), 0, acc(i, 0))
		f.addf(acc(i, 1), 1, acc(i, 1))
	}
	f.mark(store)
	for i := range tileHigh {
		f.store2(acc(i, 0), c, 0)
		if i < tileHigh-1 {
			f.addReg(ldc, c)
		}
	}
	return f.end()
}

// loopK runs body(steps) for k in passes of unroll, then in single steps.
func loopK(f *fn, k, unroll int, body func(steps int)) {
	loop, rest, single, done := f.label("loop"), f.label("rest"), f.label("single"), f.label("done")
	f.op("SUBS", imm(unroll), gp(k), gp(k))
	f.op("BLT", rest)
	f.mark(loop)
	body(unroll)
	f.op("SUBS", imm(unroll), gp(k), gp(k))
	f.op("BGE", loop)
	f.mark(rest)
	f.op("ADDS", imm(unroll), gp(k), gp(k))
	f.op("BEQ", done)
	f.mark(single)
	body(1)
	f.op("SUBS", imm(1), gp(k), gp(k))
	f.op("BNE", single)
	f.mark(done)
}

// column adds one step of k: the column of A in V0 to V2, the row of B in V3 and
// V4.
func column(f *fn) {
	for i := range tileHigh {
		f.fmaLane(3, i/4, i%4, acc(i, 0))
		f.fmaLane(4, i/4, i%4, acc(i, 1))
	}
}

func tilePacked() *fn {
	f := begin("tileVec", tileDoc+"packed A.", join(ints("k"), ptrs("a", "b", "c"), ints("ldc", "accumulate"))...)
	const k, a, b, c, ldc, accumulate, scratch = 0, 1, 2, 3, 4, 5, 6
	openTile(f, c, ldc, scratch)
	loopK(f, k, 4, func(steps int) {
		if steps > 1 {
			f.op("PRFM", mem(a, 512)+", PLDL1KEEP")
		}
		for u := range steps {
			f.load2(a, 4*tileHigh*u, 0)
			f.load(a, 4*tileHigh*u+32, 2)
			f.load2(b, 4*tileWide*u, 3)
			column(f)
			if u == 1 {
				f.op("PRFM", mem(a, 576)+", PLDL1KEEP")
			}
		}
		f.addImm(4*tileHigh*steps, a)
		f.addImm(4*tileWide*steps, b)
	})
	return closeTile(f, c, ldc, accumulate, scratch)
}

func tileCols() *fn {
	f := begin("tileColsVec", tileDoc+"A with columns lda apart.",
		join(ints("k"), ptrs("a"), ints("lda"), ptrs("b", "c"), ints("ldc", "accumulate"))...)
	const k, a, lda, b, c, ldc, accumulate, scratch = 0, 1, 2, 3, 4, 5, 6, 7
	f.shiftLeft(2, lda)
	openTile(f, c, ldc, scratch)
	loopK(f, k, 2, func(steps int) {
		for u := range steps {
			f.load2(a, 0, 0)
			f.load(a, 32, 2)
			f.addReg(lda, a)
			f.load2(b, 4*tileWide*u, 3)
			column(f)
		}
		f.addImm(4*tileWide*steps, b)
	})
	return closeTile(f, c, ldc, accumulate, scratch)
}

// tileRows takes two steps of k at a time, so that a load of eight bytes brings
// the factors of a row for both: 16 loads for 48 multiply-adds.
func tileRows() *fn {
	f := begin("tileRowsVec", tileDoc+"A with rows lda apart.",
		join(ints("k"), ptrs("a"), ints("lda"), ptrs("b", "c"), ints("ldc", "accumulate"))...)
	const k, a, lda, b, c, ldc, accumulate = 0, 1, 2, 3, 4, 5, 6
	rows := rowPointers(f, a, lda, tileHigh, 7)
	scratch := 22
	openTile(f, c, ldc, scratch)
	loopK(f, k, 2, func(steps int) {
		for u := range steps {
			f.load2(b, 4*tileWide*u, 2*u)
		}
		f.addImm(4*tileWide*steps, b)
		for g := 0; g < tileHigh; g += 4 {
			for i := range 4 {
				mnemonic := map[int]string{1: "FMOVS.P", 2: "FMOVD.P"}[steps]
				f.op(mnemonic, mem(rows[g+i], 4*steps), fmt.Sprintf("F%d", 4+i))
			}
			for u := range steps {
				for i := range 4 {
					f.fmaLane(2*u, 4+i, u, acc(g+i, 0))
					f.fmaLane(2*u+1, 4+i, u, acc(g+i, 1))
				}
			}
		}
	})
	return closeTile(f, c, ldc, accumulate, scratch)
}

// rowPointers sets registers from first on to the rows behind src, which is the
// first; lds is turned into bytes. It passes over R16 to R18, which belong to the
// linker and the system.
func rowPointers(f *fn, src, lds, n, first int) []int {
	f.shiftLeft(2, lds)
	rows := []int{src}
	for r := first; len(rows) < n; r++ {
		if r >= 16 && r <= 18 {
			continue
		}
		f.op("ADD", gp(lds), gp(rows[len(rows)-1]), gp(r))
		rows = append(rows, r)
	}
	return rows
}

// packRows emits the transposing packer: blocks of 4x4 by two rounds of zips.
func packRows(high int) *fn {
	name := fmt.Sprintf("packRows%dVec", high)
	f := begin(name, fmt.Sprintf("copies 8*k8 columns of %d rows of src, lds apart, to dst column by column.", high),
		join(ints("k8"), ptrs("dst", "src"), ints("lds"))...)
	const k8, dst, src, lds = 0, 1, 2, 3
	rows := rowPointers(f, src, lds, high, 4)
	loop, done := f.label("loop"), f.label("done")
	f.shiftLeft(1, k8) // passes of four columns
	f.op("CBZ", gp(k8), done)
	f.mark(loop)
	for g := 0; g < high; g += 4 {
		base := (g / 4 % 2) * 16 // a block does not wait for the registers of the last
		for i := range 4 {
			f.op("FMOVQ.P", mem(rows[g+i], 16), fmt.Sprintf("F%d", base+i))
		}
		for half := range 2 {
			f.zip(half+1, base, base+2, base+4+half)
			f.zip(half+1, base+1, base+3, base+6+half)
		}
		for kk := range 4 {
			f.zip(kk%2+1, base+4+kk/2, base+6+kk/2, base+8+kk)
			f.store(base+8+kk, dst, 4*(kk*high+g))
		}
	}
	f.addImm(4*4*high, dst)
	f.op("SUBS", imm(1), gp(k8), gp(k8))
	f.op("BNE", loop)
	f.mark(done)
	return f.end()
}

// packCols emits the copying packer. It takes k rows through all panels, so that a
// row is read from end to end; the caller keeps k small.
func packCols(width int) *fn {
	name := fmt.Sprintf("packCols%dVec", width)
	f := begin(name, fmt.Sprintf("copies k rows of src, lds apart, to panels of %d columns, stride apart in dst. panels and k are above 0.", width),
		join(ints("panels", "k"), ptrs("dst", "src"), ints("lds", "stride"))...)
	const panels, k, dst, src, lds, stride = 0, 1, 2, 3, 4, 5
	const from, to, left = 6, 7, 8
	f.shiftLeft(2, lds)
	f.shiftLeft(2, stride)
	panel, row := f.label("panel"), f.label("row")
	f.mark(panel)
	f.op("MOVD", gp(src), gp(from))
	f.op("MOVD", gp(dst), gp(to))
	f.op("MOVD", gp(k), gp(left))
	f.mark(row)
	f.load2(from, 0, 0)
	if width == 12 {
		f.load(from, 32, 2)
	}
	f.store2(0, to, 0)
	if width == 12 {
		f.store(2, to, 32)
	}
	f.addReg(lds, from)
	f.addImm(4*width, to)
	f.op("SUBS", imm(1), gp(left), gp(left))
	f.op("BNE", row)
	f.addImm(4*width, src)
	f.addReg(stride, dst)
	f.op("SUBS", imm(1), gp(panels), gp(panels))
	f.op("BNE", panel)
	return f.end()
}

// fmaPeak keeps 24 independent chains busy: four units times a latency of four
// cycles need sixteen.
func fmaPeak() *fn {
	f := begin("fmaPeakVec", "runs 24*n fused multiply-adds of 4 lanes; xy holds the two factors and 4 floats receive the sum.",
		join(ints("n"), ptrs("xy"))...)
	const n, xy = 0, 1
	f.load(xy, 0, 0)
	f.op("VDUP", "V0.S[1]", "V1.S4")
	f.broadcast(0, 0)
	for i := range 24 {
		f.zero(8 + i)
	}
	loop := f.label("loop")
	f.mark(loop)
	for i := range 24 {
		f.fma(0, 1, 8+i)
	}
	f.op("SUBS", imm(1), gp(n), gp(n))
	f.op("BGT", loop)
	for i := range 23 {
		f.addf(8, 9+i, 8)
	}
	f.store(8, xy, 0)
	return f.end()
}
