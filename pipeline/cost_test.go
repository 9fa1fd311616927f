package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// testLink is a link between two nodes that are not run.
func testLink[T any](c LinkConfig) (*Link[T], context.Context) {
	p := New()
	n := &node{p: p, name: "test"}
	l := newLink[T](n, c)
	l.cons = n
	ctx := context.WithValue(context.Background(), scopeKey{}, &scope{node: n, mark: &n.mark})
	return l, pprof.WithLabels(ctx, pprof.Labels("stage", "test"))
}

func wantNoAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(200, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}

func TestFastPathsDoNotAllocate(t *testing.T) {
	ints, ctx := testLink[int](LinkConfig{Items: 2})
	wantNoAllocs(t, "int", func() {
		if ints.send(ctx, 1<<40) != nil {
			t.Error("send")
		}
		if _, err := ints.recv(ctx); err != nil {
			t.Error(err)
		}
	})
	values, ctx := testLink[sized](LinkConfig{Items: 2, Bytes: 100})
	wantNoAllocs(t, "value with size", func() {
		if values.send(ctx, sized{7}) != nil {
			t.Error("send")
		}
		if _, err := values.recv(ctx); err != nil {
			t.Error(err)
		}
	})
	pointers, ctx := testLink[*sizedPtr](LinkConfig{Items: 2, Bytes: 100})
	item := &sizedPtr{9}
	wantNoAllocs(t, "pointer with size", func() {
		if pointers.send(ctx, item) != nil {
			t.Error("send")
		}
		if _, err := pointers.recv(ctx); err != nil {
			t.Error(err)
		}
	})
	wantNoAllocs(t, "At", func() { At(ctx, "shard x"); AtIndex(ctx, "line", 1<<40) })
	pool, err := NewPool(1, func(i int) (*int, error) { return &i, nil })
	if err != nil {
		t.Fatal(err)
	}
	wantNoAllocs(t, "Pool", func() {
		v, err := pool.Get(ctx)
		if err != nil {
			t.Error(err)
		}
		pool.Put(v)
	})
}

// A whole pipeline allocates for its building, not for its items: ten times
// the items may not cost measurably more.
func TestItemsDoNotAllocate(t *testing.T) {
	run := func(n int) float64 {
		return testing.AllocsPerRun(3, func() {
			p := New()
			a := Source(p, "src", items(8), count(n))
			b := Then(p, "map", a, items(8), Map(pass))
			c := Then(p, "ordered", b, items(8), Ordered(2, pass))
			Sink(p, "sink", c, sleepSink(0))
			if err := p.Run(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	few, many := run(1000), run(10000)
	// The runtime itself allocates a little for waiting goroutines.
	if perItem := (many - few) / 9000; perItem > 0.01 {
		t.Errorf("%.3f allocations an item (%v for 1000, %v for 10000)", perItem, few, many)
	}
}

func TestGoroutinesCarryLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(WithLabels("device", "3"))
		a := Source(p, "src", items(1), count(1))
		release, done := make(chan struct{}), make(chan error)
		b := Then(p, "work", a, items(1), Ordered(1, func(_ context.Context, a int) (int, error) {
			<-release
			return a, nil
		}))
		var got []int
		Sink(p, "sink", b, collect(&got, 0))
		go func() { done <- p.Run(t.Context()) }()
		synctest.Wait() // the worker is in f, the sink waits for its first item
		var profile bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
			t.Error(err)
		}
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`{"device":"3", "stage":"sink"}`,
			`{"device":"3", "stage":"work"}`,
		} {
			if !strings.Contains(profile.String(), want) {
				t.Errorf("no %s in\n%s", want, profile.String())
			}
		}
		// The worker goroutine itself, not only the one that waits for it.
		if n := strings.Count(profile.String(), `"stage":"work"`); n != 2 {
			t.Errorf("%d goroutines of work carry its label, want 2", n)
		}
	})
}

func TestTraceHasTasksAndRegions(t *testing.T) {
	var out bytes.Buffer
	if err := trace.Start(&out); err != nil {
		t.Skip("a trace is being taken already: ", err)
	}
	p := New()
	a := Source(p, "src-stage", items(1), count(50))
	b := Then(p, "map-stage", a, items(1), Map(pass))
	Sink(p, "sink-stage", b, sleepSink(ms))
	err := p.Run(t.Context())
	trace.Stop()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"stage src-stage", "stage sink-stage", "map-stage", "blocked", "starved"} {
		if !bytes.Contains(out.Bytes(), []byte(want)) {
			t.Errorf("the trace has no %q", want)
		}
	}
}

// One item between two goroutines through a link and, as the floor, through a
// bare channel of the same capacity.
func BenchmarkHandOver(b *testing.B) {
	const capacity = 8
	b.Run("channel", func(b *testing.B) {
		ch := make(chan int, capacity)
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		b.ReportAllocs()
		go func() {
			defer close(ch)
			for i := range b.N {
				select {
				case ch <- i:
				case <-ctx.Done():
					return
				}
			}
		}()
		for range ch {
		}
	})
	b.Run("link", func(b *testing.B) {
		l, ctx := testLink[int](LinkConfig{Items: capacity})
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		b.ReportAllocs()
		go func() {
			defer l.close()
			for i := range b.N {
				if l.send(ctx, i) != nil {
					return
				}
			}
		}()
		for {
			if _, err := l.recv(ctx); err == io.EOF {
				return
			}
		}
	})
}

// Send and Recv that never wait.
func BenchmarkFastPath(b *testing.B) {
	b.Run("channel", func(b *testing.B) {
		ch := make(chan int, 8)
		for b.Loop() {
			ch <- 1
			<-ch
		}
	})
	b.Run("link", func(b *testing.B) {
		l, ctx := testLink[int](LinkConfig{Items: 8})
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		b.ReportAllocs()
		for b.Loop() {
			if err := l.send(ctx, 1); err != nil {
				b.Fatal(err)
			}
			if _, err := l.recv(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Two workers with items of two sizes: the difference to half of the work is
// what an item costs.
func BenchmarkOrdered(b *testing.B) {
	for _, spins := range []int{0, 20_000} {
		b.Run(fmt.Sprintf("spins=%d", spins), func(b *testing.B) {
			work := func(_ context.Context, a int) (int, error) {
				for range spins {
					a = a*3 + 1
				}
				return a, nil
			}
			p := New()
			a := Source(p, "src", items(64), count(b.N))
			c := Then(p, "ordered", a, items(64), Ordered(2, work))
			Sink(p, "sink", c, sleepSink(0))
			b.ReportAllocs()
			start := time.Now()
			for range b.N {
				if _, err := work(b.Context(), 1); err != nil {
					b.Fatal(err)
				}
			}
			serial := time.Since(start)
			b.ResetTimer()
			if err := p.Run(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(serial.Seconds()/b.Elapsed().Seconds(), "x-serial")
		})
	}
}
