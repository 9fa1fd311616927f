package host

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"refrain/gpu"
)

// queueDepth is how many enqueued tasks a queue holds before an enqueue call
// waits: room for a whole training step of a deep model, so that the host can
// run one step ahead.
const queueDepth = 1 << 14

type taskKind uint8

const (
	taskDo taskKind = iota
	taskCopy
	taskRecord
	taskWait
)

type task struct {
	kind     taskKind
	op       *bound
	dst, src []byte
	ev       *event
	gen      uint64
}

// queue is one in-order stream: a goroutine that runs tasks.
type queue struct {
	d     *Device
	label string
	id    int // of the race check
	tasks chan task
	done  chan struct{}
	flush *event       // for Sync
	idle  atomic.Int64 // nanoseconds without work
}

// NewQueue starts a queue. It ends with the device.
func (d *Device) NewQueue(label string) (gpu.Queue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("host: device %d is closed", d.ordinal)
	}
	q := &queue{d: d, label: label, tasks: make(chan task, queueDepth), done: make(chan struct{}), flush: newEvent(d)}
	if d.race != nil {
		q.id = d.race.newQueue(fmt.Sprintf("device %d queue %s", d.ordinal, label))
	}
	d.queues = append(d.queues, q)
	go q.run()
	return q, nil
}

func (q *queue) run() {
	defer close(q.done)
	for {
		t, ok := q.next()
		if !ok {
			return
		}
		switch t.kind {
		case taskRecord:
			t.ev.pass(t.gen)
		case taskWait:
			// A dead peer passes its events too, so this wait always ends; its
			// error reaches the host through the peer's own device.
			if t.ev.passed.Load() >= t.gen {
				continue
			}
			t0 := time.Now()
			if err := t.ev.sync(q.d.ctx, t.gen); err != nil {
				q.d.fail(err)
			}
			q.idle.Add(int64(time.Since(t0)))
		default:
			if q.d.failure() == nil {
				q.execute(&t)
			}
		}
	}
}

// next takes a task; the clock is read only when there is none.
func (q *queue) next() (t task, ok bool) {
	select {
	case t, ok = <-q.tasks:
		return t, ok
	default:
	}
	t0 := time.Now()
	t, ok = <-q.tasks
	q.idle.Add(int64(time.Since(t0)))
	return t, ok
}

// Idle returns the time without work; see gpu.Queue.
func (q *queue) Idle() time.Duration { return time.Duration(q.idle.Load()) }

// execute runs one kernel or copy; a panic in it kills the device, not the
// process, and names the kernel.
func (q *queue) execute(t *task) {
	defer func() {
		if v := recover(); v != nil {
			name := "copy"
			if t.op != nil {
				name = t.op.name
			}
			q.d.fail(fmt.Errorf("host: device %d queue %s: %s: panic: %v\n%s", q.d.ordinal, q.label, name, v, debug.Stack()))
		}
	}()
	if t.kind == taskCopy {
		copy(t.dst, t.src)
		return
	}
	q.d.compute.Lock()
	defer q.d.compute.Unlock()
	t.op.run()
}

// put enqueues t; it blocks only while queueDepth tasks are waiting.
func (q *queue) put(t task) error {
	if err := q.d.failure(); err != nil && t.kind != taskRecord {
		return err
	}
	q.tasks <- t
	return nil
}

// Do enqueues a bound op.
func (q *queue) Do(b gpu.Bound) error {
	op, ok := b.(*bound)
	if !ok || op.d != q.d {
		return fmt.Errorf("host: queue %s: op was bound to another device", q.label)
	}
	if r := q.d.race; r != nil {
		if err := r.access(q.id, op.name, op.reads, op.writes); err != nil {
			return err
		}
	}
	return q.put(task{kind: taskDo, op: op})
}

func (q *queue) copyTask(name string, dst, src []byte, reads, writes []gpu.Span) error {
	if len(dst) != len(src) {
		return fmt.Errorf("host: queue %s: %s of %d bytes to %d", q.label, name, len(src), len(dst))
	}
	if r := q.d.race; r != nil {
		if err := r.access(q.id, name, reads, writes); err != nil {
			return err
		}
	}
	return q.put(task{kind: taskCopy, dst: dst, src: src})
}

func slicePinned(p gpu.Pinned, off, n int64) ([]byte, error) {
	b := p.Bytes()
	if off < 0 || off+n > int64(len(b)) {
		return nil, fmt.Errorf("host: bytes [%d,%d) of a pinned buffer of %d", off, off+n, len(b))
	}
	return b[off : off+n], nil
}

// Upload enqueues a copy of dst.Len bytes from pinned memory.
func (q *queue) Upload(dst gpu.Span, src gpu.Pinned, srcOff int64) error {
	d, err := q.d.bytes(dst)
	if err != nil {
		return err
	}
	s, err := slicePinned(src, srcOff, dst.Len)
	if err != nil {
		return err
	}
	return q.copyTask("upload", d, s, nil, q.spans(dst))
}

// Download enqueues a copy of src.Len bytes to pinned memory.
func (q *queue) Download(dst gpu.Pinned, dstOff int64, src gpu.Span) error {
	s, err := q.d.bytes(src)
	if err != nil {
		return err
	}
	d, err := slicePinned(dst, dstOff, src.Len)
	if err != nil {
		return err
	}
	return q.copyTask("download", d, s, q.spans(src), nil)
}

// CopyPeer enqueues a copy within this device, or from a peer opened by the
// same driver, to this device.
func (q *queue) CopyPeer(dst, src gpu.Span) error {
	d, err := q.d.bytes(dst)
	if err != nil {
		return err
	}
	owner := q.d
	if src.Dev != int32(q.d.ordinal) {
		if owner = q.d.peers.find(src.Dev); owner == nil {
			return fmt.Errorf("host: device %d is not open", src.Dev)
		}
	}
	s, err := owner.bytes(src)
	if err != nil {
		return err
	}
	return q.copyTask("copy_peer", d, s, q.spans(src), q.spans(dst))
}

// spans returns the access list of the race check; nil when it is off, so
// that copies allocate nothing.
func (q *queue) spans(s gpu.Span) []gpu.Span {
	if q.d.race == nil {
		return nil
	}
	return []gpu.Span{s}
}

// Record moves the mark of e to this point of the queue.
func (q *queue) Record(e gpu.Event) error {
	ev, err := asEvent(e)
	if err != nil {
		return err
	}
	gen := ev.issued.Add(1)
	if r := q.d.race; r != nil {
		r.record(q.id, ev)
	}
	return q.put(task{kind: taskRecord, ev: ev, gen: gen})
}

// Wait makes later work of this queue wait for the mark of e.
func (q *queue) Wait(e gpu.Event) error {
	ev, err := asEvent(e)
	if err != nil {
		return err
	}
	if r := q.d.race; r != nil {
		r.wait(q.id, ev)
	}
	return q.put(task{kind: taskWait, ev: ev, gen: ev.issued.Load()})
}

// Sync blocks until everything enqueued so far has run, and returns the
// device's failure if there is one.
func (q *queue) Sync(ctx context.Context) error {
	if err := q.Record(q.flush); err != nil {
		return err
	}
	return q.flush.Sync(ctx)
}

// event is a generation counter: Record issues the next number, the queue
// passes it.
type event struct {
	d      *Device
	issued atomic.Uint64
	passed atomic.Uint64
	notify chan struct{} // capacity 1: a token means "look again"
	clock  []uint64      // race check: the recording queue's clock
}

func newEvent(d *Device) *event { return &event{d: d, notify: make(chan struct{}, 1)} }

// NewEvent returns an event that counts as passed until it is recorded.
func (d *Device) NewEvent() (gpu.Event, error) { return newEvent(d), nil }

func asEvent(e gpu.Event) (*event, error) {
	ev, ok := e.(*event)
	if !ok {
		return nil, fmt.Errorf("host: event %T is not of this driver", e)
	}
	return ev, nil
}

func (e *event) poke() {
	select {
	case e.notify <- struct{}{}:
	default:
	}
}

// pass marks generation gen as reached. Queues that record one event in turn
// pass increasing generations; the maximum is kept for the odd case of two.
func (e *event) pass(gen uint64) {
	for {
		old := e.passed.Load()
		if old >= gen || e.passed.CompareAndSwap(old, gen) {
			break
		}
	}
	e.poke()
}

// sync waits for generation gen.
func (e *event) sync(ctx context.Context, gen uint64) error {
	for e.passed.Load() < gen {
		select {
		case <-e.notify:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	e.poke() // another waiter may have slept through the token taken above
	return nil
}

// Sync waits for the newest mark; see gpu.Event.
func (e *event) Sync(ctx context.Context) error {
	if err := e.sync(ctx, e.issued.Load()); err != nil {
		return err
	}
	return e.d.failure()
}

// Done reports whether the newest mark has passed.
func (e *event) Done() bool { return e.passed.Load() >= e.issued.Load() }
