package pipeline

import (
	"context"
	"sync"
)

// Group runs further goroutines of a stage. A panic in one becomes a
// *PanicError that names the stage and the record; the first failure cancels
// the context of the others. The goroutines inherit the stage's pprof labels.
// A stage calls Wait before it returns.
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	once   sync.Once
	err    error
}

// NewGroup returns a group whose goroutines end when ctx does.
func NewGroup(ctx context.Context) *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	return g
}

// Go calls f on a new goroutine. The ctx it gets is done when one of the group
// fails; At with that ctx names the record of this goroutine alone.
func (g *Group) Go(f func(ctx context.Context) error) {
	ctx, sc := childScope(g.ctx)
	g.wg.Go(func() {
		err := errGoexit
		defer func() {
			if err != nil {
				g.fail(err)
			}
		}()
		err = guard(sc, func() error { return f(ctx) })
	})
}

func (g *Group) fail(err error) {
	g.once.Do(func() {
		g.err = err
		g.cancel(err)
	})
}

// Stop cancels the context of the goroutines with the cause ErrStopped,
// without waiting. Goroutines that return an error afterwards do not make Wait
// fail unless one failed before.
func (g *Group) Stop() {
	g.once.Do(func() { g.cancel(ErrStopped) })
}

// Wait blocks until all goroutines have returned and returns the first error.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.cancel(nil)
	return g.err
}
