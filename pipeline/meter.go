package pipeline

import (
	"sync"
	"sync/atomic"
	"time"
)

// wait is a reason for which a stage does not work.
type wait int

const (
	starved wait = iota // no input
	blocked             // no room in the output, or no free item in a pool
	numWaits
)

// meter accounts for the time of one stage. Waiting alone is recorded; busy
// time is what remains. A running wait counts up to now, so a stage that
// hangs in one Send does not look busy.
//
// Times are nanoseconds since the start of the run. The clock of a stage with
// an input starts at its first item: what it waited for that is Fill, neither
// starved nor busy.
type meter struct {
	got atomic.Bool // the first item came, or the stage has no input

	mu      sync.Mutex
	running bool
	start   time.Time
	first   int64
	end_    int64
	workers int64
	done    [numWaits]int64 // finished waits since first
	active  [numWaits]int64 // waits going on
	since   [numWaits]int64 // sum of their starts
}

func (m *meter) now() int64 { return int64(time.Since(m.start)) }

// run starts the clock. A stage without input is past its first item.
func (m *meter) run(start time.Time, hasInput bool) {
	m.mu.Lock()
	m.running, m.start, m.workers = true, start, 1
	m.mu.Unlock()
	m.got.Store(!hasInput)
}

// finish stops the clock.
func (m *meter) finish() {
	m.mu.Lock()
	m.end_, m.running = m.now(), false
	m.mu.Unlock()
}

// setWorkers says that the waits of n goroutines are added up.
func (m *meter) setWorkers(n int) {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.workers = int64(n)
	m.mu.Unlock()
}

// begin starts a wait of the calling goroutine; end takes what it returned.
func (m *meter) begin(w wait) int64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	now := m.now()
	m.active[w]++
	m.since[w] += now
	m.mu.Unlock()
	return now
}

func (m *meter) end(w wait, since int64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	since = max(since, m.first) // gotItem moved waits that began before
	m.active[w]--
	m.since[w] -= since
	m.done[w] += m.now() - since
	m.mu.Unlock()
}

// gotItem starts the stage's own clock at its first item.
func (m *meter) gotItem() {
	if m.got.Load() {
		return
	}
	m.mu.Lock()
	if !m.got.Load() {
		m.first = m.now()
		for w := range numWaits {
			m.done[w] = 0
			m.since[w] = m.active[w] * m.first
		}
		m.got.Store(true)
	}
	m.mu.Unlock()
}

// read fills the times of s.
func (m *meter) read(s *StageStats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.start.IsZero() {
		return
	}
	now := m.end_
	if m.running {
		now = m.now()
	}
	s.Done = !m.running
	s.Workers = int(m.workers)
	if !m.got.Load() {
		s.Fill = time.Duration(now)
		return
	}
	s.Fill = time.Duration(m.first)
	s.Wall = time.Duration(now - m.first)
	sum := func(w wait) time.Duration {
		return time.Duration((m.done[w] + m.active[w]*now - m.since[w]) / m.workers)
	}
	s.Starved, s.Blocked = sum(starved), sum(blocked)
	// Goroutines that a stage starts by itself can wait at the same time; then
	// the sum of waits may exceed the wall clock.
	s.Busy = max(s.Wall-s.Starved-s.Blocked, 0)
}
