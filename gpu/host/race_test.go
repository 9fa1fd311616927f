package host

import (
	"errors"
	"testing"

	"refrain/gpu"
)

// raceRig is two devices under the race check, with two queues on the first
// and one on the second.
type raceRig struct {
	t       *testing.T
	devs    []*Device
	a, b, c *queue
	x, far  gpu.Span // 64 bytes on the first and on the second device
	p       gpu.Pinned
}

func newRaceRig(t *testing.T) *raceRig {
	devs := open(t, 2, Config{RaceCheck: true})
	return &raceRig{
		t: t, devs: devs, a: newQueue(t, devs[0], "a"), b: newQueue(t, devs[0], "b"), c: newQueue(t, devs[1], "c"),
		x: memory(t, devs[0], 64, "x"), far: memory(t, devs[1], 64, "far"), p: pin(t, devs[0], 64),
	}
}

func (r *raceRig) do(q *queue, name string, reads, writes []gpu.Span) error {
	return q.Do(bind(r.t, q.d, &op{name: name, reads: reads, writes: writes, bind: func(gpu.Host) func() { return func() {} }}))
}

// pairs are two accesses that conflict, on different queues.
var pairs = []struct {
	name          string
	first, second func(r *raceRig) error
	queues        func(r *raceRig) (first, second *queue)
	words         []string // in the report
}{
	{
		"kernel writes, kernel reads",
		func(r *raceRig) error { return r.do(r.a, "make", nil, []gpu.Span{r.x}) },
		func(r *raceRig) error { return r.do(r.b, "use", []gpu.Span{r.x.Sub(60, 4)}, nil) },
		onAB, []string{"make on device 0 queue a", "use on device 0 queue b", "[0,64) and [60,64) of allocation"},
	},
	{
		"kernel reads, kernel writes",
		func(r *raceRig) error { return r.do(r.a, "use", []gpu.Span{r.x}, nil) },
		func(r *raceRig) error { return r.do(r.b, "make", nil, []gpu.Span{r.x}) },
		onAB, []string{"use on device 0 queue a", "make on device 0 queue b"},
	},
	{
		"kernel writes, kernel writes",
		func(r *raceRig) error { return r.do(r.a, "one", nil, []gpu.Span{r.x.Sub(0, 33)}) },
		func(r *raceRig) error { return r.do(r.b, "two", nil, []gpu.Span{r.x.Sub(32, 32)}) },
		onAB, []string{"one on", "two on"},
	},
	{
		"upload, kernel reads",
		func(r *raceRig) error { return r.a.Upload(r.x, r.p, 0) },
		func(r *raceRig) error { return r.do(r.b, "embed", []gpu.Span{r.x}, nil) },
		onAB, []string{"upload on device 0 queue a", "embed on device 0 queue b"},
	},
	{
		"kernel reads, upload into its slot",
		func(r *raceRig) error { return r.do(r.b, "embed", []gpu.Span{r.x}, nil) },
		func(r *raceRig) error { return r.a.Upload(r.x, r.p, 0) },
		func(r *raceRig) (*queue, *queue) { return r.b, r.a }, []string{"embed on", "upload on"},
	},
	{
		"kernel writes, download",
		func(r *raceRig) error { return r.do(r.a, "loss", nil, []gpu.Span{r.x}) },
		func(r *raceRig) error { return r.b.Download(r.p, 0, r.x) },
		onAB, []string{"loss on", "download on"},
	},
	{
		"download, kernel writes",
		func(r *raceRig) error { return r.a.Download(r.p, 0, r.x) },
		func(r *raceRig) error { return r.do(r.b, "adamw", nil, []gpu.Span{r.x}) },
		onAB, []string{"download on", "adamw on"},
	},
	{
		"kernel of a peer writes, peer copy",
		func(r *raceRig) error { return r.do(r.c, "grads", nil, []gpu.Span{r.far}) },
		func(r *raceRig) error { return r.a.CopyPeer(r.x, r.far) },
		func(r *raceRig) (*queue, *queue) { return r.c, r.a },
		[]string{"grads on device 1 queue c", "copy_peer on device 0 queue a", "of device 1"},
	},
	{
		"peer copy, kernel of the peer writes",
		func(r *raceRig) error { return r.a.CopyPeer(r.x, r.far) },
		func(r *raceRig) error { return r.do(r.c, "add", []gpu.Span{r.far}, []gpu.Span{r.far}) },
		func(r *raceRig) (*queue, *queue) { return r.a, r.c }, []string{"copy_peer on", "add on"},
	},
	{
		"peer copy, kernel reads what arrives",
		func(r *raceRig) error { return r.a.CopyPeer(r.x, r.far) },
		func(r *raceRig) error { return r.do(r.b, "add", []gpu.Span{r.x}, nil) },
		onAB, []string{"copy_peer on", "add on"},
	},
	{
		"download, upload of the same pinned memory",
		func(r *raceRig) error { return r.a.Download(r.p, 0, r.x) },
		func(r *raceRig) error { return r.c.Upload(r.far, r.p, 0) },
		func(r *raceRig) (*queue, *queue) { return r.a, r.c }, []string{"of pinned buffer"},
	},
}

func onAB(r *raceRig) (*queue, *queue) { return r.a, r.b }

func TestRaceCheckFindsTheMissingWait(t *testing.T) {
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			r := newRaceRig(t)
			ok(t, p.first(r))
			// The host's own waiting orders nothing on the devices.
			first, second := p.queues(r)
			ok(t, first.Sync(t.Context()))
			err := p.second(r)
			has(t, err, append(p.words, "race", "no wait between them")...)
			if got := second.Sync(t.Context()); got != err {
				t.Errorf("the device lives on after a race: %v", got)
			}
		})
	}
}

func TestRaceCheckAcceptsTheWait(t *testing.T) {
	for _, p := range pairs {
		t.Run(p.name, func(t *testing.T) {
			r := newRaceRig(t)
			first, second := p.queues(r)
			e := mark(t, first.d)
			for range 3 { // as in replays: there and back
				ok(t, p.first(r))
				ok(t, errors.Join(first.Record(e), second.Wait(e)))
				ok(t, p.second(r))
				ok(t, errors.Join(second.Record(e), first.Wait(e)))
			}
			ok(t, errors.Join(first.Sync(t.Context()), second.Sync(t.Context())))
		})
	}
}

func TestRaceCheckIsExact(t *testing.T) {
	t.Run("what does not conflict", func(t *testing.T) {
		r := newRaceRig(t)
		ok(t, r.do(r.a, "low", nil, []gpu.Span{r.x.Sub(0, 32)}))
		ok(t, r.do(r.b, "high", nil, []gpu.Span{r.x.Sub(32, 32)}))
		ok(t, r.do(r.c, "same numbers, other device", nil, []gpu.Span{r.far}))
		ok(t, r.do(r.b, "nothing", []gpu.Span{r.x.Sub(8, 0)}, nil))
		y := memory(t, r.devs[0], 64, "y")
		ok(t, r.do(r.a, "reader", []gpu.Span{y}, nil))
		ok(t, r.do(r.b, "reader", []gpu.Span{y}, nil))
	})
	t.Run("through a third queue", func(t *testing.T) {
		r := newRaceRig(t)
		e, f := mark(t, r.devs[0]), mark(t, r.devs[1])
		ok(t, r.do(r.a, "make", nil, []gpu.Span{r.x}))
		ok(t, errors.Join(r.a.Record(e), r.c.Wait(e), r.c.Record(f), r.b.Wait(f)))
		ok(t, r.do(r.b, "use", []gpu.Span{r.x}, nil))
	})
	t.Run("a wait for an older mark", func(t *testing.T) {
		r := newRaceRig(t)
		e := mark(t, r.devs[0])
		ok(t, errors.Join(r.a.Record(e), r.b.Wait(e)))
		ok(t, r.do(r.a, "make", nil, []gpu.Span{r.x}))
		ok(t, r.a.Record(e)) // nobody waits for this one
		has(t, r.do(r.b, "use", []gpu.Span{r.x}, nil), "race")
	})
	t.Run("a read hidden behind an ordered read", func(t *testing.T) {
		r := newRaceRig(t)
		e := mark(t, r.devs[0])
		ok(t, r.do(r.a, "first reader", []gpu.Span{r.x.Sub(0, 40)}, nil))
		ok(t, errors.Join(r.a.Record(e), r.b.Wait(e)))
		ok(t, r.do(r.b, "second reader", []gpu.Span{r.x.Sub(0, 16)}, nil))
		ok(t, errors.Join(r.b.Record(e), r.c.Wait(e)))
		ok(t, r.do(r.c, "ordered after both", nil, []gpu.Span{r.x.Sub(8, 8)}))
		has(t, r.do(r.b, "writer", nil, []gpu.Span{r.x.Sub(8, 8)}), "race", "ordered after both")
	})
	t.Run("freed memory has no history", func(t *testing.T) {
		r := newRaceRig(t)
		y := memory(t, r.devs[0], 64, "y")
		ok(t, r.do(r.a, "make", nil, []gpu.Span{y}))
		ok(t, r.a.Sync(t.Context()))
		ok(t, r.devs[0].Free(y))
		if n := r.devs[0].race.History(y); n != 0 {
			t.Errorf("%d accesses of freed memory are kept", n)
		}
	})
	t.Run("history stays short", func(t *testing.T) {
		r := newRaceRig(t)
		for range 100 {
			ok(t, r.do(r.a, "update", []gpu.Span{r.x}, []gpu.Span{r.x}))
		}
		if n := r.devs[0].race.History(r.x); n > 2 {
			t.Errorf("%d accesses are kept of one buffer", n)
		}
	})
}
