package asm

// The packers of widened operands round and widen a piece at a time, which stays in
// the L1 cache, and leave the order to the packers of float32 operands.

const (
	wideDepth = 64  // terms of a line at a time
	wideRows  = 8   // rows at a time; packCols*Vec are at their best with eight
	wideLines = 128 // lines at a time
)

// widen sets dst to elements of o from i on, rounded to bfloat16.
func (o Operand) widen(dst []float32, i int) {
	if o.wide == nil {
		FromBF16(dst, o.half[i:i+len(dst)])
		return
	}
	var tmp [wideLines]uint16
	h := tmp[:len(dst)]
	ToBF16(h, o.wide[i:i+len(dst)])
	FromBF16(dst, h)
}

// packRowsWide packs lines [first, lines) of src into panels of width, from column
// from on, with first a multiple of width.
func packRowsWide(dst []float32, width int, src Operand, lds, first, lines, from, k int) {
	var tmp [32 * wideDepth]float32
	words := (k + 1) &^ 1
	for l := first; l < lines; l += width {
		panel := dst[l*words : (l+width)*words]
		n := min(width, lines-l)
		clear(tmp[n*wideDepth:])
		for kk := from; kk < k; kk += wideDepth {
			span := min(wideDepth, k-kk)
			for i := range n {
				src.widen(tmp[i*wideDepth:i*wideDepth+span], (l+i)*lds+kk)
			}
			d := panel[kk*width:]
			blocks := span / 8
			if len(d) < 8*blocks*width+PackSlack {
				blocks-- // packRows6Vec writes past the end
			}
			if blocks > 0 {
				packRowsVec(width, blocks, d, tmp[:], wideDepth)
			}
			packRowsGeneric(d, tmp[:], wideDepth, width, 8*max(blocks, 0), span)
		}
		clear(panel[k*width:])
	}
}

// packColsWide packs lines columns of src into panels of width.
func packColsWide(dst []float32, width int, src Operand, lds, lines, k int) {
	var tmp [wideRows * wideLines]float32
	words := (k + 1) &^ 1
	group := wideLines / width * width
	for kk := 0; kk < k; kk += wideRows {
		rows := min(wideRows, k-kk)
		for l := 0; l < lines; l += group {
			n := min(group, lines-l)
			panels := (n + width - 1) / width
			for r := range rows {
				row := tmp[r*wideLines:][:panels*width]
				src.widen(row[:n], (kk+r)*lds+l)
				clear(row[n:])
			}
			packColsVec(width, panels, rows, dst[l*words+kk*width:], tmp[:], wideLines, width*words)
		}
	}
	if k < words {
		for l := 0; l < lines; l += width {
			clear(dst[(l/width*words+k)*width:][:width])
		}
	}
}

// widenRows is packRowsWide with AVX-512, which leaves to it what does not fill
// panels and blocks of 16 columns.
func widenRows(dst []uint32, width int, src Operand, lds, lines, k int) {
	words, full, done := (k+1)&^1, lines/width*width, k&^15
	if done > 0 {
		for l := 0; l < full; l += width {
			d, s := &dst[l*words], src.From(l*lds)
			switch {
			case width == 12 && s.wide != nil:
				widenRows12F512Vec(done/16, d, &s.wide[0], lds)
			case width == 12:
				widenRows12H512Vec(done/16, d, &s.half[0], lds)
			case s.wide != nil:
				widenRows32F512Vec(done/16, d, &s.wide[0], lds)
			default:
				widenRows32H512Vec(done/16, d, &s.half[0], lds)
			}
		}
	}
	if done < k {
		packRowsWide(asFloats(dst), width, src, lds, 0, full, done, k)
	}
	packRowsWide(asFloats(dst), width, src, lds, full, lines, 0, k)
}

// widenCols is packColsWide with AVX-512.
func widenCols(dst []uint32, width int, src Operand, lds, lines, k int) {
	words := (k + 1) &^ 1
	wideColumns.packColumns(dst, width, src, lds, lines, 1, words, k)
	for l := 0; l < lines && k < words; l += width {
		clear(dst[(l/width*words+k)*width:][:width])
	}
}

var wideColumns = columnPackers{
	fours: func(n, words int, dst []uint32, src Operand, lds, stride int) {
		if src.wide != nil {
			widenCols48F512Vec(n, words, &dst[0], &src.wide[0], lds, stride)
		} else {
			widenCols48H512Vec(n, words, &dst[0], &src.half[0], lds, stride)
		}
	},
	panels: func(n, words int, dst []uint32, src Operand, lds, stride int) {
		if src.wide != nil {
			widenCols32F512Vec(n, words, &dst[0], &src.wide[0], lds, stride)
		} else {
			widenCols32H512Vec(n, words, &dst[0], &src.half[0], lds, stride)
		}
	},
	part: func(width, live, words int, dst []uint32, src Operand, lds int) {
		switch d := &dst[0]; {
		case width == 12 && src.wide != nil:
			widenCols12F512Vec(live, words, d, &src.wide[0], lds)
		case width == 12:
			widenCols12H512Vec(live, words, d, &src.half[0], lds)
		case src.wide != nil:
			widenCols32PartF512Vec(live, words, d, &src.wide[0], lds)
		default:
			widenCols32PartH512Vec(live, words, d, &src.half[0], lds)
		}
	},
}

// packRowsVec packs 8*blocks columns of width rows.
func packRowsVec(width, blocks int, dst, src []float32, lds int) {
	switch width {
	case 6:
		packRows6Vec(blocks, &dst[0], &src[0], lds)
	case 12:
		packRows12Vec(blocks, &dst[0], &src[0], lds)
	case 16:
		packRows16Vec(blocks, &dst[0], &src[0], lds)
	case 32:
		packRows32Vec(blocks, &dst[0], &src[0], lds)
	}
}

// packColsVec packs k rows into panels of width columns.
func packColsVec(width, panels, k int, dst, src []float32, lds, stride int) {
	switch width {
	case 6:
		packCols6Vec(panels, k, &dst[0], &src[0], lds, stride)
	case 12:
		packCols12Vec(panels, k, &dst[0], &src[0], lds, stride)
	case 16:
		packCols16Vec(panels, k, &dst[0], &src[0], lds, stride)
	case 32:
		packCols32Vec(panels, k, &dst[0], &src[0], lds, stride)
	}
}
