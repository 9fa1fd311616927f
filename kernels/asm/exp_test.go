package asm

import (
	"math"
	"testing"
)

// The arguments with finite results that are not 0: -123.5*ln2, as x*log2e with
// log2e in float32 puts it, and the logarithm of the largest float32.
const expLow, expHigh = -85.60365, 88.72283173

// expBoth evaluates exp(x) with both sets.
func expBoth(x float32) map[string]float32 {
	a, b := make([]float32, 1), make([]float32, 1)
	in := []float32{x}
	ExpSum(a, in, 1, 0)
	expSumGeneric(b, in, 1, 0)
	return map[string]float32{"active": a[0], "generic": b[0]}
}

// ulps returns the distance of got from the exact value in units of the last
// place of the float32 next to it.
func ulps(got float32, exact float64) float64 {
	_, e := math.Frexp(exact)
	return math.Abs(float64(got)-exact) / math.Ldexp(1, e-24)
}

// TestExpAccuracy sweeps the range of normal results in float32 steps of about
// 1/300 of a power of two and compares with float64.
func TestExpAccuracy(t *testing.T) {
	const chunk = 64
	x, active, generic := make([]float32, chunk), make([]float32, chunk), make([]float32, chunk)
	var worstActive, worstGeneric float64
	n := 0
	next := float32(expLow)
	for next < expHigh {
		for i := range x {
			x[i] = next
			next += 0.0023147 + 1e-5*float32(i)
		}
		ExpSum(active, x, 1, 0)
		expSumGeneric(generic, x, 1, 0)
		for i, v := range x {
			if v > expHigh {
				continue
			}
			exact := math.Exp(float64(v))
			worstActive = max(worstActive, ulps(active[i], exact))
			worstGeneric = max(worstGeneric, ulps(generic[i], exact))
			n++
		}
	}
	t.Logf("%d points: %s %.3f ulp, generic %.3f ulp", n, Kernels(), worstActive, worstGeneric)
	if worstActive > 2 || worstGeneric > 1 {
		t.Errorf("largest error %.3f ulp (%s, limit 2), %.3f ulp (generic, limit 1)", worstActive, Kernels(), worstGeneric)
	}
}

func TestExpBorders(t *testing.T) {
	inf := float32(math.Inf(1))
	low, high := float32(expLow), float32(expHigh)
	for _, c := range []struct{ x, want float32 }{
		{0, 1}, {-inf, 0}, {inf, inf}, {-1e30, 0}, {1e30, inf}, {-88, 0}, {89, inf},
		{low - 3e-5, 0}, {math.Nextafter32(high, inf), inf}, {88.9999, inf}, {90, inf},
	} {
		for set, got := range expBoth(c.x) {
			if got != c.want {
				t.Errorf("%s: exp(%g) = %g, want %g", set, c.x, got, c.want)
			}
		}
	}
	for _, x := range []float32{low, high, math.Nextafter32(low, 0), math.Nextafter32(high, 0)} {
		for set, got := range expBoth(x) {
			if u := ulps(got, math.Exp(float64(x))); !(u <= 2) {
				t.Errorf("%s: exp(%g) = %g, off by %g ulp", set, x, got, u)
			}
		}
	}
	// Both sets agree on every argument next to the borders.
	for _, x := range []float32{low - 5e-5, high - 5e-5} {
		for range 14 {
			both := expBoth(x)
			if (both["active"] == 0) != (both["generic"] == 0) || (both["active"] == inf) != (both["generic"] == inf) {
				t.Errorf("exp(%v): %s %g, generic %g", x, Kernels(), both["active"], both["generic"])
			}
			x = math.Nextafter32(x, inf)
		}
	}
	for _, bits := range []uint32{0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff, 0x7fa12345} {
		for set, got := range expBoth(math.Float32frombits(bits)) {
			if got == got {
				t.Errorf("%s: exp(NaN %#x) = %g", set, bits, got)
			}
		}
	}
}

// TestSpecialValues: what must not hide a broken run. One NaN or +Inf in a row
// has to show in the sum, at every position.
func TestSpecialValues(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, n := range []int{1, 5, 8, 33, 71} {
		for at := range n {
			x, d := make([]float32, n), make([]float32, n)
			x[at] = nan
			for set, f := range map[string]func([]float32, []float32, float32, float32) float32{"active": ExpSum, "generic": expSumGeneric} {
				if s := f(d, x, 1, 0); s == s || d[at] == d[at] {
					t.Fatalf("%s: NaN at %d of %d is lost: sum %g", set, at, n, s)
				}
			}
			for set, f := range map[string]func([]float32) float32{"active": Max, "generic": maxGeneric} {
				for i := range x {
					x[i] = -3
				}
				x[at] = nan
				want := float32(-3)
				if n == 1 {
					want = -inf
				}
				if m := f(x); m != want {
					t.Fatalf("%s: Max with NaN at %d of %d = %g, want %g", set, at, n, m, want)
				}
				x[at] = inf
				if m := f(x); m != inf {
					t.Fatalf("%s: Max with +Inf at %d of %d = %g", set, at, n, m)
				}
				x[at] = -inf
			}
		}
	}
	// Far out, the gate saturates instead of overflowing.
	for _, g := range []float32{-1e4, -89, -87.5, 87.5, 89, 1e4} {
		gate, one, y := []float32{g}, []float32{1}, []float32{0}
		for set, f := range map[string]func(d, g, u []float32){"active": SwiGLU, "generic": swigluGeneric} {
			f(y, gate, one)
			if want := float64(g) * sigmoid(float64(g)); !(math.Abs(float64(y[0])-want) <= 1e-6*math.Abs(want)+1e-35) {
				t.Errorf("%s: silu(%g) = %g, want %g", set, g, y[0], want)
			}
		}
		da, db := []float32{0}, []float32{0}
		for set, f := range map[string]func(dg, du, g, u, dy []float32){"active": SwiGLUBwd, "generic": swigluBwdGeneric} {
			f(da, db, gate, one, one)
			s := sigmoid(float64(g))
			if want := s * (1 + float64(g)*(1-s)); !(math.Abs(float64(da[0])-want) <= 1e-6) {
				t.Errorf("%s: derivative of silu at %g = %g, want %g", set, g, da[0], want)
			}
		}
	}
}
