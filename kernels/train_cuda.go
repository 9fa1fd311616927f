package kernels

import (
	"errors"

	"refrain/gpu"
)

// Launches of the ops of a training step, but for products and attention.

func segmentsCUDA(l gpu.Launcher, a *SegmentsArgs) error {
	if noWork(a.Seg) {
		return nil
	}
	b, t := a.Seg.Dim(0), a.Seg.Dim(1)
	return launch(l, "segments", eachOf(b), a.Starts, a.Seg, a.Mask, b, t)
}

func embedCUDA(l gpu.Launcher, a *EmbedArgs) error {
	if noWork(a.Out) {
		return nil
	}
	return launch(l, "embed", eachOf(a.Out.Elems()), a.Out, a.Tokens, a.W, a.Out.Dim(0), a.Out.Dim(1))
}

func embedBwdCUDA(l gpu.Launcher, a *EmbedBwdArgs) error {
	if noWork(a.DW) {
		return nil
	}
	v, d := a.DW.Dim(0), a.DW.Dim(1)
	return launch(l, "embed_bwd", blocks(min(v, 1<<16)), a.DW, a.DX, a.Tokens, a.Accumulate, a.DX.Dim(0), v, d)
}

func rmsnormCUDA(l gpu.Launcher, a *RMSNormArgs) error {
	if noWork(a.X) {
		return nil
	}
	return launch(l, "rmsnorm", blocks(a.X.Dim(0)), valuesOf(l, a.Out), a.Rstd, a.X, a.W, a.Eps, a.X.Dim(1))
}

func rmsnormBwdCUDA(l gpu.Launcher, a *RMSNormBwdArgs) error {
	n, d := a.X.Dim(0), a.X.Dim(1)
	if d == 0 {
		return nil
	}
	var err error
	if n > 0 {
		err = launch(l, "rmsnorm_dx", blocks(n), a.DX, valuesOf(l, a.DY), a.X, a.W, a.Rstd, a.AccumulateDX, d)
	}
	return errors.Join(err,
		launch(l, "rmsnorm_part", eachOf(NormPartials*d), a.Part, valuesOf(l, a.DY), a.X, a.Rstd, n, d, NormPartials),
		launch(l, "rmsnorm_dw", eachOf(d), a.DW, a.Part, a.AccumulateDW, d, NormPartials))
}

func swigluCUDA(l gpu.Launcher, a *SwiGLUArgs) error {
	if noWork(a.A) {
		return nil
	}
	return launch(l, "swiglu", eachOf(a.A.Elems()), valuesOf(l, a.A), valuesOf(l, a.GU), a.A.Dim(0), a.A.Dim(1))
}

func swigluBwdCUDA(l gpu.Launcher, a *SwiGLUBwdArgs) error {
	if noWork(a.DA) {
		return nil
	}
	return launch(l, "swiglu_bwd", eachOf(a.DA.Elems()), valuesOf(l, a.DGU), valuesOf(l, a.DA), valuesOf(l, a.GU), a.DA.Dim(0), a.DA.Dim(1))
}

func sumLossCUDA(l gpu.Launcher, a *SumLossArgs) error {
	return launch(l, "sum_loss", blocks(1), a.Out, a.X, a.X.Elems())
}

func sumSquaresCUDA(l gpu.Launcher, a *SumSquaresArgs) error {
	return launch(l, "sum_squares", blocks(1), a.Out, a.X, a.X.Elems())
}

func guardCUDA(l gpu.Launcher, a *GuardArgs) error {
	one := gpu.Grid{Blocks: [3]uint32{1, 1, 1}, Threads: [3]uint32{1, 1, 1}}
	return launch(l, "guard", one, a.Scale, a.Halt, a.SumSq, a.Loss, a.MaxNorm)
}

func adamwCUDA(l gpu.Launcher, a *AdamWArgs) error {
	if noWork(a.P) {
		return nil
	}
	return launch(l, "adamw", eachOf(a.P.Elems()), a.P, a.G, a.M, a.V, a.Hyper, a.Scale, a.Halt, a.DecayFactor,
		a.WeightDecay, a.LRMul, a.P.Elems())
}
