package par

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Pool owns threads-1 worker goroutines; the calling goroutine is worker 0.
// All methods may be called from several goroutines: regions run one after
// another, each with all workers.
//
// The body of a region must not start another region on the same Pool. Doing so
// panics in every case, also when it would happen to work.
type Pool struct {
	threads int
	slots   []slot // slots[0] is unused: worker 0 is the caller
	exited  sync.WaitGroup

	mu    sync.Mutex     // held for the length of a region
	owner atomic.Uintptr // goroutine that runs the current region, 0 when none

	// Written by the owner before a region is published, read by workers after.
	fn       func(worker int)
	forFn    func(worker, lo, hi int)
	forN     int
	forGrain int
	forBody  func(worker int) // p.forWorker, bound once so that For allocates nothing
	closed   bool             // under mu
	crowded  bool             // fewer processors than threads, under mu
	regions  uint32           // under mu

	id      identity
	limits  limits
	closing atomic.Bool
	failure atomic.Pointer[Panic]
	waiting atomic.Bool   // the owner is parked on done
	done    chan struct{} // capacity 1: the wake-up token for the owner

	_     [64]byte // each word below is polled or contended: one cache line each
	epoch atomic.Uint32
	_     [60]byte
	left  atomic.Int32
	_     [60]byte
	next  atomic.Int64
	_     [56]byte
}

// slot is the private state of one worker.
type slot struct {
	parked    atomic.Bool
	wake      chan struct{} // capacity 1: at most one token, sent by who clears parked
	goroutine atomic.Uintptr
	_         [40]byte
}

// Panic is what Run and For panic with when a worker other than the caller
// panicked. The panic of the caller's own share is passed on unchanged.
type Panic struct {
	Worker int    // index of the worker
	Value  any    // what it panicked with
	Stack  []byte // its stack at that moment
}

// Error describes the panic and includes the stack of the worker.
func (e *Panic) Error() string {
	return fmt.Sprintf("par: worker %d panicked: %v\n\nstack of worker %d:\n%s", e.Worker, e.Value, e.Worker, e.Stack)
}

// Unwrap returns the value when it was an error, so that errors.As sees through.
func (e *Panic) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// New starts a Pool of threads workers, the caller included. It panics when
// threads is below 1. The owner must call Close.
func New(threads int) *Pool {
	if threads < 1 {
		panic(fmt.Sprintf("par: New(%d): a pool needs at least one thread", threads))
	}
	return start(threads, measureLimits())
}

func start(threads int, l limits) *Pool {
	p := &Pool{threads: threads, slots: make([]slot, threads), done: make(chan struct{}, 1), limits: l}
	p.forBody = p.forWorker
	p.crowded = runtime.GOMAXPROCS(0) < threads
	var started sync.WaitGroup
	for w := 1; w < threads; w++ {
		p.slots[w].wake = make(chan struct{}, 1)
		p.exited.Add(1)
		started.Add(1)
		go p.worker(w, 0, started.Done)
	}
	started.Wait()
	return p
}

// Threads returns the number of workers, the caller included.
func (p *Pool) Threads() int { return p.threads }

// Run calls fn(worker) once for every worker in [0, Threads()) and returns when
// all calls have returned. The calls overlap where there are processors for
// them, but need not: a body that waits for another worker must yield
// between polls (Backoff) and must give up when Failed reports true. fn is not kept;
// a func value built beforehand makes the call free of allocations.
func (p *Pool) Run(fn func(worker int)) {
	p.enter()
	defer p.leave()
	if p.threads == 1 {
		fn(0)
		return
	}
	p.region(fn)
}

// For splits [0, n) into chunks [lo, hi) with lo a multiple of grain and
// hi = min(lo+grain, n), and calls fn once for each chunk on whichever worker is
// free. It returns when all calls have returned. The borders depend on n and
// grain only. It panics when n is negative or grain is below 1. fn is not kept;
// a func value built beforehand makes the call free of allocations.
func (p *Pool) For(n, grain int, fn func(worker, lo, hi int)) {
	if n < 0 || grain < 1 {
		panic(fmt.Sprintf("par: For(n=%d, grain=%d): n must be >= 0 and grain >= 1", n, grain))
	}
	p.enter()
	defer p.leave()
	if p.threads == 1 || n <= grain {
		for lo := 0; lo < n; lo += grain {
			fn(0, lo, min(lo+grain, n))
		}
		return
	}
	p.forN, p.forGrain, p.forFn = n, grain, fn
	p.next.Store(0)
	p.region(p.forBody)
}

func (p *Pool) forWorker(worker int) {
	n, grain, fn := p.forN, p.forGrain, p.forFn
	for !p.Failed() {
		lo := int(p.next.Add(int64(grain))) - grain
		if lo >= n {
			return
		}
		fn(worker, lo, min(lo+grain, n))
	}
}

// Failed reports whether a worker of the current region has panicked. Bodies
// that wait for other workers must poll it, because the one they wait for may be
// gone.
func (p *Pool) Failed() bool { return p.failure.Load() != nil }

// Close ends the workers and returns when they are gone. It waits for a region
// that is under way. A second Close does nothing; Run and For panic afterwards.
func (p *Pool) Close() {
	if p.nested(p.id.self()) {
		panic("par: Close called from the body of a parallel region")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.closing.Store(true)
	p.publish()
	p.exited.Wait()
}

// enter takes the pool for one region, or panics if this goroutine has it.
func (p *Pool) enter() {
	g := p.id.self()
	if !p.mu.TryLock() {
		if p.nested(g) {
			panic("par: Run or For called from the body of a region of the same pool; split the work before the outer call")
		}
		p.mu.Lock()
	}
	if p.closed {
		p.mu.Unlock()
		panic("par: Run or For called after Close")
	}
	p.owner.Store(g)
	// GOMAXPROCS may change while the program runs; asking takes a lock.
	if p.regions++; p.regions%16 == 0 {
		p.crowded = runtime.GOMAXPROCS(0) < p.threads
	}
}

func (p *Pool) leave() {
	p.fn, p.forFn = nil, nil
	p.owner.Store(0)
	p.mu.Unlock()
}

// nested reports whether goroutine g is a worker of this pool or runs its
// current region.
func (p *Pool) nested(g uintptr) bool {
	if p.owner.Load() == g {
		return true
	}
	for w := 1; w < p.threads; w++ {
		if p.slots[w].goroutine.Load() == g {
			return true
		}
	}
	return false
}

// region runs fn on all workers. It leaves only when every worker is done with
// fn, whether or not a share panicked.
func (p *Pool) region(fn func(worker int)) {
	p.fn = fn
	p.left.Store(int32(p.threads - 1))
	p.publish()
	completed := false
	defer func() {
		if !completed {
			p.failure.CompareAndSwap(nil, &Panic{}) // releases bodies that wait for worker 0
		}
		p.wait()
		if f := p.failure.Swap(nil); f != nil && completed {
			panic(f)
		}
	}()
	fn(0)
	completed = true
}

// publish starts a new epoch and wakes the workers that have parked.
func (p *Pool) publish() {
	p.epoch.Add(1)
	for w := 1; w < p.threads; w++ {
		s := &p.slots[w]
		if s.parked.Load() && s.parked.CompareAndSwap(true, false) {
			s.wake <- struct{}{}
		}
	}
}
