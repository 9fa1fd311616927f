// Package host is the CPU driver: logical devices whose queues are goroutines
// and whose kernels run on a spin pool over huge-page memory. Queues are truly
// asynchronous and in order, events and copies behave as on CUDA, so a missing
// wait is a bug here as well (Config.RaceCheck names it).
package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"refrain/gpu"
	"refrain/gpu/race"
	"refrain/internal/par"
	"refrain/kernels/asm"
)

// Config chooses what the driver offers. The zero value is one device with
// all the threads of the process.
type Config struct {
	Devices   int  // logical devices; 0 means 1
	Threads   int  // worker threads of all devices together; 0 means DefaultThreads
	Reference bool // run the reference body of every kernel
	Profile   bool // keep the time spent in each kernel (see Device.KernelTimes)
	RaceCheck bool // verify that conflicting accesses are ordered; slow, for tests
}

// Driver is a gpu.Driver for the CPU.
type Driver struct {
	cfg  Config
	race *race.Check
	open *peerTable
}

// peerTable is what the devices of a driver share.
type peerTable struct {
	mu   sync.Mutex
	devs map[int32]*Device // the open ones, by ordinal
}

func (t *peerTable) find(ordinal int32) *Device {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.devs[ordinal]
}

// New returns a driver. It starts nothing before Open.
func New(c Config) *Driver {
	if c.Devices <= 0 {
		c.Devices = 1
	}
	if c.Threads <= 0 {
		c.Threads = DefaultThreads()
	}
	d := &Driver{cfg: c, open: &peerTable{devs: map[int32]*Device{}}}
	if c.RaceCheck {
		d.race = race.New()
	}
	return d
}

// Name returns "host".
func (d *Driver) Name() string { return "host" }

// NumDevices returns the configured number of logical devices.
func (d *Driver) NumDevices() (int, error) { return d.cfg.Devices, nil }

// Open starts logical device ordinal. The threads of the driver are shared
// out evenly; every device has at least one.
func (d *Driver) Open(ordinal int) (gpu.Device, error) {
	if ordinal < 0 || ordinal >= d.cfg.Devices {
		return nil, fmt.Errorf("host: device %d; there are %d", ordinal, d.cfg.Devices)
	}
	n := d.cfg.Threads / d.cfg.Devices
	if ordinal < d.cfg.Threads%d.cfg.Devices {
		n++
	}
	d.open.mu.Lock()
	defer d.open.mu.Unlock()
	if d.open.devs[int32(ordinal)] != nil {
		return nil, fmt.Errorf("host: device %d is already open", ordinal)
	}
	dev := &Device{
		ordinal: ordinal,
		cfg:     d.cfg,
		race:    d.race,
		pool:    par.New(max(1, n)),
		scratch: map[string][]float32{},
		cached:  map[string]any{},
		peers:   d.open,
	}
	d.open.devs[int32(ordinal)] = dev
	return dev, nil
}

// Device is one logical CPU device.
type Device struct {
	ordinal int
	cfg     Config
	race    *race.Check
	peers   *peerTable
	pool    *par.Pool

	mu      sync.Mutex // guards the tables below
	allocs  []alloc
	queues  []*queue
	scratch map[string][]float32
	cached  map[string]any
	times   map[string]*kernelTime
	blocks  []block // memory behind scratch
	closed  bool

	compute sync.Mutex            // held while a kernel runs: one at a time, as its pool
	err     atomic.Pointer[error] // first failure; the device is dead afterwards
}

type alloc struct {
	b     block
	label string
	bytes int64
}

// Ordinal returns the device's number.
func (d *Device) Ordinal() int { return d.ordinal }

// Info describes the device.
func (d *Device) Info() gpu.Info {
	return gpu.Info{
		Name:       fmt.Sprintf("cpu%d", d.ordinal),
		TotalBytes: TotalMemory(),
		Threads:    d.pool.Threads(),
		Kernels:    asm.Kernels(),
	}
}

// Run calls f: on the CPU any goroutine may use a device.
func (d *Device) Run(_ context.Context, f func() error) error { return f() }

// Alloc returns zeroed memory off the Go heap, on huge pages where the system
// allows it.
func (d *Device) Alloc(bytes int64, label string) (gpu.Span, error) {
	if bytes < 0 {
		return gpu.Span{}, fmt.Errorf("host: allocation of %d bytes for %s", bytes, label)
	}
	b, err := newBlock(bytes)
	if err != nil {
		return gpu.Span{}, fmt.Errorf("host: device %d: %d bytes for %s: %w", d.ordinal, bytes, label, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return gpu.Span{}, errors.Join(d.errClosed(), b.free())
	}
	d.allocs = append(d.allocs, alloc{b, label, bytes})
	return gpu.Span{Dev: int32(d.ordinal), Mem: uint32(len(d.allocs) - 1), Len: bytes}, nil
}

// Free returns the allocation that s was made by; see gpu.Device.
func (d *Device) Free(s gpu.Span) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.Dev != int32(d.ordinal) || int(s.Mem) >= len(d.allocs) || d.allocs[s.Mem].b.data == nil {
		return fmt.Errorf("host: free of a span that device %d did not allocate", d.ordinal)
	}
	a := &d.allocs[s.Mem]
	b := a.b
	*a = alloc{}
	if d.race != nil {
		d.race.Forget(s)
	}
	return b.free()
}

// bytes resolves a device span.
func (d *Device) bytes(s gpu.Span) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.Dev != int32(d.ordinal) {
		return nil, fmt.Errorf("host: span of device %d used on device %d", s.Dev, d.ordinal)
	}
	if int(s.Mem) >= len(d.allocs) || d.allocs[s.Mem].b.data == nil && s.Len > 0 {
		return nil, fmt.Errorf("host: allocation %d of device %d is gone", s.Mem, d.ordinal)
	}
	m := d.allocs[s.Mem].b.data
	if s.Off < 0 || s.Len < 0 || s.Off > int64(len(m))-s.Len {
		return nil, fmt.Errorf("host: bytes [%d,%d) of an allocation of %d", s.Off, s.Off+s.Len, len(m))
	}
	return m[s.Off : s.Off+s.Len : s.Off+s.Len], nil
}

// pinned is host memory off the Go heap. The CPU has no page-locking to do.
type pinned struct {
	mu sync.Mutex
	b  block
}

// Bytes returns the memory, and nil after Free.
func (p *pinned) Bytes() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.data
}

// Free gives the memory back. No copy may be under way.
func (p *pinned) Free() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.free()
}

// AllocPinned returns zeroed host memory aligned to a cache line, on huge pages
// from one huge page up. The caller frees it, before or after Close.
func (d *Device) AllocPinned(bytes int64) (gpu.Pinned, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("host: %d pinned bytes", bytes)
	}
	d.mu.Lock()
	closed := d.closed
	d.mu.Unlock()
	if closed {
		return nil, d.errClosed()
	}
	b, err := newBlock(bytes)
	if err != nil {
		return nil, fmt.Errorf("host: %d pinned bytes: %w", bytes, err)
	}
	return &pinned{b: b}, nil
}

// scratchLabel is the row of Memory for what kernels asked for with Scratch.
const scratchLabel = "scratch"

// Memory lists allocated bytes by label, largest first, scratch included.
func (d *Device) Memory() []gpu.MemoryUse {
	d.mu.Lock()
	defer d.mu.Unlock()
	var uses []gpu.MemoryUse
	for _, a := range d.allocs {
		if a.b.data != nil {
			uses = append(uses, gpu.MemoryUse{Label: a.label, Bytes: a.bytes})
		}
	}
	for _, b := range d.blocks {
		uses = append(uses, gpu.MemoryUse{Label: scratchLabel, Bytes: int64(len(b.data))})
	}
	return gpu.MemoryTable(uses)
}

// Close lets the queues finish what is enqueued, then frees everything but
// pinned memory, which is its holder's. It waits for peers whose marks the
// queues wait for, so devices that work together may be closed in any order, as
// long as none still copies from another. Afterwards every call fails.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	queues := slices.Clone(d.queues)
	d.mu.Unlock()
	for _, q := range queues {
		q.close()
	}
	for _, q := range queues {
		<-q.done
	}
	d.pool.Close()
	d.peers.mu.Lock()
	delete(d.peers.devs, int32(d.ordinal))
	d.peers.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	var first error
	for i := range d.allocs {
		if err := d.allocs[i].b.free(); err != nil && first == nil {
			first = err
		}
	}
	for i := range d.blocks {
		if err := d.blocks[i].free(); err != nil && first == nil {
			first = err
		}
	}
	d.allocs, d.blocks, d.scratch, d.cached = nil, nil, nil, nil
	return first
}

// fail makes err the device's first failure.
func (d *Device) fail(err error) {
	d.err.CompareAndSwap(nil, &err)
}

func (d *Device) failure() error {
	if p := d.err.Load(); p != nil {
		return *p
	}
	return nil
}

func (d *Device) errClosed() error { return fmt.Errorf("host: device %d is closed", d.ordinal) }

// HugeFloats returns an allocator of floats on huge pages, outside the Go
// heap, for benchmarks that want the memory a device has. What it hands out
// stays allocated until the process ends; where there are no huge pages, or no
// memory for them, it is make.
func HugeFloats() func(n int) []float32 {
	return func(n int) []float32 {
		b, err := newBlock(int64(n) * 4)
		if err != nil || n == 0 {
			return make([]float32, n)
		}
		return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b.data))), n)
	}
}
