package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
)

// ball is an item that must be freed exactly once.
type ball struct {
	n    int
	live *atomic.Int64
	free atomic.Bool
}

func (b *ball) SizeBytes() int64 { return int64(b.n % 7) }

func (b *ball) drop() {
	if b.free.Swap(true) {
		panic(fmt.Sprintf("item %d was freed twice", b.n))
	}
	b.live.Add(-1)
}

// chaos is one random chain with at most one fault.
type chaos struct {
	rng   *rand.Rand
	items int
	fault string
	stage int // where the fault happens; 0 is the source
	item  int
	live  atomic.Int64
	stop  context.CancelCauseFunc
	next  int // what the sink expects
}

var errChaos = errors.New("chaos")

// hit makes the fault happen at its place.
func (c *chaos) hit(stage int, b *ball) error {
	if stage != c.stage || b.n != c.item {
		return nil
	}
	switch c.fault {
	case "cancel":
		c.stop(errChaos)
	case "fail":
		b.drop()
		return errChaos
	case "panic":
		b.drop()
		panic(errChaos)
	}
	return nil
}

func (c *chaos) link() LinkConfig {
	l := LinkConfig{Items: 1 + c.rng.IntN(4), Release: ReleaseOf((*ball).drop)}
	if c.rng.IntN(2) == 0 {
		l.Bytes = 1 + c.rng.Int64N(12)
	}
	return l
}

func (c *chaos) source(ctx context.Context, _ In[struct{}], out Out[*ball]) error {
	for i := range c.items {
		c.live.Add(1)
		b := &ball{n: i, live: &c.live}
		if err := c.hit(0, b); err != nil {
			return err
		}
		if err := out.Send(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

func (c *chaos) middle(stage int) Stage[*ball, *ball] {
	f := func(_ context.Context, b *ball) (*ball, error) { return b, c.hit(stage, b) }
	if c.rng.IntN(2) == 0 {
		return Map(f)
	}
	return Ordered(1+c.rng.IntN(4), f)
}

func (c *chaos) sink(stage int) Stage[*ball, struct{}] {
	return StageFunc[*ball, struct{}](func(ctx context.Context, in In[*ball], _ Out[struct{}]) error {
		for b, err := range Each(ctx, in) {
			if err != nil {
				return err
			}
			if b.n != c.next {
				return fmt.Errorf("item %d instead of %d", b.n, c.next)
			}
			c.next++
			if err := c.hit(stage, b); err != nil {
				return err
			}
			b.drop()
			if c.fault == "stop" && b.n == c.item {
				return nil
			}
		}
		return nil
	})
}

func runChaos(ctx context.Context, seed uint64) error {
	c := &chaos{rng: rand.New(rand.NewPCG(seed, 0))}
	ctx, c.stop = context.WithCancelCause(ctx)
	defer c.stop(nil)
	c.items = c.rng.IntN(60)
	c.fault = []string{"none", "cancel", "fail", "panic", "stop"}[c.rng.IntN(5)]
	stages := c.rng.IntN(4)
	c.stage, c.item = c.rng.IntN(stages+2), c.rng.IntN(60)
	p := New(WithShake(seed))
	l := Source(p, "stage 0", c.link(), StageFunc[struct{}, *ball](c.source))
	for i := range stages {
		l = Then(p, fmt.Sprintf("stage %d", i+1), l, c.link(), c.middle(i+1))
	}
	Sink(p, fmt.Sprintf("stage %d", stages+1), l, c.sink(stages+1))
	// Stats may be called at any time; under the race detector this proves it.
	polled := make(chan error)
	over := make(chan struct{})
	go func() {
		var err error
		for err == nil {
			for _, s := range p.Stats() {
				if s.Busy < 0 || s.Starved < 0 || s.Blocked < 0 || s.QueueLen > s.QueueCap {
					err = fmt.Errorf("impossible statistics: %+v", s)
				}
			}
			select {
			case <-over:
				polled <- err
				return
			default:
				runtime.Gosched()
			}
		}
		polled <- err
	}()
	err := p.Run(ctx)
	close(over)
	if err := <-polled; err != nil {
		return err
	}

	what := fmt.Sprintf("seed %d: %s at item %d of %d in stage %d of %d: ", seed, c.fault, c.item, c.items, c.stage, stages+2)
	if n := c.live.Load(); n != 0 {
		return fmt.Errorf("%s%d items were not freed", what, n)
	}
	happens := c.item < c.items
	var se *StageError
	var pe *PanicError
	switch {
	case c.fault == "none" || !happens || c.fault == "stop":
		want := c.items
		if c.fault == "stop" && happens {
			want = c.item + 1
		}
		if err != nil || c.next != want {
			return fmt.Errorf("%s%d items, want %d: %v", what, c.next, want, err)
		}
	case !errors.Is(err, errChaos):
		return fmt.Errorf("%sreported as %v", what, err)
	case c.fault == "cancel" && err != errChaos,
		c.fault == "fail" && (!errors.As(err, &se) || error(se) != err || se.Stage != fmt.Sprintf("stage %d", c.stage)),
		c.fault == "panic" && (!errors.As(err, &pe) || error(pe) != err || pe.Stage != fmt.Sprintf("stage %d", c.stage)):
		return fmt.Errorf("%sreported as %v", what, err)
	case c.next > c.item+1 && c.fault != "cancel":
		return fmt.Errorf("%s%d items reached the sink", what, c.next)
	}
	return nil
}

// Random chains with random faults: every item is freed exactly once, order
// holds, and the error names its place. The seed is printed on failure and
// selects the chain and the delays.
func TestChaos(t *testing.T) {
	seeds := uint64(250)
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		if err := runChaos(t.Context(), seed); err != nil {
			t.Error(err)
		}
	}
}

// Several goroutines of one stage may share its ends.
func TestEndsAreSafeForGroups(t *testing.T) {
	const senders, each = 4, 500
	p := New(WithShake(5))
	a := Source(p, "src", LinkConfig{Items: 2, Bytes: 9}, StageFunc[struct{}, sized](func(ctx context.Context, _ In[struct{}], out Out[sized]) error {
		g := NewGroup(ctx)
		for s := range senders {
			g.Go(func(ctx context.Context) error {
				for i := range each {
					if err := out.Send(ctx, sized{int64(s*each + i)}); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	}))
	var seen [senders * each]atomic.Bool
	Sink(p, "sink", a, StageFunc[sized, struct{}](func(ctx context.Context, in In[sized], _ Out[struct{}]) error {
		g := NewGroup(ctx)
		for range 3 {
			g.Go(func(ctx context.Context) error {
				for v, err := range Each(ctx, in) {
					if err != nil {
						return err
					}
					if seen[v.n].Swap(true) {
						return fmt.Errorf("%d came twice", v.n)
					}
				}
				return nil
			})
		}
		return g.Wait()
	}))
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range seen {
		if !seen[i].Load() {
			t.Fatalf("%d was lost", i)
		}
	}
	if s := p.Stats(); s[0].Items != senders*each || s[1].Received != senders*each {
		t.Errorf("%+v", s)
	}
}
