package asm

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"refrain/internal/num"
	"refrain/kernels/asm/guard"
)

// words returns n words, and halves n bfloat16 values, that end where an
// unreadable page begins.
func words(t testing.TB, n int) []uint32 {
	f := guard.Floats(t, n)
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(f))), n)
}

func guardHalves(t testing.TB, n int) []uint16 {
	f := guard.Floats(t, (n+1)/2)
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(f))), 2*len(f))[2*len(f)-n:]
}

// borders are float32 bits around which rounding changes its mind: each is
// tried with its neighbours and both signs.
var borders = []uint32{
	0, 0x8000, 0x18000, 0x7fff8000, 0x007f8000, 0x00800000, 0x007fffff, 0x3f808000, 0x3f818000,
	0x7f7f8000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fbfffff, 0x7fc00000, 0x7fffffff,
}

func bordering(r *rand.Rand) uint32 {
	return borders[r.IntN(len(borders))] + uint32(r.IntN(5)) - 2 ^ uint32(r.IntN(2))<<31
}

// TestConversions compares both sets with internal/num for all lengths up to 100,
// up against unreadable pages, and the generic one with all bfloat16 values.
func TestConversions(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	to := map[string]func([]uint16, []float32){"generic": toBF16Generic, "active": ToBF16}
	from := map[string]func([]float32, []uint16){"generic": fromBF16Generic, "active": FromBF16}
	memF, memH := guard.Floats(t, 3000), guardHalves(t, 3000)
	lengths := []int{1000, 1000, 3000, 3000}
	for n := range 100 {
		lengths = append(lengths, n, n)
	}
	for trial, n := range lengths {
		f, h := memF[len(memF)-n:], memH[len(memH)-n:]
		for name := range to {
			for i := range f {
				f[i] = math.Float32frombits(r.Uint32())
				if r.IntN(2) == 0 {
					f[i] = math.Float32frombits(bordering(r))
				}
				if trial%2 == 0 && f[i] != f[i] { // blocks with a NaN go another way
					f[i] = -0x1.01p-130
				}
			}
			to[name](h, f)
			for i := range f {
				if want := uint16(num.ToBF16(f[i])); h[i] != want {
					t.Fatalf("ToBF16 %s, n = %d: %#08x at %d became %#04x, want %#04x", name, n, math.Float32bits(f[i]), i, h[i], want)
				}
			}
			for i := range h {
				h[i] = uint16(r.Uint32())
			}
			from[name](f, h)
			for i := range h {
				if math.Float32bits(f[i]) != uint32(h[i])<<16 {
					t.Fatalf("FromBF16 %s, n = %d: %#04x at %d became %#08x", name, n, h[i], i, math.Float32bits(f[i]))
				}
			}
		}
	}
}

// element draws a bfloat16 from a family: 0 ordinary values, 1 all bits, 2 with
// products around the smallest normal number, 3 special values.
func element(r *rand.Rand, family int) uint16 {
	sign, mantissa := uint16(r.IntN(2))<<15, uint16(r.IntN(128))
	switch family {
	case 0:
		return sign | uint16(127-8+r.IntN(16))<<7 | mantissa
	case 1:
		return uint16(r.Uint32())
	case 2:
		return sign | uint16(61+r.IntN(5))<<7 | mantissa
	}
	special := [...]uint16{0, 1, 0x7f, 0x80, 0x81, 0x100, 0x3f80, 0x7f7f, 0x7f80, 0x7fc0}
	return sign | special[r.IntN(len(special))]
}

func halvesOf(r *rand.Rand, family, n int) []uint16 {
	x := make([]uint16, n)
	for i := range x {
		x[i] = element(r, family)
	}
	return x
}

// equalButNaN compares bits, except that one NaN is as good as another.
func equalButNaN(x, y float32) bool {
	return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
}

// TestTile16 compares every set with the plain Go tile, bit by bit, on ordinary and
// extreme operands that end at unreadable pages.
func TestTile16(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	for _, set := range TileSets16() {
		rows, cols := set.Rows(), set.Cols()
		for family := range 4 {
			for k := 0; k < 80; k += 1 + k%3 {
				x, y := halvesOf(r, family, rows*k), halvesOf(r, family, cols*k)
				a, b := words(t, rows*set.Words(k)), words(t, cols*set.Words(k))
				set.PackA(a, BF16Operand(x), k, false, rows, k)
				set.PackB(b, BF16Operand(y), k, false, cols, k)
				k2 := (k + 1) / 2
				plainA, plainB := make([]uint32, rows*k2), make([]uint32, cols*k2)
				packRows16Generic(plainA, rows, BF16Operand(x), k, 0, rows, 0, k)
				packRows16Generic(plainB, cols, BF16Operand(y), k, 0, cols, 0, k)
				for _, ldc := range []int{cols, cols + 1, 70} {
					got := guard.Floats(t, (rows-1)*ldc+cols)
					fill(r, got)
					want, old := append([]float32(nil), got...), append([]float32(nil), got...)
					set.Tile(set.Words(k), a, b, got, ldc, k%2 == 1)
					tile16Generic(rows, cols, k2, plainA, plainB, want, ldc, k%2 == 1)
					for i := range got {
						if i%ldc >= cols && got[i] != old[i] {
							t.Fatalf("%v: k=%d ldc=%d: gap behind row %d was written", set, k, ldc, i/ldc)
						}
						if !equalButNaN(got[i], want[i]) {
							t.Fatalf("%v: family %d, k=%d ldc=%d: c[%d,%d] = %#08x, plain %#08x", set, family, k, ldc, i/ldc, i%ldc,
								math.Float32bits(got[i]), math.Float32bits(want[i]))
						}
					}
				}
			}
		}
	}
}

// TestTileKeepsSubnormals: flushing ends with the pairs. The old value of C and the
// code after a tile keep subnormal numbers.
func TestTileKeepsSubnormals(t *testing.T) {
	for _, set := range TileSets16() {
		w := set.Words(2)
		c := make([]float32, MaxTile16)
		c[0] = 0x1p-140
		set.Tile(w, make([]uint32, w*set.Rows()), make([]uint32, w*set.Cols()), c, set.Cols(), true)
		after := []float32{0x1p-130}
		Scale(after, 0.5)
		if c[0] != 0x1p-140 || after[0] != 0x1p-131 {
			t.Errorf("%v: the old value 2^-140 became %g, 2^-130/2 later is %g", set, c[0], after[0])
		}
	}
}

// TestAddProduct pins the arithmetic by cases worked out by hand.
func TestAddProduct(t *testing.T) {
	const tiny, half = 0x1p-126, 0x1p-24
	for _, c := range []struct {
		acc  float32
		x, y float64
		want float32
	}{
		{1, half, 1, 1},                                    // a tie goes to even
		{1, half * (1 + 0x1p-7), 1, 1 + 0x1p-23},           // above the tie
		{1 + 0x1p-23, half, 1, 1 + 0x1p-22},                // a tie above an odd value
		{1, 0x1p-60, 0x1p-60, 1},                           // far below
		{tiny, tiny, -half / 2, tiny},                      // half a unit below: a tie to even
		{tiny, tiny, -half, 0},                             // a whole unit below: flushed
		{-tiny, tiny, half, float32(math.Copysign(0, -1))}, // with its sign
		{0, 0x1p-63, 0x1p-63, tiny},                        // the smallest that is kept
		{0, 0x1p-63, -0x1.fep-64, float32(math.Copysign(0, -1))},
		{0x1p127, 0x1p64, 0x1p63, float32(math.Inf(1))},
		{float32(math.Inf(-1)), 0x1p127, 0x1p127, float32(math.Inf(-1))}, // the product is exact, not infinite
		{1, 1, -1, 0},
	} {
		if got := addProduct(c.acc, c.x, c.y); math.Float32bits(got) != math.Float32bits(c.want) {
			t.Errorf("%g + %g*%g = %g, want %g", c.acc, c.x, c.y, got, c.want)
		}
	}
	if first, second := halves(0x80010001); math.Float64bits(first) != 0 || math.Float64bits(second) != 1<<63 {
		t.Errorf("subnormal halves became %g and %g, want +0 and -0", first, second)
	}
}

// TestTile16Order: the second element of a pair is added first, and the old value
// of C last.
func TestTile16Order(t *testing.T) {
	for _, set := range TileSets16() {
		multiply := func(old float32, accumulate bool, x ...float32) float32 {
			k := len(x)
			ones := make([]float32, k)
			for i := range ones {
				ones[i] = 1
			}
			a, b, c := make([]uint32, set.Words(k)*set.Rows()), make([]uint32, set.Words(k)*set.Cols()), make([]float32, MaxTile16)
			set.PackA(a, Float32Operand(x), k, false, 1, k)
			set.PackB(b, Float32Operand(ones), k, false, 1, k)
			c[0] = old
			set.Tile(set.Words(k), a, b, c, set.Cols(), accumulate)
			return c[0]
		}
		if got := multiply(-0x1p30, true, 1, 0x1p30); got != 0 {
			t.Errorf("%v: ((0 + 2^30) + 1) - 2^30 = %g, want 0: the pair comes before the old value", set, got)
		}
		if got := multiply(7, false, 0, 0x1p30, 1, -0x1p30); got != 1 {
			t.Errorf("%v: (2^30 - 2^30) + 1 = %g, want 1: the second element of a pair comes first", set, got)
		}
		if got := multiply(7, false, 0x1p30, 0, -0x1p30, 1); got != 0 {
			t.Errorf("%v: ((0 + 2^30) + 1) - 2^30 = %g, want 0: the first element of a pair comes second", set, got)
		}
	}
}

// TestFlushBorder: whether a sum is below the normal numbers is decided after
// rounding, in every set. From 2^-126, half a unit less rounds back to it, by a tie;
// any more is flushed.
func TestFlushBorder(t *testing.T) {
	for _, set := range TileSets16() {
		for _, c := range []struct{ x, y, want float32 }{
			{-0x1p-75, 0x1p-76, 0x1p-126},
			{-0x1p-75, 0x1.02p-76, 0},
			{-0x1p-75, 0x1p-75, 0},
			{0x1p-75, 0x1p-75, 0x1p-126},
			{-0x1p-63, 0x1p-63, 0},
		} {
			x, y := []float32{0, 0x1p-63, 0, c.x}, []float32{0, 0x1p-63, 0, c.y}
			a, b, out := make([]uint32, set.Words(4)*set.Rows()), make([]uint32, set.Words(4)*set.Cols()), make([]float32, MaxTile16)
			set.PackA(a, Float32Operand(x), 4, false, 1, 4)
			set.PackB(b, Float32Operand(y), 4, false, 1, 4)
			set.Tile(set.Words(4), a, b, out, set.Cols(), false)
			if out[0] != c.want {
				t.Errorf("%v: 2^-126 + %g*%g = %g, want %g", set, c.x, c.y, out[0], c.want)
			}
		}
	}
}

// TestCut: a panel that is cut is the one packed to that depth.
func TestCut(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 28))
	for _, set := range TileSets16() {
		cols := set.Cols()
		for k := 1; k < 20; k += 2 {
			src := BF16Operand(halvesOf(r, 1, cols*20))
			deep, want := make([]uint32, cols*set.Words(20)), make([]uint32, cols*set.Words(k))
			set.PackB(deep, src, 20, false, cols, 20)
			set.PackB(want, src, 20, false, cols, k)
			set.Cut(deep, k)
			for i := range want {
				if deep[i] != want[i] {
					t.Fatalf("%v: k=%d: word %d is %#08x, want %#08x", set, k, i, deep[i], want[i])
				}
			}
		}
	}
}

// TestPack16 checks the packers of every set, both ways round and for both kinds of
// storage, on sources and destinations that end at unreadable pages.
func TestPack16(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 26))
	memF, memH, memDst := guard.Floats(t, 1<<15), guardHalves(t, 1<<15), words(t, 1<<14)
	for _, set := range TileSets16() {
		for range 600 {
			lines, k := r.IntN(110), r.IntN(110)
			if r.IntN(3) == 0 {
				lines, k = lines/32*32, k/32*32
			}
			trans, half, left := r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(2) == 0
			rows, cols := lines, k
			if trans {
				rows, cols = k, lines
			}
			lds := cols + r.IntN(3)*r.IntN(8)
			need := 0
			if rows > 0 {
				need = (rows-1)*lds + cols
			}
			var src Operand
			at := func(i int) uint16 { return src.half[i] }
			if half {
				src = BF16Operand(memH[len(memH)-need:])
				for i := range src.half {
					src.half[i] = uint16(r.Uint32())
				}
			} else {
				src = Float32Operand(memF[len(memF)-need:])
				for i := range src.wide {
					src.wide[i] = math.Float32frombits(r.Uint32())
					if r.IntN(4) == 0 {
						src.wide[i] = math.Float32frombits(bordering(r))
					}
				}
				at = func(i int) uint16 { return uint16(num.ToBF16(src.wide[i])) }
			}
			width, pack := set.Cols(), set.PackB
			if left {
				width, pack = set.Rows(), set.PackA
			}
			n := set.Words(k)
			room := (lines + width - 1) / width * width * n
			dst := memDst[len(memDst)-room:]
			for i := range memDst {
				memDst[i] = 0xdeadbeef
			}
			pack(dst, src, lds, trans, lines, k)
			for i, got := range dst {
				line, w := i/(width*n)*width+i%width, i/width%n
				term := func(kk int) uint32 {
					switch {
					case line >= lines || kk >= k:
						return 0
					case trans:
						return uint32(at(kk*lds + line))
					}
					return uint32(at(line*lds + kk))
				}
				want := term(w) << 16
				if set.paired() {
					want = term(2*w) | term(2*w+1)<<16
				}
				if got != want {
					t.Fatalf("%v: width %d, lines=%d k=%d lds=%d trans=%t half=%t: line %d word %d is %#08x, want %#08x", set, width, lines, k, lds, trans, half, line, w, got, want)
				}
			}
			for i, v := range memDst[:len(memDst)-room] {
				if v != 0xdeadbeef {
					t.Fatalf("%v: width %d, lines=%d k=%d trans=%t: wrote %d words before the destination", set, width, lines, k, trans, len(memDst)-room-i)
				}
			}
		}
	}
}

// TestRejects16: what would let assembly leave the slices panics.
func TestRejects16(t *testing.T) {
	u := func(n int) []uint32 { return make([]uint32, n) }
	f := func(n int) []float32 { return make([]float32, n) }
	h := func(n int) Operand { return BF16Operand(make([]uint16, n)) }
	const k = 9
	for _, set := range TileSets16() {
		r, n, w := set.Rows(), set.Cols(), set.Words(k)
		calls := map[string]func(){
			"Tile words<0":    func() { set.Tile(-2, u(w*r), u(w*n), f(r*n), n, false) },
			"Tile a":          func() { set.Tile(w, u(w*r-1), u(w*n), f(r*n), n, false) },
			"Tile b":          func() { set.Tile(w, u(w*r), u(w*n-1), f(r*n), n, false) },
			"Tile c":          func() { set.Tile(w, u(w*r), u(w*n), f(r*n-1), n, false) },
			"Tile ldc":        func() { set.Tile(w, u(w*r), u(w*n), f(r*n), n-1, false) },
			"PackA dst":       func() { set.PackA(u(r*w-1), h(5*k), k, false, 5, k) },
			"PackA src":       func() { set.PackA(u(r*w), h(5*k-1), k, false, 5, k) },
			"PackA src trans": func() { set.PackA(u(r*w), h(5*k-1), 5, true, 5, k) },
			"PackA stride":    func() { set.PackA(u(r*w), h(5*k), k-1, false, 5, k) },
			"PackA lines<0":   func() { set.PackA(u(r*w), h(5*k), k, false, -1, k) },
			"PackB dst":       func() { set.PackB(u(2*n*w-1), h((n+1)*k), k, false, n+1, k) },
			"PackB k<0":       func() { set.PackB(u(n*w), h(5*k), k, false, 5, -1) },
			"PackB both<0":    func() { set.PackB(u(n*w), h(5*k), k, false, -5, -1) },
			"PackB stride":    func() { set.PackB(u(n*w), h(5*k), 4, true, 5, k) },
			"Cut short":       func() { set.Cut(u(n*w-1), k) },
			"ToBF16":          func() { ToBF16(make([]uint16, 40), f(39)) },
			"FromBF16":        func() { FromBF16(f(40), make([]uint16, 41)) },
		}
		if !set.paired() {
			calls["Tile odd"] = func() { set.Tile(w-1, u(w*r), u(w*n), f(r*n), n, false) }
		}
		for name, call := range calls {
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

// TestTileSets16: the best set comes first, and has a name to print.
func TestTileSets16(t *testing.T) {
	sets := TileSets16()
	if sets[0] != BestTiles16() {
		t.Errorf("TileSets16() starts with %v, BestTiles16() is %v", sets[0], BestTiles16())
	}
	for _, s := range sets {
		if s.String() == "none" || s.Rows()*s.Cols() > MaxTile16 {
			t.Errorf("set %d: %v has %d rows and %d columns", s.code, s, s.Rows(), s.Cols())
		}
	}
	t.Logf("%s: sets %v", Kernels(), sets)
	if n := testing.AllocsPerRun(10, func() { PeakBF16(10) }); n != 0 {
		t.Errorf("PeakBF16 allocates %v times", n)
	}
	for _, set := range TileSets16() {
		if a, b := set.Peak(10), set.Peak(20); a <= 0 || b != 2*a {
			t.Errorf("%v: Peak(10) reports %d operations, Peak(20) %d", set, a, b)
		}
	}
}
