package gemm

import (
	"fmt"
	"unsafe"

	"refrain/kernels/asm"
)

// Elem is how an operand of a bfloat16 product is stored: as float32, rounded to
// bfloat16 while it is packed, or as the bits of bfloat16 values.
type Elem interface{ ~float32 | ~uint16 }

// operand returns s as package asm takes it.
func operand[E Elem](s []E) asm.Operand {
	var e E
	p := unsafe.Pointer(unsafe.SliceData(s))
	if unsafe.Sizeof(e) == 4 {
		return asm.Float32Operand(unsafe.Slice((*float32)(p), len(s)))
	}
	return asm.BF16Operand(unsafe.Slice((*uint16)(p), len(s)))
}

// words returns packing memory as the words it holds here.
func words(s []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

// product16 is a product of bfloat16 operands without the operands.
type product16 struct {
	product // its tiles are not used
	tiles16 asm.Tiles16
}

// depth16 is depth for pairs: how much of k one pass takes, k split evenly into
// parts of at most kc, rounded up to 32. It must depend on k alone: not on the tiles
// either, whose operands take a word for every term or for two.
func (s *blocking) depth16(k int) int {
	parts := ceil(k, s.kc)
	return ceil(ceil(k, parts), 32) * 32
}

// checkOperands16 panics when a slice is shorter than its matrix.
func (p *product16) checkOperands16(a, b, c int) {
	if needA, needB, needC := p.needA(), p.needB(), p.needC(); a < needA || b < needB || c < needC {
		panic(fmt.Sprintf("gemm: m=%d n=%d k=%d: slices of %d, %d and %d elements for A, B and C, need %d, %d and %d",
			p.m, p.n, p.k, a, b, c, needA, needB, needC))
	}
}

// packA16 packs rows [i, i+m) and columns [pc, pc+k) of op(A).
func (p *product16) packA16(dst []float32, a asm.Operand, i, m, pc, k int) {
	at := i*p.lda + pc
	if p.transA {
		at = pc*p.lda + i
	}
	p.tiles16.PackA(words(dst), a.From(at), p.lda, p.transA, m, k)
}

// packB16 packs rows [pc, pc+k) and columns [j, j+n) of op(B).
func (p *product16) packB16(dst []float32, b asm.Operand, j, n, pc, k int) {
	at := pc*p.ldb + j
	if p.transB {
		at = j*p.ldb + pc
	}
	p.tiles16.PackB(words(dst), b.From(at), p.ldb, !p.transB, n, k)
}

// multiply16 sets an m x n part of C from packed blocks of that many words a line.
func (p *product16) multiply16(w *workspace, pa, pb, c []float32, m, n, perLine int, accumulate bool) {
	tileRows, tileCols := p.tiles16.Rows(), p.tiles16.Cols()
	a, b := words(pa), words(pb)
	for j := 0; j < n; j += tileCols {
		nr := min(tileCols, n-j)
		panel := b[j*perLine : (j+tileCols)*perLine]
		for i := 0; i < m; i += tileRows {
			mr := min(tileRows, m-i)
			dst := c[i*p.ldc+j:]
			if mr == tileRows && nr == tileCols {
				p.tiles16.Tile(perLine, a[i*perLine:], panel, dst, p.ldc, accumulate)
				continue
			}
			p.tiles16.Tile(perLine, a[i*perLine:], panel, w.tile, tileCols, false)
			copyTile(dst, w.tile, p.ldc, tileCols, mr, nr, accumulate)
		}
	}
}
