package store

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerifyFindsForeignIDs: the checksums of a store cannot tell that it was made
// with a larger vocabulary than it says; every id is looked at for that.
func TestVerifyFindsForeignIDs(t *testing.T) {
	for _, c := range []struct{ made, says int }{{5000, 900}, {90000, 66000}} {
		dir := filepath.Join(t.TempDir(), "s")
		w, err := Create(dir, Meta{Vocab: c.made})
		if err != nil {
			t.Fatal(err)
		}
		w.limits = limits{batch: 10, document: 50, shard: 30, names: shardNames}
		for doc := range 40 {
			ids := []uint32{uint32(doc), 2, uint32(c.says) - 1}
			if doc == 33 {
				ids = append(ids, 7, uint32(c.says), 8)
			}
			if err := w.Append(uint64(doc), "a", ids); err != nil {
				t.Fatal(err)
			}
		}
		w.m.Vocab = c.says
		if _, err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := Verify(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), "document 33: id ") || !strings.Contains(err.Error(), " at token 4 is outside") {
			t.Errorf("a vocabulary of %d said to be %d: %v", c.made, c.says, err)
		}
	}
}

func TestVerifyObeysContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	w, err := Create(dir, Meta{Vocab: 10})
	if err != nil {
		t.Fatal(err)
	}
	w.limits = limits{batch: 2, document: 5, shard: 100, names: shardNames}
	for doc := range 20 {
		if err := w.Append(uint64(doc), "a", []uint32{1, 2}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	calls := 0
	err = Verify(ctx, dir, func(done, total int64) {
		if calls++; calls == 3 {
			cancel(stop)
		}
	})
	if !errors.Is(err, stop) || calls != 3 {
		t.Errorf("after %d reports: %v", calls, err)
	}
}
