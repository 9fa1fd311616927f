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
				onto := &res
				if add != nil {
					copy(res[off:off+n], add[i:])
				} else {
					onto = nil
				}
				k.apply(&res, &in, onto, k.s.Block(e/8))
				copy(y[i:i+n], res[off:])
				i += n
				continue
			}
			for ; hi-i >= 16; i += 16 {
				p, q := k.s.Blocks((from + uint64(i)) / 8)
				k.apply(eight(y, i), eight(x, i), eight(add, i), p)
				k.apply(eight(y, i+8), eight(x, i+8), eight(add, i+8), q)
			}
			if hi-i >= 8 {
				k.apply(eight(y, i), eight(x, i), eight(add, i), k.s.Block((from+uint64(i))/8))
				i += 8
			}
		}
	}
	return func() {
		k.s, from = a.first(draw)
		pool.For(len(y), elementGrain, part)
	}
}

// eight views elements [i,i+8) of x; nil of nil.
func eight(x []float32, i int) *[8]float32 {
	if x == nil {
		return nil
	}
	return (*[8]float32)(x[i:])
}

// dropper is what all elements of an op share.
type dropper struct {
	s     num.Stream
	bound int32
	scale float32
}

// apply does the eight elements of a block of random bits. y may be x or add, which may
// be nil.
func (k *dropper) apply(y, x, add *[8]float32, block [4]uint32) {
	for j, w := range block {
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
