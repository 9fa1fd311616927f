package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/gpu/collective"
	"refrain/gpu/host"
	"refrain/internal/num"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// op is a kernel made of a function over its memory.
type op struct {
	name          string
	reads, writes []gpu.Span
	body          func(h gpu.Host) func()
}

func (o *op) Name() string                       { return o.name }
func (o *op) Access() (reads, writes []gpu.Span) { return o.reads, o.writes }
func (o *op) Cost() gpu.Cost                     { return gpu.Cost{} }
func (o *op) BindHost(h gpu.Host) func()         { return o.body(h) }
func (o *op) Launch(gpu.Launcher) error          { return errors.New("not for CUDA") }

// addTo computes dst += src.
func addTo(dst, src gpu.Tensor) gpu.Op {
	return &op{"add_to", []gpu.Span{dst.Span, src.Span}, []gpu.Span{dst.Span}, func(h gpu.Host) func() {
		d, s := gpu.Float32s(h, dst), gpu.Float32s(h, src)
		return func() {
			for i := range d {
				d[i] += s[i]
			}
		}
	}}
}

// scale computes dst = src * f, and panics when told to.
func scale(name string, dst, src gpu.Tensor, f float32, die *bool) gpu.Op {
	return &op{name, []gpu.Span{src.Span}, []gpu.Span{dst.Span}, func(h gpu.Host) func() {
		d, s := gpu.Float32s(h, dst), gpu.Float32s(h, src)
		return func() {
			if *die {
				panic("told to")
			}
			for i := range d {
				d[i] = s[i] * f
			}
		}
	}}
}

const elems = 37

// rank is one device of a ring.
type rank struct {
	d     gpu.Device
	lanes gpu.Lanes
	execs []*gpu.Exec
	in    gpu.Span
	out   gpu.Span
	pin   gpu.Pinned
	die   bool
}

// group is n devices that run: g = in*2 ; all_reduce g ; out = g*0.5, as two
// Execs that share lanes and arena, like the slots of a trainer.
type group struct {
	t     *testing.T
	g     *collective.Group
	ranks []*rank
}

func newGroup(t *testing.T, n int) *group {
	t.Helper()
	drv := host.New(host.Config{Devices: n, Threads: n, RaceCheck: true})
	cg, err := collective.NewGroup(n)
	ok(t, err)
	gr := &group{t: t, g: cg}
	t.Cleanup(func() {
		for _, r := range gr.ranks { // nobody may still copy from another
			for _, q := range r.lanes {
				_ = q.Sync(context.Background())
			}
		}
		for _, r := range gr.ranks {
			ok(t, errors.Join(r.pin.Free(), r.d.Close()))
		}
	})
	for i := range n {
		d, err := drv.Open(i)
		ok(t, err)
		r := &rank{d: d}
		gr.ranks = append(gr.ranks, r)
		r.pin, err = d.AllocPinned(elems * 4)
		ok(t, err)
		r.in, r.out = alloc(t, d, elems*4), alloc(t, d, elems*4)
		r.lanes, err = gpu.NewLanes(d, "test")
		ok(t, err)
		p := gpu.NewProgram("reduce")
		in, out := p.Extern("in", gpu.F32, elems), p.Extern("out", gpu.F32, elems)
		g, tmp := p.Temp("g", gpu.F32, elems), p.Temp("peer", gpu.F32, elems)
		p.On(gpu.Math).Add(scale("double", g, in, 2, &r.die))
		collective.AllReduce(p.On(gpu.Comm), n, g, tmp, addTo(g, tmp))
		p.On(gpu.Math).Add(scale("halve", out, g, 0.5, new(bool)))
		ok(t, p.Seal())
		arena := alloc(t, d, p.ArenaBytes())
		peers, err := cg.Member(i, d)
		ok(t, err)
		for range 2 {
			x, err := p.Bind(d, gpu.Binding{Arena: arena, Extern: map[string]gpu.Span{"in": r.in, "out": r.out}, Peers: peers})
			ok(t, err)
			r.execs = append(r.execs, x)
		}
	}
	return gr
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func alloc(t testing.TB, d gpu.Device, n int64) gpu.Span {
	t.Helper()
	s, err := d.Alloc(n, "test")
	ok(t, err)
	return s
}

// value is the input of a rank: numbers whose float32 sum depends on the order.
func value(replay, rank, i int) float32 {
	s := num.NewStream("all_reduce", uint64(replay*100+rank))
	return (float32(s.Uintn(uint64(i), 1<<20)) - 1<<19) * float32(math.Pow(10, float64(i%7-3)))
}

// tree sums ranks [lo,hi): halves first, then their sum. By definition.
func tree(lo, hi int, v func(rank int) float32) float32 {
	if hi-lo == 1 {
		return v(lo)
	}
	mid := (lo + hi) / 2
	return tree(lo, mid, v) + tree(mid, hi, v)
}

// replay runs all ranks at once, replay k on Exec k%2, without waiting for it.
func (g *group) replay(ctx context.Context, k int, skip int) []error {
	errs := make([]error, len(g.ranks))
	var wg sync.WaitGroup
	for i, r := range g.ranks {
		if i == skip {
			continue
		}
		wg.Go(func() {
			if errs[i] = r.execs[k%2].Enqueue(ctx, &r.lanes); errs[i] != nil {
				g.g.Abort(errs[i]) // as everyone must who cannot go on
			}
		})
	}
	wg.Wait()
	return errs
}

// load uploads the inputs of replay k on the math lanes and waits, since the
// pinned buffer is used again.
func (g *group) load(k int) {
	g.t.Helper()
	for i, r := range g.ranks {
		f := gpu.BytesToFloat32s(r.pin.Bytes())
		for j := range f {
			f[j] = value(k, i, j)
		}
		ok(g.t, errors.Join(r.lanes[gpu.Math].Upload(r.in, r.pin, 0), r.lanes[gpu.Math].Sync(g.t.Context())))
	}
}

func (r *rank) result(t *testing.T) []float32 {
	t.Helper()
	ok(t, errors.Join(r.lanes[gpu.Math].Download(r.pin, 0, r.out), r.lanes[gpu.Math].Sync(t.Context())))
	return gpu.BytesToFloat32s(r.pin.Bytes())
}

// TestBitsAreThoseOfTheTree also holds under the race check, over replays that
// share lanes and memory.
func TestBitsAreThoseOfTheTree(t *testing.T) {
	for _, n := range []int{1, 2, 4, 8} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			g := newGroup(t, n)
			chain := 0 // elements where summing in rank order would give other bits
			for k := range 5 {
				g.load(k)
				ok(t, errors.Join(g.replay(t.Context(), k, -1)...))
				for i, r := range g.ranks {
					for j, got := range r.result(t) {
						v := func(rank int) float32 { return value(k, rank, j) * 2 }
						want := tree(0, n, v) * 0.5
						if math.Float32bits(got) != math.Float32bits(want) {
							t.Fatalf("replay %d rank %d element %d: %g, want %g", k, i, j, got, want)
						}
						var line float32
						for rank := range n {
							line += v(rank)
						}
						if line*0.5 != want {
							chain++
						}
					}
				}
			}
			if n >= 4 && chain == 0 {
				t.Error("the inputs do not tell a tree from a chain; the test proves nothing")
			}
		})
	}
}

// TestReplaysFollowEachOther enqueues many replays before any has run.
func TestReplaysFollowEachOther(t *testing.T) {
	g := newGroup(t, 4)
	g.load(0)
	for k := range 20 {
		ok(t, errors.Join(g.replay(t.Context(), k, -1)...))
	}
	for i, r := range g.ranks {
		for j, got := range r.result(t) {
			want := tree(0, 4, func(rank int) float32 { return value(0, rank, j) * 2 }) * 0.5
			if got != want {
				t.Fatalf("rank %d element %d: %g, want %g", i, j, got, want)
			}
		}
	}
}

// TestMissingPartner: the ranks wait, and end with the context or with Abort.
func TestMissingPartner(t *testing.T) {
	cause := errors.New("device 3 is on fire")
	t.Run("cancel", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, 4)
			g.load(0)
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan []error)
			go func() { done <- g.replay(ctx, 0, 3) }()
			synctest.Wait() // rank 2 waits for rank 3, and sooner or later all do
			select {
			case errs := <-done:
				t.Fatalf("nobody waited: %v", errs)
			default:
			}
			cancel(cause)
			for i, err := range (<-done)[:3] {
				if !errors.Is(err, cause) {
					t.Errorf("rank %d: %v", i, err)
				}
			}
		})
	})
	t.Run("abort", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := newGroup(t, 4)
			g.load(0)
			done := make(chan []error)
			go func() { done <- g.replay(t.Context(), 0, 3) }()
			synctest.Wait()
			g.g.Abort(cause)
			g.g.Abort(errors.New("too late"))
			for i, err := range (<-done)[:3] {
				if !errors.Is(err, cause) || !errors.Is(err, collective.ErrAborted) || !strings.Contains(err.Error(), "all_reduce on lane comm") {
					t.Errorf("rank %d: %v", i, err)
				}
			}
			if err := errors.Join(g.replay(t.Context(), 1, -1)...); !errors.Is(err, cause) {
				t.Errorf("a replay after Abort: %v", err)
			}
		})
	})
}

// TestDeadDevice: a device that dies while it runs lets its peers finish, and
// says so itself.
func TestDeadDevice(t *testing.T) {
	g := newGroup(t, 4)
	g.load(0)
	g.ranks[2].die = true
	// It may die while the rest is still being enqueued, or after.
	if err := errors.Join(g.replay(t.Context(), 0, -1)...); err != nil && !strings.Contains(err.Error(), "device 2") {
		t.Fatal(err)
	}
	for i, r := range g.ranks {
		err := r.lanes[gpu.Math].Sync(t.Context())
		if dead := err != nil; dead != (i == 2) {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for _, n := range []int{-1, 0, 3, 6} {
		if _, err := collective.NewGroup(n); err == nil {
			t.Errorf("a group of %d", n)
		}
	}
	d, err := host.New(host.Config{Threads: 1}).Open(0)
	ok(t, err)
	defer d.Close()
	g, err := collective.NewGroup(2)
	ok(t, err)
	for _, rank := range []int{-1, 2} {
		if _, err := g.Member(rank, d); err == nil {
			t.Errorf("rank %d of 2", rank)
		}
	}
	m, err := g.Member(1, d)
	ok(t, err)
	if m.Rank() != 1 || m.Size() != 2 {
		t.Errorf("rank %d of %d", m.Rank(), m.Size())
	}
	for _, peer := range []int{-1, 1, 2} {
		if _, _, err := m.Swap(t.Context(), peer, 0, nil, gpu.Span{}); err == nil {
			t.Errorf("rank 1 swapped with rank %d", peer)
		}
	}
	other, err := g.Member(0, d)
	ok(t, err)
	go func() { _, _, _ = other.Swap(t.Context(), 1, 4, nil, gpu.Span{}) }()
	if _, _, err := m.Swap(t.Context(), 0, 5, nil, gpu.Span{}); err == nil || !strings.Contains(err.Error(), "at exchange 5, rank 0 at 4") {
		t.Errorf("different exchanges met: %v", err)
	}
	for name, record := range map[string]func(p *gpu.Program, a, b gpu.Tensor){
		"power of two": func(p *gpu.Program, a, b gpu.Tensor) { collective.AllReduce(p.On(gpu.Comm), 3, a, b, addTo(a, b)) },
		"must be alike": func(p *gpu.Program, a, b gpu.Tensor) {
			collective.AllReduce(p.On(gpu.Comm), 2, a, b.View(0, 3), addTo(a, b))
		},
		"lies inside":     func(p *gpu.Program, a, b gpu.Tensor) { collective.AllReduce(p.On(gpu.Comm), 2, a, a, addTo(a, b)) },
		"nothing to bind": func(p *gpu.Program, a, b gpu.Tensor) {},
	} {
		p := gpu.NewProgram("bad")
		a, b := p.Extern("a", gpu.F32, 4), p.Extern("b", gpu.F32, 4)
		record(p, a, b)
		if err := p.Seal(); err == nil || (name != "nothing to bind" && !strings.Contains(err.Error(), name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Recorded for four, bound to a group of two; and without peers at all.
	p := gpu.NewProgram("four")
	a, b := p.Extern("a", gpu.F32, 4), p.Extern("b", gpu.F32, 4)
	collective.AllReduce(p.On(gpu.Comm), 4, a, b, addTo(a, b))
	ext := map[string]gpu.Span{"a": alloc(t, d, 16), "b": alloc(t, d, 16)}
	if _, err := p.Bind(d, gpu.Binding{Extern: ext}); err == nil || !strings.Contains(err.Error(), "no peers") {
		t.Errorf("bound without peers: %v", err)
	}
	x, err := p.Bind(d, gpu.Binding{Extern: ext, Peers: m})
	ok(t, err)
	lanes, err := gpu.NewLanes(d, "x")
	ok(t, err)
	if err := x.Enqueue(t.Context(), &lanes); err == nil || !strings.Contains(err.Error(), "recorded for 4 devices and is bound to a group of 2") {
		t.Errorf("bound to a smaller group: %v", err)
	}
}
