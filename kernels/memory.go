package kernels

import (
	"refrain/gpu"
	"refrain/internal/num"
)

// WideHost is a host whose F32 and BF16 tensors are held in float64, for tests:
// a Program bound to it computes in double precision throughout and rounds
// nothing, so that gradients can be compared with central differences. Bytes
// serves the other element types as usual and is not called for these two.
type WideHost interface {
	gpu.Host
	// Float64s resolves an F32 or BF16 tensor to its float64 elements.
	Float64s(t gpu.Tensor) []float64
}

// real is the element type a reference body runs on.
type real interface{ float32 | float64 }

// memory resolves F32 tensors to elements of type T and the others as usual.
// Every reference body is written once over it: with T = float32 it is the
// definition of the op, with T = float64 the exact form, in which bfloat16
// rounds nothing either.
type memory[T real] struct {
	h      gpu.Host
	reals  func(t gpu.Tensor) []T // of F32 tensors, and of BF16 ones in the exact form
	rounds bool                   // bfloat16 is stored as such
}

// values returns the elements of an F32 or BF16 tensor, to read or write, and
// what must be called once they have been written: it rounds them to the
// tensor's type. Elements that are not written keep their bits.
func (m memory[T]) values(t gpu.Tensor) (x []T, store func()) {
	if t.DType != gpu.BF16 || !m.rounds {
		return m.reals(t), func() {}
	}
	h := gpu.BF16s(m.h, t)
	x = make([]T, len(h))
	for i, v := range h {
		x[i] = T(num.BF16(v).Float32())
	}
	return x, func() {
		for i, v := range x {
			h[i] = uint16(num.ToBF16(float32(v)))
		}
	}
}

// read returns the elements of an F32 or BF16 tensor, to be read only.
func (m memory[T]) read(t gpu.Tensor) []T {
	x, _ := m.values(t)
	return x
}

// operand is read for a factor of a matrix product in type dt: an F32 tensor
// is rounded before it is multiplied in BF16.
func (m memory[T]) operand(t gpu.Tensor, dt gpu.DType) []T {
	x := m.read(t)
	if dt != gpu.BF16 || t.DType == gpu.BF16 || !m.rounds {
		return x
	}
	r := make([]T, len(x))
	for i, v := range x {
		r[i] = T(num.ToBF16(float32(v)).Float32())
	}
	return r
}

// factor rounds a value that no tensor holds as operand does.
func (m memory[T]) factor(v float64, dt gpu.DType) float64 {
	if dt != gpu.BF16 || !m.rounds {
		return v
	}
	return float64(num.ToBF16(float32(v)).Float32())
}

func (m memory[T]) ints(t gpu.Tensor) []int32 { return gpu.Int32s(m.h, t) }
func (m memory[T]) bytes(t gpu.Tensor) []byte { return m.h.Bytes(t.Span) }

func narrow(h gpu.Host) memory[float32] {
	return memory[float32]{h, func(t gpu.Tensor) []float32 { return gpu.Float32s(h, t) }, true}
}

func wide(h WideHost) memory[float64] { return memory[float64]{h, h.Float64s, false} }
