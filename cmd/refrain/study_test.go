package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/study"
)

// TestAblationCommand: a grid is trained, measured on a store of its own and compared; the
// same command measures nothing again, even where the checkpoints have gone.
func TestAblationCommand(t *testing.T) {
	test := filepath.Join(t.TempDir(), "test")
	writeStore(t, test, 24, 3)
	lines := "grid:\n  data.mode: [fixed, repack]\n  optim.embedding_decay: [0, 2]\nseeds: [0, 1]\ncompare: {data.mode: fixed, optim.embedding_decay: 0}\n"
	path, out := sweepFile(t, lines+"test: "+filepath.ToSlash(test)+"\n")
	if d := object[dryRun](t, 0, "study", "ablation", path, "--dry-run"); len(d.Cells) != 8 {
		t.Errorf("dry run: %+v", d)
	}
	a := object[study.Ablation](t, 0, "study", "ablation", path)
	if len(a.Arms) != 4 || a.Store != filepath.ToSlash(test) || a.Tokens == 0 || a.Base != "data.mode=fixed optim.embedding_decay=0" || len(a.Effects) != 6 {
		t.Fatalf("%+v", a)
	}
	for _, x := range a.Arms {
		c := x.Contrast
		if x.Label == a.Base {
			if c != nil {
				t.Errorf("the base cell is compared with itself: %+v", c)
			}
			continue
		}
		if x.Loss == nil || c == nil || c.Pairs != 2 || c.Documents < 10 || c.Interval == nil || c.StdErrSeeds == nil {
			t.Errorf("%s: %+v", x.Label, c)
			continue
		}
		if d := *x.Loss - *a.Arms[0].Loss; c.Difference < d-1e-9 || c.Difference > d+1e-9 {
			t.Errorf("%s: losses differ by %v, the pairs by %v", x.Label, d, c.Difference)
		}
		if _, err := os.Stat(filepath.Join(out, x.Runs[0], run.RunFile)); err != nil {
			t.Error(err)
		}
	}
	records, err := study.ReadRegistry(out)
	if err != nil || len(records) != 8 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	if *records[0].Val == a.Arms[0].Losses[0] {
		t.Error("the test store has the loss of the validation store")
	}
	for _, r := range records {
		if err := os.RemoveAll(filepath.Join(out, r.Run, run.CkptDir)); err != nil {
			t.Fatal(err)
		}
	}
	code, text, errText := cli("", "study", "ablation", path)
	if code != 0 || !strings.Contains(text, "95 % interval") || !strings.Contains(text, "data.mode=repack against data.mode=fixed, at optim.embedding_decay=2") {
		t.Errorf("exit %d\n%s%s", code, text, errText)
	}
	// On the validation store nothing was measured yet, and nothing can be any more.
	own, _ := sweepFile(t, lines)
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(own, []byte(strings.Replace(string(b), "test: ", "# ", 1)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errText := cli("", "study", "ablation", own); code != run.ExitNoCkpt || !strings.Contains(errText, "checkpoint") {
		t.Errorf("without checkpoints: exit %d, %s", code, errText)
	}
}

// TestAblationRefuses: a test store that shares documents with the validation, and sweeps
// that compare nothing.
func TestAblationRefuses(t *testing.T) {
	val := filepath.Join(t.TempDir(), "again")
	writeStore(t, val, 32, 2) // as the validation store of tiny
	grid := "grid:\n  optim.lr: [0.003, 0.01]\n"
	for _, c := range []struct {
		lines, want string
		code        int
	}{
		{grid, "compare is not set", run.ExitUsage},
		{grid + "compare: {optim.lr: 0.003}\ntest: " + filepath.ToSlash(val) + "\n", "the test store holds validation documents", run.ExitData},
		{grid + "compare: {optim.lr: 0.003}\ntest: nowhere\n", "test store", run.ExitData},
		{grid + "descend: {start: {optim.lr: 0.01}}\n", "does not go with descend", run.ExitUsage},
	} {
		path, _ := sweepFile(t, c.lines)
		if code, _, errText := cli("", "study", "ablation", path); code != c.code || !strings.Contains(errText, c.want) {
			t.Errorf("%q: exit %d, %s", c.lines, code, errText)
		}
	}
}

// TestRow30BatchCommand: the study ends with a certificate for every batch and the batches
// against each other on both pools; a budget that ends before is told, and the same command
// goes on.
func TestRow30BatchCommand(t *testing.T) {
	path, out := sweepFile(t, `batches: [4, 8]
grid:
  optim.lr: [0.003, 0.01]
descend: {start: {optim.lr: 0.01}}
seeds: [0, 1]
pools:
  - {data.pool: 1/2}
  - {data.pool: 2/2}
`)
	dry := object[dryRun](t, 0, "study", "batch", path, "--dry-run")
	if len(dry.Cells) != 8 || dry.GridCells != 8 {
		t.Errorf("the start and its neighbour for each batch, on the first pool: %+v", dry)
	}
	if code, _, errText := cli("", "sweep", path); code != run.ExitUsage || !strings.Contains(errText, "refrain study batch "+path) {
		t.Errorf("as a sweep: exit %d, %s", code, errText)
	}
	// All of the first pool fits the budget, and the second pool does not.
	part := object[study.BatchStudy](t, run.ExitResumable, "study", "batch", path, "--budget", fmt.Sprintf("%dsteps", dry.Total.Steps))
	if len(part.Pools) != 2 || part.Pools[0].Endpoints[0].Loss == nil || part.Pools[1].Endpoints[0].Loss != nil || !strings.Contains(strings.Join(part.Warnings, "\n"), "not trained yet") {
		t.Errorf("with the budget of the first pool: %+v", part)
	}
	b := object[study.BatchStudy](t, 0, "study", "batch", path)
	if b.Reference == "" || len(b.Tuned) != 2 || b.Pools[1].Endpoints[1].Loss == nil || b.Tuned[0].Certificate == nil {
		t.Fatalf("%+v", b)
	}
	if all := strings.Join(b.Warnings, "\n"); !strings.Contains(all, "train.epochs is not tuned for each batch") || !strings.Contains(all, "name others with test:") {
		t.Errorf("warnings\n%s", all)
	}
	if records, err := study.ReadRegistry(out); err != nil || len(records) != 12 {
		t.Errorf("%d records, %v", len(records), err)
	}
	code, text, errText := cli("", "study", "batch", path)
	if code != 0 || !strings.Contains(text, "pool  data.pool=2/2  settings of the first pool") || !strings.Contains(text, "on seen") {
		t.Errorf("exit %d\n%s%s", code, text, errText)
	}
	if code, _, errText := cli("", "study", "ablation", path); code != run.ExitUsage || !strings.Contains(errText, "does not go with descend or batches") {
		t.Errorf("as an ablation: exit %d, %s", code, errText)
	}
}

// TestBatchNothing: where no batch trains there is an error, and the reasons.
func TestBatchNothing(t *testing.T) {
	path, _ := sweepFile(t, "batches: [4, 8]\ngrid:\n  optim.lr: [0.003, 10]\n  optim.weight_decay: [1000]\n  optim.clip: [0]\ndescend: {start: {optim.lr: 10, optim.weight_decay: 1000, optim.clip: 0}}\n")
	code, text, errText := cli("", "study", "batch", path)
	if code != run.ExitFailed || !strings.Contains(text, "missing: the first place") || !strings.Contains(errText, "no batch could be trained") || strings.Contains(text, "loss on") {
		t.Errorf("exit %d\n%s%s", code, text, errText)
	}
}
