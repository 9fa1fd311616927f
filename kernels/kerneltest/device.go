package kerneltest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"refrain/gpu"
	"refrain/internal/par"
)

// WideDevice is a gpu.Device that computes in float64 and rounds nothing: a whole Program bound to
// it runs in double precision, so that its gradients can be compared with
// central differences to eight digits. Ops run at once, on the calling
// goroutine. Upload, Download and CopyPeer move I32 and U8 data; F32 data is
// reached by Float64s. It is for tests: not safe for concurrent use.
type WideDevice struct {
	pool   *par.Pool
	bytes  [][]byte
	wide   [][]float64 // by allocation, one value for every F32 element
	half   [][]float64 // and one for every BF16 element: temporaries of both types share an arena
	cached map[string]any
}

// NewWideDevice returns a device without memory. The caller must Close it.
func NewWideDevice() *WideDevice {
	return &WideDevice{pool: par.New(1), cached: map[string]any{}}
}

// Float64s returns the F32 elements of a span of this device, to read or write.
func (d *WideDevice) Float64s(s gpu.Span) []float64 {
	return d.wide[s.Mem][s.Off/4 : (s.Off+s.Len)/4]
}

// Bytes returns the memory behind I32 and U8 elements of a span.
func (d *WideDevice) Bytes(s gpu.Span) []byte { return d.bytes[s.Mem][s.Off : s.Off+s.Len] }

// Ordinal returns 0.
func (d *WideDevice) Ordinal() int { return 0 }

// Info describes the device.
func (d *WideDevice) Info() gpu.Info {
	return gpu.Info{Name: "float64 test device", Threads: 1, Kernels: "reference"}
}

// Run calls f.
func (d *WideDevice) Run(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return f()
}

// Alloc returns zeroed memory.
func (d *WideDevice) Alloc(bytes int64, label string) (gpu.Span, error) {
	if bytes < 0 {
		return gpu.Span{}, fmt.Errorf("kerneltest: %s: %d bytes", label, bytes)
	}
	d.bytes = append(d.bytes, aligned(int(bytes)))
	d.wide = append(d.wide, make([]float64, (bytes+3)/4))
	d.half = append(d.half, make([]float64, (bytes+1)/2))
	return gpu.Span{Mem: uint32(len(d.bytes) - 1), Len: bytes}, nil
}

// Free does nothing: memory lasts as long as the device.
func (d *WideDevice) Free(s gpu.Span) error { return nil }

type pinned []byte

func (p pinned) Bytes() []byte { return p }
func (p pinned) Free() error   { return nil }

// AllocPinned returns host memory.
func (d *WideDevice) AllocPinned(bytes int64) (gpu.Pinned, error) {
	return pinned(aligned(int(bytes))), nil
}

// NewQueue returns a queue that runs everything at once.
func (d *WideDevice) NewQueue(label string) (gpu.Queue, error) { return wideQueue{d}, nil }

// NewEvent returns an event that has always passed, as everything runs at once.
func (d *WideDevice) NewEvent() (gpu.Event, error) { return passed{}, nil }

type passed struct{}

func (passed) Sync(ctx context.Context) error { return ctx.Err() }
func (passed) Done() bool                     { return true }

// Bind prepares the float64 form of op.
func (d *WideDevice) Bind(op gpu.Op, at func(gpu.Span) gpu.Span) (gpu.Bound, error) {
	return op.BindHost(wideBinder{d, at}), nil
}

// Memory reports one row.
func (d *WideDevice) Memory() []gpu.MemoryUse {
	u := gpu.MemoryUse{Label: "float64 test memory"}
	for i := range d.bytes {
		u.Bytes += int64(len(d.bytes[i]) + 8*len(d.wide[i]) + 8*len(d.half[i]))
	}
	return []gpu.MemoryUse{u}
}

// Close ends the worker pool.
func (d *WideDevice) Close() error {
	d.pool.Close()
	return nil
}

// wideBinder is what an op sees of the device; it satisfies kernels.WideHost.
type wideBinder struct {
	d  *WideDevice
	at func(gpu.Span) gpu.Span
}

func (b wideBinder) Bytes(s gpu.Span) []byte { return b.d.Bytes(b.at(s)) }
func (b wideBinder) Float64s(t gpu.Tensor) []float64 {
	s := b.at(t.Span)
	if t.DType == gpu.BF16 {
		return b.d.half[s.Mem][s.Off/2 : (s.Off+s.Len)/2]
	}
	return b.d.Float64s(s)
}
func (b wideBinder) Pool() *par.Pool                   { return b.d.pool }
func (b wideBinder) Reference() bool                   { return true }
func (b wideBinder) Scratch(_ string, n int) []float32 { return make([]float32, n) }
func (b wideBinder) Cached(name string, build func() any) any {
	if _, ok := b.d.cached[name]; !ok {
		b.d.cached[name] = build()
	}
	return b.d.cached[name]
}

type wideQueue struct{ d *WideDevice }

func (q wideQueue) Do(b gpu.Bound) error {
	body, ok := b.(func())
	if !ok {
		return errors.New("kerneltest: an op that was bound to another device")
	}
	body()
	return nil
}

func (q wideQueue) Upload(dst gpu.Span, src gpu.Pinned, off int64) error {
	copy(q.d.Bytes(dst), src.Bytes()[off:off+dst.Len])
	return nil
}

func (q wideQueue) Download(dst gpu.Pinned, off int64, src gpu.Span) error {
	copy(dst.Bytes()[off:off+src.Len], q.d.Bytes(src))
	return nil
}

func (q wideQueue) CopyPeer(dst, src gpu.Span) error {
	copy(q.d.Bytes(dst), q.d.Bytes(src))
	copy(q.d.Float64s(dst), q.d.Float64s(src))
	copy(q.d.half[dst.Mem][dst.Off/2:(dst.Off+dst.Len)/2], q.d.half[src.Mem][src.Off/2:(src.Off+src.Len)/2])
	return nil
}

func (q wideQueue) Idle() time.Duration            { return 0 }
func (q wideQueue) Close() error                   { return nil }
func (q wideQueue) Record(e gpu.Event) error       { return nil }
func (q wideQueue) Wait(e gpu.Event) error         { return nil }
func (q wideQueue) Sync(ctx context.Context) error { return ctx.Err() }

var (
	_ gpu.Device = (*WideDevice)(nil)
	_ gpu.Host   = wideBinder{}
)
