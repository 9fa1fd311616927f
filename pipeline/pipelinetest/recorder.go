package pipelinetest

import (
	"context"
	"slices"
	"sync"

	"refrain/pipeline"
)

// Recorder is an Out that keeps what is sent, for the side outputs of a stage
// under test. Send never waits; it returns the cause of ctx when ctx is done.
// All methods may be called from any goroutine. The zero value is ready.
type Recorder[T any] struct {
	// Release, when not nil, takes back each item, also one that Send refuses;
	// Sent is then only good for counting.
	Release func(T)

	mu   sync.Mutex
	sent []T
}

var _ pipeline.Out[int] = (*Recorder[int])(nil)

// Send records v.
func (r *Recorder[T]) Send(ctx context.Context, v T) error {
	if r.Release != nil {
		defer r.Release(v)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.mu.Lock()
	r.sent = append(r.sent, v)
	r.mu.Unlock()
	return nil
}

// Sent returns what was recorded so far.
func (r *Recorder[T]) Sent() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}
