package asm

import (
	"fmt"
	"math"
	"unsafe"
)

// Tiles16 is a micro-kernel for products of bfloat16 matrices, summed in float32,
// with the routines that pack its operands. All sets give the same bits.
//
// # Arithmetic
//
// Terms go in pairs along k, as the instruction VDPBF16PS takes them: to an
// accumulator that starts at +0, first the product of the second elements of the
// pair is added, then that of the first. Each product is exact and each sum is
// rounded once, to nearest even. Subnormal operands count as zeros of their sign,
// and a sum that is below the normal numbers after rounding becomes a zero of its
// sign. An odd k is filled up with +0*+0.
//
// Infinities and NaN go their usual ways: Inf*0 and Inf-Inf give a NaN. Which NaN,
// sign and payload, is left to the processor and is the one thing that may differ
// between sets.
//
// # Sets
//
// "avx512bf16" is the instruction itself on pairs; "avx512" and "avx2" are two
// fused multiply-adds on operands that are widened while they are packed, with
// subnormals flushed; "generic" is plain Go.
type Tiles16 struct{ code tileCode }

// TileSets16 returns the sets this process can run, the fastest first.
func TileSets16() []Tiles16 {
	sets := []Tiles16{{generic16}}
	if fused16 {
		sets = append([]Tiles16{{avx2Tile6x16}}, sets...)
	}
	if fused16 && wide {
		sets = append([]Tiles16{{avx512Tile12x32}}, sets...)
	}
	switch {
	case fastPairs:
		sets = append([]Tiles16{{bf16Tile12x32}}, sets...)
	case pairs16:
		sets = append(sets[:1], append([]Tiles16{{bf16Tile12x32}}, sets[1:]...)...)
	}
	return sets
}

// BestTiles16 returns the first of TileSets16.
func BestTiles16() Tiles16 {
	switch {
	case fastPairs:
		return Tiles16{bf16Tile12x32}
	case fused16 && wide:
		return Tiles16{avx512Tile12x32}
	case fused16:
		return Tiles16{avx2Tile6x16}
	}
	return Tiles16{generic16}
}

// String names the instructions and the tile: "avx512bf16 12x32".
func (t Tiles16) String() string {
	switch t.code {
	case bf16Tile12x32:
		return "avx512bf16 12x32"
	case generic16:
		return "generic 12x32"
	}
	return Tiles{t.code}.String()
}

// MaxTile16 is the number of elements of the largest tile.
const MaxTile16 = 12 * 32

// Rows returns the rows of the tile.
func (t Tiles16) Rows() int {
	if t.code == avx2Tile6x16 {
		return 6
	}
	return 12
}

// Cols returns the columns of the tile.
func (t Tiles16) Cols() int {
	if t.code == avx2Tile6x16 {
		return 16
	}
	return 32
}

// Words returns how many words a line of a packed operand takes, k terms deep: one
// for every pair, or one for every term and an even number of them.
func (t Tiles16) Words(k int) int {
	if t.paired() {
		return (k + 1) / 2
	}
	return (k + 1) &^ 1
}

// paired tells whether packed words hold pairs, as opposed to widened terms.
func (t Tiles16) paired() bool { return t.code == bf16Tile12x32 || t.code == generic16 }

// Tile computes a tile of a product from packed operands. With R and N for Rows()
// and Cols(), and words for Words(k) of a k of the caller's:
//
//	c[i*ldc+j] = sum over w < words of a[w*R+i] * b[w*N+j]  (+ the old value when accumulate)
//
// The sum runs over pairs in rising order and is added to the old value last, in
// ordinary float32. It panics when a slice is too short.
func (t Tiles16) Tile(words int, a, b []uint32, c []float32, ldc int, accumulate bool) {
	rows, cols := t.Rows(), t.Cols()
	if words < 0 || ldc < cols || len(a) < words*rows || len(b) < words*cols || len(c) < (rows-1)*ldc+cols || words%2 != 0 && !t.paired() {
		badTile16(t, words, len(a), len(b), len(c), ldc)
	}
	flag := 0
	if accumulate {
		flag = 1
	}
	switch {
	case t.code == generic16 || words == 0:
		tile16Generic(rows, cols, words, a, b, c, ldc, accumulate)
	case t.code == bf16Tile12x32:
		tile16Vec(words, &a[0], &b[0], &c[0], ldc, flag)
	case t.code == avx512Tile12x32:
		tilePairs512Vec(words, asFloat(&a[0]), asFloat(&b[0]), &c[0], ldc, flag)
	default:
		tilePairsVec(words, asFloat(&a[0]), asFloat(&b[0]), &c[0], ldc, flag)
	}
}

// asFloat is the address of a word that holds a float32.
func asFloat(p *uint32) *float32 { return (*float32)(unsafe.Pointer(p)) }

// asFloats is the words as float32 values.
func asFloats(w []uint32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(w))), len(w))
}

//go:noinline
func badTile16(t Tiles16, words, a, b, c, ldc int) {
	panic(fmt.Sprintf("asm: %v: %d words of %d of a, %d of b, %d of c, ldc=%d; need words >= 0 from Words, a >= %d*words, b >= %d*words, ldc >= %d, c >= %d*ldc+%d",
		t, words, a, b, c, ldc, t.Rows(), t.Cols(), t.Cols(), t.Rows()-1, t.Cols()))
}

// Cut sets what stands for term k in a right operand's panel of Words(k) words to
// zero, for an odd k: the panel was packed deeper, and its last pair now ends with
// term k-1. Panels have Cols() columns.
func (t Tiles16) Cut(panel []uint32, k int) {
	n := t.Words(k) * t.Cols()
	last := panel[n-t.Cols() : n]
	if !t.paired() {
		clear(last)
		return
	}
	for i := range last {
		last[i] &= math.MaxUint16
	}
}

// FastBF16 tells whether products of bfloat16 are faster than products of float32 on
// this processor: it has VDPBF16PS, and that makes more operations a second than two
// fused multiply-adds.
func FastBF16() bool { return fastPairs }

// PeakBF16 is Peak of BestTiles16.
func PeakBF16(n int) (flops int) { return BestTiles16().Peak(n) }

// Peak runs n rounds of the multiply-adds of the set on registers alone and returns
// the number of floating point operations made, as FMAPeak does for float32. A set
// that runs on the float32 units has FMAPeak's. A round takes 4 to 16 ns; n below 1
// counts as 1.
func (t Tiles16) Peak(n int) (flops int) {
	if t.code != bf16Tile12x32 {
		return FMAPeak(n)
	}
	n = max(n, 1)
	var sum [16]float32
	peak16Vec(n, &sum[0])
	return n * 24 * 32 * 2
}
