package host

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"refrain/gpu"
	"refrain/gpu/race"
)

// queueDepth is how many enqueued tasks a queue holds before an enqueue call
// waits: a whole training step of a model of a hundred layers, so that the host
// can run one step ahead. Waiting does no harm, since a queue never waits for
// what is not enqueued yet; a deeper one costs memory that the collector reads.
const queueDepth = 1 << 12

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
	name     string // of a copy
	dst, src []byte
	ev       *event
	gen      uint64
}

// queue is one in-order stream: a goroutine that runs tasks.
type queue struct {
	d     *Device
	label string
	id    int // of the race check
	done  chan struct{}
	flush *event // for Sync
	idle  idleClock

	mu     sync.Mutex // held over a send, so that Close cannot come between
	closed bool
	tasks  chan task
}

// NewQueue starts a queue. It ends with its Close or with the device.
func (d *Device) NewQueue(label string) (gpu.Queue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, d.errClosed()
	}
	q := &queue{d: d, label: label, tasks: make(chan task, queueDepth), done: make(chan struct{}), flush: newEvent(d)}
	if d.race != nil {
		q.id = d.race.Queue(fmt.Sprintf("device %d queue %s", d.ordinal, label))
	}
	d.queues = append(d.queues, q)
	go q.run()
	return q, nil
}

// run is the queue's goroutine, from NewQueue to Close, its own or the device's. On a dead
// device it runs nothing more, but marks still pass: whoever waits for them,
// on this device or on another, goes on and learns of the failure by itself.
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
			if t.ev.hasPassed(t.gen) {
				continue
			}
			q.idle.begin()
			// A mark was recorded before anybody can wait for it, so it passes,
			// and this wait needs no way out.
			_ = t.ev.await(context.Background(), t.gen)
			q.idle.end()
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
	q.idle.begin()
	t, ok = <-q.tasks
	q.idle.end()
	return t, ok
}

// Idle returns the time without work; see gpu.Queue.
func (q *queue) Idle() time.Duration { return q.idle.read() }

// execute runs one kernel or copy; a panic in it kills the device, not the
// process, and names the kernel.
func (q *queue) execute(t *task) {
	defer func() {
		if v := recover(); v != nil {
			q.d.fail(newFailure(q, t, v))
		}
	}()
	if t.kind == taskCopy {
		copy(t.dst, t.src)
		return
	}
	// Kernels of one device share its pool and its scratch.
	q.d.compute.Lock()
	defer q.d.compute.Unlock()
	t.op.run()
}

// put enqueues t; it blocks only while queueDepth tasks are waiting.
func (q *queue) put(t task) error {
	if err := q.d.failure(); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.errClosed()
	}
	q.tasks <- t
	return nil
}

// record enqueues the next mark of ev, also on a dead device.
func (q *queue) record(ev *event) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return q.errClosed()
	}
	q.tasks <- task{kind: taskRecord, ev: ev, gen: ev.issue()}
	return nil
}

// close lets the goroutine end after what is enqueued.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.tasks)
	}
}

// Close ends the queue; see gpu.Queue.
func (q *queue) Close() error {
	q.close()
	<-q.done
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	q.d.queues = slices.DeleteFunc(q.d.queues, func(o *queue) bool { return o == q })
	return nil
}

func (q *queue) errClosed() error {
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	if q.d.closed {
		return q.d.errClosed()
	}
	return fmt.Errorf("host: queue %s of device %d is closed", q.label, q.d.ordinal)
}

// Do enqueues a bound op.
func (q *queue) Do(b gpu.Bound) error {
	op, ok := b.(*bound)
	if !ok || op.d != q.d {
		return fmt.Errorf("host: queue %s: op was bound to another device", q.label)
	}
	if err := q.check(op.name, op.reads, op.writes); err != nil {
		return err
	}
	return q.put(task{kind: taskDo, op: op})
}

func (q *queue) copyTask(name string, dst, src []byte, reads, writes []gpu.Span) error {
	if len(dst) != len(src) {
		return fmt.Errorf("host: queue %s: %s of %d bytes to %d", q.label, name, len(src), len(dst))
	}
	if err := q.check(name, reads, writes); err != nil {
		return err
	}
	return q.put(task{kind: taskCopy, name: name, dst: dst, src: src})
}

// check hands an access to the race check, if there is one. A race kills the
// device: whatever runs after it works on undefined data.
func (q *queue) check(name string, reads, writes []gpu.Span) error {
	if q.d.race == nil || q.d.failure() != nil {
		return nil
	}
	err := q.d.race.Access(q.id, name, reads, writes)
	if err != nil {
		q.d.fail(err)
	}
	return err
}

// pinnedAt resolves n bytes of p, and names them for the race check.
func (q *queue) pinnedAt(p gpu.Pinned, off, n int64) ([]byte, gpu.Span, error) {
	m, ok := p.(*pinned)
	if !ok {
		return nil, gpu.Span{}, fmt.Errorf("host: queue %s: pinned memory %T is not of this driver", q.label, p)
	}
	b := m.Bytes()
	if off < 0 || off > int64(len(b))-n {
		return nil, gpu.Span{}, fmt.Errorf("host: queue %s: bytes [%d,%d) of a pinned buffer of %d", q.label, off, off+n, len(b))
	}
	at := gpu.Span{Dev: race.PinnedSpace, Off: off, Len: n}
	if q.d.race != nil {
		at.Mem = q.d.race.Pinned(m)
	}
	return b[off : off+n : off+n], at, nil
}

// Upload enqueues a copy of dst.Len bytes from pinned memory.
func (q *queue) Upload(dst gpu.Span, src gpu.Pinned, srcOff int64) error {
	d, err := q.d.bytes(dst)
	if err != nil {
		return err
	}
	s, from, err := q.pinnedAt(src, srcOff, dst.Len)
	if err != nil {
		return err
	}
	return q.copyTask("upload", d, s, q.spans(from), q.spans(dst))
}

// Download enqueues a copy of src.Len bytes to pinned memory.
func (q *queue) Download(dst gpu.Pinned, dstOff int64, src gpu.Span) error {
	s, err := q.d.bytes(src)
	if err != nil {
		return err
	}
	d, to, err := q.pinnedAt(dst, dstOff, src.Len)
	if err != nil {
		return err
	}
	return q.copyTask("download", d, s, q.spans(src), q.spans(to))
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
	if r := q.d.race; r != nil {
		r.Record(q.id, &ev.seen)
	}
	if err := q.record(ev); err != nil {
		return err
	}
	return q.d.failure()
}

// Wait makes later work of this queue wait for the mark of e.
func (q *queue) Wait(e gpu.Event) error {
	ev, err := asEvent(e)
	if err != nil {
		return err
	}
	if r := q.d.race; r != nil {
		r.Wait(q.id, &ev.seen)
	}
	return q.put(task{kind: taskWait, ev: ev, gen: ev.newest()})
}

// Sync blocks until everything enqueued so far has run or, on a dead device,
// has been passed over, and returns the device's failure if there is one.
func (q *queue) Sync(ctx context.Context) error {
	if err := q.record(q.flush); err != nil {
		return err
	}
	return q.flush.Sync(ctx)
}
