package kernels

import (
	"math"

	"refrain/gpu"
	"refrain/kernels/asm"
)

func rmsnormFast(h gpu.Host, a *RMSNormArgs) func() {
	if a.Out.DType == gpu.BF16 {
		return rmsnormHalf(h, a)
	}
	x, w, out, rstd := gpu.Float32s(h, a.X), gpu.Float32s(h, a.W), gpu.Float32s(h, a.Out), gpu.Float32s(h, a.Rstd)
	d, pool := len(w), h.Pool()
	rows := func(_, lo, hi int) {
		for n := lo; n < hi; n++ {
			x := x[n*d : (n+1)*d]
			r := float32(1 / math.Sqrt(float64(asm.SumSq(x))/float64(d)+float64(a.Eps)))
			rstd[n] = r
			asm.ScaleMul(out[n*d:(n+1)*d], x, w, r)
		}
	}
	return func() { pool.For(len(rstd), rowGrain, rows) }
}

func rmsnormHalf(h gpu.Host, a *RMSNormArgs) func() {
	x, w, out, rstd := gpu.Float32s(h, a.X), gpu.Float32s(h, a.W), gpu.BF16s(h, a.Out), gpu.Float32s(h, a.Rstd)
	d, pool := len(w), h.Pool()
	room := newParts(h, 1, d)
	rows := func(worker, lo, hi int) {
		y := room.at(worker, 0, d)
		for n := lo; n < hi; n++ {
			x := x[n*d : (n+1)*d]
			r := float32(1 / math.Sqrt(float64(asm.SumSq(x))/float64(d)+float64(a.Eps)))
			rstd[n] = r
			asm.ScaleMul(y, x, w, r)
			asm.ToBF16(out[n*d:(n+1)*d], y)
		}
	}
	return func() { pool.For(len(rstd), rowGrain, rows) }
}

// rmsnormBwdFast gives each of NormPartials row ranges to one worker, which
// sums that range's weight gradient in a row of its own; the partials are then
// added in order.
func rmsnormBwdFast(h gpu.Host, a *RMSNormBwdArgs) func() {
	dx, dw := gpu.Float32s(h, a.DX), gpu.Float32s(h, a.DW)
	x, w, rstd, part := gpu.Float32s(h, a.X), gpu.Float32s(h, a.W), gpu.Float32s(h, a.Rstd), gpu.Float32s(h, a.Part)
	n, d, pool := len(rstd), len(w), h.Pool()
	var dy func(worker, i int) []float32 // row i
	if a.DY.DType == gpu.BF16 {
		half, room := gpu.BF16s(h, a.DY), newParts(h, 1, d)
		dy = func(worker, i int) []float32 { return room.widened(worker, 0, half[i*d:(i+1)*d]) }
	} else {
		full := gpu.Float32s(h, a.DY)
		dy = func(_, i int) []float32 { return full[i*d : (i+1)*d] }
	}
	partial := func(worker, lo, hi int) {
		for p := lo; p < hi; p++ {
			sum := part[p*d : (p+1)*d]
			clear(sum)
			for i := p * n / NormPartials; i < (p+1)*n/NormPartials; i++ {
				x, dy, dx, r := x[i*d:(i+1)*d], dy(worker, i), dx[i*d:(i+1)*d], rstd[i]
				if !a.AccumulateDX {
					clear(dx)
				}
				asm.RMSBwd(dx, sum, dy, w, x, r, r*r*r*asm.Dot3(dy, w, x)/float32(d))
			}
		}
	}
	columns := func(_, lo, hi int) {
		if !a.AccumulateDW {
			clear(dw[lo:hi])
		}
		for p := range NormPartials {
			asm.Add(dw[lo:hi], part[p*d+lo:p*d+hi])
		}
	}
	return func() {
		pool.For(NormPartials, 1, partial)
		pool.For(d, 512, columns)
	}
}
