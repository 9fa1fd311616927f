package gemm

import (
	"fmt"

	"refrain/internal/par"
)

const (
	// packColumns is how many columns of B a worker packs at a time.
	packColumns = 64
	// mulColumns is how many columns of B a worker multiplies before it looks for
	// more: the unit that an idle worker can take over. At depth 512 and 144 rows
	// they take 0.1 to 0.2 ms.
	mulColumns = 128
	// serialFLOPs is the size below which waking the pool costs more than it gains.
	serialFLOPs = 400_000
)

// Plan is a product of one shape, ready to run on all threads of a pool.
// It is not safe for concurrent use, and Plans that share a Scratch must not run
// at the same time. Run must not be called from the body of a region of the pool.
type Plan struct {
	product
	scratch *Scratch
	pool    *par.Pool
	inline  bool // small: runs on the caller
	depth   int
	height  int
	blocks  int              // of rows
	body    func(worker int) // p.work, bound once

	// The block under way, written between regions.
	a, b, c []float32
	jc, cols,
	pc, span int
	panels int
	adding bool // to C, from the second pass over k on or when accumulating

	shares
}

// NewPlan prepares C[m,n] = op(A)*op(B), plus the old C when accumulate is set. op
// is the transpose when transA or transB is set: A is stored as [m,k] or [k,m], B
// as [k,n] or [n,k], row-major with lda, ldb and ldc floats between rows. It
// panics when a dimension is negative, a stride is shorter than a row, or s has
// fewer workers than pool.
func NewPlan(s *Scratch, pool *par.Pool, transA, transB bool, m, n, k int, lda, ldb, ldc int, accumulate bool) *Plan {
	p := &Plan{
		product: product{tiles: s.tiles, transA: transA, transB: transB, accumulate: accumulate, m: m, n: n, k: k, lda: lda, ldb: ldb, ldc: ldc},
		scratch: s, pool: pool,
	}
	p.checkShape()
	if len(s.workers) < pool.Threads() {
		panic(fmt.Sprintf("gemm: NewPlan: scratch for %d workers, pool of %d", len(s.workers), pool.Threads()))
	}
	p.body = p.work
	p.inline = pool.Threads() == 1 || 2*float64(m)*float64(n)*float64(k) < serialFLOPs
	if m > 0 && n > 0 && k > 0 && !p.inline {
		p.depth, p.height = s.size.depth(k), s.size.rows(m, pool.Threads(), s.tiles.Rows())
		p.blocks = ceil(m, p.height)
		p.taken = make([]counter, p.blocks)
	}
	return p
}

// Run multiplies. It returns when C is complete, keeps none of the slices and
// allocates nothing. C must not overlap A or B. It panics when a slice is shorter
// than its matrix.
func (p *Plan) Run(a, b, c []float32) {
	p.checkOperands(a, b, c)
	if p.trivial(c) {
		return
	}
	s := p.scratch
	if p.inline {
		p.serial(s.size, &s.workers[0], s.b, a, b, c)
		return
	}
	p.a, p.b, p.c = a, b, c
	for p.jc = 0; p.jc < p.n; p.jc += s.size.nc {
		p.cols = min(s.size.nc, p.n-p.jc)
		p.panels = ceil(p.cols, p.tiles.Cols())
		for p.pc = 0; p.pc < p.k; p.pc += p.depth {
			p.span = min(p.depth, p.k-p.pc)
			p.adding = p.accumulate || p.pc > 0
			p.reset()
			p.pool.Run(p.body)
		}
	}
	p.a, p.b, p.c = nil, nil, nil
}

// work is one worker's share of a block: pack B with the others, then multiply
// row blocks, its own first and after that what is left of the others'.
func (p *Plan) work(worker int) {
	chunk := packColumns / p.tiles.Cols()
	for {
		from := int(p.next.Add(int32(chunk))) - chunk
		if from >= p.panels {
			break
		}
		to := min(from+chunk, p.panels)
		p.packB(p.scratch.b, p.b, p.jc, p.cols, p.pc, p.span, from, to)
		p.ready.Add(int32(to - from))
	}
	if !p.await(p.pool, p.panels) {
		return
	}
	w := &p.scratch.workers[worker]
	for block, ok := p.rows(p.blocks); ok; block, ok = p.rows(p.blocks) {
		p.rowBlock(w, block)
	}
	// Without this, a product with two row blocks waits for the slower of two
	// workers. Packing A a second time costs about 5 % of one chunk.
	for block := range p.blocks {
		p.rowBlock(w, block)
	}
}

// rowBlock multiplies column chunks of a block of rows until none is left. Which
// worker computes a chunk does not show in the result.
func (p *Plan) rowBlock(w *workspace, block int) {
	i := block * p.height
	m := min(p.height, p.m-i)
	packed := false
	for j, ok := p.chunk(block, p.cols); ok; j, ok = p.chunk(block, p.cols) {
		if !packed {
			p.packA(w.a, p.a, i, m, p.pc, p.span)
			packed = true
		}
		n := min(mulColumns, p.cols-j)
		p.multiply(w, w.a, p.scratch.b[j*p.span:], p.c, i, m, p.jc+j, n, p.span, p.adding)
	}
}
