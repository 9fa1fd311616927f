package gemm

// packA packs rows [i, i+m) and columns [pc, pc+k) of op(A) into panels as high as
// a tile. A panel that sticks out is filled with zeros.
func (p *product) packA(dst, a []float32, i, m, pc, k int) {
	mr := p.tiles.Rows()
	full := m / mr * mr
	if p.transA {
		p.tiles.PackColsA(dst, a[pc*p.lda+i:], p.lda, full/mr, k)
	} else {
		for r := 0; r < full; r += mr {
			p.tiles.PackRowsA(dst[r*k:], a[(i+r)*p.lda+pc:], p.lda, k)
		}
	}
	if rest := m - full; rest > 0 {
		if p.transA {
			packPart(dst[full*k:], a[pc*p.lda+i+full:], p.lda, 1, mr, rest, k)
		} else {
			packPart(dst[full*k:], a[(i+full)*p.lda+pc:], 1, p.lda, mr, rest, k)
		}
	}
}

// packB packs panels [from, to) of the block of op(B) with rows [pc, pc+k) and
// columns [jc, jc+n). Panel q has the columns of a tile, from jc+q*Cols() on.
func (p *product) packB(dst, b []float32, jc, n, pc, k, from, to int) {
	nr := p.tiles.Cols()
	full := min(to, n/nr)
	if p.transB {
		for q := from; q < full; q++ {
			p.tiles.PackRowsB(dst[q*nr*k:], b[(jc+q*nr)*p.ldb+pc:], p.ldb, k)
		}
	} else if full > from {
		p.tiles.PackColsB(dst[from*nr*k:], b[pc*p.ldb+jc+from*nr:], p.ldb, full-from, k)
	}
	if to > full {
		j := full * nr
		if p.transB {
			packPart(dst[j*k:], b[(jc+j)*p.ldb+pc:], 1, p.ldb, nr, n-j, k)
		} else {
			packPart(dst[j*k:], b[pc*p.ldb+jc+j:], p.ldb, 1, nr, n-j, k)
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
	tileRows, tileCols := p.tiles.Rows(), p.tiles.Cols()
	for jj := 0; jj < n; jj += tileCols {
		nr := min(tileCols, n-jj)
		panel := pb[jj*k : (jj+tileCols)*k]
		for ii := 0; ii < m; ii += tileRows {
			mr := min(tileRows, m-ii)
			dst := c[(i+ii)*p.ldc+j+jj:]
			if mr == tileRows && nr == tileCols {
				p.tiles.Tile(k, pa[ii*k:], panel, dst, p.ldc, accumulate)
				continue
			}
			p.tiles.Tile(k, pa[ii*k:], panel, w.tile, tileCols, false)
			copyTile(dst, w.tile, p.ldc, tileCols, mr, nr, accumulate)
		}
	}
}

// directColumns is the width of C up to which packing A gains nothing on one
// thread, with A in the caches as in attention. Measured on 96 rows with depth 512:
// reading A where it lies is 1.4 times as fast for 32 columns, 1.05 for 128, level
// from 256 on.
const directColumns = 128

// direct reports whether A should be read where it lies for n columns of C. Rows
// whose distance is a multiple of 4 KiB would compete for one set of the L1 cache.
func (p *product) direct(n int) bool {
	return n <= directColumns && (p.transA || p.lda%1024 != 0)
}

// multiplyDirect is multiply with A as stored, from column pc of op(A) on.
func (p *product) multiplyDirect(w *workspace, a, pb, c []float32, i, m, pc, j, n, k int, accumulate bool) {
	mr := p.tiles.Rows()
	full := m / mr * mr
	for jj := 0; jj < n; jj += p.tiles.Cols() {
		nr := min(p.tiles.Cols(), n-jj)
		panel := pb[jj*k : (jj+p.tiles.Cols())*k]
		for ii := i; ii < i+full; ii += mr {
			at := ii*p.lda + pc
			if p.transA {
				at = pc*p.lda + ii
			}
			dst := c[ii*p.ldc+j+jj:]
			if nr == p.tiles.Cols() {
				p.tiles.TileDirect(k, a[at:], p.lda, p.transA, panel, dst, p.ldc, accumulate)
				continue
			}
			p.tiles.TileDirect(k, a[at:], p.lda, p.transA, panel, w.tile, p.tiles.Cols(), false)
			copyTile(dst, w.tile, p.ldc, p.tiles.Cols(), mr, nr, accumulate)
		}
	}
	if full < m {
		p.packA(w.a, a, i+full, m-full, pc, k)
		p.multiply(w, w.a, pb, c, i+full, m-full, j, n, k, accumulate)
	}
}

// copyTile moves the part of a tile that lies in C.
func copyTile(dst, tile []float32, ldc, ldt, rows, cols int, accumulate bool) {
	for r := range rows {
		to, from := dst[r*ldc:r*ldc+cols], tile[r*ldt:r*ldt+cols]
		if !accumulate {
			copy(to, from)
			continue
		}
		for i, v := range from {
			to[i] += v
		}
	}
}
