package num

import (
	"math"
	"testing"
)

// TestF16All compares each of the 65,536 values with the definition of the format.
func TestF16All(t *testing.T) {
	for i := range 1 << 16 {
		got := float64(F16(i).Float32())
		sign, exp, frac := 1-2*float64(i>>15), i>>10&31, float64(i&1023)
		want := sign * math.Ldexp(1024+frac, exp-25)
		switch {
		case exp == 0:
			want = sign * math.Ldexp(frac, -24)
		case exp == 31 && frac == 0:
			want = math.Inf(int(sign))
		case exp == 31:
			if !math.IsNaN(got) {
				t.Errorf("%#04x is %v, not a number is right", i, got)
			}
			continue
		}
		if got != want || math.Signbit(got) != (sign < 0) {
			t.Fatalf("%#04x is %v, want %v", i, got, want)
		}
	}
	for bits, want := range map[F16]float32{0x3c00: 1, 0xc000: -2, 0x7bff: 65504, 0x3555: 0.33325195, 0x0001: 5.9604645e-08} {
		if got := bits.Float32(); got != want {
			t.Errorf("%#04x is %v, want %v", uint16(bits), got, want)
		}
	}
}
