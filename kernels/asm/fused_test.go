package asm

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// fma32 returns x*y+z, rounded once. The product is exact in float64. Their sum is
// rounded to odd, which a second rounding to fewer bits cannot get wrong (Boldo and
// Melquiond, 2008): where it is inexact, it is the neighbour with an odd mantissa.
func fma32(x, y, z float32) float32 {
	p, c := float64(x)*float64(y), float64(z)
	s := p + c
	if math.IsNaN(s) || math.IsInf(s, 0) {
		return float32(s)
	}
	// The error of the sum, by Knuth.
	v := s - p
	e := (p - (s - v)) + (c - v)
	if e != 0 && math.Float64bits(s)&1 == 0 {
		s = math.Nextafter(s, math.Copysign(math.Inf(1), e))
	}
	return float32(s)
}

// TestFMA32 compares the reference and the fma of the plain Go kernels with arithmetic
// of unlimited precision, mostly where the rounding is decided by the last bits:
// sums next to the middle between two values, normal and subnormal.
func TestFMA32(t *testing.T) {
	exact := func(v float32) *big.Float { return new(big.Float).SetPrec(2000).SetFloat64(float64(v)) }
	r := rand.New(rand.NewPCG(17, 18))
	for round := range 60000 {
		x, y := bits32(r, 40), bits32(r, 40)
		if round%3 == 0 {
			x, y = math.Float32frombits(math.Float32bits(x)-60<<23), math.Float32frombits(math.Float32bits(y)-67<<23)
		}
		if round%5 == 0 { // few bits, so that sums lie in the middle or close to it
			x, y = math.Float32frombits(math.Float32bits(x)&^0x7fff), math.Float32frombits(math.Float32bits(y)&^0xfff)
		}
		p := float32(float64(x) * float64(y))
		z := math.Float32frombits(math.Float32bits(p) ^ uint32(r.IntN(8)) ^ 1<<31&r.Uint32())
		if r.IntN(2) == 0 {
			z = float32(math.Ldexp(float64(z), r.IntN(60)-30))
		}
		sum := exact(x)
		sum.Mul(sum, exact(y)).Add(sum, exact(z))
		want, _ := sum.Float32()
		if got := fma32(x, y, z); got != want {
			t.Fatalf("fma32(%x, %x, %x) = %x, want %x", x, y, z, got, want)
		}
		if got := fma(x, y, z); math.Float32bits(got) != math.Float32bits(fma32(x, y, z)) || got != want {
			t.Fatalf("fma(%x, %x, %x) = %x, want %x", x, y, z, got, want)
		}
	}
	for range 30000 {
		var v [3]float32
		for i := range v {
			v[i] = math.Float32frombits(r.Uint32())
			if r.IntN(8) == 0 {
				v[i] = special[r.IntN(len(special))]
			}
		}
		if got, want := fma(v[0], v[1], v[2]), fma32(v[0], v[1], v[2]); math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
			t.Fatalf("fma(%x, %x, %x) = %x, want %x", v[0], v[1], v[2], got, want)
		}
	}
}

// bits32 returns a float of random sign and mantissa with an exponent in
// [-span/2, span/2), without any arithmetic that an architecture may fuse.
func bits32(r *rand.Rand, span int) float32 {
	exponent := uint32(127 - span/2 + r.IntN(span))
	return math.Float32frombits(r.Uint32()&0x807fffff | exponent<<23)
}

// factors are kinds of numbers that decide differently how a tile rounds.
var factors = map[string]func(r *rand.Rand) float32{
	"ordinary": func(r *rand.Rand) float32 { return bits32(r, 16) },
	// Products of two have 23 to 26 bits: many sums lie in the middle between two values.
	"short": func(r *rand.Rand) float32 { return math.Float32frombits(math.Float32bits(bits32(r, 4)) &^ 0x7ff) },
	// Sums on both sides of the smallest normal number.
	"tiny": func(r *rand.Rand) float32 { return math.Float32frombits(math.Float32bits(bits32(r, 26)) - 66<<23) },
	"huge": func(r *rand.Rand) float32 { return math.Float32frombits(math.Float32bits(bits32(r, 16)) + 60<<23) },
	"any":  func(r *rand.Rand) float32 { return math.Float32frombits(r.Uint32()) },
	"zeros": func(r *rand.Rand) float32 {
		return math.Float32frombits(math.Float32bits(bits32(r, 16))&-uint32(r.IntN(2))&-uint32(r.IntN(2)) | 1<<31&r.Uint32())
	},
	"special": func(r *rand.Rand) float32 {
		if r.IntN(100) == 0 {
			return special[r.IntN(len(special))]
		}
		return bits32(r, 16)
	},
}

// TestTileBits: every tile is a chain of fused multiply-adds in rising k with the old
// value added last, so that all of them, on all architectures, give the same bits.
func TestTileBits(t *testing.T) {
	for _, set := range TileSets() {
		rows, cols := set.Rows(), set.Cols()
		for name, factor := range factors {
			r := rand.New(rand.NewPCG(19, 20))
			for _, k := range []int{1, 2, 3, 4, 5, 6, 7, 9, 16, 33, 100, 150} {
				a, b, c := make([]float32, rows*k), make([]float32, cols*k), make([]float32, rows*cols)
				for _, s := range [][]float32{a, b, c} {
					for i := range s {
						s[i] = factor(r)
					}
				}
				for kk := range k { // a row that fills up
					a[kk*rows+rows-1] = 0
				}
				for _, accumulate := range []bool{false, true} {
					got := append([]float32(nil), c...)
					set.Tile(k, a, b, got, cols, accumulate)
					for i := range rows {
						for j := range cols {
							var want float32
							for kk := range k {
								want = fma32(a[kk*rows+i], b[kk*cols+j], want)
							}
							if accumulate {
								want += c[i*cols+j]
							}
							if v := got[i*cols+j]; math.Float32bits(v) != math.Float32bits(want) && (v == v || want == want) {
								t.Fatalf("%v: %s, k=%d accumulate=%t: c[%d,%d] = %x, want %x", set, name, k, accumulate, i, j, v, want)
							}
						}
					}
				}
			}
		}
	}
}

// fusedDigests are those of every set on every architecture: all visit lanes in one
// order and round at the same steps.
var fusedDigests = map[string]string{
	"Dot":       "267ef28f26a8f061",
	"Dot3":      "818f118e3773704c",
	"SumSq":     "04cef719d67bd0c9",
	"Max":       "fc6ea84ea52ef998",
	"ExpSum":    "a8147e3a37bb1dc7",
	"Scale":     "d8f9d71061cf479e",
	"ScaleMul":  "af01ba3ac59eafc5",
	"Add":       "f9092ec4a46a110a",
	"Axpy":      "860d5aea81029967",
	"Rope":      "2eb093763868a9d1",
	"RopeInv":   "90e0139d981057fd",
	"SwiGLU":    "5326cad1f165fe19",
	"SwiGLUBwd": "c2519f78c48c09fa",
	"RMSBwd":    "94813e43f4ece2b9",
	"DSoftmax":  "7a378826ab09ab20",
	"AdamW":     "460ca098d3cf4c1a",
}

// TestFusedBits runs every function of every set on pinned arguments, special values
// among them, and compares the digests of all results with those recorded from AVX2.
func TestFusedBits(t *testing.T) {
	for _, k := range cases() {
		for set, call := range map[string]func([][]float32) float32{"purego": k.generic, Kernels(): k.call} {
			digest := fnv.New64a()
			put := func(v float32) {
				b := math.Float32bits(v)
				if v != v {
					b = 0x7fc00000 // which NaN is left to the processor
				}
				if err := binary.Write(digest, binary.LittleEndian, b); err != nil {
					t.Fatal(err)
				}
			}
			r := rand.New(rand.NewPCG(21, 22))
			for round := range 160 {
				n := round
				if n > 140 {
					n = 1 + r.IntN(1000)
				}
				s := make([][]float32, k.slices)
				for j := range s {
					s[j] = make([]float32, n)
					for i := range s[j] {
						s[j][i] = bits32(r, 12)
						if k.name == "AdamW" && j == 3 {
							s[j][i] = max(s[j][i], -s[j][i])
						}
					}
					// A few rounds with what ordinary runs avoid; not in all of them, since
					// one NaN hides the order of a sum.
					if n > 0 && round%8 == 7 {
						s[j][r.IntN(n)] = special[r.IntN(len(special))]
					}
				}
				put(call(s))
				for _, x := range s {
					for _, v := range x {
						put(v)
					}
				}
			}
			if got := fmt.Sprintf("%016x", digest.Sum64()); got != fusedDigests[k.name] {
				t.Errorf("%s of %s: digest %s, want %s", k.name, set, got, fusedDigests[k.name])
			}
		}
	}
}

var special = []float32{
	0, float32(math.Copysign(0, -1)), 1e-42, -3e-45, 1e30, -1e30, 88.7, -85.6, 200, -200,
	float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.Float32frombits(0x7f800001),
}
