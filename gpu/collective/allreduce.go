// Package collective exchanges gradients between the devices of one machine,
// through queues, events and peer copies only, so that it runs the same on
// every driver. Sums follow a fixed binary tree over ranks: the bits of a
// result do not depend on timing.
//
// What is here is the all-reduce of the training step; a Program records it on
// its Comm lane like any other op.
package collective

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"

	"refrain/gpu"
)

// Group connects the devices that take part in an exchange. Member(rank) is
// handed to Program.Bind on that device. Members enqueue on goroutines of their
// own, because each waits inside Exchange until its partners have come as far.
// One that cannot come any more must call Abort.
type Group struct {
	size  int
	links [][]chan token // links[from][to]

	once  sync.Once
	dead  chan struct{} // closed by Abort
	cause error         // written before dead is closed
}

// ErrAborted is wrapped by the error of an exchange that a partner called off,
// beside the partner's reason.
var ErrAborted = errors.New("collective: a partner gave up")

type token struct {
	tag int
	e   gpu.Event
	s   gpu.Span
}

// NewGroup returns a group of size devices, a power of two.
func NewGroup(size int) (*Group, error) {
	if size < 1 || size&(size-1) != 0 {
		return nil, fmt.Errorf("collective: %d devices; the sum tree needs a power of two", size)
	}
	g := &Group{size: size, links: make([][]chan token, size), dead: make(chan struct{})}
	for i := range g.links {
		g.links[i] = make([]chan token, size)
		for j := range g.links[i] {
			g.links[i][j] = make(chan token, 1) // one message in flight a pair and direction
		}
	}
	return g, nil
}

// Abort ends all exchanges, now and later, for the reason given: members that
// wait for each other return it, with ErrAborted. The first reason stays. It
// does not block and may be called from any goroutine.
func (g *Group) Abort(cause error) {
	g.once.Do(func() {
		g.cause = cause
		close(g.dead)
	})
}

func (g *Group) aborted() error { return fmt.Errorf("%w: %w", ErrAborted, g.cause) }

// Member returns rank's side of the group, with events of device d.
func (g *Group) Member(rank int, d gpu.Device) (gpu.Peers, error) {
	if rank < 0 || rank >= g.size {
		return nil, fmt.Errorf("collective: rank %d in a group of %d", rank, g.size)
	}
	m := &member{g: g, rank: rank}
	for range 2 * (bits.Len(uint(g.size)) + 1) {
		e, err := d.NewEvent()
		if err != nil {
			return nil, err
		}
		m.events = append(m.events, e)
	}
	return m, nil
}

type member struct {
	g      *Group
	rank   int
	events []gpu.Event
}

func (m *member) Rank() int             { return m.rank }
func (m *member) Size() int             { return m.g.size }
func (m *member) Event(i int) gpu.Event { return m.events[i] }

func (m *member) Swap(ctx context.Context, peer, tag int, e gpu.Event, s gpu.Span) (gpu.Event, gpu.Span, error) {
	if peer < 0 || peer >= m.g.size || peer == m.rank {
		return nil, gpu.Span{}, fmt.Errorf("collective: rank %d swaps with rank %d in a group of %d", m.rank, peer, m.g.size)
	}
	select {
	case m.g.links[m.rank][peer] <- token{tag, e, s}:
	case <-m.g.dead:
		return nil, gpu.Span{}, m.g.aborted()
	case <-ctx.Done():
		return nil, gpu.Span{}, context.Cause(ctx)
	}
	select {
	case t := <-m.g.links[peer][m.rank]:
		if t.tag != tag {
			return nil, gpu.Span{}, fmt.Errorf("collective: rank %d is at exchange %d, rank %d at %d", m.rank, tag, peer, t.tag)
		}
		return t.e, t.s, nil
	case <-m.g.dead:
		return nil, gpu.Span{}, m.g.aborted()
	case <-ctx.Done():
		return nil, gpu.Span{}, context.Cause(ctx)
	}
}

// allReduce sums buf over all ranks by recursive doubling: in round r a rank
// copies the partial sum of rank xor 2^r to scratch and adds it. Both partners
// add the same two numbers, and float addition commutes, so all ranks hold
// the same bits: those of the balanced binary tree over ranks.
type allReduce struct {
	buf, scratch gpu.Tensor
	add          gpu.Op
	size         int
}

// AllReduce records the sum of buf over size devices, a power of two, in place.
// scratch has the same shape and lies elsewhere; add is an op computing
// buf += scratch. With one device it records nothing.
func AllReduce(r *gpu.Recorder, size int, buf, scratch gpu.Tensor, add gpu.Op) {
	switch {
	case size < 1 || size&(size-1) != 0:
		r.Fail(fmt.Errorf("all_reduce over %d devices; the sum tree needs a power of two", size))
	case size == 1:
	case buf.DType != scratch.DType || buf.Len != scratch.Len:
		r.Fail(fmt.Errorf("all_reduce of %v with scratch of %v; they must be alike", buf, scratch))
	case buf.Mem == scratch.Mem && buf.Off < scratch.Off+scratch.Len && scratch.Off < buf.Off+buf.Len:
		r.Fail(errors.New("all_reduce: the scratch lies inside the buffer"))
	default:
		r.Add(&allReduce{buf, scratch, add, size})
	}
}

func (a *allReduce) Name() string { return "all_reduce" }

func (a *allReduce) Access() (reads, writes []gpu.Span) {
	return []gpu.Span{a.buf.Span}, []gpu.Span{a.buf.Span, a.scratch.Span}
}

func (a *allReduce) rounds() int { return bits.Len(uint(a.size)) - 1 }

func (a *allReduce) Cost() gpu.Cost {
	n := float64(a.buf.Elems()) * float64(a.rounds())
	return gpu.Cost{FLOPs: n, Bytes: 20 * n} // copy 8, add 12
}

// BindHost is never called: drivers bind the inner ops of a collective only.
func (a *allReduce) BindHost(gpu.Host) func() {
	panic("collective: all_reduce is enqueued by Exchange, not bound")
}

func (a *allReduce) Launch(gpu.Launcher) error {
	return fmt.Errorf("collective: all_reduce is enqueued by Exchange, not launched")
}

func (a *allReduce) Inner() []gpu.Op { return []gpu.Op{a.add} }

func (a *allReduce) Exchange(ctx context.Context, q gpu.Queue, at func(gpu.Span) gpu.Span, inner []gpu.Bound, c gpu.Peers) error {
	if c.Size() != a.size {
		return fmt.Errorf("all_reduce was recorded for %d devices and is bound to a group of %d", a.size, c.Size())
	}
	buf, scratch := at(a.buf.Span), at(a.scratch.Span)
	for r := range a.rounds() {
		peer := c.Rank() ^ 1<<r
		// My partial sum is ready; wait for the partner's, and copy it.
		ready := c.Event(2 * r)
		if err := q.Record(ready); err != nil {
			return err
		}
		theirs, span, err := c.Swap(ctx, peer, 2*r, ready, buf)
		if err != nil {
			return err
		}
		if err := q.Wait(theirs); err != nil {
			return err
		}
		if err := q.CopyPeer(scratch, span); err != nil {
			return err
		}
		// Neither may change its sum before the other has copied it.
		copied := c.Event(2*r + 1)
		if err := q.Record(copied); err != nil {
			return err
		}
		done, _, err := c.Swap(ctx, peer, 2*r+1, copied, gpu.Span{})
		if err != nil {
			return err
		}
		if err := q.Wait(done); err != nil {
			return err
		}
		if err := q.Do(inner[0]); err != nil {
			return err
		}
	}
	return nil
}
