package host

import (
	"fmt"
	"slices"
	"sync"

	"refrain/gpu"
)

// raceCheck orders accesses by vector clocks over queues. Work is ordered by
// being on one queue, or by a Record and a later Wait; nothing else counts, in
// particular not that the host happened to wait in between. An access that
// conflicts with an unordered earlier one is reported when it is enqueued.
// Pinned memory counts like device memory, as far as copies use it; what the
// host does with it is not seen.
type raceCheck struct {
	mu     sync.Mutex
	names  []string
	clocks [][]uint64 // clocks[q] is queue q's view of all queues
	memory map[[2]int64][]access
	pinned map[*pinned]uint32 // numbers given in the order of first use
}

// pinnedSpace is the Dev of spans of pinned memory inside the race check.
const pinnedSpace int32 = -2

type access struct {
	span  gpu.Span
	queue int
	clock uint64
	op    string
	write bool
}

func newRaceCheck() *raceCheck {
	return &raceCheck{memory: map[[2]int64][]access{}, pinned: map[*pinned]uint32{}}
}

func (r *raceCheck) newQueue(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, name)
	r.clocks = append(r.clocks, nil)
	return len(r.names) - 1
}

// idOf numbers pinned memory, which may come from another driver. It stays
// known for good, so that no later buffer can be taken for it.
func (r *raceCheck) idOf(p *pinned) uint32 {
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

func (r *raceCheck) record(q int, e *event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.clock = slices.Clone(r.clocks[q])
}

func (r *raceCheck) wait(q int, e *event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := grow(r.clocks[q], len(e.clock))
	for i, v := range e.clock {
		c[i] = max(c[i], v)
	}
	r.clocks[q] = c
}

func overlap(a, b gpu.Span) bool {
	return a.Len > 0 && b.Len > 0 && a.Off < b.Off+b.Len && b.Off < a.Off+a.Len
}

func (r *raceCheck) access(q int, op string, reads, writes []gpu.Span) error {
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
func (r *raceCheck) touch(c []uint64, a access) error {
	key := keyOf(a.span)
	past := r.memory[key]
	ordered := func(o *access) bool { return o.queue == a.queue || c[o.queue] >= o.clock }
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

func (r *raceCheck) report(o, a *access) error {
	where := fmt.Sprintf("allocation %d of device %d", a.span.Mem, a.span.Dev)
	if a.span.Dev == pinnedSpace {
		where = fmt.Sprintf("pinned buffer %d", a.span.Mem)
	}
	return fmt.Errorf("host: race: %s on %s and %s on %s use bytes [%d,%d) and [%d,%d) of %s with no wait between them",
		o.op, r.names[o.queue], a.op, r.names[a.queue], o.span.Off, o.span.Off+o.span.Len,
		a.span.Off, a.span.Off+a.span.Len, where)
}

func keyOf(s gpu.Span) [2]int64 { return [2]int64{int64(s.Dev), int64(s.Mem)} }

// forget drops the history of a freed allocation.
func (r *raceCheck) forget(s gpu.Span) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.memory, keyOf(s))
}
