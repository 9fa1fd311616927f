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

// packRowsWide packs lines rows of src into panels of width.
func packRowsWide(dst []float32, width int, src Operand, lds, lines, k int) {
	var tmp [32 * wideDepth]float32
	words := (k + 1) &^ 1
	for l := 0; l < lines; l += width {
		panel := dst[l*words : (l+width)*words]
		n := min(width, lines-l)
		clear(tmp[n*wideDepth:])
		for kk := 0; kk < k; kk += wideDepth {
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
			packRowsGeneric(d, tmp[:], wideDepth, width, 8*blocks, span)
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
