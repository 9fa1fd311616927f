package gpu

import (
	"bytes"
	"strings"
	"testing"
)

// fakeOp declares accesses and does nothing.
type fakeOp struct {
	name string
	r, w []Span
}

func (o *fakeOp) Name() string            { return o.name }
func (o *fakeOp) Access() (r, w []Span)   { return o.r, o.w }
func (o *fakeOp) Cost() Cost              { return Cost{FLOPs: 1, Bytes: 2} }
func (o *fakeOp) BindHost(Host) func()    { return func() {} }
func (o *fakeOp) Launch(Launcher) error   { return nil }
func op(name string, w, r []Span) *fakeOp { return &fakeOp{name, r, w} }
func sp(ts ...Tensor) (s []Span) {
	for _, t := range ts {
		s = append(s, t.Span)
	}
	return s
}

// chain records a -> t0 -> t1 -> ... -> t(n-1), each of 100 floats.
func chain(p *Program, n int) []Tensor {
	r := p.On(Math)
	in := p.Extern("in", F32, 100)
	ts := []Tensor{in}
	for i := range n {
		t := p.Temp(string(rune('a'+i)), F32, 100)
		r.Add(op("f", sp(t), sp(ts[i])))
		ts = append(ts, t)
	}
	return ts
}

func TestPlannerSharesDeadTemporaries(t *testing.T) {
	p := NewProgram("chain")
	chain(p, 10)
	if err := p.Seal(); err != nil {
		t.Fatal(err)
	}
	if want := int64(2 * 512); p.ArenaBytes() != want { // two alive at a time, 400 bytes rounded to 512
		t.Errorf("arena is %d bytes, want %d", p.ArenaBytes(), want)
	}
	if want := int64(10 * 400); p.TempBytes() != want {
		t.Errorf("temporaries are %d bytes, want %d", p.TempBytes(), want)
	}
	q := NewProgram("apart")
	q.KeepApart()
	chain(q, 10)
	if err := q.Seal(); err != nil {
		t.Fatal(err)
	}
	if want := int64(10 * 512); q.ArenaBytes() != want {
		t.Errorf("unshared arena is %d bytes, want %d", q.ArenaBytes(), want)
	}
}

// TestPlannerNeverOverlapsLiveTemporaries checks the definition on Programs of
// many shapes: two temporaries whose lifetimes meet share no byte.
func TestPlannerNeverOverlapsLiveTemporaries(t *testing.T) {
	seed := uint64(1)
	next := func(n int) int {
		seed = seed*6364136223846793005 + 1442695040888963407
		return int(seed>>33) % n
	}
	for trial := range 200 {
		p := NewProgram("random")
		r := p.On(Math)
		live := []Tensor{p.Extern("in", F32, 8)}
		for i := range 2 + next(40) {
			t := p.Temp("t", F32, 1+next(500))
			var reads []Tensor
			for range next(4) {
				reads = append(reads, live[next(len(live))])
			}
			r.Add(op("f", sp(t), sp(reads...)))
			live = append(live, t)
			_ = i
		}
		if err := p.Seal(); err != nil {
			t.Fatal(err)
		}
		for i := range p.bufs {
			for j := range i {
				a, b := &p.bufs[i], &p.bufs[j]
				if a.extern || b.extern || a.first > b.last || b.first > a.last {
					continue
				}
				if p.physical(a.t.Span).overlaps(p.physical(b.t.Span)) {
					t.Fatalf("trial %d: live temporaries %d and %d overlap", trial, i, j)
				}
			}
			if b := &p.bufs[i]; !b.extern && b.off+b.t.Len > p.arena {
				t.Fatalf("trial %d: temporary %d ends outside the arena", trial, i)
			}
		}
	}
}

func TestSealDerivesWaitsBetweenLanes(t *testing.T) {
	p := NewProgram("lanes")
	m, c := p.On(Math), p.On(Comm)
	g, w, x := p.Extern("grads", F32, 8), p.Extern("weights", F32, 8), p.Extern("other", F32, 8)
	m.Add(op("backward", sp(g), nil))     // 0
	m.Add(op("elsewhere", sp(x), nil))    // 1
	c.Add(op("reduce", sp(g), sp(g)))     // 2 waits for 0 only
	m.Add(op("elsewhere", sp(x), sp(x)))  // 3 waits for nothing
	m.Add(op("update", sp(w), sp(g, w)))  // 4 waits for 2
	m.Add(op("read again", sp(x), sp(g))) // 5 has waited already
	if err := p.Seal(); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Dump(&b); err != nil {
		t.Fatal(err)
	}
	want := `program lanes: 6 ops, 3 buffers
   0 math backward       grads <- 
   1 math elsewhere      other <- 
   2 comm reduce         grads <- grads | waits for 0
   3 math elsewhere      other <- other
   4 math update         weights <- grads weights | waits for 2
   5 math read again     other <- grads
`
	if b.String() != want {
		t.Errorf("dump:\n%swant:\n%s", b.String(), want)
	}
}

// TestAliasedTemporariesWaitAcrossLanes covers a hazard that no buffer name
// shows: a temporary placed where one of the other lane has died.
func TestAliasedTemporariesWaitAcrossLanes(t *testing.T) {
	p := NewProgram("alias")
	m, c := p.On(Math), p.On(Comm)
	a, out := p.Temp("a", F32, 64), p.Extern("out", F32, 64)
	m.Add(op("make", sp(a), nil))
	c.Add(op("use", sp(out), sp(a)))
	b := p.Temp("b", F32, 64)
	m.Add(op("reuse", sp(b), nil))
	if err := p.Seal(); err != nil {
		t.Fatal(err)
	}
	if !p.physical(a.Span).overlaps(p.physical(b.Span)) {
		t.Fatal("the planner did not reuse the memory; the test proves nothing")
	}
	if w := p.steps[2].waits; len(w) != 1 || w[0] != 1 {
		t.Errorf("the op that reuses the memory waits for %v, want [1]", w)
	}
}

func TestRecordingErrors(t *testing.T) {
	for _, c := range []struct {
		name, want string
		record     func(p *Program)
	}{
		{"read before write", "which nothing has written", func(p *Program) {
			x := p.Temp("x", F32, 4)
			p.On(Math).Add(op("f", nil, sp(x)))
		}},
		{"foreign span", "no buffer of this program", func(p *Program) {
			p.On(Math).Add(op("f", []Span{{Dev: 0, Mem: 1, Len: 4}}, nil))
		}},
		{"extern twice", "declared twice", func(p *Program) {
			p.Extern("x", F32, 4)
			x := p.Extern("x", F32, 4)
			p.On(Math).Add(op("f", sp(x), nil))
		}},
		{"empty", "no ops", func(p *Program) {}},
		{"outside the buffer", "bytes [0,32) of buffer x", func(p *Program) {
			x := p.Extern("x", F32, 4)
			x.Len = 32
			p.On(Math).Add(op("f", sp(x), nil))
		}},
	} {
		p := NewProgram("bad")
		c.record(p)
		if err := p.Seal(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}
