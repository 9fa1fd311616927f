package kernels

import (
	"refrain/gpu"
	"refrain/kernels/asm"
)

func swigluFast(h gpu.Host, a *SwiGLUArgs) func() {
	if a.A.DType == gpu.BF16 {
		return swigluHalf(h, a)
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
		return swigluBwdHalf(h, a)
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

func swigluHalf(h gpu.Host, a *SwiGLUArgs) func() {
	out, gu := gpu.BF16s(h, a.A), gpu.BF16s(h, a.GU)
	n, f, pool := a.A.Dim(0), a.A.Dim(1), h.Pool()
	room := newParts(h, 3, min(f, halfRun))
	rows := func(worker, lo, hi int) {
		for r := lo; r < hi; r++ {
			gate, up, out := gu[r*2*f:r*2*f+f], gu[r*2*f+f:(r+1)*2*f], out[r*f:(r+1)*f]
			for at := 0; at < f; at += halfRun {
				end := min(at+halfRun, f)
				y := room.at(worker, 2, end-at)
				asm.SwiGLU(y, room.widened(worker, 0, gate[at:end]), room.widened(worker, 1, up[at:end]))
				asm.ToBF16(out[at:end], y)
			}
		}
	}
	return func() { pool.For(n, rowGrain, rows) }
}

func swigluBwdHalf(h gpu.Host, a *SwiGLUBwdArgs) func() {
	dgu, da, gu := gpu.BF16s(h, a.DGU), gpu.BF16s(h, a.DA), gpu.BF16s(h, a.GU)
	n, f, pool := a.DA.Dim(0), a.DA.Dim(1), h.Pool()
	room := newParts(h, 5, min(f, halfRun))
	rows := func(worker, lo, hi int) {
		for r := lo; r < hi; r++ {
			gate, up, da := gu[r*2*f:r*2*f+f], gu[r*2*f+f:(r+1)*2*f], da[r*f:(r+1)*f]
			dgate, dup := dgu[r*2*f:r*2*f+f], dgu[r*2*f+f:(r+1)*2*f]
			for at := 0; at < f; at += halfRun {
				end := min(at+halfRun, f)
				dg, du := room.at(worker, 3, end-at), room.at(worker, 4, end-at)
				asm.SwiGLUBwd(dg, du, room.widened(worker, 0, gate[at:end]), room.widened(worker, 1, up[at:end]), room.widened(worker, 2, da[at:end]))
				asm.ToBF16(dgate[at:end], dg)
				asm.ToBF16(dup[at:end], du)
			}
		}
	}
	return func() { pool.For(n, rowGrain, rows) }
}
