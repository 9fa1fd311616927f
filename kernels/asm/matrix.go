package asm

import "fmt"

// MR and NR are the rows and columns of the plain Go tile, which every build has.
const (
	MR = 12
	NR = 16
)

// PackSlack is the number of floats that PackRowsA may write past the rows*k it
// fills. Its destination must have room for them.
const PackSlack = 2

// Tiles is a micro-kernel for matrix products with the routines that pack its
// operands. All sets give the same bits.
type Tiles struct{ code tileCode }

type tileCode uint8

const (
	noTiles tileCode = iota
	generic12x16
	avx2Tile6x16
	avx512Tile12x32
	neonTile12x8
	generic16
	bf16Tile12x32
)

// TileSets returns the sets this process can run, the fastest first.
func TileSets() []Tiles {
	sets := []Tiles{{generic12x16}}
	if vector {
		sets = append([]Tiles{{vectorTile}}, sets...)
	}
	if wide {
		sets = append([]Tiles{{avx512Tile12x32}}, sets...)
	}
	return sets
}

// BestTiles returns the first of TileSets.
func BestTiles() Tiles {
	switch {
	case wide:
		return Tiles{avx512Tile12x32}
	case vector:
		return Tiles{vectorTile}
	}
	return Tiles{generic12x16}
}

// String names the instructions and the tile: "avx512 12x32".
func (t Tiles) String() string {
	switch t.code {
	case avx512Tile12x32:
		return "avx512 12x32"
	case avx2Tile6x16:
		return "avx2 6x16"
	case neonTile12x8:
		return "neon 12x8"
	case generic12x16:
		return "generic 12x16"
	}
	return "none"
}

// Rows returns the rows of the tile.
func (t Tiles) Rows() int {
	if t.code == avx2Tile6x16 {
		return 6
	}
	return MR
}

// Cols returns the columns of the tile.
func (t Tiles) Cols() int {
	switch t.code {
	case avx512Tile12x32:
		return 32
	case neonTile12x8:
		return 8
	}
	return NR
}

// Tile computes a tile of a matrix product from packed operands. With R and N for
// Rows() and Cols():
//
//	c[i*ldc+j] = sum over kk < k of a[kk*R+i] * b[kk*N+j]  (+ the old value when accumulate)
//
// The sum of each element runs over kk in rising order, one accumulator an
// element, and is added to the old value last. Its bits depend on the k factors
// of that element and nothing else. It panics when a slice is too short.
func (t Tiles) Tile(k int, a, b, c []float32, ldc int, accumulate bool) {
	rows, cols := t.Rows(), t.Cols()
	if k < 0 || ldc < cols || len(a) < k*rows || len(b) < k*cols || len(c) < (rows-1)*ldc+cols {
		badTile(t, k, len(a), len(b), len(c), ldc)
	}
	flag := 0
	if accumulate {
		flag = 1
	}
	switch {
	case k == 0:
		noTerms(rows, cols, c, ldc, accumulate)
	case t.code <= generic12x16:
		tileGeneric(k, a, 1, rows, b, c, ldc, accumulate)
	case t.code == avx512Tile12x32:
		tile512Vec(k, &a[0], &b[0], &c[0], ldc, flag)
	default:
		tileVec(k, &a[0], &b[0], &c[0], ldc, flag)
	}
}

// TileDirect is Tile with the left operand where it lies: element (i, kk) of the
// tile's rows is a[i*lda+kk], or a[kk*lda+i] when trans is set. Where a panel of A
// would be used once or twice only, that is faster than packing it. The bits are
// those of Tile.
func (t Tiles) TileDirect(k int, a []float32, lda int, trans bool, b, c []float32, ldc int, accumulate bool) {
	rows, cols := t.Rows(), t.Cols()
	width, need := k, (rows-1)*lda+k
	if trans {
		width, need = rows, (k-1)*lda+rows
	}
	if k < 1 || lda < width || ldc < cols || len(a) < need || len(b) < k*cols || len(c) < (rows-1)*ldc+cols {
		badDirect(t, k, len(a), lda, trans, len(b), len(c), ldc)
	}
	flag := 0
	if accumulate {
		flag = 1
	}
	switch {
	case t.code <= generic12x16 && trans:
		tileGeneric(k, a, 1, lda, b, c, ldc, accumulate)
	case t.code <= generic12x16:
		tileGeneric(k, a, lda, 1, b, c, ldc, accumulate)
	case t.code == avx512Tile12x32 && trans:
		tileCols512Vec(k, &a[0], lda, &b[0], &c[0], ldc, flag)
	case t.code == avx512Tile12x32:
		tileRows512Vec(k, &a[0], lda, &b[0], &c[0], ldc, flag)
	case trans:
		tileColsVec(k, &a[0], lda, &b[0], &c[0], ldc, flag)
	default:
		tileRowsVec(k, &a[0], lda, &b[0], &c[0], ldc, flag)
	}
}

//go:noinline
func badDirect(t Tiles, k, a, lda int, trans bool, b, c, ldc int) {
	panic(fmt.Sprintf("asm: %v: k=%d with %d floats of a (lda=%d, trans=%t), %d of b, %d of c, ldc=%d; k must be >= 1 and each operand inside its slice",
		t, k, a, lda, trans, b, c, ldc))
}

//go:noinline
func badTile(t Tiles, k, a, b, c, ldc int) {
	panic(fmt.Sprintf("asm: %v: k=%d with %d floats of a, %d of b, %d of c, ldc=%d; need k >= 0, a >= %d*k, b >= %d*k, ldc >= %d, c >= %d*ldc+%d",
		t, k, a, b, c, ldc, t.Rows(), t.Cols(), t.Cols(), t.Rows()-1, t.Cols()))
}

// PackRowsA packs a panel of Rows() rows of a left operand:
// dst[kk*Rows()+i] = src[i*lds+kk] for kk < k. dst must have room for
// Rows()*k+PackSlack floats.
func (t Tiles) PackRowsA(dst, src []float32, lds, k int) {
	rows := t.Rows()
	checkPack("PackRowsA", len(dst), rows*k+PackSlack, len(src), lds, rows, k)
	done := 0
	if t.code > generic12x16 && k >= 8 {
		done = k &^ 7
		if rows == 12 {
			packRows12Vec(done/8, &dst[0], &src[0], lds)
		} else {
			packRows6Vec(done/8, &dst[0], &src[0], lds)
		}
	}
	packRowsGeneric(dst, src, lds, rows, done, k)
}

// PackRowsB packs a panel of Cols() rows of a transposed right operand:
// dst[kk*Cols()+i] = src[i*lds+kk] for kk < k.
func (t Tiles) PackRowsB(dst, src []float32, lds, k int) {
	cols := t.Cols()
	checkPack("PackRowsB", len(dst), cols*k, len(src), lds, cols, k)
	done := 0
	if t.code > generic12x16 && k >= 8 {
		done = k &^ 7
		switch cols {
		case 32:
			packRows32Vec(done/8, &dst[0], &src[0], lds)
		case 8:
			packRows8Vec(done/8, &dst[0], &src[0], lds)
		default:
			packRows16Vec(done/8, &dst[0], &src[0], lds)
		}
	}
	packRowsGeneric(dst, src, lds, cols, done, k)
}

// packGroup is how many rows the column packers take through all panels at a
// time. Panel after panel would evict each cache line of a matrix with rows 4 KiB
// apart before the rest of the line is used (measured: 0.73 against 0.44 ns an
// element for 6 columns, 0.27 against 0.18 for 16).
const packGroup = 8

// PackColsA packs panels panels of a transposed left operand, R = Rows() columns
// each and side by side in src:
// dst[q*R*k + kk*R + i] = src[kk*lds + q*R + i] for q < panels and kk < k.
func (t Tiles) PackColsA(dst, src []float32, lds, panels, k int) {
	rows := t.Rows()
	checkPack("PackColsA", len(dst), rows*k*panels, len(src), lds, k, rows*panels)
	for k0 := 0; k0 < k && panels > 0; k0 += packGroup {
		n := min(packGroup, k-k0)
		d, s := dst[k0*rows:], src[k0*lds:]
		switch {
		case t.code <= generic12x16:
			packColsGeneric(d, s, lds, rows, panels, n, rows*k)
		case rows == 12:
			packCols12Vec(panels, n, &d[0], &s[0], lds, rows*k)
		default:
			packCols6Vec(panels, n, &d[0], &s[0], lds, rows*k)
		}
	}
}

// PackColsB packs panels panels of a right operand, N = Cols() columns each and
// side by side in src:
// dst[q*N*k + kk*N + i] = src[kk*lds + q*N + i] for q < panels and kk < k.
func (t Tiles) PackColsB(dst, src []float32, lds, panels, k int) {
	cols := t.Cols()
	checkPack("PackColsB", len(dst), cols*k*panels, len(src), lds, k, cols*panels)
	for k0 := 0; k0 < k && panels > 0; k0 += packGroup {
		n := min(packGroup, k-k0)
		d, s := dst[k0*cols:], src[k0*lds:]
		switch {
		case t.code <= generic12x16:
			packColsGeneric(d, s, lds, cols, panels, n, cols*k)
		case cols == 32:
			packCols32Vec(panels, n, &d[0], &s[0], lds, cols*k)
		case cols == 8:
			packCols8Vec(panels, n, &d[0], &s[0], lds, cols*k)
		default:
			packCols16Vec(panels, n, &d[0], &s[0], lds, cols*k)
		}
	}
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

// FMAPeak runs n rounds of multiply-adds that depend on nothing but registers,
// of the width that BestTiles uses, and returns the number of floating point
// operations made. Timed, it gives the ceiling for matrix products on this core.
// A round takes about 4 ns; n below 1 counts as 1.
func FMAPeak(n int) (flops int) {
	n = max(n, 1)
	xy := [16]float32{0: 0.999, 1: 0.001}
	switch {
	case wide:
		fmaPeak512Vec(n, &xy[0])
		return n * 24 * 16 * 2
	case vector:
		fmaPeakVec(n, &xy[0])
		return n * 24 * vectorLanes * 2
	}
	return fmaPeakGeneric(n)
}
