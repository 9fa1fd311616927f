package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		err := Until(t.Context(), stop, func(until context.Context) error {
			synctest.Wait()
			if until.Err() != nil {
				t.Error("ended before the stop")
			}
			close(stop)
			<-until.Done()
			if c := context.Cause(until); !errors.Is(c, ErrStopRequested) {
				t.Errorf("cause %v, want ErrStopRequested", c)
			}
			if t.Context().Err() != nil {
				t.Error("the outer context ended too")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		// Without a stop f's own error comes back, and the waiting goroutine ends.
		boom := errors.New("boom")
		if err := Until(t.Context(), nil, func(context.Context) error { return boom }); !errors.Is(err, boom) {
			t.Errorf("error %v, want boom", err)
		}
		// The outer cancellation keeps its own cause.
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(boom)
		_ = Until(ctx, nil, func(until context.Context) error {
			if c := context.Cause(until); !errors.Is(c, boom) {
				t.Errorf("cause %v, want boom", c)
			}
			return nil
		})
	})
}

// TestUntilStopped: a stop that came before is seen at once, whoever gets to run first.
func TestUntilStopped(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	for range 1000 {
		err := Until(t.Context(), stop, func(until context.Context) error {
			return context.Cause(until)
		})
		if !errors.Is(err, ErrStopRequested) {
			t.Fatalf("the context is good: %v", err)
		}
	}
}
