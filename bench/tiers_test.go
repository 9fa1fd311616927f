package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"refrain/stages/repack"
)

func smallCorpus(t *testing.T) *RowCorpus {
	t.Helper()
	c, err := NewRowCorpus(t.Context(), t.TempDir(), 200_000, 64, 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestOursDelivers holds the rows of our loader, in each of its settings, against
// the windows that were cut without it.
func TestOursDelivers(t *testing.T) {
	c := smallCorpus(t)
	if want := int64(c.W*c.T + 1); c.Store.NumTokens() != want {
		t.Fatalf("the store has %d tokens, want %d", c.Store.NumTokens(), want)
	}
	o, done, err := NewOurs(c)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	chain := map[string]Digest{}
	for _, set := range o.Settings() {
		for _, mode := range []repack.Mode{repack.Fixed, repack.Reshuffle, repack.Repack} {
			var rows, docs []Digest
			for e := range 2 {
				r, d, err := o.Epoch(t.Context(), set, mode, e)
				if err != nil {
					t.Fatal(err)
				}
				rows, docs = append(rows, r), append(docs, d)
				key := fmt.Sprint(mode, e)
				if before, ok := chain[key]; ok && before.Chain != r.Chain {
					t.Errorf("%s: the settings deliver different orders", key)
				}
				chain[key] = r
			}
			if why := c.Defect(mode, rows, docs); why != "" {
				t.Errorf("%s %v: %s", set, mode, why)
			}
		}
	}
}

// crooked is a loader with a defect.
type crooked struct {
	Loads
	what string
}

func (k crooked) Settings() []string { return []string{"only"} }

func (k crooked) Deliver(ctx context.Context, _ string, mode repack.Mode, epoch int, limit, pace time.Duration) (Delivery, error) {
	return k.Loads.Deliver(ctx, oursGather, mode, epoch, limit, pace)
}

func (k crooked) Epoch(ctx context.Context, _ string, mode repack.Mode, epoch int) (rows, docs Digest, err error) {
	switch k.what {
	case "fails":
		return rows, docs, fmt.Errorf("out of order")
	case "stuck":
		epoch = 0
	case "short":
		rows, docs, err = k.Loads.Epoch(ctx, oursGather, mode, epoch)
		rows.Rows--
		return rows, docs, err
	case "other":
		rows, docs, err = k.Loads.Epoch(ctx, oursGather, mode, epoch)
		rows.Multiset[1]++
		docs.Multiset[1]++
		return rows, docs, err
	}
	return k.Loads.Epoch(ctx, oursGather, mode, epoch)
}

// TestTiers: a sound loader gets a line, one with a defect a reason instead.
func TestTiers(t *testing.T) {
	c := smallCorpus(t)
	o, done, err := NewOurs(c)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	cfg := TiersConfig{Corpus: c, Modes: []repack.Mode{repack.Reshuffle, repack.Repack}, Rounds: 1, Limit: 5 * time.Millisecond, Paces: []time.Duration{time.Millisecond}, Ours: o}
	for _, what := range []string{"sound", "stuck", "short", "other", "fails"} {
		cfg.Peers = append(cfg.Peers, NamedLoads{Name: what, Loads: crooked{o, what}})
	}
	cfg.Peers = append(cfg.Peers, NamedLoads{Name: "absent", Missing: fmt.Errorf("not installed")})
	var lines, notes []string
	err = Tiers(t.Context(), cfg, func(l Line) { lines = append(lines, l.String()) }, func(s string) { notes = append(notes, s) })
	if err != nil {
		t.Fatal(err)
	}
	all, why := strings.Join(lines, "\n"), strings.Join(notes, "\n")
	for _, want := range []string{
		"BenchmarkLoader/tier=T1/mode=reshuffle/loader=refrain/set=gather/T=64/B=4-1 ", "/loader=refrain/set=chain/", "tier=T2/mode=repack/loader=refrain",
		"tier=T1/mode=reshuffle/loader=sound", "tier=T1/mode=reshuffle/loader=limit/set=write/", "tier=T1/mode=reshuffle/loader=limit/set=hand-over/", " of-gathered ", " limit-x", "tier=T4/mode=reshuffle/loader=refrain/set=chain/T=64/B=4/pace=1ms-1 ", " tok/cpu-s ", " found% ", " ours-x ",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no line with %q in\n%s", want, all)
		}
	}
	for _, what := range []string{"stuck", "short", "other", "fails", "absent"} {
		if strings.Contains(all, "loader="+what) {
			t.Errorf("%s got a speed", what)
		}
	}
	if strings.Contains(all, "tier=T4/mode=reshuffle/loader=limit") {
		t.Error("a limit was paced")
	}
	for _, want := range []string{"loader=stuck mode=reshuffle: setting only: wrong digest: the order is the same", "loader=short mode=reshuffle: setting only: wrong digest: epoch 0 has",
		"loader=other mode=reshuffle: setting only: wrong digest: epoch 0 has as many rows", "loader=fails mode=reshuffle: setting only: out of order", "loader=absent mode=repack: not installed"} {
		if !strings.Contains(why, want) {
			t.Errorf("no note %q in\n%s", want, why)
		}
	}
}

// TestPartsFile: documents joined and cut without overlap are recognised, but for the
// end that an epoch drops; a lost, doubled or torn document is not.
func TestPartsFile(t *testing.T) {
	c := smallCorpus(t)
	var docs [][]int32
	for d := range c.Store.NumDocs() {
		ids := make([]int32, c.Store.Lengths()[d])
		c.Store.Copy(d, 0, len(ids), ids)
		docs = append(docs, ids)
	}
	slices.Reverse(docs)
	write := func(docs [][]int32, torn bool) string {
		var ids []int32
		var marks []int32
		for _, d := range docs {
			m := make([]int32, len(d))
			m[0] = 1
			if torn && len(ids) > 0 {
				m[0], torn = 0, false
			}
			ids, marks = append(ids, d...), append(marks, m...)
		}
		var raw []byte
		width := c.T + 1
		for ; len(ids) >= width*c.B; ids, marks = ids[width*c.B:], marks[width*c.B:] {
			for b := range c.B {
				for _, v := range [][]int32{ids, marks} {
					for _, x := range v[b*width : (b+1)*width] {
						raw = binary.LittleEndian.AppendUint32(raw, uint32(x))
					}
				}
			}
		}
		path := filepath.Join(t.TempDir(), "rows")
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	doubled := slices.Clone(docs)
	doubled[3] = doubled[4]
	for _, k := range []struct {
		name string
		docs [][]int32
		torn bool
		want bool
	}{
		{"whole", docs, false, true}, {"doubled", doubled, false, false}, {"lost", docs[4:], false, false}, {"torn", docs, true, false}, {"half", docs[:len(docs)/2], false, false},
	} {
		rows, got, err := c.partsFile(write(k.docs, k.torn))
		if err != nil || rows.Rows == 0 {
			t.Fatal(rows.Rows, err)
		}
		if is := got.Multiset == c.Documents.Multiset; is != k.want {
			t.Errorf("%s: recognised %v, want %v", k.name, is, k.want)
		}
	}
}
