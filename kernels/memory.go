package kernels

import (
	"refrain/gpu"
)

// WideHost is a host whose F32 tensors are held in float64, for tests: a
// Program bound to it computes in double precision throughout, so that
// gradients can be compared with central differences. Bytes serves the other
// element types as usual and is not called for F32 tensors.
type WideHost interface {
	gpu.Host
	// Float64s resolves an F32 tensor to its float64 elements.
	Float64s(t gpu.Tensor) []float64
}

// real is the element type a reference body runs on.
type real interface{ float32 | float64 }

// memory resolves F32 tensors to elements of type T and the others as usual.
// Every reference body is written once over it: with T = float32 it is the
// definition of the op, with T = float64 the exact form.
type memory[T real] struct {
	h     gpu.Host
	reals func(t gpu.Tensor) []T
}

func (m memory[T]) ints(t gpu.Tensor) []int32 { return gpu.Int32s(m.h, t) }
func (m memory[T]) bytes(t gpu.Tensor) []byte { return m.h.Bytes(t.Span) }

func narrow(h gpu.Host) memory[float32] {
	return memory[float32]{h, func(t gpu.Tensor) []float32 { return gpu.Float32s(h, t) }}
}

func wide(h WideHost) memory[float64] { return memory[float64]{h, h.Float64s} }
