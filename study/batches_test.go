package study

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// batchFile writes a batch study over the tiny model.
func batchFile(t testing.TB, out, lines string) string {
	t.Helper()
	text := fmt.Sprintf(`base:
  model: {layers: 1, dim: 16, heads: 2, kv_heads: 1, ffn: 24}
  data: {store: %q, seq: 16}
  train: {epochs: 1, precision: f32}
  save: {every: 50, keep: 1}
  eval: {every: 1000}
out: %q
%s`, filepath.ToSlash(testStore(t)), filepath.ToSlash(out), lines)
	path := filepath.Join(t.TempDir(), "batch.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// batches runs the study at path.
func batches(t testing.TB, path string) (*BatchStudy, []string, error) {
	t.Helper()
	spec, err := LoadSpec(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.CheckBatches(); err != nil {
		t.Fatal(err)
	}
	reg, err := OpenRegistry(spec.Out, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	warnings, err := spec.CheckPools()
	if err != nil {
		return nil, nil, err
	}
	b, err := newWork(spec, reg, 2).Batches(t.Context(), &Meter{Registry: reg})
	return b, warnings, err
}

// TestRow30Batches: every batch ends at a certified point of learning rate, decay and
// epochs of its own; the same settings are trained on a second pool; the losses on what was
// seen, on what settings were chosen by, and on a third store stand beside each other, over
// three seeds; the same study again trains and measures nothing.
func TestRow30Batches(t *testing.T) {
	out, test := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "test")
	writeDocs(t, test, 7, 16)
	path := batchFile(t, out, `batches: [4, 8]
grid:
  optim.lr: [0.003, 0.03]
  optim.weight_decay: [0.1, 1.6]
  train.epochs: [1, 2]
descend: {start: {optim.lr: 0.003, optim.weight_decay: 0.1, train.epochs: 1}}
seeds: [0, 1, 2]
pools:
  - {data.pool: 1/2}
  - {data.pool: 2/2}
test: `+filepath.ToSlash(test)+"\n")
	b, warnings, err := batches(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Tuned) != 2 || len(b.Pools) != 2 || len(warnings) != 0 || b.Store != filepath.ToSlash(test) {
		t.Fatalf("%+v, %v", b, warnings)
	}
	for _, x := range b.Tuned {
		c := x.Certificate
		if c == nil || !c.Certified || len(c.Axes) != 3 || len(c.Neighbours) != 6 || len(c.Outcome.Losses) != 3 {
			t.Errorf("batch %s: %+v", x.Batch, c)
		}
	}
	// The second batch begins where the first one ended.
	if !slices.Equal(b.Tuned[1].Certificate.Path[0], b.Tuned[0].Certificate.Best) {
		t.Errorf("the second descent began at %v, the first ended at %v", b.Tuned[1].Certificate.Path[0], b.Tuned[0].Certificate.Best)
	}
	for i, p := range b.Pools {
		if p.Tuned != (i == 0) || len(p.Endpoints) != 2 || p.DataHash == b.Pools[1-i].DataHash {
			t.Errorf("pool %+v", p)
		}
		compared := 0
		for k, e := range p.Endpoints {
			if e.Batch != b.Tuned[k].Batch || len(e.Losses) != 3 || e.Loss == nil || e.Val == nil || e.Train == nil || *e.Loss == *e.Val || e.Steps == 0 {
				t.Errorf("pool %s batch %s: %+v", p.Pool, e.Batch, e)
				continue
			}
			if e.Settings["data.pool"] != p.Pool[len("data.pool="):] || e.Settings["train.batch"] != e.Batch {
				t.Errorf("settings %v on %s", e.Settings, p.Pool)
			}
			if i == 0 && math.Abs(*e.Val-b.Tuned[k].Certificate.Loss) > 1e-12 {
				t.Errorf("batch %s was certified at %v and ends at %v", e.Batch, b.Tuned[k].Certificate.Loss, *e.Val)
			}
			if e.Contrast != nil {
				compared++
			}
		}
		if compared != 1 {
			t.Errorf("pool %s: %d contrasts against batch %s", p.Pool, compared, b.Reference)
		}
	}
	before := files(t, out)
	again, _, err := batches(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if after := files(t, out); !slices.Equal(before, after) {
		t.Errorf("a second start made\n%s\nof\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	if fmt.Sprint(*again.Pools[1].Endpoints[0].Loss, again.Reference) != fmt.Sprint(*b.Pools[1].Endpoints[0].Loss, b.Reference) {
		t.Errorf("%+v\n%+v", again, b)
	}
}

// files lists the files of a registry with size and time.
func files(t testing.TB, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == lockName {
			return err
		}
		i, err := d.Info()
		if err == nil {
			list = append(list, fmt.Sprint(path, i.Size(), i.ModTime()))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestBatchPools: one pool, pools that are the same documents or share some, and a file
// without what the study needs.
func TestBatchPools(t *testing.T) {
	const tune = "grid: {optim.lr: [0.003]}\ndescend: {start: {optim.lr: 0.003}}\n"
	for _, c := range []struct{ lines, want string }{
		{"pools: [{data.subset.docs: 9}, {data.subset.docs: 9, data.subset.seed: 0}]\n", "are the same documents"},
		{"pools: [{data.subset.docs: 40}, {data.subset.docs: 40, data.subset.seed: 1}]\n", "share documents: document"},
		{"", "there is one pool"},
	} {
		spec, err := LoadSpec(batchFile(t, filepath.Join(t.TempDir(), "out"), "batches: [2, 4]\n"+tune+c.lines))
		if err != nil {
			t.Fatal(err)
		}
		warnings, err := spec.CheckPools()
		if got := fmt.Sprint(err, warnings); !strings.Contains(got, c.want) {
			t.Errorf("%s%s", c.lines, got)
		}
	}
	for _, c := range []struct{ lines, want string }{
		{"batches: [2, 4]\ngrid: {optim.lr: [0.003]}\n", "each is tuned on a grid"},
		{"batches: [4, 2]\n" + tune, "increasing order, got 2 after 4"},
		{"batches: [x]\n" + tune, "got x after 0"},
		{"batches: []\n" + tune, "the list is empty"},
		{"batches: [2, 4]\ngrid: {train.batch: [2]}\ndescend: {start: {train.batch: 2}}\n", "an axis train.batch"},
		{"batches: [2, 4]\npools: [{optim.lr: 1}]\n" + tune, "optim.lr is varied by the study"},
		{"batches: [2, 4]\npools: [1/2]\n" + tune, "want entries such as"},
	} {
		if _, err := LoadSpec(batchFile(t, "out", c.lines)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.lines, err, c.want)
		}
	}
}

// TestBatchShape reads shapes from made-up endpoints.
func TestBatchShape(t *testing.T) {
	for _, c := range []struct {
		losses []float64 // by batch; above 0.02 is clear
		best   int       // on the first pool
		want   Shape
	}{
		{[]float64{0.3, 0, 0.2}, 1, UShaped},
		{[]float64{0.3, 0, 0.001}, 1, Unclear},
		{[]float64{0.3, 0.1, 0}, 2, Falling},
		{[]float64{0, 0.1, 0.3}, 0, Rising},
		{[]float64{0, 0.001, 0.001}, 0, Unclear},
		{[]float64{0.3, 0, -0.2}, 1, Moved},
		{[]float64{-0.001, 0, 0.2}, 1, Unclear},
	} {
		b := &BatchStudy{Pools: []PoolResult{{Endpoints: []Endpoint{}}}}
		for i, l := range c.losses {
			arm := &Arm{Seeds: []uint64{0, 1, 2}}
			for s := range 3 {
				noise := 0.01 * float64([3][3]int{{1, -1, 0}, {-1, 0, 1}, {0, 1, -1}}[i][s])
				arm.scores = append(arm.scores, scored("x", 4+l+noise, 6+l+noise, 5+l-noise, 5+l))
			}
			val := 1.0
			if i == c.best {
				val = 0
			}
			b.Pools[0].Endpoints = append(b.Pools[0].Endpoints, Endpoint{Batch: fmt.Sprint(1 << i), Arm: arm, Val: &val})
		}
		if err := b.compare(); err != nil {
			t.Fatal(err)
		}
		if b.Pools[0].Shape != c.want || b.Reference != fmt.Sprint(1<<c.best) {
			t.Errorf("%v: %s around %s, want %s", c.losses, b.Pools[0].Shape, b.Reference, c.want)
		}
	}
}

// TestRow40BatchStarts: a batch whose start diverges is missing, by name, and the others go
// on from where the file says; when all are, there is nothing to compare and no reference.
func TestRow40BatchStarts(t *testing.T) {
	lines := "batches: [4, 8]\ngrid:\n  optim.lr: [0.003, 3]\ndescend: {start: {optim.lr: 3}}\n"
	b, _, err := batches(t, batchFile(t, filepath.Join(t.TempDir(), "out"), lines))
	if err != nil {
		t.Fatal(err)
	}
	if b.Reference != "" || len(b.Pools) != 1 || len(b.Pools[0].Endpoints) != 0 || b.Pools[0].Shape != Unclear {
		t.Errorf("%+v", b)
	}
	for _, x := range b.Tuned {
		if x.Certificate != nil || !strings.Contains(x.Trouble, "diverged") {
			t.Errorf("batch %s: %+v", x.Batch, x)
		}
	}
	if all := strings.Join(b.Warnings, "\n"); !strings.Contains(all, "batch 4 is missing: ") || !strings.Contains(all, "batch 8 is missing: ") {
		t.Errorf("warnings\n%s", all)
	}
}
