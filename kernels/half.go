package kernels

import (
	"unsafe"

	"refrain/gpu"
	"refrain/kernels/asm"
)

// The fast versions of ops over bf16 tensors compute in float32, a row or a part
// of one at a time: elements are converted into scratch of the worker, worked on
// by the same assembly as f32 rows, and rounded once when they are stored.

// FastBF16 tells whether products of bf16 are faster than those of f32 on this
// processor. They have the same bits on every other one.
func FastBF16() bool { return asm.FastBF16() }

// halfRun is how much of a long row is in scratch at once: few enough values that
// five such parts stay in a first-level cache of 32 KiB.
const halfRun = 1024

// parts is float32 scratch for some parts of rows, for each worker of a device.
type parts struct {
	buf          []float32
	width, count int
}

// newParts returns scratch for count parts of up to width values a worker.
func newParts(h gpu.Host, count, width int) parts {
	width = (width + 15) &^ 15
	return parts{h.Scratch("half.rows", h.Pool().Threads()*count*width), width, count}
}

// at is part i of a worker, n values long.
func (p parts) at(worker, i, n int) []float32 {
	o := (worker*p.count + i) * p.width
	return p.buf[o : o+n]
}

// widened returns x as float32 in part i of a worker.
func (p parts) widened(worker, i int, x []uint16) []float32 {
	f := p.at(worker, i, len(x))
	asm.FromBF16(f, x)
	return f
}

// halves is float32 scratch as room for twice as many bf16 elements.
func halves(s []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(s))), 2*len(s))
}
