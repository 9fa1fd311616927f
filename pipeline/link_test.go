package pipeline

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
)

// Two wake-ups that fall together may not leave a waiter behind.
func TestWakeUpsThatFallTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ctx := testLink[int](LinkConfig{Items: 2})
		done := make(chan error)
		for range 2 {
			if err := l.send(ctx, 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			go func() { done <- l.send(ctx, 0) }()
		}
		synctest.Wait()
		l.mu.Lock()
		l.pop()
		l.pop()
		l.mu.Unlock()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}

		l, ctx = testLink[int](LinkConfig{Items: 2})
		for range 2 {
			go func() {
				_, err := l.recv(ctx)
				done <- err
			}()
		}
		synctest.Wait()
		l.mu.Lock()
		l.push(1, 0)
		l.push(2, 0)
		l.mu.Unlock()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// Closing and stopping reach all who wait.
func TestEndReachesAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ctx := testLink[int](LinkConfig{Items: 1})
		done := make(chan error)
		for range 3 {
			go func() {
				_, err := l.recv(ctx)
				done <- err
			}()
		}
		synctest.Wait()
		l.close()
		for range 3 {
			if err := <-done; err != io.EOF {
				t.Errorf("err = %v", err)
			}
		}

		l, ctx = testLink[int](LinkConfig{Items: 1})
		l.prod.cancel = func(error) {} // the node does not run
		if err := l.send(ctx, 0); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			go func() { done <- l.send(ctx, 0) }()
		}
		synctest.Wait()
		l.stop()
		for range 3 {
			if err := <-done; err != ErrStopped {
				t.Errorf("err = %v", err)
			}
		}
		if err := l.send(ctx, 0); err != ErrStopped {
			t.Errorf("err = %v", err)
		}
	})
}

// Cancellation goes before queued items and before free room.
func TestCancelGoesFirst(t *testing.T) {
	boom := errors.New("boom")
	l, ctx := testLink[int](LinkConfig{Items: 3})
	ctx, cancel := context.WithCancelCause(ctx)
	if err := l.send(ctx, 1); err != nil {
		t.Fatal(err)
	}
	cancel(boom)
	if _, err := l.recv(ctx); err != boom {
		t.Errorf("Recv: err = %v", err)
	}
	if err := l.send(ctx, 2); err != boom {
		t.Errorf("Send: err = %v", err)
	}
	if s := l.stats(); s.queueLen != 1 || s.sent != 1 || s.received != 0 {
		t.Errorf("%+v", s)
	}
}

// A link is closed only by a producer that returned nil in a run that goes on;
// otherwise a consumer could take a failure for the end.
func TestOnlySuccessCloses(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name   string
		source func(ctx context.Context, cancel func()) error
		closed bool
	}{
		{"success", func(context.Context, func()) error { return nil }, true},
		{"failure", func(context.Context, func()) error { return boom }, false},
		{"panic", func(context.Context, func()) error { panic(boom) }, false},
		{"success after cancel", func(_ context.Context, cancel func()) error { cancel(); return nil }, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		p := New()
		a := Source(p, "src", items(1), StageFunc[struct{}, int](func(ctx context.Context, _ In[struct{}], _ Out[int]) error {
			return c.source(ctx, cancel)
		}))
		var got []int
		Sink(p, "sink", a, collect(&got, 0))
		if err := p.Run(ctx); (err == nil) != c.closed {
			t.Errorf("%s: err = %v", c.name, err)
		}
		cancel()
		if a.closed != c.closed {
			t.Errorf("%s: closed = %v", c.name, a.closed)
		}
	}
}

// An item that was received is not kept alive by the ring.
func TestRingForgets(t *testing.T) {
	l, ctx := testLink[*int](LinkConfig{Items: 2})
	for range 3 {
		if err := l.send(ctx, new(int)); err != nil {
			t.Fatal(err)
		}
		if _, err := l.recv(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for i, v := range l.ring {
		if v != nil {
			t.Errorf("slot %d still holds an item", i)
		}
	}
}
