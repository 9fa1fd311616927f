package kernels

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/internal/num"
	"refrain/kernels/kerneltest"
)

// headCase is an arrangement of HeadLoss; masked lists masked positions.
type headCase struct {
	n, d, v, chunk       int
	dx, dw, accumulateDW bool
	masked               func(n int) bool
}

func headLossArgs(b *builder, c headCase) HeadLossArgs {
	s := num.NewStream("targets")
	a := HeadLossArgs{
		Loss: b.Out("loss", c.n), X: b.Normal("x", 1, c.n, c.d), W: b.Normal("w", 0.5, c.v, c.d),
		Logits: b.Temp("logits", c.chunk, c.v), AccumulateDW: c.accumulateDW,
		Targets: b.Ints("targets", func(i int) int {
			if c.masked != nil && c.masked(i) {
				return -1
			}
			return int(s.Uintn(uint64(i), uint64(c.v)))
		}, c.n),
	}
	if c.dx || c.dw {
		a.Scale = b.Values("scale", scaled(0.125), 1)
	}
	if c.dx {
		a.DX = b.Out("dx", c.n, c.d)
	}
	if c.accumulateDW {
		a.DW = b.Normal("dw", 1, c.v, c.d)
	} else if c.dw {
		a.DW = b.Out("dw", c.v, c.d)
	}
	return a
}

func headLossSuite() suite {
	s := suite{kernel: "head_loss", gradients: map[string]func(testing.TB, *builder) kerneltest.Gradient{}, wrong: map[string]func(*builder) error{}}
	none := func(int) bool { return false }
	odd := func(n int) bool { return n%2 == 1 }
	late := func(n int) bool { return n >= 8 }
	all := func(int) bool { return true }
	for name, c := range map[string]headCase{
		"one":               {1, 1, 1, 1, true, true, false, none},
		"forward only":      {20, 7, 33, 6, false, false, false, odd},
		"chunks divide":     {24, 16, 50, 8, true, true, false, none},
		"short last chunk":  {29, 16, 50, 8, true, true, false, odd},
		"last chunk masked": {16, 9, 20, 8, true, true, false, late},
		"first chunk only":  {29, 9, 20, 4, true, true, true, late},
		"all masked":        {9, 5, 12, 4, true, true, false, all},
		"all masked, adds":  {9, 5, 12, 4, true, true, true, all},
		"dx only":           {13, 5, 12, 4, true, false, false, odd},
		"dw only":           {13, 5, 12, 4, false, true, true, odd},
		"wide":              {10, 8, 40000, 5, true, true, false, odd},
	} {
		s.cases = append(s.cases, both(&HeadLoss, name, func(b *builder) HeadLossArgs { return headLossArgs(b, c) }, "x", "w", "dx")...)
	}
	s.cases = append(s.cases, of(&HeadLoss, "masked rows are not finite", func(b *builder) HeadLossArgs {
		a := headLossArgs(b, headCase{29, 9, 20, 8, true, true, false, odd})
		a.X = b.Values("odd", func(i int) float64 {
			if odd(i / 9) {
				return []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[i%3]
			}
			return math.Sin(float64(i))
		}, 29, 9)
		return a
	}))
	for name, masked := range map[string]func(int) bool{"all count": none, "some masked": odd} {
		s.gradients[name] = func(t testing.TB, b *builder) kerneltest.Gradient {
			a := headLossArgs(b, headCase{5, 3, 7, 2, true, true, false, masked})
			op := must(t, &HeadLoss, a)
			return kerneltest.Gradient{
				Forward: ops(op), Outs: tensors(a.Loss), Cotangents: tensors(b.Values("weight", scaled(0.125), 5)),
				Inputs: tensors(a.X, a.W), Grads: tensors(a.DX, a.DW),
			}
		}
	}
	small := headCase{4, 3, 5, 2, true, true, false, none}
	s.wrong["logits has 9 rows for 4 tokens"] = refuse(&HeadLoss, func(b *builder) HeadLossArgs {
		a := headLossArgs(b, small)
		a.Logits = b.Temp("tall", 9, 5)
		return a
	})
	s.wrong["scale is missing"] = refuse(&HeadLoss, func(b *builder) HeadLossArgs {
		a := headLossArgs(b, small)
		a.Scale = gpu.Tensor{}
		return a
	})
	s.wrong["AccumulateDW without dw"] = refuse(&HeadLoss, func(b *builder) HeadLossArgs {
		a := headLossArgs(b, small)
		a.DW, a.AccumulateDW = gpu.Tensor{}, true
		return a
	})
	s.wrong["targets is f32[4]; today this op takes i32 only"] = refuse(&HeadLoss, func(b *builder) HeadLossArgs {
		a := headLossArgs(b, small)
		a.Targets = b.Normal("t", 1, 4)
		return a
	})
	return s
}

// TestHeadLossOfUniformLogits (N5): zero hidden states have loss ln V.
func TestHeadLossOfUniformLogits(t *testing.T) {
	for _, reference := range []bool{true, false} {
		b := &builder{}
		a := headLossArgs(b, headCase{n: 3, d: 4, v: 1000, chunk: 2})
		a.X = b.Values("zero", scaled(0), 3, 4)
		h, run := bind(t, b, must(t, &HeadLoss, a), 1, reference)
		run()
		for i, l := range gpu.Float32s(h, a.Loss) {
			if math.Abs(float64(l)-math.Log(1000)) > 1e-6 {
				t.Errorf("loss %d is %v, want %v", i, l, math.Log(1000))
			}
		}
	}
}

func TestHeadLossRefusesTargets(t *testing.T) {
	for _, reference := range []bool{true, false} {
		for _, bad := range []int{-2, 5} {
			b := &builder{}
			a := headLossArgs(b, headCase{n: 3, d: 4, v: 5, chunk: 2})
			a.Targets = b.Ints("bad", func(i int) int { return bad * (i / 2) }, 3)
			_, run := bind(t, b, must(t, &HeadLoss, a), 1, reference)
			want := fmt.Sprintf("target %d at position 2 is outside [0,5) and not -1", bad)
			if msg := panics(run); !strings.Contains(msg, want) {
				t.Errorf("%q, want %q", msg, want)
			}
		}
	}
}

func BenchmarkHeadLoss(b *testing.B) {
	bench(b, &HeadLoss, func(b *builder) HeadLossArgs {
		return headLossArgs(b, headCase{n: 4096, d: 320, v: 4096, chunk: 256, dx: true, dw: true})
	})
}
