package pipeline

import (
	"context"
	"fmt"
	"io"
	"runtime/trace"
	"sync"
	"sync/atomic"
)

// windowPerWorker is the number of items in flight for each worker of
// Ordered. With 1 a single long item would stop all other workers after one
// item each; 4 lets them run on past an item of four times the usual cost.
const windowPerWorker = 4

// Window is the most items that Ordered with n workers holds between its Recv
// and its Send. A Pool from which f takes a buffer for its result must have
// more than Window(n) of them, or the oldest item could wait for a buffer held
// by results that wait for it.
func Window(n int) int { return n * windowPerWorker }

// Ordered is a stage that calls f on n goroutines and sends the results in the
// order of the input. f must not depend on anything but its argument; then
// the output is the same for every n.
//
// The first error in the order of the items ends the stage, after the
// results before it were sent. n is at least 1.
func Ordered[A, B any](n int, f func(ctx context.Context, a A) (B, error)) Stage[A, B] {
	return OrderedWith(n, Window(n),
		func(int) struct{} { return struct{}{} },
		func(ctx context.Context, _ *struct{}, a A) (B, error) { return f(ctx, a) })
}

// OrderedWith is Ordered for workers that keep something between items, such
// as a cache or scratch memory, with a window of its own: at most that many items are
// held, at least n. Where items may be very unequal, a large one lets the other workers
// run on past one that takes long. newState is called once by each worker, numbered
// from 0; only that worker uses what it returns. The state must not change
// results, because which worker gets an item depends on the schedule.
func OrderedWith[A, B, S any](n, window int, newState func(worker int) S,
	f func(ctx context.Context, s *S, a A) (B, error)) Stage[A, B] {
	return StageFunc[A, B](func(ctx context.Context, in In[A], out Out[B]) error {
		if n < 1 {
			return fmt.Errorf("pipeline: Ordered with %d workers; use at least 1", n)
		}
		if window < n {
			return fmt.Errorf("pipeline: Ordered with a window of %d items for %d workers; each holds one", window, n)
		}
		o := &ordered[A, B, S]{
			in: in, out: out, newState: newState, f: f,
			meter: scopeOf(ctx).meter(), region: regionName(ctx),
			slots: make(chan struct{}, window), turn: make(chan struct{}, 1),
			ring: make([]result[B], window),
		}
		o.meter.setWorkers(n)
		idle := make([]int64, n) // when each worker ended; a worker without work is starved
		g := NewGroup(ctx)
		for i := range n {
			g.Go(func(ctx context.Context) error {
				defer func() { idle[i] = o.meter.begin(starved) }()
				return o.work(ctx, i)
			})
		}
		err := g.Wait()
		for i := range idle {
			o.meter.end(starved, idle[i])
		}
		o.discard()
		return err
	})
}

// ordered is one run of OrderedWith. There is no goroutine for each item, none
// that only feeds and none that only sends: a worker takes a slot of the
// window, takes its turn to receive, works, and puts its result into the ring.
// Whoever completes the head of the ring sends until the head is missing.
// So a worker is always in one of three states, busy, starved (turn, Recv) or
// blocked (slot, Send), and the stage's times are means over the workers.
type ordered[A, B, S any] struct {
	in       In[A]
	out      Out[B]
	newState func(int) S
	f        func(context.Context, *S, A) (B, error)
	meter    *meter
	region   string

	slots chan struct{} // filled by items in flight
	turn  chan struct{} // filled while a worker receives; guards next and eof
	next  uint64
	eof   bool

	failed atomic.Bool // a result is an error: receive no more

	mu      sync.Mutex
	ring    []result[B] // item i is at i mod len
	head    uint64      // the next item to send
	sending bool        // a worker is sending; stays true after a failure
}

type result[B any] struct {
	b     B
	err   error
	ready bool
}

func (o *ordered[A, B, S]) work(ctx context.Context, worker int) error {
	state := o.newState(worker)
	mark := scopeOf(ctx).mark
	for {
		if err := o.take(ctx, o.slots, blocked); err != nil {
			return err
		}
		if err := o.take(ctx, o.turn, starved); err != nil {
			return err
		}
		if o.eof || o.failed.Load() {
			<-o.turn
			<-o.slots
			return nil
		}
		a, err := o.in.Recv(ctx)
		if err != nil {
			end := err == io.EOF
			o.eof = end
			<-o.turn
			if end {
				<-o.slots
				return nil
			}
			return err
		}
		seq := o.next
		o.next++
		<-o.turn
		mark.next(seq)
		b, err := o.call(ctx, &state, a)
		if err != nil {
			if name := mark.name(); name != "" {
				err = &markedError{name, err}
			}
		}
		if err := o.deliver(ctx, seq, b, err); err != nil {
			return err
		}
	}
}

func (o *ordered[A, B, S]) call(ctx context.Context, s *S, a A) (B, error) {
	region := trace.StartRegion(ctx, o.region)
	defer region.End()
	return o.f(ctx, s, a)
}

// take fills a place of c; waiting for one counts as w.
func (o *ordered[A, B, S]) take(ctx context.Context, c chan struct{}, w wait) error {
	select {
	case c <- struct{}{}:
		return nil
	default:
	}
	since := o.meter.begin(w)
	defer o.meter.end(w, since)
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// deliver stores the result of item seq and, if nobody else is, sends all that
// is ready in order.
func (o *ordered[A, B, S]) deliver(ctx context.Context, seq uint64, b B, err error) error {
	size := uint64(len(o.ring))
	o.mu.Lock()
	o.ring[seq%size] = result[B]{b, err, true}
	if err != nil {
		o.failed.Store(true)
	}
	if o.sending {
		o.mu.Unlock()
		return nil
	}
	o.sending = true
	for {
		at := &o.ring[o.head%size]
		if !at.ready {
			o.sending = false
			o.mu.Unlock()
			return nil
		}
		r := *at
		*at = result[B]{}
		o.head++
		o.mu.Unlock()
		if r.err != nil {
			return r.err
		}
		if err := o.out.Send(ctx, r.b); err != nil {
			return err
		}
		<-o.slots
		o.mu.Lock()
	}
}

// discard releases results that were never sent, after all workers ended.
func (o *ordered[A, B, S]) discard() {
	for i := range o.ring {
		if r := o.ring[i]; r.ready && r.err == nil {
			Discard(o.out, r.b)
		}
	}
}
