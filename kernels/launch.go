package kernels

import (
	"fmt"
	"unsafe"

	"refrain/gpu"
)

// What the launches of *_cuda.go give to kernels, laid out as in device.cuh.

// values is a tensor of f32 or bf16 elements (Values).
type values struct {
	at   uintptr
	half int64
}

// factor is a matrix of a product with its strides in elements (Factor). round makes its
// floats bfloat16 first.
type factor struct {
	v                   values
	major, minor, round int64
}

// headShape is the arrangement of a fused row (Heads).
type headShape struct{ t, h, kv, c int64 }

// launch enqueues a kernel. args are tensors (their address, or null for none), ints and
// bools (as 64 bits), float32s and the types above; the sizes of the kernel's parameters
// are checked by the driver's own table.
func launch(l gpu.Launcher, name string, g gpu.Grid, args ...any) error {
	cells := make([]unsafe.Pointer, len(args))
	for i, a := range args {
		switch a := a.(type) {
		case gpu.Tensor:
			var at uintptr
			if !a.IsZero() {
				at = l.Addr(a.Span)
			}
			cells[i] = unsafe.Pointer(&at)
		case bool:
			n := flag(a)
			cells[i] = unsafe.Pointer(&n)
		case int:
			n := int64(a)
			cells[i] = unsafe.Pointer(&n)
		case float32:
			cells[i] = unsafe.Pointer(&a)
		case values:
			cells[i] = unsafe.Pointer(&a)
		case factor:
			cells[i] = unsafe.Pointer(&a)
		case headShape:
			cells[i] = unsafe.Pointer(&a)
		default:
			return fmt.Errorf("%s: argument %d is %T, which no kernel takes", name, i, a)
		}
	}
	return l.Kernel(name, g, cells...)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// valuesOf is t as a kernel takes it that reads and writes both types.
func valuesOf(l gpu.Launcher, t gpu.Tensor) values {
	return values{l.Addr(t.Span), flag(t.DType == gpu.BF16)}
}

const blockThreads = 256

// eachOf is the grid of a kernel whose threads take every so many of n elements: enough
// blocks to fill a GPU, and no more than there is work for.
func eachOf(n int) gpu.Grid {
	const most = 2048
	return blocks(min(max(1, (n+blockThreads-1)/blockThreads), most))
}

// blocks is a grid of n blocks, with shared memory for a float64 a thread.
func blocks(n int) gpu.Grid {
	return gpu.Grid{Blocks: [3]uint32{uint32(n), 1, 1}, Threads: [3]uint32{blockThreads, 1, 1}, Shared: 8 * blockThreads}
}

// noWork drops the launch of an op over no elements.
func noWork(ts ...gpu.Tensor) bool {
	for _, t := range ts {
		if t.Elems() == 0 {
			return true
		}
	}
	return false
}
