//go:build !purego

package asm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestWideBits: the kernels of sixteen lanes give the bits of those of eight, for every
// length and for every kind of number, and write nothing past their end.
func TestWideBits(t *testing.T) {
	if !wide {
		t.Skip("this processor has no AVX-512")
	}
	special := []float32{0, float32(math.Copysign(0, -1)), 1e-42, -85.7, 88.72283, 88.8, 200, -1e30,
		float32(math.Inf(1)), float32(math.Inf(-1))}
	const room, guard = 330, 16
	r := rand.New(rand.NewPCG(31, 32))
	draw := func(n int, odd float64) []float32 {
		s := make([]float32, n+guard)
		for i := range s {
			s[i] = float32(8 * r.NormFloat64())
			if r.Float64() < odd {
				s[i] = special[r.IntN(len(special))]
			}
		}
		return s
	}
	same := func(what string, n int, got, want []float32) {
		t.Helper()
		for i := range want {
			g, w := math.Float32bits(got[i]), math.Float32bits(want[i])
			if g != w && !(got[i] != got[i] && want[i] != want[i]) {
				t.Fatalf("%s of %d: element %d is %x, want %x", what, n, i, g, w)
			}
		}
	}
	for n := 1; n < room; n++ {
		for _, odd := range []float64{0, 0.1} {
			x, up, dy := draw(n, odd), draw(n, odd), draw(n, odd)
			a := draw(n, 0)
			b := slices.Clone(a)
			scale, sub := float32(r.NormFloat64()), float32(r.NormFloat64())
			got := expSum512Vec(n, &a[0], &x[0], scale, sub)
			want := expSumVec(n, &b[0], &x[0], scale, sub)
			same("exp", n, a, b)
			same("sum of exp", n, []float32{got}, []float32{want})

			swiglu512Vec(n, &a[0], &x[0], &up[0])
			swigluVec(n, &b[0], &x[0], &up[0])
			same("swiglu", n, a, b)

			c := draw(n, 0)
			d := slices.Clone(c)
			swigluBwd512Vec(n, &a[0], &c[0], &x[0], &up[0], &dy[0])
			swigluBwdVec(n, &b[0], &d[0], &x[0], &up[0], &dy[0])
			same("dgate", n, a, b)
			same("dup", n, c, d)

			// Outputs that replace inputs.
			g1, u1, g2, u2 := slices.Clone(x), slices.Clone(up), slices.Clone(x), slices.Clone(up)
			swigluBwd512Vec(n, &g1[0], &u1[0], &g1[0], &u1[0], &dy[0])
			swigluBwdVec(n, &g2[0], &u2[0], &g2[0], &u2[0], &dy[0])
			same("dgate in place", n, g1, g2)
			same("dup in place", n, u1, u2)
		}
	}
}
