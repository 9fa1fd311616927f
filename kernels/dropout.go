package kernels

import (
	"math"

	"refrain/gpu"
	"refrain/internal/num"
)

// DropoutArgs are the arguments of Dropout. Its random bits are addressed by the place
// of an element in the global batch of a step and not by its place in the tensor, so
// that they do not depend on how the batch is divided.
type DropoutArgs struct {
	Y    gpu.Tensor // [N,D] f32; may be X or Add itself
	X    gpu.Tensor // [N,D] f32
	Add  gpu.Tensor // [N,D] f32, optional: a residual
	Draw gpu.Tensor // [4] i32: see DrawWords

	Rate float64 // share of the elements that is dropped, rounded to a multiple of 2^-16; below 1
	Site int     // number of this place in the model; each has masks of its own
	Row  int     // row of the batch that X begins with, counted from the first of Draw
	Each int     // positions of X that belong to one row of the batch
}

// Dropout drops elements of x at random and scales the others, so that the expectation
// stays: y = (add +) x * keep / (1-rate), with keep 0 or 1 (Srivastava et al., 2014). The
// mask is a pure function of Draw, Site and the place of the element, so the same op
// over the gradient of y is the backward pass: no mask is ever stored. A dropped
// element is not read into the sum, also where it is NaN.
var Dropout = Kernel[DropoutArgs]{
	Name: "dropout",
	Check: func(a *DropoutArgs) error {
		var c checker
		x := c.ranked("x", a.X, gpu.F32, 2)
		c.f32("y", a.Y, x[0], x[1])
		c.i32("draw", a.Draw, drawLen)
		ins := names{{"draw", a.Draw}}
		if a.X.Span != a.Y.Span {
			ins = append(ins, names{{"x", a.X}}...)
		}
		if !a.Add.IsZero() {
			c.f32("add", a.Add, x[0], x[1])
			if a.Add.Span != a.Y.Span {
				ins = append(ins, names{{"add", a.Add}}...)
			}
		}
		if !(a.Rate >= 0 && a.Rate < 1) || dropBound(a.Rate) == 1<<16 {
			c.failf("rate is %v, want at least 0 and below 1 by more than 2^-17", a.Rate)
		}
		if a.Site < 0 || a.Row < 0 {
			c.failf("site %d, row %d: want at least 0", a.Site, a.Row)
		}
		c.positive("each", a.Each)
		c.apart(names{{"y", a.Y}}, ins)
		return c.err
	},
	Access: func(a *DropoutArgs) (reads, writes []gpu.Span) {
		return spans(a.X, a.Add, a.Draw), spans(a.Y)
	},
	Cost: func(a *DropoutArgs) gpu.Cost {
		return gpu.Cost{FLOPs: 2 * float64(a.X.Elems()), Bytes: bytesOf(a.Y, a.X, a.Add)}
	},
	Ref:  func(h gpu.Host, a *DropoutArgs) { dropoutRef(narrow(h), a) },
	Wide: func(h WideHost, a *DropoutArgs) { dropoutRef(wide(h), a) },
	Fast: dropoutFast,
	CUDA: dropoutCUDA,
}

// drawLen is the number of words in the Draw of an op.
const drawLen = 4

// DrawWords is the content of the argument Draw of Dropout and MaskRows: what a step
// draws its random bits from, and the row of the global batch that this device begins
// with.
func DrawWords(key uint64, row int) [drawLen]int32 {
	return [drawLen]int32{int32(uint32(key)), int32(uint32(key >> 32)), int32(row)}
}

// drawKey and drawRow take Draw apart.
func drawKey(w []int32) uint64 { return uint64(uint32(w[0])) | uint64(uint32(w[1]))<<32 }
func drawRow(w []int32) uint64 { return uint64(uint32(w[2])) }

// dropBound is the bound below which 16 random bits drop an element.
func dropBound(rate float64) uint32 { return uint32(math.Round(rate * (1 << 16))) }

// keepScale is the factor of what is kept: exact for the rounded rate.
func keepScale(bound uint32) float32 { return float32(float64(1<<16) / float64(1<<16-bound)) }

// lane returns the 16 bits of element e of its block.
func lane(block [4]uint32, e uint64) uint32 { return block[e%8/2] >> (16 * (e % 2)) & 0xffff }

// first returns the stream of the op and the number of the first element of x in the
// global batch.
func (a *DropoutArgs) first(draw []int32) (num.Stream, uint64) {
	s := num.NewStream("dropout", drawKey(draw), uint64(a.Site))
	return s, (drawRow(draw) + uint64(a.Row)) * uint64(a.Each) * uint64(a.X.Dim(1))
}

func dropoutRef[T real](m memory[T], a *DropoutArgs) {
	y, x := m.reals(a.Y), m.reals(a.X)
	var add []T
	if !a.Add.IsZero() {
		add = m.reals(a.Add)
	}
	s, from := a.first(m.ints(a.Draw))
	bound := dropBound(a.Rate)
	scale := float64(keepScale(bound))
	for i := range y {
		e := from + uint64(i)
		var v T
		if lane(s.Block(e/8), e) >= bound {
			v = T(float64(x[i]) * scale)
		}
		if add != nil {
			v += add[i]
		}
		y[i] = v
	}
}
