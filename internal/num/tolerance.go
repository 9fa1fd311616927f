package num

import (
	"fmt"
	"math"
)

// Tolerance bounds the difference between a computed tensor and its reference.
type Tolerance struct {
	// Norm is the allowed |got-want| / |want| in Euclidean norm.
	Norm float64
	// Entry is the allowed |got-want| of any element over the root mean square
	// of want, so that one wrong element cannot hide in a large tensor.
	Entry float64
	// Own is allowed to any element besides, as a share of its own value: how
	// far the type rounds elements that stand far above the others.
	Own float64
}

// The one table of tolerances, by the type the result is stored in. They are
// raised only with a derivation.
//
// Float32: a sum of K products accumulated in float32 has a relative error of
// about sqrt(K) * 2^-24 in norm for random signs (K = 16384: 7.6e-6), and one
// element of a million is about 5 standard deviations away from typical.
//
// BFloat16: storage rounds by at most 2^-8 relative, by 0.4 of that in norm
// (2^-8/sqrt(3), less where a value is not at the bottom of its binade); a chain
// of a few roundings stays within 2^-8 in norm.
var (
	Float32  = Tolerance{Norm: 1e-5, Entry: 1e-4}
	BFloat16 = Tolerance{Norm: 1.0 / 256, Entry: 1.0 / 32, Own: 1.0 / 256}
	// Float64 is for values computed twice in double precision by different
	// formulas, such as an analytic gradient and central differences of step
	// 1e-5, whose own error is near 1e-10 relative for smooth functions.
	Float64 = Tolerance{Norm: 1e-6, Entry: 1e-5}
)

// Real is a type whose values Check compares.
type Real interface{ float32 | float64 }

// Check returns an error when got differs from want by more than tol allows,
// naming the worst element. Non-finite elements must be equal (NaN to NaN). A
// want of all zeros demands exact zeros.
func Check[A, B Real](got []A, want []B, tol Tolerance) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d values, want %d", len(got), len(want))
	}
	var diff2, want2, worst float64
	at := -1
	for i := range want {
		g, w := float64(got[i]), float64(want[i])
		if finite(g) != finite(w) || !finite(w) && g != w && !(g != g && w != w) {
			return fmt.Errorf("element %d is %v, want %v", i, g, w)
		}
		if !finite(w) {
			continue
		}
		d := math.Abs(g - w)
		diff2 += d * d
		want2 += w * w
		if over := d - tol.Own*math.Abs(w); at < 0 && d > 0 || over > worst {
			worst, at = over, i
		}
	}
	if at < 0 {
		return nil
	}
	norm := math.Sqrt(want2)
	if rel := math.Sqrt(diff2) / norm; !(rel <= tol.Norm) {
		return fmt.Errorf("relative norm of the difference is %.3g, allowed %.3g; worst element %d is %v, want %v", rel, tol.Norm, at, got[at], want[at])
	}
	if rel := worst / (norm / math.Sqrt(float64(len(want)))); !(rel <= tol.Entry) {
		return fmt.Errorf("element %d is %v, want %v: off by %.3g of the root mean square beyond its own rounding, allowed %.3g", at, got[at], want[at], rel, tol.Entry)
	}
	return nil
}

func finite(x float64) bool { return x-x == 0 }

// RelNorm returns |got-want| / |want| in Euclidean norm, 0 for two zero
// vectors. It panics on different lengths.
func RelNorm[A, B Real](got []A, want []B) float64 {
	if len(got) != len(want) {
		panic(fmt.Sprintf("num: RelNorm of %d and %d values", len(got), len(want)))
	}
	var d2, w2 float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		d2 += d * d
		w2 += float64(want[i]) * float64(want[i])
	}
	if d2 == 0 {
		return 0
	}
	return math.Sqrt(d2 / w2)
}

// ULP32 returns how many float32 values lie between a and b: 0 when equal, 1
// for neighbours. It returns math.MaxUint32 when either is a NaN.
func ULP32(a, b float32) uint32 {
	if a != a || b != b {
		return math.MaxUint32
	}
	x, y := order32(a), order32(b)
	if x < y {
		x, y = y, x
	}
	return uint32(x - y)
}

// order32 maps floats to integers in the same order, both zeros to 0.
func order32(f float32) int64 {
	b := int64(math.Float32bits(f))
	if b >= 1<<31 {
		return 1<<31 - b
	}
	return b
}
