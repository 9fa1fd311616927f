package study

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"refrain/internal/fsx"
	"refrain/internal/run"
)

// TestRow40Faults: a cell whose loss is not finite, one that diverges and one whose folder
// somebody else uses are marked with their reasons, and the others are done. Only the last
// is tried again by the next start.
func TestRow40Faults(t *testing.T) {
	data, out := testStore(t), filepath.Join(t.TempDir(), "out")
	path := specFile(t, data, out, `list:
  - {optim.lr: 0.01}
  - {optim.lr: 10, optim.clip: 0, optim.weight_decay: 1000, train.steps: 60}
  - {optim.lr: 3, train.steps: 6}
  - {optim.lr: 0.02}
  - {optim.lr: 0.003}
`)
	spec, err := LoadSpec(path)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := spec.Cells()
	if err != nil {
		t.Fatal(err)
	}
	if err := Open(cells, 1e9); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(out, runsDir, cells[3].Name(), "thesis.txt")
	if err := errors.Join(os.MkdirAll(filepath.Dir(foreign), 0o700), os.WriteFile(foreign, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	cells, answers, err := sweep(t.Context(), path, 2)
	if err != nil {
		t.Fatal(err)
	}
	want := []Status{Done, NaN, Diverged, Failed, Done}
	for i, r := range answers {
		if r == nil || r.Status != want[i] {
			t.Errorf("cell %d, %s: %+v, want %s", i, cells[i].Label(), r, want[i])
			continue
		}
		if (r.Status == Done) != (r.Reason == "") {
			t.Errorf("cell %d: status %s, reason %q", i, r.Status, r.Reason)
		}
	}
	if t.Failed() {
		return
	}
	if r := answers[3]; r.Exit != run.ExitUsage || !strings.Contains(r.Reason, "thesis.txt") {
		t.Errorf("the cell without a folder: exit %d, %s", r.Exit, r.Reason)
	}
	groups := Groups(cells, answers)
	if groups[1].Mean != nil || len(groups[1].Trouble) != 1 || BestOf(groups) == groups[2] {
		t.Errorf("groups %+v", groups)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	_, again, err := sweep(t.Context(), path, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range again {
		if same := again[i].Finished.Equal(answers[i].Finished); same != (i != 3) {
			t.Errorf("cell %d (%s): tried again: %v", i, again[i].Status, !same)
		}
	}
	if again[3].Status != Done {
		t.Errorf("with its folder free: %+v", again[3])
	}
}

// TestRow40Descent: a neighbour that diverges or that the budget does not reach withholds
// the certificate, by name; with the budget raised the same descent is certified, and only
// what was missing is trained.
func TestRow40Descent(t *testing.T) {
	data, out := testStore(t), filepath.Join(t.TempDir(), "out")
	lines := "grid:\n  optim.lr: [0.003, 0.01, %s]\n  optim.weight_decay: [0.1, 0.4]\nseeds: [0, 1]\ndescend: {start: {optim.lr: 0.01, optim.weight_decay: 0.1}, freeze: [optim.weight_decay]}\n"
	descend := func(lr, more string) (*Spec, *Registry, *Work) {
		spec, err := LoadSpec(specFile(t, data, out, fmt.Sprintf(lines, lr)+more))
		if err != nil {
			t.Fatal(err)
		}
		reg, err := OpenRegistry(spec.Out, nil)
		if err != nil {
			t.Fatal(err)
		}
		return spec, reg, newWork(spec, reg, 2)
	}
	_, reg, w := descend("3", "")
	c, err := w.Descend(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Certified || len(c.Withheld) != 1 || !strings.Contains(c.Withheld[0], "diverged") || len(c.Neighbours) != 2 {
		t.Errorf("certificate %+v", c)
	}
	trained := len(reg.Records())
	if err := reg.Close(); err != nil {
		t.Fatal(err)
	}
	_, reg, w = descend("0.012", "budget: {steps: 33}\n")
	if c, err = w.Descend(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if c.Certified || !strings.Contains(strings.Join(c.Withheld, ";"), "budget") {
		t.Errorf("over the budget: %+v", c)
	}
	if err := reg.Close(); err != nil {
		t.Fatal(err)
	}
	_, reg, w = descend("0.012", "")
	c, err = w.Descend(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	if !c.Certified || c.Values[1] != 0.1 {
		t.Errorf("certificate %+v", c)
	}
	for _, n := range c.Neighbours {
		if !n.Edge && (len(n.Outcome.Runs) != 2 || len(n.Outcome.Losses) != 2 || n.Difference < 0) {
			t.Errorf("neighbour %+v", n)
		}
	}
	if n := len(reg.Records()); n != trained+2 {
		t.Errorf("%d records after %d: only the two seeds of one point were missing", n, trained)
	}
}

// TestDiskFull: a record that cannot be written ends the sweep with the code of a disk; no
// finished cell is lost, and the same command records it without training it again.
func TestDiskFull(t *testing.T) {
	data, out := testStore(t), filepath.Join(t.TempDir(), "out")
	spec, err := LoadSpec(specFile(t, data, out, "grid:\n  optim.lr: [0.003, 0.01, 0.02]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range []fsx.Op{fsx.OpWrite, fsx.OpSync, fsx.OpRename, fsx.OpSyncDir} {
		disk := fsx.NewFault(fsx.OS{})
		reg, err := OpenRegistry(spec.Out, disk)
		if err != nil {
			t.Fatal(err)
		}
		cells, err := spec.Cells()
		if err != nil {
			t.Fatal(err)
		}
		if err := Open(cells, 1e9); err != nil {
			t.Fatal(err)
		}
		disk.SetRules(fsx.Rule{Ops: []fsx.Op{op}, Permanent: true, Err: syscall.ENOSPC})
		before := len(reg.Records())
		_, err = newWork(spec, reg, 1).Sweep(t.Context(), cells)
		if run.ExitCode(err) != run.ExitDisk || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%v: %v", op, err)
		}
		if err := reg.Close(); err != nil {
			t.Fatal(err)
		}
		if after := results(t, out); len(after) < before {
			t.Errorf("%v: %d records became %d", op, before, len(after))
		}
	}
	cells, answers, err := sweep(t.Context(), spec.Path, 1)
	if err != nil || len(cells) != 3 || slices.Contains(answers, nil) {
		t.Fatalf("%v %v", answers, err)
	}
	for _, r := range answers {
		// The last line of a run that was trained once is its only one with that step.
		b, err := os.ReadFile(filepath.Join(out, r.Run, run.MetricsFile))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), `"type":"step"`); n != 8 {
			t.Errorf("%s: %d step lines for 8 steps", r.Run, n)
		}
	}
}

// TestRegistryRefuses: a second sweep on one registry, records that are damaged, copied or
// changed, and cells that are the same run are errors with the paths in them.
func TestRegistryRefuses(t *testing.T) {
	data, out := testStore(t), filepath.Join(t.TempDir(), "out")
	path := specFile(t, data, out, "grid:\n  optim.lr: [0.01]\n")
	if _, _, err := sweep(t.Context(), path, 1); err != nil {
		t.Fatal(err)
	}
	reg, err := OpenRegistry(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenRegistry(out, nil); run.ExitCode(err) != run.ExitUsage || !strings.Contains(err.Error(), out) {
		t.Errorf("a second sweep: %v", err)
	}
	record := reg.path(recordsDir, reg.Records()[0].Name()+".json")
	if err := reg.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what, want, path string, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := OpenRegistry(out, nil)
		if run.ExitCode(err) != run.ExitUsage || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
	}
	copied := filepath.Join(out, recordsDir, "zz-copy.json")
	refused("a copy", record, copied, string(b))
	if err := os.Remove(copied); err != nil {
		t.Fatal(err)
	}
	refused("half a record", "JSON", record, string(b[:100]))
	refused("other data", "do not belong together", record, strings.Replace(string(b), `"data_hash": "`, `"data_hash": "00`, 1))
	refused("a later version", "version 2", record, strings.Replace(string(b), `"version": 1`, `"version": 2`, 1))

	spec, err := LoadSpec(specFile(t, data, out, "list:\n  - {optim.lr: 0.01, log.every: 5}\n  - {optim.lr: 1e-2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	cells, err := spec.Cells()
	if err != nil {
		t.Fatal(err)
	}
	if err := Open(cells, 1e9); run.ExitCode(err) != run.ExitUsage || !strings.Contains(err.Error(), ":9:") || !strings.Contains(err.Error(), ":10:") {
		t.Errorf("the same run twice: %v", err)
	}
}

// TestRow38Comparable: records of other data, code or validation rows do not stand in one
// fit, unless that is said.
func TestRow38Comparable(t *testing.T) {
	mk := func(change func(*Record)) *Record {
		r := &Record{Run: "runs/a", Provenance: Provenance{DataHash: "d", TokenizerHash: "t", ValHash: "v", ValRows: 4, Code: "c"}}
		change(r)
		return r
	}
	one := mk(func(*Record) {})
	for _, c := range []struct {
		want   string
		change func(*Record)
		policy CodePolicy
		sizes  bool
	}{
		{"", func(r *Record) { r.ConfigHash = "other" }, SameCode, false},
		{"data_hash", func(r *Record) { r.DataHash = "x" }, SameCode, false},
		{"", func(r *Record) { r.DataHash = "x" }, SameCode, true},
		{"tokenizer", func(r *Record) { r.TokenizerHash = "x" }, SameCode, true},
		{"val_hash", func(r *Record) { r.ValHash = "x" }, AnyCode, true},
		{"rows", func(r *Record) { r.ValRows = 5 }, AnyCode, true},
		{"code", func(r *Record) { r.Code = "x" }, SameCode, false},
		{"", func(r *Record) { r.Code = "x" }, AnyCode, false},
	} {
		other := mk(c.change)
		other.Run = "runs/b"
		err := Comparable([]*Record{one, one, other}, c.policy, c.sizes)
		switch {
		case c.want == "" && err != nil:
			t.Error(err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "runs/a") || !strings.Contains(err.Error(), "runs/b")):
			t.Errorf("%s: %v", c.want, err)
		}
	}
	if err := Comparable(nil, SameCode, false); err != nil {
		t.Error(err)
	}
}
