package pipeline

import (
	"context"
	"fmt"
	"runtime/trace"
	"slices"
	"sync"
	"time"
)

// Pool is a fixed ring of reusable items, such as host buffers. Free items are
// handed out in the order they came back. All methods may be called from any
// goroutine.
type Pool[T comparable] struct {
	all  []T
	free chan T

	mu    sync.Mutex
	out   map[T]bool // whether the item is handed out; never ranged over
	stats PoolStats
}

// PoolStats counts what a Pool did.
type PoolStats struct {
	Gets   uint64        // items handed out
	Waits  uint64        // how many of these had to wait
	Waited time.Duration // finished waits, added up over goroutines
}

// NewPool makes a pool of n items, item i by newItem(i). Items must differ
// from each other, as pointers do. It fails with the first error of newItem;
// items made before that are left to the caller of newItem to free.
func NewPool[T comparable](n int, newItem func(i int) (T, error)) (*Pool[T], error) {
	if n < 1 {
		return nil, fmt.Errorf("pipeline: a Pool of %d items; use at least 1", n)
	}
	p := &Pool[T]{free: make(chan T, n), out: make(map[T]bool, n)}
	for i := range n {
		v, err := newItem(i)
		if err != nil {
			return nil, fmt.Errorf("pipeline: item %d of a Pool of %d: %w", i, n, err)
		}
		if _, dup := p.out[v]; dup {
			return nil, fmt.Errorf("pipeline: item %d of a Pool equals an earlier one", i)
		}
		p.out[v] = false
		p.all = append(p.all, v)
		p.free <- v
	}
	return p, nil
}

// Get returns a free item, which belongs to the caller until Put. It waits
// while all are handed out; in a stage that wait counts as Blocked, since it is
// the consumers' holding of items that causes it. It returns the cause of ctx
// when ctx is done, even if an item is free.
func (p *Pool[T]) Get(ctx context.Context) (T, error) {
	var zero T
	if ctx.Err() != nil {
		return zero, context.Cause(ctx)
	}
	select {
	case v := <-p.free:
		p.handOut(v, 0, 0)
		return v, nil
	default:
	}
	region := trace.StartRegion(ctx, "blocked")
	defer region.End()
	m := scopeOf(ctx).meter()
	since := m.begin(blocked)
	defer m.end(blocked, since)
	start := time.Now()
	select {
	case v := <-p.free:
		p.handOut(v, 1, time.Since(start))
		return v, nil
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	}
}

func (p *Pool[T]) handOut(v T, waits uint64, waited time.Duration) {
	p.mu.Lock()
	p.out[v] = true
	p.stats.Gets++
	p.stats.Waits += waits
	p.stats.Waited += waited
	p.mu.Unlock()
}

// Put returns an item. It never blocks. An item that is not handed out, or is
// not of this pool, means that two owners hold it; Put panics.
func (p *Pool[T]) Put(v T) {
	p.mu.Lock()
	out, ours := p.out[v]
	if out {
		p.out[v] = false
	}
	p.mu.Unlock()
	switch {
	case !ours:
		panic(fmt.Sprintf("pipeline: Put of %v, which is not an item of this Pool", v))
	case !out:
		panic(fmt.Sprintf("pipeline: Put of %v, which is not handed out", v))
	}
	p.free <- v // has room: each of the cap items is in it at most once
}

// Len is the number of free items. Len equal to Cap means that all are home.
func (p *Pool[T]) Len() int { return len(p.free) }

// Cap is the number of items.
func (p *Pool[T]) Cap() int { return cap(p.free) }

// All returns every item, free or not, in the order they were made, so that
// their owner can free what they hold after the run.
func (p *Pool[T]) All() []T { return slices.Clone(p.all) }

// Stats returns the counts so far.
func (p *Pool[T]) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}
