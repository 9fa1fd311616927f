package kernels

import "refrain/gpu"

// MatMulArgs are the arguments of MatMul.
type MatMulArgs struct {
	Y   gpu.Tensor // [N,O] f32, or bf16 where X is and there is no Add
	X   gpu.Tensor // [N,I] f32 or bf16
	W   gpu.Tensor // [O,I] of the type of X
	Add gpu.Tensor // [N,O] f32, optional: a residual; may be Y itself
}

// MatMul is a linear layer without bias: y = x * transpose(w) (+ add).
//
// Products of this and the other ops are exact and summed in f32 whatever the
// type of the operands; a bf16 output is rounded once, from the whole sum.
var MatMul = Kernel[MatMulArgs]{
	Name: "matmul",
	Check: func(a *MatMulArgs) error {
		var c checker
		dt, x := c.stored("x", a.X, 2)
		w := c.ranked("w", a.W, dt, 2)
		c.is("w", a.W, dt, w[0], x[1])
		if !a.Add.IsZero() {
			c.f32("y", a.Y, x[0], w[0])
		} else {
			c.either("y", a.Y, dt, x[0], w[0])
		}
		ins := names{{"x", a.X}, {"w", a.W}}
		if !a.Add.IsZero() {
			c.f32("add", a.Add, x[0], w[0])
			if a.Add.Span != a.Y.Span {
				ins = append(ins, names{{"add", a.Add}}...)
			}
		}
		c.apart(names{{"y", a.Y}}, ins)
		return c.err
	},
	Access: func(a *MatMulArgs) (reads, writes []gpu.Span) {
		return spans(a.X, a.W, a.Add), spans(a.Y)
	},
	Cost: func(a *MatMulArgs) gpu.Cost {
		return gpu.Cost{FLOPs: productFLOPs(a.X, a.W), Bytes: bytesOf(a.X, a.W, a.Y, a.Add)}
	},
	Ref:  func(h gpu.Host, a *MatMulArgs) { matmulRef(narrow(h), a) },
	Wide: func(h WideHost, a *MatMulArgs) { matmulRef(wide(h), a) },
	Fast: matmulFast,
	CUDA: matmulCUDA,
}

// productFLOPs counts the multiply-adds of the product of x [N,I] and w [O,I],
// and of both its gradients.
func productFLOPs(x, w gpu.Tensor) float64 { return 2 * float64(x.Elems()) * float64(w.Dim(0)) }

func matmulRef[T real](m memory[T], a *MatMulArgs) {
	x, w := m.read(a.X), m.read(a.W)
	y, store := m.values(a.Y)
	n, in, out := a.X.Dim(0), a.X.Dim(1), a.W.Dim(0)
	var add []T
	if !a.Add.IsZero() {
		add = m.reals(a.Add)
	}
	for r := range n {
		for o := range out {
			s := dot(x[r*in:(r+1)*in], w[o*in:(o+1)*in])
			if add != nil {
				s += float64(add[r*out+o])
			}
			y[r*out+o] = T(s)
		}
	}
	store()
}

// dot is the scalar product of equally long vectors in float64.
func dot[T real](x, y []T) (s float64) {
	for i, v := range x {
		s += float64(v) * float64(y[i])
	}
	return s
}

// MatMulDXArgs are the arguments of MatMulDX.
type MatMulDXArgs struct {
	DX         gpu.Tensor // [N,I] of the type of W
	DY         gpu.Tensor // [N,O] f32, or bf16 where W is
	W          gpu.Tensor // [O,I] f32 or bf16
	Accumulate bool       // with f32 only: a bf16 sum would be rounded twice
}

// MatMulDX is the gradient of MatMul for its input: dx (+)= dy * w. Beside a
// bf16 matrix an f32 dy, the gradient of a residual stream, is rounded before
// it is multiplied.
var MatMulDX = Kernel[MatMulDXArgs]{
	Name: "matmul_dx",
	Check: func(a *MatMulDXArgs) error {
		var c checker
		dt, w := c.stored("w", a.W, 2)
		_, dy := c.stored("dy", a.DY, 2)
		c.either("dy", a.DY, dt, dy[0], dy[1])
		c.is("w", a.W, dt, dy[1], w[1])
		c.is("dx", a.DX, dt, dy[0], w[1])
		if a.Accumulate && dt != gpu.F32 {
			c.failf("dx is %v, which cannot be accumulated into", a.DX)
		}
		c.apart(names{{"dx", a.DX}}, names{{"dy", a.DY}, {"w", a.W}})
		return c.err
	},
	Access: func(a *MatMulDXArgs) (reads, writes []gpu.Span) {
		reads = spans(a.DY, a.W)
		if a.Accumulate {
			reads = append(reads, a.DX.Span)
		}
		return reads, spans(a.DX)
	},
	Cost: func(a *MatMulDXArgs) gpu.Cost {
		return gpu.Cost{FLOPs: productFLOPs(a.DX, a.W), Bytes: bytesOf(a.DX, a.DY, a.W) + again(a.Accumulate, a.DX)}
	},
	Ref:  func(h gpu.Host, a *MatMulDXArgs) { matmulDXRef(narrow(h), a) },
	Wide: func(h WideHost, a *MatMulDXArgs) { matmulDXRef(wide(h), a) },
	Fast: matmulDXFast,
	CUDA: matmulDXCUDA,
}

// again is the traffic of reading an output that is accumulated into.
func again(accumulate bool, t gpu.Tensor) float64 {
	if accumulate {
		return bytesOf(t)
	}
	return 0
}

func matmulDXRef[T real](m memory[T], a *MatMulDXArgs) {
	dy, w := m.operand(a.DY, a.W.DType), m.read(a.W)
	dx, store := m.values(a.DX)
	n, out, in := a.DY.Dim(0), a.DY.Dim(1), a.W.Dim(1)
	for r := range n {
		for i := range in {
			var s float64
			if a.Accumulate {
				s = float64(dx[r*in+i])
			}
			for o := range out {
				s += float64(dy[r*out+o]) * float64(w[o*in+i])
			}
			dx[r*in+i] = T(s)
		}
	}
	store()
}

// MatMulDWArgs are the arguments of MatMulDW.
type MatMulDWArgs struct {
	DW         gpu.Tensor // [O,I] f32
	DY         gpu.Tensor // [N,O] f32, or bf16 where X is
	X          gpu.Tensor // [N,I] f32 or bf16
	Accumulate bool
}

// MatMulDW is the gradient of MatMul for its weight: dw (+)= transpose(dy) * x.
// As in MatMulDX, an f32 dy is rounded before it is multiplied with a bf16 x.
var MatMulDW = Kernel[MatMulDWArgs]{
	Name: "matmul_dw",
	Check: func(a *MatMulDWArgs) error {
		var c checker
		dt, x := c.stored("x", a.X, 2)
		_, dy := c.stored("dy", a.DY, 2)
		c.either("dy", a.DY, dt, dy[0], dy[1])
		c.is("x", a.X, dt, dy[0], x[1])
		c.f32("dw", a.DW, dy[1], x[1])
		c.apart(names{{"dw", a.DW}}, names{{"dy", a.DY}, {"x", a.X}})
		return c.err
	},
	Access: func(a *MatMulDWArgs) (reads, writes []gpu.Span) {
		reads = spans(a.DY, a.X)
		if a.Accumulate {
			reads = append(reads, a.DW.Span)
		}
		return reads, spans(a.DW)
	},
	Cost: func(a *MatMulDWArgs) gpu.Cost {
		return gpu.Cost{FLOPs: productFLOPs(a.X, a.DW), Bytes: bytesOf(a.DW, a.DY, a.X) + again(a.Accumulate, a.DW)}
	},
	Ref:  func(h gpu.Host, a *MatMulDWArgs) { matmulDWRef(narrow(h), a) },
	Wide: func(h WideHost, a *MatMulDWArgs) { matmulDWRef(wide(h), a) },
	Fast: matmulDWFast,
	CUDA: matmulDWCUDA,
}

func matmulDWRef[T real](m memory[T], a *MatMulDWArgs) {
	dw, dy, x := m.reals(a.DW), m.operand(a.DY, a.X.DType), m.read(a.X)
	n, out, in := a.DY.Dim(0), a.DY.Dim(1), a.X.Dim(1)
	for o := range out {
		for i := range in {
			var s float64
			if a.Accumulate {
				s = float64(dw[o*in+i])
			}
			for r := range n {
				s += float64(dy[r*out+o]) * float64(x[r*in+i])
			}
			dw[o*in+i] = T(s)
		}
	}
}
