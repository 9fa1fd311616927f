package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"refrain/internal/num"
	"refrain/internal/par"
	"refrain/kernels/asm"
	"refrain/kernels/asm/guard"
)

// halfOf rounds x to bfloat16 bits; wideOf is the way back.
func halfOf(x []float32) []uint16 {
	h := make([]uint16, len(x))
	asm.ToBF16(h, x)
	return h
}

func wideOf(h []uint16) []float32 {
	x := make([]float32, len(h))
	asm.FromBF16(x, h)
	return x
}

// runner16 is how one storage of the operands runs: the plan for a scratch and a
// pool, rounded or not, and the serial forms.
type runner16 struct {
	name   string
	plan   func(p *product, s *Scratch, set asm.Tiles16, pool *par.Pool, c []float32)
	round  func(p *product, s *Scratch, set asm.Tiles16, pool *par.Pool, c []uint16)
	serial func(p *product, s *Serial, c []float32)
	packed func(p *product, s *Serial, whole *product, room, c []float32)
}

func storage[A, B Elem](name string, a []A, b []B) runner16 {
	plan := func(p *product, s *Scratch, set asm.Tiles16, pool *par.Pool) *Plan16[A, B] {
		plan := newPlan16[A, B](s, set, pool, p.transA, p.transB, p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.accumulate)
		if plan.inline && pool.Threads() > 1 { // use the pool however small the product is
			plan.inline = false
			plan.divide(pool.Threads())
		}
		return plan
	}
	return runner16{
		name: name,
		plan: func(p *product, s *Scratch, set asm.Tiles16, pool *par.Pool, c []float32) {
			plan(p, s, set, pool).Run(a, b, c)
		},
		round: func(p *product, s *Scratch, set asm.Tiles16, pool *par.Pool, c []uint16) {
			q := *p
			q.accumulate = false
			plan(&q, s, set, pool).RunRounded(a, b, c)
		},
		serial: func(p *product, s *Serial, c []float32) {
			Gemm16(s, p.transA, p.transB, p.m, p.n, p.k, a, p.lda, b, p.ldb, p.accumulate, c, p.ldc)
		},
		packed: func(p *product, s *Serial, whole *product, room, c []float32) {
			packed := packB16(s.tiles16, room, whole.transB, whole.n, whole.k, b, whole.ldb)
			GemmPacked16(s, p.transA, p.m, p.n, p.k, a, p.lda, packed, p.accumulate, c, p.ldc)
		},
	}
}

// bf16 is a named type, as internal/num has one.
type bf16 = num.BF16

// storages returns a and b in all four pairs of storage, which must give the same
// bits.
func storages(a, b []float32) []runner16 {
	ah, bh := halfOf(a), halfOf(b)
	named := make([]bf16, len(ah))
	for i, h := range ah {
		named[i] = bf16(h)
	}
	return []runner16{storage("f32 f32", a, b), storage("f32 bf16", a, bh), storage("bf16 f32", named, b), storage("bf16 bf16", ah, bh)}
}

func serial16(s *Scratch, set asm.Tiles16) *Serial {
	g := NewSerial(s)
	g.tiles16 = set
	return g
}

// within reports whether got can be the float32 sum, pair by pair, of products of
// bfloat16 values whose float64 sum is want and whose magnitudes sum to mass.
//
// Products are exact. Of k terms at most k sums are rounded, and one more for every
// part of at least 32 terms and for the old value, each to 2^-24 of a partial sum
// that is at most mass: the error is below (k + k/32 + 2) * 2^-24 * mass, to first
// order (Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, section
// 4.2); the factor 1.01 covers the higher orders. Flushing adds at most 2^-126 a sum.
func within(got float32, want, mass float64, k int) bool {
	steps := float64(k + k/32 + 2)
	return math.Abs(float64(got)-want) <= steps*(0x1p-24*mass+0x1p-126)*1.01
}

// reference returns C in float64 for operands that are bfloat16 already, and the
// sum of the magnitudes of each element's terms.
func reference(p *product, a, b, c []float32) (want, mass []float64) {
	want, mass = make([]float64, len(c)), make([]float64, len(c))
	for i := range p.m {
		for j := range p.n {
			var sum, abs float64
			if p.accumulate {
				sum = float64(c[i*p.ldc+j])
				abs = math.Abs(sum)
			}
			for kk := range p.k {
				x, y := i*p.lda+kk, kk*p.ldb+j
				if p.transA {
					x = kk*p.lda + i
				}
				if p.transB {
					y = j*p.ldb + kk
				}
				term := float64(a[x]) * float64(b[y])
				sum += term
				abs += math.Abs(term)
			}
			want[i*p.ldc+j], mass[i*p.ldc+j] = sum, abs
		}
	}
	return want, mass
}

// check16 runs p in every storage, with every set of tiles, serially and on the
// pools, and compares: close to float64, equal bits among themselves, rounding once,
// nothing written between the rows of C.
func check16(p *product, sizes blocking, pools []*par.Pool, a, b, c []float32) error {
	want, mass := reference(p, wideOf(halfOf(a)), wideOf(halfOf(b)), c)
	var first []float32
	scratch := newScratch(len(pools), nil, sizes, asm.BestTiles())
	for _, set := range asm.TileSets16() {
		for _, s := range storages(a, b) {
			got := clone(c)
			s.serial(p, serial16(scratch, set), got)
			if first == nil {
				first = got
				for i, v := range got {
					if i%p.ldc >= p.n && v != c[i] {
						return fmt.Errorf("%v: gap behind row %d of C was written", p, i/p.ldc)
					}
					if i%p.ldc < p.n && !within(v, want[i], mass[i], p.k) {
						return fmt.Errorf("%v: C[%d] = %g, want %g", p, i, v, want[i])
					}
				}
			}
			if i := differ(got, first); i >= 0 {
				return fmt.Errorf("%v: %v, %s: serial C[%d] = %g, first %g", p, set, s.name, i, got[i], first[i])
			}
			for _, pool := range pools {
				copy(got, c)
				s.plan(p, scratch, set, pool, got)
				if i := differ(got, first); i >= 0 {
					return fmt.Errorf("%v: %v, %s, %d threads: C[%d] = %g, serial %g", p, set, s.name, pool.Threads(), i, got[i], first[i])
				}
			}
			if err := checkRounded(p, scratch, set, pools, &s, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkRounded compares RunRounded with the float32 product, rounded.
func checkRounded(p *product, scratch *Scratch, set asm.Tiles16, pools []*par.Pool, s *runner16, c []float32) error {
	q := *p
	q.accumulate = false
	sums := clone(c)
	s.serial(&q, serial16(scratch, set), sums)
	for _, pool := range pools {
		got := make([]uint16, len(c))
		for i := range got {
			got[i] = 0xaaaa
		}
		s.round(p, scratch, set, pool, got)
		for i, v := range got {
			want := uint16(num.ToBF16(sums[i]))
			if i%p.ldc >= p.n {
				want = 0xaaaa
			}
			if v != want && !(sums[i] != sums[i] && num.BF16(v).Float32() != num.BF16(v).Float32()) {
				return fmt.Errorf("%v: %v, %s, %d threads: rounded C[%d] is %#04x, want %#04x of %g", p, set, s.name, pool.Threads(), i, v, want, sums[i])
			}
		}
	}
	return nil
}

// differ is sameBits, except that one NaN is as good as another.
func differ(x, y []float32) int {
	for i := range x {
		if math.Float32bits(x[i]) != math.Float32bits(y[i]) && (x[i] == x[i] || y[i] == y[i]) {
			return i
		}
	}
	return -1
}

func pools(t testing.TB) []*par.Pool {
	return []*par.Pool{newPool(t, 1), newPool(t, 2), newPool(t, 3), newPool(t, 4)}
}

// TestProducts16 multiplies random shapes in all forms and storages.
func TestProducts16(t *testing.T) {
	pools := pools(t)
	for name, size := range map[string]blocking{"measured": measured, "small": small} {
		t.Run(name, func(t *testing.T) {
			rounds := 8
			if testing.Short() {
				rounds = 2
			}
			r := rand.New(rand.NewPCG(31, 32))
			for range rounds {
				p := random(r, 90, 150)
				a, b, c := operands(r, p, func(n int) []float32 { return make([]float32, n) })
				if err := check16(p, size, pools, a, b, c); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestProperties16 lets rapid look for shapes and extreme values that break
// equality, and shrinks what it finds.
func TestProperties16(t *testing.T) {
	pools := pools(t)[:2]
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(0, 34)
		p := &product{
			transA: rapid.Bool().Draw(rt, "transA"), transB: rapid.Bool().Draw(rt, "transB"), accumulate: rapid.Bool().Draw(rt, "accumulate"),
			m: size.Draw(rt, "m"), n: size.Draw(rt, "n"), k: rapid.IntRange(0, 40).Draw(rt, "k"),
		}
		p.stride(rapid.IntRange(0, 3).Draw(rt, "gap"))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		a, b, c := operands(r, p, func(n int) []float32 { return make([]float32, n) })
		for range rapid.IntRange(0, 3).Draw(rt, "extremes") {
			special := rapid.SampledFrom([]uint32{0x00000001, 0x807fffff, 0x007f8000, 0x00800000, 0x9fc00000, 0x7f7f0000}).Draw(rt, "bits")
			for _, x := range [][]float32{a, b} {
				if len(x) > 0 {
					x[rapid.IntRange(0, len(x)-1).Draw(rt, "at")] = math.Float32frombits(special)
				}
			}
		}
		want, _ := reference(p, wideOf(halfOf(a)), wideOf(halfOf(b)), c)
		for _, w := range want {
			if !(math.Abs(w) <= 1e37) {
				rt.Skip("infinities have no bound to check")
			}
		}
		if err := check16(p, small, pools, a, b, c); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestDeepProducts16 crosses the borders of depth and of the room for B: 512 terms a
// part, and more of k than the packing buffer takes for a chunk.
func TestDeepProducts16(t *testing.T) {
	pools := pools(t)[:2]
	r := rand.New(rand.NewPCG(33, 34))
	for _, c := range []struct {
		p    product
		size blocking
	}{
		{product{m: 13, n: 35, k: 513, transB: true}, measured},
		{product{m: 30, n: 33, k: 1700, transA: true, accumulate: true}, measured},
		{product{m: 26, n: 300, k: 333}, small},
		{product{m: 13, n: 40, k: 353}, small},
	} {
		p := &c.p
		p.stride(1)
		a, b, out := operands(r, p, func(n int) []float32 { return make([]float32, n) })
		if err := check16(p, c.size, pools, a, b, out); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExtremes16: infinities and NaN reach exactly the elements that they are terms
// of, in every storage and set, and an overflow becomes an infinity.
func TestExtremes16(t *testing.T) {
	pools := pools(t)[:2]
	r := rand.New(rand.NewPCG(35, 36))
	inf := float32(math.Inf(1))
	for _, v := range []float32{inf, -inf, float32(math.NaN()), math.MaxFloat32, 1e-45, -1e-39} {
		for _, transA := range []bool{false, true} {
			p := &product{transA: transA, m: 30, n: 40, k: 37}
			p.stride(0)
			a, b, c := operands(r, p, func(n int) []float32 { return make([]float32, n) })
			want, _ := reference(p, wideOf(halfOf(a)), wideOf(halfOf(b)), c)
			const row, col = 17, 35
			at := row*p.lda + p.k - 1
			if transA {
				at = (p.k-1)*p.lda + row
			}
			a[at], b[(p.k-1)*p.ldb+col] = v, 2
			scratch := newScratch(2, nil, small, asm.BestTiles())
			var first []float32
			for _, set := range asm.TileSets16() {
				for _, s := range storages(a, b) {
					got := clone(c)
					s.plan(p, scratch, set, pools[1], got)
					if first == nil {
						first = got
					}
					if i := differ(got, first); i >= 0 {
						t.Fatalf("%g in A: %v, %s: C[%d] = %g, first %g", v, set, s.name, i, got[i], first[i])
					}
				}
			}
			for i, x := range first {
				hit := i/p.ldc == row
				if finite := !(math.IsInf(float64(x), 0) || x != x); hit == finite && math.Abs(float64(v)) > 1 || v != v && hit == (x == x) {
					if !(v == math.MaxFloat32 && hit && i%p.ldc != col) { // times less than 1/2 it may stay finite
						t.Fatalf("%g in row %d of A: C[%d,%d] = %g", v, row, i/p.ldc, i%p.ldc, x)
					}
				}
				if !hit && i%p.ldc != col && !within(x, want[i], 10, p.k) {
					t.Fatalf("%g in row %d of A changed C[%d,%d] to %g, want %g", v, row, i/p.ldc, i%p.ldc, x, want[i])
				}
			}
		}
	}
}

// TestPacked16: parts of a packed B give the bits of Gemm16 on that part, even
// with NaN in the rows that are left out, and the packing buffer may end at an
// unreadable page.
func TestPacked16(t *testing.T) {
	r := rand.New(rand.NewPCG(37, 38))
	for n, set := range asm.TileSets16() {
		serial := serial16(newScratch(1, nil, []blocking{measured, small}[n%2], asm.BestTiles()), set)
		for range 40 {
			p := random(r, 90, 120)
			a, b, c := operands(r, p, func(n int) []float32 { return make([]float32, n) })
			for range 3 {
				q := *p
				if !p.transA {
					q.k = r.IntN(p.k + 1)
				}
				q.n = r.IntN(p.n + 1)
				poisoned := clone(b)
				for kk := q.k; kk < p.k; kk++ {
					for j := range p.n {
						at := kk*p.ldb + j
						if p.transB {
							at = j*p.ldb + kk
						}
						poisoned[at] = float32(math.NaN())
					}
				}
				for _, s := range storages(a, poisoned) {
					want, got := clone(c), clone(c)
					s.serial(&q, serial, want)
					s.packed(&q, serial, p, guard.Floats(t, packedLen16(set, p.n, p.k)), got)
					if i := sameBits(got, want); i >= 0 {
						t.Fatalf("%v of n=%d k=%d: %v, %s: C[%d] = %g, Gemm16 %g", &q, p.n, p.k, set, s.name, i, got[i], want[i])
					}
				}
			}
		}
	}
}

// TestGuardPage16: operands, buffers and result end at unreadable pages.
func TestGuardPage16(t *testing.T) {
	r := rand.New(rand.NewPCG(39, 40))
	pools := pools(t)[:2]
	s := newScratch(2, func(n int) []float32 { return guard.Floats(t, n) }, small, asm.BestTiles())
	for _, set := range asm.TileSets16() {
		for range 15 {
			p := random(r, 120, 150)
			a, b, c := operands(r, p, func(n int) []float32 { return guard.Floats(t, n) })
			run := storage("f32 f32", a, b)
			run.plan(p, s, set, pools[1], c)
			run.serial(p, serial16(s, set), c)
		}
	}
}

// TestRowsDoNotDependOnM16: a row of C has the same bits in a product of any height,
// and a column in one of any width, rounded or not.
func TestRowsDoNotDependOnM16(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 44))
	pool := newPool(t, 2)
	s := newScratch(2, nil, small, asm.BestTiles())
	set := asm.BestTiles16()
	for _, transB := range []bool{false, true} {
		whole := &product{transB: transB, m: 61, n: 75, k: 77}
		whole.stride(0)
		a, b, c := operands(r, whole, func(n int) []float32 { return make([]float32, n) })
		storage("", a, b).plan(whole, s, set, pool, c)
		for range 20 {
			part := *whole
			from := r.IntN(whole.m)
			part.m, part.n = 1+r.IntN(whole.m-from), 1+r.IntN(whole.n)
			part.ldc = part.n
			run := storage("", a[from*part.lda:], b)
			got, half := make([]float32, part.m*part.n), make([]uint16, part.m*part.n)
			run.plan(&part, s, set, pool, got)
			run.round(&part, s, set, pool, half)
			for i, v := range got {
				want := c[(from+i/part.n)*whole.ldc+i%part.n]
				if math.Float32bits(v) != math.Float32bits(want) || half[i] != uint16(num.ToBF16(want)) {
					t.Fatalf("transB=%t: rows %d to %d of %d columns: element %d is %g and %#04x, in the whole %g", transB, from, from+part.m, part.n, i, v, half[i], want)
				}
			}
		}
	}
}

// TestRejects16: shapes and slices that would let assembly leave the slices.
func TestRejects16(t *testing.T) {
	pool := newPool(t, 2)
	s := NewScratch(2, nil)
	f := func(n int) []float32 { return make([]float32, n) }
	h := func(n int) []uint16 { return make([]uint16, n) }
	plan := func(accumulate bool) *Plan16[float32, uint16] {
		return NewPlan16[float32, uint16](s, pool, false, false, 4, 5, 6, 6, 5, 5, accumulate)
	}
	for name, call := range map[string]func(){
		"m < 0":       func() { NewPlan16[float32, float32](s, pool, false, false, -1, 2, 2, 2, 2, 2, false) },
		"lda":         func() { NewPlan16[float32, float32](s, pool, false, false, 4, 5, 6, 5, 5, 5, false) },
		"few buffers": func() { NewPlan16[uint16, uint16](NewScratch(1, nil), pool, false, false, 4, 5, 6, 6, 5, 5, false) },
		"short a":     func() { plan(false).Run(f(23), h(30), f(20)) },
		"short b":     func() { plan(false).Run(f(24), h(29), f(20)) },
		"short c":     func() { plan(false).Run(f(24), h(30), f(19)) },
		"short c16":   func() { plan(false).RunRounded(f(24), h(30), h(19)) },
		"accumulate":  func() { plan(true).RunRounded(f(24), h(30), h(20)) },
		"serial c":    func() { Gemm16(NewSerial(s), false, false, 4, 5, 6, f(24), 6, h(30), 5, false, f(19), 5) },
		"packed room": func() { PackB16(f(PackedLen16(5, 6)-1), false, 5, 6, h(30), 5) },
		"packed b":    func() { PackB16(f(PackedLen16(5, 6)), false, 5, 6, h(29), 5) },
		"packed n": func() {
			GemmPacked16(NewSerial(s), false, 4, 6, 6, f(24), 6, PackB16(f(PackedLen16(5, 6)), false, 5, 6, h(30), 5), false, f(24), 6)
		},
		"packed k": func() {
			GemmPacked16(NewSerial(s), false, 4, 5, 7, f(28), 7, PackB16(f(PackedLen16(5, 6)), false, 5, 6, h(30), 5), false, f(20), 5)
		},
		"packed a": func() {
			GemmPacked16(NewSerial(s), false, 4, 5, 6, f(23), 6, PackB16(f(PackedLen16(5, 6)), false, 5, 6, h(30), 5), false, f(20), 5)
		},
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

func TestNoAllocations16(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	pool := newPool(t, 2)
	s := NewScratch(2, nil)
	p := &product{transB: true, m: 200, n: 190, k: 80}
	p.stride(0)
	a, b, c := operands(r, p, func(n int) []float32 { return make([]float32, n) })
	bh, ch, room := halfOf(b), make([]uint16, len(c)), make([]float32, PackedLen16(p.n, p.k))
	plan, serial := NewPlan16[float32, uint16](s, pool, p.transA, p.transB, p.m, p.n, p.k, p.lda, p.ldb, p.ldc, false), NewSerial(s)
	if plan.inline {
		t.Error("the product is too small to use the pool")
	}
	for name, call := range map[string]func(){
		"Run":        func() { plan.Run(a, bh, c) },
		"RunRounded": func() { plan.RunRounded(a, bh, ch) },
		"Gemm16":     func() { Gemm16(serial, p.transA, p.transB, p.m, p.n, p.k, a, p.lda, bh, p.ldb, false, c, p.ldc) },
		"PackB16": func() {
			GemmPacked16(serial, p.transA, p.m, p.n, p.k, a, p.lda, PackB16(room, p.transB, p.n, p.k, b, p.ldb), false, c, p.ldc)
		},
	} {
		if n := testing.AllocsPerRun(20, call); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
