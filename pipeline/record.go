package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// ErrStopped is returned by Send when the consumer has ended, and is the cause
// of the producer's context from then on. A stage returns it, possibly wrapped,
// after it has cleaned up; Run does not take that for a failure.
var ErrStopped = errors.New("pipeline: the consumer has stopped")

// StageError is a failure of one stage.
type StageError struct {
	Stage  string
	Record string // what the stage named with At, or ""
	Err    error
}

func (e *StageError) Error() string {
	msg := e.Err.Error()
	if e.Record == "" || strings.Contains(msg, e.Record) {
		return "stage " + e.Stage + ": " + msg
	}
	return "stage " + e.Stage + ": " + e.Record + ": " + msg
}

// Unwrap returns the error that the stage returned.
func (e *StageError) Unwrap() error { return e.Err }

// PanicError is a panic of a stage, caught by the pipeline.
type PanicError struct {
	Stage  string // "" outside a pipeline
	Record string // what the stage named with At, else "item N", counted from 0
	Value  any    // the argument of panic
	Stack  []byte // of the goroutine that panicked
}

func (e *PanicError) Error() string {
	var b strings.Builder
	if e.Stage != "" {
		b.WriteString("stage " + e.Stage + ": ")
	}
	b.WriteString("panic")
	if e.Record != "" {
		b.WriteString(" at " + e.Record)
	}
	fmt.Fprintf(&b, ": %v", e.Value)
	return b.String()
}

// Unwrap returns the value of the panic if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errGoexit is the failure of a goroutine that ended without returning.
var errGoexit = errors.New("goroutine ended by runtime.Goexit instead of returning")

// At names the record that the calling stage works on, such as
// "shard a.jsonl line 7", until the next call. The name appears in the error
// or panic that ends the stage. It costs a lookup in ctx and no allocation.
// With a ctx that does not come from a pipeline it does nothing.
func At(ctx context.Context, record string) {
	if s := scopeOf(ctx); s != nil {
		s.mark.set(record, noIndex)
	}
}

// AtIndex is At for "what n", put together only when it is reported: it saves
// formatting each record. n is not negative.
func AtIndex(ctx context.Context, what string, n int64) {
	if s := scopeOf(ctx); s != nil {
		s.mark.set(what, n)
	}
}

const noIndex = -1

// mark is the record that a goroutine works on.
type mark struct {
	mu    sync.Mutex
	text  string
	n     int64
	item  uint64 // number of the item, counted from 1; 0 is unknown
	named bool
}

func (m *mark) set(text string, n int64) {
	m.mu.Lock()
	m.text, m.n, m.named = text, n, true
	m.mu.Unlock()
}

// next forgets the name; item i, counted from 0, is being worked on.
func (m *mark) next(i uint64) {
	m.mu.Lock()
	m.item, m.named = i+1, false
	m.mu.Unlock()
}

// name returns the record named with At, or "".
func (m *mark) name() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.named:
		return ""
	case m.n < 0:
		return m.text
	}
	return m.text + " " + strconv.FormatInt(m.n, 10)
}

// scope ties a goroutine to its stage. It travels in the context.
type scope struct {
	node *node // nil outside a pipeline
	mark *mark
}

type scopeKey struct{}

func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

// childScope is the scope of a further goroutine of the same stage.
func childScope(ctx context.Context) (context.Context, *scope) {
	s := &scope{mark: &mark{}}
	if parent := scopeOf(ctx); parent != nil {
		s.node = parent.node
	}
	return context.WithValue(ctx, scopeKey{}, s), s
}

// stage is the name of the stage, or "" outside a pipeline.
func (s *scope) stage() string {
	if s == nil || s.node == nil {
		return ""
	}
	return s.node.name
}

// meter is the meter of the stage, or nil outside a pipeline.
func (s *scope) meter() *meter {
	if s == nil || s.node == nil {
		return nil
	}
	return &s.node.meter
}

// record names what the goroutine works on as well as is known.
func (s *scope) record() string {
	if name := s.mark.name(); name != "" {
		return name
	}
	s.mark.mu.Lock()
	item := s.mark.item
	s.mark.mu.Unlock()
	if item == 0 && s.node != nil {
		item = s.node.items()
	}
	if item == 0 {
		return ""
	}
	return "item " + strconv.FormatUint(item-1, 10)
}

// markedError carries the record of a worker's goroutine to the StageError.
type markedError struct {
	record string
	err    error
}

func (e *markedError) Error() string { return e.record + ": " + e.err.Error() }
func (e *markedError) Unwrap() error { return e.err }
