package repack

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"refrain/pipeline"
	"refrain/stages/item"
)

// synthetic is a corpus of other lengths than toy.
func synthetic(docs int) *memCorpus {
	lengths := make([]uint32, docs)
	for i := range lengths {
		lengths[i] = uint32(3 + (i*i*5+i)%31)
	}
	return memOf(lengths)
}

func mustMix(t testing.TB, cfg Config, docs int, share Share) *Mixture {
	t.Helper()
	m, err := NewMixture(mustStream(t, toy(), cfg), mustStream(t, synthetic(docs), cfg), share)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestRow25BlockCounts counts the synthetic windows of every block: floor or ceil of
// share times block, and over any number of blocks no window more or less than the share.
func TestRow25BlockCounts(t *testing.T) {
	for _, share := range []Share{{1, 2}, {3, 4}, {9, 10}, {1, 3}, {123_457, 1_000_000}, {999_999, 1_000_000}} {
		t.Run(fmt.Sprintf("%d of %d", share.Num, share.Den), func(t *testing.T) {
			m := mustMix(t, Config{Mode: Repack, Seed: 7, T: 4}, 40, share)
			total, orders := int64(0), map[string]bool{}
			const blocks = 40
			for b := range int64(blocks) {
				n, order := int64(0), ""
				for g := b * m.Block(); g < (b+1)*m.Block(); g++ {
					_, is := m.At(g)
					order += fmt.Sprint(is)
					if is {
						n++
					}
				}
				total += n
				orders[order] = true
				lo := m.Block() * share.Num / share.Den
				hi := (m.Block()*share.Num + share.Den - 1) / share.Den
				if n < lo || n > hi {
					t.Errorf("block %d has %d synthetic windows of %d, want %d or %d", b, n, m.Block(), lo, hi)
				}
				if want := (b + 1) * m.Block() * share.Num / share.Den; total != want {
					t.Fatalf("%d synthetic windows in %d blocks, want %d", total, b+1, want)
				}
			}
			if total > 2*blocks && blocks*m.Block()-total > 2*blocks && len(orders) < blocks*9/10 {
				t.Errorf("%d different orders of %d blocks", len(orders), blocks)
			}
		})
	}
}

// TestRow25OrderOfSources reads a mixture and finds in it the windows of both streams,
// each in its own order, over several epochs of either.
func TestRow25OrderOfSources(t *testing.T) {
	for _, cfg := range allConfigs(16) {
		m := mustMix(t, cfg, 9, Share{3, 5})
		n := 3 * m.WindowsPerEpoch()
		var real, synth int64
		for g := range n {
			if r, s := m.Counts(g); r != real || s != synth {
				t.Fatalf("%v: before window %d stand %d and %d, counted %d and %d", cfg, g, r, s, real, synth)
			}
			w, is := m.At(g)
			want, from := &real, m.real
			if is {
				want, from = &synth, m.synth
			}
			if w != *want {
				t.Fatalf("%v: window %d is %d of its stream (synthetic: %v), want %d", cfg, g, w, is, *want)
			}
			tokens, targets, starts := make([]int32, 16), make([]int32, 16), make([]byte, 2)
			if _, err := m.ReadRow(g, tokens, targets, starts); err != nil {
				t.Fatal(err)
			}
			if r := readRow(t, from, w); !slices.Equal(r.tokens, tokens) || !slices.Equal(r.targets, targets) || !slices.Equal(r.starts, starts) {
				t.Fatalf("%v: window %d is not window %d of its stream", cfg, g, w)
			}
			*want++
		}
		if e := m.Epochs(n); math.Abs(e-3) > float64(m.Block())/float64(m.WindowsPerEpoch()) {
			t.Errorf("%v: %v passes over the real windows, want 3 to within a block", cfg, e)
		}
		if m.SyntheticEpochs(n) < 2 {
			t.Errorf("%v: the synthetic store was read %v times only", cfg, m.SyntheticEpochs(n))
		}
	}
}

// TestRow25AnyOrder reads windows backwards and from a fresh mixture: what one holds is
// a function of its number alone.
func TestRow25AnyOrder(t *testing.T) {
	cfg := Config{Mode: Repack, Seed: 3, T: 8}
	m := mustMix(t, cfg, 30, Share{3, 4})
	n := 12 * m.Block()
	type place struct {
		w  int64
		is bool
	}
	var want []place
	for g := range n {
		w, is := m.At(g)
		want = append(want, place{w, is})
	}
	again := mustMix(t, cfg, 30, Share{3, 4})
	for g := n - 1; g >= 0; g-- {
		if w, is := again.At(g); (place{w, is}) != want[g] {
			t.Fatalf("window %d is %d, %v, and was %v", g, w, is, want[g])
		}
	}
	other := mustMix(t, Config{Mode: Repack, Seed: 4, T: 8}, 30, Share{3, 4})
	same := 0
	for g := range n {
		if _, is := other.At(g); is == want[g].is {
			same++
		}
	}
	if int64(same) == n {
		t.Error("another seed mixes in the same order")
	}
}

// TestMixtureBlock pins the length of blocks.
func TestMixtureBlock(t *testing.T) {
	for _, c := range []struct {
		tokens, want int64
		share        Share
	}{
		{16, 1, Share{1, 3}}, {16, 2, Share{1, 2}}, {16 * 40, 64, Share{1, 2}}, {16 * 40, 128, Share{3, 4}},
		{16 * 4000, 2048, Share{3, 4}}, {16 * 4_000_000, 2048, Share{9, 10}},
	} {
		cfg := Config{Mode: Fixed, T: 16}
		m, err := NewMixture(mustStream(t, memOf([]uint32{uint32(c.tokens)}), cfg), mustStream(t, synthetic(9), cfg), c.share)
		if err != nil {
			t.Fatal(err)
		}
		if m.Block() != c.want {
			t.Errorf("%d windows, share %v: blocks of %d, want %d", c.tokens/16, c.share, m.Block(), c.want)
		}
	}
}

func TestMixtureSourceAndResume(t *testing.T) {
	m := mustMix(t, Config{Mode: Repack, Seed: 5, T: 16}, 9, Share{3, 4})
	const batch = 6
	read := func(first, end int64) (all []item.Cursor) {
		p := pipeline.New()
		rows := pipeline.Source(p, "repack", pipeline.LinkConfig{Items: 2}, Source(m, batch, first, end))
		pipeline.Sink(p, "read", rows, pipeline.StageFunc[item.Rows, struct{}](func(ctx context.Context, in pipeline.In[item.Rows], _ pipeline.Out[struct{}]) error {
			for r, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				if r.Reader != item.RowReader(m) || r.N != batch {
					return fmt.Errorf("request %+v", r)
				}
				all = append(all, r.Cursor)
			}
			return nil
		}))
		if err := p.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return all
	}
	end := 3 * m.WindowsPerEpoch() / batch
	whole := read(0, end)
	for k, c := range whole {
		r, _ := m.Counts(int64(k) * batch)
		if e, row := m.real.Locate(r); c != (item.Cursor{Window: int64(k) * batch, Epoch: e, Row: row}) {
			t.Fatalf("batch %d is at %+v; the next real window is %d", k, c, r)
		}
	}
	at := end / 2
	g, err := m.Resume(m.State(at * batch))
	if err != nil || g != at*batch {
		t.Fatal(g, err)
	}
	if got := read(g/batch, end); !slices.Equal(got, whole[at:]) {
		t.Error("a resumed source asks for other rows")
	}
}

func TestMixtureRefuses(t *testing.T) {
	cfg := Config{Mode: Repack, Seed: 5, T: 16}
	m := mustMix(t, cfg, 9, Share{3, 4})
	for _, other := range []*Mixture{mustMix(t, cfg, 10, Share{3, 4}), mustMix(t, cfg, 9, Share{1, 2})} {
		if _, err := m.Resume(other.State(4)); err == nil || !strings.Contains(err.Error(), "data fingerprint") {
			t.Errorf("resume from another mixture: %v", err)
		}
	}
	if _, err := m.Resume(m.real.State(4)); err == nil {
		t.Error("a state without synthetic windows was taken")
	}
	if err := m.CheckBatch(int(m.WindowsPerEpoch()) + 1); err == nil || !strings.Contains(err.Error(), "larger than an epoch") {
		t.Errorf("large batch: %v", err)
	}
	if err := m.CheckBatch(0); err == nil {
		t.Error("an empty batch was taken")
	}
	for _, share := range []Share{{0, 1}, {1, 1}, {3, 2}, {-1, 2}, {1, 3_000_000}} {
		if _, err := NewMixture(m.real, m.synth, share); err == nil {
			t.Errorf("share %v was taken", share)
		}
	}
	long := cfg
	long.T = 8
	if _, err := NewMixture(m.real, mustStream(t, synthetic(9), long), Share{1, 2}); err == nil || !strings.Contains(err.Error(), "equally long") {
		t.Errorf("windows of two lengths: %v", err)
	}
	seed := cfg
	seed.Seed = 6
	if _, err := NewMixture(m.real, mustStream(t, synthetic(9), seed), Share{1, 2}); err == nil || !strings.Contains(err.Error(), "seed") {
		t.Errorf("two seeds: %v", err)
	}
	if _, err := m.ReadRow(-1, nil, nil, nil); err == nil {
		t.Error("window -1 was read")
	}
}

// TestMixtureGolden holds the kinds of the windows of six blocks, bit i for window i, as
// a second implementation of docs/formats/stream.md gives them.
func TestMixtureGolden(t *testing.T) {
	m, err := NewMixture(mustStream(t, memOf([]uint32{4 * 100}), Config{Mode: Fixed, Seed: 7, T: 4}), mustStream(t, synthetic(9), Config{Mode: Fixed, Seed: 7, T: 4}), Share{123_457, 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	if m.Block() != 64 {
		t.Fatalf("blocks of %d", m.Block())
	}
	for b, want := range []uint64{0x10c0801002008000, 0x1610028000003000, 0x0008450002000221, 0x02a0040120420000, 0x8050020001002280, 0x1080022080110004} {
		var got uint64
		for i := range int64(64) {
			if _, is := m.At(int64(b)*64 + i); is {
				got |= 1 << i
			}
		}
		if got != want {
			t.Errorf("block %d: kinds %#016x, want %#016x", b, got, want)
		}
	}
}
