package kernels

import (
	"fmt"

	"refrain/gpu"
	"refrain/kernels/gemm"
)

// packing returns the device's packing buffers for parallel products.
func packing(h gpu.Host) *gemm.Scratch {
	return h.Cached("gemm", func() any {
		calls := 0
		return gemm.NewScratch(h.Pool().Threads(), func(n int) []float32 {
			calls++
			return h.Scratch(fmt.Sprintf("gemm.%d", calls), n)
		})
	}).(*gemm.Scratch)
}

func matmulFast(h gpu.Host, a *MatMulArgs) func() {
	if a.X.DType == gpu.BF16 {
		return matmulHalf(h, a)
	}
	y, x, w := gpu.Float32s(h, a.Y), gpu.Float32s(h, a.X), gpu.Float32s(h, a.W)
	n, in, out := a.X.Dim(0), a.X.Dim(1), a.W.Dim(0)
	plan := gemm.NewPlan(packing(h), h.Pool(), false, true, n, out, in, in, in, out, !a.Add.IsZero())
	if a.Add.IsZero() || a.Add.Span == a.Y.Span {
		return func() { plan.Run(x, w, y) }
	}
	add := copyFast(h, &CopyArgs{Dst: a.Y, Src: a.Add})
	return func() {
		add()
		plan.Run(x, w, y)
	}
}

func matmulHalf(h gpu.Host, a *MatMulArgs) func() {
	x, w := gpu.BF16s(h, a.X), gpu.BF16s(h, a.W)
	n, in, out := a.X.Dim(0), a.X.Dim(1), a.W.Dim(0)
	plan := gemm.NewPlan16[uint16, uint16](packing(h), h.Pool(), false, true, n, out, in, in, in, out, !a.Add.IsZero())
	if a.Y.DType == gpu.BF16 {
		y := gpu.BF16s(h, a.Y)
		return func() { plan.RunRounded(x, w, y) }
	}
	y := gpu.Float32s(h, a.Y)
	if a.Add.IsZero() || a.Add.Span == a.Y.Span {
		return func() { plan.Run(x, w, y) }
	}
	add := copyFast(h, &CopyArgs{Dst: a.Y, Src: a.Add})
	return func() {
		add()
		plan.Run(x, w, y)
	}
}

func matmulDXFast(h gpu.Host, a *MatMulDXArgs) func() {
	switch {
	case a.W.DType == gpu.BF16 && a.DY.DType == gpu.BF16:
		return matmulDXHalf(h, a, gpu.BF16s(h, a.DY))
	case a.W.DType == gpu.BF16:
		return matmulDXHalf(h, a, gpu.Float32s(h, a.DY))
	}
	dx, dy, w := gpu.Float32s(h, a.DX), gpu.Float32s(h, a.DY), gpu.Float32s(h, a.W)
	n, out, in := a.DY.Dim(0), a.DY.Dim(1), a.W.Dim(1)
	plan := gemm.NewPlan(packing(h), h.Pool(), false, false, n, in, out, out, in, in, a.Accumulate)
	return func() { plan.Run(dy, w, dx) }
}

func matmulDXHalf[E gemm.Elem](h gpu.Host, a *MatMulDXArgs, dy []E) func() {
	dx, w := gpu.BF16s(h, a.DX), gpu.BF16s(h, a.W)
	n, out, in := a.DY.Dim(0), a.DY.Dim(1), a.W.Dim(1)
	plan := gemm.NewPlan16[E, uint16](packing(h), h.Pool(), false, false, n, in, out, out, in, in, false)
	return func() { plan.RunRounded(dy, w, dx) }
}

func matmulDWFast(h gpu.Host, a *MatMulDWArgs) func() {
	switch {
	case a.X.DType == gpu.BF16 && a.DY.DType == gpu.BF16:
		return matmulDWHalf(h, a, gpu.BF16s(h, a.DY))
	case a.X.DType == gpu.BF16:
		return matmulDWHalf(h, a, gpu.Float32s(h, a.DY))
	}
	dw, dy, x := gpu.Float32s(h, a.DW), gpu.Float32s(h, a.DY), gpu.Float32s(h, a.X)
	n, out, in := a.DY.Dim(0), a.DY.Dim(1), a.X.Dim(1)
	plan := gemm.NewPlan(packing(h), h.Pool(), true, false, out, in, n, out, in, in, a.Accumulate)
	return func() { plan.Run(dy, x, dw) }
}

func matmulDWHalf[E gemm.Elem](h gpu.Host, a *MatMulDWArgs, dy []E) func() {
	dw, x := gpu.Float32s(h, a.DW), gpu.BF16s(h, a.X)
	n, out, in := a.DY.Dim(0), a.DY.Dim(1), a.X.Dim(1)
	plan := gemm.NewPlan16[E, uint16](packing(h), h.Pool(), true, false, out, in, n, out, in, in, a.Accumulate)
	return func() { plan.Run(dy, x, dw) }
}
