package study

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"refrain/internal/num"
	"refrain/internal/run"
	"refrain/store"
)

// The test binary is also a sweep: with this word first it runs the file that follows.
const asSweep = "as-sweep"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asSweep {
		_, _, err := sweep(context.Background(), os.Args[2], 2)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(run.ExitCode(err))
	}
	os.Exit(m.Run())
}

// sweep runs the file at path to its end.
func sweep(ctx context.Context, path string, parallel int) (cells []*Cell, answers []*Record, err error) {
	spec, err := LoadSpec(path)
	if err != nil {
		return nil, nil, err
	}
	reg, err := OpenRegistry(spec.Out, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, reg.Close()) }()
	if cells, err = spec.Cells(); err != nil {
		return nil, nil, err
	}
	if err := Open(cells, 1e9); err != nil {
		return nil, nil, err
	}
	w := newWork(spec, reg, parallel)
	answers, err = w.Sweep(ctx, cells)
	return cells, answers, err
}

func newWork(spec *Spec, reg *Registry, parallel int) *Work {
	l := NewLedger(spec.Budget)
	return &Work{
		Spec: spec, Records: reg.Records, Ledger: l, Rate: 1e9,
		Runner: &Local{Registry: reg, Policy: spec.Code, Parallel: parallel, Cores: parallel, Admit: l.Admit},
	}
}

const vocab = 61

// testStore writes a store with a validation store inside it.
func testStore(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	writeDocs(t, dir, 0, 48)
	writeDocs(t, filepath.Join(dir, "val"), 1, 12)
	return dir
}

// writeDocs writes a store of that many documents of one seed.
func writeDocs(t testing.TB, dir string, seed uint64, docs int) {
	t.Helper()
	writeDocsOf(t, "none", dir, seed, docs)
}

// writeDocsOf is writeDocs with the hash of a tokenizer.
func writeDocsOf(t testing.TB, tokenizer, dir string, seed uint64, docs int) {
	t.Helper()
	w, err := store.Create(dir, store.Meta{Vocab: vocab, TokenizerHash: tokenizer})
	if err != nil {
		t.Fatal(err)
	}
	s := num.NewStream("study documents", seed)
	for d := range docs {
		ids := make([]uint32, 5+s.Uintn(uint64(d), 40))
		x := s.Uintn(uint64(d)+1<<32, vocab)
		for j := range ids {
			ids[j] = uint32(x)
			x = (x*5 + 3 + s.Uintn(uint64(d)<<20+uint64(j)+1<<40, 3)) % vocab
		}
		if err := w.Append(uint64(d), "test", ids); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// specFile writes a sweep over the tiny model: lines is what follows its base.
func specFile(t testing.TB, storeDir, out, lines string) string {
	t.Helper()
	text := fmt.Sprintf(`base:
  model: {layers: 1, dim: 16, heads: 2, kv_heads: 1, ffn: 24}
  data: {store: %q, seq: 16}
  train: {batch: 4, steps: 8, precision: f32}
  optim: {lr: 0.01}
  save: {every: 3, keep: 1}
out: %q
%s`, storeDir, out, lines)
	path := filepath.Join(t.TempDir(), "sweep.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// results are what must not depend on kills, threads and order of cells.
func results(t testing.TB, dir string) []string {
	t.Helper()
	records, err := ReadRegistry(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range records {
		loss, val := "-", "-"
		if r.Loss != nil {
			loss = fmt.Sprint(*r.Loss)
		}
		if r.Val != nil {
			val = fmt.Sprint(*r.Val)
		}
		out = append(out, fmt.Sprint(r.Name(), r.Label, r.Seed, r.Status, r.Reason, r.Steps, loss, val, r.Tokens, r.Chain, r.Params, r.Run))
	}
	return out
}

// TestRow14Sweep: one record a cell and seed, in the order of the sweep; the same command
// trains nothing again; cells of threads that differ have the same bits; others of the
// registry are listed.
func TestRow14Sweep(t *testing.T) {
	data, out := testStore(t), filepath.Join(t.TempDir(), "out")
	path := specFile(t, data, out, "grid:\n  optim.lr: [0.003, 0.01]\nseeds: [0, 1]\n")
	cells, answers, err := sweep(t.Context(), path, 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(cells) != 4 || slices.Contains(answers, nil) {
		t.Fatalf("%d cells, answers %v", len(cells), answers)
	}
	for i, c := range cells {
		r := answers[i]
		if want := []string{"optim.lr=0.003", "optim.lr=0.01"}[i/2]; c.Label() != want || r.Label != want || r.Seed != uint64(i%2) || r.Status != Done || r.Steps != 8 || r.Val == nil {
			t.Errorf("cell %d: %s seed %d: %+v", i, c.Label(), c.Seed, r)
		}
		if r.ConfigHash == "" || r.DataHash == "" || r.ValHash == "" || r.Code == "" || r.RunID == "" || r.CoreSeconds <= 0 {
			t.Errorf("provenance: %+v", r)
		}
	}
	groups := Groups(cells, answers)
	if len(groups) != 2 || groups[0].Mean == nil || groups[0].Spread == nil || *groups[0].Spread == 0 || BestOf(groups) == nil {
		t.Errorf("groups %+v", groups)
	}
	before := results(t, out)
	if _, again, err := sweep(t.Context(), path, 1); err != nil || !slices.EqualFunc(again, answers, func(a, b *Record) bool { return a.Finished.Equal(b.Finished) }) {
		t.Errorf("a second start trained again: %v", err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if _, _, err := sweep(t.Context(), specFile(t, data, other, "grid:\n  optim.lr: [0.003, 0.01]\nseeds: [0, 1]\n"), 1); err != nil {
		t.Fatal(err)
	}
	if after := results(t, other); !slices.Equal(before, after) {
		t.Errorf("one at a time\n%s\ntwo at a time\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	records, err := ReadRegistry(out)
	if err != nil {
		t.Fatal(err)
	}
	if o := Others(records, cells[:2], SameCode); len(o) != 2 || !strings.Contains(o[0].Why, "other settings") {
		t.Errorf("others %v", o)
	}
}

// TestRow14Kill: a sweep of 20 cells is killed at random moments and started again until it
// is done: no cell is lost, none is trained again after its record, and the records are
// those of a sweep that nobody killed.
func TestRow14Kill(t *testing.T) {
	data := testStore(t)
	lines := "grid:\n  optim.lr: [0.003, 0.006, 0.01, 0.02, 0.03]\n  optim.weight_decay: [0, 0.4]\nseeds: [0, 1]\n"
	base, out := filepath.Join(t.TempDir(), "base"), filepath.Join(t.TempDir(), "out")
	begin := time.Now()
	if _, _, err := sweep(t.Context(), specFile(t, data, base, lines), 2); err != nil {
		t.Fatal(err)
	}
	span := time.Since(begin)
	begin = time.Now() // a start finds everything done here, and takes as long before the first cell
	if err := child(t.Context(), specFile(t, data, base, lines)); err != nil {
		t.Fatal(err)
	}
	startup := time.Since(begin)
	path := specFile(t, data, out, lines)
	s := num.NewStream("sweep kills", 1)
	kills, want := 0, 20
	if testing.Short() {
		want = 6
	}
	sizes := map[string]int64{} // of metrics.jsonl of cells with a record
	var at []int                // records after each start
	for n := uint64(0); ; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		if kills < want {
			wait := startup*3/4 + time.Duration(s.Uintn(n, uint64(span/6)))
			timer := time.AfterFunc(wait, cancel)
			defer timer.Stop()
		}
		err := child(ctx, path)
		if err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		cancel()
		records, readErr := ReadRegistry(out)
		if readErr != nil {
			t.Fatalf("after kill %d: %v", kills, readErr)
		}
		at = append(at, len(records))
		for _, r := range records {
			st, err := os.Stat(filepath.Join(out, r.Run, run.MetricsFile))
			if err != nil {
				t.Fatal(err)
			}
			if old, there := sizes[r.Identity]; there && old != st.Size() {
				t.Errorf("%s was trained again: metrics.jsonl went from %d to %d bytes", r.Run, old, st.Size())
			}
			sizes[r.Identity] = st.Size()
		}
		if err == nil {
			break
		}
		if kills++; n > 200 {
			t.Fatal("no end after 200 starts")
		}
	}
	undisturbed, got := results(t, base), results(t, out)
	if len(got) != 20 || !slices.Equal(got, undisturbed) {
		t.Errorf("after %d kills\n%s\nwithout\n%s", kills, strings.Join(got, "\n"), strings.Join(undisturbed, "\n"))
	}
	if between := slices.Compact(slices.Clone(at)); len(between) < 4 {
		t.Errorf("the kills came at %v records only: that shows nothing", between)
	}
	folders, err := os.ReadDir(filepath.Join(out, runsDir))
	if err != nil || len(folders) != 20 {
		t.Errorf("%d run folders, %v", len(folders), err)
	}
	t.Logf("%d kills, records after each %v; the sweep alone took %v", kills, at, span)
}
