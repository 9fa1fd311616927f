package tokens

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"refrain/internal/fsx"
	"refrain/store"
)

// splitting returns a splitter for n validation documents with writers in memory.
func splitting(t *testing.T, n, room int64) *splitter {
	t.Helper()
	mem := fsx.NewMem()
	s := &splitter{val: Val{Docs: n}, room: room, countText: func(ids []byte) int64 { return int64(len(ids)) }}
	for dir, to := range map[string]**store.Writer{"train": &s.trainTo, "val": &s.valTo} {
		if err := mem.Mkdir(dir, fsx.DirPerm); err != nil {
			t.Fatal(err)
		}
		w, err := store.NewWriter(mem, dir, store.Meta{Vocab: 100})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Abort() })
		*to = w
	}
	return s
}

func numbered(i, n int) document {
	d := document{id: uint64(i), source: "f.txt", ids: make([]byte, 2*n)}
	binary.LittleEndian.PutUint64(d.hash[:], uint64(i))
	return d
}

// TestHeldDocumentsAreBounded: what is held for validation is counted exactly, given
// up documents included, and over the bound the ingest stops with a way out.
func TestHeldDocumentsAreBounded(t *testing.T) {
	const docs, keep = 60, 10
	s := splitting(t, keep, 1<<20)
	var most int64
	for i := range docs {
		if err := s.add(numbered(i, 1+i%7)); err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, d := range s.held {
			sum += int64(len(d.ids))
		}
		if most = max(most, sum); sum != s.heldBytes || len(s.held) > keep {
			t.Fatalf("after document %d: %d bytes counted, %d held, by %d documents", i, s.heldBytes, sum, len(s.held))
		}
	}
	if err := s.finish(); err != nil || s.valTo.Documents() != keep || s.trainTo.Documents() != docs-keep {
		t.Errorf("%d and %d documents (%v)", s.trainTo.Documents(), s.valTo.Documents(), err)
	}
	for _, room := range []int64{most, most - 1} {
		s := splitting(t, keep, room)
		i, err := 0, error(nil)
		for ; i < docs && err == nil; i++ {
			err = s.add(numbered(i, 1+i%7))
		}
		if fits := room == most; fits != (err == nil) {
			t.Errorf("room for %d of %d bytes: %v", room, most, err)
		} else if !fits && !strings.Contains(err.Error(), "f.txt, document") {
			t.Errorf("the error does not name the place: %v", err)
		}
	}
}

// TestGivenUpDocumentsComeLater: the documents a smaller hash pushes out are in
// training, and only they are out of order.
func TestGivenUpDocumentsComeLater(t *testing.T) {
	const docs = 60
	s := splitting(t, 10, 1<<20)
	var order []int // of documents that training has, by the place where each entered
	in := func() map[int]bool {
		held := map[int]bool{}
		for _, d := range s.held {
			held[int(d.id)] = true
		}
		return held
	}
	before := in()
	for i := range docs {
		if err := s.add(numbered(i, 1)); err != nil {
			t.Fatal(err)
		}
		before[i] = true
		now := in()
		for id := range docs { // one at most
			if before[id] && !now[id] {
				order = append(order, id)
			}
		}
		before = now
	}
	if len(order) != docs-10 || s.trainTo.Documents() != int64(len(order)) || slices.IsSorted(order) {
		t.Errorf("%d in training, %d written, order %v", len(order), s.trainTo.Documents(), order)
	}
}
