package study

import (
	"cmp"
	"slices"
)

// Load is what a run asks of the machine.
type Load struct {
	CoreSeconds float64 // on one thread
	Memory      int64   // bytes, while it goes on
}

// Machine is what runs share.
type Machine struct {
	Cores    int
	Memory   int64 // bytes for all runs together; 0: no bound
	Parallel int   // most runs at a time; 0: as many as there are cores
	// Speedup says how many times as fast a run is on that many threads as on one; nil is
	// Amdahl's law with a serial share of 5 %.
	Speedup func(threads int) float64
}

// Start is one run on the simulated clock, in seconds from the first.
type Start struct {
	Run  int     `json:"run"` // number of its load
	Slot int     `json:"slot"`
	At   float64 `json:"at"`
	End  float64 `json:"end"`
}

// Placement says how runs share a machine.
type Placement struct {
	Slots    int     `json:"slots"`   // runs at a time
	Threads  int     `json:"threads"` // of each
	Starts   []Start `json:"starts"`  // in the order in which they begin
	Makespan float64 `json:"makespan_seconds"`
}

// Place chooses between many small runs and few wide ones: of all numbers of runs at a
// time, the one whose last run ends first, the largest among equal ones. Runs begin
// longest first (Graham 1969: at most 4/3 of the best makespan), each as soon as there is
// a slot and room for its memory; a shorter one that fits passes one that does not. It is
// a pure function: the same loads give the same placement.
func Place(loads []Load, m Machine) Placement {
	most := max(1, m.Cores)
	if m.Parallel > 0 {
		most = min(most, m.Parallel)
	}
	most = min(most, max(1, len(loads)))
	var best Placement
	for slots := most; slots >= 1; slots-- {
		p := simulate(loads, m, slots)
		if best.Slots == 0 || p.Makespan < best.Makespan {
			best = p
		}
	}
	return best
}

func amdahl(threads int) float64 {
	const serial = 0.05
	return 1 / (serial + (1-serial)/float64(threads))
}

// simulate runs the queue on a simulated clock.
func simulate(loads []Load, m Machine, slots int) Placement {
	p := Placement{Slots: slots, Threads: max(1, m.Cores/slots)}
	speedup := m.Speedup
	if speedup == nil {
		speedup = amdahl
	}
	q := newQueue(loads, m.Memory)
	busy := make([]int, slots) // index into p.Starts, or -1
	for i := range busy {
		busy[i] = -1
	}
	for now := 0.0; ; {
		for slot := range busy {
			if busy[slot] >= 0 {
				continue
			}
			run, ok := q.next()
			if !ok {
				break
			}
			busy[slot] = len(p.Starts)
			p.Starts = append(p.Starts, Start{run, slot, now, now + loads[run].CoreSeconds/speedup(p.Threads)})
		}
		// The first to end, the lowest slot among equal ones.
		first := -1
		for slot, s := range busy {
			if s >= 0 && (first < 0 || p.Starts[s].End < p.Starts[busy[first]].End) {
				first = slot
			}
		}
		if first < 0 {
			return p
		}
		ended := p.Starts[busy[first]]
		now = ended.End
		p.Makespan = max(p.Makespan, now)
		q.done(ended.Run)
		busy[first] = -1
	}
}

// queue gives out runs, longest first, as far as memory allows. It is the same for the
// simulated clock and for the machine.
type queue struct {
	loads   []Load
	left    []int // longest first
	memory  int64
	used    int64
	running int
}

func newQueue(loads []Load, memory int64) *queue {
	q := &queue{loads: loads, memory: memory}
	for i := range loads {
		q.left = append(q.left, i)
	}
	slices.SortStableFunc(q.left, func(a, b int) int { return cmp.Compare(loads[b].CoreSeconds, loads[a].CoreSeconds) })
	return q
}

// next returns the longest run that fits beside those that go on. One that fits into no
// machine begins when it would be alone: whether it can is then seen.
func (q *queue) next() (run int, ok bool) {
	for i, r := range q.left {
		if q.memory > 0 && q.running > 0 && q.used+q.loads[r].Memory > q.memory {
			continue
		}
		q.left = slices.Delete(q.left, i, i+1)
		q.used += q.loads[r].Memory
		q.running++
		return r, true
	}
	return 0, false
}

// done gives back what run had.
func (q *queue) done(run int) {
	q.used -= q.loads[run].Memory
	q.running--
}
