package study

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const base = "base:\n  model: {preset: micro-0.3M}\n  data: {store: s}\n  train: {epochs: 2}\nout: o\n"

// TestSpecProblems: everything wrong with a sweep file is told at once, where it stands.
func TestSpecProblems(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", []string{"s.yaml: the file is empty"}},
		{"- a\n", []string{"s.yaml:1:1: a sweep holds keys"}},
		{"grids: {}\n", []string{`s.yaml:1:1: unknown key "grids" - did you mean "grid"?`, "base is not set", "nothing varies", "out is not set"}},
		{base, []string{"nothing varies"}},
		{base + "grid: {}\n", []string{"s.yaml:6:1: grid has no axes"}},
		{base + "grid: {train.epochs: []}\n", []string{"s.yaml:6:8: train.epochs: the list is empty"}},
		{base + "grid:\n  train.epochs: 8\n  optim.lr: [0.1, {}, 0.1]\n", []string{"s.yaml:7:3: train.epochs: want a list", "s.yaml:8:19: optim.lr: want a value, got a section", "s.yaml:8:23: optim.lr: the value 0.1 stands twice"}},
		{base + "grid: {optim.lr: [1]}\nlist: [{optim.lr: 1}]\n", []string{"s.yaml:7:1: grid and list are both there"}},
		{base + "seeds: [0, -1, x, 0]\nvary: all\ncode: old\n", []string{`seeds: "-1" is not`, `seeds: "x"`, "the value 0 stands twice", "vary: want one of both, init, order", "code: want one of same, any"}},
		{base + "seeds: [0]\nbudget: {steps: 0, hours: 3}\n", []string{"budget: steps: want a number above 0", `unknown key "hours" in budget`}},
		{base + "seeds: [0]\nbudget: {steps: 5, core_seconds: 1}\n", []string{"core_seconds and steps are both there"}},
		{base + "seeds: [0]\nbudget: {core_seconds: .nan}\n", []string{"budget: core_seconds: want a number above 0"}},
		{base + "seeds: [0]\ndescend: {start: {optim.lr: 1}}\n", []string{"descend needs a grid"}},
		{base + "grid: {data.mode: [fixed, repack], optim.lr: [0.1]}\ndescend: {start: {optim.lr: 3, optim.lx: 1}, freeze: [y]}\n", []string{
			"freeze: y is not an axis", "start: optim.lr=3 is not a value of that axis, which has 0.1", "start: optim.lx is not an axis",
			"start: give a value of data.mode", `descend walks along numbers, and data.mode has the value "fixed"`}},
		{"base: missing.yaml\nseeds: [0]\nout: o\n", []string{"s.yaml:1:7: base: missing.yaml: no such file"}},
		{"base: [a]\nseeds: [0]\nout: o\n", []string{"s.yaml:1:1: base: want a configuration file or a section"}},
		{base + "seeds: [0]\nseeds: [1]\n", []string{`s.yaml:7:1: key "seeds" stands twice`}},
		{base + "grid: {optim.lr: &a [1]}\n", []string{"s.yaml:6:"}},
		{base + "grid: {optim.lr: [" + numbers(200) + "], optim.beta1: [" + numbers(200) + "]}\n", []string{"40000 cells; the limit is 10000"}},
	} {
		_, err := ParseSpec("s.yaml", []byte(c.text))
		if err == nil {
			t.Errorf("%q: no error", c.text)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q\nwithout %q:\n%v", c.text, w, err)
			}
		}
	}
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat("0", i))
		b.WriteString("1, ")
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// TestSpecCells: the cells in their order, what is wrong with a configuration where it is
// written, and the seeds that vary.
func TestSpecCells(t *testing.T) {
	parse := func(text string) *Spec {
		t.Helper()
		s, err := ParseSpec("s.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	cells, err := parse(base + "grid:\n  optim.lr: [0.1, 0.2]\n  data.mode: [fixed, repack]\nseeds: [7, 8]\n").Cells()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cells {
		got = append(got, c.Label())
	}
	if len(cells) != 8 || got[1] != "optim.lr=0.1 data.mode=fixed" || got[2] != "optim.lr=0.1 data.mode=repack" || cells[1].Seed != 8 {
		t.Errorf("%v", got)
	}
	_, err = parse("base:\n  model: {preset: micro-0.3M, laiers: 2}\n  data: {store: s}\ngrid:\n  optim.lx: [1]\n  optim.lr: [99, 0.1]\nout: o\n").Cells()
	for _, w := range []string{`s.yaml:2:31: unknown key "laiers"`, "s.yaml:5:14: optim.lx=1: unknown key", "s.yaml:6:14: optim.lr=99: optim.lr: 99 is out of range"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("without %q: %v", w, err)
		}
	}
	if n := strings.Count(err.Error(), "laiers"); n != 1 {
		t.Errorf("told %d times: %v", n, err)
	}
	for _, c := range []struct {
		vary        string
		train, data []uint64
	}{
		{"both", []uint64{1, 2}, []uint64{1, 2}},
		{"init", []uint64{1, 2}, []uint64{5, 5}},
		{"order", []uint64{5, 5}, []uint64{1, 2}},
	} {
		cells, err := parse(strings.Replace(base, "epochs: 2", "epochs: 2, seed: 5", 1) + "seeds: [1, 2]\nvary: " + c.vary + "\n").Cells()
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range cells {
			if got := x.resolved.Config; got.Train.Seed != c.train[i] || *got.Data.Seed != c.data[i] || x.Seed != uint64(i+1) {
				t.Errorf("vary %s seed %d: train %d data %d", c.vary, x.Seed, got.Train.Seed, *got.Data.Seed)
			}
		}
	}
	// The base may be a file, and a section is worth the same.
	path := filepath.Join(t.TempDir(), "run.yaml")
	if err := os.WriteFile(path, []byte("model: {preset: micro-0.3M}\ndata: {store: s}\ntrain: {epochs: 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := parse("base: " + path + "\nseeds: [1]\nout: o\n").Cells()
	if err != nil {
		t.Fatal(err)
	}
	b, err := parse(base + "seeds: [1]\n").Cells()
	if err != nil || a[0].resolved.Hash() != b[0].resolved.Hash() {
		t.Errorf("%v", err)
	}
}

// TestIdentity: what cannot change a result is no part of an identity, and everything
// that can is.
func TestIdentity(t *testing.T) {
	data := testStore(t)
	open := func(lines string) *Cell {
		t.Helper()
		spec, err := LoadSpec(specFile(t, data, "out", lines))
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
		return cells[0]
	}
	at := open("list: [{optim.lr: 0.01}]\n")
	for _, same := range []string{"train.threads: 2", "train.devices: 2", "log.every: 3", "save.every: 5", "eval.every: 2", "eval.batch: 2", "train.micro_batch: 2", "optim.lr: 1e-2"} {
		if c := open("list: [{" + same + "}]\n"); c.Identity() != at.Identity() {
			t.Errorf("%s changes the identity", same)
		}
	}
	for _, other := range []string{"train.seed: 1", "data.seed: 1", "optim.lr: 0.02", "eval.rows: 3", "data.subset.docs: 20", "train.steps: 9"} {
		if c := open("list: [{" + other + "}]\n"); c.Identity() == at.Identity() || c.Key() == at.Key() {
			t.Errorf("%s does not change the identity", other)
		}
	}
	older := *at
	older.Code = "older"
	if older.Identity() == at.Identity() || older.Key() != at.Key() || !slices.Equal([]string{older.Name()[:16]}, []string{at.Name()[:16]}) {
		t.Error("code is part of the identity and not of the key")
	}
	r := &Record{Provenance: older.Provenance, Status: Done}
	for _, c := range []struct {
		policy CodePolicy
		found  bool
	}{{SameCode, false}, {AnyCode, true}} {
		got, err := Find([]*Record{r}, at, c.policy)
		if err != nil || (got != nil) != c.found {
			t.Errorf("%s: %v %v", c.policy, got, err)
		}
	}
	oldest := older
	oldest.Code = "oldest"
	if _, err := Find([]*Record{r, {Provenance: oldest.Provenance, Status: Done}}, at, AnyCode); err == nil || !strings.Contains(err.Error(), "older") {
		t.Errorf("two other revisions: %v", err)
	}
	if o := Others([]*Record{r}, []*Cell{at}, SameCode); len(o) != 1 || !strings.Contains(o[0].Why, "other code") {
		t.Errorf("%v", o)
	}
}
