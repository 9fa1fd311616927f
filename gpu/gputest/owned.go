// Package gputest checks the users of a gpu.Device. The host driver takes calls
// from any goroutine; Owned makes one as strict as a device whose calls belong to
// one thread, so that plain tests show who would break on it.
package gputest

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"refrain/gpu"
)

// Device is a gpu.Device that runs what Run gets on one goroutine of its own and
// reports every other call that does not come from there.
type Device struct {
	gpu.Device
	t     testing.TB
	jobs  chan func()
	done  chan struct{} // closed when the goroutine has ended
	once  sync.Once
	owner atomic.Pointer[string]
	syncs atomic.Int64
	open  atomic.Int64
}

// Owned wraps d, which it closes with itself.
func Owned(t testing.TB, d gpu.Device) *Device {
	o := &Device{Device: d, t: t, jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(o.done)
		id := goroutine()
		o.owner.Store(&id)
		for f := range o.jobs {
			f()
		}
	}()
	return o
}

// Syncs counts the calls of Queue.Sync. Each holds up whoever wants to enqueue.
func (d *Device) Syncs() int64 { return d.syncs.Load() }

// Queues is the number of queues that are open.
func (d *Device) Queues() int64 { return d.open.Load() }

// goroutine returns the name of the calling goroutine, such as "goroutine 7".
func goroutine() string {
	b := make([]byte, 64)
	b = b[:runtime.Stack(b, false)]
	name, _, _ := bytes.Cut(b, []byte(" ["))
	return string(name)
}

// inside reports a call from outside Run.
func (d *Device) inside(call string) {
	if id := d.owner.Load(); id == nil || *id != goroutine() {
		stack := make([]byte, 4<<10)
		d.t.Errorf("device %d: %s outside Device.Run\n%s", d.Ordinal(), call, stack[:runtime.Stack(stack, false)])
	}
}

// Run calls f on the device's goroutine.
func (d *Device) Run(ctx context.Context, f func() error) error {
	if id := d.owner.Load(); id != nil && *id == goroutine() {
		d.t.Errorf("device %d: Run inside Run", d.Ordinal())
		return f()
	}
	result := make(chan error, 1)
	select {
	case d.jobs <- func() { result <- f() }:
		return <-result
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the goroutine and closes the device.
func (d *Device) Close() error {
	d.once.Do(func() { close(d.jobs) })
	<-d.done
	return d.Device.Close()
}

// Alloc is gpu.Device's, inside Run only.
func (d *Device) Alloc(bytes int64, label string) (gpu.Span, error) {
	d.inside("Alloc")
	return d.Device.Alloc(bytes, label)
}

// Free is gpu.Device's, inside Run only.
func (d *Device) Free(s gpu.Span) error {
	d.inside("Free")
	return d.Device.Free(s)
}

// AllocPinned is gpu.Device's, inside Run only.
func (d *Device) AllocPinned(bytes int64) (gpu.Pinned, error) {
	d.inside("AllocPinned")
	return d.Device.AllocPinned(bytes)
}

// NewQueue is gpu.Device's, inside Run only; so are all methods of the queue but Idle.
func (d *Device) NewQueue(label string) (gpu.Queue, error) {
	d.inside("NewQueue")
	q, err := d.Device.NewQueue(label)
	if err != nil {
		return nil, err
	}
	d.open.Add(1)
	return &queue{d: d, q: q}, nil
}

// NewEvent is gpu.Device's, inside Run only.
func (d *Device) NewEvent() (gpu.Event, error) {
	d.inside("NewEvent")
	return d.Device.NewEvent()
}

// Bind is gpu.Device's, inside Run only.
func (d *Device) Bind(op gpu.Op, at func(gpu.Span) gpu.Span) (gpu.Bound, error) {
	d.inside("Bind")
	return d.Device.Bind(op, at)
}

type queue struct {
	d      *Device
	q      gpu.Queue
	closed bool
}

func (q *queue) Do(b gpu.Bound) error {
	q.d.inside("Queue.Do")
	return q.q.Do(b)
}

func (q *queue) Upload(dst gpu.Span, src gpu.Pinned, srcOff int64) error {
	q.d.inside("Queue.Upload")
	return q.q.Upload(dst, src, srcOff)
}

func (q *queue) Download(dst gpu.Pinned, dstOff int64, src gpu.Span) error {
	q.d.inside("Queue.Download")
	return q.q.Download(dst, dstOff, src)
}

func (q *queue) CopyPeer(dst, src gpu.Span) error {
	q.d.inside("Queue.CopyPeer")
	return q.q.CopyPeer(dst, src)
}

func (q *queue) Record(e gpu.Event) error {
	q.d.inside("Queue.Record")
	return q.q.Record(e)
}

func (q *queue) Wait(e gpu.Event) error {
	q.d.inside("Queue.Wait")
	return q.q.Wait(e)
}

func (q *queue) Sync(ctx context.Context) error {
	q.d.inside("Queue.Sync")
	q.d.syncs.Add(1)
	return q.q.Sync(ctx)
}

func (q *queue) Close() error {
	q.d.inside("Queue.Close")
	if !q.closed {
		q.closed = true
		q.d.open.Add(-1)
	}
	return q.q.Close()
}

func (q *queue) Idle() time.Duration { return q.q.Idle() }
