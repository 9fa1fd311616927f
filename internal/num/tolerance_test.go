package num

import (
	"math"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		name      string
		got, want []float64
		err       string // "" for none
	}{
		{"equal", []float64{1, 2, 3}, []float64{1, 2, 3}, ""},
		{"close", []float64{1, 2, 3 + 1e-6}, []float64{1, 2, 3}, ""},
		{"far", []float64{1, 2, 3.001}, []float64{1, 2, 3}, "relative norm"},
		{"length", []float64{1}, []float64{1, 2}, "1 values, want 2"},
		{"nan", []float64{nan, 1}, []float64{nan, 1}, ""},
		{"nan for number", []float64{nan, 1}, []float64{0, 1}, "element 0"},
		{"number for nan", []float64{0, 1}, []float64{nan, 1}, "element 0"},
		{"inf", []float64{inf}, []float64{inf}, ""},
		{"wrong inf", []float64{-inf}, []float64{inf}, "element 0"},
		{"zeros", []float64{0, 0}, []float64{0, 0}, ""},
		{"not zero", []float64{0, 1e-30}, []float64{0, 0}, "relative norm"},
		{"empty", nil, nil, ""},
	} {
		err := Check(c.got, c.want, Float32)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.err)
		}
	}
}

// TestCheckSeesOneWrongElement hides one wrong value in a large tensor, where
// the norm alone would not see it.
func TestCheckSeesOneWrongElement(t *testing.T) {
	want := make([]float32, 1<<20)
	for i := range want {
		want[i] = 1
	}
	got := append([]float32(nil), want...)
	got[777] += 1e-3
	if r := RelNorm(got, want); r > Float32.Norm {
		t.Fatalf("the norm sees it already: %g", r)
	}
	if err := Check(got, want, Float32); err == nil || !strings.Contains(err.Error(), "element 777") {
		t.Errorf("error %v, want element 777", err)
	}
}

func TestULP32(t *testing.T) {
	n := func(x float32, up float64) float32 { return math.Nextafter32(x, float32(up)) }
	for _, c := range []struct {
		a, b float32
		want uint32
	}{
		{1, 1, 0}, {1, n(1, 2), 1}, {1, n(1, 0), 1}, {0, float32(math.Copysign(0, -1)), 0},
		{n(0, 1), n(0, -1), 2}, {-1, n(-1, -2), 1}, {float32(math.NaN()), 1, math.MaxUint32},
	} {
		if got := ULP32(c.a, c.b); got != c.want {
			t.Errorf("ULP32(%v,%v) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// TestCheckForgivesRounding: one value far above the others may be rounded like
// any other, and no more than that.
func TestCheckForgivesRounding(t *testing.T) {
	want := make([]float64, 1<<12)
	for i := range want {
		want[i] = 1
	}
	want[77] = 20
	got := append([]float64(nil), want...)
	got[77] *= 1 + 1.0/256
	if err := Check(got, want, BFloat16); err != nil {
		t.Error(err)
	}
	if err := Check(got, want, Tolerance{BFloat16.Norm, BFloat16.Entry, 0}); err == nil {
		t.Error("without a share of its own the element is not found")
	}
	got[77] = 20 + 2*20.0/256
	if err := Check(got, want, BFloat16); err == nil || !strings.Contains(err.Error(), "element 77") {
		t.Errorf("error %v, want element 77", err)
	}
}
