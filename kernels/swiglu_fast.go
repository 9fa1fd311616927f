package kernels

import (
	"refrain/gpu"
	"refrain/kernels/asm"
)

func swigluFast(h gpu.Host, a *SwiGLUArgs) func() {
	if a.A.DType == gpu.BF16 {
		return nil
	}
	out, gu := gpu.Float32s(h, a.A), gpu.Float32s(h, a.GU)
	n, f, pool := a.A.Dim(0), a.A.Dim(1), h.Pool()
	rows := func(_, lo, hi int) {
		for r := lo; r < hi; r++ {
			row := gu[r*2*f : (r+1)*2*f]
			asm.SwiGLU(out[r*f:(r+1)*f], row[:f], row[f:])
		}
	}
	return func() { pool.For(n, rowGrain, rows) }
}

func swigluBwdFast(h gpu.Host, a *SwiGLUBwdArgs) func() {
	if a.DA.DType == gpu.BF16 {
		return nil
	}
	dgu, da, gu := gpu.Float32s(h, a.DGU), gpu.Float32s(h, a.DA), gpu.Float32s(h, a.GU)
	n, f, pool := a.DA.Dim(0), a.DA.Dim(1), h.Pool()
	rows := func(_, lo, hi int) {
		for r := lo; r < hi; r++ {
			d, row := dgu[r*2*f:(r+1)*2*f], gu[r*2*f:(r+1)*2*f]
			asm.SwiGLUBwd(d[:f], d[f:], row[:f], row[f:], da[r*f:(r+1)*f])
		}
	}
	return func() { pool.For(n, rowGrain, rows) }
}
