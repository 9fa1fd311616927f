package host

import (
	"testing"

	"refrain/gpu"
)

// TestLanesForkAndJoin holds gpu.Exec against its promise under the race check:
// every lane starts after what stands on Math, be it a wait for a copy or the
// replay of another Exec, and Math ends after every lane, even if the ops of the
// lanes have nothing to do with each other.
func TestLanesForkAndJoin(t *testing.T) {
	d := open(t, 1, Config{RaceCheck: true})[0]
	p := gpu.NewProgram("lanes")
	in, w := p.Extern("in", gpu.F32, 16), p.Extern("w", gpu.F32, 16)
	sum, other := p.Extern("sum", gpu.F32, 16), p.Extern("other", gpu.F32, 16)
	add := func(l gpu.Lane, name string, writes []gpu.Span, reads ...gpu.Span) {
		p.On(l).Add(&op{name: name, reads: reads, writes: writes, bind: func(gpu.Host) func() { return func() {} }})
	}
	add(gpu.Comm, "reads in and w", []gpu.Span{sum.Span}, in.Span, w.Span)
	add(gpu.Math, "elsewhere", []gpu.Span{other.Span}, in.Span)
	ok(t, p.Seal())
	ext := map[string]gpu.Span{}
	for _, n := range []string{"in", "w", "sum", "other"} {
		ext[n] = memory(t, d, 64, n)
	}
	lanes, err := gpu.NewLanes(d, "test")
	ok(t, err)
	var execs []*gpu.Exec
	for range 2 {
		x, err := p.Bind(d, gpu.Binding{Extern: ext})
		ok(t, err)
		execs = append(execs, x)
	}
	copies, math := newQueue(t, d, "copy"), lanes[gpu.Math]
	ready, free := mark(t, d), mark(t, d)
	pin := pin(t, d, 64)
	for k := range 6 {
		ok(t, copies.Wait(free))
		ok(t, copies.Upload(ext["in"], pin, 0))
		ok(t, copies.Record(ready))
		ok(t, math.Wait(ready))
		ok(t, execs[k%2].Enqueue(t.Context(), &lanes))
		ok(t, math.Record(free))
		// What the other lane wrote, and read, is used on Math afterwards.
		ok(t, math.CopyPeer(ext["w"], ext["sum"]))
	}
	ok(t, math.Sync(t.Context()))
}
