package gemm

import (
	"fmt"

	"refrain/kernels/asm"
)

// Gemm16 sets C[m,n] = op(A)*op(B), plus the old C when accumulate is set, on the
// calling goroutine with the buffers of s. Arguments are those of Serial.Gemm,
// operands are rounded to bfloat16, and the bits are those of a Plan16. C must not
// overlap A or B. It panics when the strides or the slices are too short, and
// allocates nothing.
func Gemm16[A, B Elem](s *Serial, transA, transB bool, m, n, k int, a []A, lda int, b []B, ldb int, accumulate bool, c []float32, ldc int) {
	p := product16{
		product: product{transA: transA, transB: transB, accumulate: accumulate, m: m, n: n, k: k, lda: lda, ldb: ldb, ldc: ldc},
		tiles16: s.tiles16,
	}
	p.checkShape()
	p.checkOperands16(len(a), len(b), len(c))
	if p.trivial(c) {
		return
	}
	x, y := operand(a), operand(b)
	depth, height := s.size.depth16(k), s.size.rows(m, 1, p.tiles16.Rows())
	for jc := 0; jc < n; jc += s.size.nc {
		cols := min(s.size.nc, n-jc)
		for pc := 0; pc < k; pc += depth {
			span := min(depth, k-pc)
			p.packB16(s.b, y, jc, cols, pc, span)
			for i := 0; i < m; i += height {
				rows := min(height, m-i)
				p.packA16(s.work.a, x, i, rows, pc, span)
				p.multiply16(&s.work, s.work.a, s.b, c[i*ldc+jc:], rows, cols, p.tiles16.Words(span), accumulate || pc > 0)
			}
		}
	}
}

// Packed16 is Packed for products of bfloat16.
type Packed16 struct {
	tiles asm.Tiles16
	n, k  int
	data  []float32 // panels as wide as a tile, each k deep
}

// PackedLen16 returns how many floats of memory a Packed16 of k rows and n columns
// takes.
func PackedLen16(n, k int) int { return packedLen16(asm.BestTiles16(), n, k) }

func packedLen16(tiles asm.Tiles16, n, k int) int {
	return ceil(n, tiles.Cols()) * tiles.Cols() * tiles.Words(k)
}

// PackB16 lays out op(B), k rows and n columns, in dst, rounded to bfloat16. dst
// must have room for PackedLen16(n, k) floats, whose values mean nothing, and
// belongs to the result until that is dropped. B is stored as [k,n], or [n,k] when
// transB is set, with ldb elements between rows; it is not needed afterwards.
// PackB16 panics when a slice or ldb is too short.
func PackB16[B Elem](dst []float32, transB bool, n, k int, b []B, ldb int) Packed16 {
	return packB16(asm.BestTiles16(), dst, transB, n, k, b, ldb)
}

func packB16[B Elem](tiles asm.Tiles16, dst []float32, transB bool, n, k int, b []B, ldb int) Packed16 {
	p := product16{product: product{transB: transB, n: n, k: k, lda: k, ldb: ldb, ldc: n}, tiles16: tiles}
	p.checkShape()
	if need := p.needB(); len(b) < need {
		panic(fmt.Sprintf("gemm: PackB16: n=%d k=%d: B has %d elements, need %d", n, k, len(b), need))
	}
	room := packedLen16(tiles, n, k)
	if len(dst) < room {
		panic(fmt.Sprintf("gemm: PackB16: room for %d floats, need %d for n=%d k=%d", len(dst), room, n, k))
	}
	if n > 0 && k > 0 {
		p.packB16(dst, operand(b), 0, n, 0, k)
	}
	return Packed16{tiles: tiles, n: n, k: k, data: dst[:room]}
}

// GemmPacked16 sets C[m,n] = op(A)*B, plus the old C when accumulate is set, with
// the first k rows and n columns of the packed B, on the calling goroutine with the
// buffers of s. The result has the bits that Gemm16 gives for that part of B. It
// panics when B has fewer rows or columns, or a slice or stride is too short, and
// allocates nothing.
func GemmPacked16[A Elem](s *Serial, transA bool, m, n, k int, a []A, lda int, b Packed16, accumulate bool, c []float32, ldc int) {
	p := product16{
		product: product{transA: transA, accumulate: accumulate, m: m, n: n, k: k, lda: lda, ldb: n, ldc: ldc},
		tiles16: s.tiles16,
	}
	p.checkShape()
	if n > b.n || k > b.k || (b.tiles != s.tiles16 && n > 0 && k > 0) {
		panic(fmt.Sprintf("gemm: GemmPacked16: n=%d k=%d for %v of a B with n=%d k=%d packed for %v", n, k, s.tiles16, b.n, b.k, b.tiles))
	}
	if needA, needC := p.needA(), p.needC(); len(a) < needA || len(c) < needC {
		panic(fmt.Sprintf("gemm: GemmPacked16: m=%d n=%d k=%d: slices of %d and %d elements for A and C, need %d and %d", m, n, k, len(a), len(c), needA, needC))
	}
	if p.trivial(c) {
		return
	}
	x, t := operand(a), s.tiles16
	depth, height := s.size.depth16(k), s.size.rows(m, 1, p.tiles16.Rows())
	for pc := 0; pc < k; pc += depth {
		span := min(depth, k-pc)
		for i := 0; i < m; i += height {
			rows := min(height, m-i)
			p.packA16(s.work.a, x, i, rows, pc, span)
			for j := 0; j < n; j += t.Cols() {
				panel := b.data[j*t.Words(b.k)+t.Words(pc)*t.Cols():]
				if pc+span == k && k%2 == 1 && k < b.k {
					panel = s.cut(panel, span)
				}
				p.multiply16(&s.work, s.work.a, panel, c[i*ldc+j:], rows, min(t.Cols(), n-j), t.Words(span), accumulate || pc > 0)
			}
		}
	}
}

// cut copies a packed panel up to an odd depth k, whose last pair would otherwise
// have the next term in it.
func (s *Serial) cut(panel []float32, k int) []float32 {
	n := s.tiles16.Words(k) * s.tiles16.Cols()
	copy(s.b[:n], panel)
	s.tiles16.Cut(words(s.b[:n]), k)
	return s.b[:n]
}
