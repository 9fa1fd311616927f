package pipeline

import (
	"context"
	"errors"
)

// ErrStopRequested is the cause of the context that Until hands out once its
// channel is closed.
var ErrStopRequested = errors.New("stop requested")

// Until calls f with a context that also ends, with the cause ErrStopRequested,
// when stop is closed: for the part of a stage's work that a stop request cuts
// short, while ctx itself stays good for finishing. A nil stop never closes.
// It returns when f has returned, and leaves no goroutine behind.
func Until(ctx context.Context, stop <-chan struct{}, f func(until context.Context) error) error {
	until, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	select {
	case <-stop: // f never sees a context that is still good
		cancel(ErrStopRequested)
	default:
	}
	g := NewGroup(ctx)
	g.Go(func(ctx context.Context) error {
		select {
		case <-stop:
			cancel(ErrStopRequested)
		case <-ctx.Done():
		}
		return nil
	})
	err := f(until)
	g.Stop()
	return errors.Join(err, g.Wait())
}
