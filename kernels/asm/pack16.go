package asm

// Operand is a factor of a bfloat16 product as stored: float32 values, which are
// rounded as by ToBF16 while they are packed, or bfloat16 values.
type Operand struct {
	wide []float32
	half []uint16
}

// Float32Operand is a matrix of float32 values.
func Float32Operand(x []float32) Operand { return Operand{wide: x} }

// BF16Operand is a matrix of bfloat16 values, given as their bits.
func BF16Operand(x []uint16) Operand { return Operand{half: x} }

// Len returns the number of elements.
func (o Operand) Len() int { return len(o.wide) + len(o.half) }

// From returns the operand from element i on.
func (o Operand) From(i int) Operand {
	if o.wide != nil {
		return Operand{wide: o.wide[i:]}
	}
	return Operand{half: o.half[i:]}
}

// PackA packs lines rows of a left operand, k deep, into panels of R = Rows():
//
//	dst[(q*W + w)*R + i] = word w of line q*R+i    with W = Words(k)
//
// for i < R and q < (lines+R-1)/R. Word w holds terms 2w and 2w+1, the first in
// its lower half, or term w as a float32, as the set needs it. Term kk of line l is
// src[l*lds+kk], or src[kk*lds+l] when trans is set, and +0 beyond lines and k. It
// panics when src or dst is too short.
func (t Tiles16) PackA(dst []uint32, src Operand, lds int, trans bool, lines, k int) {
	t.pack("PackA", dst, t.Rows(), src, lds, trans, lines, k)
}

// PackB packs lines columns of a right operand, k deep, into panels of Cols(); see
// PackA. trans is set where the operand is stored row after row, [k, lines].
func (t Tiles16) PackB(dst []uint32, src Operand, lds int, trans bool, lines, k int) {
	t.pack("PackB", dst, t.Cols(), src, lds, trans, lines, k)
}

func (t Tiles16) pack(name string, dst []uint32, width int, src Operand, lds int, trans bool, lines, k int) {
	room := (lines + width - 1) / width * width * t.Words(k)
	rows, cols := lines, k
	if trans {
		rows, cols = k, lines
	}
	if k < 0 || lines < 0 {
		badPack(name, len(dst), room, src.Len(), lds, rows, cols)
	}
	checkPack(name, len(dst), room, src.Len(), lds, rows, cols)
	switch {
	case lines == 0 || k == 0:
	case t.code == avx512Tile12x32 && trans:
		widenCols(dst, width, src, lds, lines, k)
	case t.code == avx512Tile12x32:
		widenRows(dst, width, src, lds, lines, k)
	case t.code == avx2Tile6x16 && trans:
		packColsWide(asFloats(dst), width, src, lds, lines, k)
	case t.code == avx2Tile6x16:
		packRowsWide(asFloats(dst), width, src, lds, 0, lines, 0, k)
	case t.code == bf16Tile12x32 && trans:
		packCols16(dst, width, src, lds, lines, k)
	case t.code == bf16Tile12x32:
		packRows16(dst, width, src, lds, lines, k)
	case trans:
		packCols16Generic(dst, width, src, lds, 0, lines, 0, k)
	default:
		packRows16Generic(dst, width, src, lds, 0, lines, 0, k)
	}
}

// packRows16 leaves to the plain packers what does not fill panels and blocks of
// 32 columns.
func packRows16(dst []uint32, width int, src Operand, lds, lines, k int) {
	k2, full, done := (k+1)/2, lines/width*width, k&^31
	if done > 0 {
		for l := 0; l < full; l += width {
			d, s := &dst[l*k2], src.From(l*lds)
			switch {
			case width == 12 && s.wide != nil:
				packRows12F512Vec(done/32, d, &s.wide[0], lds)
			case width == 12:
				packRows12H512Vec(done/32, d, &s.half[0], lds)
			case s.wide != nil:
				packRows32F512Vec(done/32, d, &s.wide[0], lds)
			default:
				packRows32H512Vec(done/32, d, &s.half[0], lds)
			}
		}
	}
	if done < k {
		packRows16Generic(dst, width, src, lds, 0, full, done, k)
	}
	packRows16Generic(dst, width, src, lds, full, lines, 0, k)
}

// columnPackers pack words rows or pairs of rows of src, lds apart.
type columnPackers struct {
	// fours and panels fill n groups of four panels of 12, or panels of 32, stride
	// apart in dst.
	fours, panels func(n, words int, dst []uint32, src Operand, lds, stride int)
	// part fills one panel of width, of which live columns exist.
	part func(width, live, words int, dst []uint32, src Operand, lds int)
}

// packColumns goes through all panels with a few rows at a time, see packGroup. rows
// is what a word takes of src, perLine the words of a line in dst, of which it packs
// the first words.
func (c *columnPackers) packColumns(dst []uint32, width int, src Operand, lds, lines, rows, perLine, words int) {
	for w := 0; w < words; w += packGroup {
		n := min(packGroup, words-w)
		s, l := src.From(rows*w*lds), 0
		switch {
		case width == 12 && lines >= 48:
			l = lines / 48 * 48
			c.fours(l/48, n, dst[w*width:], s, lds, width*perLine)
		case width == 32 && lines >= 32:
			l = lines / 32 * 32
			c.panels(l/32, n, dst[w*width:], s, lds, width*perLine)
		}
		for ; l < lines; l += width {
			c.part(width, min(width, lines-l), n, dst[l*perLine+w*width:], s.From(l), lds)
		}
	}
}

// packCols16 leaves to the plain packers the row that is no pair.
func packCols16(dst []uint32, width int, src Operand, lds, lines, k int) {
	pairColumns.packColumns(dst, width, src, lds, lines, 2, (k+1)/2, k/2)
	packCols16Generic(dst, width, src, lds, 0, lines, k&^1, k)
}

var pairColumns = columnPackers{
	fours: func(n, words int, dst []uint32, src Operand, lds, stride int) {
		if src.wide != nil {
			packCols48F512Vec(n, words, &dst[0], &src.wide[0], lds, stride)
		} else {
			packCols48H512Vec(n, words, &dst[0], &src.half[0], lds, stride)
		}
	},
	panels: func(n, words int, dst []uint32, src Operand, lds, stride int) {
		if src.wide != nil {
			packCols32F512Vec(n, words, &dst[0], &src.wide[0], lds, stride)
		} else {
			packCols32H512Vec(n, words, &dst[0], &src.half[0], lds, stride)
		}
	},
	part: func(width, live, words int, dst []uint32, src Operand, lds int) {
		switch d := &dst[0]; {
		case width == 12 && src.wide != nil:
			packCols12F512Vec(live, words, d, &src.wide[0], lds)
		case width == 12:
			packCols12H512Vec(live, words, d, &src.half[0], lds)
		case src.wide != nil:
			packCols32PartF512Vec(live, words, d, &src.wide[0], lds)
		default:
			packCols32PartH512Vec(live, words, d, &src.half[0], lds)
		}
	},
}

// line16 is how many elements the plain packers round at a time.
const line16 = 64

// bits returns n elements from i on as bfloat16 bits, in tmp where they have to be
// rounded.
func (o Operand) bits(tmp *[line16]uint16, i, n int) []uint16 {
	if o.wide == nil {
		return o.half[i : i+n]
	}
	ToBF16(tmp[:n], o.wide[i:i+n])
	return tmp[:n]
}

// packRows16Generic packs lines [first, lines) of src from column from on, which is
// even; first is a multiple of width.
func packRows16Generic(dst []uint32, width int, src Operand, lds, first, lines, from, k int) {
	var tmp [line16]uint16
	k2 := (k + 1) / 2
	for l := first; l < (lines+width-1)/width*width; l++ {
		at := l/width*width*k2 + from/2*width + l%width
		if l >= lines {
			for range k2 - from/2 {
				dst[at] = 0
				at += width
			}
			continue
		}
		for kk := from; kk < k; kk += line16 {
			v := src.bits(&tmp, l*lds+kk, min(line16, k-kk))
			for len(v) > 1 {
				dst[at] = uint32(v[0]) | uint32(v[1])<<16
				at += width
				v = v[2:]
			}
			if len(v) > 0 {
				dst[at] = uint32(v[0])
			}
		}
	}
}

// packCols16Generic packs columns [first, lines) of src from row from on, which is
// even; first is a multiple of width.
func packCols16Generic(dst []uint32, width int, src Operand, lds, first, lines, from, k int) {
	var lowTmp, highTmp [line16]uint16
	k2 := (k + 1) / 2
	for l := first; l < lines; l += width {
		n := min(width, lines-l)
		panel := dst[l*k2 : (l+width)*k2]
		for p := from / 2; p < k2; p++ {
			row := panel[p*width : (p+1)*width]
			low := src.bits(&lowTmp, 2*p*lds+l, n)
			if 2*p+1 < k {
				high := src.bits(&highTmp, (2*p+1)*lds+l, n)[:len(low)]
				for i, v := range low {
					row[i] = uint32(v) | uint32(high[i])<<16
				}
			} else {
				for i, v := range low {
					row[i] = uint32(v)
				}
			}
			clear(row[n:])
		}
	}
}
