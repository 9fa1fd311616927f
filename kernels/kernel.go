// Package kernels holds every operation of the trainer, one family a file
// stem: the contract (arguments with their shapes, validation, declared
// accesses, cost), the reference, which is the definition, and the fast host
// version beside it.
//
//	rmsnorm.go       arguments, Check, Access, Cost, reference
//	rmsnorm_fast.go  blocked, parallel, vectorised
//	rmsnorm_test.go  cases and benchmarks
//
// The package knows nothing about models: ops are recorded into a gpu.Program
// by whoever does.
//
//	kernels.Add(r, &kernels.RMSNorm, kernels.RMSNormArgs{Out: h, Rstd: rstd, X: x, W: w, Eps: 1e-5})
//
// Letters in shape comments: N = B*T tokens, B rows, T positions, D model
// width, H query heads, KV key heads, C head width, Q = (H+2*KV)*C, F feed
// forward width, V vocabulary, I and O inputs and outputs of a matrix.
//
// Activations, and matrices as factors, are f32 or bf16: an op takes its types from
// its arguments, and Check says which go together. Values are read as they are, sums
// are f32 or wider, and what is stored as bf16 is rounded once. Products of bf16
// operands are those of package gemm with the same bits on every processor.
//
// Results have the same bits for any number of threads: every output element
// has one owner, and sums over rows use partials whose number and borders
// depend on the shape alone.
//
// Tokens, targets and positions are validated where they enter the program
// (the batch stage). An op that meets one out of range stops with a panic that
// names it, because memory next to a table must never be read as if it were a row.
package kernels

import (
	"errors"
	"fmt"

	"refrain/gpu"
)

// Kernel is one operation with arguments A and all its implementations.
type Kernel[A any] struct {
	// Name is the same in Go, CUDA and traces.
	Name string
	// Check validates shapes, types and aliasing. Nothing behind it does.
	Check func(a *A) error
	// Access lists what is read and written. In place means both.
	Access func(a *A) (reads, writes []gpu.Span)
	// Cost is what the op cannot avoid.
	Cost func(a *A) gpu.Cost
	// Ref is the definition: obvious loops, sums in float64. It may allocate.
	Ref func(h gpu.Host, a *A)
	// Wide is the same loops as Ref over float64 memory; gradient checks use it.
	Wide func(h WideHost, a *A)
	// Fast resolves slices, plans and closures once and returns a body that
	// allocates nothing. When it is nil, Ref runs.
	Fast func(h gpu.Host, a *A) func()
	// CUDA enqueues the device version, nil where there is none.
	CUDA func(l gpu.Launcher, a *A) error
}

// Op validates a and returns the operation, ready to be recorded.
func (k *Kernel[A]) Op(a A) (gpu.Op, error) {
	if err := k.Check(&a); err != nil {
		return nil, fmt.Errorf("%s: %w", k.Name, err)
	}
	reads, writes := k.Access(&a)
	return &op[A]{k: k, a: a, reads: reads, writes: writes}, nil
}

// Add records k(a) on r. The first recording error sticks to the Program and
// is reported by its Seal.
func Add[A any](r *gpu.Recorder, k *Kernel[A], a A) {
	o, err := k.Op(a)
	if err != nil {
		r.Fail(err)
		return
	}
	r.Add(o)
}

// op is a kernel with its arguments; it implements gpu.Op.
type op[A any] struct {
	k             *Kernel[A]
	a             A
	reads, writes []gpu.Span
}

var _ gpu.Op = (*op[FillArgs])(nil)

func (o *op[A]) Name() string                       { return o.k.Name }
func (o *op[A]) Access() (reads, writes []gpu.Span) { return o.reads, o.writes }
func (o *op[A]) Cost() gpu.Cost                     { return o.k.Cost(&o.a) }

// BindHost chooses the body: float64 where the host asks for it, the reference
// where the host asks for it or there is nothing faster, else the fast one.
func (o *op[A]) BindHost(h gpu.Host) func() {
	if w, ok := h.(WideHost); ok {
		return func() { o.k.Wide(w, &o.a) }
	}
	if h.Reference() || o.k.Fast == nil {
		return func() { o.k.Ref(h, &o.a) }
	}
	return o.k.Fast(h, &o.a)
}

var errNoCUDA = errors.New("has no CUDA version")

func (o *op[A]) Launch(l gpu.Launcher) error {
	if o.k.CUDA == nil {
		return fmt.Errorf("%s: %w", o.k.Name, errNoCUDA)
	}
	return o.k.CUDA(l, &o.a)
}
