package gemm

import (
	"fmt"

	"refrain/kernels/asm"
)

// Packed is an op(B) laid out for the inner loop, to be multiplied several times:
// attention packs the keys and values of a head once for all blocks of queries
// and all query heads that share them. It refers to memory of the caller.
type Packed struct {
	tiles asm.Tiles
	n, k  int
	data  []float32 // panels as wide as a tile, each k deep
}

// PackedLen returns how many floats a Packed of k rows and n columns takes.
func PackedLen(n, k int) int { return packedLen(asm.BestTiles(), n, k) }

func packedLen(tiles asm.Tiles, n, k int) int { return ceil(n, tiles.Cols()) * tiles.Cols() * k }

// PackB lays out op(B), k rows and n columns, in dst, which must have room for
// PackedLen(n, k) floats and belongs to the result until that is dropped. B is
// stored as [k,n], or [n,k] when transB is set, with ldb floats between rows; it is
// not needed afterwards. PackB panics when a slice or ldb is too short.
func PackB(dst []float32, transB bool, n, k int, b []float32, ldb int) Packed {
	return packB(asm.BestTiles(), dst, transB, n, k, b, ldb)
}

func packB(tiles asm.Tiles, dst []float32, transB bool, n, k int, b []float32, ldb int) Packed {
	p := product{tiles: tiles, transB: transB, n: n, k: k, lda: k, ldb: ldb, ldc: n}
	p.checkShape()
	if need := p.needB(); len(b) < need {
		panic(fmt.Sprintf("gemm: PackB: n=%d k=%d: B has %d floats, need %d", n, k, len(b), need))
	}
	room := packedLen(tiles, n, k)
	if len(dst) < room {
		panic(fmt.Sprintf("gemm: PackB: room for %d floats, need %d for n=%d k=%d", len(dst), room, n, k))
	}
	if n > 0 && k > 0 {
		p.packB(dst, b, 0, n, 0, k, 0, ceil(n, tiles.Cols()))
	}
	return Packed{tiles: tiles, n: n, k: k, data: dst[:room]}
}

// GemmPacked sets C[m,n] = op(A)*B, plus the old C when accumulate is set, with
// the first k rows and n columns of the packed B. The result has the bits that
// Gemm gives for that part of B. It panics when B has fewer rows or columns, or a
// slice or stride is too short, and allocates nothing.
func (s *Serial) GemmPacked(transA bool, m, n, k int, a []float32, lda int, b Packed, accumulate bool, c []float32, ldc int) {
	p := product{tiles: s.tiles, transA: transA, accumulate: accumulate, m: m, n: n, k: k, lda: lda, ldb: n, ldc: ldc}
	p.checkShape()
	if n > b.n || k > b.k || (b.tiles != s.tiles && n > 0 && k > 0) {
		panic(fmt.Sprintf("gemm: GemmPacked: n=%d k=%d for %v of a B with n=%d k=%d packed for %v", n, k, s.tiles, b.n, b.k, b.tiles))
	}
	if needA, needC := p.needA(), p.needC(); len(a) < needA || len(c) < needC {
		panic(fmt.Sprintf("gemm: GemmPacked: m=%d n=%d k=%d: slices of %d and %d floats for A and C, need %d and %d", m, n, k, len(a), len(c), needA, needC))
	}
	if p.trivial(c) {
		return
	}
	nr := s.tiles.Cols()
	depth, height := s.size.depth(k), s.size.rows(m, 1, s.tiles.Rows())
	for pc := 0; pc < k; pc += depth {
		span := min(depth, k-pc)
		for i := 0; i < m; i += height {
			rows := min(height, m-i)
			direct := p.direct(n)
			if !direct {
				p.packA(s.work.a, a, i, rows, pc, span)
			}
			for j := 0; j < n; j += nr {
				panel := b.data[j*b.k+pc*nr:]
				if direct {
					p.multiplyDirect(&s.work, a, panel, c, i, rows, pc, j, min(nr, n-j), span, accumulate || pc > 0)
					continue
				}
				p.multiply(&s.work, s.work.a, panel, c, i, rows, j, min(nr, n-j), span, accumulate || pc > 0)
			}
		}
	}
}
