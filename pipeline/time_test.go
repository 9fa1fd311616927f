package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

func sleepMap(d time.Duration) Stage[int, int] { return Map(sleepThen(d)) }

func sleepThen(d time.Duration) func(context.Context, int) (int, error) {
	return func(_ context.Context, a int) (int, error) {
		time.Sleep(d)
		return a, nil
	}
}

func sleepSource(n int, d time.Duration) Stage[struct{}, int] {
	return StageFunc[struct{}, int](func(ctx context.Context, _ In[struct{}], out Out[int]) error {
		for i := range n {
			time.Sleep(d)
			if err := out.Send(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
}

func sleepSink(d time.Duration) Stage[int, struct{}] {
	return StageFunc[int, struct{}](func(ctx context.Context, in In[int], _ Out[struct{}]) error {
		for _, err := range Each(ctx, in) {
			if err != nil {
				return err
			}
			time.Sleep(d)
		}
		return nil
	})
}

type times struct{ fill, wall, busy, starved, blocked time.Duration }

func wantTimes(t *testing.T, s StageStats, want times) {
	t.Helper()
	got := times{s.Fill, s.Wall, s.Busy, s.Starved, s.Blocked}
	if got != want {
		t.Errorf("%s: got %+v, want %+v", s.Name, got, want)
	}
}

// Ten items; the source needs 1 ms each, the middle 2 ms, the sink 10 ms; links
// hold one item. Derived by hand: the sink gets item i at 3+10i ms and is
// never starved; the middle sends item i when the sink takes item i-1, because
// one item is queued.
func TestSlowSinkTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		a := Source(p, "src", items(1), sleepSource(10, 1*ms))
		b := Then(p, "mid", a, items(1), sleepMap(2*ms))
		Sink(p, "sink", b, sleepSink(10*ms))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		rows := p.Stats()
		// The middle works 10 x 2 ms from 1 ms on and ends when item 9 is queued,
		// which is when the sink takes item 8, at 83 ms.
		wantTimes(t, rows[1], times{fill: 1 * ms, wall: 82 * ms, busy: 20 * ms, blocked: 62 * ms})
		// The source queues item 9 when the middle takes item 8, which is when the
		// sink takes item 6: at 63 ms. Sends of items 0 and 1 find room.
		wantTimes(t, rows[0], times{wall: 63 * ms, busy: 10 * ms, blocked: 53 * ms})
		wantTimes(t, rows[2], times{fill: 3 * ms, wall: 100 * ms, busy: 100 * ms})
		if name, why := Bottleneck(rows); name != "sink" {
			t.Errorf("bottleneck %s: %s", name, why)
		} else if want := "sink is busy 97.1 % of 103ms, starved 0.0 %, blocked 0.0 %; before it mid is blocked 60.2 %"; why != want {
			t.Errorf("got %q, want %q", why, want)
		}
	})
}

func TestSlowSourceTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		a := Source(p, "src", items(2), sleepSource(10, 10*ms))
		Sink(p, "sink", a, sleepSink(1*ms))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		rows := p.Stats()
		wantTimes(t, rows[0], times{wall: 100 * ms, busy: 100 * ms})
		wantTimes(t, rows[1], times{fill: 10 * ms, wall: 91 * ms, busy: 10 * ms, starved: 81 * ms})
		if name, why := Bottleneck(rows); name != "src" {
			t.Errorf("bottleneck %s: %s", name, why)
		}
	})
}

// Two workers of 10 ms share ten items that are all queued at once: each has
// five, nobody waits.
func TestOrderedTimesBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		a := Source(p, "src", items(10), count(10))
		b := Then(p, "work", a, items(10), Ordered(2, sleepThen(10*ms)))
		Sink(p, "sink", b, sleepSink(0))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantTimes(t, p.Stats()[1], times{wall: 50 * ms, busy: 50 * ms})
		if w := p.Stats()[1].Workers; w != 2 {
			t.Errorf("%d workers", w)
		}
	})
}

// Two workers, one item each 10 ms, each 5 ms of work: from the first item at
// 10 ms to the end at 105 ms the two together work 50 of 190 ms.
func TestOrderedTimesStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		a := Source(p, "src", items(1), sleepSource(10, 10*ms))
		b := Then(p, "work", a, items(10), Ordered(2, sleepThen(5*ms)))
		Sink(p, "sink", b, sleepSink(0))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantTimes(t, p.Stats()[1], times{fill: 10 * ms, wall: 95 * ms, busy: 25 * ms, starved: 70 * ms})
	})
}

// The sink takes 10 ms an item and the two workers 1 ms: they end when the
// last item is queued and were busy 20 x 1/2 ms.
func TestOrderedTimesBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		a := Source(p, "src", items(40), count(40))
		b := Then(p, "work", a, items(1), Ordered(2, sleepThen(1*ms)))
		Sink(p, "sink", b, sleepSink(10*ms))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s := p.Stats()[1]
		// Item i reaches the sink at 1+10i ms; item 39 is queued at 381 ms.
		if s.Wall != 381*ms || s.Busy != 20*ms || s.Busy+s.Starved+s.Blocked != s.Wall {
			t.Errorf("%+v", s)
		}
		// While one worker sends for the other, that other fills the window of 8;
		// after the last input the idle worker counts as starved.
		if s.Blocked < 300*ms {
			t.Errorf("blocked only %v of %v", s.Blocked, s.Wall)
		}
	})
}

// A wait that is going on counts already.
func TestStatsDuringAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		ctx, cancel := context.WithCancel(t.Context())
		a := Source(p, "src", items(1), count(-1))
		b := Then(p, "mid", a, items(1), Map(pass))
		Sink(p, "sink", b, StageFunc[int, struct{}](func(ctx context.Context, in In[int], _ Out[struct{}]) error {
			if _, err := in.Recv(ctx); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(time.Hour)
		before := p.Stats()
		wantTimes(t, before[0], times{wall: time.Hour, blocked: time.Hour})
		wantTimes(t, before[1], times{wall: time.Hour, blocked: time.Hour})
		wantTimes(t, before[2], times{wall: time.Hour, busy: time.Hour})
		time.Sleep(time.Minute)
		d := Delta(p.Stats(), before)
		wantTimes(t, d[1], times{wall: time.Minute, blocked: time.Minute})
		if d[1].Items != 0 || d[1].QueueLen != 1 || d[1].Done {
			t.Errorf("%+v", d[1])
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestPoolWaitIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, err := NewPool(2, func(i int) (*int, error) { return &i, nil })
		if err != nil {
			t.Fatal(err)
		}
		p := New()
		a := Source(p, "src", items(8), StageFunc[struct{}, *int](func(ctx context.Context, _ In[struct{}], out Out[*int]) error {
			for range 6 {
				b, err := pool.Get(ctx)
				if err != nil {
					return err
				}
				if err := out.Send(ctx, b); err != nil {
					return err
				}
			}
			return nil
		}))
		Sink(p, "sink", a, StageFunc[*int, struct{}](func(ctx context.Context, in In[*int], _ Out[struct{}]) error {
			for b, err := range Each(ctx, in) {
				if err != nil {
					return err
				}
				time.Sleep(10 * ms)
				pool.Put(b)
			}
			return nil
		}))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantTimes(t, p.Stats()[0], times{wall: 40 * ms, blocked: 40 * ms})
		if s := pool.Stats(); s != (PoolStats{Gets: 6, Waits: 4, Waited: 40 * ms}) {
			t.Errorf("%+v", s)
		}
		if pool.Len() != pool.Cap() {
			t.Errorf("%d of %d items are home", pool.Len(), pool.Cap())
		}
	})
}

func TestPanicStopsTheRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		a := Source(p, "src", items(1), count(-1))
		b := Then(p, "mid", a, items(1), Ordered(3, func(ctx context.Context, a int) (int, error) {
			if a == 1 {
				panic("boom")
			}
			return a, nil
		}))
		Sink(p, "sink", b, sleepSink(100*ms))
		start := time.Now()
		err := p.Run(t.Context())
		var pe *PanicError
		if !errors.As(err, &pe) || pe.Record != "item 1" {
			t.Fatal(err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("took %v", d)
		}
	})
}

func TestBottleneckOfNothing(t *testing.T) {
	if name, why := Bottleneck(nil); name != "" || why == "" {
		t.Errorf("%q %q", name, why)
	}
	if name, _ := Bottleneck([]StageStats{{Name: "a"}}); name != "" {
		t.Errorf("%q", name)
	}
}

// A stage that worked all of its own short life is not the limit of the run.
func TestBottleneckSharesOneClock(t *testing.T) {
	rows := []StageStats{
		{Name: "early", Wall: 100 * ms, Busy: 60 * ms, Blocked: 40 * ms},
		{Name: "late", Fill: 99 * ms, Wall: 1 * ms, Busy: 1 * ms},
	}
	if name, why := Bottleneck(rows); name != "early" {
		t.Error(name, why)
	}
	rows[0].Busy, rows[0].Blocked = 10*ms, 90*ms
	_, why := Bottleneck(rows)
	if want := "early is busy 10.0 % of 100ms, starved 0.0 %, blocked 90.0 %; after it late is starved 0.0 %; no stage is busy half of the time, so waiting, not work, sets the pace"; why != want {
		t.Errorf("got %q", why)
	}
}
