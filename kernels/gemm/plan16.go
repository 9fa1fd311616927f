package gemm

import (
	"fmt"

	"refrain/internal/par"
	"refrain/kernels/asm"
)

// Plan16 is a product of one shape with bfloat16 operands and float32 sums, ready
// to run on all threads of a pool. A and B say how the operands are stored.
//
// It is not safe for concurrent use, and Plans of either kind that share a Scratch
// must not run at the same time. Its methods must not be called from the body of a
// region of the pool.
//
// Every element of C is summed as asm.Tiles16 says, over K in rising order, and the
// sum is added to the old value in parts of at most 512 terms, whose borders depend
// on K alone. So its bits depend on its row of op(A), its column of op(B) and the
// old value, and not on the processor, the number of threads, M, N, the strides, or
// whether Plan16 or Gemm16 computed it.
type Plan16[A, B Elem] struct{ plan16 }

// plan16 is the part that does not depend on the storage of the operands.
type plan16 struct {
	product16
	scratch *Scratch
	pool    *par.Pool
	inline  bool // small: runs on the caller
	depth   int
	height  int
	blocks  int              // of rows
	body    func(worker int) // p.work, bound once

	// The block under way, written between regions.
	a, b    asm.Operand
	c       []float32
	rounded []uint16 // C when it is bfloat16, and nil otherwise
	jc, cols,
	pc, span int
	chunks int  // of columns, to be packed
	adding bool // to C, from the second pass over k on or when accumulating

	shares
}

// NewPlan16 prepares C[m,n] = op(A)*op(B), plus the old C when accumulate is set.
// op is the transpose when transA or transB is set: A is stored as [m,k] or [k,m], B
// as [k,n] or [n,k], row-major with lda, ldb and ldc elements between rows. It
// panics when a dimension is negative, a stride is shorter than a row, or s has
// fewer workers than pool.
func NewPlan16[A, B Elem](s *Scratch, pool *par.Pool, transA, transB bool, m, n, k int, lda, ldb, ldc int, accumulate bool) *Plan16[A, B] {
	return newPlan16[A, B](s, asm.BestTiles16(), pool, transA, transB, m, n, k, lda, ldb, ldc, accumulate)
}

func newPlan16[A, B Elem](s *Scratch, tiles asm.Tiles16, pool *par.Pool, transA, transB bool, m, n, k int, lda, ldb, ldc int, accumulate bool) *Plan16[A, B] {
	p := &Plan16[A, B]{plan16{
		product16: product16{
			product: product{transA: transA, transB: transB, accumulate: accumulate, m: m, n: n, k: k, lda: lda, ldb: ldb, ldc: ldc},
			tiles16: tiles,
		},
		scratch: s, pool: pool,
	}}
	p.checkShape()
	if len(s.workers) < pool.Threads() {
		panic(fmt.Sprintf("gemm: NewPlan16: scratch for %d workers, pool of %d", len(s.workers), pool.Threads()))
	}
	p.body = p.work
	p.inline = pool.Threads() == 1 || 2*float64(m)*float64(n)*float64(k) < serialFLOPs16
	threads := pool.Threads()
	if p.inline {
		threads = 1
	}
	p.divide(threads)
	return p
}

// serialFLOPs16 is the size below which waking the pool costs more than it gains.
const serialFLOPs16 = 2 * serialFLOPs

// divide lays out the blocks for that many workers.
func (p *plan16) divide(threads int) {
	if p.m == 0 || p.n == 0 || p.k == 0 {
		return
	}
	size := &p.scratch.size
	p.depth, p.height = size.depth16(p.k), size.rows(p.m, threads, p.tiles16.Rows())
	p.blocks = ceil(p.m, p.height)
	p.taken = make([]counter, p.blocks)
}

// Run multiplies. It returns when C is complete, keeps none of the slices and
// allocates nothing. C must not overlap A or B. It panics when a slice is shorter
// than its matrix.
func (p *Plan16[A, B]) Run(a []A, b []B, c []float32) {
	p.checkOperands16(len(a), len(b), len(c))
	if p.trivial(c) {
		return
	}
	p.a, p.b, p.c = operand(a), operand(b), c
	p.run(p.scratch.size.nc, p.depth)
}

// RunRounded is Run with a C of bfloat16: every element is summed in float32 and
// rounded once, as by asm.ToBF16. It panics when the plan accumulates. The first
// calls for a k above 4096 may ask the allocator of the Scratch for more room.
func (p *Plan16[A, B]) RunRounded(a []A, b []B, c []uint16) {
	if p.accumulate {
		panic("gemm: RunRounded: the plan adds to C, which only a float32 C can take")
	}
	p.checkOperands16(len(a), len(b), len(c))
	if p.m == 0 || p.n == 0 {
		return
	}
	if p.k == 0 {
		for i := range p.m {
			clear(c[i*p.ldc : i*p.ldc+p.n])
		}
		return
	}
	p.a, p.b, p.rounded = operand(a), operand(b), c
	p.run(p.wholeColumns(), p.k)
}

// wholeColumns returns for how many columns B is packed through all of k, as sums
// stay with a worker until they are complete: as many as there is room for, and a
// chunk at least, for which a worker has to pack A.
func (p *plan16) wholeColumns() int {
	s, tile := p.scratch, p.tiles16.Cols()
	words := p.tiles16.Words(p.k)
	least := min(mulColumns, ceil(p.n, tile)*tile)
	if len(s.b) < least*words {
		s.b = aligned(s.alloc, least*words)
	}
	return min(len(s.b)/words/tile*tile, s.size.nc)
}

// run goes through C in strips of columns and through k in steps, one region of the
// pool each.
func (p *plan16) run(columns, step int) {
	for p.jc = 0; p.jc < p.n; p.jc += columns {
		p.cols = min(columns, p.n-p.jc)
		p.chunks = ceil(p.cols, packColumns)
		for p.pc = 0; p.pc < p.k; p.pc += step {
			p.span = min(step, p.k-p.pc)
			p.adding = p.accumulate || p.pc > 0
			p.reset()
			if p.inline {
				p.work(0)
			} else {
				p.pool.Run(p.body)
			}
		}
	}
	p.a, p.b, p.c, p.rounded = asm.Operand{}, asm.Operand{}, nil, nil
}

// work is one worker's share of a block: pack B with the others, then multiply row
// blocks, its own first and after that what is left of the others'.
func (p *plan16) work(worker int) {
	for {
		chunk := int(p.next.Add(1)) - 1
		if chunk >= p.chunks {
			break
		}
		p.packChunk(chunk * packColumns)
		p.ready.Add(1)
	}
	if !p.await(p.pool, p.chunks) {
		return
	}
	w := &p.scratch.workers[worker]
	for block, ok := p.rows(p.blocks); ok; block, ok = p.rows(p.blocks) {
		p.rowBlock(w, block)
	}
	for block := range p.blocks {
		p.rowBlock(w, block)
	}
}

// packed returns the packed panels of the pass that starts d deep in the block, k
// deep, from column j on. Passes follow each other, each as wide as the block.
func (p *plan16) packed(d, k, j int) []float32 {
	t := p.tiles16
	width := ceil(p.cols, t.Cols()) * t.Cols()
	return p.scratch.b[t.Words(d)*width+j*t.Words(k):]
}

// packChunk packs up to packColumns columns of B from column j of the block on,
// for every pass.
func (p *plan16) packChunk(j int) {
	n := min(packColumns, p.cols-j)
	for d := 0; d < p.span; d += p.depth {
		k := min(p.depth, p.span-d)
		p.packB16(p.packed(d, k, j), p.b, p.jc+j, n, p.pc+d, k)
	}
}

// rowBlock multiplies column chunks of a block of rows until none is left. Which
// worker computes a chunk does not show in the result.
func (p *plan16) rowBlock(w *workspace, block int) {
	i := block * p.height
	m := min(p.height, p.m-i)
	packed := false
	for j, ok := p.chunk(block, p.cols); ok; j, ok = p.chunk(block, p.cols) {
		n := min(mulColumns, p.cols-j)
		if p.rounded != nil {
			packed = p.sum(w, i, m, j, n, packed)
			continue
		}
		if !packed {
			p.packA16(w.a, p.a, i, m, p.pc, p.span)
			packed = true
		}
		p.multiply16(w, w.a, p.packed(0, p.span, j), p.c[i*p.ldc+p.jc+j:], m, n, p.tiles16.Words(p.span), p.adding)
	}
}

// sum computes a chunk through all of k in w.sums and rounds it into C. It returns
// whether w.a holds the only pass over A for the chunks that follow.
func (p *plan16) sum(w *workspace, i, m, j, n int, packed bool) bool {
	whole := product16{tiles16: p.tiles16, product: product{ldc: mulColumns}}
	t := p.tiles16
	full, wide := ceil(m, t.Rows())*t.Rows(), ceil(n, t.Cols())*t.Cols()
	for d := 0; d < p.span; d += p.depth {
		k := min(p.depth, p.span-d)
		if !packed {
			p.packA16(w.a, p.a, i, m, d, k)
		}
		whole.multiply16(w, w.a, p.packed(d, k, j), w.sums, full, wide, t.Words(k), d > 0)
	}
	for r := range m {
		at := (i+r)*p.ldc + p.jc + j
		asm.ToBF16(p.rounded[at:at+n], w.sums[r*mulColumns:r*mulColumns+n])
	}
	return p.depth >= p.span
}
