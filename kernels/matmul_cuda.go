package kernels

import "refrain/gpu"

// rows is t [I,J] as a factor of a product over its second axis, columns over its first.
// beside is the type of the other factor: an f32 one is rounded beside a bf16 one.
func rows(l gpu.Launcher, t gpu.Tensor, beside gpu.DType) factor {
	return factor{valuesOf(l, t), int64(t.Dim(1)), 1, flag(t.DType == gpu.F32 && beside == gpu.BF16)}
}

func columns(l gpu.Launcher, t gpu.Tensor, beside gpu.DType) factor {
	f := rows(l, t, beside)
	f.major, f.minor = f.minor, f.major
	return f
}

// product launches c [m,n] = a*b (+ add) over k terms; mask leaves out terms.
func product(l gpu.Launcher, c, add gpu.Tensor, a, b factor, mask gpu.Tensor, m, n, k int) error {
	if m*n == 0 {
		return nil
	}
	return launch(l, "product", eachOf(m*n), valuesOf(l, c), add, a, b, mask, m, n, k)
}

func matmulCUDA(l gpu.Launcher, a *MatMulArgs) error {
	return product(l, a.Y, a.Add, rows(l, a.X, a.W.DType), rows(l, a.W, a.X.DType), gpu.Tensor{}, a.X.Dim(0), a.W.Dim(0), a.X.Dim(1))
}

// held is t where it is added to, and none where it is replaced.
func held(accumulate bool, t gpu.Tensor) gpu.Tensor {
	if accumulate {
		return t
	}
	return gpu.Tensor{}
}

func matmulDXCUDA(l gpu.Launcher, a *MatMulDXArgs) error {
	return product(l, a.DX, held(a.Accumulate, a.DX), rows(l, a.DY, a.W.DType), columns(l, a.W, a.DY.DType), gpu.Tensor{},
		a.DY.Dim(0), a.W.Dim(1), a.DY.Dim(1))
}

func matmulDWCUDA(l gpu.Launcher, a *MatMulDWArgs) error {
	return product(l, a.DW, held(a.Accumulate, a.DW), columns(l, a.DY, a.X.DType), columns(l, a.X, a.DY.DType), gpu.Tensor{},
		a.DY.Dim(1), a.X.Dim(1), a.DY.Dim(0))
}

func headLossCUDA(l gpu.Launcher, a *HeadLossArgs) error {
	return headCUDA(l, a, func(_, m int, logits, loss, targets, scale gpu.Tensor) error {
		return launch(l, "head_rows", blocks(m), logits, loss, targets, scale, a.W.Dim(0))
	})
}

// headCUDA works off a chunk of rows at a time: logits, their loss and gradient, which one
// launches for m rows from at on, and the two products with it.
func headCUDA(l gpu.Launcher, a *HeadLossArgs, one func(at, m int, logits, loss, targets, scale gpu.Tensor) error) error {
	n, d, v := a.X.Dim(0), a.X.Dim(1), a.W.Dim(0)
	chunk := a.Logits.Dim(0)
	if n == 0 {
		if !a.DW.IsZero() && !a.AccumulateDW && !noWork(a.DW) {
			return launch(l, "fill", eachOf(a.DW.Elems()), a.DW, float32(0), a.DW.Elems())
		}
		return nil
	}
	scale := gpu.Tensor{}
	if a.grads() {
		scale = a.Scale
	}
	for at := 0; at < n; at += chunk {
		m := min(chunk, n-at)
		x, logits := a.X.View(at*d, m, d), a.Logits.View(0, m, v)
		targets := a.Targets.View(at, m)
		if err := product(l, logits, gpu.Tensor{}, rows(l, x, a.W.DType), rows(l, a.W, a.X.DType), gpu.Tensor{}, m, v, d); err != nil {
			return err
		}
		if err := one(at, m, logits, a.Loss.View(at, m), targets, scale); err != nil {
			return err
		}
		if !a.DX.IsZero() {
			if err := product(l, a.DX.View(at*d, m, d), gpu.Tensor{}, rows(l, logits, a.W.DType), columns(l, a.W, gpu.F32), gpu.Tensor{}, m, d, v); err != nil {
				return err
			}
		}
		if !a.DW.IsZero() {
			add := held(at > 0 || a.AccumulateDW, a.DW)
			if err := product(l, a.DW, add, columns(l, logits, a.X.DType), columns(l, x, gpu.F32), targets, v, d, m); err != nil {
				return err
			}
		}
	}
	return nil
}
