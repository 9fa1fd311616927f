package study

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/run"
)

// TestScores: scores on the validation store are what training measured there, to the bit,
// for any number of threads; what is stored is read again and not measured; a stop ends the
// measuring; damaged files, and stores of another tokenizer or without documents of their
// own, are refused by name.
func TestScores(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	path := specFile(t, testStore(t), out, "grid:\n  optim.lr: [0.003, 0.01]\n")
	cells, records, err := sweep(t.Context(), path, 2)
	if err != nil {
		t.Fatal(err)
	}
	reg, err := OpenRegistry(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	stopped := make(chan struct{})
	close(stopped)
	if _, err := (&Meter{Registry: reg, Stop: stopped}).Score(t.Context(), cells, records, Split{}); !errors.Is(err, run.ErrStopped) {
		t.Errorf("after a stop: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Meter{Registry: reg}).Score(gone, cells, records, Split{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if list, err := os.ReadDir(reg.path(scoresDir)); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
	m := &Meter{Registry: reg, Place: func([]*Cell) Placement { return Placement{Slots: 2, Threads: 2} }}
	scores, err := m.Score(t.Context(), cells, []*Record{records[0], nil}, Split{})
	if err != nil {
		t.Fatal(err)
	}
	if scores[1] != nil || scores[0].Loss != *records[0].Val || scores[0].Tokens != records[0].Tokens || len(scores[0].Docs) != 12 {
		t.Errorf("scores %+v, the run had %v over %d tokens", scores[0], *records[0].Val, records[0].Tokens)
	}
	list, err := filepath.Glob(reg.path(scoresDir, "*.json"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	whole, err := os.ReadFile(list[0])
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ old, new, want string }{
		"as it is":       {"", "", ""},
		"cut short":      {"}\n", "", "unexpected end"},
		"another run":    {records[0].Identity, records[1].Identity, "of another run"},
		"a later form":   {`"version":1`, `"version":2`, "version 2; this program reads 1"},
		"half the sums":  {`"counts":[`, `"counts":[1,`, "12 sums and 13 counts"},
		"another length": {`"seq":16`, `"seq":17`, "of other documents"},
	} {
		if err := os.WriteFile(list[0], []byte(strings.Replace(string(whole), c.old, c.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := m.Score(t.Context(), cells, []*Record{records[0], nil}, Split{})
		switch {
		case c.want == "":
			if err != nil || again[0].Loss != scores[0].Loss || again[0].Docs[3] != scores[0].Docs[3] {
				t.Errorf("%s: %+v %v", what, again[0], err)
			}
		case run.ExitCode(err) != run.ExitData || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), list[0]):
			t.Errorf("%s: %v", what, err)
		}
	}
	other := filepath.Join(t.TempDir(), "other")
	writeDocsOf(t, "another", other, 9, 8)
	if _, err := m.Score(t.Context(), cells, records, Split{Store: other}); run.ExitCode(err) != run.ExitData || !strings.Contains(err.Error(), "another tokenizer") {
		t.Errorf("a store of another tokenizer: %v", err)
	}
	for dir, want := range map[string]string{other: "another tokenizer", filepath.Join(t.TempDir(), "none"): "test store", "": ""} {
		if err := CheckTest(cells, dir); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
