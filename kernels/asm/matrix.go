package asm

import "fmt"

// The tile of C that [Tile] computes: MR rows and NR columns.
const (
	MR = 6
	NR = 16
)

// PackSlack is the number of floats that PackRows6 may write past the 6*k it
// fills. Its destination must have room for them.
const PackSlack = 2

// Tile computes an MR x NR tile of a matrix product from packed operands:
//
//	c[i*ldc+j] = sum over kk < k of a[kk*MR+i] * b[kk*NR+j]  (+ the old value when accumulate)
//
// The sum of each element runs over kk in rising order, one accumulator an
// element, and is added to the old value last. Its bits depend on the k factors
// of that element and nothing else.
func Tile(k int, a, b, c []float32, ldc int, accumulate bool) {
	if k < 0 || ldc < NR || len(a) < k*MR || len(b) < k*NR || len(c) < (MR-1)*ldc+NR {
		badTile(k, len(a), len(b), len(c), ldc)
	}
	if !vector || k == 0 {
		tileGeneric(k, a, b, c, ldc, accumulate)
		return
	}
	flag := 0
	if accumulate {
		flag = 1
	}
	tileVec(k, &a[0], &b[0], &c[0], ldc, flag)
}

//go:noinline
func badTile(k, a, b, c, ldc int) {
	panic(fmt.Sprintf("asm: Tile: k=%d with %d floats of a, %d of b, %d of c, ldc=%d; need k >= 0, a >= %d*k, b >= %d*k, ldc >= %d, c >= %d*ldc+%d",
		k, a, b, c, ldc, MR, NR, NR, MR-1, NR))
}

// checkPack panics unless src holds rows of width floats, lds apart, and dst has room.
func checkPack(name string, dst, room, src, lds, rows, width int) {
	if rows < 0 || width < 0 || room < 0 || lds < width || dst < room || (rows > 0 && src < (rows-1)*lds+width) {
		badPack(name, dst, room, src, lds, rows, width)
	}
}

//go:noinline
func badPack(name string, dst, room, src, lds, rows, width int) {
	panic(fmt.Sprintf("asm: %s: %d rows of %d floats, %d apart, do not lie within a source of %d, or the destination of %d lacks room for %d",
		name, rows, width, lds, src, dst, room))
}

// PackRows6 packs a panel of MR rows: dst[kk*MR+i] = src[i*lds+kk] for kk < k.
// dst must have room for MR*k+PackSlack floats.
func PackRows6(dst, src []float32, lds, k int) {
	checkPack("PackRows6", len(dst), MR*k+PackSlack, len(src), lds, MR, k)
	done := 0
	if vector && k >= 8 {
		done = k &^ 7
		packRows6Vec(done/8, &dst[0], &src[0], lds)
	}
	packRowsGeneric(dst, src, lds, MR, done, k)
}

// PackRows16 packs a panel of NR rows: dst[kk*NR+i] = src[i*lds+kk] for kk < k.
func PackRows16(dst, src []float32, lds, k int) {
	checkPack("PackRows16", len(dst), NR*k, len(src), lds, NR, k)
	done := 0
	if vector && k >= 8 {
		done = k &^ 7
		packRows16Vec(done/8, &dst[0], &src[0], lds)
	}
	packRowsGeneric(dst, src, lds, NR, done, k)
}

// packGroup is how many rows the column packers take through all panels at a
// time. Panel after panel would evict each cache line of a matrix with rows 4 KiB
// apart before the rest of the line is used (measured: 0.73 against 0.44 ns an
// element for 6 columns, 0.27 against 0.18 for 16).
const packGroup = 8

// PackCols6 packs panels panels of MR columns each, side by side in src:
// dst[q*MR*k + kk*MR + i] = src[kk*lds + q*MR + i] for q < panels and kk < k.
func PackCols6(dst, src []float32, lds, panels, k int) {
	checkPack("PackCols6", len(dst), MR*k*panels, len(src), lds, k, MR*panels)
	for k0 := 0; k0 < k && panels > 0; k0 += packGroup {
		rows := min(packGroup, k-k0)
		if vector {
			packCols6Vec(panels, rows, &dst[k0*MR], &src[k0*lds], lds, MR*k)
		} else {
			packColsGeneric(dst[k0*MR:], src[k0*lds:], lds, MR, panels, rows, MR*k)
		}
	}
}

// PackCols16 packs panels panels of NR columns each, side by side in src:
// dst[q*NR*k + kk*NR + i] = src[kk*lds + q*NR + i] for q < panels and kk < k.
func PackCols16(dst, src []float32, lds, panels, k int) {
	checkPack("PackCols16", len(dst), NR*k*panels, len(src), lds, k, NR*panels)
	for k0 := 0; k0 < k && panels > 0; k0 += packGroup {
		rows := min(packGroup, k-k0)
		if vector {
			packCols16Vec(panels, rows, &dst[k0*NR], &src[k0*lds], lds, NR*k)
		} else {
			packColsGeneric(dst[k0*NR:], src[k0*lds:], lds, NR, panels, rows, NR*k)
		}
	}
}

// FMAPeak runs n rounds of multiply-adds that depend on nothing but registers
// and returns the number of floating point operations made. Timed, it gives the
// ceiling for matrix products on this core. A round takes about 4 ns; n below 1
// counts as 1.
func FMAPeak(n int) (flops int) {
	n = max(n, 1)
	if vector {
		xy := [8]float32{0: 0.999, 1: 0.001}
		fmaPeakVec(n, &xy[0])
		return n * 24 * 8 * 2
	}
	return fmaPeakGeneric(n)
}
