package par

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestParkingRaces shortens all polling, so that workers and owner park, or are
// about to, in most regions: the hand-over of wake-up tokens is the delicate part.
func TestParkingRaces(t *testing.T) {
	regions := 4000
	if testing.Short() {
		regions = 1000
	}
	for _, polls := range []int{0, 1, 3} {
		p := start(3, limits{workerPolls: polls, workerYieldEvery: 1 << 30, ownerPolls: polls})
		var calls [3]int
		for r := range regions {
			p.Run(func(w int) {
				calls[w]++
				if w == 0 {
					p.crowded = r%2 == 0 // the owner parks early
				}
				if (r+w)%5 == 0 {
					runtime.Gosched()
				}
			})
			if calls != [3]int{r + 1, r + 1, r + 1} {
				t.Fatalf("polls %d: calls %v after %d regions", polls, calls, r+1)
			}
			if r%7 == 0 {
				pause(50)
			}
		}
		p.Close()
	}
}

// TestLateTokenForWorker: an owner held up between raising the epoch and looking
// at parked wakes a worker that has served that epoch and parked again.
func TestLateTokenForWorker(t *testing.T) {
	p := New(2)
	defer p.Close()
	p.Run(func(int) {})
	s := &p.slots[1]
	for range 20 {
		for !s.parked.CompareAndSwap(true, false) {
			runtime.Gosched()
		}
		s.wake <- struct{}{} // what the late owner does
		for !s.parked.Load() {
			if f := p.failure.Load(); f != nil {
				t.Fatalf("the worker ran without a region: %v", f.Value)
			}
			runtime.Gosched()
		}
		calls := [2]int{}
		p.Run(func(w int) { calls[w]++ })
		if calls != [2]int{1, 1} {
			t.Fatalf("calls %v", calls)
		}
	}
}

// TestLateTokenForOwner: a worker held up after it finished a region wakes the
// owner of the next one, which has to go on waiting.
func TestLateTokenForOwner(t *testing.T) {
	p := New(2)
	defer p.Close()
	for range 20 {
		var finished atomic.Bool
		p.Run(func(w int) {
			if w == 0 {
				return
			}
			for range 3 {
				for !p.waiting.CompareAndSwap(true, false) {
					runtime.Gosched()
				}
				p.done <- struct{}{} // what the late worker does
			}
			for !p.waiting.Load() {
				runtime.Gosched()
			}
			finished.Store(true)
		})
		if !finished.Load() {
			t.Fatal("Run returned before the region had ended")
		}
	}
}
