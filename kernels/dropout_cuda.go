package kernels

import (
	"math"

	"refrain/gpu"
	"refrain/internal/num"
)

func dropoutCUDA(l gpu.Launcher, a *DropoutArgs) error {
	bound := dropBound(a.Rate)
	n := a.X.Elems()
	return launch(l, "dropout", eachOf(n), a.Y, a.X, a.Add, a.Draw, keyPrefix("dropout", 2), a.Site, a.Row, a.Each*a.X.Dim(1),
		int(bound), keepScale(bound), n)
}

// keyPrefix is num.KeyPrefix as a launch takes it.
func keyPrefix(purpose string, words int) int { return int(num.KeyPrefix(purpose, words)) }

func repeatRowsCUDA(l gpu.Launcher, a *RepeatRowsArgs) error {
	b, t := a.In.Dim(0), a.In.Dim(1)
	return launch(l, "repeat_rows", eachOf(b*t), a.Out, a.In, b/a.Shards, b, t)
}

func maskRowsCUDA(l gpu.Launcher, a *MaskRowsArgs) error {
	b, t := a.Tokens.Dim(0), a.Tokens.Dim(1)
	bits := func(x float64) int { return int(math.Float64bits(x)) }
	return launch(l, "mask_rows", eachOf(b*t), a.Out, a.Tokens, a.Draw, keyPrefix("mask share", 1), keyPrefix("mask", 1),
		bits(a.From), bits(a.To-a.From), a.ID, a.Vocab, a.Row, b/a.Shards, b, t)
}
