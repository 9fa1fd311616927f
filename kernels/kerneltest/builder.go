// Package kerneltest puts every kernel through the same trials: the reference
// against its own float64 form, gradients against central differences, the
// fast version against the reference within the one table of tolerances of
// internal/num, equal bits for any number of threads, no allocation, and
// declared accesses as the whole truth: a span that is not declared does not
// resolve, what is only read must not change, what is written must be written
// everywhere, and nothing may touch the guard words around a buffer.
//
// It knows no kernel: it sees gpu.Op alone.
package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"refrain/gpu"
	"refrain/internal/num"
)

// Builder makes the buffers of one case. Each tensor has an allocation of its
// own between guard words.
type Builder struct {
	bufs []buffer
	seed uint64
	half []string // names of the tensors that are stored in bfloat16
}

// Halve makes the tensors of these names BF16 where Out, Temp, Values or Normal
// would make them F32.
func (b *Builder) Halve(names ...string) { b.half = append(b.half, names...) }

// real makes a tensor of the type in which name is stored.
func (b *Builder) real(name string, shape []int) *buffer {
	dt := gpu.F32
	if slices.Contains(b.half, name) {
		dt = gpu.BF16
	}
	u := b.add(name, dt, shape)
	u.wide = make([]float64, u.t.Elems())
	return u
}

type buffer struct {
	name    string
	t       gpu.Tensor
	init    []byte    // content at the start of each run
	wide    []float64 // the same in float64, for F32 and BF16
	scratch bool      // need not be written everywhere
}

func (b *Builder) add(name string, dt gpu.DType, shape []int) *buffer {
	t := gpu.NewTensor(gpu.Span{}, dt, shape...)
	n := int64(t.Elems()) * dt.Size()
	t.Span = gpu.Span{Mem: uint32(len(b.bufs)), Len: n}
	b.bufs = append(b.bufs, buffer{name: name, t: t, init: make([]byte, n)})
	return &b.bufs[len(b.bufs)-1]
}

// poison is the content of element i of an output before the op: a NaN with a
// payload that no arithmetic makes.
func poison(i int) uint32 { return 0x7fa50000 | uint32(i*2654435761)&0xffff }

// poison16 is poison for a bfloat16: its quiet bit is not set.
const poison16 = 0x7fa5

// Out makes an F32 output full of poison.
func (b *Builder) Out(name string, shape ...int) gpu.Tensor {
	u := b.real(name, shape)
	for i := range u.wide {
		u.wide[i] = math.NaN()
		if u.t.DType == gpu.BF16 {
			binary.LittleEndian.PutUint16(u.init[2*i:], poison16)
		} else {
			binary.LittleEndian.PutUint32(u.init[4*i:], poison(i))
		}
	}
	return u.t
}

// Temp makes an F32 output whose content after the op is its own business.
func (b *Builder) Temp(name string, shape ...int) gpu.Tensor {
	t := b.Out(name, shape...)
	b.bufs[t.Mem].scratch = true
	return t
}

// Values makes an F32 tensor that starts with f(i) in element i.
func (b *Builder) Values(name string, f func(i int) float64, shape ...int) gpu.Tensor {
	u := b.real(name, shape)
	for i := range u.wide {
		v := float32(f(i))
		if u.t.DType == gpu.BF16 {
			h := num.ToBF16(v)
			v = h.Float32()
			binary.LittleEndian.PutUint16(u.init[2*i:], uint16(h))
		} else {
			binary.LittleEndian.PutUint32(u.init[4*i:], math.Float32bits(v))
		}
		u.wide[i] = float64(v)
	}
	return u.t
}

// Normal makes an F32 tensor of independent normal values of deviation sigma.
func (b *Builder) Normal(name string, sigma float64, shape ...int) gpu.Tensor {
	s := num.NewStream("kerneltest/"+name, b.seed)
	return b.Values(name, func(i int) float64 { return sigma * s.Normal(uint64(i)) }, shape...)
}

// Ints makes an I32 tensor that starts with f(i) in element i.
func (b *Builder) Ints(name string, f func(i int) int, shape ...int) gpu.Tensor {
	u := b.add(name, gpu.I32, shape)
	for i := range u.t.Elems() {
		binary.LittleEndian.PutUint32(u.init[4*i:], uint32(int32(f(i))))
	}
	return u.t
}

// OutInts makes an I32 output full of poison.
func (b *Builder) OutInts(name string, shape ...int) gpu.Tensor {
	return b.Ints(name, func(i int) int { return int(int32(poison(i))) }, shape...)
}

// Random makes an I32 tensor of uniform values in [lo,hi).
func (b *Builder) Random(name string, lo, hi int, shape ...int) gpu.Tensor {
	s := num.NewStream("kerneltest/"+name, b.seed)
	return b.Ints(name, func(i int) int { return lo + int(s.Uintn(uint64(i), uint64(hi-lo))) }, shape...)
}

// Bytes makes a U8 tensor that starts with f(i) in element i.
func (b *Builder) Bytes(name string, f func(i int) byte, shape ...int) gpu.Tensor {
	u := b.add(name, gpu.U8, shape)
	for i := range u.init {
		u.init[i] = f(i)
	}
	return u.t
}

func (b *Builder) buf(t gpu.Tensor) *buffer {
	if t.Dev != 0 || int(t.Mem) >= len(b.bufs) {
		panic(fmt.Sprintf("kerneltest: %v is no tensor of this case", t))
	}
	return &b.bufs[t.Mem]
}

// Copy makes a tensor with the initial content of tensor t of another case.
func (b *Builder) Copy(from *Builder, t gpu.Tensor) gpu.Tensor {
	u := from.buf(t)
	return b.Values(u.name, func(i int) float64 { return u.wide[i] }, shapeOf(t)...)
}

func shapeOf(t gpu.Tensor) (s []int) {
	for i := range int(t.Rank) {
		s = append(s, t.Dim(i))
	}
	return s
}

// Initial returns the initial content of an F32 or BF16 tensor.
func (b *Builder) Initial(t gpu.Tensor) []float64 { return b.buf(t).wide }
