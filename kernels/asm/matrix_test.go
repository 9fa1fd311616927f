package asm

import (
	"math"
	"math/rand/v2"
	"testing"

	"refrain/kernels/asm/guard"
)

// TestTile compares every micro-kernel with float64 for all small k, on operands
// that end at an unreadable page, and checks the gaps between the rows of C.
func TestTile(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	ks := []int{255, 256, 257}
	for k := range 60 {
		ks = append(ks, k)
	}
	for _, set := range TileSets() {
		rows, cols := set.Rows(), set.Cols()
		for _, k := range ks {
			a, b := guard.Floats(t, k*rows), guard.Floats(t, k*cols)
			for _, ldc := range []int{cols, cols + 1, 70} {
				c := guard.Floats(t, (rows-1)*ldc+cols)
				fill(r, a)
				fill(r, b)
				fill(r, c)
				old := append([]float32(nil), c...)
				accumulate := k%2 == 1
				set.Tile(k, a, b, c, ldc, accumulate)
				for i, got := range c {
					row, col := i/ldc, i%ldc
					if col >= cols {
						if got != old[i] {
							t.Fatalf("%v: k=%d ldc=%d: gap behind row %d was written", set, k, ldc, row)
						}
						continue
					}
					var want float64
					if accumulate {
						want = float64(old[i])
					}
					for kk := range k {
						want += float64(a[kk*rows+row]) * float64(b[kk*cols+col])
					}
					if !(math.Abs(float64(got)-want) <= 2e-5) {
						t.Fatalf("%v: k=%d ldc=%d c[%d,%d] = %g, want %g", set, k, ldc, row, col, got, want)
					}
				}
			}
		}
	}
}

// TestTileDirect: the same bits as Tile on the packed operand, and no read past
// the end of the matrix.
func TestTileDirect(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, set := range TileSets() {
		rows, cols := set.Rows(), set.Cols()
		for _, k := range []int{1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 100} {
			b, packed := make([]float32, k*cols), make([]float32, k*rows)
			fill(r, b)
			for _, trans := range []bool{false, true} {
				for gap := range 3 {
					lines, width := rows, k
					if trans {
						lines, width = k, rows
					}
					lda := width + gap
					a := guard.Floats(t, (lines-1)*lda+width)
					fill(r, a)
					for i := range rows {
						for kk := range k {
							at := i*lda + kk
							if trans {
								at = kk*lda + i
							}
							packed[kk*rows+i] = a[at]
						}
					}
					want, got := make([]float32, rows*cols), make([]float32, rows*cols)
					fill(r, want)
					copy(got, want)
					set.Tile(k, packed, b, want, cols, gap == 1)
					set.TileDirect(k, a, lda, trans, b, got, cols, gap == 1)
					for i := range want {
						if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
							t.Fatalf("%v: k=%d lda=%d trans=%t: element %d is %g, packed %g", set, k, lda, trans, i, got[i], want[i])
						}
					}
				}
			}
		}
	}
}

func fill(r *rand.Rand, x []float32) {
	for i := range x {
		x[i] = r.Float32() - 0.5
	}
}

// TestPackRows checks the transposing packers of every set on sources and
// destinations that end at unreadable pages.
func TestPackRows(t *testing.T) {
	for _, set := range TileSets() {
		for _, p := range []struct {
			name        string
			rows, slack int
			pack        func(dst, src []float32, lds, k int)
		}{{"A", set.Rows(), PackSlack, set.PackRowsA}, {"B", set.Cols(), 0, set.PackRowsB}} {
			memSrc, memDst := guard.Floats(t, 80*80), guard.Floats(t, 70*p.rows+PackSlack)
			for k := range 70 {
				lds := k + k%5
				src, dst := memSrc[len(memSrc)-(p.rows-1)*lds-k:], memDst[len(memDst)-p.rows*k-p.slack:]
				for i := range src {
					src[i] = float32(i)
				}
				clear(dst)
				p.pack(dst, src, lds, k)
				for kk := range k {
					for i := range p.rows {
						if got, want := dst[kk*p.rows+i], src[i*lds+kk]; got != want {
							t.Fatalf("%v %s: k=%d lds=%d: element (%d,%d) = %g, want %g", set, p.name, k, lds, kk, i, got, want)
						}
					}
				}
			}
		}
	}
}

// TestPackCols does the same for the copying packers, with several panels.
func TestPackCols(t *testing.T) {
	for _, set := range TileSets() {
		for _, p := range []struct {
			name string
			cols int
			pack func(dst, src []float32, lds, panels, k int)
		}{{"A", set.Rows(), set.PackColsA}, {"B", set.Cols(), set.PackColsB}} {
			memSrc, memDst := guard.Floats(t, 40*(4*p.cols+5)), guard.Floats(t, 40*4*p.cols)
			for k := range 40 {
				for panels := range 5 {
					width := panels * p.cols
					lds := width + k%5
					var src []float32
					if k > 0 {
						src = memSrc[len(memSrc)-(k-1)*lds-width:]
					}
					for i := range src {
						src[i] = float32(i)
					}
					dst := memDst[len(memDst)-width*k:]
					clear(dst)
					p.pack(dst, src, lds, panels, k)
					for i, got := range dst {
						q, kk, j := i/(p.cols*k), i/p.cols%k, i%p.cols
						if want := src[kk*lds+q*p.cols+j]; got != want {
							t.Fatalf("%v %s: k=%d lds=%d: panel %d (%d,%d) = %g, want %g", set, p.name, k, lds, q, kk, j, got, want)
						}
					}
				}
			}
		}
	}
}

// TestMatrixBounds: every argument that would let assembly leave its slices.
func TestMatrixBounds(t *testing.T) {
	f := func(n int) []float32 { return make([]float32, n) }
	const k = 8
	for _, set := range TileSets() {
		r, n := set.Rows(), set.Cols()
		for name, call := range map[string]func(){
			"Tile k<0":         func() { set.Tile(-1, f(k*r), f(k*n), f(r*n), n, false) },
			"Tile a":           func() { set.Tile(k, f(k*r-1), f(k*n), f(r*n), n, false) },
			"Tile b":           func() { set.Tile(k, f(k*r), f(k*n-1), f(r*n), n, false) },
			"Tile c":           func() { set.Tile(k, f(k*r), f(k*n), f(r*n-1), n, false) },
			"Tile ldc":         func() { set.Tile(k, f(k*r), f(k*n), f(r*n), n-1, false) },
			"direct k":         func() { set.TileDirect(0, f(k*r), k, false, f(k*n), f(r*n), n, false) },
			"direct a":         func() { set.TileDirect(k, f(k*r-1), k, false, f(k*n), f(r*n), n, false) },
			"direct at":        func() { set.TileDirect(k, f(k*r-1), r, true, f(k*n), f(r*n), n, false) },
			"direct lda":       func() { set.TileDirect(k, f(k*r), k-1, false, f(k*n), f(r*n), n, false) },
			"direct ldat":      func() { set.TileDirect(k, f(k*r), r-1, true, f(k*n), f(r*n), n, false) },
			"direct b":         func() { set.TileDirect(k, f(k*r), k, false, f(k*n-1), f(r*n), n, false) },
			"direct c":         func() { set.TileDirect(k, f(k*r), k, false, f(k*n), f(r*n-1), n, false) },
			"direct ldc":       func() { set.TileDirect(k, f(k*r), k, false, f(k*n), f(r*n), n-1, false) },
			"PackRowsA dst":    func() { set.PackRowsA(f(r*k+PackSlack-1), f(r*k), k, k) },
			"PackRowsA src":    func() { set.PackRowsA(f(r*k+PackSlack), f(r*k-1), k, k) },
			"PackRowsB dst":    func() { set.PackRowsB(f(n*k-1), f(n*k), k, k) },
			"PackRowsB stride": func() { set.PackRowsB(f(n*k), f(n*k), k-1, k) },
			"PackColsA src":    func() { set.PackColsA(f(r*k), f(r*k-1), r, 1, k) },
			"PackColsA k<0":    func() { set.PackColsA(f(r*k), f(r*k), r, 1, -1) },
			"PackColsA panels": func() { set.PackColsA(f(2*r*k), f(2*r*k), r, 2, k) },
			"PackColsA both<0": func() { set.PackColsA(f(r*k), f(r*k), r, -1, -1) },
			"PackColsB dst":    func() { set.PackColsB(f(n*k-1), f(n*k), n, 1, k) },
			"PackColsB stride": func() { set.PackColsB(f(n*k), f(n*k), n-1, 1, k) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%v %s: no panic", set, name)
					}
				}()
				call()
			}()
		}
	}
}

// TestTileSets: the best set comes first, and has a name to print.
func TestTileSets(t *testing.T) {
	sets := TileSets()
	if sets[0] != BestTiles() {
		t.Errorf("TileSets() starts with %v, BestTiles() is %v", sets[0], BestTiles())
	}
	for _, s := range sets {
		if s.String() == "none" || s.Rows()%2 != 0 || s.Cols()%8 != 0 {
			t.Errorf("set %v has %d rows and %d columns", s, s.Rows(), s.Cols())
		}
	}
	t.Logf("sets: %v", sets)
}

func TestFMAPeakCounts(t *testing.T) {
	for _, n := range []int{1, 2, 100} {
		if a, b := FMAPeak(n), FMAPeak(2*n); a <= 0 || b != 2*a {
			t.Errorf("FMAPeak(%d) reports %d operations, FMAPeak(%d) %d", n, a, 2*n, b)
		}
	}
}
