package kernels

import (
	"fmt"
	"testing"

	"refrain/gpu"
	"refrain/kernels/kerneltest"
)

func ops(o ...gpu.Op) []gpu.Op             { return o }
func tensors(t ...gpu.Tensor) []gpu.Tensor { return t }
func scaled(s float64) func(i int) float64 { return func(int) float64 { return s } }
func rmsnormArgs(b *builder, n, d int) RMSNormArgs {
	return RMSNormArgs{Out: b.Out("out", n, d), Rstd: b.Out("rstd", n), X: b.Normal("x", 2, n, d), W: b.Normal("w", 1, d), Eps: 1e-5}
}

// rowSizes are shapes around the grains and vector widths.
var rowSizes = [][2]int{{1, 1}, {1, 320}, {2, 7}, {33, 65}, {100, 24}, {70, 513}}

func rmsnormSuite() suite {
	s := suite{kernel: "rmsnorm", gradients: map[string]func(testing.TB, *builder) kerneltest.Gradient{}, wrong: map[string]func(*builder) error{}}
	for _, c := range rowSizes {
		s.cases = append(s.cases, both(&RMSNorm, fmt.Sprint(c), func(b *builder) RMSNormArgs { return rmsnormArgs(b, c[0], c[1]) }, "out")...)
	}
	s.cases = append(s.cases, of(&RMSNorm, "zero row", func(b *builder) RMSNormArgs {
		a := rmsnormArgs(b, 3, 8)
		a.X = b.Values("zero", scaled(0), 3, 8)
		return a
	}))
	for _, c := range [][2]int{{1, 1}, {5, 7}, {40, 3}} {
		s.gradients[fmt.Sprint(c)] = func(t testing.TB, b *builder) kerneltest.Gradient { return rmsnormGradient(t, b, c[0], c[1]) }
	}
	s.wrong["rstd is f32[3], want f32[4]"] = refuse(&RMSNorm, func(b *builder) RMSNormArgs {
		a := rmsnormArgs(b, 4, 6)
		a.Rstd = b.Out("short", 3)
		return a
	})
	s.wrong["eps is -1"] = refuse(&RMSNorm, func(b *builder) RMSNormArgs {
		a := rmsnormArgs(b, 4, 6)
		a.Eps = -1
		return a
	})
	s.wrong["w is missing"] = refuse(&RMSNorm, func(b *builder) RMSNormArgs {
		a := rmsnormArgs(b, 4, 6)
		a.W = gpu.Tensor{}
		return a
	})
	s.wrong["x is bf16[4 6]; today this op takes f32 only"] = refuse(&RMSNorm, func(b *builder) RMSNormArgs {
		a := rmsnormArgs(b, 4, 6)
		a.X = bf16(a.X)
		return a
	})
	return s
}

func rmsnormGradient(t testing.TB, b *builder, n, d int) kerneltest.Gradient {
	a := rmsnormArgs(b, n, d)
	dy, dx, dw := b.Normal("dy", 1, n, d), b.Out("dx", n, d), b.Out("dw", d)
	return kerneltest.Gradient{
		Forward:  ops(must(t, &RMSNorm, a)),
		Backward: ops(must(t, &RMSNormBwd, RMSNormBwdArgs{DX: dx, DW: dw, DY: dy, X: a.X, W: a.W, Rstd: a.Rstd, Part: b.Temp("part", NormPartials, d)})),
		Outs:     tensors(a.Out), Cotangents: tensors(dy),
		Inputs: tensors(a.X, a.W), Grads: tensors(dx, dw),
	}
}

func rmsnormBwdArgs(b *builder, n, d int, acc bool) RMSNormBwdArgs {
	s := b.Normal("rstd", 0.1, n)
	a := RMSNormBwdArgs{DY: b.Normal("dy", 1, n, d), X: b.Normal("x", 1, n, d), W: b.Normal("w", 1, d), Rstd: s,
		Part: b.Temp("part", NormPartials, d), AccumulateDX: acc, AccumulateDW: acc}
	if acc {
		a.DX, a.DW = b.Normal("dx", 1, n, d), b.Normal("dw", 1, d)
	} else {
		a.DX, a.DW = b.Out("dx", n, d), b.Out("dw", d)
	}
	return a
}

func rmsnormBwdSuite() suite {
	s := suite{kernel: "rmsnorm_bwd", noGrad: "checked with rmsnorm", wrong: map[string]func(*builder) error{}}
	for _, c := range rowSizes {
		for _, acc := range []bool{false, true} {
			s.cases = append(s.cases, both(&RMSNormBwd, fmt.Sprint(c, acc), func(b *builder) RMSNormBwdArgs { return rmsnormBwdArgs(b, c[0], c[1], acc) }, "dy")...)
		}
	}
	s.wrong["dx and dy share memory"] = refuse(&RMSNormBwd, func(b *builder) RMSNormBwdArgs {
		a := rmsnormBwdArgs(b, 4, 6, true)
		a.DX = a.DY
		return a
	})
	s.wrong["part is f32[2 6], want f32[32 6]"] = refuse(&RMSNormBwd, func(b *builder) RMSNormBwdArgs {
		a := rmsnormBwdArgs(b, 4, 6, true)
		a.Part = b.Temp("small", 2, 6)
		return a
	})
	return s
}

func BenchmarkRMSNorm(b *testing.B) {
	bench(b, &RMSNorm, func(b *builder) RMSNormArgs { return rmsnormArgs(b, 4096, 320) })
}

func BenchmarkRMSNormBwd(b *testing.B) {
	bench(b, &RMSNormBwd, func(b *builder) RMSNormBwdArgs { return rmsnormBwdArgs(b, 4096, 320, true) })
}
