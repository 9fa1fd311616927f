package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"refrain/internal/par"
	"refrain/kernels/asm"
	"refrain/kernels/asm/guard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newPool(t testing.TB, threads int) *par.Pool {
	p := par.New(threads)
	t.Cleanup(p.Close)
	return p
}

// small blocks make products of a hundred rows run through every loop: several
// blocks of rows, of columns and of depth, and chunks to take over.
var small = blocking{mc: 24, kc: 32, nc: 160}

func fill(r *rand.Rand, x []float32) {
	for i := range x {
		x[i] = r.Float32() - 0.5
	}
}

// operands allocates A, B and C for p and fills A and B.
func operands(r *rand.Rand, p *product, alloc func(n int) []float32) (a, b, c []float32) {
	a, b, c = alloc(p.needA()), alloc(p.needB()), alloc(p.needC())
	fill(r, a)
	fill(r, b)
	fill(r, c)
	return a, b, c
}

// random returns a product with all forms, gaps between rows now and then.
func random(r *rand.Rand, maxMN, maxK int) *product {
	p := &product{
		transA: r.IntN(2) == 1, transB: r.IntN(2) == 1, accumulate: r.IntN(2) == 1,
		m: 1 + r.IntN(maxMN), n: 1 + r.IntN(maxMN), k: 1 + r.IntN(maxK),
	}
	p.stride(r.IntN(2) * r.IntN(9))
	return p
}

func (p *product) stride(gap int) {
	_, colsA := p.shapeA()
	_, colsB := p.shapeB()
	p.lda, p.ldb, p.ldc = colsA+gap, colsB+2*gap, p.n+gap
}

func (p *product) plan(s *Scratch, pool *par.Pool) *Plan {
	return NewPlan(s, pool, p.transA, p.transB, p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.accumulate)
}

// parallel returns a plan that uses the pool however small the product is.
func (p *product) parallel(s *Scratch, pool *par.Pool) *Plan {
	plan := p.plan(s, pool)
	if plan.inline && p.m > 0 && p.n > 0 && p.k > 0 {
		plan.inline = false
		plan.depth, plan.height = s.size.depth(p.k), s.size.rows(p.m, pool.Threads(), s.tiles.Rows())
		plan.blocks = ceil(p.m, plan.height)
		plan.taken = make([]counter, plan.blocks)
	}
	return plan
}

func (p *product) naive(a, b, c []float32) {
	Naive(p.transA, p.transB, p.m, p.n, p.k, a, p.lda, b, p.ldb, p.accumulate, c, p.ldc)
}

func (p *product) String() string {
	return fmt.Sprintf("m=%d n=%d k=%d transA=%t transB=%t accumulate=%t lda=%d ldb=%d ldc=%d",
		p.m, p.n, p.k, p.transA, p.transB, p.accumulate, p.lda, p.ldb, p.ldc)
}

func clone(x []float32) []float32 { return append([]float32(nil), x...) }

// sameBits returns the first index at which x and y differ, or -1.
func sameBits(x, y []float32) int {
	for i := range x {
		if math.Float32bits(x[i]) != math.Float32bits(y[i]) {
			return i
		}
	}
	return -1
}

// TestAgainstFloat64 multiplies random shapes in all forms with 1, 2 and 3
// threads, serially and with every set of tiles: close to float64, equal bits
// among themselves, and no write between the rows of C.
func TestAgainstFloat64(t *testing.T) {
	for name, size := range map[string]blocking{"measured": measured, "small": small} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			pools := []*par.Pool{newPool(t, 1), newPool(t, 2), newPool(t, 3)}
			var scratches []*Scratch
			for _, tiles := range asm.TileSets() {
				scratches = append(scratches, newScratch(3, nil, size, tiles))
			}
			serial := NewSerial(scratches[0])
			rounds := 60
			if testing.Short() {
				rounds = 20
			}
			for range rounds {
				p := random(r, 200, 700)
				a, b, c := operands(r, p, func(n int) []float32 { return make([]float32, n) })
				want, first := clone(c), clone(c)
				p.naive(a, b, want)
				serial.Gemm(p.transA, p.transB, p.m, p.n, p.k, a, p.lda, b, p.ldb, p.accumulate, first, p.ldc)
				for i, v := range first {
					if i%p.ldc >= p.n && v != c[i] {
						t.Fatalf("%v: gap behind row %d of C was written", p, i/p.ldc)
					}
					if d := math.Abs(float64(v) - float64(want[i])); !(d <= 1e-4) {
						t.Fatalf("%v: C[%d] = %g, want %g", p, i, v, want[i])
					}
				}
				for _, s := range scratches {
					for _, pool := range pools {
						got := clone(c)
						p.parallel(s, pool).Run(a, b, got)
						if i := sameBits(got, first); i >= 0 {
							t.Fatalf("%v: %v, %d threads: C[%d] = %g, serial %v %g", p, s.tiles, pool.Threads(), i, got[i], serial.tiles, first[i])
						}
					}
				}
			}
		})
	}
}

// genericTiles is the last set, which every build has.
func genericTiles() asm.Tiles { sets := asm.TileSets(); return sets[len(sets)-1] }

// TestGuardPage: operands and result end at unreadable pages.
func TestGuardPage(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	pool := newPool(t, 2)
	for _, tiles := range asm.TileSets() {
		s := newScratch(2, func(n int) []float32 { return guard.Floats(t, n) }, small, tiles)
		serial := NewSerial(s)
		for range 40 {
			p := random(r, 120, 150)
			a, b, c := operands(r, p, func(n int) []float32 { return guard.Floats(t, n) })
			p.parallel(s, pool).Run(a, b, c)
			serial.Gemm(p.transA, p.transB, p.m, p.n, p.k, a, p.lda, b, p.ldb, p.accumulate, c, p.ldc)
		}
	}
}

// TestRowsDoNotDependOnM: a row of C has the same bits in a product of any
// height, and a column in one of any width.
func TestRowsDoNotDependOnM(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	pool := newPool(t, 2)
	s := newScratch(2, nil, small, asm.BestTiles())
	for _, transB := range []bool{false, true} {
		whole := &product{transB: transB, m: 97, n: 75, k: 90}
		whole.stride(0)
		a, b, c := operands(r, whole, func(n int) []float32 { return make([]float32, n) })
		whole.parallel(s, pool).Run(a, b, c)
		for m := 1; m <= whole.m; m += 5 {
			for _, from := range []int{0, 1, whole.m - m} {
				part := *whole
				part.m = min(m, whole.m-from)
				got := make([]float32, part.m*part.n)
				part.parallel(s, pool).Run(a[from*part.lda:], b, got)
				if i := sameBits(got, c[from*part.n:]); i >= 0 {
					t.Fatalf("transB=%t: %d rows from row %d on: element %d differs", transB, part.m, from, i)
				}
			}
		}
		for n := 1; n <= whole.n; n += 7 {
			part := *whole
			part.n, part.ldc = n, n
			got := make([]float32, part.m*n)
			part.parallel(s, pool).Run(a, b, got)
			for i := range part.m {
				if j := sameBits(got[i*n:(i+1)*n], c[i*whole.n:]); j >= 0 {
					t.Fatalf("transB=%t: %d columns: element (%d,%d) differs", transB, n, i, j)
				}
			}
		}
	}
}

// TestDegenerate: sizes 0 and 1.
func TestDegenerate(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	pool := newPool(t, 2)
	s := NewScratch(2, nil)
	serial := NewSerial(s)
	for _, m := range []int{0, 1, 7} {
		for _, n := range []int{0, 1, 17} {
			for _, k := range []int{0, 1, 9} {
				for flags := range 8 {
					p := &product{transA: flags&1 > 0, transB: flags&2 > 0, accumulate: flags&4 > 0, m: m, n: n, k: k}
					p.stride(1)
					a, b, c := operands(r, p, func(n int) []float32 { return make([]float32, n) })
					want, got := clone(c), clone(c)
					p.naive(a, b, want)
					p.parallel(s, pool).Run(a, b, got)
					serial.Gemm(p.transA, p.transB, m, n, k, a, p.lda, b, p.ldb, p.accumulate, c, p.ldc)
					for i := range want {
						if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= 1e-5) {
							t.Fatalf("%v: C[%d] = %g, want %g", p, i, got[i], want[i])
						}
					}
					if i := sameBits(got, c); i >= 0 {
						t.Fatalf("%v: plan and serial differ at %d", p, i)
					}
				}
			}
		}
	}
}

// TestRejects: arguments that would let assembly leave the slices, and shapes
// that are no matrices.
func TestRejects(t *testing.T) {
	pool := newPool(t, 2)
	s := NewScratch(2, nil)
	f := func(n int) []float32 { return make([]float32, n) }
	for name, call := range map[string]func(){
		"m < 0":          func() { NewPlan(s, pool, false, false, -1, 2, 2, 2, 2, 2, false) },
		"lda":            func() { NewPlan(s, pool, false, false, 4, 5, 6, 5, 5, 5, false) },
		"lda transposed": func() { NewPlan(s, pool, true, false, 4, 5, 6, 3, 5, 5, false) },
		"ldb":            func() { NewPlan(s, pool, false, false, 4, 5, 6, 6, 4, 5, false) },
		"ldb transposed": func() { NewPlan(s, pool, false, true, 4, 5, 6, 6, 5, 5, false) },
		"ldc":            func() { NewPlan(s, pool, false, false, 4, 5, 6, 6, 5, 4, false) },
		"few buffers":    func() { NewPlan(NewScratch(1, nil), pool, false, false, 4, 5, 6, 6, 5, 5, false) },
		"no threads":     func() { NewScratch(0, nil) },
		"short a":        func() { NewPlan(s, pool, false, false, 4, 5, 6, 6, 5, 5, false).Run(f(23), f(30), f(20)) },
		"short b":        func() { NewPlan(s, pool, false, false, 4, 5, 6, 6, 5, 5, false).Run(f(24), f(29), f(20)) },
		"packed room":    func() { PackB(f(PackedLen(5, 6)-1), false, 5, 6, f(30), 5) },
		"packed short b": func() { PackB(f(PackedLen(5, 6)), false, 5, 6, f(29), 5) },
		"packed n": func() {
			NewSerial(s).GemmPacked(false, 4, 6, 6, f(24), 6, PackB(f(PackedLen(5, 6)), false, 5, 6, f(30), 5), false, f(24), 6)
		},
		"packed k": func() {
			NewSerial(s).GemmPacked(false, 4, 5, 7, f(28), 7, PackB(f(PackedLen(5, 6)), false, 5, 6, f(30), 5), false, f(20), 5)
		},
		"packed short a": func() {
			NewSerial(s).GemmPacked(false, 4, 5, 6, f(23), 6, PackB(f(PackedLen(5, 6)), false, 5, 6, f(30), 5), false, f(20), 5)
		},
		"packed for others": func() {
			g := newScratch(1, nil, small, genericTiles())
			b := packB(asm.Tiles{}, nil, false, 0, 6, nil, 0)
			b.n = 5
			NewSerial(g).GemmPacked(false, 4, 5, 6, f(24), 6, b, false, f(20), 5)
		},
		"packed short c": func() {
			NewSerial(s).GemmPacked(false, 4, 5, 6, f(24), 6, PackB(f(PackedLen(5, 6)), false, 5, 6, f(30), 5), false, f(19), 5)
		},
		"short c": func() { NewSerial(s).Gemm(false, false, 4, 5, 6, f(24), 6, f(30), 5, false, f(19), 5) },
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

// TestPacked: parts of a packed B give the bits of Gemm on that part, and the
// packing buffer may end at an unreadable page.
func TestPacked(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for n, tiles := range asm.TileSets() {
		serial := NewSerial(newScratch(1, nil, []blocking{measured, small}[n%2], tiles))
		for range 60 {
			p := random(r, 120, 150)
			a, b, c := operands(r, p, func(n int) []float32 { return make([]float32, n) })
			packed := packB(tiles, guard.Floats(t, packedLen(tiles, p.n, p.k)), p.transB, p.n, p.k, b, p.ldb)
			for range 3 {
				q := *p
				if !p.transA {
					q.k = r.IntN(p.k + 1)
				}
				q.n = r.IntN(p.n + 1)
				want, got := clone(c), clone(c)
				serial.Gemm(q.transA, q.transB, q.m, q.n, q.k, a, q.lda, b, q.ldb, q.accumulate, want, q.ldc)
				serial.GemmPacked(q.transA, q.m, q.n, q.k, a, q.lda, packed, q.accumulate, got, q.ldc)
				if i := sameBits(got, want); i >= 0 {
					t.Fatalf("%v of n=%d k=%d: C[%d] = %g, Gemm %g", &q, p.n, p.k, i, got[i], want[i])
				}
			}
		}
	}
}

func TestNoAllocations(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	pool := newPool(t, 2)
	s := NewScratch(2, nil)
	p := &product{transB: true, m: 100, n: 90, k: 80}
	p.stride(0)
	a, b, c := operands(r, p, func(n int) []float32 { return make([]float32, n) })
	plan, serial := p.parallel(s, pool), NewSerial(s)
	if n := testing.AllocsPerRun(20, func() { plan.Run(a, b, c) }); n != 0 {
		t.Errorf("Plan.Run allocates %v times", n)
	}
	room := make([]float32, PackedLen(p.n, p.k))
	if n := testing.AllocsPerRun(20, func() {
		serial.GemmPacked(p.transA, p.m, p.n, p.k, a, p.lda, PackB(room, p.transB, p.n, p.k, b, p.ldb), p.accumulate, c, p.ldc)
	}); n != 0 {
		t.Errorf("PackB and GemmPacked allocate %v times", n)
	}
	if n := testing.AllocsPerRun(20, func() {
		serial.Gemm(p.transA, p.transB, p.m, p.n, p.k, a, p.lda, b, p.ldb, p.accumulate, c, p.ldc)
	}); n != 0 {
		t.Errorf("Serial.Gemm allocates %v times", n)
	}
}
