package repack

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

// R19: another corpus is refused by its fingerprint.
func TestR19OtherData(t *testing.T) {
	cfg := Config{Mode: Repack, T: 16}
	a, b := mustStream(t, toy(), cfg), mustStream(t, memOf([]uint32{100}), cfg)
	if _, err := b.Resume(a.State(1)); err == nil || !strings.Contains(err.Error(), "data fingerprint") {
		t.Errorf("err = %v", err)
	}
}

// R21, R23: shapes that cannot be served are startup errors with the numbers.
func TestR23ImpossibleShapes(t *testing.T) {
	for _, c := range []struct {
		name string
		c    *memCorpus
		cfg  Config
		want string
	}{
		{"short corpus", memOf([]uint32{7, 8}), Config{Mode: Repack, T: 16}, "the corpus has 15 tokens and a window needs T = 16"},
		{"short corpus carried", memOf([]uint32{15}), Config{Mode: Repack, T: 16, Tail: Carry}, "no window"},
		{"empty corpus", memOf(nil), Config{Mode: Repack, T: 16}, "empty (0 documents, 0 tokens)"},
		{"empty document", memOf([]uint32{20, 0}), Config{Mode: Repack, T: 16}, "document 1 has no tokens"},
		{"no mode", memOf([]uint32{20}), Config{T: 16}, "not a mode"},
		{"no T", memOf([]uint32{20}), Config{Mode: Fixed}, "window length 0"},
		{"no block", memOf([]uint32{20}), Config{Mode: Block, T: 16}, "needs a block"},
		{"stray block", memOf([]uint32{20}), Config{Mode: Fixed, T: 16, Block: 3}, "no meaning in mode fixed"},
		{"bad tail", memOf([]uint32{20}), Config{Mode: Fixed, T: 16, Tail: 9}, "not a tail policy"},
	} {
		if _, err := NewStream(c.c, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	broken := toy()
	broken.total++
	if _, err := NewStream(broken, Config{Mode: Repack, T: 16}); err == nil || !strings.Contains(err.Error(), "add up") {
		t.Errorf("wrong total: %v", err)
	}
	s := mustStream(t, memOf([]uint32{64}), Config{Mode: Repack, T: 16})
	for n, ok := range map[int]bool{-1: false, 0: false, 1: true, 4: true, 5: false} {
		if err := s.CheckBatch(n); (err == nil) != ok {
			t.Errorf("batch of %d over 4 windows: %v", n, err)
		}
	}
	if _, err := s.ReadRow(0, make([]int32, 16), make([]int32, 15), make([]byte, 2)); err == nil {
		t.Error("a short target buffer was accepted")
	}
	if _, err := s.Epoch(-1); err == nil {
		t.Error("epoch -1 was planned")
	}
	if _, err := s.Epoch(math.MaxInt64); err == nil {
		t.Error("epoch 2^63-1 was planned")
	}
}

// R25: W is N div T, not (N-1) div T, and only then a target is lost.
func TestR25ExactMultiple(t *testing.T) {
	s := mustStream(t, memOf([]uint32{40, 24}), Config{Mode: Repack, T: 16})
	n, err := s.Counters(0)
	if err != nil || n.Windows != 4 || n.Scored != 63 || n.Dropped != 0 {
		t.Errorf("%+v %v", n, err)
	}
	s = mustStream(t, memOf([]uint32{40, 25}), Config{Mode: Repack, T: 16})
	if n, err = s.Counters(0); err != nil || n.Windows != 4 || n.Scored != 64 || n.Dropped != 1 {
		t.Errorf("%+v %v", n, err)
	}
}

// R26: positions are 64-bit. The corpus has 2^32+1 tokens, and a window of it
// lies beyond position 2^32-T.
func TestR26MoreThan32BitsOfTokens(t *testing.T) {
	lengths := make([]uint32, 4097)
	for i := range lengths {
		lengths[i] = 1 << 20
	}
	lengths[4096] = 1
	c := memOf(lengths)
	if c.total != 1<<32+1 {
		t.Fatal(c.total)
	}
	const T = 1 << 16
	s := mustStream(t, c, Config{Mode: Fixed, Seed: 3, T: T})
	p, err := s.Epoch(0)
	if err != nil || p.Windows != 1<<16 {
		t.Fatalf("%d windows, %v", p.Windows, err)
	}
	var far int64
	for row := range p.Windows {
		if at := p.rows[row]; at.rank < 4095 {
			continue
		}
		pos := int64(streamPos(p, row))
		if far = max(far, pos); pos != 1<<32-T {
			continue
		}
		if r := readRow(t, s, row); r.scored != T || r.tokens[0] != int32(c.first[p.order.docs[p.rows[row].rank].doc]&0x7fffffff)+int32(p.rows[row].off) {
			t.Errorf("%d scored, first token %d", r.scored, r.tokens[0])
		}
	}
	if far != 1<<32-T {
		t.Errorf("the last window starts at %d, want %d", far, int64(1<<32-T))
	}
	one := mustStream(t, memOf([]uint32{math.MaxUint32, 3}), Config{Mode: Repack, T: 1 << 12})
	if n, err := one.Counters(1); err != nil || n.Tokens != 1<<32+2 || n.Windows != 1<<20 || n.Dropped != 2 {
		t.Errorf("%+v, %v", n, err)
	}
}

// R42: a plan can be prepared ahead, and its build obeys its context.
func TestR42PrepareAhead(t *testing.T) {
	lengths := make([]uint32, 200_000)
	for i := range lengths {
		lengths[i] = 3
	}
	s := mustStream(t, memOf(lengths), Config{Mode: Repack, T: 64})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Prepare(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled build gave %v", err)
	}
	p, err := s.Prepare(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if q, err := s.Prepare(ctx, 1); err != nil || q != p {
		t.Errorf("a ready plan was built again: %v", err)
	}
}

// The plans of the last epochs stay at hand; older ones go.
func TestPlansKept(t *testing.T) {
	s := mustStream(t, toy(), Config{Mode: Repack, T: 16})
	for _, e := range []int64{0, 1, 2, 3, 2, 4, 3, 5} {
		if _, err := s.Epoch(e); err != nil {
			t.Fatal(err)
		}
	}
	var kept []int64
	for _, p := range s.plans.Load() {
		kept = append(kept, p.Epoch)
	}
	slices.Sort(kept)
	if !slices.Equal(kept, []int64{3, 4, 5}) {
		t.Errorf("kept the plans of epochs %v", kept)
	}
}
