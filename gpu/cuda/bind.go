//go:build cuda && cudaheaders

package cuda

// #include <stdlib.h>
// #include "native.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"refrain/gpu"
)

// bound is an op as a list of launches in C memory, which one call of ours enqueues.
type bound struct {
	d        *Device
	name     string
	launches []C.refrain_cuda_launch

	reads, writes []gpu.Span // resolved, for the race check
}

// launch enqueues the kernels on s.
func (b *bound) launch(s cu.Stream) error {
	if len(b.launches) == 0 {
		return nil
	}
	code := C.refrain_cuda_launch_all(&b.launches[0], C.int(len(b.launches)), unsafe.Pointer(s.C()))
	return cuError(code)
}

// cuError is a code of our own calls as the error that cu would return.
func cuError(code C.int) error {
	if code == 0 {
		return nil
	}
	return result(code)
}

// result is a driver's code.
type result int

func (r result) Error() string { return fmt.Sprintf("driver code %d", int(r)) }

// launcher keeps what an op launches.
type launcher struct {
	b   *bound
	at  func(gpu.Span) gpu.Span
	err error // of Addr, which has no result for one
}

// Kernel keeps a launch. args point to values of the kernel's parameters, which are
// copied; their sizes are the image's own.
func (l *launcher) Kernel(name string, g gpu.Grid, args ...unsafe.Pointer) error {
	d := l.b.d
	f, err := d.function(name)
	if err != nil {
		return err
	}
	if l.err != nil {
		return fmt.Errorf("kernel %s: %w", name, l.err)
	}
	if len(args) != len(f.sizes) {
		return fmt.Errorf("cuda: kernel %s of the image for %s takes %d arguments; the op gives %d", name, d.info.Kernels, len(f.sizes), len(args))
	}
	if g.Shared > f.shared {
		if code := int(C.refrain_cuda_set_shared(f.handle(), C.int(g.Shared))); code != 0 {
			return newError(d.ordinal, "", fmt.Sprintf("allowing kernel %s %d bytes of shared memory", name, g.Shared), code)
		}
		f.shared = g.Shared
	}
	const cell = 16 // bytes, enough for the alignment of any parameter
	size := len(args) * int(unsafe.Sizeof(uintptr(0)))
	table := size
	size = (size + cell - 1) / cell * cell
	for _, n := range f.sizes {
		size += (int(n) + cell - 1) / cell * cell
	}
	mem := C.calloc(1, C.size_t(max(size, cell)))
	if mem == nil {
		return fmt.Errorf("cuda: no memory for the arguments of kernel %s", name)
	}
	d.arguments = append(d.arguments, mem)
	params := unsafe.Slice((*unsafe.Pointer)(mem), len(args))
	next := (table + cell - 1) / cell * cell
	for i, a := range args {
		params[i] = unsafe.Add(mem, next)
		copy(unsafe.Slice((*byte)(params[i]), f.sizes[i]), unsafe.Slice((*byte)(a), f.sizes[i]))
		next += (int(f.sizes[i]) + cell - 1) / cell * cell
	}
	l.b.launches = append(l.b.launches, C.refrain_cuda_launch{
		function: f.handle(), shared: C.uint(g.Shared), parameters: (*unsafe.Pointer)(mem),
		grid:  [3]C.uint{C.uint(g.Blocks[0]), C.uint(g.Blocks[1]), C.uint(g.Blocks[2])},
		block: [3]C.uint{C.uint(g.Threads[0]), C.uint(g.Threads[1]), C.uint(g.Threads[2])},
	})
	return nil
}

// Addr returns the address of a span on the device. A span that is not there fails the
// kernel that is launched next.
func (l *launcher) Addr(s gpu.Span) uintptr {
	p, err := l.b.d.addr(l.at(s))
	if err != nil && l.err == nil {
		l.err = err
	}
	return uintptr(p)
}

// Bind prepares the kernels of op; at maps its Program spans to spans of this device.
func (d *Device) Bind(op gpu.Op, at func(gpu.Span) gpu.Span) (gpu.Bound, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	b := &bound{d: d, name: op.Name()}
	if d.driver.race != nil {
		reads, writes := op.Access()
		for _, s := range reads {
			b.reads = append(b.reads, at(s))
		}
		for _, s := range writes {
			b.writes = append(b.writes, at(s))
		}
	}
	l := &launcher{b: b, at: at}
	if err := errors.Join(op.Launch(l), l.err); err != nil {
		return nil, fmt.Errorf("cuda: device %d: %s: %w", d.ordinal, op.Name(), err)
	}
	return b, nil
}

// function is a kernel of the device's image.
type function struct {
	f      cu.Function
	sizes  []uint64 // bytes of each parameter
	shared uint32   // dynamic shared memory that is allowed
}

// handle is the driver's pointer, which is all that a cu.Function holds.
func (f *function) handle() unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&f.f)) }

// defaultShared is what every kernel may have without asking.
const defaultShared = 48 << 10

// function finds a kernel in the device's image, which is loaded at the first request.
func (d *Device) function(name string) (*function, error) {
	if f := d.functions[name]; f != nil {
		return f, nil
	}
	if d.module == nil {
		image, err := d.driver.images(d.info.Kernels)
		if err != nil {
			return nil, fmt.Errorf("cuda: device %d, %s: %w", d.ordinal, d.info.Name, err)
		}
		m, err := cu.LoadData(string(image))
		if err != nil {
			return nil, d.check("", "loading the kernels for "+d.info.Kernels, err)
		}
		d.module, d.functions = &m, map[string]*function{}
	}
	f, err := d.module.Function(name)
	if err != nil {
		return nil, d.check("", "finding kernel "+name+" in the image for "+d.info.Kernels, err)
	}
	k := &function{f: f, shared: defaultShared}
	for i := 0; ; i++ {
		var size C.size_t
		code := int(C.refrain_cuda_parameter(k.handle(), C.size_t(i), &size))
		if code == codeInvalidValue {
			break // no such parameter
		}
		if code != 0 {
			return nil, newError(d.ordinal, "", "asking for the parameters of kernel "+name, code)
		}
		k.sizes = append(k.sizes, uint64(size))
	}
	d.functions[name] = k
	return k, nil
}
