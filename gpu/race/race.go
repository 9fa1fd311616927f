// Package race finds accesses of device memory that nothing puts in order. Drivers feed it
// what they enqueue, with what it reads and writes; it knows nothing of how work runs, so
// what it finds does not depend on schedules.
package race

import (
	"fmt"
	"slices"
	"sync"

	"refrain/gpu"
)

// Check orders accesses by vector clocks over queues. Work is ordered by
// being on one queue, or by a Record and a later Wait; that the host happened to
// wait in between does not count, but for pinned memory: that is the host's, which
// waits for an event before it uses it. An access that conflicts with an unordered
// earlier one is reported when it is enqueued. What the host itself does with pinned
// memory is not seen.
type Check struct {
	mu     sync.Mutex
	names  []string
	clocks [][]uint64 // clocks[q] is queue q's view of all queues
	host   []uint64   // the host's
	memory map[[2]int64][]access
	pinned map[gpu.Pinned]uint32 // numbers given in the order of first use
}

// PinnedSpace is the Dev of spans of pinned memory.
const PinnedSpace int32 = -2

// Mark is what the check keeps of an event: the clock of the queue that recorded it.
type Mark struct{ clock []uint64 }

type access struct {
	span  gpu.Span
	queue int
	clock uint64
	op    string
	write bool
}

// New returns a check that has seen nothing. Any goroutine may use it.
func New() *Check {
	return &Check{memory: map[[2]int64][]access{}, pinned: map[gpu.Pinned]uint32{}}
}

// Queue adds a queue and returns its number.
func (r *Check) Queue(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, name)
	r.clocks = append(r.clocks, nil)
	return len(r.names) - 1
}

// Pinned numbers pinned memory, which may come from another driver. It stays
// known for good, so that no later buffer can be taken for it.
func (r *Check) Pinned(p gpu.Pinned) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, ok := r.pinned[p]
	if !ok {
		id = uint32(len(r.pinned))
		r.pinned[p] = id
	}
	return id
}

func grow(c []uint64, n int) []uint64 {
	for len(c) < n {
		c = append(c, 0)
	}
	return c
}

// Record notes that queue q recorded the event of e.
func (r *Check) Record(q int, e *Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.clock = slices.Clone(r.clocks[q])
}

// Wait notes that what queue q is given from now on waits for the event of e.
func (r *Check) Wait(q int, e *Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := grow(r.clocks[q], len(e.clock))
	for i, v := range e.clock {
		c[i] = max(c[i], v)
	}
	r.clocks[q] = c
}

// Before returns the mark of an event that the host is about to wait for; see Waited.
func (r *Check) Before(e *Mark) Mark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Mark{slices.Clone(e.clock)}
}

// Waited notes that the host has waited for a mark.
func (r *Check) Waited(m Mark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.host = grow(r.host, len(m.clock))
	for i, v := range m.clock {
		r.host[i] = max(r.host[i], v)
	}
}

func overlap(a, b gpu.Span) bool {
	return a.Len > 0 && b.Len > 0 && a.Off < b.Off+b.Len && b.Off < a.Off+a.Len
}

// Access notes that queue q was given op. The error names what conflicts.
func (r *Check) Access(q int, op string, reads, writes []gpu.Span) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := grow(r.clocks[q], len(r.names))
	c[q]++
	r.clocks[q] = c
	for _, s := range reads {
		if err := r.touch(c, access{s, q, c[q], op, false}); err != nil {
			return err
		}
	}
	for _, s := range writes {
		if err := r.touch(c, access{s, q, c[q], op, true}); err != nil {
			return err
		}
	}
	return nil
}

// touch checks a against the history of its allocation and adds it.
func (r *Check) touch(c []uint64, a access) error {
	key := keyOf(a.span)
	past := r.memory[key]
	ordered := func(o *access) bool {
		return o.queue == a.queue || c[o.queue] >= o.clock ||
			a.span.Dev == PinnedSpace && o.queue < len(r.host) && r.host[o.queue] >= o.clock
	}
	for i := range past {
		if o := &past[i]; !ordered(o) && (a.write || o.write) && overlap(a.span, o.span) {
			return r.report(o, &a)
		}
	}
	// An ordered access that a covers can never conflict again: whoever is
	// ordered after a is ordered after it.
	keep := slices.DeleteFunc(past, func(o access) bool {
		return ordered(&o) && (a.write || !o.write) && a.span.Off <= o.span.Off && o.span.Off+o.span.Len <= a.span.Off+a.span.Len
	})
	r.memory[key] = append(keep, a)
	return nil
}

func (r *Check) report(o, a *access) error {
	where := fmt.Sprintf("allocation %d of device %d", a.span.Mem, a.span.Dev)
	if a.span.Dev == PinnedSpace {
		where = fmt.Sprintf("pinned buffer %d", a.span.Mem)
	}
	return fmt.Errorf("race: %s on %s and %s on %s use bytes [%d,%d) and [%d,%d) of %s with no wait between them",
		o.op, r.names[o.queue], a.op, r.names[a.queue], o.span.Off, o.span.Off+o.span.Len,
		a.span.Off, a.span.Off+a.span.Len, where)
}

func keyOf(s gpu.Span) [2]int64 { return [2]int64{int64(s.Dev), int64(s.Mem)} }

// Forget drops the history of a freed allocation.
func (r *Check) Forget(s gpu.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memory, keyOf(s))
}

// History is the number of accesses that are kept of the allocation of s.
func (r *Check) History(s gpu.Span) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.memory[keyOf(s)])
}
