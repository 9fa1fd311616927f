package asm

import (
	"math"
	"math/rand/v2"
	"testing"

	"refrain/kernels/asm/guard"
)

// TestTile compares the micro-kernel with float64 for all small k, on exact
// operands that end at an unreadable page, and checks the gaps between the rows
// of C.
func TestTile(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const maxK, maxLd = 300, 40
	memA, memB, memC := guard.Floats(t, maxK*MR), guard.Floats(t, maxK*NR), guard.Floats(t, (MR-1)*maxLd+NR)
	ks := []int{255, 256, 257, maxK}
	for k := range 60 {
		ks = append(ks, k)
	}
	for set, tile := range map[string]func(int, []float32, []float32, []float32, int, bool){"active": Tile, "generic": tileGeneric} {
		for _, k := range ks {
			for _, ldc := range []int{NR, NR + 1, maxLd} {
				a, b := memA[len(memA)-k*MR:], memB[len(memB)-k*NR:]
				c := memC[len(memC)-(MR-1)*ldc-NR:]
				fill(r, a)
				fill(r, b)
				fill(r, c)
				old := append([]float32(nil), c...)
				accumulate := k%2 == 1
				tile(k, a, b, c, ldc, accumulate)
				for i, got := range c {
					row, col := i/ldc, i%ldc
					if col >= NR {
						if got != old[i] {
							t.Fatalf("%s: k=%d ldc=%d: gap behind row %d was written", set, k, ldc, row)
						}
						continue
					}
					var want float64
					if accumulate {
						want = float64(old[i])
					}
					for kk := range k {
						want += float64(a[kk*MR+row]) * float64(b[kk*NR+col])
					}
					if !(math.Abs(float64(got)-want) <= 2e-5) {
						t.Fatalf("%s: k=%d ldc=%d c[%d,%d] = %g, want %g", set, k, ldc, row, col, got, want)
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

// TestPackRows checks the transposing packers on sources and destinations that
// end at unreadable pages.
func TestPackRows(t *testing.T) {
	for _, p := range []struct {
		name        string
		rows, slack int
		pack        func(dst, src []float32, lds, k int)
	}{
		{"PackRows6", MR, PackSlack, PackRows6},
		{"PackRows16", NR, 0, PackRows16},
		{"6 generic", MR, 0, func(d, s []float32, lds, k int) { packRowsGeneric(d, s, lds, MR, 0, k) }},
		{"16 generic", NR, 0, func(d, s []float32, lds, k int) { packRowsGeneric(d, s, lds, NR, 0, k) }},
	} {
		memSrc, memDst := guard.Floats(t, 80*80), guard.Floats(t, 70*NR+PackSlack)
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
						t.Fatalf("%s: k=%d lds=%d: element (%d,%d) = %g, want %g", p.name, k, lds, kk, i, got, want)
					}
				}
			}
		}
	}
}

// TestPackCols does the same for the copying packers, with several panels.
func TestPackCols(t *testing.T) {
	generic := func(cols int) func(d, s []float32, lds, panels, k int) {
		return func(d, s []float32, lds, panels, k int) { packColsGeneric(d, s, lds, cols, panels, k, cols*k) }
	}
	for _, p := range []struct {
		name string
		cols int
		pack func(dst, src []float32, lds, panels, k int)
	}{
		{"PackCols6", MR, PackCols6}, {"PackCols16", NR, PackCols16}, {"6 generic", MR, generic(MR)}, {"16 generic", NR, generic(NR)},
	} {
		memSrc, memDst := guard.Floats(t, 40*(4*NR+5)), guard.Floats(t, 40*4*NR)
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
						t.Fatalf("%s: k=%d lds=%d: panel %d (%d,%d) = %g, want %g", p.name, k, lds, q, kk, j, got, want)
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
	for name, call := range map[string]func(){
		"Tile k<0":          func() { Tile(-1, f(48), f(128), f(96), NR, false) },
		"Tile a":            func() { Tile(k, f(k*MR-1), f(k*NR), f(96), NR, false) },
		"Tile b":            func() { Tile(k, f(k*MR), f(k*NR-1), f(96), NR, false) },
		"Tile c":            func() { Tile(k, f(k*MR), f(k*NR), f(95), NR, false) },
		"Tile ldc":          func() { Tile(k, f(k*MR), f(k*NR), f(96), NR-1, false) },
		"PackRows6 dst":     func() { PackRows6(f(MR*k+PackSlack-1), f(MR*k), k, k) },
		"PackRows6 src":     func() { PackRows6(f(MR*k+PackSlack), f(MR*k-1), k, k) },
		"PackRows16 dst":    func() { PackRows16(f(NR*k-1), f(NR*k), k, k) },
		"PackRows16 stride": func() { PackRows16(f(NR*k), f(NR*k), k-1, k) },
		"PackCols6 src":     func() { PackCols6(f(MR*k), f(MR*k-1), MR, 1, k) },
		"PackCols6 k<0":     func() { PackCols6(f(MR*k), f(MR*k), MR, 1, -1) },
		"PackCols6 panels":  func() { PackCols6(f(2*MR*k), f(2*MR*k), MR, 2, k) },
		"PackCols6 both<0":  func() { PackCols6(f(MR*k), f(MR*k), MR, -1, -1) },
		"PackCols16 dst":    func() { PackCols16(f(NR*k-1), f(NR*k), NR, 1, k) },
		"PackCols16 stride": func() { PackCols16(f(NR*k), f(NR*k), NR-1, 1, k) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}

func TestFMAPeakCounts(t *testing.T) {
	for _, n := range []int{1, 2, 100} {
		if a, b := FMAPeak(n), FMAPeak(2*n); a <= 0 || b != 2*a {
			t.Errorf("FMAPeak(%d) reports %d operations, FMAPeak(%d) %d", n, a, 2*n, b)
		}
	}
}
