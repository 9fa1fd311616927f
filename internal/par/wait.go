package par

import (
	"runtime"
	"runtime/debug"
	"time"
)

// Waiting works in three steps: poll with PAUSE, poll with Gosched, park. The
// measured reasons for the limits: waking a parked goroutine costs tens of
// microseconds, so workers poll over the gaps between the regions of a step; an
// owner that yields at once lets the scheduler run the workers one after another
// on its own processor, so it polls about 10 microseconds first.
const (
	workerPoll   = 200 * time.Microsecond // then the worker parks
	workerYield  = 20 * time.Microsecond  // how often a polling worker lets others run
	ownerPoll    = 10 * time.Microsecond  // then the owner yields between polls
	ownerYields  = 1000                   // then the owner parks
	pausesAPoll  = 8
	crowdedTries = 2 // polls before parking when threads outnumber processors
)

// limits holds the durations above as numbers of polls on this machine.
type limits struct{ workerPolls, workerYieldEvery, ownerPolls int }

// measureLimits times PAUSE, which takes 10 to 200 ns depending on the
// processor. Counting polls afterwards is cheaper than reading the clock, and
// polling ends also where the clock stands still (testing/synctest).
func measureLimits() limits {
	const polls = 32
	start := time.Now()
	for range polls {
		pause(pausesAPoll)
	}
	one := time.Since(start) / polls
	one = min(max(one, 20*time.Nanosecond), 2*time.Microsecond)
	return limits{
		workerPolls:      int(workerPoll / one),
		workerYieldEvery: max(1, int(workerYield/one)),
		ownerPolls:       int(ownerPoll / one),
	}
}

// Backoff spends a little time between two looks at a word that another worker
// will write. polls is how often the caller has looked: about the first 10
// microseconds poll, after that other goroutines and other threads of the system
// get their turn, which matters when two workers share one processor.
func Backoff(polls int) {
	if polls < 100 {
		pause(2)
		return
	}
	runtime.Gosched()
	osYield()
}

// worker is the life of worker w. seen is the last epoch it has served.
func (p *Pool) worker(w int, seen uint32, started func()) {
	s := &p.slots[w]
	s.goroutine.Store(p.id.self())
	started()
	clean := false
	defer func() {
		s.goroutine.Store(0)
		if !clean {
			// fn ended this goroutine with runtime.Goexit, which cannot be
			// stopped: a fresh goroutine takes its place.
			served := p.epoch.Load() // before finish, which lets the next epoch begin
			p.finish()
			go p.worker(w, served, func() {})
			return
		}
		p.exited.Done()
	}()
	for {
		seen = p.await(s, seen)
		if p.closing.Load() {
			clean = true
			return
		}
		p.share(w)
		p.finish()
	}
}

// share runs worker w's part of the region and records a panic in it.
func (p *Pool) share(w int) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		if v == nil {
			v = "runtime.Goexit called in the body of a region"
		}
		p.failure.CompareAndSwap(nil, &Panic{Worker: w, Value: v, Stack: debug.Stack()})
	}()
	p.fn(w)
	returned = true
}

// finish counts a worker out and wakes the owner when it was the last.
func (p *Pool) finish() {
	if p.left.Add(-1) == 0 && p.waiting.Load() && p.waiting.CompareAndSwap(true, false) {
		p.done <- struct{}{}
	}
}

// await returns the epoch that follows seen. Epochs cannot be missed: the owner
// starts no region before every worker has finished the one before.
func (p *Pool) await(s *slot, seen uint32) uint32 {
	polls := p.limits.workerPolls
	for i := 1; i <= polls; i++ {
		if e := p.epoch.Load(); e != seen {
			return e
		}
		if i == crowdedTries && runtime.GOMAXPROCS(0) < p.threads {
			break
		}
		pause(pausesAPoll)
		if i%p.limits.workerYieldEvery == 0 {
			runtime.Gosched()
		}
	}
	// The owner raises the epoch before it looks at parked, so one of the two
	// sees the other. Whoever clears parked decides: if it is the owner, its
	// token is on the way and must be taken. The token may be late, sent by an
	// owner that was held up after it raised the epoch seen here, so it proves
	// nothing.
	for {
		s.parked.Store(true)
		if e := p.epoch.Load(); e != seen && s.parked.CompareAndSwap(true, false) {
			return e
		}
		<-s.wake
		if e := p.epoch.Load(); e != seen {
			return e
		}
	}
}

// wait returns when all workers have finished the region.
func (p *Pool) wait() {
	polls, yields := p.limits.ownerPolls, ownerYields
	if p.crowded {
		polls, yields = crowdedTries, crowdedTries
	}
	for range polls {
		if p.left.Load() == 0 {
			return
		}
		pause(pausesAPoll / 2)
	}
	for range yields {
		if p.left.Load() == 0 {
			return
		}
		runtime.Gosched()
		osYield()
	}
	// As in await: a token may come from a worker that was held up after it had
	// finished an earlier region.
	for p.left.Load() != 0 {
		p.waiting.Store(true)
		if p.left.Load() == 0 && p.waiting.CompareAndSwap(true, false) {
			return
		}
		<-p.done
	}
}
