package host

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/internal/par"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// op is a kernel made of a function.
type op struct {
	name          string
	reads, writes []gpu.Span
	bind          func(h gpu.Host) func()
}

func (o *op) Name() string                       { return o.name }
func (o *op) Access() (reads, writes []gpu.Span) { return o.reads, o.writes }
func (o *op) Cost() gpu.Cost                     { return gpu.Cost{} }
func (o *op) BindHost(h gpu.Host) func()         { return o.bind(h) }
func (o *op) Launch(gpu.Launcher) error          { return errors.New("not for CUDA") }

// ok fails the test when err is not nil.
func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// has checks that err contains every one of the words.
func has(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v, want one with %q", err, w)
		}
	}
}

// open starts n devices of one thread each, closed at the end of the test.
func open(t testing.TB, n int, c Config) []*Device {
	t.Helper()
	c.Devices = n
	if c.Threads == 0 {
		c.Threads = n
	}
	drv := New(c)
	var devs []*Device
	for i := range n {
		d, err := drv.Open(i)
		ok(t, err)
		devs = append(devs, d.(*Device))
		t.Cleanup(func() { ok(t, d.Close()) })
	}
	return devs
}

func newQueue(t testing.TB, d *Device, label string) *queue {
	t.Helper()
	q, err := d.NewQueue(label)
	ok(t, err)
	return q.(*queue)
}

func mark(t testing.TB, d *Device) gpu.Event {
	t.Helper()
	e, err := d.NewEvent()
	ok(t, err)
	return e
}

// do enqueues f as a kernel that declares no access.
func do(t testing.TB, q *queue, name string, f func()) {
	t.Helper()
	ok(t, q.Do(bind(t, q.d, &op{name: name, bind: func(gpu.Host) func() { return f }})))
}

func bind(t testing.TB, d *Device, o gpu.Op) gpu.Bound {
	t.Helper()
	b, err := d.Bind(o, func(s gpu.Span) gpu.Span { return s })
	ok(t, err)
	return b
}

func memory(t testing.TB, d *Device, n int64, label string) gpu.Span {
	t.Helper()
	s, err := d.Alloc(n, label)
	ok(t, err)
	return s
}

func pin(t testing.TB, d *Device, n int64) gpu.Pinned {
	t.Helper()
	p, err := d.AllocPinned(n)
	ok(t, err)
	t.Cleanup(func() { ok(t, p.Free()) })
	return p
}

func TestDriver(t *testing.T) {
	drv := New(Config{Devices: 3, Threads: 5})
	if n, err := drv.NumDevices(); n != 3 || err != nil || drv.Name() != "host" {
		t.Errorf("%d devices of %s, %v", n, drv.Name(), err)
	}
	for _, i := range []int{-1, 3} {
		_, err := drv.Open(i)
		has(t, err, "there are 3")
	}
	var threads []int
	for i := range 3 {
		d, err := drv.Open(i)
		ok(t, err)
		defer d.Close()
		_, err = drv.Open(i)
		has(t, err, "already open")
		threads = append(threads, d.Info().Threads)
		if d.Ordinal() != i || d.Info().Name == "" || d.Info().Kernels == "" {
			t.Errorf("device %d: %+v", i, d.Info())
		}
	}
	if want := []int{2, 2, 1}; !slices.Equal(threads, want) {
		t.Errorf("threads %v, want %v", threads, want)
	}
	d, _ := New(Config{}).Open(0)
	if n := d.Info().Threads; n != DefaultThreads() || n > runtime.GOMAXPROCS(0) {
		t.Errorf("%d threads by default", n)
	}
	ok(t, d.Close())
	d, err := New(Config{Devices: 1, Threads: 1}).Open(0)
	ok(t, err)
	ok(t, d.Close())
}

func TestMemory(t *testing.T) {
	d := open(t, 1, Config{})[0]
	sizes := []int64{0, 1, 63, 4097, 3 << 20}
	var spans []gpu.Span
	for _, n := range sizes {
		s := memory(t, d, n, "odd sizes")
		m, err := d.bytes(s)
		ok(t, err)
		if int64(len(m)) != n || slices.ContainsFunc(m, func(b byte) bool { return b != 0 }) {
			t.Errorf("%d bytes came as %d, or not zeroed", n, len(m))
		}
		if n > 0 && uintptr(unsafe.Pointer(&m[0]))%64 != 0 {
			t.Errorf("%d bytes are not aligned to a cache line", n)
		}
		spans = append(spans, s)
	}
	memory(t, d, 5<<20, "weights")
	bind(t, d, &op{name: "k", bind: func(h gpu.Host) func() { h.Scratch("a", 250); return func() {} }})
	want := []gpu.MemoryUse{{Label: "weights", Bytes: 5 << 20}, {Label: "odd sizes", Bytes: 3<<20 + 4097 + 64}, {Label: scratchLabel, Bytes: 1000}}
	if got := d.Memory(); !slices.Equal(got, want) {
		t.Errorf("memory table %v, want %v", got, want)
	}
	for _, s := range spans {
		ok(t, d.Free(s))
		has(t, d.Free(s), "did not allocate")
	}
	if got := d.Memory(); len(got) != 2 {
		t.Errorf("after Free: %v", got)
	}
	_, err := d.bytes(spans[1])
	has(t, err, "is gone")
	has(t, d.Free(gpu.Span{Dev: 4}), "did not allocate")
	has(t, d.Free(gpu.Span{Mem: 99}), "did not allocate")
	for _, n := range []int64{-1, 1 << 55, 1<<63 - 1} {
		_, err := d.Alloc(n, "absurd")
		has(t, err, "absurd")
		if _, err := d.AllocPinned(n); err == nil {
			t.Errorf("%d pinned bytes were given", n)
		}
	}
}

func TestCopies(t *testing.T) {
	devs := open(t, 2, Config{})
	q := newQueue(t, devs[0], "copy")
	a, b := memory(t, devs[0], 4096, "a"), memory(t, devs[1], 4096, "b")
	q1 := newQueue(t, devs[1], "copy")
	p, r := pin(t, devs[0], 5000), pin(t, devs[1], 5000)
	for i := range p.Bytes() {
		p.Bytes()[i] = byte(i * 7)
	}
	// There and back over odd offsets and lengths, none included.
	for _, n := range []int64{0, 1, 17, 4095} {
		clear(r.Bytes())
		ok(t, q.Upload(a.Sub(1, n), p, 3))
		ok(t, q.Sync(t.Context()))
		ok(t, q1.CopyPeer(b.Sub(0, n), a.Sub(1, n)))
		ok(t, q1.Download(r, 900, b.Sub(0, n)))
		ok(t, q1.Sync(t.Context()))
		if !bytes.Equal(r.Bytes()[900:900+n], p.Bytes()[3:3+n]) {
			t.Errorf("%d bytes came back changed", n)
		}
		if slices.ContainsFunc(r.Bytes()[:900], func(b byte) bool { return b != 0 }) || slices.ContainsFunc(r.Bytes()[900+n:], func(b byte) bool { return b != 0 }) {
			t.Errorf("a copy of %d bytes wrote outside its place", n)
		}
	}
	gone, err := devs[0].AllocPinned(64)
	ok(t, err)
	ok(t, gone.Free())
	ok(t, gone.Free())
	for name, err := range map[string]error{
		"bytes [0,4096) of a pinned buffer of 0": q.Upload(a, gone, 0),
		"[905,5001)":                             q.Upload(a, p, 905),
		"[-1,4095)":                              q.Download(p, -1, a),
		"not of this driver":                     q.Upload(a, nil, 0),
		"used on device 0":                       q.Upload(b, p, 0),
		"of 1 bytes to 2":                        q.CopyPeer(a.Sub(0, 2), a.Sub(0, 1)),
		"device 7 is not open":                   q.CopyPeer(a, gpu.Span{Dev: 7, Len: 4096}),
		"[4000,4100) of an allocation of 4096":   q.CopyPeer(gpu.Span{Off: 4000, Len: 100}, a.Sub(0, 100)),
		"is gone":                                q.CopyPeer(a, gpu.Span{Mem: 9, Len: 4096}),
	} {
		has(t, err, name)
	}
	ok(t, q.Sync(t.Context())) // what was refused did no harm
}

func TestBindErrors(t *testing.T) {
	devs := open(t, 2, Config{})
	d := devs[0]
	s := memory(t, d, 16, "x")
	try := func(f func(h gpu.Host)) error {
		_, err := d.Bind(&op{name: "k", bind: func(h gpu.Host) func() { f(h); return func() {} }}, func(s gpu.Span) gpu.Span { return s })
		return err
	}
	ok(t, try(func(h gpu.Host) {
		if len(h.Bytes(s)) != 16 || h.Pool() != d.pool || h.Reference() {
			t.Error("the host does not give what the device has")
		}
		n := 0
		for range 2 {
			if v := h.Cached("table", func() any { n++; return &n }); v != &n || n != 1 {
				t.Error("Cached does not keep its value")
			}
		}
	}))
	has(t, try(func(h gpu.Host) { h.Bytes(gpu.Span{Dev: 1, Len: 16}) }), "binding k", "used on device 0")
	has(t, try(func(h gpu.Host) { h.Scratch("big", 1<<52) }), "scratch big")
	has(t, try(func(h gpu.Host) { h.Scratch("small", -1) }), "scratch small", "negative")
	b := bind(t, devs[1], &op{name: "k", bind: func(gpu.Host) func() { return func() {} }})
	q := newQueue(t, d, "math")
	has(t, q.Do(b), "another device")
	has(t, q.Do(nil), "another device")
	has(t, q.Record(nil), "not of this driver")
	has(t, q.Wait(nil), "not of this driver")
}

// TestMemoryGoneAfterBinding covers bodies that resolve memory on every replay.
func TestMemoryGoneAfterBinding(t *testing.T) {
	d := open(t, 1, Config{Reference: true})[0]
	s := memory(t, d, 16, "x")
	b := bind(t, d, &op{name: "late", bind: func(h gpu.Host) func() { return func() { h.Bytes(s)[0]++ } }})
	q := newQueue(t, d, "math")
	ok(t, q.Do(b))
	ok(t, q.Sync(t.Context()))
	ok(t, d.Free(s))
	ok(t, q.Do(b))
	has(t, q.Sync(t.Context()), "device 0 queue math: late panicked", "is gone")
}

// TestScratchHoldsForOneKernel lets two queues of a device run kernels that
// use the same scratch, the second one a larger part of it.
func TestScratchHoldsForOneKernel(t *testing.T) {
	d := open(t, 1, Config{Threads: 2})[0]
	const replays = 200
	wrong := 0 // kernels exclude each other, so no lock is needed: -race agrees
	kernel := func(id float32, n int) gpu.Bound {
		return bind(t, d, &op{name: "fill", bind: func(h gpu.Host) func() {
			s, pool := h.Scratch("tmp", n), h.Pool()
			fill := func(_, lo, hi int) {
				for i := lo; i < hi; i++ {
					s[i] = id
				}
				runtime.Gosched()
			}
			return func() {
				pool.For(len(s), 16, fill)
				for _, v := range s {
					if v != id {
						wrong++
					}
				}
			}
		}})
	}
	a, b := newQueue(t, d, "train"), newQueue(t, d, "eval")
	ka, kb := kernel(1, 100), kernel(2, 100)
	for range replays {
		ok(t, a.Do(ka))
		ok(t, b.Do(kb))
	}
	ok(t, errors.Join(a.Sync(t.Context()), b.Sync(t.Context())))
	if wrong > 0 {
		t.Errorf("%d elements of scratch changed under a kernel", wrong)
	}
	// A larger request leaves the buffers of bound kernels alone.
	kc := kernel(3, 5000)
	ok(t, errors.Join(a.Do(ka), b.Do(kc), a.Do(ka), a.Sync(t.Context()), b.Sync(t.Context())))
	if wrong > 0 {
		t.Errorf("%d elements changed after scratch grew", wrong)
	}
}

// TestReplayAllocatesNothing covers every call that a step makes on a queue.
func TestReplayAllocatesNothing(t *testing.T) {
	devs := open(t, 2, Config{})
	d := devs[0]
	q, q2 := newQueue(t, d, "math"), newQueue(t, d, "copy")
	a, b, far := memory(t, d, 256, "a"), memory(t, d, 256, "b"), memory(t, devs[1], 256, "far")
	p := pin(t, d, 256)
	e := mark(t, d)
	k := bind(t, d, &op{name: "k", bind: func(gpu.Host) func() { return func() {} }})
	ctx := t.Context()
	var err error
	n := testing.AllocsPerRun(100, func() {
		err = errors.Join(err, q2.Wait(e), q2.Upload(a, p, 0), q2.Record(e), q.Wait(e), q.Do(k), q.CopyPeer(b, a), q.CopyPeer(b, far),
			q.Download(p, 0, b), q.Record(e), e.Sync(ctx), q.Sync(ctx), q2.Sync(ctx))
	})
	ok(t, err)
	if n != 0 {
		t.Errorf("%v allocations a replay", n)
	}
}

func TestProfile(t *testing.T) {
	d := open(t, 1, Config{Profile: true})[0]
	q := newQueue(t, d, "math")
	slow := bind(t, d, &op{name: "slow", bind: func(gpu.Host) func() {
		return func() {
			for range 1000 {
				runtime.Gosched()
			}
		}
	}})
	quick := bind(t, d, &op{name: "quick", bind: func(gpu.Host) func() { return func() {} }})
	ok(t, errors.Join(q.Do(quick), q.Do(slow), q.Do(quick), q.Sync(t.Context())))
	got := gpu.Profiler(d).KernelTimes()
	if len(got) != 2 || got[0].Name != "slow" || got[0].Calls != 1 || got[1].Calls != 2 || got[0].Busy <= 0 {
		t.Errorf("kernel times %+v", got)
	}
}

func TestFailureOfAWorker(t *testing.T) {
	d := open(t, 1, Config{Threads: 2})[0]
	q := newQueue(t, d, "math")
	cause := errors.New("token 99 of 61")
	b := bind(t, d, &op{name: "embed", bind: func(h gpu.Host) func() {
		pool := h.Pool()
		return func() {
			pool.Run(func(worker int) {
				if worker == 1 {
					panic(cause)
				}
			})
		}
	}})
	ok(t, q.Do(b))
	err := q.Sync(context.Background())
	var f *Failure
	if !errors.As(err, &f) || !errors.Is(err, cause) || f.Op != "embed" || f.Device != 0 || f.Queue != "math" {
		t.Fatalf("failure is %v", err)
	}
	has(t, err, "device 0 queue math: embed panicked: token 99 of 61", "TestFailureOfAWorker")
	if p := (*par.Panic)(nil); errors.As(err, &p) {
		t.Error("the failure still carries the worker's panic inside")
	}
}
