package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestOrderedKeepsOrder(t *testing.T) {
	for _, n := range []int{1, 2, 5, 16} {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			delay := make([]time.Duration, 500)
			for i := range delay {
				delay[i] = time.Duration(rng.IntN(1000)) * time.Microsecond
				if rng.IntN(20) == 0 {
					delay[i] *= 30
				}
			}
			var inFlight, most atomic.Int64
			p := New()
			var got []int
			a := Source(p, "src", items(4), count(len(delay)))
			b := Then(p, "work", a, items(4), Ordered(n, func(_ context.Context, a int) (int, error) {
				now := inFlight.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				time.Sleep(delay[a])
				inFlight.Add(-1)
				return a, nil
			}))
			Sink(p, "sink", b, collect(&got, 0))
			if err := p.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantCount(t, got, len(delay))
			if most.Load() != int64(n) {
				t.Errorf("%d calls at once, want %d", most.Load(), n)
			}
		})
	}
}

// With the oldest item stuck, the others go on until the window is full, and
// no further.
func TestOrderedWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3
		var started atomic.Int64
		p := New()
		var got []int
		a := Source(p, "src", items(100), count(100))
		b := Then(p, "work", a, items(100), Ordered(n, func(_ context.Context, a int) (int, error) {
			started.Add(1)
			if a == 0 {
				time.Sleep(time.Second)
			}
			return a, nil
		}))
		Sink(p, "sink", b, collect(&got, 0))
		done := make(chan error)
		go func() { done <- p.Run(t.Context()) }()
		synctest.Wait()
		if s := started.Load(); s != int64(Window(n)) {
			t.Errorf("%d items started behind a stuck one, want %d", s, Window(n))
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		wantCount(t, got, 100)
	})
}

// The first error by the order of items wins, whichever happens first, and
// everything before it is delivered.
func TestOrderedFirstErrorByOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		var got []int
		var last atomic.Int64
		a := Source(p, "src", items(10), count(-1))
		b := Then(p, "work", a, items(10), Ordered(4, func(_ context.Context, a int) (int, error) {
			if last.Load() < int64(a) {
				last.Store(int64(a))
			}
			switch {
			case a == 5:
				time.Sleep(time.Second)
				return 0, errors.New("late but first")
			case a == 6:
				return 0, errors.New("early but second")
			case a > 6:
				time.Sleep(time.Millisecond)
			}
			return a, nil
		}))
		Sink(p, "sink", b, collect(&got, 0))
		err := p.Run(t.Context())
		if err == nil || err.Error() != "stage work: late but first" {
			t.Fatalf("err = %v", err)
		}
		wantCount(t, got, 5)
		// Items 7 and 8 had begun; after the failure nothing else may.
		if last.Load() > 8 {
			t.Errorf("item %d was begun after item 6 had failed", last.Load())
		}
	})
}

func TestOrderedWithState(t *testing.T) {
	const n = 4
	made := make([]atomic.Int64, n)
	p := New(WithShake(9))
	var got []int
	a := Source(p, "src", items(4), count(400))
	var total atomic.Int64
	b := Then(p, "work", a, items(4), OrderedWith(n, Window(n),
		func(worker int) []int { made[worker].Add(1); return make([]int, 0, 400) },
		func(_ context.Context, s *[]int, a int) (int, error) {
			if k := len(*s); k > 0 && (*s)[k-1] >= a {
				return 0, fmt.Errorf("a worker got %d after %d", a, (*s)[k-1])
			}
			*s = append(*s, a)
			total.Add(1)
			return a, nil
		}))
	Sink(p, "sink", b, collect(&got, 0))
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCount(t, got, 400)
	for i := range made {
		if made[i].Load() != 1 {
			t.Errorf("state of worker %d was made %d times", i, made[i].Load())
		}
	}
	if total.Load() != 400 {
		t.Errorf("%d calls", total.Load())
	}
}

func TestOrderedNeedsAWorker(t *testing.T) {
	p := New()
	var got []int
	Sink(p, "sink", Then(p, "work", Source(p, "src", items(1), count(3)), items(1), Ordered(0, pass)), collect(&got, 0))
	if err := p.Run(t.Context()); err == nil {
		t.Fatal("0 workers ran")
	}
}

// Buffers of a pool come home however the run ends: drained, stopped,
// cancelled, failed in a worker, panicked in a worker.
func TestNoBufferIsLost(t *testing.T) {
	boom := errors.New("boom")
	for _, how := range []string{"drain", "stop", "cancel", "fail", "panic", "sink fails"} {
		for seed := range uint64(20) {
			const workers = 3
			pool, err := NewPool(Window(workers)+2, func(i int) (*int, error) { return &i, nil })
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			p := New(WithShake(seed))
			a := Source(p, "src", items(2), count(60))
			b := Then(p, "work", a, LinkConfig{Items: 2, Release: ReleaseOf(pool.Put)},
				Ordered(workers, func(ctx context.Context, a int) (*int, error) {
					buf, err := pool.Get(ctx)
					if err != nil {
						return nil, err
					}
					if a == 30 && (how == "fail" || how == "panic") {
						pool.Put(buf)
						if how == "panic" {
							panic(boom)
						}
						return nil, boom
					}
					return buf, nil
				}))
			n := 0
			Sink(p, "sink", b, StageFunc[*int, struct{}](func(ctx context.Context, in In[*int], _ Out[struct{}]) error {
				for buf, err := range Each(ctx, in) {
					if err != nil {
						return err
					}
					pool.Put(buf)
					if n++; n == 20 {
						switch how {
						case "stop":
							return nil
						case "cancel":
							cancel(boom)
						case "sink fails":
							return boom
						}
					}
				}
				return nil
			}))
			err = p.Run(ctx)
			cancel(nil)
			if clean := how == "drain" || how == "stop"; clean && err != nil || !clean && !errors.Is(err, boom) {
				t.Fatalf("%s: err = %v", how, err)
			}
			if pool.Len() != pool.Cap() {
				t.Fatalf("%s, seed %d: %d of %d buffers are home", how, seed, pool.Len(), pool.Cap())
			}
		}
	}
}

func TestGroup(t *testing.T) {
	boom := errors.New("boom")
	g := NewGroup(t.Context())
	g.Go(func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
	g.Go(func(ctx context.Context) error { return boom })
	if err := g.Wait(); err != boom {
		t.Errorf("err = %v", err)
	}

	g = NewGroup(t.Context())
	g.Go(func(ctx context.Context) error { AtIndex(ctx, "line", 3); panic("x") })
	var pe *PanicError
	if err := g.Wait(); !errors.As(err, &pe) || pe.Record != "line 3" || pe.Stage != "" {
		t.Errorf("err = %v", err)
	}

	g = NewGroup(t.Context())
	g.Go(func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
	g.Stop()
	if err := g.Wait(); err != nil {
		t.Errorf("err = %v", err)
	}
}
