package kernels

import "refrain/gpu"

// FillArgs are the arguments of Fill.
type FillArgs struct {
	X     gpu.Tensor // any shape, f32
	Value float32
}

// Fill sets every element of x.
var Fill = Kernel[FillArgs]{
	Name: "fill",
	Check: func(a *FillArgs) error {
		var c checker
		c.flat("x", a.X)
		return c.err
	},
	Access: func(a *FillArgs) (reads, writes []gpu.Span) { return nil, spans(a.X) },
	Cost:   func(a *FillArgs) gpu.Cost { return gpu.Cost{Bytes: bytesOf(a.X)} },
	Ref:    func(h gpu.Host, a *FillArgs) { fillRef(narrow(h), a) },
	Wide:   func(h WideHost, a *FillArgs) { fillRef(wide(h), a) },
	Fast:   fillFast,
	CUDA:   fillCUDA,
}

func fillRef[T real](m memory[T], a *FillArgs) {
	x := m.reals(a.X)
	for i := range x {
		x[i] = T(a.Value)
	}
}

// CopyArgs are the arguments of Copy.
type CopyArgs struct {
	Dst gpu.Tensor // any shape, f32
	Src gpu.Tensor // as many elements, f32
}

// Copy copies src to dst.
var Copy = Kernel[CopyArgs]{
	Name: "copy",
	Check: func(a *CopyArgs) error {
		var c checker
		c.elems("dst", a.Dst, c.flat("src", a.Src))
		c.apart(names{{"dst", a.Dst}}, names{{"src", a.Src}})
		return c.err
	},
	Access: func(a *CopyArgs) (reads, writes []gpu.Span) { return spans(a.Src), spans(a.Dst) },
	Cost:   func(a *CopyArgs) gpu.Cost { return gpu.Cost{Bytes: bytesOf(a.Dst, a.Src)} },
	Ref:    func(h gpu.Host, a *CopyArgs) { copyRef(narrow(h), a) },
	Wide:   func(h WideHost, a *CopyArgs) { copyRef(wide(h), a) },
	Fast:   copyFast,
	CUDA:   copyCUDA,
}

func copyRef[T real](m memory[T], a *CopyArgs) { copy(m.reals(a.Dst), m.reals(a.Src)) }

// CastArgs are the arguments of Cast.
type CastArgs struct {
	Dst gpu.Tensor // any shape, bf16
	Src gpu.Tensor // as many elements, f32
}

// Cast rounds src to the nearest bfloat16, ties to even.
var Cast = Kernel[CastArgs]{
	Name: "cast",
	Check: func(a *CastArgs) error {
		var c checker
		n := c.flat("src", a.Src)
		c.ranked("dst", a.Dst, gpu.BF16, int(a.Dst.Rank))
		if got := a.Dst.Elems(); got != n {
			c.failf("dst is %v, want %d elements", a.Dst, n)
		}
		c.apart(names{{"dst", a.Dst}}, names{{"src", a.Src}})
		return c.err
	},
	Access: func(a *CastArgs) (reads, writes []gpu.Span) { return spans(a.Src), spans(a.Dst) },
	Cost:   func(a *CastArgs) gpu.Cost { return gpu.Cost{Bytes: bytesOf(a.Dst, a.Src)} },
	Ref:    func(h gpu.Host, a *CastArgs) { castRef(narrow(h), a) },
	Wide:   func(h WideHost, a *CastArgs) { castRef(wide(h), a) },
	Fast:   castFast,
	CUDA:   castCUDA,
}

func castRef[T real](m memory[T], a *CastArgs) {
	dst, store := m.values(a.Dst)
	copy(dst, m.reals(a.Src))
	store()
}

// AddToArgs are the arguments of AddTo.
type AddToArgs struct {
	Dst gpu.Tensor // any shape, f32, in place
	Src gpu.Tensor // as many elements, f32
}

// AddTo adds src to dst: one node of a reduction tree.
var AddTo = Kernel[AddToArgs]{
	Name: "add_to",
	Check: func(a *AddToArgs) error {
		var c checker
		c.elems("dst", a.Dst, c.flat("src", a.Src))
		c.apart(names{{"dst", a.Dst}}, names{{"src", a.Src}})
		return c.err
	},
	Access: func(a *AddToArgs) (reads, writes []gpu.Span) { return spans(a.Dst, a.Src), spans(a.Dst) },
	Cost: func(a *AddToArgs) gpu.Cost {
		return gpu.Cost{FLOPs: float64(a.Dst.Elems()), Bytes: bytesOf(a.Dst, a.Dst, a.Src)}
	},
	Ref:  func(h gpu.Host, a *AddToArgs) { addToRef(narrow(h), a) },
	Wide: func(h WideHost, a *AddToArgs) { addToRef(wide(h), a) },
	Fast: addToFast,
	CUDA: addToCUDA,
}

func addToRef[T real](m memory[T], a *AddToArgs) {
	dst := m.reals(a.Dst)
	for i, v := range m.reals(a.Src) {
		dst[i] += v
	}
}
