//go:build cuda && cudaheaders

package cuda

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"refrain/gpu"
	"refrain/gpu/race"
)

// queue is a stream.
type queue struct {
	d      *Device
	label  string
	s      cu.Stream
	line   int // of marks
	id     int // of the race check
	flush  *event
	idle   idleClock
	closed bool
}

// NewQueue makes a stream that does not wait for the default one.
func (d *Device) NewQueue(label string) (gpu.Queue, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	line, err := d.marks.take(label)
	if err != nil {
		return nil, err
	}
	s, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		d.marks.giveBack(line)
		return nil, d.check(label, "making the stream", err)
	}
	q := &queue{d: d, label: label, s: s, line: line}
	if r := d.driver.race; r != nil {
		q.id = r.Queue(fmt.Sprintf("device %d queue %s", d.ordinal, label))
	}
	e, err := d.NewEvent()
	if err == nil {
		q.flush = e.(*event)
		err = q.idle.start(d)
	}
	if err != nil {
		return nil, errors.Join(err, q.end())
	}
	d.queues = append(d.queues, q)
	return q, nil
}

// end gives back what a queue without work holds.
func (q *queue) end() error {
	q.d.marks.giveBack(q.line)
	errs := []error{q.check("close", q.s.Destroy()), q.idle.stop()}
	if q.flush != nil {
		errs = append(errs, q.check("close", cu.DestroyEvent(&q.flush.e)))
	}
	return errors.Join(errs...)
}

// ready refuses calls on a queue that ended or a device that failed.
func (q *queue) ready(name string) error {
	if q.closed {
		return q.errClosed()
	}
	if err := q.d.failure(); err != nil {
		return err
	}
	q.d.marks.enqueued(q.line, name)
	return nil
}

func (q *queue) errClosed() error {
	if q.d.closed {
		return q.d.errClosed()
	}
	return fmt.Errorf("cuda: queue %s of device %d is closed", q.label, q.d.ordinal)
}

// Do enqueues the kernels of a bound op, in one call of ours.
func (q *queue) Do(b gpu.Bound) error {
	op, ok := b.(*bound)
	if !ok || op.d != q.d {
		return fmt.Errorf("cuda: queue %s: op was bound to another device", q.label)
	}
	if err := q.ready(op.name); err != nil {
		return err
	}
	if err := q.access(op.name, op.reads, op.writes); err != nil {
		return err
	}
	if err := q.idle.resume(q); err != nil {
		return err
	}
	return q.check(op.name, op.launch(q.s))
}

// access hands what work reads and writes to the race check, if there is one. A race kills
// the device: whatever runs after it works on undefined data.
func (q *queue) access(name string, reads, writes []gpu.Span) error {
	r := q.d.driver.race
	if r == nil {
		return nil
	}
	err := r.Access(q.id, name, reads, writes)
	if err != nil {
		q.d.fail(err)
	}
	return err
}

// pinnedSpan is bytes of pinned memory for the race check.
func (q *queue) pinnedSpan(p gpu.Pinned, off, n int64) gpu.Span {
	s := gpu.Span{Dev: race.PinnedSpace, Off: off, Len: n}
	if r := q.d.driver.race; r != nil {
		s.Mem = r.Pinned(p)
	}
	return s
}

func (q *queue) check(op string, err error) error { return q.d.check(q.label, op, err) }

// pinnedAt resolves n bytes of p.
func (q *queue) pinnedAt(p gpu.Pinned, off, n int64) (unsafe.Pointer, error) {
	m, ok := p.(*pinned)
	if !ok {
		return nil, fmt.Errorf("cuda: queue %s: pinned memory %T is not of this driver", q.label, p)
	}
	b := m.Bytes()
	if off < 0 || off > int64(len(b))-n {
		return nil, fmt.Errorf("cuda: queue %s: bytes [%d,%d) of a pinned buffer of %d", q.label, off, off+n, len(b))
	}
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), off), nil
}

// copy enqueues a copy between equally long spans; of no bytes it enqueues nothing.
func (q *queue) copy(name string, to, from gpu.Span, call func() error) error {
	if err := q.ready(name); err != nil || to.Len == 0 {
		return err
	}
	if q.d.driver.race != nil {
		if err := q.access(name, []gpu.Span{from}, []gpu.Span{to}); err != nil {
			return err
		}
	}
	if err := q.idle.resume(q); err != nil {
		return err
	}
	return q.check(name, call())
}

// Upload enqueues a copy of dst.Len bytes from pinned memory.
func (q *queue) Upload(dst gpu.Span, src gpu.Pinned, srcOff int64) error {
	to, err := q.d.addr(dst)
	if err != nil {
		return err
	}
	from, err := q.pinnedAt(src, srcOff, dst.Len)
	if err != nil {
		return err
	}
	return q.copy("upload", dst, q.pinnedSpan(src, srcOff, dst.Len), func() error { return cu.MemcpyHtoDAsync(to, from, dst.Len, q.s) })
}

// Download enqueues a copy of src.Len bytes to pinned memory.
func (q *queue) Download(dst gpu.Pinned, dstOff int64, src gpu.Span) error {
	from, err := q.d.addr(src)
	if err != nil {
		return err
	}
	to, err := q.pinnedAt(dst, dstOff, src.Len)
	if err != nil {
		return err
	}
	return q.copy("download", q.pinnedSpan(dst, dstOff, src.Len), src, func() error { return cu.MemcpyDtoHAsync(to, from, src.Len, q.s) })
}

// CopyPeer enqueues a copy within this device, or from a peer opened by the same
// driver, to this device.
func (q *queue) CopyPeer(dst, src gpu.Span) error {
	if dst.Len != src.Len {
		return fmt.Errorf("cuda: queue %s: copy_peer of %d bytes to %d", q.label, src.Len, dst.Len)
	}
	to, err := q.d.addr(dst)
	if err != nil {
		return err
	}
	owner := q.d
	if src.Dev != int32(q.d.ordinal) {
		if owner = q.d.driver.find(src.Dev); owner == nil {
			return fmt.Errorf("cuda: device %d is not open", src.Dev)
		}
	}
	from, err := owner.addr(src)
	if err != nil {
		return err
	}
	if owner == q.d {
		return q.copy("copy_peer", dst, src, func() error { return cu.MemcpyDtoDAsync(to, from, src.Len, q.s) })
	}
	return q.copy("copy_peer", dst, src, func() error {
		return cu.MemcpyPeerAsync(to, q.d.ctx.c, from, owner.ctx.c, src.Len, q.s)
	})
}

// Record moves the mark of e to this point of the queue. On a dead device the mark
// counts as passed.
func (q *queue) Record(e gpu.Event) error {
	ev, err := asEvent(e)
	if err != nil {
		return err
	}
	if q.closed {
		return q.errClosed()
	}
	if ev.d != q.d {
		return fmt.Errorf("cuda: queue %s of device %d cannot record an event of device %d", q.label, q.d.ordinal, ev.d.ordinal)
	}
	if err := q.d.failure(); err != nil {
		return err
	}
	if r := q.d.driver.race; r != nil {
		r.Record(q.id, &ev.seen)
	}
	// The word comes first, so that who has the driver's event has the mark as well.
	count := q.d.marks.next(q.line)
	at := q.d.marks.at + cu.DevicePtr(q.line*lineBytes)
	if err := q.s.WriteValue32(at, count, 0); err != nil {
		return q.check("record", err)
	}
	if err := ev.e.Record(q.s); err != nil {
		return q.check("record", err)
	}
	ev.mark.Store(uint64(makeMark(q.line, count)))
	return q.idle.pause(q)
}

// Wait makes later work of this queue wait for the mark of e.
func (q *queue) Wait(e gpu.Event) error {
	ev, err := asEvent(e)
	if err != nil {
		return err
	}
	if err := q.ready("wait"); err != nil {
		return err
	}
	if r := q.d.driver.race; r != nil {
		r.Wait(q.id, &ev.seen)
	}
	if ev.mark.Load() == 0 {
		return nil // never recorded
	}
	if err := q.idle.pause(q); err != nil {
		return err
	}
	return q.check("wait", q.s.Wait(ev.e, 0))
}

// Sync blocks until everything enqueued so far has run, and returns the device's
// failure if there is one.
func (q *queue) Sync(ctx context.Context) error {
	if err := q.Record(q.flush); err != nil {
		return err
	}
	return q.flush.Sync(ctx)
}

// Idle returns the time without work; see gpu.Queue.
func (q *queue) Idle() time.Duration { return time.Duration(q.idle.total.Load()) }

// Close waits for what is enqueued and ends the stream.
func (q *queue) Close() error {
	if q.closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	err := q.d.failure()
	if err == nil {
		err = q.Sync(ctx)
	}
	q.closed = true
	q.d.queues = slices.DeleteFunc(q.d.queues, func(o *queue) bool { return o == q })
	if err != nil {
		q.d.marks.giveBack(q.line)
		return err // a stream that failed or hangs is left to the driver
	}
	return q.end()
}
