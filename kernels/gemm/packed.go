package gemm

import (
	"fmt"

	"refrain/kernels/asm"
)

// Packed is an op(B) laid out for the inner loop, to be multiplied several times:
// attention packs the keys and values of a head once for all blocks of queries
// and all query heads that share them. It refers to memory of the caller.
type Packed struct {
	n, k int
	data []float32 // panels of asm.NR columns, each k deep
}

// PackedLen returns how many floats a Packed of k rows and n columns takes.
func PackedLen(n, k int) int { return ceil(n, asm.NR) * asm.NR * k }

// PackB lays out op(B), k rows and n columns, in dst, which must have room for
// PackedLen(n, k) floats and belongs to the result until that is dropped. B is
// stored as [k,n], or [n,k] when transB is set, with ldb floats between rows; it is
// not needed afterwards. PackB panics when a slice or ldb is too short.
func PackB(dst []float32, transB bool, n, k int, b []float32, ldb int) Packed {
	p := product{transB: transB, n: n, k: k, lda: k, ldb: ldb, ldc: n}
	p.checkShape()
	if need := p.needB(); len(b) < need {
		panic(fmt.Sprintf("gemm: PackB: n=%d k=%d: B has %d floats, need %d", n, k, len(b), need))
	}
	if len(dst) < PackedLen(n, k) {
		panic(fmt.Sprintf("gemm: PackB: room for %d floats, need %d for n=%d k=%d", len(dst), PackedLen(n, k), n, k))
	}
	if n > 0 && k > 0 {
		p.packB(dst, b, 0, n, 0, k, 0, ceil(n, asm.NR))
	}
	return Packed{n: n, k: k, data: dst[:PackedLen(n, k)]}
}

// GemmPacked sets C[m,n] = op(A)*B, plus the old C when accumulate is set, with
// the first k rows and n columns of the packed B. The result has the bits that
// Gemm gives for that part of B. It panics when B has fewer rows or columns, or a
// slice or stride is too short, and allocates nothing.
func (s *Serial) GemmPacked(transA bool, m, n, k int, a []float32, lda int, b Packed, accumulate bool, c []float32, ldc int) {
	p := product{transA: transA, accumulate: accumulate, m: m, n: n, k: k, lda: lda, ldb: n, ldc: ldc}
	p.checkShape()
	if n > b.n || k > b.k {
		panic(fmt.Sprintf("gemm: GemmPacked: n=%d k=%d of a packed B with n=%d k=%d", n, k, b.n, b.k))
	}
	if needA, needC := p.needA(), p.needC(); len(a) < needA || len(c) < needC {
		panic(fmt.Sprintf("gemm: GemmPacked: m=%d n=%d k=%d: slices of %d and %d floats for A and C, need %d and %d", m, n, k, len(a), len(c), needA, needC))
	}
	if p.trivial(c) {
		return
	}
	depth, height := s.size.depth(k), s.size.rows(m, 1)
	for pc := 0; pc < k; pc += depth {
		span := min(depth, k-pc)
		for i := 0; i < m; i += height {
			rows := min(height, m-i)
			p.packA(s.work.a, a, i, rows, pc, span)
			for j := 0; j < n; j += asm.NR {
				panel := b.data[j*b.k+pc*asm.NR:]
				p.multiply(&s.work, s.work.a, panel, c, i, rows, j, min(asm.NR, n-j), span, accumulate || pc > 0)
			}
		}
	}
}
