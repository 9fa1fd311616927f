//go:build cuda && cudaheaders

package cuda

// #include <stdlib.h>
// #include "native.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"refrain/gpu"
)

// Device is one GPU. A goroutine that keeps its OS thread makes every call of the
// driver, since a context is current on a thread.
type Device struct {
	driver  *Driver
	ordinal int
	info    gpu.Info
	jobs    chan func()
	ended   chan struct{} // closed when the owner's goroutine has ended
	ctx     *primary

	err atomic.Pointer[error] // first failure; the device is dead afterwards

	// Of the owner's goroutine.
	closed    bool
	queues    []*queue
	module    *cu.Module
	functions map[string]*function
	arguments []unsafe.Pointer // of bound ops, in C memory

	mu     sync.Mutex // guards what follows, which peers and askers read
	allocs []alloc

	marks *marks
}

// primary is a GPU's primary context, held by the device and by the pinned memory
// that was allocated in it.
type primary struct {
	ordinal int
	dev     cu.Device
	c       cu.CUContext
	holders atomic.Int32
}

func (p *primary) hold() { p.holders.Add(1) }

// drop lets go; the last holder releases the context.
func (p *primary) drop() error {
	if p.holders.Add(-1) > 0 {
		return nil
	}
	if err := p.dev.ReleasePrimaryCtx(); err != nil {
		return newError(p.ordinal, "", "releasing the context", code(err))
	}
	return nil
}

// here runs f on a thread on which the context is current.
func (p *primary) here(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(p.c); err != nil {
		return newError(p.ordinal, "", "making the context current", code(err))
	}
	return f()
}

// open starts the device's goroutine and waits until its context is there.
func open(driver *Driver, ordinal int) (*Device, error) {
	d := &Device{driver: driver, ordinal: ordinal, jobs: make(chan func()), ended: make(chan struct{})}
	ready := make(chan error)
	go d.own(ready)
	if err := <-ready; err != nil {
		return nil, err
	}
	return d, nil
}

// own is the device's goroutine, from open to Close.
func (d *Device) own(ready chan<- error) {
	defer close(d.ended)
	runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
	if err := d.start(); err != nil {
		ready <- err
		return
	}
	ready <- nil
	for f := range d.jobs {
		f()
	}
}

// start makes the primary context of the GPU current on this thread.
func (d *Device) start() error {
	fail := func(what string, err error) error { return newError(d.ordinal, "", what, code(err)) }
	dev, err := cu.GetDevice(d.ordinal)
	if err != nil {
		return fail("finding the GPU", err)
	}
	// A thread that waits sleeps: N of them that spin would starve the stages.
	if err := dev.SetPrimaryCtxFlags(cu.SchedBlockingSync); err != nil {
		return fail("setting the flags of the context", err)
	}
	c, err := dev.RetainPrimaryCtx()
	if err != nil {
		return fail("making the context", err)
	}
	d.ctx = &primary{ordinal: d.ordinal, dev: dev, c: c}
	d.ctx.hold()
	if err := cu.SetCurrentContext(c); err != nil {
		return errors.Join(fail("making the context current", err), d.ctx.drop())
	}
	if d.info, err = describe(dev); err != nil {
		return errors.Join(fail("describing the GPU", err), d.ctx.drop())
	}
	if d.marks, err = newMarks(d); err != nil {
		return errors.Join(err, d.ctx.drop())
	}
	return nil
}

// describe asks for what Info says.
func describe(dev cu.Device) (gpu.Info, error) {
	name, err := dev.Name()
	if err != nil {
		return gpu.Info{}, err
	}
	total, err := dev.TotalMem()
	if err != nil {
		return gpu.Info{}, err
	}
	major, minor, err := dev.ComputeCapability()
	if err != nil {
		return gpu.Info{}, err
	}
	return gpu.Info{Name: name, TotalBytes: total, Kernels: fmt.Sprintf("sm_%d%d", major, minor)}, nil
}

// PCI returns the address of the GPU on its bus, such as 0000:17:00.0, by which other
// tools know it, whatever CUDA_VISIBLE_DEVICES says.
func (d *Device) PCI() (string, error) {
	var id [32]C.char
	if code := int(C.refrain_cuda_pci_id(&id[0], C.int(len(id)), C.int(d.ordinal))); code != 0 {
		return "", newError(d.ordinal, "", "asking for the PCI address", code)
	}
	return C.GoString(&id[0]), nil
}

// Ordinal returns the number of the GPU as the driver counts.
func (d *Device) Ordinal() int { return d.ordinal }

// Info describes the GPU; Kernels is its architecture.
func (d *Device) Info() gpu.Info { return d.info }

// Run calls f on the device's goroutine; see gpu.Device.
func (d *Device) Run(ctx context.Context, f func() error) error {
	result := make(chan error, 1)
	select {
	case d.jobs <- func() { result <- f() }:
		return <-result
	case <-d.ended:
		return d.errClosed()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fail makes err the device's first failure.
func (d *Device) fail(err error) { d.err.CompareAndSwap(nil, &err) }

func (d *Device) failure() error {
	if p := d.err.Load(); p != nil {
		return *p
	}
	return nil
}

// check turns the result of a driver call into an error. One after which the context
// is unusable becomes the device's failure.
func (d *Device) check(queue, op string, err error) error {
	if err == nil {
		return nil
	}
	e := newError(d.ordinal, queue, op, code(err))
	if sticky(e.Code) {
		d.fail(e)
	}
	return e
}

func (d *Device) errClosed() error { return fmt.Errorf("cuda: device %d is closed", d.ordinal) }

// closeWait is how long Close waits for work that was enqueued before. A GPU that hangs
// keeps its memory then until the process ends.
const closeWait = 30 * time.Second

// Close waits for what is enqueued, frees the memory but pinned memory, and ends the
// device's goroutine. It is called outside Run. Devices that work together may be
// closed in any order, as long as none still copies from another.
func (d *Device) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	err := d.Run(ctx, d.shut)
	if errors.Is(err, errAlreadyClosed) {
		return nil
	}
	d.driver.forget(d)
	return err
}

var errAlreadyClosed = errors.New("cuda: closed already")

// shut is Close on the device's goroutine.
func (d *Device) shut() error {
	if d.closed {
		return errAlreadyClosed
	}
	d.closed = true
	var errs []error
	dead := d.failure() != nil
	for len(d.queues) > 0 {
		if err := d.queues[0].Close(); err != nil && !dead {
			errs = append(errs, err)
		}
	}
	d.mu.Lock()
	allocs := d.allocs
	d.allocs = nil
	d.mu.Unlock()
	for _, a := range allocs {
		if a.bytes > 0 && a.label != freed && !dead {
			errs = append(errs, d.check("", "freeing "+a.label, cu.MemFree(a.at)))
		}
	}
	for _, p := range d.arguments {
		C.free(p)
	}
	if d.module != nil && !dead {
		errs = append(errs, d.check("", "unloading the kernels", d.module.Unload()))
	}
	errs = append(errs, d.marks.close(dead), d.ctx.drop())
	close(d.jobs)
	return errors.Join(errs...)
}
