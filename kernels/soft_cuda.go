package kernels

import "refrain/gpu"

func softTargetsCUDA(l gpu.Launcher, a *SoftTargetsArgs) error {
	n, v := a.Logits.Dim(0), a.Logits.Dim(1)
	if a.sparse() {
		return launch(l, "soft_top", blocks(n), a.Logits, a.IDs, a.P, a.Entropy, a.Scale, v, a.IDs.Dim(1))
	}
	return launch(l, "soft_rows", blocks(n), a.Logits, a.Entropy, a.Scale, v)
}

func headDistillCUDA(l gpu.Launcher, a *HeadDistillArgs) error {
	base := a.base()
	return headCUDA(l, &base, func(at, m int, logits, loss, targets, scale gpu.Tensor) error {
		v, k := a.W.Dim(0), 0
		q, ids, p := a.Q, a.IDs, a.P
		if a.sparse() {
			k = ids.Dim(1)
			ids, p = ids.View(at*k, m, k), p.View(at*k, m, k)
		} else {
			q = q.View(at*v, m, v)
		}
		return launch(l, "distill_rows", blocks(m), logits, loss, targets, scale, q, ids, p, a.Entropy.View(at, m), a.Weight, a.Temperature, v, k)
	})
}
