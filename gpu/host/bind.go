package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"refrain/gpu"
	"refrain/internal/par"
)

// bound is an op prepared for a device.
type bound struct {
	d             *Device
	name          string
	body          func()
	reads, writes []gpu.Span // resolved, for the race check
	time          *kernelTime
}

func (b *bound) run() {
	if b.time == nil {
		b.body()
		return
	}
	t0 := time.Now()
	b.body()
	b.time.ns.Add(int64(time.Since(t0)))
	b.time.calls.Add(1)
}

type kernelTime struct{ calls, ns atomic.Int64 }

// KernelTimes implements gpu.Profiler. It is empty unless Config.Profile is set.
func (d *Device) KernelTimes() []gpu.KernelTime {
	d.mu.Lock()
	defer d.mu.Unlock()
	var rows []gpu.KernelTime
	for n, t := range d.times {
		rows = append(rows, gpu.KernelTime{Name: n, Calls: t.calls.Load(), Busy: time.Duration(t.ns.Load())})
	}
	slices.SortFunc(rows, func(a, b gpu.KernelTime) int {
		if a.Busy != b.Busy {
			return int(min(max(b.Busy-a.Busy, -1), 1))
		}
		return strings.Compare(a.Name, b.Name)
	})
	return rows
}

// binder is the gpu.Host handed to BindHost. Its methods cannot return errors,
// so they panic with one: while the op is bound, Bind turns that into its own
// error; some bodies resolve memory on every replay, and there it kills the
// device, as any panic of a kernel does.
type binder struct {
	d  *Device
	at func(gpu.Span) gpu.Span
}

// bindError is what a binder panics with.
type bindError struct{ err error }

func (e *bindError) Error() string { return e.err.Error() }
func (e *bindError) Unwrap() error { return e.err }

func (b *binder) Bytes(s gpu.Span) []byte {
	m, err := b.d.bytes(b.at(s))
	if err != nil {
		panic(&bindError{err})
	}
	return m
}

func (b *binder) Pool() *par.Pool { return b.d.pool }
func (b *binder) Reference() bool { return b.d.cfg.Reference }

func (b *binder) Scratch(name string, n int) []float32 {
	s, err := b.d.scratchOf(name, n)
	if err != nil {
		panic(&bindError{fmt.Errorf("host: device %d: scratch %s of %d floats: %w", b.d.ordinal, name, n, err)})
	}
	return s
}

// scratchOf finds or makes the scratch of that name.
func (d *Device) scratchOf(name string, n int) ([]float32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.errClosed()
	}
	if n < 0 {
		return nil, errors.New("the length is negative")
	}
	if s := d.scratch[name]; len(s) >= n {
		return s[:n], nil
	}
	m, err := newBlock(int64(n) * 4)
	if err != nil {
		return nil, err
	}
	// An older, smaller buffer of this name stays alive for the ops bound to it.
	d.blocks = append(d.blocks, m)
	d.scratch[name] = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.data))), n)
	return d.scratch[name], nil
}

func (b *binder) Cached(name string, build func() any) any {
	d := b.d
	d.mu.Lock()
	v, ok := d.cached[name]
	d.mu.Unlock()
	if ok {
		return v
	}
	v = build()
	d.mu.Lock()
	defer d.mu.Unlock()
	if old, ok := d.cached[name]; ok {
		return old
	}
	if !d.closed {
		d.cached[name] = v
	}
	return v
}

// prepare makes the body of op.
func (b *bound) prepare(op gpu.Op, h gpu.Host) (err error) {
	defer func() {
		if v := recover(); v != nil {
			e, ok := v.(*bindError)
			if !ok {
				panic(v)
			}
			err = fmt.Errorf("host: binding %s: %w", b.name, e.err)
		}
	}()
	b.body = op.BindHost(h)
	return nil
}

// Bind prepares op over this device's memory.
func (d *Device) Bind(op gpu.Op, at func(gpu.Span) gpu.Span) (gpu.Bound, error) {
	if _, ok := op.(gpu.Collective); ok {
		return nil, fmt.Errorf("host: %s is a collective: it is enqueued by Exchange, only its inner ops are bound", op.Name())
	}
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return nil, d.errClosed()
	}
	b := &bound{d: d, name: op.Name()}
	if err := b.prepare(op, &binder{d: d, at: at}); err != nil {
		return nil, err
	}
	if d.race != nil {
		reads, writes := op.Access()
		for _, s := range reads {
			b.reads = append(b.reads, at(s))
		}
		for _, s := range writes {
			b.writes = append(b.writes, at(s))
		}
	}
	if d.cfg.Profile {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.times == nil {
			d.times = map[string]*kernelTime{}
		}
		if d.times[b.name] == nil {
			d.times[b.name] = &kernelTime{}
		}
		b.time = d.times[b.name]
	}
	return b, nil
}
