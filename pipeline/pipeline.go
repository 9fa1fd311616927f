package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"
)

// Stage turns a stream of A into a stream of B.
//
// Run returns nil when Recv gave io.EOF and everything is sent, or earlier if
// it needs no more input; it returns the error of Send or Recv as it got it,
// or its own error. When ctx is done it returns soon, with context.Cause(ctx)
// and not with what the interruption looked like from inside, such as
// "signal: killed" of a child. It leaves no goroutine behind. A stage runs once.
type Stage[A, B any] interface {
	Run(ctx context.Context, in In[A], out Out[B]) error
}

// StageFunc is a function as a Stage.
type StageFunc[A, B any] func(ctx context.Context, in In[A], out Out[B]) error

// Run calls f.
func (f StageFunc[A, B]) Run(ctx context.Context, in In[A], out Out[B]) error {
	return f(ctx, in, out)
}

// Pipeline is a set of stages that start and stop together. It is built by
// one goroutine with Source, Then, Tee and Sink, then run once. Mistakes in
// the building are reported by Run.
type Pipeline struct {
	labels  []string
	shaker  *shaker
	nodes   []*node
	links   []*linkRef
	errs    []error
	started atomic.Bool
}

// linkRef is what the pipeline knows of a link whatever its type.
type linkRef struct {
	end  endpoint
	prod *node
	cons *node
}

type endpoint interface {
	close()
	stop()
	isStopped() bool
	stats() linkStats
}

// Option configures a Pipeline.
type Option func(*Pipeline)

// WithLabels adds pprof labels to every goroutine, as key and value in turn,
// such as "device", "0". The label "stage" is always set.
func WithLabels(keyValues ...string) Option {
	return func(p *Pipeline) {
		if len(keyValues)%2 != 0 {
			p.errs = append(p.errs, fmt.Errorf("WithLabels: key %q has no value", keyValues[len(keyValues)-1]))
			return
		}
		p.labels = append(p.labels, keyValues...)
	}
}

// New returns an empty Pipeline.
func New(opts ...Option) *Pipeline {
	p := &Pipeline{}
	for _, o := range opts {
		o(p)
	}
	return p
}

// node is one stage inside its pipeline.
type node struct {
	p     *Pipeline
	name  string
	run   func(ctx context.Context) error
	in    endpoint   // nil for a source
	outs  []endpoint // the main output first
	tee   bool
	meter meter
	mark  mark

	ctx    context.Context // lives as long as Run; kept here to be made before any stage starts
	cancel context.CancelCauseFunc
}

// outStopped ends the stage once none of its outputs is read any more. What it
// is still doing could go nowhere.
func (n *node) outStopped() {
	if n.stopped() {
		n.cancel(ErrStopped)
	}
}

// stopped reports whether all consumers of n are gone.
func (n *node) stopped() bool {
	for _, o := range n.outs {
		if !o.isStopped() {
			return false
		}
	}
	return len(n.outs) > 0
}

// items is the number of items that n received, or sent if it is a source.
func (n *node) items() uint64 {
	if n.in != nil {
		return n.in.stats().received
	}
	if len(n.outs) == 0 {
		return 0
	}
	// A source works on the item after the last one it sent.
	return n.outs[0].stats().sent + 1
}

// runState is what the goroutines of one Run share.
type runState struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	failures []error
}

// Run starts all stages and waits until all have returned. It may be called
// once. It returns nil if every stage ended well, the cause of ctx if ctx was
// done before the last stage ended, and otherwise the first failure, a
// *StageError or *PanicError, as "stage NAME: ...". Failures of other stages
// that are not mere echoes of the first are joined to it. errors.Is and
// errors.As reach all of them.
func (p *Pipeline) Run(ctx context.Context) error {
	if p.started.Swap(true) {
		return errors.New("pipeline: Run was called before; build a new Pipeline for each run")
	}
	if err := p.check(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r := &runState{}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	start := time.Now()
	for _, n := range p.nodes {
		n.ctx, n.cancel = context.WithCancelCause(r.ctx)
		n.ctx = pprof.WithLabels(n.ctx, pprof.Labels(append([]string{"stage", n.name}, p.labels...)...))
		n.meter.run(start, n.in != nil)
	}
	var wg sync.WaitGroup
	for _, n := range p.nodes {
		wg.Go(func() { n.main(r) })
	}
	wg.Wait()
	return r.result()
}

// main is the goroutine of a stage.
func (n *node) main(r *runState) {
	pprof.SetGoroutineLabels(n.ctx)
	sc := &scope{node: n, mark: &n.mark}
	ctx := context.WithValue(n.ctx, scopeKey{}, sc)
	err := errGoexit // stays if the goroutine ends without returning here
	defer func() {
		n.meter.finish()
		n.leave(r, sc, err)
	}()
	err = guard(sc, func() error {
		if trace.IsEnabled() {
			var task *trace.Task
			ctx, task = trace.NewTask(ctx, "stage "+n.name)
			defer task.End()
		}
		return n.run(ctx)
	})
}

// leave tells the neighbours and the run how the stage ended. The order
// matters: a failure cancels the run before a link is closed or stopped, so
// that no neighbour takes it for a normal end.
func (n *node) leave(r *runState, sc *scope, err error) {
	defer n.cancel(nil)
	r.report(n, err)
	if err == nil && r.ctx.Err() == nil {
		for _, o := range n.outs {
			o.close()
		}
	}
	if n.in != nil {
		// Release is not our code.
		if err := guard(sc, func() error { n.in.stop(); return nil }); err != nil {
			r.report(n, err)
			guardedStop(sc, n.in)
		}
	}
}

// guardedStop goes on releasing after a panic in Release. Each call takes at
// least one item off the queue, so it ends.
func guardedStop(sc *scope, in endpoint) {
	for guard(sc, func() error { in.stop(); return nil }) != nil {
	}
}

// report sorts a stage's result into good end, echo and failure, and cancels
// the run at the first failure.
func (r *runState) report(n *node, err error) {
	if err == nil {
		return
	}
	var pe *PanicError
	if !errors.As(err, &pe) {
		// Only here: the value of a panic may be context.Canceled.
		if n.stopped() && (errors.Is(err, ErrStopped) || errors.Is(err, context.Canceled)) {
			return
		}
		if r.ctx.Err() != nil && r.echo(err) {
			return
		}
		err = stageError(n, err)
	} else if r.echoOfPanic(pe) {
		return
	} else if error(pe) != err || pe.Stage != n.name {
		err = stageError(n, err)
	}
	r.mu.Lock()
	r.failures = append(r.failures, err)
	first := len(r.failures) == 1
	r.mu.Unlock()
	if first {
		r.cancel(err)
	}
}

// echo reports whether err only repeats that the run is over.
func (r *runState) echo(err error) bool {
	return errors.Is(err, context.Cause(r.ctx)) || errors.Is(err, r.ctx.Err()) ||
		errors.Is(err, context.Canceled) || errors.Is(err, ErrStopped)
}

// echoOfPanic reports whether pe is the panic that ended the run, seen by
// another stage as the cause of its context.
func (r *runState) echoOfPanic(pe *PanicError) bool {
	var cause *PanicError
	return errors.As(context.Cause(r.ctx), &cause) && cause == pe
}

func stageError(n *node, err error) *StageError {
	record := n.mark.name()
	var marked *markedError
	if errors.As(err, &marked) {
		record = marked.record
	}
	return &StageError{Stage: n.name, Record: record, Err: err}
}

func (r *runState) result() error {
	// No lock: all stages have returned.
	cause := context.Cause(r.ctx)
	all := r.failures
	if cause != nil && (len(all) == 0 || all[0] != cause) {
		all = append([]error{cause}, all...)
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// guard calls f and turns a panic into a *PanicError.
func guard(sc *scope, f func() error) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			err = &PanicError{Stage: sc.stage(), Record: sc.record(), Value: v, Stack: debug.Stack()}
		}
	}()
	err = f()
	returned = true
	return err
}
