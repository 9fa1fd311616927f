package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// count sends 0 to n-1; n < 0 sends for ever.
func count(n int) Stage[struct{}, int] {
	return StageFunc[struct{}, int](func(ctx context.Context, _ In[struct{}], out Out[int]) error {
		for i := 0; i != n; i++ {
			if err := out.Send(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
}

func pass(ctx context.Context, a int) (int, error) { return a, nil }

// collect appends to got, and returns after limit items if limit > 0.
func collect(got *[]int, limit int) Stage[int, struct{}] {
	return StageFunc[int, struct{}](func(ctx context.Context, in In[int], _ Out[struct{}]) error {
		for v, err := range Each(ctx, in) {
			if err != nil {
				return err
			}
			*got = append(*got, v)
			if len(*got) == limit {
				return nil
			}
		}
		return nil
	})
}

func wantCount(t *testing.T, got []int, n int) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("got %d items, want %d", len(got), n)
	}
	for i, v := range got {
		if v != i {
			t.Fatalf("item %d is %d", i, v)
		}
	}
}

func items(n int) LinkConfig { return LinkConfig{Items: n} }

func TestDrain(t *testing.T) {
	for _, capacity := range []int{1, 2, 7, 1000} {
		for seed := range uint64(4) {
			p := New(WithShake(seed), WithLabels("device", "0"))
			var got []int
			a := Source(p, "src", items(capacity), count(300))
			b := Then(p, "map", a, items(capacity), Map(pass))
			c := Then(p, "ordered", b, items(capacity), Ordered(3, pass))
			Sink(p, "sink", c, collect(&got, 0))
			if err := p.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantCount(t, got, 300)
			for _, s := range p.Stats() {
				if s.Items != 300 || !s.Done || s.QueueLen != 0 {
					t.Errorf("%+v", s)
				}
			}
		}
	}
}

// A stage between may not turn a failed producer into a finished one.
func TestFailureIsNotTheEnd(t *testing.T) {
	boom := errors.New("boom")
	for seed := range uint64(20) {
		p := New(WithShake(seed))
		sawEOF := false
		a := Source(p, "src", items(2), StageFunc[struct{}, int](func(ctx context.Context, _ In[struct{}], out Out[int]) error {
			for i := range 5 {
				if err := out.Send(ctx, i); err != nil {
					return err
				}
			}
			return boom
		}))
		b := Then(p, "mid", a, items(2), Map(pass))
		Sink(p, "sink", b, StageFunc[int, struct{}](func(ctx context.Context, in In[int], _ Out[struct{}]) error {
			for {
				_, err := in.Recv(ctx)
				if err == io.EOF {
					sawEOF = true
					return nil
				}
				if err != nil {
					return fmt.Errorf("sink noticed: %w", err)
				}
			}
		}))
		err := p.Run(t.Context())
		if !errors.Is(err, boom) || err.Error() != "stage src: boom" {
			t.Fatalf("err = %v", err)
		}
		var se *StageError
		if !errors.As(err, &se) || se.Stage != "src" {
			t.Fatalf("not a StageError of src: %#v", err)
		}
		if sawEOF {
			t.Fatal("the sink saw io.EOF after the source failed")
		}
	}
}

func TestConsumerStopsEarly(t *testing.T) {
	for _, limit := range []int{1, 2, 3, 10} {
		for seed := range uint64(5) {
			p := New(WithShake(seed))
			var released atomic.Int64
			var got []int
			c := LinkConfig{Items: 3, Release: func(any) { released.Add(1) }}
			made := 0
			a := Source(p, "src", c, StageFunc[struct{}, int](func(ctx context.Context, _ In[struct{}], out Out[int]) error {
				for ; ; made++ {
					if err := out.Send(ctx, made); err != nil {
						made++ // the refused item is the link's too
						return fmt.Errorf("wrapped: %w", err)
					}
				}
			}))
			Sink(p, "sink", a, collect(&got, limit))
			if err := p.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantCount(t, got, limit)
			if int(released.Load()) != made-limit {
				t.Fatalf("made %d, received %d, released %d", made, limit, released.Load())
			}
		}
	}
}

// The producer of a consumer that ended waits somewhere other than in Send.
func TestStopReachesAProducerThatWaitsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		var cause error
		a := Source(p, "src", items(4), StageFunc[struct{}, int](func(ctx context.Context, _ In[struct{}], out Out[int]) error {
			if err := out.Send(ctx, 0); err != nil {
				return err
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			return ctx.Err()
		}))
		b := Then(p, "mid", a, items(4), Map(pass))
		var got []int
		Sink(p, "sink", b, collect(&got, 1))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if cause != ErrStopped {
			t.Fatalf("cause = %v", cause)
		}
	})
}

func TestCancel(t *testing.T) {
	stop := errors.New("operator said stop")
	for _, at := range []int{0, 1, 5, 50} {
		p := New(WithShake(uint64(at)))
		ctx, cancel := context.WithCancelCause(t.Context())
		n := 0
		a := Source(p, "src", items(2), count(-1))
		b := Then(p, "mid", a, items(2), Ordered(2, pass))
		Sink(p, "sink", b, StageFunc[int, struct{}](func(ctx context.Context, in In[int], _ Out[struct{}]) error {
			for {
				if n == at {
					cancel(stop)
				}
				if _, err := in.Recv(ctx); err != nil {
					return err
				}
				n++
			}
		}))
		if err := p.Run(ctx); err != stop {
			t.Fatalf("err = %v", err)
		}
		if n != at {
			t.Fatalf("received %d after the cancel at %d", n-at, at)
		}
	}
}

func TestCancelledBeforeRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := New()
	ran := false
	a := Source(p, "src", items(1), StageFunc[struct{}, int](func(context.Context, In[struct{}], Out[int]) error { ran = true; return nil }))
	var got []int
	Sink(p, "sink", a, collect(&got, 0))
	if err := p.Run(ctx); !errors.Is(err, context.Canceled) || ran {
		t.Fatalf("err = %v, ran = %v", err, ran)
	}
}

func TestSecondFailureIsJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := errors.New("first"), errors.New("second")
		p := New()
		a := Source(p, "src", items(1), StageFunc[struct{}, int](func(ctx context.Context, _ In[struct{}], _ Out[int]) error {
			<-ctx.Done()
			return fmt.Errorf("closing the file: %w", second)
		}))
		Sink(p, "sink", a, StageFunc[int, struct{}](func(context.Context, In[int], Out[struct{}]) error { return first }))
		err := p.Run(t.Context())
		if !errors.Is(err, first) || !errors.Is(err, second) {
			t.Fatalf("err = %v", err)
		}
		if want := "stage sink: first\nstage src: closing the file: second"; err.Error() != want {
			t.Fatalf("got %q, want %q", err, want)
		}
	})
}

func TestPanicIsNamed(t *testing.T) {
	inner := errors.New("inner")
	cases := []struct {
		name   string
		stage  Stage[int, int]
		record string
	}{
		{"map", Map(func(ctx context.Context, a int) (int, error) {
			if a == 7 {
				panic(inner)
			}
			return a, nil
		}), "item 7"},
		{"at", Map(func(ctx context.Context, a int) (int, error) {
			At(ctx, fmt.Sprintf("shard x line %d", a))
			if a == 7 {
				panic(inner)
			}
			return a, nil
		}), "shard x line 7"},
		{"worker", Ordered(3, func(ctx context.Context, a int) (int, error) {
			if a == 7 {
				panic(inner)
			}
			return a, nil
		}), "item 7"},
		{"worker at", Ordered(3, func(ctx context.Context, a int) (int, error) {
			AtIndex(ctx, "shard y line", int64(a))
			if a == 7 {
				panic(inner)
			}
			return a, nil
		}), "shard y line 7"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := New()
			a := Source(p, "src", items(2), count(-1))
			b := Then(p, "stage", a, items(2), c.stage)
			var got []int
			Sink(p, "sink", b, collect(&got, 0))
			err := p.Run(t.Context())
			var pe *PanicError
			if !errors.As(err, &pe) || !errors.Is(err, inner) {
				t.Fatalf("err = %v", err)
			}
			if pe.Stage != "stage" || pe.Record != c.record || pe.Value != any(inner) {
				t.Fatalf("%+v", pe)
			}
			if !strings.Contains(string(pe.Stack), "pipeline_test.go") {
				t.Fatalf("the stack does not show where:\n%s", pe.Stack)
			}
			if want := "stage stage: panic at " + c.record + ": inner"; err.Error() != want {
				t.Fatalf("got %q, want %q", err, want)
			}
		})
	}
}

// panic(ctx.Err()) is a panic, not a cancellation.
func TestPanicWithCanceledIsAFailure(t *testing.T) {
	p := New()
	a := Source(p, "src", items(1), count(-1))
	Sink(p, "sink", a, StageFunc[int, struct{}](func(context.Context, In[int], Out[struct{}]) error {
		panic(context.Canceled)
	}))
	var pe *PanicError
	if err := p.Run(t.Context()); !errors.As(err, &pe) || pe.Stage != "sink" {
		t.Fatalf("err = %v", err)
	}
}

func TestGoexitIsAFailure(t *testing.T) {
	p := New()
	a := Source(p, "src", items(1), count(-1))
	Sink(p, "sink", a, StageFunc[int, struct{}](func(context.Context, In[int], Out[struct{}]) error {
		runtime.Goexit()
		return nil
	}))
	if err := p.Run(t.Context()); !errors.Is(err, errGoexit) {
		t.Fatalf("err = %v", err)
	}
}

func TestPanicInReleaseAndSizeBytes(t *testing.T) {
	p := New()
	a := Source(p, "src", LinkConfig{Items: 3, Release: func(any) { panic("release") }}, count(-1))
	var got []int
	Sink(p, "sink", a, StageFunc[int, struct{}](func(ctx context.Context, in In[int], _ Out[struct{}]) error {
		for range 2 {
			if _, err := in.Recv(ctx); err != nil {
				return err
			}
		}
		return nil
	}))
	var pe *PanicError
	if err := p.Run(t.Context()); !errors.As(err, &pe) {
		t.Fatalf("err = %v", err)
	}

	p = New()
	b := Source(p, "src", items(1), StageFunc[struct{}, badSize](func(ctx context.Context, _ In[struct{}], out Out[badSize]) error {
		return out.Send(ctx, badSize{})
	}))
	c := Then(p, "mid", b, items(1), Map(func(context.Context, badSize) (int, error) { return 0, nil }))
	Sink(p, "sink", c, collect(&got, 0))
	if err := p.Run(t.Context()); !errors.As(err, &pe) || pe.Stage != "src" {
		t.Fatalf("err = %v", err)
	}
}

type badSize struct{ x int }

func (badSize) SizeBytes() int64 { panic("size") }

func TestErrorNamesTheRecord(t *testing.T) {
	boom := errors.New("boom")
	fail := func(ctx context.Context, a int) (int, error) {
		AtIndex(ctx, "shard x line", int64(a))
		if a >= 4 {
			return 0, boom
		}
		return a, nil
	}
	for name, s := range map[string]Stage[int, int]{"map": Map(fail), "ordered": Ordered(4, fail)} {
		p := New(WithShake(3))
		var got []int
		a := Source(p, "src", items(8), count(-1))
		b := Then(p, "parse", a, items(8), s)
		Sink(p, "sink", b, collect(&got, 0))
		err := p.Run(t.Context())
		if !errors.Is(err, boom) || err.Error() != "stage parse: shard x line 4: boom" {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

func TestBuildMistakes(t *testing.T) {
	p := New(WithLabels("device"))
	a := Source(p, "a", LinkConfig{}, count(1))
	Source(p, "a", LinkConfig{Items: 1, Bytes: -1}, count(1))
	var got []int
	Sink(p, "s1", a, collect(&got, 0))
	Sink(p, "s2", a, collect(&got, 0))
	Sink(p, "", nil, collect(&got, 0))
	Sink(p, "nil", Source(New(), "other", items(1), count(1)), nil)
	Tee(p, "tee", a)
	err := p.Run(t.Context())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`WithLabels: key "device"`, "Items is 0", "Bytes is -1", "the name is used twice",
		"already goes to stage s1; use Tee", "has no name", "the input link is nil", "another Pipeline",
		"the Stage is nil", "at least one LinkConfig", "nothing consumes its output",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
	if err := New().Run(t.Context()); err == nil {
		t.Error("an empty pipeline ran")
	}
}

func TestRunTwice(t *testing.T) {
	p := New()
	var got []int
	Sink(p, "sink", Source(p, "src", items(1), count(1)), collect(&got, 0))
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err == nil {
		t.Fatal("Run ran twice")
	}
}

func TestTee(t *testing.T) {
	for seed := range uint64(5) {
		p := New(WithShake(seed))
		var all, few []int
		var seen, released atomic.Int64
		a := Source(p, "src", items(2), count(200))
		c := LinkConfig{Items: 2, Release: func(any) { released.Add(1) }}
		outs := Tee(p, "tee", a, items(3), c, LinkConfig{Items: 1, DropOldest: true, Release: c.Release})
		Sink(p, "all", outs[0], collect(&all, 0))
		Sink(p, "few", outs[1], collect(&few, 3))
		Sink(p, "newest", outs[2], StageFunc[int, struct{}](func(ctx context.Context, in In[int], _ Out[struct{}]) error {
			last := -1
			for v, err := range Each(ctx, in) {
				if err != nil {
					return err
				}
				if v <= last {
					return fmt.Errorf("%d after %d", v, last)
				}
				last = v
				seen.Add(1)
			}
			if last != 199 {
				return fmt.Errorf("the newest item is %d", last)
			}
			return nil
		}))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantCount(t, all, 200)
		wantCount(t, few, 3)
		if got := seen.Load() + 3 + released.Load(); got != 400 {
			t.Fatalf("seen %d, released %d: %d of 400", seen.Load(), released.Load(), got)
		}
		if s := p.Stats()[1]; s.Items != 200 || int64(s.Dropped) != 200-seen.Load() {
			t.Fatalf("%+v", s)
		}
	}
}

func TestTeeEndsWithItsLastBranch(t *testing.T) {
	p := New()
	var x, y []int
	outs := Tee(p, "tee", Source(p, "src", items(1), count(-1)), items(1), items(1))
	Sink(p, "x", outs[0], collect(&x, 2))
	Sink(p, "y", outs[1], collect(&y, 9))
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCount(t, x, 2)
	wantCount(t, y, 9)
}

type sized struct{ n int64 }

func (s sized) SizeBytes() int64 { return s.n }

type sizedPtr struct{ n int64 }

func (s *sizedPtr) SizeBytes() int64 { return s.n }

func TestSizing(t *testing.T) {
	if got := sizingOf[sized](); got != sizeByAddress {
		t.Errorf("value type: %d", got)
	}
	if got := sizingOf[sizedPtr](); got != sizeByAddress {
		t.Errorf("value type with pointer method: %d", got)
	}
	if got := sizingOf[*sizedPtr](); got != sizeByValue {
		t.Errorf("pointer: %d", got)
	}
	if got := sizingOf[Sizer](); got != sizeByValue {
		t.Errorf("interface: %d", got)
	}
	if got := sizingOf[int](); got != sizeNone {
		t.Errorf("int: %d", got)
	}
}

// The queue never holds more than Bytes, except for one large item alone.
func TestBytesBound(t *testing.T) {
	const limit = 100
	p := New(WithShake(1))
	sizes := []int64{60, 40, 1, 100, 99, 2, 500, 0, 0, 300, 50, 50, 50, 101, 0, 100, 7}
	var sum int64
	a := Source(p, "src", LinkConfig{Items: 4, Bytes: limit}, StageFunc[struct{}, sized](func(ctx context.Context, _ In[struct{}], out Out[sized]) error {
		for range 50 {
			for _, n := range sizes {
				sum += n
				if err := out.Send(ctx, sized{n}); err != nil {
					return err
				}
				if s := p.Stats()[0]; s.QueueBytes > limit && s.QueueLen > 1 {
					return fmt.Errorf("%d items of %d bytes are queued", s.QueueLen, s.QueueBytes)
				}
			}
		}
		return nil
	}))
	i := 0
	Sink(p, "sink", a, StageFunc[sized, struct{}](func(ctx context.Context, in In[sized], _ Out[struct{}]) error {
		for v, err := range Each(ctx, in) {
			if err != nil {
				return err
			}
			if want := sizes[i%len(sizes)]; v.n != want {
				return fmt.Errorf("item %d has size %d, want %d", i, v.n, want)
			}
			i++
		}
		return nil
	}))
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	rows := p.Stats()
	if i != 50*len(sizes) || rows[0].Bytes != sum || rows[1].Bytes != sum {
		t.Fatalf("%d items, want %d bytes: %+v", i, sum, rows)
	}
}

// A stage may not claim to be stopped or cancelled when nobody did that.
func TestUnfoundedStopIsAFailure(t *testing.T) {
	for _, claim := range []error{ErrStopped, context.Canceled, context.DeadlineExceeded} {
		p := New()
		a := Source(p, "src", items(1), StageFunc[struct{}, int](func(context.Context, In[struct{}], Out[int]) error {
			return claim
		}))
		var got []int
		Sink(p, "sink", a, collect(&got, 0))
		if err := p.Run(t.Context()); err == nil || err.Error() != "stage src: "+claim.Error() {
			t.Errorf("claim %v: err = %v", claim, err)
		}
	}
}
