package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// source is how the packers of bfloat16 pairs find their operand.
type source struct {
	suffix string // of the function names, before 512Vec
	ctype  string
	shift  uint64 // log2 of the bytes of an element
}

var sources = []source{{"F", "*float32", 2}, {"H", "*uint16", 1}}

func (s source) bytes(elements int) int { return elements << s.shift }

// form is what a packed word holds: two terms or one, as asm.Tiles16.Words says.
type form struct {
	name  string // of the packers, before Rows and Cols
	what  string
	terms int
}

var (
	inPairs = form{"pack", "pairs of bfloat16", 2}
	widened = form{"widen", "float32 values rounded to bfloat16", 1}
)

// rounding512 is rounding for sixteen lanes, on numbered registers. It leaves the
// result in the upper halves of the lanes.
type rounding512 struct{ one, half, quiet, upper VecPhysical }

var round512 = rounding512{zmm(28), zmm(29), zmm(30), zmm(31)}

// load sets the constants up.
func (c *rounding512) load() {
	for _, v := range []struct {
		name string
		bits uint32
		z    VecPhysical
	}{{"bf16one", 1, c.one}, {"bf16half", 0x7fff, c.half}, {"bf16quiet512", 0x400000, c.quiet}, {"bf16upper", 0xffff0000, c.upper}} {
		VPBROADCASTD(wide(v.name, v.bits), v.z)
	}
}

// round leaves x, rounded, in t, over lower halves of any value; see rounding.round.
func (c *rounding512) round(x, t VecPhysical) {
	VPSRLD(Imm(16), x, t)
	VPANDD(c.one, t, t)
	VPADDD(c.half, t, t)
	VCMPPS(Imm(unordered), x, x, K1)
	VPADDD(x, t, t)
	VPORD(c.quiet, x, K1, t)
}

// store12 stores the low twelve lanes of z, and nothing else: what a longer store
// would write is another panel's.
func store12(z VecPhysical, to Mem) {
	VMOVDQU(z.AsY(), to)
	to.Disp += 32
	VEXTRACTI32X4(Imm(2), z, to)
}

// transpose16 transposes 16x16 words in registers 0 to 15, of which the first live
// hold rows and the others anything. Register i receives column i.
func transpose16(live int) {
	for a := 0; a < 16; a += 4 {
		for q := max(a, live); q < a+4; q++ {
			VPXORD(zmm(q), zmm(q), zmm(q))
		}
		if a >= live {
			continue
		}
		t := 16 + a
		VPUNPCKLDQ(zmm(a+1), zmm(a), zmm(t))
		VPUNPCKHDQ(zmm(a+1), zmm(a), zmm(t+1))
		VPUNPCKLDQ(zmm(a+3), zmm(a+2), zmm(t+2))
		VPUNPCKHDQ(zmm(a+3), zmm(a+2), zmm(t+3))
		VPUNPCKLQDQ(zmm(t+2), zmm(t), zmm(a))
		VPUNPCKHQDQ(zmm(t+2), zmm(t), zmm(a+1))
		VPUNPCKLQDQ(zmm(t+3), zmm(t+1), zmm(a+2))
		VPUNPCKHQDQ(zmm(t+3), zmm(t+1), zmm(a+3))
	}
	// Now register 4g+c holds, in its four quarters q, rows 4g to 4g+3 of column 4q+c.
	const even, odd = 0x88, 0xdd
	for c := range 4 {
		VSHUFI32X4(Imm(even), zmm(4+c), zmm(c), zmm(16+c))
		VSHUFI32X4(Imm(odd), zmm(4+c), zmm(c), zmm(20+c))
		VSHUFI32X4(Imm(even), zmm(12+c), zmm(8+c), zmm(24+c))
		VSHUFI32X4(Imm(odd), zmm(12+c), zmm(8+c), zmm(28+c))
	}
	for c := range 4 {
		VSHUFI32X4(Imm(even), zmm(24+c), zmm(16+c), zmm(c))
		VSHUFI32X4(Imm(odd), zmm(24+c), zmm(16+c), zmm(8+c))
		VSHUFI32X4(Imm(even), zmm(28+c), zmm(20+c), zmm(4+c))
		VSHUFI32X4(Imm(odd), zmm(28+c), zmm(20+c), zmm(12+c))
	}
}

// packRows16 emits the transposing packer of a panel of 12 or 32 rows.
func packRows16(rows int, s source, f form) {
	name := fmt.Sprintf("%sRows%d%s512Vec", f.name, rows, s.suffix)
	begin(name, fmt.Sprintf("func(n int, dst *uint32, src %s, lds int)", s.ctype),
		fmt.Sprintf("%s packs %d*n columns of %d rows of src, lds apart, as %s, word after word. n is above 0.", name, 16*f.terms, rows, f.what))
	n, dst, src, lds := param("n"), param("dst"), param("src"), param("lds")
	SHLQ(Imm(s.shift), lds)
	row := strides(src, lds, rows)
	Label("loop")
	for g := 0; g < rows; g += 16 {
		live := min(16, rows-g)
		if s.shift == 2 {
			round512.load() // the transposition takes all registers
		}
		for i := range live {
			loadWords(row.at(g+i), i, s, f)
		}
		transpose16(live)
		for i := range 16 {
			word := i
			if s.shift == 2 && f == inPairs {
				// VPACKUSDW leaves pairs 2q, 2q+1, 8+2q and 9+2q in quarter q.
				word = i/4*2 + i%2 + i/2%2*8
			}
			to := Mem{Base: dst, Disp: 4 * (word*rows + g)}
			if rows == 12 {
				store12(zmm(i), to)
			} else {
				VMOVDQU32(zmm(i), to)
			}
		}
	}
	row.advance(s.bytes(16 * f.terms))
	ADDQ(I32(int32(16*rows*4)), dst)
	DECQ(n)
	JNE(LabelRef("loop"))
	end()
}

// loadWords loads sixteen words of a row into register i below 16, with the help of
// registers 16 to 27.
func loadWords(at Mem, i int, s source, f form) {
	t := 16 + 4*(i%3)
	switch {
	case s.shift == 1 && f == inPairs:
		VMOVDQU32(at, zmm(i))
	case s.shift == 1:
		VPMOVZXWD(at, zmm(i))
		VPSLLD(Imm(16), zmm(i), zmm(i))
	case f == inPairs:
		for half := range 2 {
			VMOVUPS(at, zmm(t+half))
			round512.round(zmm(t+half), zmm(t+2+half))
			VPSRLD(Imm(16), zmm(t+2+half), zmm(t+2+half))
			at.Disp += 64
		}
		VPACKUSDW(zmm(t+3), zmm(t+2), zmm(i))
	default:
		VMOVUPS(at, zmm(t))
		round512.round(zmm(t), zmm(i))
		VPANDD(round512.upper, zmm(i), zmm(i))
	}
}

// columns is a way through columns as stored: panels of 12 or 32 columns, of which
// the last may have fewer, or four panels of 12 at a time, which three vectors hold.
type columns struct {
	suffix string
	width  int // columns a time
	tile   int // columns of a panel
	part   bool
	doc    string
}

var columnWays = []columns{
	{"12", 12, 12, true, "a panel of 12 columns, of which live exist, the others 0"},
	{"32", 32, 32, false, "panels of 32 columns, stride apart in dst"},
	{"32Part", 32, 32, true, "a panel of 32 columns, of which live exist, the others 0"},
	{"48", 48, 12, false, "groups of four panels of 12 columns, panels stride apart in dst"},
}

// packCols16 emits the packer for columns as stored: rows or pairs of rows through
// all panels.
func packCols16(way columns, s source, f form) {
	width := way.width
	name := fmt.Sprintf("%sCols%s%s512Vec", f.name, way.suffix, s.suffix)
	signature := "func(panels, words int, dst *uint32, src %s, lds, stride int)"
	if way.part {
		signature = "func(live, words int, dst *uint32, src %s, lds int)"
	}
	begin(name, fmt.Sprintf(signature, s.ctype),
		fmt.Sprintf("%s packs %d*words rows of src, lds apart, to %s, as %s. Counts are above 0.", name, f.terms, way.doc, f.what))
	words, dst, src, lds := param("words"), param("dst"), param("src"), param("lds")
	var panels, stride GPVirtual
	SHLQ(Imm(s.shift), lds)
	if way.part {
		liveMasks()
	} else {
		panels, stride = param("panels"), param("stride")
		SHLQ(Imm(2), stride)
	}
	if s.shift == 2 {
		high := GP32()
		MOVL(U32(0xaaaaaaaa), high) // the upper halves of words
		KMOVD(high, K2)
		round512.load()
	}
	from, to, left := GP64(), GP64(), GP64()
	Label("panel")
	MOVQ(src, from)
	MOVQ(dst, to)
	MOVQ(words, left)
	Label("word")
	for v := range (width + 15) / 16 {
		columnWords(Mem{Base: from, Disp: s.bytes(16 * v)}, lds, v, way.part, s, f)
	}
	switch width {
	case 12:
		store12(zmm(0), Mem{Base: to})
	case 32:
		VMOVDQU32(zmm(0), Mem{Base: to})
		VMOVDQU32(zmm(1), Mem{Base: to, Disp: 64})
	case 48:
		VALIGND(Imm(12), zmm(0), zmm(1), zmm(3))
		VALIGND(Imm(8), zmm(1), zmm(2), zmm(4))
		VALIGND(Imm(4), zmm(2), zmm(2), zmm(5))
		panel := GP64()
		MOVQ(to, panel)
		for i, z := range []int{0, 3, 4, 5} {
			store12(zmm(z), Mem{Base: panel})
			if i < 3 {
				ADDQ(stride, panel)
			}
		}
	}
	LEAQ(Mem{Base: from, Index: lds, Scale: uint8(f.terms)}, from)
	ADDQ(Imm(uint64(4*way.tile)), to)
	DECQ(left)
	JNE(LabelRef("word"))
	if way.part {
		end()
		return
	}
	ADDQ(I32(int32(s.bytes(width))), src)
	if width == 48 {
		LEAQ(Mem{Base: dst, Index: stride, Scale: 4}, dst)
	} else {
		ADDQ(stride, dst)
	}
	DECQ(panels)
	JNE(LabelRef("panel"))
	end()
}

// liveMasks sets K3 and K4 to the first live of 32 lanes.
func liveMasks() {
	live, ones := param("live"), GP64()
	MOVQ(live, RCX)
	MOVQ(U64(1), ones)
	SHLQ(CL, ones)
	DECQ(ones)
	KMOVD(ones.As32(), K3)
	KSHIFTRD(Imm(16), K3, K4)
}

// columnWords sets register v to the words of up to sixteen columns at at, of all or
// of those in the mask.
func columnWords(at Mem, lds GPVirtual, v int, masked bool, s source, f form) {
	mask := [...]Register{K3, K4, nil}[v]
	load := func(from Mem, z VecPhysical) {
		switch {
		case s.shift == 2 && masked:
			VMOVUPS_Z(from, mask, z)
		case s.shift == 2:
			VMOVUPS(from, z)
		case masked:
			VPMOVZXWD_Z(from, mask, z)
		default:
			VPMOVZXWD(from, z)
		}
	}
	first, second := zmm(v), zmm(8+v)
	load(at, first)
	switch {
	case f == widened && s.shift == 2:
		round512.round(first, second)
		VPANDD(round512.upper, second, first)
	case f == widened:
		VPSLLD(Imm(16), first, first)
	case s.shift == 2:
		at.Index, at.Scale = lds, 1
		load(at, second)
		round512.round(first, zmm(16+v))
		round512.round(second, zmm(20+v))
		VPSRLD(Imm(16), zmm(16+v), first)
		VMOVDQU16(zmm(20+v), K2, first)
	default:
		at.Index, at.Scale = lds, 1
		load(at, second)
		VPSLLD(Imm(16), second, second)
		VPORD(second, first, first)
	}
}
