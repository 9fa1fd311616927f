package kernels

import "refrain/gpu"

func fillCUDA(l gpu.Launcher, a *FillArgs) error {
	if noWork(a.X) {
		return nil
	}
	return launch(l, "fill", eachOf(a.X.Elems()), a.X, a.Value, a.X.Elems())
}

// ofTwo launches a kernel of (dst, src, n).
func ofTwo(l gpu.Launcher, name string, dst, src gpu.Tensor) error {
	if noWork(src) {
		return nil
	}
	return launch(l, name, eachOf(src.Elems()), dst, src, src.Elems())
}

func copyCUDA(l gpu.Launcher, a *CopyArgs) error { return ofTwo(l, "copy", a.Dst, a.Src) }

func castCUDA(l gpu.Launcher, a *CastArgs) error { return ofTwo(l, "cast", a.Dst, a.Src) }

func addToCUDA(l gpu.Launcher, a *AddToArgs) error { return ofTwo(l, "add_to", a.Dst, a.Src) }
