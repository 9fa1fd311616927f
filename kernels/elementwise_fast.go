package kernels

import (
	"refrain/gpu"
	"refrain/kernels/asm"
)

func fillFast(h gpu.Host, a *FillArgs) func() {
	x, pool := gpu.Float32s(h, a.X), h.Pool()
	part := func(_, lo, hi int) {
		x := x[lo:hi]
		for i := range x {
			x[i] = a.Value
		}
	}
	return func() { pool.For(len(x), elementGrain, part) }
}

func copyFast(h gpu.Host, a *CopyArgs) func() {
	dst, src, pool := gpu.Float32s(h, a.Dst), gpu.Float32s(h, a.Src), h.Pool()
	part := func(_, lo, hi int) { copy(dst[lo:hi], src[lo:hi]) }
	return func() { pool.For(len(dst), elementGrain, part) }
}

func addToFast(h gpu.Host, a *AddToArgs) func() {
	dst, src, pool := gpu.Float32s(h, a.Dst), gpu.Float32s(h, a.Src), h.Pool()
	part := func(_, lo, hi int) { asm.Add(dst[lo:hi], src[lo:hi]) }
	return func() { pool.For(len(dst), elementGrain, part) }
}

func castFast(h gpu.Host, a *CastArgs) func() {
	dst, src, pool := gpu.BF16s(h, a.Dst), gpu.Float32s(h, a.Src), h.Pool()
	part := func(_, lo, hi int) { asm.ToBF16(dst[lo:hi], src[lo:hi]) }
	return func() { pool.For(len(dst), elementGrain, part) }
}
