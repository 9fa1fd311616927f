// Package gpu is the seam between the trainer and a machine: memory, in-order
// queues, events, and Programs of operations that are recorded once and
// replayed every step. Drivers implement it (gpu/host on the CPU); everything
// above it (model, optimiser, collectives, stages) is written once.
//
// The package knows nothing about models or tokens.
package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"refrain/internal/par"
)

// DType is the element type of a Tensor.
type DType uint8

// The element types a Program may hold.
const (
	F32  DType = iota // IEEE binary32
	BF16              // upper half of a binary32
	I32               // signed 32-bit integer
	U8                // byte
)

// Size returns the size of one element in bytes.
func (t DType) Size() int64 {
	switch t {
	case F32, I32:
		return 4
	case BF16:
		return 2
	}
	return 1
}

func (t DType) String() string {
	switch t {
	case F32:
		return "f32"
	case BF16:
		return "bf16"
	case I32:
		return "i32"
	case U8:
		return "u8"
	}
	return fmt.Sprintf("dtype(%d)", uint8(t))
}

// Unbound is the Dev of a span that belongs to a Program and has no memory
// yet; Bind gives it some.
const Unbound int32 = -1

// Span is a half-open byte range of one allocation. It is a plain value:
// copying it copies no memory and owns nothing. While Dev is Unbound, Mem is
// the number of a Program buffer; otherwise it is an allocation of device Dev.
type Span struct {
	Dev int32  // ordinal of the owning device, or Unbound
	Mem uint32 // allocation of that device, or buffer of the Program
	Off int64  // bytes from its start
	Len int64  // bytes
}

// Sub returns bytes [off, off+n) of s. It panics when they are not inside s.
func (s Span) Sub(off, n int64) Span {
	if off < 0 || n < 0 || off+n > s.Len {
		panic(fmt.Sprintf("gpu: bytes [%d,%d) of a span of %d", off, off+n, s.Len))
	}
	s.Off += off
	s.Len = n
	return s
}

// overlaps reports whether the two ranges share a byte.
func (s Span) overlaps(o Span) bool {
	return s.Dev == o.Dev && s.Mem == o.Mem && s.Len > 0 && o.Len > 0 &&
		s.Off < o.Off+o.Len && o.Off < s.Off+s.Len
}

// Tensor is a typed, row-major, contiguous view of a span. The zero Tensor
// means "absent" where an argument is optional.
type Tensor struct {
	Span
	DType DType
	Rank  int8
	Shape [4]int32 // the first Rank entries count
}

// IsZero reports whether t is the absent tensor.
func (t Tensor) IsZero() bool { return t.Rank == 0 }

// Elems returns the number of elements.
func (t Tensor) Elems() int {
	if t.Rank == 0 {
		return 0
	}
	n := 1
	for _, d := range t.Shape[:t.Rank] {
		n *= int(d)
	}
	return n
}

// Dim returns the length of axis i as an int.
func (t Tensor) Dim(i int) int { return int(t.Shape[i]) }

// Is reports whether t has exactly this type and shape.
func (t Tensor) Is(dt DType, shape ...int) bool {
	if t.DType != dt || int(t.Rank) != len(shape) {
		return false
	}
	for i, d := range shape {
		if int(t.Shape[i]) != d {
			return false
		}
	}
	return true
}

// View returns elements [off, off+product(shape)) of t under another shape.
// It panics when they are not inside t: a view is taken while recording, from
// sizes that the recorder has already checked.
func (t Tensor) View(off int, shape ...int) Tensor {
	v := NewTensor(Span{}, t.DType, shape...)
	v.Span = t.Span.Sub(int64(off)*t.DType.Size(), int64(v.Elems())*t.DType.Size())
	return v
}

// NewTensor returns a tensor over s. It panics on more than four axes or a
// dimension that does not fit in 31 bits. A span of length zero is taken as
// "to be filled in by the caller".
func NewTensor(s Span, dt DType, shape ...int) Tensor {
	if len(shape) == 0 || len(shape) > 4 {
		panic(fmt.Sprintf("gpu: %d axes; a tensor has 1 to 4", len(shape)))
	}
	t := Tensor{Span: s, DType: dt, Rank: int8(len(shape))}
	for i, d := range shape {
		if d < 0 || d > 1<<31-1 {
			panic(fmt.Sprintf("gpu: axis %d has %d elements", i, d))
		}
		t.Shape[i] = int32(d)
	}
	if want := int64(t.Elems()) * dt.Size(); s.Len != 0 && s.Len != want {
		panic(fmt.Sprintf("gpu: a %v tensor of shape %v needs %d bytes, the span has %d", dt, shape, want, s.Len))
	}
	return t
}

func (t Tensor) String() string { return fmt.Sprintf("%v%v", t.DType, t.Shape[:t.Rank]) }

// Cost is what an op cannot avoid: the two sides of a roofline.
type Cost struct {
	FLOPs float64 // multiply-adds count two
	Bytes float64 // bytes read plus written, each once
}

// Plus adds two costs.
func (c Cost) Plus(o Cost) Cost { return Cost{c.FLOPs + o.FLOPs, c.Bytes + o.Bytes} }

// Op is one unit of device work, immutable once recorded.
type Op interface {
	// Name is the kernel's name, the same in Go, CUDA and traces.
	Name() string
	// Access is the truth for the planner, for waits between lanes and for the
	// race check. In-place means the span stands in both lists. A span that is
	// written is written everywhere.
	Access() (reads, writes []Span)
	Cost() Cost
	// BindHost prepares the Go body over resolved memory. The returned func is
	// called once a replay and allocates nothing.
	BindHost(h Host) func()
	// Launch enqueues the CUDA kernels of the op. It depends on the op and on l
	// alone, so a driver may call it once, when the op is bound, with a Launcher that
	// keeps what it is given, and replay that; args point to values, which it copies.
	Launch(l Launcher) error
}

// Host is what the Go body of an op sees of a CPU device while it is bound.
// One op of a device runs at a time, so ops may share the pool and scratch.
type Host interface {
	// Bytes resolves a span of the Program to memory. It stays valid as long as
	// the binding does.
	Bytes(s Span) []byte
	// Pool is the device's worker pool.
	Pool() *par.Pool
	// Scratch returns the device's float32 scratch of that name, at least n
	// elements, 64-byte aligned; its content is undefined at the start of
	// every op and shared with other ops that ask for the same name.
	Scratch(name string, n int) []float32
	// Cached returns the device's value of that name, built by make at the
	// first request: packing buffers, tables. make may not call Cached.
	Cached(name string, make func() any) any
	// Reference reports that ops shall run their reference body.
	Reference() bool
}

// view reinterprets b. Device allocations are 64-byte aligned.
func view[T any](b []byte, size int) []T {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/size)
}

// Float32s views the memory of t, which must be F32, as a slice.
func Float32s(h Host, t Tensor) []float32 { return view[float32](h.Bytes(t.Span), 4) }

// Int32s views the memory of t, which must be I32, as a slice.
func Int32s(h Host, t Tensor) []int32 { return view[int32](h.Bytes(t.Span), 4) }

// BF16s views the memory of t, which must be BF16, as a slice of bit patterns.
func BF16s(h Host, t Tensor) []uint16 { return view[uint16](h.Bytes(t.Span), 2) }

// BytesToFloat32s views pinned or host bytes as floats; b must be 4-byte aligned.
func BytesToFloat32s(b []byte) []float32 { return view[float32](b, 4) }

// BytesToInt32s views pinned or host bytes as integers; b must be 4-byte aligned.
func BytesToInt32s(b []byte) []int32 { return view[int32](b, 4) }

// Grid is the shape of a kernel launch.
type Grid struct {
	Blocks, Threads [3]uint32
	Shared          uint32 // dynamic shared memory in bytes
}

// Launcher is what an op's Launch sees of the CUDA driver.
type Launcher interface {
	Kernel(name string, g Grid, args ...unsafe.Pointer) error
	Addr(s Span) uintptr
}

// Bound is an op prepared for one device. Only the driver looks inside.
type Bound any

// Event marks a point of a queue. It is reusable: Record moves the mark, and a
// Wait refers to the mark that stands when Wait is called. Its methods may be
// called from any goroutine, outside Device.Run as well.
type Event interface {
	// Sync blocks the caller until the mark is passed or ctx is done. An event
	// that was never recorded counts as passed. It returns the failure of the
	// device that made the event: a mark on a dead device passes all the same.
	Sync(ctx context.Context) error
	// Done reports without waiting whether the mark is passed.
	Done() bool
}

// Pinned is page-locked host memory that devices may copy from and to. Its
// methods may be called from any goroutine, inside Device.Run and outside.
type Pinned interface {
	Bytes() []byte // 64-byte aligned; valid until Free
	Free() error
}

// Queue is an in-order stream of work on one device. Its methods enqueue and
// return; only Sync waits. One goroutine uses a queue at a time.
//
// Work that fails while it runs kills the device: nothing behind it runs, and
// every later call returns the failure. Marks still pass, and Record still moves
// them, so that nobody waits for ever; whoever combines devices must ask all of
// them before trusting a result. A call that is refused for its arguments
// enqueues nothing and harms nothing.
type Queue interface {
	Do(b Bound) error
	Upload(dst Span, src Pinned, srcOff int64) error   // dst.Len bytes
	Download(dst Pinned, dstOff int64, src Span) error // src.Len bytes
	CopyPeer(dst, src Span) error                      // between or within devices, equal lengths
	Record(e Event) error
	Wait(e Event) error // later work waits for the mark; the host does not
	Sync(ctx context.Context) error
	// Idle is the time, since the queue was made, in which it had nothing to run
	// or waited for a mark of another queue. Any goroutine may ask, at any time.
	Idle() time.Duration
	// Close waits until everything enqueued has run or been passed over, and ends
	// the queue: later calls return an error, marks that it recorded stay passed. A
	// second Close does nothing. Queues that are still open end with their device.
	Close() error
}

// ErrNoDriver is wrapped by the error of a driver that is not installed here.
var ErrNoDriver = errors.New("no CUDA driver")

// ErrHang is wrapped, besides ErrDevice, by the failure of a device that stopped
// answering.
var ErrHang = errors.New("the device hangs")

// ErrDevice is wrapped by the failure that killed a device.
var ErrDevice = errors.New("the device failed")

// Info describes a device.
type Info struct {
	Name       string
	TotalBytes int64 // memory it may allocate
	Threads    int   // worker threads of a CPU device
	Kernels    string
}

// Device owns memory and queues.
type Device interface {
	Ordinal() int
	Info() Info
	// Run calls f on the goroutine that owns the device (on CUDA its locked OS
	// thread) and returns its error once f has returned, or the cause of ctx if that
	// ends before f begins. Allocating, freeing, binding, making queues and events,
	// and the methods of queues other than Idle are called inside f; the host
	// driver takes them from any goroutine. Only one f runs at a time, so f does not
	// wait for the device while others have work to enqueue: it records an event,
	// and its caller waits for that outside. f does not call Run.
	Run(ctx context.Context, f func() error) error
	// Alloc returns zeroed memory, 64-byte aligned; label is for the memory table.
	Alloc(bytes int64, label string) (Span, error)
	// Free returns an allocation. Work that uses it has ended, on this device
	// and on its peers; bound ops that use it are not enqueued again.
	Free(s Span) error
	// AllocPinned returns zeroed pinned memory, which the caller frees.
	AllocPinned(bytes int64) (Pinned, error)
	NewQueue(label string) (Queue, error)
	NewEvent() (Event, error)
	// Bind prepares op; at maps its Program spans to spans of this device.
	Bind(op Op, at func(Span) Span) (Bound, error)
	// Memory lists bytes allocated by label, largest first.
	Memory() []MemoryUse
	// Close stops the queues, after the work already enqueued, and frees
	// everything but pinned memory. Calls after it return an error.
	Close() error
}

// Profiler is what a Device may be besides: one that can keep the time of every
// kernel when its driver is told to.
type Profiler interface {
	// KernelTimes returns the time spent in each kernel since the device was
	// opened, most expensive first; nothing when the driver was not told to keep it.
	// Any goroutine may ask, at any time.
	KernelTimes() []KernelTime
}

// KernelTime is one row of Profiler.KernelTimes.
type KernelTime struct {
	Name  string
	Calls int64
	Busy  time.Duration
}

// MemoryUse is one row of Device.Memory.
type MemoryUse struct {
	Label string
	Bytes int64
}

// MemoryTable adds up uses by label, largest first and equal ones by label: what
// Device.Memory returns.
func MemoryTable(uses []MemoryUse) (rows []MemoryUse) {
	for _, u := range uses {
		i := slices.IndexFunc(rows, func(r MemoryUse) bool { return r.Label == u.Label })
		if i < 0 {
			rows = append(rows, u)
			continue
		}
		rows[i].Bytes += u.Bytes
	}
	slices.SortFunc(rows, func(a, b MemoryUse) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Label, b.Label))
	})
	return rows
}

// Driver finds devices.
type Driver interface {
	Name() string
	NumDevices() (int, error)
	Open(ordinal int) (Device, error)
}
