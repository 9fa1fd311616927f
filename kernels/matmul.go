package kernels

import "refrain/gpu"

// MatMulArgs are the arguments of MatMul.
type MatMulArgs struct {
	Y   gpu.Tensor // [N,O] f32
	X   gpu.Tensor // [N,I] f32
	W   gpu.Tensor // [O,I] f32
	Add gpu.Tensor // [N,O] f32, optional: a residual; may be Y itself
}

// MatMul is a linear layer without bias: y = x * transpose(w) (+ add).
var MatMul = Kernel[MatMulArgs]{
	Name: "matmul",
	Check: func(a *MatMulArgs) error {
		var c checker
		x := c.ranked("x", a.X, gpu.F32, 2)
		w := c.ranked("w", a.W, gpu.F32, 2)
		c.f32("w", a.W, w[0], x[1])
		c.f32("y", a.Y, x[0], w[0])
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
}

// productFLOPs counts the multiply-adds of the product of x [N,I] and w [O,I],
// and of both its gradients.
func productFLOPs(x, w gpu.Tensor) float64 { return 2 * float64(x.Elems()) * float64(w.Dim(0)) }

func matmulRef[T real](m memory[T], a *MatMulArgs) {
	y, x, w := m.reals(a.Y), m.reals(a.X), m.reals(a.W)
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
	DX         gpu.Tensor // [N,I] f32
	DY         gpu.Tensor // [N,O] f32
	W          gpu.Tensor // [O,I] f32
	Accumulate bool
}

// MatMulDX is the gradient of MatMul for its input: dx (+)= dy * w.
var MatMulDX = Kernel[MatMulDXArgs]{
	Name: "matmul_dx",
	Check: func(a *MatMulDXArgs) error {
		var c checker
		dy := c.ranked("dy", a.DY, gpu.F32, 2)
		w := c.ranked("w", a.W, gpu.F32, 2)
		c.f32("w", a.W, dy[1], w[1])
		c.f32("dx", a.DX, dy[0], w[1])
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
}

// again is the traffic of reading an output that is accumulated into.
func again(accumulate bool, t gpu.Tensor) float64 {
	if accumulate {
		return bytesOf(t)
	}
	return 0
}

func matmulDXRef[T real](m memory[T], a *MatMulDXArgs) {
	dx, dy, w := m.reals(a.DX), m.reals(a.DY), m.reals(a.W)
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
}

// MatMulDWArgs are the arguments of MatMulDW.
type MatMulDWArgs struct {
	DW         gpu.Tensor // [O,I] f32
	DY         gpu.Tensor // [N,O] f32
	X          gpu.Tensor // [N,I] f32
	Accumulate bool
}

// MatMulDW is the gradient of MatMul for its weight: dw (+)= transpose(dy) * x.
var MatMulDW = Kernel[MatMulDWArgs]{
	Name: "matmul_dw",
	Check: func(a *MatMulDWArgs) error {
		var c checker
		dy := c.ranked("dy", a.DY, gpu.F32, 2)
		x := c.ranked("x", a.X, gpu.F32, 2)
		c.f32("x", a.X, dy[0], x[1])
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
}

func matmulDWRef[T real](m memory[T], a *MatMulDWArgs) {
	dw, dy, x := m.reals(a.DW), m.reals(a.DY), m.reals(a.X)
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
