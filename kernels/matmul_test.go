package kernels

import (
	"fmt"
	"testing"

	"refrain/kernels/kerneltest"
)

// productSizes are N, I, O.
var productSizes = [][3]int{{1, 1, 1}, {1, 64, 33}, {7, 5, 3}, {150, 70, 90}, {37, 600, 20}}

func matmulArgs(b *builder, n, in, out int, add string) MatMulArgs {
	a := MatMulArgs{X: b.Normal("x", 1, n, in), W: b.Normal("w", 1, out, in)}
	switch add {
	case "alone":
		a.Y = b.Out("y", n, out)
	case "residual":
		a.Y, a.Add = b.Out("y", n, out), b.Normal("add", 1, n, out)
	case "in place":
		a.Y = b.Normal("y", 1, n, out)
		a.Add = a.Y
	}
	return a
}

func matmulSuite() suite {
	s := suite{kernel: "matmul", gradients: map[string]func(testing.TB, *builder) kerneltest.Gradient{}, wrong: map[string]func(*builder) error{}}
	for _, c := range productSizes {
		for _, add := range []string{"alone", "residual", "in place"} {
			args := func(b *builder) MatMulArgs { return matmulArgs(b, c[0], c[1], c[2], add) }
			s.cases = append(s.cases, both(&MatMul, fmt.Sprint(c, add), args, "x", "w")...)
			if add == "alone" {
				s.cases = append(s.cases, halved(&MatMul, fmt.Sprint(c, " rounded"), args, "x", "w", "y"))
			}
		}
	}
	for _, c := range [][3]int{{1, 1, 1}, {3, 5, 7}} {
		s.gradients[fmt.Sprint(c)] = func(t testing.TB, b *builder) kerneltest.Gradient { return matmulGradient(t, b, c[0], c[1], c[2]) }
	}
	s.wrong["w is f32[3 6], want f32[3 5]"] = refuse(&MatMul, func(b *builder) MatMulArgs {
		a := matmulArgs(b, 4, 5, 3, "alone")
		a.W = b.Normal("wide", 1, 3, 6)
		return a
	})
	s.wrong["y is bf16[4 3]; today this op takes f32 only"] = refuse(&MatMul, inHalf(func(b *builder) MatMulArgs {
		return matmulArgs(b, 4, 5, 3, "residual")
	}, "x", "w", "y"))
	s.wrong["y and x share memory"] = refuse(&MatMul, func(b *builder) MatMulArgs {
		a := matmulArgs(b, 4, 5, 5, "residual")
		a.Y = a.X
		return a
	})
	s.wrong["y and add share memory"] = refuse(&MatMul, func(b *builder) MatMulArgs {
		a := matmulArgs(b, 4, 5, 3, "alone")
		both := b.Normal("both", 1, 5, 3)
		a.Y, a.Add = both.View(0, 4, 3), both.View(3, 4, 3)
		return a
	})
	return s
}

func matmulGradient(t testing.TB, b *builder, n, in, out int) kerneltest.Gradient {
	a := matmulArgs(b, n, in, out, "residual")
	dy, dx, dw := b.Normal("dy", 1, n, out), b.Out("dx", n, in), b.Out("dw", out, in)
	return kerneltest.Gradient{
		Forward: ops(must(t, &MatMul, a)),
		Backward: ops(must(t, &MatMulDX, MatMulDXArgs{DX: dx, DY: dy, W: a.W}),
			must(t, &MatMulDW, MatMulDWArgs{DW: dw, DY: dy, X: a.X})),
		Outs: tensors(a.Y), Cotangents: tensors(dy),
		Inputs: tensors(a.X, a.W, a.Add), Grads: tensors(dx, dw, dy),
	}
}

func matmulDXArgs(b *builder, n, in, out int, acc bool) MatMulDXArgs {
	a := MatMulDXArgs{DY: b.Normal("dy", 1, n, out), W: b.Normal("w", 1, out, in), Accumulate: acc}
	if acc {
		a.DX = b.Normal("dx", 1, n, in)
	} else {
		a.DX = b.Out("dx", n, in)
	}
	return a
}

func matmulDXSuite() suite {
	s := suite{kernel: "matmul_dx", noGrad: "checked with matmul", wrong: map[string]func(*builder) error{}}
	for _, c := range productSizes {
		for _, acc := range []bool{false, true} {
			args := func(b *builder) MatMulDXArgs { return matmulDXArgs(b, c[0], c[1], c[2], acc) }
			s.cases = append(s.cases, of(&MatMulDX, fmt.Sprint(c, acc), args))
			if !acc {
				s.cases = append(s.cases, halved(&MatMulDX, fmt.Sprint(c), args, "dx", "dy", "w"),
					halved(&MatMulDX, fmt.Sprint(c, " dy f32"), args, "dx", "w"))
			}
		}
	}
	s.wrong["dx is bf16[4 5], which cannot be accumulated into"] = refuse(&MatMulDX, inHalf(func(b *builder) MatMulDXArgs {
		return matmulDXArgs(b, 4, 5, 3, true)
	}, "dx", "dy", "w"))
	s.wrong["dx is f32[4 4], want f32[4 5]"] = refuse(&MatMulDX, func(b *builder) MatMulDXArgs {
		a := matmulDXArgs(b, 4, 5, 3, false)
		a.DX = b.Out("short", 4, 4)
		return a
	})
	return s
}

func matmulDWArgs(b *builder, n, in, out int, acc bool) MatMulDWArgs {
	a := MatMulDWArgs{DY: b.Normal("dy", 1, n, out), X: b.Normal("x", 1, n, in), Accumulate: acc}
	if acc {
		a.DW = b.Normal("dw", 1, out, in)
	} else {
		a.DW = b.Out("dw", out, in)
	}
	return a
}

func matmulDWSuite() suite {
	s := suite{kernel: "matmul_dw", noGrad: "checked with matmul", wrong: map[string]func(*builder) error{}}
	for _, c := range productSizes {
		for _, acc := range []bool{false, true} {
			args := func(b *builder) MatMulDWArgs { return matmulDWArgs(b, c[0], c[1], c[2], acc) }
			s.cases = append(s.cases, both(&MatMulDW, fmt.Sprint(c, acc), args, "dy", "x")...)
			s.cases = append(s.cases, halved(&MatMulDW, fmt.Sprint(c, acc, " dy f32"), args, "x"))
		}
	}
	s.wrong["x is f32[5 5], want f32[4 5]"] = refuse(&MatMulDW, func(b *builder) MatMulDWArgs {
		a := matmulDWArgs(b, 4, 5, 3, false)
		a.X = b.Normal("long", 1, 5, 5)
		return a
	})
	return s
}

func BenchmarkMatMul(b *testing.B) {
	bench(b, &MatMul, func(b *builder) MatMulArgs { return matmulArgs(b, 4096, 320, 960, "alone") })
}

func BenchmarkMatMulDX(b *testing.B) {
	bench(b, &MatMulDX, func(b *builder) MatMulDXArgs { return matmulDXArgs(b, 4096, 320, 960, false) })
}

func BenchmarkMatMulDW(b *testing.B) {
	bench(b, &MatMulDW, func(b *builder) MatMulDWArgs { return matmulDWArgs(b, 4096, 320, 960, true) })
}
