//go:build cuda && cudaheaders

package cuda

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"refrain/gpu"
	"refrain/gpu/race"
)

// marks is how the host learns that a point of a queue was passed without any call of
// the driver, from any goroutine: behind every record the GPU writes the queue's count
// of records to a word of page-locked memory. A queue has a cache line of its own.
type marks struct {
	d   *Device
	mem []byte
	at  cu.DevicePtr

	mu    sync.Mutex
	lines [maxQueues]line
}

// line is the host's side of a queue's word. It outlives the queue, so that a mark of
// a queue that is closed stays passed.
type line struct {
	label string // "" when free
	last  string // name of what was enqueued last
	count uint32 // records enqueued
}

const (
	maxQueues = 64 // that are open at a time
	lineBytes = 64
)

func newMarks(d *Device) (*marks, error) {
	mem, at, err := hostMemory(d.ctx, maxQueues*lineBytes)
	if err != nil {
		return nil, err
	}
	return &marks{d: d, mem: mem, at: at}, nil
}

// close frees the words, unless a GPU that failed might still write to them.
func (m *marks) close(dead bool) error {
	if dead {
		return nil
	}
	return releaseHost(m.d.ctx, m.mem)
}

// take gives a queue its line.
func (m *marks) take(label string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.lines {
		if m.lines[i].label == "" {
			m.lines[i].label = label
			return i, nil
		}
	}
	return 0, fmt.Errorf("cuda: device %d has %d queues, which is the most", m.d.ordinal, maxQueues)
}

func (m *marks) giveBack(i int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines[i].label = ""
}

// next counts a record of line i.
func (m *marks) next(i int) uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines[i].count++
	return m.lines[i].count
}

// enqueued notes what a queue was given last, for the message about a hang.
func (m *marks) enqueued(i int, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines[i].last = name
}

// word is what the GPU wrote last for line i.
func (m *marks) word(i int) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&m.mem[i*lineBytes])))
}

// mark is a point of a queue: its line plus one above its count; 0 is none, which
// counts as passed.
type mark uint64

func makeMark(i int, count uint32) mark { return mark(i+1)<<32 | mark(count) }

func (m *marks) passed(k mark) bool {
	return k == 0 || int32(m.word(int(k>>32)-1)-uint32(k)) >= 0
}

// await blocks until k, the mark beside e, is passed, the device has failed or ctx is
// done. It polls: a wait takes milliseconds, and a thread that sleeps in the driver is a
// thread less. The driver is asked for e besides, now and every so often, since that is
// how a failure of the device shows.
func (m *marks) await(ctx context.Context, k mark, e cu.Event) error {
	for range 20 {
		if m.passed(k) {
			return nil
		}
		runtime.Gosched()
	}
	const askEvery = 20 * time.Millisecond
	m.d.ask(e)
	pause, asked := 20*time.Microsecond, time.Now()
	seen, progress := m.sum(), time.Now()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for !m.passed(k) {
		if err := m.d.failure(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		pause = min(pause*2, time.Millisecond)
		timer.Reset(pause)
		if now := time.Now(); now.Sub(asked) > askEvery {
			asked = now
			if s := m.sum(); s != seen {
				seen, progress = s, now
			}
			m.d.ask(e)
			if quiet := now.Sub(progress); quiet > m.d.driver.deadline {
				m.d.fail(m.hang(quiet))
			}
		}
	}
	return nil
}

// sum changes whenever a queue of the device passes a mark.
func (m *marks) sum() (s uint64) {
	for i := range maxQueues {
		s += uint64(m.word(i))
	}
	return s
}

// ask has the driver look at e; a failure of the device that no call has met yet is
// noted.
func (d *Device) ask(e cu.Event) {
	err := d.ctx.here(func() error {
		if err := e.Query(); err != nil && code(err) != codeNotReady {
			return d.check("", "waiting", err)
		}
		return nil
	})
	if err != nil {
		d.fail(err)
	}
}

// Hang is the failure of a device on which nothing happened for too long.
type Hang struct {
	Device int
	Quiet  time.Duration
	Queues []string // those that have not passed their last mark, with what they were given last
}

func (h *Hang) Error() string {
	return fmt.Sprintf("cuda: device %d has passed no mark for %v: %s", h.Device, h.Quiet.Round(time.Millisecond), strings.Join(h.Queues, "; "))
}

// Is makes every Hang a gpu.ErrDevice and a gpu.ErrHang.
func (h *Hang) Is(target error) bool { return target == gpu.ErrDevice || target == gpu.ErrHang }

func (m *marks) hang(quiet time.Duration) *Hang {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &Hang{Device: m.d.ordinal, Quiet: quiet}
	for i := range m.lines {
		l := &m.lines[i]
		if w := m.word(i); l.label != "" && w != l.count {
			h.Queues = append(h.Queues, fmt.Sprintf("queue %s passed mark %d of %d, and was given %s last", l.label, w, l.count, l.last))
		}
	}
	return h
}

// event is a driver's event, for waits between queues, and the mark beside it, for the
// host.
type event struct {
	d    *Device
	e    cu.Event
	mark atomic.Uint64
	seen race.Mark // of the race check
}

// NewEvent returns an event that counts as passed until it is recorded. Queues of this
// device record it; any queue may wait for it.
func (d *Device) NewEvent() (gpu.Event, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	e, err := cu.MakeEvent(cu.DisableTiming)
	if err != nil {
		return nil, d.check("", "making an event", err)
	}
	return &event{d: d, e: e}, nil
}

func asEvent(e gpu.Event) (*event, error) {
	ev, ok := e.(*event)
	if !ok {
		return nil, fmt.Errorf("cuda: event %T is not of this driver", e)
	}
	return ev, nil
}

// Sync waits for the newest mark; see gpu.Event.
func (e *event) Sync(ctx context.Context) error {
	r, seen := e.d.driver.race, race.Mark{}
	if r != nil {
		seen = r.Before(&e.seen)
	}
	if err := e.d.marks.await(ctx, mark(e.mark.Load()), e.e); err != nil {
		return err
	}
	if r != nil {
		r.Waited(seen)
	}
	return e.d.failure()
}

// Done reports whether the newest mark is passed, or never will be.
func (e *event) Done() bool {
	return e.d.marks.passed(mark(e.mark.Load())) || e.d.failure() != nil
}
