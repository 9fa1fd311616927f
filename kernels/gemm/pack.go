package gemm

import "refrain/kernels/asm"

// packA packs rows [i, i+m) and columns [pc, pc+k) of op(A) into panels of
// asm.MR rows. A panel that sticks out is filled with zeros.
func (p *product) packA(dst, a []float32, i, m, pc, k int) {
	full := m / asm.MR * asm.MR
	if p.transA {
		asm.PackCols6(dst, a[pc*p.lda+i:], p.lda, full/asm.MR, k)
	} else {
		for r := 0; r < full; r += asm.MR {
			asm.PackRows6(dst[r*k:], a[(i+r)*p.lda+pc:], p.lda, k)
		}
	}
	if rest := m - full; rest > 0 {
		if p.transA {
			packPart(dst[full*k:], a[pc*p.lda+i+full:], p.lda, 1, asm.MR, rest, k)
		} else {
			packPart(dst[full*k:], a[(i+full)*p.lda+pc:], 1, p.lda, asm.MR, rest, k)
		}
	}
}

// packB packs panels [from, to) of the block of op(B) with rows [pc, pc+k) and
// columns [jc, jc+n). Panel q has asm.NR columns from jc+q*asm.NR on.
func (p *product) packB(dst, b []float32, jc, n, pc, k, from, to int) {
	full := min(to, n/asm.NR)
	if p.transB {
		for q := from; q < full; q++ {
			asm.PackRows16(dst[q*asm.NR*k:], b[(jc+q*asm.NR)*p.ldb+pc:], p.ldb, k)
		}
	} else if full > from {
		asm.PackCols16(dst[from*asm.NR*k:], b[pc*p.ldb+jc+from*asm.NR:], p.ldb, full-from, k)
	}
	if to > full {
		j := full * asm.NR
		if p.transB {
			packPart(dst[j*k:], b[(jc+j)*p.ldb+pc:], 1, p.ldb, asm.NR, n-j, k)
		} else {
			packPart(dst[j*k:], b[pc*p.ldb+jc+j:], p.ldb, 1, asm.NR, n-j, k)
		}
	}
}

// packPart packs a panel of width lines of which only the first exist lines are
// there: element (line, kk) lies at src[kk*stepK+line*stepLine].
func packPart(dst, src []float32, stepK, stepLine, width, exist, k int) {
	for kk := range k {
		d := dst[kk*width : (kk+1)*width]
		at := kk * stepK
		for line := range exist {
			d[line] = src[at]
			at += stepLine
		}
		clear(d[exist:])
	}
}

// multiply sets the part of C with rows [i, i+m) and columns [j, j+n) from packed
// blocks of depth k; pb points at the panel of column j.
func (p *product) multiply(w *workspace, pa, pb, c []float32, i, m, j, n, k int, accumulate bool) {
	for jj := 0; jj < n; jj += asm.NR {
		nr := min(asm.NR, n-jj)
		panel := pb[jj*k : (jj+asm.NR)*k]
		for ii := 0; ii < m; ii += asm.MR {
			mr := min(asm.MR, m-ii)
			dst := c[(i+ii)*p.ldc+j+jj:]
			if mr == asm.MR && nr == asm.NR {
				asm.Tile(k, pa[ii*k:], panel, dst, p.ldc, accumulate)
				continue
			}
			asm.Tile(k, pa[ii*k:], panel, w.tile, asm.NR, false)
			copyTile(dst, w.tile, p.ldc, mr, nr, accumulate)
		}
	}
}

// copyTile moves the part of a tile that lies in C.
func copyTile(dst, tile []float32, ldc, rows, cols int, accumulate bool) {
	for r := range rows {
		to, from := dst[r*ldc:r*ldc+cols], tile[r*asm.NR:r*asm.NR+cols]
		if !accumulate {
			copy(to, from)
			continue
		}
		for i, v := range from {
			to[i] += v
		}
	}
}
