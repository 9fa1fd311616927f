package gpu

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Lane is one of the in-order queues that a Program runs on. Work on different
// lanes overlaps unless the declared accesses forbid it.
type Lane uint8

// The lanes of a Program.
const (
	Math Lane = iota // forward, backward, optimiser
	Comm             // collectives between devices

	numLanes
)

func (l Lane) String() string { return [...]string{"math", "comm"}[l] }

// arenaAlign is the alignment of temporaries in bytes: the stricter of a cache
// line and what CUDA allocations promise.
const arenaAlign = 256

type buffer struct {
	name        string
	t           Tensor
	extern      bool
	first, last int   // steps of the first and last access, -1 when unused
	off         int64 // place in the arena, for temporaries
}

// step is one op on one lane, with what it waits for.
type step struct {
	op     Op
	lane   Lane
	reads  []Span
	writes []Span
	waits  []int // steps on other lanes that must have finished
	record int   // event number recorded after the op, or -1
}

// Program is a list of ops with the buffers they use: recorded once, sealed,
// bound to a device, replayed every step. Recording is not safe for concurrent
// use; a sealed Program is immutable.
//
//	Temp / Extern     declare buffers
//	On(lane).Add      append ops
//	Seal              place temporaries by lifetime, derive waits between lanes
//	Bind              give memory, prepare ops
type Program struct {
	name   string
	bufs   []buffer
	steps  []step
	err    error
	sealed bool
	plain  bool
	multi  bool // ops stand on more lanes than Math
	arena  int64
	events int
}

// NewProgram returns an empty Program. The name is for dumps and errors.
func NewProgram(name string) *Program { return &Program{name: name} }

// Name returns the name given to NewProgram.
func (p *Program) Name() string { return p.name }

func (p *Program) declare(name string, extern bool, dt DType, shape []int) Tensor {
	if p.sealed {
		p.fail(fmt.Errorf("buffer %s declared after Seal", name))
	}
	t := NewTensor(Span{}, dt, shape...)
	t.Span = Span{Dev: Unbound, Mem: uint32(len(p.bufs)), Len: int64(t.Elems()) * dt.Size()}
	p.bufs = append(p.bufs, buffer{name: name, t: t, extern: extern, first: -1, last: -1})
	return t
}

// Temp declares a buffer whose lifetime and place the planner finds. Its
// content is undefined until an op of the same replay writes it.
func (p *Program) Temp(name string, dt DType, shape ...int) Tensor {
	return p.declare(name, false, dt, shape)
}

// Extern declares a buffer that the caller owns and gives at Bind by name.
// Names of externs are unique.
func (p *Program) Extern(name string, dt DType, shape ...int) Tensor {
	for _, b := range p.bufs {
		if b.extern && b.name == name {
			p.fail(fmt.Errorf("extern %s declared twice", name))
		}
	}
	return p.declare(name, true, dt, shape)
}

// KeepApart turns off the sharing of memory between temporaries, so that a
// test can compare a planned Program with an unaliased one. Call it before Seal.
func (p *Program) KeepApart() { p.plain = true }

func (p *Program) fail(err error) {
	if p.err == nil {
		p.err = fmt.Errorf("program %s: %w", p.name, err)
	}
}

// Recorder appends ops to one lane of a Program.
type Recorder struct {
	p    *Program
	lane Lane
}

// On returns a recorder for lane l.
func (p *Program) On(l Lane) *Recorder { return &Recorder{p, l} }

// Program returns the Program recorded into.
func (r *Recorder) Program() *Program { return r.p }

// Fail makes err the result of Seal, unless an earlier one already is.
func (r *Recorder) Fail(err error) { r.p.fail(err) }

// Add appends op. A recording error sticks and is reported by Seal.
func (r *Recorder) Add(op Op) {
	p := r.p
	if p.err != nil {
		return
	}
	if p.sealed {
		p.fail(fmt.Errorf("op %s added after Seal", op.Name()))
		return
	}
	reads, writes := op.Access()
	for _, s := range slices.Concat(reads, writes) {
		if s.Dev != Unbound || int(s.Mem) >= len(p.bufs) {
			p.fail(fmt.Errorf("op %d %s: access to a span that is no buffer of this program", len(p.steps), op.Name()))
			return
		}
		if b := p.bufs[s.Mem].t; s.Off < 0 || s.Off+s.Len > b.Len {
			p.fail(fmt.Errorf("op %d %s: bytes [%d,%d) of buffer %s, which has %d", len(p.steps), op.Name(), s.Off, s.Off+s.Len, p.bufs[s.Mem].name, b.Len))
			return
		}
	}
	p.steps = append(p.steps, step{op: op, lane: r.lane, reads: reads, writes: writes, record: -1})
}

// Seal ends recording: it checks that every temporary is written before it is
// read, places temporaries in one arena by lifetime, and derives the waits
// between lanes. It returns the first recording error.
func (p *Program) Seal() error {
	if p.err != nil {
		return p.err
	}
	if p.sealed {
		return nil
	}
	if len(p.steps) == 0 {
		return fmt.Errorf("program %s: no ops", p.name)
	}
	if err := p.lifetimes(); err != nil {
		p.err = err
		return err
	}
	p.place()
	p.deriveWaits()
	p.sealed = true
	return nil
}

func (p *Program) lifetimes() error {
	for i, s := range p.steps {
		for _, r := range s.reads {
			if b := &p.bufs[r.Mem]; !b.extern && b.first < 0 {
				return fmt.Errorf("program %s: op %d %s reads temporary %s, which nothing has written", p.name, i, s.op.Name(), b.name)
			}
		}
		for _, r := range slices.Concat(s.reads, s.writes) {
			b := &p.bufs[r.Mem]
			if b.first < 0 {
				b.first = i
			}
			b.last = i
		}
	}
	return nil
}

// place gives every temporary an offset: largest first, at the lowest offset
// that no buffer alive at the same time occupies.
func (p *Program) place() {
	var order []*buffer
	for i := range p.bufs {
		if b := &p.bufs[i]; !b.extern && b.first >= 0 {
			order = append(order, b)
		}
	}
	slices.SortStableFunc(order, func(a, b *buffer) int {
		switch {
		case a.t.Len > b.t.Len:
			return -1
		case a.t.Len < b.t.Len:
			return 1
		}
		return 0
	})
	up := func(n int64) int64 { return (n + arenaAlign - 1) &^ (arenaAlign - 1) }
	var busy []*buffer
	for i, b := range order {
		busy = busy[:0]
		for _, o := range order[:i] {
			if p.plain || o.first <= b.last && b.first <= o.last {
				busy = append(busy, o)
			}
		}
		slices.SortFunc(busy, func(x, y *buffer) int { return int(min(max(x.off-y.off, -1), 1)) })
		for _, o := range busy {
			if b.off+up(b.t.Len) <= o.off {
				break
			}
			b.off = max(b.off, o.off+up(o.t.Len))
		}
		p.arena = max(p.arena, b.off+up(b.t.Len))
	}
}

// physical maps a Program span to the memory it will occupy: temporaries to
// the arena (Mem 0), externs to themselves. Two spans share bytes after Bind
// if and only if their physical spans overlap, provided that the caller binds
// different externs to different memory.
func (p *Program) physical(s Span) Span {
	b := &p.bufs[s.Mem]
	if b.extern {
		return Span{Mem: s.Mem + 1, Off: s.Off, Len: s.Len}
	}
	return Span{Off: b.off + s.Off, Len: s.Len}
}

func conflict(p *Program, a, b *step) bool {
	hit := func(xs, ys []Span) bool {
		for _, x := range xs {
			for _, y := range ys {
				if p.physical(x).overlaps(p.physical(y)) {
					return true
				}
			}
		}
		return false
	}
	return hit(a.writes, b.writes) || hit(a.writes, b.reads) || hit(a.reads, b.writes)
}

// deriveWaits makes each op wait for the newest conflicting op of every other
// lane; lanes are in order, so that covers the older ones.
func (p *Program) deriveWaits() {
	var seen [numLanes]bool
	for _, s := range p.steps {
		seen[s.lane] = true
	}
	p.multi = seen[Comm]
	if !p.multi {
		return
	}
	// waited[a][b] is the newest step of lane b that lane a already waits for.
	var waited [numLanes][numLanes]int
	for a := range waited {
		for b := range waited[a] {
			waited[a][b] = -1
		}
	}
	for i := range p.steps {
		s := &p.steps[i]
		var found [numLanes]bool
		found[s.lane] = true
		for j := i - 1; j >= 0; j-- {
			o := &p.steps[j]
			if found[o.lane] {
				continue
			}
			if j <= waited[s.lane][o.lane] {
				found[o.lane] = true
				continue
			}
			if !conflict(p, s, o) {
				continue
			}
			found[o.lane] = true
			waited[s.lane][o.lane] = j
			if o.record < 0 {
				o.record = p.events
				p.events++
			}
			s.waits = append(s.waits, j)
		}
	}
}

// ArenaBytes is the memory for temporaries that Bind needs.
func (p *Program) ArenaBytes() int64 { return p.arena }

// TempBytes is what the temporaries would need without sharing.
func (p *Program) TempBytes() (n int64) {
	for _, b := range p.bufs {
		if !b.extern {
			n += b.t.Len
		}
	}
	return n
}

// Cost sums the cost of all ops.
func (p *Program) Cost() (c Cost) {
	for _, s := range p.steps {
		c = c.Plus(s.op.Cost())
	}
	return c
}

// Len returns the number of recorded ops.
func (p *Program) Len() int { return len(p.steps) }

// Dump writes one line an op: number, lane, kernel, what it writes, what it
// reads, what it waits for. Two Programs with equal dumps do the same work.
func (p *Program) Dump(w io.Writer) error {
	var errs []error
	put := func(format string, args ...any) {
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			errs = append(errs, err)
		}
	}
	put("program %s: %d ops, %d buffers\n", p.name, len(p.steps), len(p.bufs))
	for i, s := range p.steps {
		put("%4d %s %-14s %s <- %s", i, s.lane, s.op.Name(), p.names(s.writes), p.names(s.reads))
		for _, j := range s.waits {
			put(" | waits for %d", j)
		}
		put("\n")
	}
	return errors.Join(errs...)
}

func (p *Program) names(spans []Span) string {
	var b strings.Builder
	for i, s := range spans {
		if i > 0 {
			b.WriteByte(' ')
		}
		o := &p.bufs[s.Mem]
		b.WriteString(o.name)
		if s.Off != 0 || s.Len != o.t.Len {
			fmt.Fprintf(&b, "[%d:%d]", s.Off, s.Off+s.Len)
		}
	}
	return b.String()
}
