package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"refrain/gpu"
)

// gate is a kernel that waits until it is let through.
func gate(t testing.TB, q *queue, name string) (let func()) {
	c := make(chan struct{})
	do(t, q, name, func() { <-c })
	return func() { close(c) }
}

func TestQueueRunsInOrder(t *testing.T) {
	d := open(t, 1, Config{})[0]
	q := newQueue(t, d, "math")
	x := memory(t, d, 8, "x")
	in, out := pin(t, d, 8*100), pin(t, d, 8*100)
	var order []int
	for i := range 100 {
		in.Bytes()[i*8] = byte(i + 1)
		ok(t, q.Upload(x, in, int64(i*8)))
		do(t, q, "k", func() { order = append(order, i) })
		ok(t, q.Download(out, int64(i*8), x))
	}
	ok(t, q.Sync(t.Context()))
	for i := range 100 {
		if order[i] != i || out.Bytes()[i*8] != byte(i+1) {
			t.Fatalf("work %d ran as %d and copied %d", i, order[i], out.Bytes()[i*8])
		}
	}
}

// TestEnqueueDoesNotWait also shows that copies overlap kernels: one arrives on
// its own queue while a kernel of the same device still runs.
func TestEnqueueDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 1, Config{})[0]
		math, copies := newQueue(t, d, "math"), newQueue(t, d, "copy")
		x := memory(t, d, 8, "x")
		p := pin(t, d, 8)
		p.Bytes()[0] = 42
		e := mark(t, d)
		ran := false
		let := gate(t, math, "long")
		ok(t, math.Download(p, 0, x))
		do(t, math, "after", func() { ran = true })
		ok(t, math.Record(e))
		if ok(t, copies.Upload(x, p, 0)); copies.Sync(t.Context()) != nil {
			t.Fatal("the copy did not overlap the kernel")
		}
		p.Bytes()[0] = 0
		synctest.Wait()
		if e.Done() || ran {
			t.Error("a mark behind a running kernel has passed")
		}
		let()
		ok(t, e.Sync(t.Context()))
		if !ran || !e.Done() || p.Bytes()[0] != 42 {
			t.Errorf("after the mark: ran %v, copied %d", ran, p.Bytes()[0])
		}
	})
}

func TestKernelsOfADeviceTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		devs := open(t, 2, Config{})
		a, b, other := newQueue(t, devs[0], "a"), newQueue(t, devs[0], "b"), newQueue(t, devs[1], "a")
		let := gate(t, a, "long")
		synctest.Wait()
		var sameRan, otherRan bool
		do(t, b, "same device", func() { sameRan = true })
		do(t, other, "other device", func() { otherRan = true })
		// Not synctest.Wait: a goroutine that waits for a mutex is not idle to it.
		ok(t, other.Sync(t.Context()))
		if !otherRan {
			t.Error("a kernel waited for another device")
		}
		let()
		ok(t, errors.Join(a.Sync(t.Context()), b.Sync(t.Context())))
		if !sameRan {
			t.Error("the second kernel never ran")
		}
	})
}

func TestWaitOnUnrecordedEvent(t *testing.T) {
	d := open(t, 1, Config{})[0]
	q := newQueue(t, d, "math")
	e := mark(t, d)
	if !e.Done() {
		t.Error("a mark that was never set has not passed")
	}
	ok(t, e.Sync(t.Context()))
	ok(t, q.Wait(e))
	ok(t, q.Sync(t.Context()))
}

// TestEventRecordedAgain: a wait refers to the mark that stands when Wait is
// called, not to a later one.
func TestEventRecordedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 2, Config{})
		a, b := newQueue(t, d[0], "a"), newQueue(t, d[1], "b")
		e := mark(t, d[0])
		let1 := gate(t, a, "first")
		ok(t, a.Record(e))
		var seen []int
		ok(t, b.Wait(e))
		do(t, b, "after the first", func() { seen = append(seen, 1) })
		let2 := gate(t, a, "second")
		ok(t, a.Record(e))
		ok(t, b.Wait(e))
		do(t, b, "after the second", func() { seen = append(seen, 2) })
		check := func(want ...int) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(seen, want) || e.Done() != (len(want) == 2) {
				t.Errorf("ran %v, mark passed: %v; want %v", seen, e.Done(), want)
			}
		}
		check()
		let1()
		check(1)
		let2()
		check(1, 2)
	})
}

// TestEventOfTwoQueues: the later mark of a fast queue does not release those
// who wait for the earlier one of a slow queue.
func TestEventOfTwoQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 3, Config{})
		slow, fast, waits := newQueue(t, d[0], "slow"), newQueue(t, d[1], "fast"), newQueue(t, d[2], "waits")
		e := mark(t, d[0])
		let := gate(t, slow, "long")
		ok(t, slow.Record(e))
		ran := false
		ok(t, waits.Wait(e))
		do(t, waits, "after slow", func() { ran = true })
		ok(t, fast.Record(e))
		synctest.Wait()
		if ran {
			t.Error("the mark of the fast queue released the wait for the slow one")
		}
		if !e.Done() {
			t.Error("the newest mark, on an idle queue, has not passed")
		}
		let()
		synctest.Wait()
		if !ran {
			t.Error("the wait was not released")
		}
	})
}

// TestManyWaitersOfOneEvent: whoever waits for a mark wakes when it passes,
// also beside others who wait for later ones or have given up.
func TestManyWaitersOfOneEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 1, Config{})[0]
		q := newQueue(t, d, "math")
		e := mark(t, d)
		const marks, each = 5, 4
		var lets []func()
		woken := make([]int, marks)
		done := make(chan int, marks*each)
		cause := errors.New("given up")
		for m := range marks {
			lets = append(lets, gate(t, q, fmt.Sprint(m)))
			ok(t, q.Record(e))
			for range each {
				go func() {
					if err := e.Sync(t.Context()); err != nil {
						t.Error(err)
					}
					done <- m
				}()
			}
			synctest.Wait() // all of them wait for this mark, not for a later one
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			if err := e.Sync(ctx); !errors.Is(err, cause) {
				t.Errorf("a Sync with a cancelled context: %v", err)
			}
		}
		for m, let := range lets {
			let()
			synctest.Wait()
			for len(done) > 0 {
				woken[<-done]++
			}
			for i, n := range woken {
				if want := each; (i <= m && n != want) || (i > m && n != 0) {
					t.Fatalf("after mark %d: %v have woken", m, woken)
				}
			}
		}
		if ev := e.(*event); len(ev.waiters)+len(ev.open) != 0 {
			t.Errorf("left behind: %d waiters, %d marks", len(ev.waiters), len(ev.open))
		}
	})
}

func TestSyncEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 1, Config{})[0]
		q := newQueue(t, d, "math")
		let := gate(t, q, "long")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Sync: %v", err)
		}
		let()
		ok(t, q.Sync(t.Context()))
	})
}

func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 2, Config{})
		q, other := newQueue(t, d[0], "math"), newQueue(t, d[1], "copy")
		sleep := func(q *queue, s time.Duration) { do(t, q, "sleep", func() { time.Sleep(s * time.Second) }) }
		check := func(want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := q.Idle(); got != want*time.Second {
				t.Errorf("idle for %v, want %v", got, want*time.Second)
			}
		}
		check(0)
		time.Sleep(3 * time.Second)
		check(3) // a wait that goes on counts
		sleep(q, 10)
		sleep(q, 10)
		ok(t, q.Sync(t.Context()))
		check(3)
		e := mark(t, d[1])
		sleep(other, 5)
		ok(t, other.Record(e))
		ok(t, q.Wait(e))
		sleep(q, 1)
		ok(t, q.Sync(t.Context()))
		check(8)
		time.Sleep(time.Second)
		check(9)
	})
}

// TestDeviceFailure: the failure names kernel, queue and device, sticks, stops
// what is behind it, and lets those who wait for its marks go on.
func TestDeviceFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		devs := open(t, 2, Config{})
		d, peer := devs[0], devs[1]
		q, q2, far := newQueue(t, d, "math"), newQueue(t, d, "comm"), newQueue(t, peer, "math")
		x := memory(t, d, 8, "x")
		p := pin(t, d, 8)
		k := bind(t, d, &op{name: "k", bind: func(gpu.Host) func() { return func() { t.Error("a kernel ran on a dead device") } }})
		before, after := mark(t, d), mark(t, d)
		c := make(chan struct{})
		do(t, q, "attention", func() { <-c; panic("row 7 is outside") })
		ok(t, q.Do(k))
		ok(t, q.Record(before))
		ran := false
		ok(t, far.Wait(before))
		do(t, far, "peer", func() { ran = true })
		close(c)
		err := q.Sync(t.Context())
		has(t, err, "device 0 queue math: attention panicked: row 7 is outside")
		var f *Failure
		if !errors.As(err, &f) || len(f.Stack) == 0 {
			t.Errorf("no stack: %v", err)
		}
		for i, got := range []error{
			q.Do(k), q.Upload(x, p, 0), q.Download(p, 0, x), q.CopyPeer(x, x), q.Record(after), q.Wait(after), q.Sync(t.Context()),
			q2.Do(k), q2.Upload(x, p, 0), q2.Record(after), q2.Sync(t.Context()), before.Sync(t.Context()), after.Sync(t.Context()),
		} {
			if got != err {
				t.Errorf("call %d after the failure: %v", i, got)
			}
		}
		// The peer waits for marks of the dead device, old and new, and goes on.
		ok(t, far.Wait(after))
		ok(t, far.Sync(t.Context()))
		if !ran {
			t.Error("the peer's kernel did not run")
		}
	})
}

func TestCloseRunsPendingWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drv := New(Config{Devices: 2, Threads: 2})
		a, err := drv.Open(0)
		ok(t, err)
		b, err := drv.Open(1)
		ok(t, err)
		qa, qb := newQueue(t, a.(*Device), "math"), newQueue(t, b.(*Device), "math")
		e, err := b.NewEvent()
		ok(t, err)
		s, err := a.Alloc(8, "x")
		ok(t, err)
		p, err := a.AllocPinned(8)
		ok(t, err)
		k := bind(t, a.(*Device), &op{name: "k", bind: func(gpu.Host) func() { return func() {} }})
		n := 0
		do(t, qb, "slow", func() { time.Sleep(time.Second) })
		ok(t, qb.Record(e))
		ok(t, qa.Wait(e))
		for range 100 {
			do(t, qa, "count", func() { n++ })
		}
		ok(t, a.Close()) // waits for what b does
		if n != 100 {
			t.Errorf("%d of 100 pending kernels ran", n)
		}
		ok(t, a.Close())
		_, bindErr := a.Bind(&op{name: "k"}, nil)
		_, allocErr := a.Alloc(8, "x")
		_, pinErr := a.AllocPinned(8)
		_, queueErr := a.NewQueue("late")
		for i, err := range []error{
			qa.Do(k), qa.Record(e), qa.Wait(e), qa.Sync(t.Context()), qa.Upload(s, p, 0), qb.CopyPeer(s, s),
			bindErr, allocErr, pinErr, queueErr,
		} {
			if err == nil {
				t.Errorf("call %d after Close went well", i)
			}
		}
		has(t, qa.Do(k), "device 0 is closed")
		if !e.Done() {
			t.Error("a refused Record moved the mark")
		}
		ok(t, p.Free()) // pinned memory outlives the device
		ok(t, qb.Sync(t.Context()))
		a, err = drv.Open(0)
		ok(t, err)
		ok(t, errors.Join(b.Close(), a.Close()))
	})
}

// TestFullQueue: an enqueue call beyond the depth waits for the device, and
// nothing is lost.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 1, Config{})[0]
		q := newQueue(t, d, "math")
		let := gate(t, q, "long")
		n := 0
		k := bind(t, d, &op{name: "count", bind: func(gpu.Host) func() { return func() { n++ } }})
		enqueued := 0
		done := make(chan error)
		go func() {
			var err error
			for range queueDepth + 10 {
				err = errors.Join(err, q.Do(k))
				enqueued++
			}
			done <- err
		}()
		synctest.Wait()
		if enqueued != queueDepth || n != 0 {
			t.Errorf("%d enqueued and %d run behind a running kernel, want %d and 0", enqueued, n, queueDepth)
		}
		let()
		ok(t, <-done)
		ok(t, q.Sync(t.Context()))
		if n != queueDepth+10 {
			t.Errorf("%d of %d kernels ran", n, queueDepth+10)
		}
	})
}

// TestQueueClose: a queue ends alone, after its work; its marks stay passed, its
// device and the other queues go on.
func TestQueueClose(t *testing.T) {
	d := open(t, 1, Config{})[0]
	a, errA := d.NewQueue("a")
	b, errB := d.NewQueue("b")
	e, errE := d.NewEvent()
	span, errS := d.Alloc(64, "test")
	p, errP := d.AllocPinned(64)
	if err := errors.Join(errA, errB, errE, errS, errP); err != nil {
		t.Fatal(err)
	}
	defer p.Free()
	p.Bytes()[7] = 9
	if err := errors.Join(a.Upload(span, p, 0), a.Record(e), a.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	if !e.Done() {
		t.Error("closed before its work was done")
	}
	for what, err := range map[string]error{"Record": a.Record(e), "Sync": a.Sync(t.Context()), "Upload": a.Upload(span, p, 0)} {
		if err == nil || !strings.Contains(err.Error(), "queue a of device 0 is closed") {
			t.Errorf("%s on a closed queue: %v", what, err)
		}
	}
	p.Bytes()[7] = 0
	if err := errors.Join(b.Wait(e), b.Download(p, 0, span), b.Sync(t.Context())); err != nil || p.Bytes()[7] != 9 {
		t.Errorf("the other queue: %v, byte %d", err, p.Bytes()[7])
	}
}
