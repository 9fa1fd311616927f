// Package pipelinetest is a conformance suite that every stage passes: it
// runs the stage inside small pipelines and drains, slows, stops, cancels,
// starves and fails them at every item. It knows the contract of
// pipeline.Stage and nothing about what the stage computes.
//
//	func TestUpper(t *testing.T) {
//		pipelinetest.Run(t, pipelinetest.Case[string, string]{
//			New:    func() pipeline.Stage[string, string] { return Upper() },
//			Inputs: func() []string { return []string{"a", "b"} },
//			Want: func(got []string) error {
//				if !slices.Equal(got, []string{"A", "B"}) {
//					return fmt.Errorf("got %q", got)
//				}
//				return nil
//			},
//		})
//	}
//
// What is checked, for each place in the stream (at most MaxCuts of them):
//
//   - drain: the whole input, with links of several capacities and shaken
//     schedules; the output passes Want and is always the same.
//   - slow consumer, empty input.
//   - producer fails or panics after k items: Run reports the producer and only
//     it, and the stage does not treat it as the end of the input.
//   - cancel at the k-th input and at the k-th output: Run reports the cause.
//   - consumer stops or fails after k outputs.
//   - after every run: no goroutine is left, the stage has not swallowed an
//     error of Recv or Send, the output is a prefix of the whole output, and
//     Done agrees.
//
// A run that does not end within Timeout is reported with all stacks. Because
// leaks are found by looking at all goroutines of the process, tests that use
// this package must not run in parallel with others.
package pipelinetest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"refrain/pipeline"
)

// Case describes a stage with input and output. New, Inputs and Want are
// required.
type Case[A, B any] struct {
	// New returns a fresh stage; each run gets its own.
	New func() pipeline.Stage[A, B]
	// Inputs returns fresh items; each run gets its own. Two or more make the
	// suite meaningful; a dozen is plenty.
	Inputs func() []A
	// Want checks the output for the whole input.
	Want func(got []B) error
	// Equal compares outputs of two runs; nil means reflect.DeepEqual.
	Equal func(a, b B) bool

	// Release, when the outputs hold resources, takes back each output that was
	// looked at or never received. Keep then returns a copy that stays valid for
	// Want and Equal.
	Release func(B)
	Keep    func(B) B
	// ReleaseInput takes back inputs that the stage did not receive.
	ReleaseInput func(A)
	// Done is called after each run, with its error. It says what is wrong
	// with what the stage left behind: buffers not home, files still open.
	Done func(err error) error
	// EmptyFails says that the stage reports an error for an empty input.
	EmptyFails bool

	Limits
}

// SourceCase describes a stage without input. New and Want are required; the
// other fields are as in Case.
type SourceCase[B any] struct {
	New func() pipeline.Stage[struct{}, B]
	// Take, when positive, is how many outputs a whole run takes, after which
	// the consumer stops: for sources that never end. Want sees that many.
	Take  int
	Want  func(got []B) error
	Equal func(a, b B) bool

	Release func(B)
	Keep    func(B) B
	Done    func(err error) error

	Limits
}

// SinkCase describes a stage without output. New and Inputs are required; the
// other fields are as in Case.
type SinkCase[A any] struct {
	New          func() pipeline.Stage[A, struct{}]
	Inputs       func() []A
	ReleaseInput func(A)
	// Done is called after each run with the number of items that the stage
	// received, whether it got io.EOF, and the error of the run. It checks what
	// the stage did with them.
	Done       func(received int, eof bool, err error) error
	EmptyFails bool

	Limits
}

// Limits bound what the suite does. The zero value is meaningful.
type Limits struct {
	MaxCuts int           // places in the stream that are tried; 0 means 24
	Timeout time.Duration // for each run; 0 means 10 seconds
}

func (l *Limits) fill() {
	if l.MaxCuts == 0 {
		l.MaxCuts = 24
	}
	if l.Timeout == 0 {
		l.Timeout = 10 * time.Second
	}
}

// Run checks a stage with input and output.
func Run[A, B any](t *testing.T, c Case[A, B]) {
	t.Helper()
	if c.New == nil || c.Inputs == nil || c.Want == nil {
		t.Fatal("pipelinetest: Case needs New, Inputs and Want")
	}
	newSuite(c).run(t)
}

func newSuite[A, B any](c Case[A, B]) *suite[A, B] {
	s := &suite[A, B]{
		newStage: c.New, inputs: c.Inputs, want: c.Want, equal: c.Equal,
		release: c.Release, keep: c.Keep, releaseInput: c.ReleaseInput,
		emptyFails: c.EmptyFails, limits: c.Limits, hasIn: true, hasOut: true,
	}
	if c.Done != nil {
		s.done = func(r *result[B]) error { return c.Done(r.err) }
	}
	return s.fill()
}

// RunSource checks a stage without input.
func RunSource[B any](t *testing.T, c SourceCase[B]) {
	t.Helper()
	if c.New == nil || c.Want == nil {
		t.Fatal("pipelinetest: SourceCase needs New and Want")
	}
	newSourceSuite(c).run(t)
}

func newSourceSuite[B any](c SourceCase[B]) *suite[struct{}, B] {
	s := &suite[struct{}, B]{
		newStage: c.New, want: c.Want, equal: c.Equal, release: c.Release, keep: c.Keep,
		take: c.Take, limits: c.Limits, hasOut: true,
		inputs: func() []struct{} { return nil },
	}
	if c.Done != nil {
		s.done = func(r *result[B]) error { return c.Done(r.err) }
	}
	return s.fill()
}

// RunSink checks a stage without output.
func RunSink[A any](t *testing.T, c SinkCase[A]) {
	t.Helper()
	if c.New == nil || c.Inputs == nil {
		t.Fatal("pipelinetest: SinkCase needs New and Inputs")
	}
	newSinkSuite(c).run(t)
}

func newSinkSuite[A any](c SinkCase[A]) *suite[A, struct{}] {
	s := &suite[A, struct{}]{
		newStage: c.New, inputs: c.Inputs, releaseInput: c.ReleaseInput,
		want:       func([]struct{}) error { return nil },
		emptyFails: c.EmptyFails, limits: c.Limits, hasIn: true,
	}
	if c.Done != nil {
		s.done = func(r *result[struct{}]) error { return c.Done(r.received, r.eof, r.err) }
	}
	return s.fill()
}

func (s *suite[A, B]) fill() *suite[A, B] {
	s.limits.fill()
	if s.equal == nil {
		s.equal = func(a, b B) bool { return reflect.DeepEqual(a, b) }
	}
	if s.keep == nil {
		s.keep = func(b B) B { return b }
	}
	if s.release == nil {
		s.release = func(B) {}
	}
	if s.releaseInput == nil {
		s.releaseInput = func(A) {}
	}
	if s.done == nil {
		s.done = func(*result[B]) error { return nil }
	}
	return s
}

// run reports each scenario as a subtest. A run that hangs ends the suite,
// since what it holds would spoil the runs after it.
func (s *suite[A, B]) run(t *testing.T) {
	t.Helper()
	hung := false
	s.each(func(name string, check func() error) bool {
		return t.Run(name, func(t *testing.T) {
			if err := check(); err != nil {
				hung = errors.Is(err, errHung)
				t.Error(err)
			}
		}) || !hung
	})
	if hung {
		t.Fatal("the suite ends here, because a run is still going on")
	}
}
