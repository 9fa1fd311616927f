package micro

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/num"
	"refrain/internal/run"
)

// The test binary is also a study: with this word first it makes that of the folder that
// follows.
const asStudy = "as-study"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asStudy {
		o := tinyOptions(os.Args[2])
		o.Say = func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
		_, err := Run(context.Background(), o)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(run.ExitCode(err))
	}
	os.Exit(m.Run())
}

// tinyForm asks everything of models that train in hundredths of a second.
func tinyForm() *Form {
	return &Form{
		Name: "tiny",
		text: text{
			sizes: []size{{"XXS", 1, 8, 1, 8}, {"XS", 1, 16, 2, 16}, {"S", 1, 24, 2, 24}},
			vocab: 300, seq: 32, unique: 2048, pools: 2, most: 600, val: 4000, test: 6000, fit: 2000, bytes: 40_000,
		},
		main: table{
			seeds: 2, pools: 1, members: 3, recipes: []member{{1, 0.5}, {2, 0.5}}, middle: 1,
			sizes: []sizeTable{
				{name: "XXS", lr: 1e-2, tune: []trial{{2, 1e-2, 0.8, 0, 0}}},
				{name: "XS", lr: 1e-2, epochs: []int{1, 2, 4}, tune: []trial{{2, 1e-2, 0.8, 0, 0}, {2, 1e-2, 1.6, 0, 0}, {1, 1e-2, usualDecay, 0, 0}}},
				{name: "S", lr: 1e-2, tune: []trial{{2, 1e-2, 1.6, 0, 0}}},
			},
			orders: []string{"fixed", "reshuffle"}, orderBatch: 16,
			batches: []batchTable{{4, []trial{{2, 1e-2, 0.8, 0, 0}}}, {16, []trial{{2, 1e-2, 0.8, 0, 0}}}},
			decayed: []trial{{2, 1e-2, 0.8, 0.8, 0}}, tied: []trial{{2, 1e-2, 0.8, 0, 2}}, tiedDecayed: []trial{{2, 1e-2, 0.8, 0.8, 2}},
			students: &students{fraction: 0.5, tokens: 2048, decays: []float64{usualDecay}},
		},
		again: table{
			seeds: 2, pools: 1,
			sizes: []sizeTable{{name: "XS", lr: 1e-2, epochs: []int{1, 2}, tune: []trial{{2, 1e-2, 0.8, 0, 0}, {1, 1e-2, usualDecay, 0, 0}}}},
		},
	}
}

// tinyOptions are those of a study in dir, whose texts are in dir/text and dir/more.
func tinyOptions(dir string) Options {
	return Options{
		Out: filepath.Join(dir, "out"), Form: tinyForm(), Corpora: []string{filepath.Join(dir, "text"), filepath.Join(dir, "more")}, Parallel: 2, Args: []string{"refrain", "study", "micro"},
		Say: func(string, ...any) {}, Tick: func(string, ...any) {},
	}
}

// writeTexts leaves documents of a language with some structure.
func writeTexts(t *testing.T, dir string, seed uint64) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	rng := num.NewStream("micro test", seed)
	n := uint64(0)
	below := func(k uint64) uint64 {
		n++
		return rng.Uintn(n, k)
	}
	for i := range 150 {
		var b strings.Builder
		at := below(40)
		for b.Len() < 500 {
			at = (at*7 + below(5)) % 40
			fmt.Fprintf(&b, "word%d ", at)
			if below(9) == 0 {
				b.WriteString("\n")
			}
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("doc%03d.txt", i)), []byte(b.String()+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func results(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range []string{RecordsFile, FindingsFile, ReportFile} {
		b, err := os.ReadFile(filepath.Join(dir, "out", ResultsDir, name))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(b)
	}
	return out
}

// TestStudyOfTwoCorporaKilledAndStopped makes the whole tiny program in processes that are
// killed, and compares the losses with those of a program that was left alone.
func TestStudyOfTwoCorporaKilledAndStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("trains models for several seconds")
	}
	dir := t.TempDir()
	writeTexts(t, filepath.Join(dir, "text"), 1)
	writeTexts(t, filepath.Join(dir, "more"), 2)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, runs := range []int{1, 6} { // ended without warning after so many
		c := exec.CommandContext(t.Context(), exe, asStudy, dir)
		said, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(said)
		for runs > 0 && lines.Scan() {
			if strings.Contains(lines.Text(), "] run ") {
				runs--
			}
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if c.Wait() == nil || runs > 0 {
			t.Errorf("the study ended before it was killed, %d runs early", runs)
		}
	}
	stop := make(chan struct{})
	close(stop)
	o := tinyOptions(dir)
	o.Stop = stop
	if _, err := Run(t.Context(), o); !errors.Is(err, run.ErrStopped) {
		t.Errorf("a stop that was asked for: %v", err)
	}
	// What is there has answers already, most of them that runs are missing.
	o.Stop, o.SoFar = nil, true
	part, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	records, err := filepath.Glob(filepath.Join(dir, "out", registryDir, "cells", "*.json"))
	if err != nil || len(part.Results.Models) == 0 || len(part.Results.Models) > len(records) || len(records) > 40 {
		t.Errorf("%d models of %d records (%v)", len(part.Results.Models), len(records), err)
	}
	if a := part.Answers[4]; a.ID != "e" || a.Verdict != NotAnswered {
		t.Errorf("(%s) %s", a.ID, a.Text)
	}
	out, err := Run(t.Context(), tinyOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Failed) > 0 {
		t.Errorf("failed: %s: %s", out.Failed[0].Label(), out.Failed[0].Reason)
	}
	for _, a := range out.Answers {
		t.Logf("(%s) %s: %s", a.ID, a.Corpus, a.Text)
		if a.Verdict == NotAnswered {
			t.Errorf("(%s) on %s: %s", a.ID, a.Corpus, a.Text)
		}
	}
	first := results(t, dir)

	// The same command again trains nothing and writes the same files.
	again, err := Run(t.Context(), tinyOptions(dir))
	if err != nil {
		t.Fatal(err)
	}
	if second := results(t, dir); first[RecordsFile] != second[RecordsFile] || first[FindingsFile] != second[FindingsFile] || first[ReportFile] != second[ReportFile] {
		t.Error("the same command again changes the results")
	}
	if len(again.Results.Models) != len(out.Results.Models) {
		t.Errorf("%d runs the second time, %d the first", len(again.Results.Models), len(out.Results.Models))
	}

	// From the records alone.
	path := filepath.Join(dir, "out", ResultsDir, RecordsFile)
	r, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := tinyForm().Write(r, filepath.Join(dir, "alone")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{RecordsFile, FindingsFile, ReportFile} {
		if b, err := os.ReadFile(filepath.Join(dir, "alone", name)); err != nil || string(b) != first[name] {
			t.Errorf("%s from records alone differs (%v)", name, err)
		}
	}

	// Kills changed nothing: one of the models again, elsewhere and alone.
	calm := t.TempDir()
	for _, x := range []string{"text", "more"} {
		if err := os.Symlink(filepath.Join(dir, x), filepath.Join(calm, x)); err != nil {
			t.Skip(err)
		}
	}
	o = tinyOptions(calm)
	o.Corpora = o.Corpora[:1]
	o.Form.main = table{seeds: 2, pools: 1, sizes: o.Form.main.sizes[:1]}
	alone, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(alone.Results.Models) != 2 {
		t.Errorf("%d runs of one recipe with two seeds", len(alone.Results.Models))
	}
	for _, m := range alone.Results.Models {
		x := out.Results.model(m.Point, m.Seed)
		if x == nil || *x.Val != *m.Val || *x.Train != *m.Train || m.Test != nil && fmt.Sprint(x.Test) != fmt.Sprint(m.Test) {
			t.Errorf("%s seed %d differs after kills", m.Label(), m.Seed)
		}
	}
}
