package kernels

import (
	"refrain/gpu"
	"refrain/kernels/asm"
)

func sumLossFast(h gpu.Host, a *SumLossArgs) func() {
	return blockSums(h, a.X, a.Out, func(x []float32) (s float64) {
		for _, v := range x {
			s += float64(v)
		}
		return s
	})
}

// squareRun is how many squares are summed in float32 before float64 takes
// over: short enough that the error stays near 1e-7, long enough for speed.
const squareRun = 1024

func sumSquaresFast(h gpu.Host, a *SumSquaresArgs) func() {
	return blockSums(h, a.X, a.Out, func(x []float32) (s float64) {
		for len(x) > squareRun {
			s += float64(asm.SumSq(x[:squareRun]))
			x = x[squareRun:]
		}
		return s + float64(asm.SumSq(x))
	})
}

// blockSums returns a body that sums block(x) over all blocks of SumBlock
// elements of in, in order.
func blockSums(h gpu.Host, in, out gpu.Tensor, block func(x []float32) float64) func() {
	x, sum, pool := gpu.Float32s(h, in), gpu.Float32s(h, out), h.Pool()
	part := make([]float64, (len(x)+SumBlock-1)/SumBlock)
	blocks := func(_, lo, hi int) { part[lo/SumBlock] = block(x[lo:hi]) }
	return func() {
		pool.For(len(x), SumBlock, blocks)
		var s float64
		for _, p := range part {
			s += p
		}
		sum[0] = float32(s)
	}
}
