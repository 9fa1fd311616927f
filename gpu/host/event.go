package host

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"refrain/gpu"
	"refrain/gpu/race"
)

// event is a mark that moves. Every Record issues the next generation, and the
// queue that reaches the record passes it. Generations pass one by one and not
// as a high-water mark: two queues may record the same event, and the faster
// one must not release those who wait for the other.
//
// Nothing here allocates once the slices have grown to the number of marks and
// waiters that are out at the same time, which is one or two.
type event struct {
	d    *Device
	seen race.Mark // of the race check, under its mutex

	mu      sync.Mutex
	issued  uint64   // newest generation, 0 before the first Record
	open    []uint64 // issued and not yet passed
	waiters []waiter
	spare   []chan struct{} // wake-up channels that nobody uses
}

// waiter is a goroutine that sleeps until gen passes. wake has room for the
// one signal it gets.
type waiter struct {
	gen  uint64
	wake chan struct{}
}

func newEvent(d *Device) *event { return &event{d: d} }

// NewEvent returns an event that counts as passed until it is recorded.
func (d *Device) NewEvent() (gpu.Event, error) { return newEvent(d), nil }

func asEvent(e gpu.Event) (*event, error) {
	ev, ok := e.(*event)
	if !ok {
		return nil, fmt.Errorf("host: event %T is not of this driver", e)
	}
	return ev, nil
}

// issue moves the mark and returns its generation, which must pass some day.
func (e *event) issue() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.issued++
	e.open = append(e.open, e.issued)
	return e.issued
}

// newest is the generation of the mark that stands now.
func (e *event) newest() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.issued
}

// pass marks generation gen as reached and wakes those who wait for it.
func (e *event) pass(gen uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.open, gen); i >= 0 {
		e.open = slices.Delete(e.open, i, i+1)
	}
	e.waiters = slices.DeleteFunc(e.waiters, func(w waiter) bool {
		if w.gen != gen {
			return false
		}
		w.wake <- struct{}{}
		return true
	})
}

// hasPassed reports whether generation gen was reached.
func (e *event) hasPassed(gen uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !slices.Contains(e.open, gen)
}

// await blocks until generation gen has passed, or fails with the cause of ctx.
func (e *event) await(ctx context.Context, gen uint64) (err error) {
	e.mu.Lock()
	if !slices.Contains(e.open, gen) {
		e.mu.Unlock()
		return nil
	}
	var wake chan struct{}
	if n := len(e.spare); n > 0 {
		wake, e.spare = e.spare[n-1], e.spare[:n-1]
	} else {
		wake = make(chan struct{}, 1)
	}
	e.waiters = append(e.waiters, waiter{gen, wake})
	e.mu.Unlock()
	select {
	case <-wake:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		i := slices.IndexFunc(e.waiters, func(w waiter) bool { return w.wake == wake })
		if i >= 0 {
			e.waiters = slices.Delete(e.waiters, i, i+1)
		} else {
			<-wake // pass came in between; its signal must not reach the next user
		}
	}
	e.spare = append(e.spare, wake)
	return err
}

// Sync waits for the newest mark; see gpu.Event. It returns the failure of the
// device that made the event, if there is one.
func (e *event) Sync(ctx context.Context) error {
	r, seen := e.d.race, race.Mark{}
	if r != nil {
		seen = r.Before(&e.seen)
	}
	if err := e.await(ctx, e.newest()); err != nil {
		return err
	}
	if r != nil {
		r.Waited(seen)
	}
	return e.d.failure()
}

// Done reports whether the newest mark has passed.
func (e *event) Done() bool { return e.hasPassed(e.newest()) }
