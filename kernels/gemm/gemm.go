// Package gemm multiplies matrices: C = op(A)*op(B), or C += op(A)*op(B), with
// float32 or bfloat16 operands and float32 sums.
//
// It knows nothing of tensors or layers. [Plan] uses all threads of a par.Pool
// and is prepared once for a shape, [Serial] runs on the calling goroutine and
// takes any shape; attention uses one Serial a worker. Both need packing buffers
// ([Scratch]) and allocate nothing afterwards. [Plan16], [Gemm16], [PackB16] and
// [GemmPacked16] are their counterparts for bfloat16.
//
// # Method
//
// The layout is that of Goto and van de Geijn (2008) as refined by BLIS. Blocks of
// op(B), depth x up to 1024, are packed into panels as wide as a tile and shared by
// all workers; blocks of op(A), up to 144 x depth, are packed into panels as high as
// a tile by the worker that uses them; the inner loop is asm.Tiles.Tile on a pair of
// panels.
//
//	        N                          jc: blocks of 1024 columns
//	   +---------+                       pc: depth of up to 512
//	 K |  pb     |  packed, shared         pack B       all workers
//	   +---------+                         ib: blocks of up to 144 rows, one worker each
//	+--+---------+                           pack A
//	|pa|  tiles  | M                         column chunks, given away when others are idle
//	+--+---------+
//
// # Bits
//
// Each element of C is a chain of fused multiply-adds over K in rising order,
// interrupted only where the depth is split, and the split depends on K alone. So
// the bits of an element depend on its row of op(A), its column of op(B) and the old
// value, and not on asm.Kernels, on the number of threads, on M and N, on the strides,
// or on whether Plan or Serial computed it. See [Plan16] for bfloat16.
package gemm

import (
	"fmt"
	"unsafe"

	"refrain/kernels/asm"
)

// blocking holds the largest block sizes: mc rows a multiple of 12, kc a multiple
// of 32, nc columns a multiple of 32.
type blocking struct{ mc, kc, nc int }

// measured are sizes from sweeps on Zen 3 (32 KiB L1d, 512 KiB L2): mc 48 to 240
// and kc 192 to 512 stayed within 7 %; nc 4096 was 3 to 6 % slower.
var measured = blocking{mc: 144, kc: 512, nc: 1024}

// Scratch holds packing buffers for products that run one at a time: one for
// each device.
type Scratch struct {
	size    blocking
	tiles   asm.Tiles
	alloc   func(n int) []float32
	b       []float32   // packed block of op(B), shared by the workers
	workers []workspace // one each
}

// workspace is what one worker packs into.
type workspace struct {
	a    []float32 // packed block of op(A)
	tile []float32 // one tile of either kind, for tiles that stick out of C
	sums []float32 // rows of a block by mulColumns, for products that are rounded
}

// NewScratch makes buffers for threads workers. alloc returns n zeroed floats and
// is called a few times here and in NewSerial; nil means make. Memory on huge
// pages gave 5 to 15 % on most products. The Scratch keeps what alloc returned
// for its own lifetime.
func NewScratch(threads int, alloc func(n int) []float32) *Scratch {
	return newScratch(threads, alloc, measured, asm.BestTiles())
}

func newScratch(threads int, alloc func(n int) []float32, size blocking, tiles asm.Tiles) *Scratch {
	if threads < 1 {
		panic(fmt.Sprintf("gemm: NewScratch(%d): at least one thread is needed", threads))
	}
	if alloc == nil {
		alloc = func(n int) []float32 { return make([]float32, n) }
	}
	s := &Scratch{size: size, tiles: tiles, alloc: alloc, b: aligned(alloc, size.kc*size.nc)}
	for range threads {
		w := s.newWorkspace()
		w.sums = aligned(alloc, size.mc*mulColumns)
		s.workers = append(s.workers, w)
	}
	return s
}

func (s *Scratch) newWorkspace() workspace {
	return workspace{
		a:    aligned(s.alloc, s.size.mc*s.size.kc+asm.PackSlack),
		tile: aligned(s.alloc, max(s.tiles.Rows()*s.tiles.Cols(), asm.MaxTile16)),
	}
}

// aligned returns n floats that start at a cache line.
func aligned(alloc func(n int) []float32, n int) []float32 {
	const line = 64
	mem := alloc(n + line/4)
	skip := 0
	if rest := uintptr(unsafe.Pointer(&mem[0])) % line; rest != 0 {
		skip = int(line-rest) / 4
	}
	return mem[skip : skip+n : skip+n]
}

// product is one multiplication without its operands.
type product struct {
	tiles                      asm.Tiles
	transA, transB, accumulate bool
	m, n, k                    int // C is m x n, op(A) m x k, op(B) k x n
	lda, ldb, ldc              int // distance between rows as stored
}

// shapeA and shapeB return rows and columns as stored.
func (p *product) shapeA() (rows, cols int) {
	if p.transA {
		return p.k, p.m
	}
	return p.m, p.k
}

func (p *product) shapeB() (rows, cols int) {
	if p.transB {
		return p.n, p.k
	}
	return p.k, p.n
}

// checkShape panics on dimensions and strides that describe no matrices.
func (p *product) checkShape() {
	_, colsA := p.shapeA()
	_, colsB := p.shapeB()
	if p.m < 0 || p.n < 0 || p.k < 0 || p.lda < colsA || p.ldb < colsB || p.ldc < p.n {
		panic(fmt.Sprintf("gemm: m=%d n=%d k=%d (transA=%t transB=%t) with lda=%d ldb=%d ldc=%d: dimensions must be >= 0 and strides at least %d, %d and %d",
			p.m, p.n, p.k, p.transA, p.transB, p.lda, p.ldb, p.ldc, colsA, colsB, p.n))
	}
}

// needA, needB and needC return the lengths of slices that hold the matrices.
func (p *product) needA() int {
	rows, cols := p.shapeA()
	return extent(rows, cols, p.lda)
}

func (p *product) needB() int {
	rows, cols := p.shapeB()
	return extent(rows, cols, p.ldb)
}

func (p *product) needC() int { return extent(p.m, p.n, p.ldc) }

// checkOperands panics when a slice is shorter than its matrix.
func (p *product) checkOperands(a, b, c []float32) {
	if needA, needB, needC := p.needA(), p.needB(), p.needC(); len(a) < needA || len(b) < needB || len(c) < needC {
		panic(fmt.Sprintf("gemm: m=%d n=%d k=%d: slices of %d, %d and %d floats for A, B and C, need %d, %d and %d",
			p.m, p.n, p.k, len(a), len(b), len(c), needA, needB, needC))
	}
}

// extent is the length of a slice that holds a matrix.
func extent(rows, cols, ld int) int {
	if rows == 0 || cols == 0 {
		return 0
	}
	return (rows-1)*ld + cols
}

// trivial handles products without terms and reports whether it did.
func (p *product) trivial(c []float32) bool {
	if p.m == 0 || p.n == 0 {
		return true
	}
	if p.k > 0 {
		return false
	}
	if !p.accumulate {
		for i := range p.m {
			clear(c[i*p.ldc : i*p.ldc+p.n])
		}
	}
	return true
}

// depth returns how much of k one pass takes: k split evenly into parts of at
// most kc, rounded up to 8. It must depend on k alone.
func (s *blocking) depth(k int) int {
	parts := ceil(k, s.kc)
	return ceil(ceil(k, parts), 8) * 8
}

// rows returns the height of a block of op(A): m split evenly into blocks of at
// most mc, their number a multiple of threads, their height one of tile.
func (s *blocking) rows(m, threads, tile int) int {
	blocks := ceil(ceil(m, s.mc), threads) * threads
	return ceil(ceil(m, blocks), tile) * tile
}

func ceil(a, b int) int { return (a + b - 1) / b }
