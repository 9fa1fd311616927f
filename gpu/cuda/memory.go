//go:build cuda && cudaheaders

package cuda

// #include "native.h"
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"refrain/gpu"
)

type alloc struct {
	at    cu.DevicePtr
	bytes int64
	label string
}

// Alloc returns zeroed memory of the GPU. It waits for the GPU, so it is for the time
// before the first step.
func (d *Device) Alloc(bytes int64, label string) (gpu.Span, error) {
	if err := d.usable(); err != nil {
		return gpu.Span{}, err
	}
	if bytes < 0 {
		return gpu.Span{}, fmt.Errorf("cuda: allocation of %d bytes for %s", bytes, label)
	}
	a := alloc{bytes: bytes, label: label}
	if bytes > 0 {
		var err error
		if a.at, err = cu.MemAlloc(bytes); err != nil {
			return gpu.Span{}, d.noMemory(bytes, label, err)
		}
		err = cu.MemsetD8(a.at, 0, bytes)
		if err == nil {
			err = cu.Synchronize()
		}
		if err != nil {
			return gpu.Span{}, errors.Join(d.check("", "clearing memory for "+label, err), cu.MemFree(a.at))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.allocs = append(d.allocs, a)
	return gpu.Span{Dev: int32(d.ordinal), Mem: uint32(len(d.allocs) - 1), Len: bytes}, nil
}

// noMemory says how much was wanted, what is free and who holds the rest.
func (d *Device) noMemory(bytes int64, label string, err error) error {
	what := fmt.Sprintf("allocating %d bytes for %s", bytes, label)
	if free, total, e := cu.MemInfo(); e == nil {
		what += fmt.Sprintf(" (%d of %d bytes are free)", free, total)
	}
	for _, u := range d.Memory() {
		what += fmt.Sprintf("; %s holds %d", u.Label, u.Bytes)
	}
	return d.check("", what, err)
}

func (d *Device) usable() error {
	if d.closed {
		return d.errClosed()
	}
	return d.failure()
}

// Free returns an allocation; see gpu.Device. It waits for the GPU.
func (d *Device) Free(s gpu.Span) error {
	d.mu.Lock()
	if s.Dev != int32(d.ordinal) || int(s.Mem) >= len(d.allocs) || d.allocs[s.Mem].label == freed {
		d.mu.Unlock()
		return fmt.Errorf("cuda: free of a span that device %d did not allocate", d.ordinal)
	}
	a := d.allocs[s.Mem]
	d.allocs[s.Mem] = alloc{label: freed}
	d.mu.Unlock()
	if r := d.driver.race; r != nil {
		r.Forget(s)
	}
	if a.bytes == 0 {
		return nil
	}
	return d.check("", "freeing "+a.label, cu.MemFree(a.at))
}

// freed is the label of an allocation that is gone.
const freed = "\x00freed"

// addr resolves a span of this device. Any goroutine may call it.
func (d *Device) addr(s gpu.Span) (cu.DevicePtr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.Dev != int32(d.ordinal) {
		return 0, fmt.Errorf("cuda: span of device %d used on device %d", s.Dev, d.ordinal)
	}
	if int(s.Mem) >= len(d.allocs) || d.allocs[s.Mem].label == freed {
		return 0, fmt.Errorf("cuda: allocation %d of device %d is gone", s.Mem, d.ordinal)
	}
	a := d.allocs[s.Mem]
	if s.Off < 0 || s.Len < 0 || s.Off > a.bytes-s.Len {
		return 0, fmt.Errorf("cuda: bytes [%d,%d) of an allocation of %d", s.Off, s.Off+s.Len, a.bytes)
	}
	return a.at + cu.DevicePtr(s.Off), nil
}

// Memory lists allocated bytes by label, largest first.
func (d *Device) Memory() []gpu.MemoryUse {
	d.mu.Lock()
	defer d.mu.Unlock()
	var uses []gpu.MemoryUse
	for _, a := range d.allocs {
		if a.label != freed {
			uses = append(uses, gpu.MemoryUse{Label: a.label, Bytes: a.bytes})
		}
	}
	return gpu.MemoryTable(uses)
}

// pinned is page-locked memory, allocated in the context of a device and usable by all.
type pinned struct {
	d *Device // that allocated it

	mu sync.Mutex
	b  []byte
}

// hostMemory allocates page-locked memory and returns its address on the devices too.
func hostMemory(c *primary, bytes int64) ([]byte, cu.DevicePtr, error) {
	var at unsafe.Pointer
	var device C.ulonglong
	// A cache line at least, so that nothing has a special case for no bytes.
	if code := int(C.refrain_cuda_host_alloc(&at, &device, C.size_t(max(bytes, 64)))); code != 0 {
		return nil, 0, newError(c.ordinal, "", fmt.Sprintf("pinning %d bytes of host memory", bytes), code)
	}
	c.hold()
	return unsafe.Slice((*byte)(at), max(bytes, 64)), cu.DevicePtr(device), nil
}

// releaseHost frees what hostMemory returned, on any goroutine.
func releaseHost(c *primary, b []byte) error {
	err := c.here(func() error {
		if err := cu.MemFreeHost(unsafe.Pointer(unsafe.SliceData(b))); err != nil {
			return newError(c.ordinal, "", "freeing pinned memory", code(err))
		}
		return nil
	})
	return errors.Join(err, c.drop())
}

// AllocPinned returns zeroed page-locked memory that every GPU may copy from and to.
// The caller frees it, before or after Close.
func (d *Device) AllocPinned(bytes int64) (gpu.Pinned, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	if bytes < 0 {
		return nil, fmt.Errorf("cuda: %d pinned bytes", bytes)
	}
	b, _, err := hostMemory(d.ctx, bytes)
	if err != nil {
		return nil, err
	}
	return &pinned{d: d, b: b[:bytes:bytes]}, nil
}

// Bytes returns the memory, and nil after Free.
func (p *pinned) Bytes() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b
}

// Free gives the memory back. No copy may be under way. After a failure of its device
// nobody knows whether one is, and the memory stays until the process ends.
func (p *pinned) Free() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.b == nil {
		return nil
	}
	b := p.b
	p.b = nil
	if p.d.failure() != nil {
		return p.d.ctx.drop()
	}
	return releaseHost(p.d.ctx, b[:0])
}
