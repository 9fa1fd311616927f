package kernels

import (
	"fmt"
	"math"
	"testing"

	"refrain/gpu"
	"refrain/kernels/kerneltest"
)

// shape is an arrangement of attention.
type shape struct{ b, t, h, kv, c int }

func (s shape) String() string { return fmt.Sprintf("B%d T%d H%d KV%d C%d", s.b, s.t, s.h, s.kv, s.c) }
func (s shape) q() int         { return (s.h + 2*s.kv) * s.c }
func (s shape) n() int         { return s.b * s.t }

// angles are the tables of RoPE for base 10000, as a model makes them.
func angles(b *builder, t, c int) (cos, sin gpu.Tensor) {
	angle := func(i int) float64 {
		return float64(i/(c/2)) * math.Pow(10000, -2*float64(i%(c/2))/float64(c))
	}
	return b.Values("cos", func(i int) float64 { return math.Cos(angle(i)) }, t, c/2),
		b.Values("sin", func(i int) float64 { return math.Sin(angle(i)) }, t, c/2)
}

// segTensor is what Segments makes of documents that start at these positions
// of every row.
func segTensor(b *builder, rows, t int, starts ...int) gpu.Tensor {
	return b.Ints("seg", func(i int) int {
		first := 0
		for _, s := range starts {
			if s <= i%t {
				first = s
			}
		}
		return first
	}, rows, t)
}

func ropeArgs(b *builder, s shape, reset, inverse bool) RoPEArgs {
	a := RoPEArgs{QKV: b.Normal("qkv", 1, s.n(), s.q()), Reset: reset, Inverse: inverse, B: s.b, T: s.t, H: s.h, KV: s.kv, C: s.c}
	a.Cos, a.Sin = angles(b, s.t, s.c)
	if reset {
		a.Seg = segTensor(b, s.b, s.t, s.t/3, s.t/2)
	}
	return a
}

func ropeSuite() suite {
	s := suite{kernel: "rope", gradients: map[string]func(testing.TB, *builder) kerneltest.Gradient{}, wrong: map[string]func(*builder) error{}}
	for _, c := range []shape{{1, 1, 1, 1, 2}, {2, 7, 3, 1, 6}, {3, 40, 4, 2, 16}, {1, 70, 2, 2, 64}} {
		for _, reset := range []bool{false, true} {
			for _, inverse := range []bool{false, true} {
				s.cases = append(s.cases, both(&RoPE, fmt.Sprint(c, reset, inverse), func(b *builder) RoPEArgs { return ropeArgs(b, c, reset, inverse) }, "qkv")...)
			}
		}
	}
	for _, reset := range []bool{false, true} {
		s.gradients[fmt.Sprint("reset ", reset)] = func(t testing.TB, b *builder) kerneltest.Gradient { return ropeGradient(t, b, reset) }
	}
	s.wrong["head width is 3, want an even number"] = refuse(&RoPE, func(b *builder) RoPEArgs {
		a := ropeArgs(b, shape{1, 4, 1, 1, 4}, false, false)
		a.C = 3
		return a
	})
	s.wrong["3 query heads do not divide into 2 key heads"] = refuse(&RoPE, func(b *builder) RoPEArgs {
		return ropeArgs(b, shape{1, 4, 3, 2, 4}, false, false)
	})
	s.wrong["seg is missing"] = refuse(&RoPE, func(b *builder) RoPEArgs {
		a := ropeArgs(b, shape{1, 4, 1, 1, 4}, false, false)
		a.Reset = true
		return a
	})
	return s
}

// ropeGradient: the op works in place, so its output is its input buffer and
// the backward pass rotates a copy of the cotangent.
func ropeGradient(t testing.TB, b *builder, reset bool) kerneltest.Gradient {
	a := ropeArgs(b, shape{2, 5, 2, 1, 4}, reset, false)
	dy, dx := b.Normal("dy", 1, 10, 16), b.Out("dx", 10, 16)
	back := a
	back.QKV, back.Inverse = dx, true
	return kerneltest.Gradient{
		Forward:  ops(must(t, &RoPE, a)),
		Backward: ops(must(t, &Copy, CopyArgs{Dst: dx, Src: dy}), must(t, &RoPE, back)),
		Outs:     tensors(a.QKV), Cotangents: tensors(dy), Inputs: tensors(a.QKV), Grads: tensors(dx),
	}
}

func ropeAtArgs(b *builder, rows, limit, h, kv, c int) RoPEAtArgs {
	a := RoPEAtArgs{QKV: b.Normal("qkv", 1, rows, (h+2*kv)*c), Pos: b.Random("pos", 0, limit, rows), H: h, KV: kv, C: c}
	a.Cos, a.Sin = angles(b, limit, c)
	return a
}

func ropeAtSuite() suite {
	s := suite{kernel: "rope_at", noGrad: "only decoding uses it", wrong: map[string]func(*builder) error{}}
	for _, c := range [][5]int{{1, 1, 1, 1, 2}, {3, 9, 4, 2, 6}, {40, 100, 3, 3, 32}} {
		s.cases = append(s.cases, of(&RoPEAt, fmt.Sprint(c), func(b *builder) RoPEAtArgs { return ropeAtArgs(b, c[0], c[1], c[2], c[3], c[4]) }))
	}
	s.wrong["sin is f32[8 2], want f32[9 2]"] = refuse(&RoPEAt, func(b *builder) RoPEAtArgs {
		a := ropeAtArgs(b, 2, 9, 2, 1, 4)
		_, a.Sin = angles(b, 8, 4)
		return a
	})
	return s
}

// TestRoPEAtIsRoPE rotates the same rows both ways: equal bits.
func TestRoPEAtIsRoPE(t *testing.T) {
	s := shape{1, 12, 2, 1, 8}
	b := &builder{}
	a := ropeArgs(b, s, false, false)
	h, run := bind(t, b, must(t, &RoPE, a), 1, false)
	run()
	b2 := &builder{}
	at := RoPEAtArgs{QKV: b2.Normal("qkv", 1, s.n(), s.q()), Pos: b2.Ints("pos", func(i int) int { return i }, s.n()), H: s.h, KV: s.kv, C: s.c}
	at.Cos, at.Sin = angles(b2, s.t, s.c)
	h2, run2 := bind(t, b2, must(t, &RoPEAt, at), 1, false)
	run2()
	want, got := gpu.Float32s(h, a.QKV), gpu.Float32s(h2, at.QKV)
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("element %d: %v, want %v", i, got[i], want[i])
		}
	}
}

func BenchmarkRoPE(b *testing.B) {
	bench(b, &RoPE, func(b *builder) RoPEArgs { return ropeArgs(b, shape{8, 512, 5, 5, 64}, false, false) })
}
