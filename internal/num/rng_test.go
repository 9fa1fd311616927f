package num

import (
	"math"
	"testing"
)

// The three published known-answer vectors of philox4x32-10 (Random123).
func TestPhiloxKnownAnswers(t *testing.T) {
	const f = 0xffffffff
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{f, f, f, f}, [2]uint32{f, f}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.ctr, c.key); got != c.want {
			t.Errorf("philox(%#x, %#x) = %#x, want %#x", c.ctr, c.key, got, c.want)
		}
	}
}

func TestKeyKeepsArgumentsApart(t *testing.T) {
	seen := map[uint64]string{}
	add := func(k uint64, what string) {
		if o, dup := seen[k]; dup {
			t.Errorf("%s and %s have the same key", o, what)
		}
		seen[k] = what
	}
	add(Key("a"), "a")
	add(Key("a", 0), "a,0")
	add(Key("a", 0, 0), "a,0,0")
	add(Key("b", 0), "b,0")
	add(Key("a", 1, 2), "a,1,2")
	add(Key("a", 2, 1), "a,2,1")
	add(Key("a", 3, 0), "a,3,0")
	add(Key("ab"), "ab")
	add(Key(""), "empty")
	for i := range uint64(10000) {
		add(Key("seed", i), "seed")
	}
}

// TestKeyAvalanche flips each bit of the seed: about half the key must change.
func TestKeyAvalanche(t *testing.T) {
	for bit := range 64 {
		sum := 0
		for s := range uint64(200) {
			x := Key("init", s) ^ Key("init", s^1<<bit)
			for ; x != 0; x &= x - 1 {
				sum++
			}
		}
		if m := float64(sum) / 200; m < 29 || m > 35 {
			t.Errorf("bit %d changes %.1f of 64 bits on average", bit, m)
		}
	}
}

var (
	goldenBits      = []uint64{0x4277b9ed97fe1950, 0xaf3fc3783203327b, 0x81a7629fb8fad509, 0xd72aa62cf3fe9787, 0xdac41a386c76558f}
	goldenNormal    = []float64{-0.64445758083620719, 0.48050747282992151, 0.016194394316108758, 0.99649241208280759, 1.0561702740716465}
	goldenTruncated = []float64{-0.4236560689374988, 0.3212822580350152, 0.011055484809553158, 0.62024586036283358, 0.6496809260971792}
)

// Golden values: a change here changes every initialisation.
func TestStreamGolden(t *testing.T) {
	if got, want := Key("weights", 7), uint64(0x82c4a1a56943052a); got != want {
		t.Errorf("Key = %#x, want %#x", got, want)
	}
	s := NewStream("weights", 7)
	for i, want := range goldenBits {
		if got := s.Uint64(uint64(i)); got != want {
			t.Errorf("Uint64(%d) = %#x, want %#x", i, got, want)
		}
	}
	for i, want := range goldenNormal {
		if got := s.Normal(uint64(i)); math.Abs(got-want) > 1e-14 {
			t.Errorf("Normal(%d) = %.17g, want %.17g", i, got, want)
		}
	}
	for i, want := range goldenTruncated {
		if got := s.Truncated(uint64(i), 1); math.Abs(got-want) > 1e-14 {
			t.Errorf("Truncated(%d, 1) = %.17g, want %.17g", i, got, want)
		}
	}
}

// TestNormalQuantile inverts the error function of the standard library, and
// checks published percentage points.
// TestBlocks: two at a time are two, also over the end of the low word, and they hold the
// values of Uint64.
func TestBlocks(t *testing.T) {
	s := NewStream("blocks", 3)
	for _, b := range []uint64{0, 1, 7, 1<<32 - 1, 1 << 40, 1<<64 - 1} {
		x, y := s.Blocks(b)
		if x != s.Block(b) || y != s.Block(b+1) {
			t.Errorf("blocks %d and the next: %x %x, one at a time %x %x", b, x, y, s.Block(b), s.Block(b+1))
		}
		if b < 1<<62 && (uint64(x[1])<<32|uint64(x[0]) != s.Uint64(2*b) || uint64(x[3])<<32|uint64(x[2]) != s.Uint64(2*b+1)) {
			t.Errorf("block %d is %x, its values %x %x", b, x, s.Uint64(2*b), s.Uint64(2*b+1))
		}
	}
}

func TestNormalQuantile(t *testing.T) {
	for _, c := range [][2]float64{{0.975, 1.959963984540054}, {0.995, 2.5758293035489004}, {0.5, 0}, {0.001, -3.090232306167813}, {1e-10, -6.361340902404056}} {
		if got := NormalQuantile(c[0]); math.Abs(got-c[1]) > 4e-15*max(1, math.Abs(c[1])) {
			t.Errorf("quantile(%v) = %.17g, want %.17g", c[0], got, c[1])
		}
	}
	for x := -8.0; x < 8; x += 0.01 {
		p := 0.5 * math.Erfc(-x/math.Sqrt2)
		// The slope of the quantile is 1/density; p itself is only good to 2^-53.
		slack := 1e-13 + 2e-16*max(p, 1e-300)*math.Sqrt(2*math.Pi)*math.Exp(x*x/2)
		if got := NormalQuantile(p); math.Abs(got-x) > slack*max(1, math.Abs(x)) {
			t.Errorf("quantile(P(%v)) = %v, off by %g", x, got, got-x)
		}
	}
	if !math.IsInf(NormalQuantile(0), -1) || !math.IsInf(NormalQuantile(1), 1) || !math.IsNaN(NormalQuantile(1.5)) || !math.IsNaN(NormalQuantile(math.NaN())) {
		t.Error("wrong values at or outside the ends")
	}
}

// TestMoments compares sample moments with the exact ones, at 5 standard errors.
func TestMoments(t *testing.T) {
	const n = 200000
	s := NewStream("moments", 1)
	moments := func(f func(i uint64) float64) (mean, variance, kurt float64) {
		for i := range uint64(n) {
			mean += f(i)
		}
		mean /= n
		for i := range uint64(n) {
			d := f(i) - mean
			variance += d * d
			kurt += d * d * d * d
		}
		variance /= n
		return mean, variance, kurt / n / variance / variance
	}
	check := func(what string, got, want, tol float64) {
		if math.Abs(got-want) > tol {
			t.Errorf("%s is %v, want %v +- %v", what, got, want, tol)
		}
	}
	r := math.Sqrt(n)
	m, v, k := moments(s.Float64)
	check("uniform mean", m, 0.5, 5*0.289/r)
	check("uniform variance", v, 1.0/12, 5*0.0745/r)
	check("uniform kurtosis", k, 1.8, 0.02)
	m, v, k = moments(s.Normal)
	check("normal mean", m, 0, 5/r)
	check("normal variance", v, 1, 5*1.4143/r)
	check("normal kurtosis", k, 3, 5*5/r)
	for _, limit := range []float64{1, 2, 3} {
		m, v, _ = moments(func(i uint64) float64 {
			x := s.Truncated(i, limit)
			if math.Abs(x) > limit {
				t.Fatalf("truncated at %v gave %v", limit, x)
			}
			return x
		})
		phi := math.Exp(-limit*limit/2) / math.Sqrt(2*math.Pi)
		check("truncated mean", m, 0, 5/r)
		check("truncated variance", v, 1-2*limit*phi/math.Erf(limit/math.Sqrt2), 5*1.4143/r)
	}
}

func TestUintn(t *testing.T) {
	s := NewStream("uintn")
	var count [7]int
	for i := range uint64(70000) {
		count[s.Uintn(i, 7)]++
	}
	for v, c := range count {
		if c < 9500 || c > 10500 {
			t.Errorf("value %d came %d times of 70000", v, c)
		}
	}
	if s.Uintn(3, 1) != 0 {
		t.Error("Uintn(_, 1) is not 0")
	}
}
