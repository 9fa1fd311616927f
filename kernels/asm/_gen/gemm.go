package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// tileKernel describes a micro-kernel. Its accumulators, one row of B and a few
// broadcasts of A have to fit the registers: 16 of YMM, 32 of ZMM.
type tileKernel struct {
	suffix     string // of the function names, before Vec
	rows, vecs int
	bytes      int // of a vector
	register   func() VecVirtual
	zero       func(v VecVirtual)
	broadcasts int
	unroll     int // steps of k a pass
}

// Measured alone at k = 256, as a share of the multiply-add peak: 0.95 on Zen 3
// for 6x16 (a 4x24 tile gave the same).
var (
	tile6x16  = tileKernel{"", 6, 2, 32, YMM, zero, 2, 8}
	tile12x32 = tileKernel{"512", 12, 2, 64, ZMM, func(v VecVirtual) { VPXORD(v, v, v) }, 4, 4}
)

func (t *tileKernel) registers(n int) []VecVirtual {
	r := make([]VecVirtual, n)
	for i := range r {
		r[i] = t.register()
	}
	return r
}

// layout says where a micro-kernel finds its left operand.
type layout string

const (
	packedA layout = ""     // column after column, as the packers leave it
	rowsA   layout = "Rows" // rows lda apart: as stored
	colsA   layout = "Cols" // columns lda apart: as stored, transposed

	// pairsA is packedA with the terms of a pair added second first and with
	// subnormals as zeros: the arithmetic of VDPBF16PS, which two fused multiply-adds
	// have as well.
	pairsA layout = "Pairs"
)

// leftOperand returns how to address element i of the column in step u of a pass,
// what to do after each step and what after a pass of n steps.
func (t *tileKernel) leftOperand(from layout, a GPVirtual) (at func(u, i int) Mem, next func(), advance func(n int)) {
	if from == packedA || from == pairsA {
		return func(u, i int) Mem { return Mem{Base: a, Disp: (u*t.rows + i) * 4} }, func() {},
			func(n int) { ADDQ(I32(int32(n*t.rows*4)), a) }
	}
	lda := param("lda")
	SHLQ(Imm(2), lda)
	if from == colsA {
		return func(_, i int) Mem { return Mem{Base: a, Disp: 4 * i} }, func() { ADDQ(lda, a) }, func(int) {}
	}
	var threes []GPVirtual // pointers to rows 0, 3, 6, ...
	for i := range (t.rows + 2) / 3 {
		p := GP64()
		if i == 0 {
			MOVQ(a, p)
		} else {
			LEAQ(Mem{Base: threes[i-1], Index: lda, Scale: 2}, p)
			ADDQ(lda, p)
		}
		threes = append(threes, p)
	}
	at = func(u, i int) Mem {
		m := Mem{Base: threes[i/3], Disp: 4 * u}
		if i%3 > 0 {
			m.Index, m.Scale = lda, uint8(i%3)
		}
		return m
	}
	return at, func() {}, func(n int) {
		for _, p := range threes {
			ADDQ(I32(int32(4*n)), p)
		}
	}
}

// eachRow calls f with a pointer to each row of a tile of C, rows ldc bytes apart.
func (t *tileKernel) eachRow(c, ldc GPVirtual, f func(i int, row GPVirtual)) {
	row := GP64()
	MOVQ(c, row)
	for i := range t.rows {
		f(i, row)
		if i < t.rows-1 {
			ADDQ(ldc, row)
		}
	}
}

func (t *tileKernel) emit(from layout) {
	cols := t.vecs * t.bytes / 4
	name, signature := "tile"+string(from)+t.suffix+"Vec", "func(k int, a, b, c *float32, ldc, accumulate int)"
	where := "packed A"
	switch from {
	case pairsA:
		where = "packed A, pair by pair with the second term first, subnormals as zeros. k is even"
	case rowsA, colsA:
		signature = "func(k int, a *float32, lda int, b, c *float32, ldc, accumulate int)"
		where = map[layout]string{rowsA: "A with rows lda apart", colsA: "A with columns lda apart"}[from]
	}
	begin(name, signature,
		fmt.Sprintf("%s sets a %dx%d tile of C, rows ldc apart, to A*B, plus its old value when accumulate is not 0, from %s.", name, t.rows, cols, where))
	k, a, b, c, ldc := param("k"), param("a"), param("b"), param("c"), param("ldc")
	SHLQ(Imm(2), ldc)
	swap, restore := 0, func() {}
	if from == pairsA {
		swap, restore = 1, flushSubnormals()
	}
	acc := make([][]VecVirtual, t.rows)
	for i := range acc {
		acc[i] = t.registers(t.vecs)
		for _, v := range acc[i] {
			t.zero(v)
		}
	}
	// rows visits the rows of C with a pointer to each.
	rows := func(f func(i int, row GPVirtual)) { t.eachRow(c, ldc, f) }
	rows(func(_ int, row GPVirtual) {
		for at := 0; at < 4*cols; at += 64 {
			PREFETCHT0(Mem{Base: row, Disp: at})
		}
		PREFETCHT0(Mem{Base: row, Disp: 4*cols - 4})
	})
	bv, av := t.registers(t.vecs), t.registers(t.broadcasts)
	left, next, advanceA := t.leftOperand(from, a)
	step := func(u int) {
		for j, v := range bv {
			VMOVUPS(Mem{Base: b, Disp: (u*t.vecs + j) * t.bytes}, v)
		}
		for i := range t.rows {
			x := av[i%len(av)]
			VBROADCASTSS(left(u, i), x)
			for j, v := range bv {
				VFMADD231PS(v, x, acc[i][j])
			}
		}
		next()
	}
	advance := func(steps int) {
		advanceA(steps)
		ADDQ(I32(int32(steps*t.vecs*t.bytes)), b)
	}
	SUBQ(I32(int32(t.unroll)), k)
	JLT(LabelRef("rest"))
	Label("loop")
	packed := from == packedA || from == pairsA
	if packed {
		PREFETCHT0(Mem{Base: a, Disp: 64 * 6})
	}
	for u := range t.unroll {
		step(u ^ swap)
		if packed && u == t.unroll/2 {
			PREFETCHT0(Mem{Base: a, Disp: 64 * 7})
		}
	}
	advance(t.unroll)
	SUBQ(I32(int32(t.unroll)), k)
	JGE(LabelRef("loop"))
	Label("rest")
	ADDQ(I32(int32(t.unroll)), k)
	JEQ(LabelRef("finish"))
	Label("single")
	for u := range 1 + swap {
		step(u ^ swap)
	}
	advance(1 + swap)
	SUBQ(Imm(uint64(1+swap)), k)
	JNE(LabelRef("single"))
	Label("finish")
	restore()
	accumulate := param("accumulate")
	TESTQ(accumulate, accumulate)
	JEQ(LabelRef("store"))
	rows(func(i int, row GPVirtual) {
		for j, v := range acc[i] {
			VADDPS(Mem{Base: row, Disp: j * t.bytes}, v, v)
		}
	})
	Label("store")
	rows(func(i int, row GPVirtual) {
		for j, v := range acc[i] {
			VMOVUPS(v, Mem{Base: row, Disp: j * t.bytes})
		}
	})
	end()
}

// flushSubnormals makes the processor take subnormal operands as zeros and turn
// subnormal results into zeros, until the function it returns. Goroutines are never
// switched inside assembly, so that no other code computes meanwhile but a signal
// handler's, to which subnormal numbers mean nothing.
func flushSubnormals() (restore func()) {
	const denormalsAreZeros, flushToZero = 1 << 6, 1 << 15
	old, changed := AllocLocal(8), GP32()
	STMXCSR(old)
	MOVL(old, changed)
	ORL(U32(denormalsAreZeros|flushToZero), changed)
	set := old
	set.Disp += 4
	MOVL(changed, set)
	LDMXCSR(set)
	return func() { LDMXCSR(old) }
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

// rowPointers addresses rows of a matrix: a pointer for each four of them and
// three multiples of the distance.
type rowPointers struct {
	fours     []GPVirtual
	lds, lds3 GPVirtual
}

// strides points to rows rows from src on, lds bytes apart.
func strides(src, lds GPVirtual, rows int) *rowPointers {
	p := &rowPointers{lds: lds, lds3: GP64()}
	LEAQ(Mem{Base: lds, Index: lds, Scale: 2}, p.lds3)
	for i := range (rows + 3) / 4 {
		r := GP64()
		if i == 0 {
			MOVQ(src, r)
		} else {
			LEAQ(Mem{Base: p.fours[i-1], Index: lds, Scale: 4}, r)
		}
		p.fours = append(p.fours, r)
	}
	return p
}

func (p *rowPointers) at(i int) Mem {
	m := Mem{Base: p.fours[i/4]}
	switch i % 4 {
	case 1:
		m.Index, m.Scale = p.lds, 1
	case 2:
		m.Index, m.Scale = p.lds, 2
	case 3:
		m.Index, m.Scale = p.lds3, 1
	}
	return m
}

func (p *rowPointers) advance(bytes int) {
	for _, r := range p.fours {
		ADDQ(I32(int32(bytes)), r)
	}
}

// packRows emits the transposing packer for a panel of the given number of rows.
func packRows(rows int) {
	surplus := ""
	if rows == 6 {
		surplus = " It writes 2 floats past the end."
	}
	begin(fmt.Sprintf("packRows%dVec", rows), "func(k8 int, dst, src *float32, lds int)",
		fmt.Sprintf("packRows%dVec copies 8*k8 columns of %d rows of src, lds apart, to dst column by column.%s", rows, rows, surplus))
	k8, dst, src, lds := param("k8"), param("dst"), param("src"), param("lds")
	SHLQ(Imm(2), lds)
	row := strides(src, lds, rows)
	TESTQ(k8, k8)
	JEQ(LabelRef("done"))
	Label("loop")
	for g := 0; g < rows; g += 8 {
		r := vectors(8)
		for i, v := range r {
			if g+i < rows {
				VMOVUPS(row.at(g+i), v)
			} else {
				zero(v)
			}
		}
		// Six rows are stored as eight: the surplus is overwritten by the next
		// column, which comes later in memory. After a full group that would
		// overwrite what is there already.
		for kk, v := range transpose8(r) {
			var part Register = v
			if rows-g == 4 {
				part = v.AsX()
			}
			VMOVUPS(part, Mem{Base: dst, Disp: (kk*rows + g) * 4})
		}
	}
	row.advance(32)
	ADDQ(I32(int32(rows*32)), dst)
	DECQ(k8)
	JNE(LabelRef("loop"))
	Label("done")
	end()
}

// packCols emits the copying packer for panels of the given number of columns. It
// takes up to eight rows of the source through all panels, so that a row is read
// from end to end; the usual eight are unrolled.
func packCols(width int) {
	begin(fmt.Sprintf("packCols%dVec", width), "func(panels, k int, dst, src *float32, lds, stride int)",
		fmt.Sprintf("packCols%dVec copies k rows of src, lds apart, to panels of %d columns, stride apart in dst. panels and k are above 0.", width, width))
	panels, k, dst, src := param("panels"), param("k"), param("dst"), param("src")
	lds, stride := param("lds"), param("stride")
	SHLQ(Imm(2), lds)
	SHLQ(Imm(2), stride)
	// move copies a row of a panel: exactly width floats.
	move := func(from, to Mem) {
		at := func(m Mem, floats int) Mem {
			m.Disp += 4 * floats
			return m
		}
		done := 0
		for ; done+8 <= width; done += 8 {
			v := YMM()
			VMOVUPS(at(from, done), v)
			VMOVUPS(v, at(to, done))
		}
		for ; done+4 <= width; done += 4 {
			v := XMM()
			VMOVUPS(at(from, done), v)
			VMOVUPS(v, at(to, done))
		}
		for ; done < width; done += 2 {
			v := GP64()
			MOVQ(at(from, done), v)
			MOVQ(v, at(to, done))
		}
	}
	CMPQ(k, Imm(8))
	JNE(LabelRef("rows"))
	row := strides(src, lds, 8)
	Label("loop8")
	for r := range 8 {
		move(row.at(r), Mem{Base: dst, Disp: 4 * width * r})
	}
	row.advance(4 * width)
	ADDQ(stride, dst)
	DECQ(panels)
	JNE(LabelRef("loop8"))
	end()
	Label("rows")
	from, to, left := GP64(), GP64(), GP64()
	MOVQ(src, from)
	MOVQ(dst, to)
	MOVQ(k, left)
	Label("row")
	move(Mem{Base: from}, Mem{Base: to})
	ADDQ(lds, from)
	ADDQ(I32(int32(4*width)), to)
	DECQ(left)
	JNE(LabelRef("row"))
	ADDQ(I32(int32(4*width)), src)
	ADDQ(stride, dst)
	DECQ(panels)
	JNE(LabelRef("rows"))
	end()
}

// fmaPeak keeps twelve independent chains busy: two units times a latency of
// four or five cycles need at least ten.
func fmaPeak(t *tileKernel, name string) {
	lanes := t.bytes / 4
	begin(name, "func(n int, xy *float32)",
		fmt.Sprintf("%s runs 24*n fused multiply-adds of %d lanes; xy holds the two factors and %d floats receive the sum.", name, lanes, lanes))
	n, xy := param("n"), param("xy")
	factors, acc := t.registers(2), t.registers(12)
	VBROADCASTSS(Mem{Base: xy}, factors[0])
	VBROADCASTSS(Mem{Base: xy, Disp: 4}, factors[1])
	for _, v := range acc {
		t.zero(v)
	}
	Label("loop")
	for range 2 {
		for _, v := range acc {
			VFMADD231PS(factors[0], factors[1], v)
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
