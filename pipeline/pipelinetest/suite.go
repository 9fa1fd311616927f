package pipelinetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"

	"go.uber.org/goleak"

	"refrain/pipeline"
)

// suite is what the three kinds of cases come down to.
type suite[A, B any] struct {
	hasIn, hasOut bool
	newStage      func() pipeline.Stage[A, B]
	inputs        func() []A
	take          int
	want          func([]B) error
	equal         func(a, b B) bool
	release       func(B)
	keep          func(B) B
	releaseInput  func(A)
	done          func(*result[B]) error
	emptyFails    bool
	limits        Limits

	whole []B // the output of the first whole run
}

// scenario is one way to run the stage. Cut fields count items; never means
// that it does not happen.
type scenario struct {
	inCap, outCap int
	shake         uint64 // 0 for none
	slow          time.Duration
	empty         bool

	producerFails, producerPanics int // after so many inputs
	cancelIn, cancelOut           int // at so many inputs sent, outputs received
	consumerStops, consumerFails  int // after so many outputs

	// late makes the producer fail or cancel only when the stage has received
	// all items before and has had time to wait for the next, and makes the
	// consumer stop or cancel only when the stage has had time to fill the link.
	late bool
}

const never = -1

func plain() scenario {
	return scenario{inCap: 2, outCap: 2, producerFails: never, producerPanics: never,
		cancelIn: never, cancelOut: never, consumerStops: never, consumerFails: never}
}

// result is what a run left.
type result[B any] struct {
	got      []B
	received int
	eof      bool
	fired    error // the injected failure that happened, if any
	stageErr error
	err      error
}

var (
	errHung     = errors.New("the run did not end")
	errProducer = errors.New("injected failure of the producer")
	errConsumer = errors.New("injected failure of the consumer")
	errCancel   = errors.New("injected cancellation")
	errPanic    = errors.New("injected panic of the producer")
)

// each calls do for every scenario until do returns false.
func (s *suite[A, B]) each(do func(name string, check func() error) bool) {
	leaks := goleak.IgnoreCurrent()
	ok := true
	one := func(name string, sc scenario) {
		if ok {
			ok = do(name, func() error { return s.check(sc, leaks) })
		}
	}
	wholeOK := false
	ok = do("drain", func() error {
		err := s.checkWhole(leaks)
		wholeOK = err == nil
		return err
	})
	if !wholeOK {
		return // the other scenarios compare with this one
	}
	for _, capacity := range []int{1, 3, 64} {
		for seed := range uint64(2) {
			sc := plain()
			sc.inCap, sc.outCap, sc.shake = capacity, capacity, seed+1
			one(fmt.Sprintf("drain/cap=%d/shake=%d", capacity, seed+1), sc)
		}
	}
	sc := plain()
	if s.hasOut {
		sc.inCap, sc.outCap, sc.slow = 1, 1, 200*time.Microsecond
		one("slow consumer", sc)
	}
	if s.hasIn {
		sc = plain()
		sc.empty = true
		one("empty input", sc)
		inputs := s.numInputs()
		for _, k := range s.cuts(inputs, s.limits.MaxCuts) {
			sc = plain()
			sc.producerFails = k
			one(fmt.Sprintf("producer fails/after=%d", k), sc)
			sc = plain()
			sc.cancelIn = k
			one(fmt.Sprintf("cancel/input=%d", k), sc)
			sc = plain()
			sc.producerFails, sc.late = k, true
			one(fmt.Sprintf("producer fails late/after=%d", k), sc)
			sc = plain()
			sc.cancelIn, sc.late = k, true
			one(fmt.Sprintf("cancel late/input=%d", k), sc)
		}
		for _, k := range s.cuts(inputs, 3) {
			sc = plain()
			sc.producerPanics = k
			one(fmt.Sprintf("producer panics/after=%d", k), sc)
		}
	}
	if s.hasOut {
		for _, k := range s.cuts(len(s.whole), s.limits.MaxCuts) {
			sc = plain()
			sc.cancelOut = k
			one(fmt.Sprintf("cancel/output=%d", k), sc)
			sc = plain()
			sc.consumerStops = k
			one(fmt.Sprintf("consumer stops/after=%d", k), sc)
			sc = plain()
			sc.outCap, sc.cancelOut, sc.late = 1, k, true
			one(fmt.Sprintf("cancel late/output=%d", k), sc)
			sc = plain()
			sc.outCap, sc.consumerStops, sc.late = 1, k, true
			one(fmt.Sprintf("consumer stops late/after=%d", k), sc)
		}
		for _, k := range s.cuts(len(s.whole), 3) {
			sc = plain()
			sc.consumerFails = k
			one(fmt.Sprintf("consumer fails/after=%d", k), sc)
		}
	}
}

// numInputs makes the inputs once to count them, and takes them back.
func (s *suite[A, B]) numInputs() int {
	inputs := s.inputs()
	for _, a := range inputs {
		s.releaseInput(a)
	}
	return len(inputs)
}

// cuts returns at most limit places from 0 to n, both included.
func (s *suite[A, B]) cuts(n, limit int) []int {
	var cuts []int
	steps := min(n, max(limit-1, 1))
	for i := range steps + 1 {
		cuts = append(cuts, i*n/max(steps, 1))
	}
	return cuts
}

// checkWhole makes the first whole run and keeps its output.
func (s *suite[A, B]) checkWhole(leaks goleak.Option) error {
	r, err := s.execute(plain())
	if err != nil {
		return err
	}
	errs := []error{s.after(r, leaks)}
	if r.err != nil {
		errs = append(errs, fmt.Errorf("Run failed: %w", r.err))
	} else if err := s.want(r.got); err != nil {
		errs = append(errs, fmt.Errorf("the output is wrong: %w", err))
	}
	s.whole = r.got
	return errors.Join(errs...)
}

// check makes one run and holds it against the contract.
func (s *suite[A, B]) check(sc scenario, leaks goleak.Option) error {
	r, err := s.execute(sc)
	if err != nil {
		return err
	}
	errs := []error{s.after(r, leaks)}
	if !sc.empty {
		errs = append(errs, s.isPrefix(r.got))
	}
	switch {
	case sc.empty && s.emptyFails:
		if r.err == nil {
			errs = append(errs, errors.New("an empty input was accepted; EmptyFails says it is not"))
		}
	case r.fired == nil:
		if r.err != nil {
			errs = append(errs, fmt.Errorf("Run failed: %w", r.err))
		}
		if n := s.expected(sc); !sc.empty && len(r.got) != n {
			errs = append(errs, fmt.Errorf("%d outputs, want %d", len(r.got), n))
		}
	default:
		errs = append(errs, s.reported(r))
	}
	return errors.Join(errs...)
}

// expected is the number of outputs of a run in which nothing failed.
func (s *suite[A, B]) expected(sc scenario) int {
	n := len(s.whole)
	if sc.consumerStops >= 0 {
		n = min(n, sc.consumerStops)
	}
	return n
}

// reported checks that Run names what was injected, and nothing else.
func (s *suite[A, B]) reported(r *result[B]) error {
	if !errors.Is(r.err, r.fired) {
		return fmt.Errorf("Run returned %v; want the %w", r.err, r.fired)
	}
	var se *pipeline.StageError
	var pe *pipeline.PanicError
	switch r.fired {
	case errCancel:
		if r.err != errCancel {
			return fmt.Errorf("after a cancellation Run also reports a failure of the stage: %w", r.err)
		}
	case errPanic:
		if !errors.As(r.err, &pe) || pe.Stage != producerName || error(pe) != r.err {
			return fmt.Errorf("a panic of the producer is reported as: %w", r.err)
		}
	case errProducer, errConsumer:
		if !errors.As(r.err, &se) || se.Stage == stageName || error(se) != r.err {
			return fmt.Errorf("the %w is reported as: %w", r.fired, r.err)
		}
	}
	return nil
}

func (s *suite[A, B]) isPrefix(got []B) error {
	if len(got) > len(s.whole) {
		return fmt.Errorf("%d outputs, more than the %d of the whole run", len(got), len(s.whole))
	}
	for i := range got {
		if !s.equal(got[i], s.whole[i]) {
			return fmt.Errorf("output %d is %v; in the whole run it was %v", i, got[i], s.whole[i])
		}
	}
	return nil
}

// after checks what must hold after any run.
func (s *suite[A, B]) after(r *result[B], leaks goleak.Option) error {
	var errs []error
	if err := goleak.Find(leaks); err != nil {
		errs = append(errs, fmt.Errorf("the stage left a goroutine behind: %w", err))
	}
	if err := s.done(r); err != nil {
		errs = append(errs, fmt.Errorf("Done: %w", err))
	}
	return errors.Join(errs...)
}

const (
	producerName = "producer"
	stageName    = "stage under test"
	consumerName = "consumer"
)

// execute runs the stage once. Its error says that the run never ended or
// that the stage broke the contract of its ends.
func (s *suite[A, B]) execute(sc scenario) (*result[B], error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var opts []pipeline.Option
	if sc.shake > 0 {
		opts = append(opts, pipeline.WithShake(sc.shake))
	}
	p := pipeline.New(opts...)
	r := &runner[A, B]{s: s, sc: sc, cancel: cancel}
	outCfg := pipeline.LinkConfig{Items: sc.outCap, Release: pipeline.ReleaseOf(s.release)}
	var out *pipeline.Link[B]
	switch {
	case !s.hasIn:
		// A is struct{} here; the assertion lets one code serve all kinds.
		st, ok := any(pipeline.StageFunc[A, B](r.stage)).(pipeline.Stage[struct{}, B])
		if !ok {
			return nil, errors.New("pipelinetest: a source must have input struct{}")
		}
		out = pipeline.Source(p, stageName, outCfg, st)
	default:
		in := pipeline.Source(p, producerName,
			pipeline.LinkConfig{Items: sc.inCap, Release: pipeline.ReleaseOf(s.releaseInput)},
			pipeline.StageFunc[struct{}, A](r.produce))
		if s.hasOut {
			out = pipeline.Then(p, stageName, in, outCfg, pipeline.StageFunc[A, B](r.stage))
			break
		}
		st, ok := any(pipeline.StageFunc[A, B](r.stage)).(pipeline.Stage[A, struct{}])
		if !ok {
			return nil, errors.New("pipelinetest: a sink must have output struct{}")
		}
		pipeline.Sink(p, stageName, in, st)
	}
	if s.hasOut {
		pipeline.Sink(p, consumerName, out, pipeline.StageFunc[B, struct{}](r.consume))
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	timer := time.NewTimer(s.limits.Timeout)
	defer timer.Stop()
	select {
	case r.err = <-ended:
	case <-timer.C:
		return nil, fmt.Errorf("%w within %v; stages: %+v\n%s", errHung, s.limits.Timeout, p.Stats(), stacks())
	}
	return &r.result, r.contract()
}

func stacks() string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	return strings.TrimSpace(string(buf))
}

// runner plays producer and consumer of one run and watches the stage's ends.
type runner[A, B any] struct {
	s      *suite[A, B]
	sc     scenario
	cancel context.CancelCauseFunc

	mu sync.Mutex // guards the fields below while the run goes on
	result[B]
	recvErr, sendErr error // the first error that the ends gave to the stage
	late             error // the stage used its ends after it had returned
	returned         bool
}

// fire records an injected failure.
func (r *runner[A, B]) fire(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fired == nil {
		r.fired = err
	}
	return err
}

func (r *runner[A, B]) produce(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[A]) error {
	var inputs []A
	if !r.sc.empty {
		inputs = r.s.inputs()
	}
	for i := 0; ; i++ {
		if r.sc.late && (i == r.sc.producerFails || i == r.sc.cancelIn) {
			r.awaitReceived(ctx, i)
		}
		switch i {
		case r.sc.producerFails:
			r.giveBack(inputs[i:])
			return r.fire(errProducer)
		case r.sc.producerPanics:
			r.giveBack(inputs[i:])
			panic(r.fire(errPanic))
		case r.sc.cancelIn:
			r.cancel(r.fire(errCancel))
		}
		if i == len(inputs) {
			return nil
		}
		if err := out.Send(ctx, inputs[i]); err != nil {
			r.giveBack(inputs[i+1:])
			return err
		}
	}
}

// settle is the time that a stage is given to reach its next wait.
const settle = 600 * time.Microsecond

// awaitReceived waits until the stage has received n items, and a little more,
// or has ended. A stage need not receive soon, so this polls: an exact signal
// from Recv would come before the stage waits for the next item.
func (r *runner[A, B]) awaitReceived(ctx context.Context, n int) {
	const polls = 3
	tick := time.NewTicker(settle / polls)
	defer tick.Stop()
	for idle := 0; idle < polls; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		r.mu.Lock()
		if r.received >= n {
			idle++
		}
		r.mu.Unlock()
	}
}

func (r *runner[A, B]) giveBack(inputs []A) {
	for _, a := range inputs {
		r.s.releaseInput(a)
	}
}

func (r *runner[A, B]) consume(ctx context.Context, in pipeline.In[B], _ pipeline.Out[struct{}]) error {
	for i := 0; ; i++ {
		if r.sc.late && (i == r.sc.consumerStops || i == r.sc.cancelOut) {
			time.Sleep(settle)
		}
		switch i {
		case r.sc.consumerFails:
			return r.fire(errConsumer)
		case r.sc.cancelOut:
			r.cancel(r.fire(errCancel))
		case r.sc.consumerStops:
			return nil
		}
		if i == r.s.take && i > 0 {
			return nil
		}
		b, err := in.Recv(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		r.got = append(r.got, r.s.keep(b))
		r.s.release(b)
		if r.sc.slow > 0 {
			time.Sleep(r.sc.slow)
		}
	}
}

// stage runs the stage under test between watched ends.
func (r *runner[A, B]) stage(ctx context.Context, in pipeline.In[A], out pipeline.Out[B]) error {
	err := r.s.newStage().Run(ctx, watchedIn[A, B]{r, in}, watchedOut[A, B]{r, out})
	r.mu.Lock()
	r.returned, r.stageErr = true, err
	r.mu.Unlock()
	return err
}

type watchedIn[A, B any] struct {
	r  *runner[A, B]
	in pipeline.In[A]
}

func (w watchedIn[A, B]) Recv(ctx context.Context) (A, error) {
	a, err := w.in.Recv(ctx)
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.note("Recv")
	switch {
	case err == nil:
		w.r.received++
	case err == io.EOF:
		w.r.eof = true
	case w.r.recvErr == nil:
		w.r.recvErr = err
	}
	return a, err
}

type watchedOut[A, B any] struct {
	r   *runner[A, B]
	out pipeline.Out[B]
}

func (w watchedOut[A, B]) Send(ctx context.Context, b B) error {
	err := w.out.Send(ctx, b)
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.note("Send")
	if err != nil && !errors.Is(err, pipeline.ErrStopped) && w.r.sendErr == nil {
		w.r.sendErr = err
	}
	return err
}

// Discard lets stages under test give back what they will not send.
func (w watchedOut[A, B]) Discard(b B) { pipeline.Discard(w.out, b) }

func (r *runner[A, B]) note(call string) {
	if r.returned && r.late == nil {
		r.late = fmt.Errorf("the stage called %s after its Run had returned", call)
	}
}

// contract checks how the stage treated its ends.
func (r *runner[A, B]) contract() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.late != nil {
		return r.late
	}
	if r.stageErr != nil || !r.returned {
		return nil
	}
	// ErrStopped may be swallowed: there is nobody left who could be misled.
	if r.recvErr != nil && !errors.Is(r.recvErr, pipeline.ErrStopped) {
		return fmt.Errorf("Recv gave the stage an error, and its Run returned nil: %w", r.recvErr)
	}
	if r.sendErr != nil {
		return fmt.Errorf("Send gave the stage an error, and its Run returned nil: %w", r.sendErr)
	}
	return nil
}
