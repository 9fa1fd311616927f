package kernels

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/internal/num"
)

// drawArgs has logits of k models for rows of v tokens, of which among may be drawn, and
// uniforms of a stream of its own.
func drawArgs(b *builder, k, rows, v, among int, sharp float32) DrawArgs {
	s := num.NewStream("draw/uniform", uint64(v))
	return DrawArgs{
		Out: b.OutInts("out", rows), Logits: b.Normal("logits", 3, k, rows, v), Among: among, Sharp: sharp,
		Uniform: b.Ints("uniform", func(i int) int { return word(s.Float64(uint64(i/2)), i%2) }, rows, 2),
	}
}

// word is the low (0) or the high (1) word of u.
func word(u float64, high int) int { return int(int32(math.Float64bits(u) >> (32 * high))) }

func drawSuite() suite {
	s := suite{kernel: "draw", noGrad: "a draw has no derivative", wrong: map[string]func(*builder) error{}}
	for _, c := range [][4]int{{1, 1, 1, 1}, {1, 5, 37, 37}, {3, 4, 37, 30}, {1, 70, 256, 256}, {2, 9, 1000, 1000}, {8, 3, 5000, 4097}} {
		for _, sharp := range []float32{1, 1 / 0.7, 40} {
			s.cases = append(s.cases, exactly(&Draw, fmt.Sprint(c, sharp), func(b *builder) DrawArgs { return drawArgs(b, c[0], c[1], c[2], c[3], sharp) }))
		}
	}
	s.cases = append(s.cases, exactly(&Draw, "not finite", func(b *builder) DrawArgs {
		a := drawArgs(b, 2, 6, 300, 290, 1)
		a.Logits = b.Values("odd", func(i int) float64 {
			switch i {
			case 10, 1800 + 300 + 299: // row 0; and in row 1 beyond what may be drawn, which is not read
				return math.NaN()
			case 2*300 + 289:
				return math.Inf(1)
			case 1800 + 3*300:
				return math.Inf(-1)
			}
			return math.Sin(float64(i))
		}, 2, 6, 300)
		return a
	}))
	wrong := func(part string, change func(b *builder, a *DrawArgs)) {
		s.wrong[part] = refuse(&Draw, func(b *builder) DrawArgs {
			a := drawArgs(b, 2, 3, 9, 9, 1)
			change(b, &a)
			return a
		})
	}
	wrong("Among is 10 of 9 tokens", func(_ *builder, a *DrawArgs) { a.Among = 10 })
	wrong("Among is 0 of 9 tokens", func(_ *builder, a *DrawArgs) { a.Among = 0 })
	wrong("Sharp is 0", func(_ *builder, a *DrawArgs) { a.Sharp = 0 })
	wrong("Sharp is +Inf", func(_ *builder, a *DrawArgs) { a.Sharp = float32(math.Inf(1)) })
	wrong("uniform is i32[4 2], want i32[3 2]", func(b *builder, a *DrawArgs) { a.Uniform = b.Random("four", 0, 9, 4, 2) })
	return s
}

// TestDrawInverts: at the borders of the intervals that the probabilities cut (0,1) into,
// the token changes, and at both ends it is the first and the last that can be drawn.
func TestDrawInverts(t *testing.T) {
	const v = 600
	logit := func(i int) float64 {
		if i < 2 || i > 590 {
			return -300 // exp of it is 0
		}
		return math.Sin(float64(i))
	}
	var p [v]float64
	var total float64
	for i := range p {
		if x := float64(float32(logit(i))); x > -300 {
			p[i] = math.Exp(x)
		}
		total += p[i]
	}
	type draw struct {
		u    float64
		want int32
	}
	draws := []draw{{0x1p-60, 2}, {1 - 0x1p-53, 590}}
	at := 0.0
	for i, q := range p {
		if q > 0 {
			draws = append(draws, draw{(at + q*1e-3) / total, int32(i)}, draw{(at + q*0.999) / total, int32(i)})
		}
		at += q
	}
	for _, reference := range []bool{true, false} {
		b := &builder{}
		a := DrawArgs{
			Out: b.OutInts("out", len(draws)), Logits: b.Values("logits", func(i int) float64 { return logit(i % v) }, 1, len(draws), v),
			Uniform: b.Ints("uniform", func(i int) int { return word(draws[i/2].u, i%2) }, len(draws), 2), Among: v, Sharp: 1,
		}
		h, run := bind(t, b, must(t, &Draw, a), 2, reference)
		run()
		for i, id := range gpu.Int32s(h, a.Out) {
			if id != draws[i].want {
				t.Errorf("reference %v: %v draws %d, want %d", reference, draws[i].u, id, draws[i].want)
			}
		}
	}
}

// TestDrawOfCopies: the mean of copies draws what one draws, also where the reciprocal of
// their number is not exact.
func TestDrawOfCopies(t *testing.T) {
	var want []int32
	for _, k := range []int{1, 3, 7} {
		b := &builder{}
		a := drawArgs(b, k, 40, 200, 200, 1)
		s := num.NewStream("draw/copies")
		a.Logits = b.Values("logits", func(i int) float64 { return 3 * s.Normal(uint64(i%(40*200))) }, k, 40, 200)
		h, run := bind(t, b, must(t, &Draw, a), 1, false)
		run()
		got := gpu.Int32s(h, a.Out)
		if want == nil {
			want = got
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%d copies draw %d in row %d, one draws %d", k, got[i], i, want[i])
			}
		}
	}
}

// TestDrawRefusesUniforms: a number that is not between 0 and 1 is a mistake of the caller.
func TestDrawRefusesUniforms(t *testing.T) {
	for _, u := range []float64{0, 1, -1, math.NaN()} {
		for _, reference := range []bool{true, false} {
			b := &builder{}
			a := drawArgs(b, 1, 2, 9, 9, 1)
			a.Uniform = b.Ints("bad", func(i int) int { return word(u, i%2) }, 2, 2)
			_, run := bind(t, b, must(t, &Draw, a), 1, reference)
			if msg := panics(run); !strings.Contains(msg, "in row 0 is not between 0 and 1") {
				t.Errorf("%g: %q", u, msg)
			}
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	bench(b, &Draw, func(b *builder) DrawArgs { return drawArgs(b, 1, 64, 4096, 4096, 1) })
}
