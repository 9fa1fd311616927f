package gpu

import (
	"context"
	"errors"
	"fmt"
)

// Collective is an op that exchanges data with the same op on other devices.
// It is enqueued on its lane like any other op; Exchange may block the host
// until the peers have enqueued theirs, never until a device has finished.
type Collective interface {
	Op
	// Exchange enqueues the op on q. at maps Program spans to device spans;
	// inner are the ops of Inner, bound.
	Exchange(ctx context.Context, q Queue, at func(Span) Span, inner []Bound, c Peers) error
	// Inner lists the local ops (additions) that Exchange enqueues.
	Inner() []Op
}

// Peers is one device's view of the group of devices it exchanges with.
// gpu/collective implements it.
type Peers interface {
	Rank() int
	Size() int
	// Swap gives e and s to the device of rank peer and returns what that device
	// gave in its matching call. tag tells rounds apart; a mismatch is an error.
	Swap(ctx context.Context, peer, tag int, e Event, s Span) (Event, Span, error)
	// Event returns the group's reusable event number i of this device.
	Event(i int) Event
}

// Lanes are the queues that a Program is replayed on, one a lane.
type Lanes [numLanes]Queue

// NewLanes creates a queue of d for every lane.
func NewLanes(d Device, label string) (Lanes, error) {
	var l Lanes
	for i := range l {
		q, err := d.NewQueue(label + "/" + Lane(i).String())
		if err != nil {
			return l, err
		}
		l[i] = q
	}
	return l, nil
}

// Close waits for and ends the queues that there are.
func (l *Lanes) Close() error {
	var errs []error
	for _, q := range l {
		if q != nil {
			errs = append(errs, q.Close())
		}
	}
	return errors.Join(errs...)
}

// Binding is the memory and the peers of one Exec.
type Binding struct {
	Arena  Span            // at least ArenaBytes; may be shared by Execs that run on the same lanes
	Extern map[string]Span // every extern, by name, with exactly its length
	Peers  Peers           // nil when the Program has no collective
}

// Exec is a Program bound to a device. One goroutine at a time enqueues it.
type Exec struct {
	p      *Program
	at     []Span // device span of every buffer
	bound  []Bound
	inner  [][]Bound
	events []Event
	fork   Event // where the other lanes start
	end    Event // where they end
	peers  Peers
	res    func(Span) Span // resolve, built once so that replay allocates nothing
}

// Bind gives p memory on d and prepares every op. The Exec holds no resource
// of its own but events; memory stays the caller's.
func (p *Program) Bind(d Device, b Binding) (*Exec, error) {
	if err := p.Seal(); err != nil {
		return nil, err
	}
	if b.Arena.Len < p.arena {
		return nil, fmt.Errorf("program %s: arena of %d bytes, needs %d", p.name, b.Arena.Len, p.arena)
	}
	x := &Exec{p: p, at: make([]Span, len(p.bufs)), peers: b.Peers}
	x.res = x.resolve
	for i := range p.bufs {
		o := &p.bufs[i]
		switch {
		case o.extern:
			s, ok := b.Extern[o.name]
			if !ok {
				return nil, fmt.Errorf("program %s: extern %s is not bound", p.name, o.name)
			}
			if s.Len != o.t.Len {
				return nil, fmt.Errorf("program %s: extern %s is bound to %d bytes, needs %d", p.name, o.name, s.Len, o.t.Len)
			}
			x.at[i] = s
		case o.first >= 0:
			x.at[i] = b.Arena.Sub(o.off, o.t.Len)
		}
	}
	for i, s := range p.steps {
		k, err := x.bindOp(d, s.op)
		if err != nil {
			return nil, fmt.Errorf("program %s: op %d %s: %w", p.name, i, s.op.Name(), err)
		}
		x.bound = append(x.bound, k)
	}
	for range p.events {
		e, err := d.NewEvent()
		if err != nil {
			return nil, err
		}
		x.events = append(x.events, e)
	}
	for _, e := range []*Event{&x.fork, &x.end} {
		var err error
		if *e, err = d.NewEvent(); err != nil {
			return nil, err
		}
	}
	return x, nil
}

func (x *Exec) bindOp(d Device, op Op) (Bound, error) {
	c, ok := op.(Collective)
	if !ok {
		x.inner = append(x.inner, nil)
		return d.Bind(op, x.res)
	}
	if x.peers == nil {
		return nil, fmt.Errorf("the binding has no peers")
	}
	var inner []Bound
	for _, o := range c.Inner() {
		k, err := d.Bind(o, x.res)
		if err != nil {
			return nil, err
		}
		inner = append(inner, k)
	}
	x.inner = append(x.inner, inner)
	return nil, nil
}

func (x *Exec) resolve(s Span) Span {
	if s.Dev != Unbound {
		return s
	}
	return x.at[s.Mem].Sub(s.Off, s.Len)
}

// At returns where tensor t of the Program lies on the device.
func (x *Exec) At(t Tensor) Tensor {
	t.Span = x.resolve(t.Span)
	return t
}

// Enqueue replays the Program on q: it enqueues everything and returns. All
// lanes start after what was enqueued on q[Math] before, be it a wait for a
// batch or the replay of another Exec, and when Enqueue returns q[Math] is
// ordered after all lanes, so an event recorded there marks the end of the
// replay. It allocates nothing.
func (x *Exec) Enqueue(ctx context.Context, q *Lanes) error {
	if x.p.multi {
		if err := errors.Join(q[Math].Record(x.fork), q[Comm].Wait(x.fork)); err != nil {
			return err
		}
	}
	for i := range x.p.steps {
		s := &x.p.steps[i]
		lane := q[s.lane]
		for _, j := range s.waits {
			if err := lane.Wait(x.events[x.p.steps[j].record]); err != nil {
				return x.fail(i, err)
			}
		}
		if err := x.enqueueOp(ctx, lane, i, s); err != nil {
			return x.fail(i, err)
		}
		if s.record >= 0 {
			if err := lane.Record(x.events[s.record]); err != nil {
				return x.fail(i, err)
			}
		}
	}
	if x.p.multi {
		return errors.Join(q[Comm].Record(x.end), q[Math].Wait(x.end))
	}
	return nil
}

func (x *Exec) enqueueOp(ctx context.Context, lane Queue, i int, s *step) error {
	if c, ok := s.op.(Collective); ok {
		return c.Exchange(ctx, lane, x.res, x.inner[i], x.peers)
	}
	return lane.Do(x.bound[i])
}

func (x *Exec) fail(i int, err error) error {
	return fmt.Errorf("program %s: op %d %s on lane %s: %w", x.p.name, i, x.p.steps[i].op.Name(), x.p.steps[i].lane, err)
}
