package run_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/stages/evals"
	"refrain/stages/saves"
	"refrain/store"
)

// notes keeps what a watcher is told.
type notes struct{ list []string }

func (n *notes) Step(run.StepInfo) {}
func (n *notes) Eval(evals.Result) {}
func (n *notes) Save(saves.Result) {}
func (n *notes) Note(text string)  { n.list = append(n.list, text) }
func (n *notes) has(s string) bool { return strings.Contains(strings.Join(n.list, "\n"), s) }

// TestRow25Resume trains on a mixture whose synthetic store is used up on the way, stops
// within an epoch of either store, and goes on elsewhere: the bits are those of the run
// that never stopped.
func TestRow25Resume(t *testing.T) {
	dir, synth := makeStore(t, 40), makeStore(t, 24)
	mixed := []string{"data.synthetic.store=" + synth, "data.synthetic.fraction=0.75", "train.epochs=2"}
	s := setup(t, dir, mixed...)
	w := s.Stream.WindowsPerEpoch()
	if want := 2 * w * 4 / 8; s.Options.Steps != want {
		t.Fatalf("%d steps for 2 epochs of %d rows, want %d", s.Options.Steps, w, want)
	}
	var told notes
	base := filepath.Join(t.TempDir(), "straight")
	want, err := run.Train(t.Context(), run.Job{Setup: s, Out: base, Watch: &told})
	if err != nil {
		t.Fatal(err)
	}
	if !told.has("are synthetic") || !told.has("used up and read again: pass 2 of it") {
		t.Errorf("notes %q", told.list)
	}
	steps := ledger(t, base)
	if e := steps[len(steps)-1]["epoch"].(float64); e < 1.9 || e > 2.1 {
		t.Errorf("the run ends at epoch %v, want 2 to within a block", e)
	}
	weights := hashOf(t, want.Path)
	for i, k := range []int64{1, s.Options.Steps / 3, s.Options.Steps - 1} {
		out := filepath.Join(t.TempDir(), fmt.Sprint(k))
		if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Limit: k}); !errors.Is(err, run.ErrStopped) {
			t.Fatalf("stopped at step %d: %v", k, err)
		}
		other := setup(t, dir, append(mixed, fmt.Sprintf("train.devices=%d", 1<<(i%3)))...)
		got, err := run.Train(t.Context(), run.Job{Setup: other, Out: out, Resume: run.ResumeMust})
		if err != nil {
			t.Fatal(err)
		}
		if got.Chain != want.Chain || hashOf(t, got.Path) != weights {
			t.Errorf("resumed at step %d: other bits than the run that never stopped", k)
		}
		if i > 0 {
			continue
		}
		// Another share, another synthetic store or none is another run.
		for _, c := range []struct{ name, store, fraction string }{
			{"data.synthetic.fraction was 0.75", synth, "0.5"}, {"other documents", makeStore(t, 32), "0.75"}, {"data.synthetic.fraction was 0.75", "", "0"},
		} {
			o := setup(t, dir, "data.synthetic.store="+c.store, "data.synthetic.fraction="+c.fraction, "train.epochs=2")
			_, err := run.Train(t.Context(), run.Job{Setup: o, Out: out, Resume: run.ResumeAuto})
			if run.ExitCode(err) != run.ExitUsage || !strings.Contains(err.Error(), c.name) {
				t.Errorf("resumed with %v: %v", c, err)
			}
		}
	}
}

func TestRow25BadStores(t *testing.T) {
	dir := makeStore(t, 40)
	small := func(meta store.Meta, n int) string {
		d := filepath.Join(t.TempDir(), "s")
		w, err := store.Create(d, meta)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Append(0, "a", make([]uint32, n)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct{ want, store string }{
		{"no such file", filepath.Join(t.TempDir(), "none")},
		{"another tokenizer", small(store.Meta{Vocab: vocab, TokenizerHash: "other"}, 40)},
		{"has ids up to 199, and the model a vocabulary of 67", small(store.Meta{Vocab: 200, TokenizerHash: "none"}, 40)},
		{"no window", small(store.Meta{Vocab: vocab, TokenizerHash: "none"}, 10)},
	} {
		r, err := config.Parse("tiny.yaml", []byte(tinyYAML), []string{"data.store=" + dir, "data.synthetic.store=" + c.store, "data.synthetic.fraction=0.5"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = run.NewSetup(&r.Config, r)
		if run.ExitCode(err) != run.ExitData || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "data.synthetic.store") {
			t.Errorf("%v (exit code %d), want %q", err, run.ExitCode(err), c.want)
		}
	}
}
