package kernels

import (
	"math"

	"refrain/gpu"
	"refrain/internal/num"
)

// dropoutFast draws one block of random bits for every eight elements and drops by a
// mask of bits, since a branch that goes either way at random costs more than both.
func dropoutFast(h gpu.Host, a *DropoutArgs) func() {
	y, x, draw, pool := gpu.Float32s(h, a.Y), gpu.Float32s(h, a.X), gpu.Int32s(h, a.Draw), h.Pool()
	var add []float32
	if !a.Add.IsZero() {
		add = gpu.Float32s(h, a.Add)
	}
	k := dropper{bound: int32(dropBound(a.Rate))}
	k.scale = keepScale(uint32(k.bound))
	var from uint64 // this and k.s are set before the loop starts and read by all workers
	part := func(_, lo, hi int) {
		for i := lo; i < hi; {
			e := from + uint64(i)
			off := int(e % 8)
			n := min(8-off, hi-i)
			if n < 8 { // blocks are cut by the borders of the tensor and of parts
				var in, res [8]float32
				copy(in[off:off+n], x[i:])
				if add != nil {
					copy(res[off:off+n], add[i:])
					k.block(&res, &in, &res, e/8)
				} else {
					k.block(&res, &in, nil, e/8)
				}
				copy(y[i:i+n], res[off:])
			} else if add != nil {
				k.block((*[8]float32)(y[i:]), (*[8]float32)(x[i:]), (*[8]float32)(add[i:]), e/8)
			} else {
				k.block((*[8]float32)(y[i:]), (*[8]float32)(x[i:]), nil, e/8)
			}
			i += n
		}
	}
	return func() {
		k.s, from = a.first(draw)
		pool.For(len(y), elementGrain, part)
	}
}

// dropper is what all elements of an op share.
type dropper struct {
	s     num.Stream
	bound int32
	scale float32
}

// block does the eight elements of block b. y may be x or add, which may be nil.
func (k *dropper) block(y, x, add *[8]float32, b uint64) {
	for j, w := range k.s.Block(b) {
		// All ones where the 16 bits lie below the bound.
		low := uint32((int32(w&0xffff) - k.bound) >> 31)
		high := uint32((int32(w>>16) - k.bound) >> 31)
		v0 := math.Float32frombits(math.Float32bits(x[2*j]*k.scale) &^ low)
		v1 := math.Float32frombits(math.Float32bits(x[2*j+1]*k.scale) &^ high)
		if add != nil {
			v0 += add[2*j]
			v1 += add[2*j+1]
		}
		y[2*j], y[2*j+1] = v0, v1
	}
}
