package par_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"refrain/internal/par"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newPool(t testing.TB, threads int) *par.Pool {
	p := par.New(threads)
	t.Cleanup(p.Close)
	return p
}

func TestRunCallsEveryWorkerOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 8} {
		p := newPool(t, threads)
		if p.Threads() != threads {
			t.Fatalf("Threads() = %d, want %d", p.Threads(), threads)
		}
		calls := make([]int, threads)
		const regions = 300
		for range regions {
			p.Run(func(w int) { calls[w]++ })
		}
		for w, n := range calls {
			if n != regions {
				t.Errorf("%d threads: worker %d ran %d times in %d regions", threads, w, n, regions)
			}
		}
	}
}

// TestForChunks checks that the chunks are the same list for every number of
// threads and that each is handed out once.
func TestForChunks(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 64, 1000} {
		for _, grain := range []int{1, 3, 8, 2000} {
			var want []string
			for lo := 0; lo < n; lo += grain {
				want = append(want, fmt.Sprintf("%06d:%06d", lo, min(lo+grain, n)))
			}
			for _, threads := range []int{1, 2, 3} {
				p := par.New(threads)
				var mu sync.Mutex
				var got []string
				p.For(n, grain, func(w, lo, hi int) {
					mu.Lock()
					defer mu.Unlock()
					if w < 0 || w >= threads {
						t.Errorf("worker %d of %d", w, threads)
					}
					got = append(got, fmt.Sprintf("%06d:%06d", lo, hi))
				})
				p.Close()
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("n=%d grain=%d threads=%d: chunks %v, want %v", n, grain, threads, got, want)
				}
			}
		}
	}
}

// TestFewProcessors runs pools larger than GOMAXPROCS, where a polling worker
// would keep the others from the only processor.
func TestFewProcessors(t *testing.T) {
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	p := newPool(t, 4)
	start := time.Now()
	var sum atomic.Int64
	for range 200 {
		p.For(100, 1, func(_, lo, _ int) { sum.Add(int64(lo)) })
	}
	if got := sum.Load(); got != 200*4950 {
		t.Fatalf("sum = %d, want %d", got, 200*4950)
	}
	// Without yielding, each region costs a time slice of 10 ms and more.
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("200 regions on one processor took %v", d)
	}
	runtime.GOMAXPROCS(old)
	for range 200 {
		p.Run(func(int) {})
	}
}

func TestConcurrentCallers(t *testing.T) {
	p := newPool(t, 3)
	var inside, total atomic.Int32
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 100 {
				p.Run(func(w int) {
					if w == 0 {
						if inside.Add(1) != 1 {
							t.Error("two regions at once")
						}
						runtime.Gosched()
						inside.Add(-1)
					}
					total.Add(1)
				})
			}
		})
	}
	callers.Wait()
	if got := total.Load(); got != 4*100*3 {
		t.Fatalf("%d calls, want %d", got, 4*100*3)
	}
}

func recovered(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

func TestNestedCallsPanic(t *testing.T) {
	for _, threads := range []int{1, 2, 3} {
		p := newPool(t, threads)
		for w := range threads {
			for name, call := range map[string]func(){
				"Run":   func() { p.Run(func(int) {}) },
				"For":   func() { p.For(1, 1, func(int, int, int) {}) },
				"Close": p.Close,
			} {
				v := recovered(func() {
					p.Run(func(worker int) {
						if worker == w {
							call()
						}
					})
				})
				if !strings.Contains(fmt.Sprint(v), "from the body of a") {
					t.Errorf("threads %d: nested %s on worker %d: got %v", threads, name, w, v)
				}
			}
		}
		ran := 0
		p.For(1, 1, func(int, int, int) { ran++ })
		if ran != 1 {
			t.Errorf("threads %d: pool unusable after a nested call", threads)
		}
	}
}

var errBody = errors.New("body failed")

func failingBody(worker, bad int) {
	if worker == bad {
		panic(errBody)
	}
}

func TestPanicReachesCaller(t *testing.T) {
	p := newPool(t, 3)
	for bad := range 3 {
		var finished atomic.Int32
		v := recovered(func() {
			p.Run(func(w int) {
				failingBody(w, bad)
				finished.Add(1)
			})
		})
		if got := finished.Load(); got != 2 {
			t.Errorf("bad worker %d: %d others had finished when Run unwound, want 2", bad, got)
		}
		err, ok := v.(error)
		if !ok || !errors.Is(err, errBody) {
			t.Fatalf("bad worker %d: recovered %v", bad, v)
		}
		var wp *par.Panic
		if bad == 0 {
			if errors.As(err, &wp) {
				t.Errorf("the caller's own panic was wrapped")
			}
			continue
		}
		if !errors.As(err, &wp) || wp.Worker != bad || !strings.Contains(err.Error(), "failingBody") {
			t.Errorf("bad worker %d: %v", bad, err)
		}
	}
	if p.Failed() {
		t.Error("Failed() outlives its region")
	}
	p.Run(func(int) {})
}

// TestFailedReleasesBarrier: bodies that wait for one another end when the one
// they wait for is gone, whichever worker that is.
func TestFailedReleasesBarrier(t *testing.T) {
	p := newPool(t, 3)
	for bad := range 3 {
		var arrived atomic.Int32
		v := recovered(func() {
			p.Run(func(w int) {
				failingBody(w, bad)
				arrived.Add(1)
				for polls := 0; arrived.Load() < 3 && !p.Failed(); polls++ {
					par.Backoff(polls)
				}
			})
		})
		if v == nil {
			t.Errorf("bad worker %d: no panic", bad)
		}
	}
}

func TestGoexitInWorker(t *testing.T) {
	p := newPool(t, 2)
	v := recovered(func() {
		p.Run(func(w int) {
			if w == 1 {
				runtime.Goexit()
			}
		})
	})
	if !strings.Contains(fmt.Sprint(v), "Goexit") {
		t.Fatalf("recovered %v", v)
	}
	for range 100 {
		calls := [2]int{}
		p.Run(func(w int) { calls[w]++ })
		if calls != [2]int{1, 1} {
			t.Fatalf("calls %v after a worker was replaced", calls)
		}
	}
}

func TestClose(t *testing.T) {
	p := par.New(2)
	p.Run(func(int) {})
	p.Close()
	p.Close()
	for name, call := range map[string]func(){
		"Run": func() { p.Run(func(int) {}) },
		"For": func() { p.For(4, 1, func(int, int, int) {}) },
	} {
		if v := recovered(call); !strings.Contains(fmt.Sprint(v), "after Close") {
			t.Errorf("%s after Close: %v", name, v)
		}
	}
}

func TestBadArguments(t *testing.T) {
	p := newPool(t, 1)
	for name, call := range map[string]func(){
		"New(0)":    func() { par.New(0) },
		"n = -1":    func() { p.For(-1, 1, func(int, int, int) {}) },
		"grain = 0": func() { p.For(1, 0, func(int, int, int) {}) },
	} {
		if recovered(call) == nil {
			t.Errorf("%s: no panic", name)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	p := newPool(t, 2)
	var sums [2]struct {
		n int
		_ [56]byte
	}
	run := func(w int) { sums[w].n++ }
	body := func(w, lo, hi int) { sums[w].n += hi - lo }
	if n := testing.AllocsPerRun(200, func() {
		p.Run(run)
		p.For(1000, 16, body)
	}); n != 0 {
		t.Errorf("%v allocations for a Run and a For", n)
	}
}

// TestIdleWorkersPark: in a synctest bubble time moves only when all goroutines
// are parked, so Sleep returns only if polling workers give up.
func TestIdleWorkersPark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := par.New(3)
		for range 3 {
			n := [3]int{}
			p.Run(func(w int) { n[w]++ })
			time.Sleep(time.Hour)
			if n != [3]int{1, 1, 1} {
				t.Errorf("calls %v", n)
			}
		}
		p.Close()
	})
}

// TestSlowWorkerParksOwner: the owner of a region whose other workers are slow
// must not burn its processor; parked, it lets virtual time run.
func TestSlowWorkerParksOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := par.New(2)
		start := time.Now()
		p.Run(func(w int) {
			if w == 1 {
				time.Sleep(time.Minute)
			}
		})
		if d := time.Since(start); d != time.Minute {
			t.Errorf("region took %v of virtual time", d)
		}
		p.Close()
	})
}

func BenchmarkRun(b *testing.B) {
	p := newPool(b, min(2, runtime.GOMAXPROCS(0)))
	body := func(int) {}
	b.ReportAllocs()
	for b.Loop() {
		p.Run(body)
	}
}

func BenchmarkFor(b *testing.B) {
	p := newPool(b, min(2, runtime.GOMAXPROCS(0)))
	body := func(_, lo, hi int) { par.Backoff(0) }
	b.ReportAllocs()
	for b.Loop() {
		p.For(256, 16, body)
	}
}
