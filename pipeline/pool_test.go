package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestPool(t *testing.T) {
	pool, err := NewPool(3, func(i int) (int, error) { return 10 * i, nil })
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for range 3 {
		v, err := pool.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, v)
	}
	if got[0] != 0 || got[1] != 10 || got[2] != 20 {
		t.Errorf("got %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := pool.Get(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	pool.Put(20)
	pool.Put(0)
	if v, _ := pool.Get(t.Context()); v != 20 {
		t.Errorf("got %d, want the item that came back first", v)
	}
	if pool.Len() != 1 || pool.Cap() != 3 || len(pool.All()) != 3 {
		t.Errorf("len %d, cap %d, all %v", pool.Len(), pool.Cap(), pool.All())
	}
}

func wantPanic(t *testing.T, want string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if v := recover(); v == nil || !strings.Contains(v.(string), want) {
			t.Errorf("panic %v, want %q", v, want)
		}
	}()
	f()
}

func TestPoolMisuse(t *testing.T) {
	pool, err := NewPool(2, func(i int) (int, error) { return i, nil })
	if err != nil {
		t.Fatal(err)
	}
	wantPanic(t, "not an item of this Pool", func() { pool.Put(7) })
	wantPanic(t, "not handed out", func() { pool.Put(1) })
	v, err := pool.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pool.Put(v)
	wantPanic(t, "not handed out", func() { pool.Put(v) })
	if pool.Len() != 2 {
		t.Errorf("a refused Put changed the pool: %d free", pool.Len())
	}
	if _, err := NewPool(0, func(i int) (int, error) { return i, nil }); err == nil {
		t.Error("a pool of 0 items")
	}
	if _, err := NewPool(2, func(i int) (int, error) { return 1, nil }); err == nil {
		t.Error("a pool of equal items")
	}
	boom := errors.New("boom")
	if _, err := NewPool(2, func(i int) (int, error) { return i, boom }); !errors.Is(err, boom) {
		t.Error(err)
	}
}
