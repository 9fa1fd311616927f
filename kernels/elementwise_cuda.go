package kernels

import (
	"unsafe"

	"refrain/gpu"
)

// Launches of elementwise.cu.

const elementThreads = 256 // a block

// elements is the grid of a kernel whose threads take every so many elements: enough
// blocks to fill a GPU, and no more than there is work for.
func elements(n int) gpu.Grid {
	const most = 2048
	blocks := min(max(1, (n+elementThreads-1)/elementThreads), most)
	return gpu.Grid{Blocks: [3]uint32{uint32(blocks), 1, 1}, Threads: [3]uint32{elementThreads, 1, 1}}
}

// eachElement launches a kernel of (dst, src, n).
func eachElement(l gpu.Launcher, name string, dst, src gpu.Tensor) error {
	n := int64(src.Elems())
	if n == 0 {
		return nil
	}
	to, from := l.Addr(dst.Span), l.Addr(src.Span)
	return l.Kernel(name, elements(int(n)), unsafe.Pointer(&to), unsafe.Pointer(&from), unsafe.Pointer(&n))
}

func fillCUDA(l gpu.Launcher, a *FillArgs) error {
	n := int64(a.X.Elems())
	if n == 0 {
		return nil
	}
	x, value := l.Addr(a.X.Span), a.Value
	return l.Kernel("fill", elements(int(n)), unsafe.Pointer(&x), unsafe.Pointer(&value), unsafe.Pointer(&n))
}

func copyCUDA(l gpu.Launcher, a *CopyArgs) error { return eachElement(l, "copy", a.Dst, a.Src) }

func castCUDA(l gpu.Launcher, a *CastArgs) error { return eachElement(l, "cast", a.Dst, a.Src) }

func addToCUDA(l gpu.Launcher, a *AddToArgs) error { return eachElement(l, "add_to", a.Dst, a.Src) }
