package kernels

import (
	"fmt"
	"testing"

	"refrain/kernels/kerneltest"
)

func swigluSuite() suite {
	s := suite{kernel: "swiglu", gradients: map[string]func(testing.TB, *builder) kerneltest.Gradient{}, wrong: map[string]func(*builder) error{}}
	for _, c := range rowSizes {
		s.cases = append(s.cases, both(&SwiGLU, fmt.Sprint(c), func(b *builder) SwiGLUArgs {
			return SwiGLUArgs{A: b.Out("a", c[0], c[1]), GU: b.Normal("gu", 3, c[0], 2*c[1])}
		}, "a", "gu")...)
	}
	s.cases = append(s.cases, of(&SwiGLU, "large gates", func(b *builder) SwiGLUArgs {
		return SwiGLUArgs{A: b.Out("a", 1, 101), GU: b.Values("gu", func(i int) float64 { return float64(i-50) * 4 }, 1, 202)}
	}))
	for _, c := range [][2]int{{1, 1}, {3, 5}} {
		s.gradients[fmt.Sprint(c)] = func(t testing.TB, b *builder) kerneltest.Gradient {
			a := SwiGLUArgs{A: b.Out("a", c[0], c[1]), GU: b.Normal("gu", 2, c[0], 2*c[1])}
			da, dgu := b.Normal("da", 1, c[0], c[1]), b.Out("dgu", c[0], 2*c[1])
			return kerneltest.Gradient{
				Forward:  ops(must(t, &SwiGLU, a)),
				Backward: ops(must(t, &SwiGLUBwd, SwiGLUBwdArgs{DGU: dgu, DA: da, GU: a.GU})),
				Outs:     tensors(a.A), Cotangents: tensors(da), Inputs: tensors(a.GU), Grads: tensors(dgu),
			}
		}
	}
	s.wrong["gu is f32[2 5], want f32[2 6]"] = refuse(&SwiGLU, func(b *builder) SwiGLUArgs {
		return SwiGLUArgs{A: b.Out("a", 2, 3), GU: b.Normal("gu", 1, 2, 5)}
	})
	return s
}

func swigluBwdArgs(b *builder, n, f int) SwiGLUBwdArgs {
	return SwiGLUBwdArgs{DGU: b.Out("dgu", n, 2*f), DA: b.Normal("da", 1, n, f), GU: b.Normal("gu", 3, n, 2*f)}
}

func swigluBwdSuite() suite {
	s := suite{kernel: "swiglu_bwd", noGrad: "checked with swiglu", wrong: map[string]func(*builder) error{}}
	for _, c := range rowSizes {
		s.cases = append(s.cases, both(&SwiGLUBwd, fmt.Sprint(c), func(b *builder) SwiGLUBwdArgs { return swigluBwdArgs(b, c[0], c[1]) }, "dgu", "da", "gu")...)
	}
	s.wrong["dgu and gu share memory"] = refuse(&SwiGLUBwd, func(b *builder) SwiGLUBwdArgs {
		a := swigluBwdArgs(b, 2, 3)
		a.DGU = a.GU
		return a
	})
	return s
}

func BenchmarkSwiGLU(b *testing.B) {
	bench(b, &SwiGLU, func(b *builder) SwiGLUArgs {
		return SwiGLUArgs{A: b.Out("a", 4096, 864), GU: b.Normal("gu", 1, 4096, 2*864)}
	})
}

func BenchmarkSwiGLUBwd(b *testing.B) {
	bench(b, &SwiGLUBwd, func(b *builder) SwiGLUBwdArgs { return swigluBwdArgs(b, 4096, 864) })
}
