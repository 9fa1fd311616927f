package host

import (
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

// KernelTime is one row of KernelTimes.
type KernelTime struct {
	Name  string
	Calls int64
	Busy  time.Duration
}

// KernelTimes returns the time spent in each kernel since the device was
// opened, most expensive first. It is empty unless Config.Profile is set.
func (d *Device) KernelTimes() []KernelTime {
	d.mu.Lock()
	defer d.mu.Unlock()
	var rows []KernelTime
	for n, t := range d.times {
		rows = append(rows, KernelTime{n, t.calls.Load(), time.Duration(t.ns.Load())})
	}
	slices.SortFunc(rows, func(a, b KernelTime) int {
		if a.Busy != b.Busy {
			return int(min(max(b.Busy-a.Busy, -1), 1))
		}
		return strings.Compare(a.Name, b.Name)
	})
	return rows
}

// binder is the gpu.Host handed to BindHost.
type binder struct {
	d   *Device
	at  func(gpu.Span) gpu.Span
	err error
}

func (b *binder) Bytes(s gpu.Span) []byte {
	m, err := b.d.bytes(b.at(s))
	if err != nil {
		b.err = err
		return make([]byte, s.Len) // the binding fails; the body never runs
	}
	return m
}

func (b *binder) Pool() *par.Pool { return b.d.pool }
func (b *binder) Reference() bool { return b.d.cfg.Reference }

func (b *binder) Scratch(name string, n int) []float32 {
	d := b.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.scratch[name]; len(s) >= n {
		return s[:n]
	}
	m, err := newBlock(int64(n) * 4)
	if err != nil {
		b.err = fmt.Errorf("host: device %d: scratch %s: %w", d.ordinal, name, err)
		return make([]float32, n)
	}
	// An older, smaller buffer of this name stays alive for the ops bound to it.
	d.blocks = append(d.blocks, m)
	d.scratch[name] = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.data))), n)
	return d.scratch[name]
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
	d.cached[name] = v
	return v
}

// Bind prepares op over this device's memory.
func (d *Device) Bind(op gpu.Op, at func(gpu.Span) gpu.Span) (gpu.Bound, error) {
	h := &binder{d: d, at: at}
	b := &bound{d: d, name: op.Name(), body: op.BindHost(h)}
	if h.err != nil {
		return nil, h.err
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
