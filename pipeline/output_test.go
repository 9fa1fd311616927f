package pipeline

import (
	"context"
	"strings"
	"testing"
)

// A stage with a side output: results along the chain, snapshots to the side,
// where only the newest counts.
func TestSideOutput(t *testing.T) {
	p := New(WithShake(2))
	var snapshots Out[string]
	a := Source(p, "src", items(2), count(100))
	b := Then(p, "step", a, items(2), StageFunc[int, int](func(ctx context.Context, in In[int], out Out[int]) error {
		for v, err := range Each(ctx, in) {
			if err != nil {
				return err
			}
			if v%10 == 9 {
				if err := snapshots.Send(ctx, strings.Repeat("x", v)); err != nil {
					return err
				}
			}
			if err := out.Send(ctx, v); err != nil {
				return err
			}
		}
		return nil
	}))
	side, out := Output[string](p, b, LinkConfig{Items: 1, DropOldest: true})
	snapshots = out
	var got []int
	Sink(p, "log", b, collect(&got, 0))
	seen, last := 0, 0
	Sink(p, "evals", side, StageFunc[string, struct{}](func(ctx context.Context, in In[string], _ Out[struct{}]) error {
		for s, err := range Each(ctx, in) {
			if err != nil {
				return err
			}
			seen, last = seen+1, len(s)
		}
		return nil
	}))
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCount(t, got, 100)
	if last != 99 {
		t.Errorf("the newest snapshot is %d", last)
	}
	s := p.Stats()[1]
	if s.Items != 100 || s.Received != 100 || s.QueueCap != 2 || int(s.Dropped)+seen != 10 {
		t.Errorf("seen %d of 10 snapshots: %+v", seen, s)
	}
}

// The stage goes on while any of its outputs is read.
func TestSideOutputOutlivesTheMain(t *testing.T) {
	p := New()
	var side Out[int]
	a := Source(p, "src", items(1), StageFunc[struct{}, int](func(ctx context.Context, _ In[struct{}], out Out[int]) error {
		for i := range 100 {
			_ = out.Send(ctx, i) // its consumer ends after one item
			if err := side.Send(ctx, i); err != nil {
				return err
			}
		}
		return nil
	}))
	b, out := Output[int](p, a, items(1))
	side = out
	var x, y []int
	Sink(p, "main", a, collect(&x, 1))
	Sink(p, "side", b, collect(&y, 0))
	if err := p.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCount(t, x, 1)
	wantCount(t, y, 100)
}

func TestSideOutputOfAnotherPipeline(t *testing.T) {
	p := New()
	a := Source(New(), "src", items(1), count(1))
	l, _ := Output[int](p, a, items(1))
	var got []int
	Sink(p, "sink", l, collect(&got, 0))
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "of another Pipeline") {
		t.Errorf("err = %v", err)
	}
}
