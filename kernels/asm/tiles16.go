package asm

import "fmt"

// MR16 and NR16 are the rows and columns of the tile of bfloat16 products. All
// sets share them, and with them the layout of packed operands.
const (
	MR16 = 12
	NR16 = 32
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
type Tiles16 struct{ code tileCode }

// TileSets16 returns the sets this process can run, the fastest first.
func TileSets16() []Tiles16 {
	sets := []Tiles16{{generic16}}
	if pairs16 {
		sets = append([]Tiles16{{bf16Tile12x32}}, sets...)
	}
	return sets
}

// BestTiles16 returns the first of TileSets16.
func BestTiles16() Tiles16 {
	if pairs16 {
		return Tiles16{bf16Tile12x32}
	}
	return Tiles16{generic16}
}

// String names the instructions: "avx512bf16".
func (t Tiles16) String() string {
	switch t.code {
	case bf16Tile12x32:
		return "avx512bf16"
	case generic16:
		return "generic"
	}
	return "none"
}

// Tile computes a tile of a product from packed operands, k2 pairs deep. With a
// word holding a pair, the first element in its lower half:
//
//	c[i*ldc+j] = sum over p < k2 of a[p*MR16+i] * b[p*NR16+j]  (+ the old value when accumulate)
//
// The sum runs over p in rising order and is added to the old value last, in
// ordinary float32. It panics when a slice is too short.
func (t Tiles16) Tile(k2 int, a, b []uint32, c []float32, ldc int, accumulate bool) {
	if k2 < 0 || ldc < NR16 || len(a) < k2*MR16 || len(b) < k2*NR16 || len(c) < (MR16-1)*ldc+NR16 {
		badTile16(t, k2, len(a), len(b), len(c), ldc)
	}
	if t.code == bf16Tile12x32 && k2 > 0 {
		flag := 0
		if accumulate {
			flag = 1
		}
		tile16Vec(k2, &a[0], &b[0], &c[0], ldc, flag)
		return
	}
	tile16Generic(k2, a, b, c, ldc, accumulate)
}

//go:noinline
func badTile16(t Tiles16, k2, a, b, c, ldc int) {
	panic(fmt.Sprintf("asm: %v: k2=%d with %d words of a, %d of b, %d of c, ldc=%d; need k2 >= 0, a >= %d*k2, b >= %d*k2, ldc >= %d, c >= %d*ldc+%d",
		t, k2, a, b, c, ldc, MR16, NR16, NR16, MR16-1, NR16))
}

// PeakBF16 runs n rounds of the multiply-adds of BestTiles16 on registers alone
// and returns the number of floating point operations made, as FMAPeak does for
// float32. Where products of bfloat16 run on the float32 units, the peak is
// FMAPeak's. A round takes about 8 ns; n below 1 counts as 1.
func PeakBF16(n int) (flops int) {
	n = max(n, 1)
	if pairs16 {
		var sum [16]float32
		peak16Vec(n, &sum[0])
		return n * 24 * 32 * 2
	}
	return FMAPeak(n)
}
