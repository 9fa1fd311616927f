package kernels

import (
	"math"

	"refrain/gpu"
	"refrain/kernels/asm"
)

func adamwFast(h gpu.Host, a *AdamWArgs) func() {
	p, g, m, v := gpu.Float32s(h, a.P), gpu.Float32s(h, a.G), gpu.Float32s(h, a.M), gpu.Float32s(h, a.V)
	hyper, scale, halt, pool := gpu.Float32s(h, a.Hyper), gpu.Float32s(h, a.Scale), gpu.Int32s(h, a.Halt), h.Pool()
	factor := []float32{1}
	if !a.DecayFactor.IsZero() {
		factor = gpu.Float32s(h, a.DecayFactor)
	}
	k := new([asm.NumAdam]float32) // written before the loop starts, read by all workers
	part := func(_, lo, hi int) { asm.AdamW(p[lo:hi], g[lo:hi], m[lo:hi], v[lo:hi], k) }
	return func() {
		if halt[0] != 0 {
			return
		}
		lr := float64(hyper[0]) * float64(a.LRMul)
		decay := float64(a.WeightDecay) * float64(factor[0])
		*k = [asm.NumAdam]float32{
			asm.AdamBeta1: hyper[1], asm.AdamBeta1C: hyper[6],
			asm.AdamBeta2: hyper[2], asm.AdamBeta2C: hyper[7],
			asm.AdamStep:     float32(lr * float64(hyper[4])),
			asm.AdamRootBias: float32(math.Sqrt(float64(hyper[5]))),
			asm.AdamEps:      hyper[3],
			asm.AdamKeep:     float32(1 - float64(lr*decay)), // not fused, on any architecture
			asm.AdamScale:    scale[0],
		}
		pool.For(len(p), elementGrain, part)
	}
}
