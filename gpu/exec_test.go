package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// tape is a device that writes down what is enqueued on it.
type tape struct {
	lines  []string
	events int
	failAt string // the call that fails
	noBind string // the op that cannot be bound
}

var errTape = errors.New("the tape is cut")

func (d *tape) put(format string, args ...any) error {
	line := fmt.Sprintf(format, args...)
	if line == d.failAt {
		return errTape
	}
	d.lines = append(d.lines, line)
	return nil
}

func (d *tape) Ordinal() int                                { return 3 }
func (d *tape) Info() Info                                  { return Info{Name: "tape"} }
func (d *tape) Run(_ context.Context, f func() error) error { return f() }
func (d *tape) Alloc(n int64, _ string) (Span, error)       { return Span{Dev: 3, Len: n}, nil }
func (d *tape) Free(Span) error                             { return nil }
func (d *tape) AllocPinned(int64) (Pinned, error)           { return nil, errTape }
func (d *tape) NewQueue(label string) (Queue, error)        { return &tapeQueue{d, label}, nil }
func (d *tape) NewEvent() (Event, error)                    { d.events++; return &tapeEvent{d.events - 1}, nil }
func (d *tape) Memory() []MemoryUse                         { return nil }
func (d *tape) Close() error                                { return nil }
func (d *tape) Bind(op Op, at func(Span) Span) (b Bound, err error) {
	if op.Name() == d.noBind {
		return nil, errTape
	}
	reads, writes := op.Access()
	line := op.Name()
	for _, s := range slices.Concat(writes, reads) {
		s = at(s)
		line += fmt.Sprintf(" %d:%d+%d", s.Mem, s.Off, s.Len)
	}
	return line, nil
}

type tapeQueue struct {
	d     *tape
	label string
}

type tapeEvent struct{ n int }

func (e *tapeEvent) Sync(context.Context) error { return nil }
func (e *tapeEvent) Done() bool                 { return true }

func (q *tapeQueue) Do(b Bound) error                   { return q.d.put("%s do %s", q.label, b) }
func (q *tapeQueue) Upload(Span, Pinned, int64) error   { return q.d.put("%s upload", q.label) }
func (q *tapeQueue) Download(Pinned, int64, Span) error { return q.d.put("%s download", q.label) }
func (q *tapeQueue) CopyPeer(Span, Span) error          { return q.d.put("%s copy", q.label) }
func (q *tapeQueue) Record(e Event) error               { return q.d.put("%s record %d", q.label, e.(*tapeEvent).n) }
func (q *tapeQueue) Wait(e Event) error                 { return q.d.put("%s wait %d", q.label, e.(*tapeEvent).n) }
func (q *tapeQueue) Sync(context.Context) error         { return nil }
func (q *tapeQueue) Idle() time.Duration                { return 0 }
func (q *tapeQueue) Close() error                       { return nil }

// exchange is a collective that says that it was called.
type exchange struct{ *fakeOp }

func (x exchange) Inner() []Op { return []Op{op("inner", x.w, x.r)} }
func (x exchange) Exchange(_ context.Context, q Queue, at func(Span) Span, inner []Bound, c Peers) error {
	return q.(*tapeQueue).d.put("%s exchange %d of %d: %v", q.(*tapeQueue).label, c.Rank(), c.Size(), inner)
}

type alone struct{}

func (alone) Rank() int       { return 0 }
func (alone) Size() int       { return 1 }
func (alone) Event(int) Event { return nil }
func (alone) Swap(context.Context, int, int, Event, Span) (Event, Span, error) {
	return nil, Span{}, errTape
}

// lanesProgram is backward on Math, an exchange on Comm, an update on Math.
func lanesProgram() *Program {
	p := NewProgram("lanes")
	m, c := p.On(Math), p.On(Comm)
	g, w := p.Temp("grads", F32, 8), p.Extern("weights", F32, 4)
	m.Add(op("backward", sp(g), sp(w)))
	c.Add(exchange{op("reduce", sp(g), sp(g))})
	m.Add(op("update", sp(w), sp(g)))
	return p
}

func lanesBinding() Binding {
	return Binding{Arena: Span{Dev: 3, Mem: 7, Off: 1024, Len: 4096}, Extern: map[string]Span{"weights": {Dev: 3, Mem: 9, Len: 16}}, Peers: alone{}}
}

func TestEnqueue(t *testing.T) {
	d := &tape{}
	x, err := lanesProgram().Bind(d, lanesBinding())
	if err != nil {
		t.Fatal(err)
	}
	lanes, err := NewLanes(d, "t")
	if err != nil {
		t.Fatal(err)
	}
	// Events 0 and 1 belong to the ops that others wait for, 2 forks, 3 joins.
	want := []string{
		"t/math record 2", "t/comm wait 2",
		"t/math do backward 7:1024+32 9:0+16", "t/math record 0",
		"t/comm wait 0", "t/comm exchange 0 of 1: [inner 7:1024+32 7:1024+32]", "t/comm record 1",
		"t/math wait 1", "t/math do update 9:0+16 7:1024+32",
		"t/comm record 3", "t/math wait 3",
	}
	for range 2 { // every replay is the same
		d.lines = nil
		if err := x.Enqueue(t.Context(), &lanes); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.lines, want) {
			t.Fatalf("enqueued\n%s\nwant\n%s", strings.Join(d.lines, "\n"), strings.Join(want, "\n"))
		}
	}
	// Whatever call fails, the error is passed on; inside the list it names
	// program, op and lane.
	for i, line := range want {
		d.lines, d.failAt = nil, line
		err := x.Enqueue(t.Context(), &lanes)
		if !errors.Is(err, errTape) {
			t.Errorf("%q failed, Enqueue said %v", line, err)
		}
		inside := i >= 2 && i < 9
		if inside && !strings.Contains(err.Error(), "program lanes: op ") || inside && !strings.Contains(err.Error(), " on lane ") {
			t.Errorf("%q failed, and the error does not name the op: %v", line, err)
		}
	}
}

func TestOneLaneNeedsNoEvents(t *testing.T) {
	d := &tape{}
	p := NewProgram("one")
	w := p.Extern("w", F32, 4)
	p.On(Math).Add(op("f", sp(w), nil))
	x, err := p.Bind(d, Binding{Extern: map[string]Span{"w": {Dev: 3, Mem: 5, Len: 16}}})
	if err != nil {
		t.Fatal(err)
	}
	lanes, err := NewLanes(d, "t")
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Enqueue(t.Context(), &lanes); err != nil || !slices.Equal(d.lines, []string{"t/math do f 5:0+16"}) {
		t.Errorf("%v, enqueued %v", err, d.lines)
	}
	if got := x.At(w); got.Span != (Span{Dev: 3, Mem: 5, Len: 16}) || !got.Is(F32, 4) {
		t.Errorf("w lies at %+v", got)
	}
}

func TestBindErrors(t *testing.T) {
	for name, change := range map[string]func(d *tape, b *Binding){
		"arena of 16 bytes, needs 256":                  func(_ *tape, b *Binding) { b.Arena.Len = 16 },
		"extern weights is not bound":                   func(_ *tape, b *Binding) { b.Extern = nil },
		"extern weights is bound to 12 bytes, needs 16": func(_ *tape, b *Binding) { b.Extern["weights"] = Span{Len: 12} },
		"op 1 reduce: the binding has no peers":         func(_ *tape, b *Binding) { b.Peers = nil },
		"op 2 update: the tape is cut":                  func(d *tape, _ *Binding) { d.noBind = "update" },
		"op 1 reduce: the tape is cut":                  func(d *tape, _ *Binding) { d.noBind = "inner" },
	} {
		d, b := &tape{}, lanesBinding()
		change(d, &b)
		if _, err := lanesProgram().Bind(d, b); err == nil || !strings.Contains(err.Error(), "program lanes: "+name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
	p := NewProgram("empty")
	if _, err := p.Bind(&tape{}, Binding{}); err == nil {
		t.Error("a program without ops was bound")
	}
}

func TestTensors(t *testing.T) {
	x := NewTensor(Span{Dev: 1, Mem: 2, Off: 64, Len: 48}, F32, 3, 4)
	if x.Elems() != 12 || x.Dim(1) != 4 || !x.Is(F32, 3, 4) || x.Is(I32, 3, 4) || x.Is(F32, 4, 3) || x.Is(F32, 12) || x.String() != "f32[3 4]" {
		t.Errorf("%v has %d elements", x, x.Elems())
	}
	if v := x.View(4, 2, 3); v.Span != (Span{Dev: 1, Mem: 2, Off: 80, Len: 24}) || !v.Is(F32, 2, 3) {
		t.Errorf("view %+v", v)
	}
	if (Tensor{}).Elems() != 0 || !(Tensor{}).IsZero() || x.IsZero() {
		t.Error("the absent tensor is not told apart")
	}
	for dt, want := range map[DType]struct {
		size int64
		name string
	}{F32: {4, "f32"}, BF16: {2, "bf16"}, I32: {4, "i32"}, U8: {1, "u8"}, 9: {1, "dtype(9)"}} {
		if dt.Size() != want.size || dt.String() != want.name {
			t.Errorf("%v has %d bytes", dt, dt.Size())
		}
	}
	for name, f := range map[string]func(){
		"outside a span":    func() { x.Sub(40, 9) },
		"before a span":     func() { x.Sub(-1, 4) },
		"view outside":      func() { x.View(10, 3) },
		"no axes":           func() { NewTensor(Span{}, F32) },
		"five axes":         func() { NewTensor(Span{}, F32, 1, 1, 1, 1, 1) },
		"negative axis":     func() { NewTensor(Span{}, F32, -1) },
		"span of other len": func() { NewTensor(Span{Len: 5}, F32, 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			f()
		}()
	}
}
