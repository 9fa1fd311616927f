package num

import (
	"math"
	"testing"
)

// TestBF16All converts each of the 65,536 values there and back, and checks
// rounding of the values around the midpoint to its upper neighbour.
func TestBF16All(t *testing.T) {
	for i := range 1 << 16 {
		h := BF16(i)
		f := h.Float32()
		switch {
		case f != f:
			g := ToBF16(f)
			if v := g.Float32(); v == v {
				t.Fatalf("%#04x is a NaN and came back as %v", i, v)
			}
			if want := h | 0x40; g != want {
				t.Fatalf("%#04x: NaN came back as %#04x, want %#04x", i, g, want)
			}
			continue
		case ToBF16(f) != h:
			t.Fatalf("%#04x: %v came back as %#04x", i, f, ToBF16(f))
		}
		if math.IsInf(float64(f), 0) {
			continue
		}
		// h and its neighbour away from zero, h+1 (which may be an infinity).
		mid := uint32(i)<<16 | 0x8000
		even := h
		if i&1 == 1 {
			even = h + 1
		}
		for _, c := range []struct {
			bits uint32
			want BF16
		}{{mid - 1, h}, {mid, even}, {mid + 1, h + 1}} {
			if got := ToBF16(math.Float32frombits(c.bits)); got != c.want {
				t.Fatalf("bits %#08x: got %#04x, want %#04x", c.bits, got, c.want)
			}
		}
	}
}

func TestBF16NaNFromLowPayload(t *testing.T) {
	// A NaN whose payload lies only in the dropped half must not become Inf.
	for _, b := range []uint32{0x7f800001, 0xff800001, 0x7f80ffff} {
		if f := ToBF16(math.Float32frombits(b)).Float32(); f == f {
			t.Errorf("bits %#08x became %v", b, f)
		}
	}
}

// TestMasterWeightMoves is why masters are float32: small relative updates
// are lost in bfloat16 and must not be lost in float32.
func TestMasterWeightMoves(t *testing.T) {
	master, half := float32(1), ToBF16(1)
	for range 100 {
		master *= 1 - 1e-4
		half = ToBF16(half.Float32() * (1 - 1e-4))
	}
	if want := math.Pow(1-1e-4, 100); math.Abs(float64(master)-want) > 1e-5 {
		t.Errorf("float32 master is %v after 100 updates, want %v", master, want)
	}
	if half != ToBF16(1) {
		t.Errorf("bfloat16 moved to %v; the update is below half a unit", half.Float32())
	}
}
