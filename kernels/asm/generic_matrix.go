package asm

// tileGeneric splits the tile into blocks of 2 x 4, whose eight accumulators the
// compiler keeps in registers; larger blocks were slower.
//
// Element (i, kk) of the left operand is a[i*stepRow+kk*stepCol].
func tileGeneric(rows, cols, k int, a []float32, stepRow, stepCol int, b, c []float32, ldc int, accumulate bool) {
	for i := 0; i < rows; i += 2 {
		for j := 0; j < cols; j += 4 {
			blockGeneric(cols, k, a[min(i*stepRow, len(a)):], stepRow, stepCol, b[min(j, len(b)):], c[i*ldc+j:], ldc, accumulate)
		}
	}
}

func blockGeneric(cols, k int, a []float32, stepRow, stepCol int, b, c []float32, ldc int, accumulate bool) {
	var c00, c01, c02, c03, c10, c11, c12, c13 float32
	for kk := range k {
		y := b[kk*cols : kk*cols+4]
		a0, a1 := a[kk*stepCol], a[kk*stepCol+stepRow]
		b0, b1, b2, b3 := y[0], y[1], y[2], y[3]
		c00 += float32(a0 * b0)
		c01 += float32(a0 * b1)
		c02 += float32(a0 * b2)
		c03 += float32(a0 * b3)
		c10 += float32(a1 * b0)
		c11 += float32(a1 * b1)
		c12 += float32(a1 * b2)
		c13 += float32(a1 * b3)
	}
	top, bottom := c[:4], c[ldc:ldc+4]
	if accumulate {
		c00, c01, c02, c03 = c00+top[0], c01+top[1], c02+top[2], c03+top[3]
		c10, c11, c12, c13 = c10+bottom[0], c11+bottom[1], c12+bottom[2], c13+bottom[3]
	}
	top[0], top[1], top[2], top[3] = c00, c01, c02, c03
	bottom[0], bottom[1], bottom[2], bottom[3] = c10, c11, c12, c13
}

// packRowsGeneric packs columns [from, k) of rows rows of src.
func packRowsGeneric(dst, src []float32, lds, rows, from, k int) {
	for i := range rows {
		for kk, v := range src[i*lds+from : i*lds+k] {
			dst[(from+kk)*rows+i] = v
		}
	}
}

// packColsGeneric packs k rows of src into panels of cols columns, stride apart.
func packColsGeneric(dst, src []float32, lds, cols, panels, k, stride int) {
	for kk := range k {
		row := src[kk*lds : kk*lds+panels*cols]
		for q := range panels {
			copy(dst[q*stride+kk*cols:q*stride+(kk+1)*cols], row[q*cols:])
		}
	}
}

// fmaPeakGeneric uses eight independent chains of scalar multiply-adds.
func fmaPeakGeneric(n int) (flops int) {
	var s [8]float32
	x, y := float32(0.999), float32(0.001)
	for range 3 * n {
		for i := range s {
			s[i] += float32(x * y)
		}
		x += s[0] * 1e-30 // the products must not be constants
	}
	if s[0] != s[7] {
		panic("asm: FMAPeak: chains differ")
	}
	return 3 * n * 8 * 2
}
