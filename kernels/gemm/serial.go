package gemm

import "refrain/kernels/asm"

// Serial multiplies on the calling goroutine with buffers of its own. It is not
// safe for concurrent use: make one for each worker.
type Serial struct {
	size    blocking
	tiles   asm.Tiles
	tiles16 asm.Tiles16
	work    workspace
	b       []float32
}

// NewSerial makes a Serial with buffers from the allocator of s.
func NewSerial(s *Scratch) *Serial {
	return &Serial{size: s.size, tiles: s.tiles, tiles16: asm.BestTiles16(), work: s.newWorkspace(), b: aligned(s.alloc, s.size.kc*s.size.nc)}
}

// Gemm sets C[m,n] = op(A)*op(B), plus the old C when accumulate is set. op is
// the transpose when transA or transB is set: A is stored as [m,k] or [k,m], B as
// [k,n] or [n,k], row-major with lda, ldb and ldc floats between rows. C must not
// overlap A or B. Gemm panics when the strides or the slices are too short, and
// allocates nothing.
func (s *Serial) Gemm(transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int) {
	p := product{tiles: s.tiles, transA: transA, transB: transB, accumulate: accumulate, m: m, n: n, k: k, lda: lda, ldb: ldb, ldc: ldc}
	p.checkShape()
	p.checkOperands(a, b, c)
	if !p.trivial(c) {
		p.serial(s.size, &s.work, s.b, a, b, c)
	}
}

// serial runs the whole product with the buffers of one worker.
func (p *product) serial(size blocking, w *workspace, pb, a, b, c []float32) {
	depth, height := size.depth(p.k), size.rows(p.m, 1, p.tiles.Rows())
	for jc := 0; jc < p.n; jc += size.nc {
		n := min(size.nc, p.n-jc)
		for pc := 0; pc < p.k; pc += depth {
			k := min(depth, p.k-pc)
			p.packB(pb, b, jc, n, pc, k, 0, ceil(n, p.tiles.Cols()))
			for i := 0; i < p.m; i += height {
				m := min(height, p.m-i)
				if p.direct(p.n) {
					p.multiplyDirect(w, a, pb, c, i, m, pc, jc, n, k, p.accumulate || pc > 0)
					continue
				}
				p.packA(w.a, a, i, m, pc, k)
				p.multiply(w, w.a, pb, c, i, m, jc, n, k, p.accumulate || pc > 0)
			}
		}
	}
}
