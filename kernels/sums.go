package kernels

import "refrain/gpu"

// SumBlock is the number of elements of one partial sum of SumLoss and
// SumSquares. Partials are float64 and are added in order, so a sum depends on
// the values and their order alone.
const SumBlock = 16384

// SumLossArgs are the arguments of SumLoss.
type SumLossArgs struct {
	Out gpu.Tensor // [1] f32
	X   gpu.Tensor // any shape, f32
}

// SumLoss adds all elements of x in float64 and rounds once.
var SumLoss = Kernel[SumLossArgs]{
	Name: "sum_loss",
	Check: func(a *SumLossArgs) error {
		var c checker
		c.flat("x", a.X)
		c.f32("out", a.Out, 1)
		c.apart(names{{"out", a.Out}}, names{{"x", a.X}})
		return c.err
	},
	Access: func(a *SumLossArgs) (reads, writes []gpu.Span) { return spans(a.X), spans(a.Out) },
	Cost: func(a *SumLossArgs) gpu.Cost {
		return gpu.Cost{FLOPs: float64(a.X.Elems()), Bytes: bytesOf(a.X, a.Out)}
	},
	Ref:  func(h gpu.Host, a *SumLossArgs) { sumLossRef(narrow(h), a) },
	Wide: func(h WideHost, a *SumLossArgs) { sumLossRef(wide(h), a) },
	Fast: sumLossFast,
	CUDA: sumLossCUDA,
}

func sumLossRef[T real](m memory[T], a *SumLossArgs) {
	var s float64
	for _, v := range m.reals(a.X) {
		s += float64(v)
	}
	m.reals(a.Out)[0] = T(s)
}

// SumSquaresArgs are the arguments of SumSquares.
type SumSquaresArgs struct {
	Out gpu.Tensor // [1] f32
	X   gpu.Tensor // any shape, f32
}

// SumSquares adds the squares of all elements of x, for the gradient norm. A
// norm above 1.8e19 overflows to +Inf, which Guard takes as not finite.
var SumSquares = Kernel[SumSquaresArgs]{
	Name: "sum_squares",
	Check: func(a *SumSquaresArgs) error {
		var c checker
		c.flat("x", a.X)
		c.f32("out", a.Out, 1)
		c.apart(names{{"out", a.Out}}, names{{"x", a.X}})
		return c.err
	},
	Access: func(a *SumSquaresArgs) (reads, writes []gpu.Span) { return spans(a.X), spans(a.Out) },
	Cost: func(a *SumSquaresArgs) gpu.Cost {
		return gpu.Cost{FLOPs: 2 * float64(a.X.Elems()), Bytes: bytesOf(a.X, a.Out)}
	},
	Ref:  func(h gpu.Host, a *SumSquaresArgs) { sumSquaresRef(narrow(h), a) },
	Wide: func(h WideHost, a *SumSquaresArgs) { sumSquaresRef(wide(h), a) },
	Fast: sumSquaresFast,
	CUDA: sumSquaresCUDA,
}

func sumSquaresRef[T real](m memory[T], a *SumSquaresArgs) {
	x := m.reals(a.X)
	m.reals(a.Out)[0] = T(dot(x, x))
}
