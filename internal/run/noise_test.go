package run_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/internal/run/config"
)

// noise switches everything random on.
func noise(more ...string) []string {
	return append([]string{"train.epochs=2", "regularize.dropout=0.2", "regularize.masked_weight=0.4"}, more...)
}

// TestNoiseResumes: a run with dropout and masked rows that is stopped and continued on
// other devices and micro-steps is the run that never stopped, bit for bit; its
// metrics have the second loss, and it is another run than the one without.
func TestNoiseResumes(t *testing.T) {
	dir := makeStore(t, 48)
	base, out := filepath.Join(t.TempDir(), "straight"), filepath.Join(t.TempDir(), "stopped")
	s := setup(t, dir, noise()...)
	want, err := run.Train(t.Context(), run.Job{Setup: s, Out: base})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Limit: 5}); !errors.Is(err, run.ErrStopped) {
		t.Fatal(err)
	}
	got, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, noise("train.devices=2", "train.micro_batch=2")...), Out: out, Resume: run.ResumeMust})
	if err != nil {
		t.Fatal(err)
	}
	if got.Chain != want.Chain || got.Val.Loss != want.Val.Loss || hashOf(t, got.Path) != hashOf(t, want.Path) {
		t.Errorf("chain %v and validation loss %v, the run that never stopped has %v and %v", got.Chain, got.Val.Loss, want.Chain, want.Val.Loss)
	}
	for i, m := range ledger(t, base) {
		if loss, ok := m["masked_loss"].(float64); !ok || loss <= 0 || loss == m["loss"] {
			t.Fatalf("step %d: masked_loss is %v, loss %v", i+1, m["masked_loss"], m["loss"])
		}
	}
	plain := filepath.Join(t.TempDir(), "plain")
	other, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, "train.epochs=2"), Out: plain})
	if err != nil {
		t.Fatal(err)
	}
	if other.Chain == want.Chain {
		t.Error("the noise changed nothing")
	}
	if _, there := ledger(t, plain)[0]["masked_loss"]; there {
		t.Error("a run without masked rows reports their loss")
	}
	if _, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, "train.epochs=2", "regularize.dropout=0.3"), Out: plain, Resume: run.ResumeMust}); run.ExitCode(err) != run.ExitUsage {
		t.Errorf("continued with other noise: %v", err)
	}
}

// TestNoiseReaches: what the configuration says is what the trainer gets and the header
// tells.
func TestNoiseReaches(t *testing.T) {
	dir := makeStore(t, 16)
	s := setup(t, dir, noise("regularize.masked_from=0.1", "regularize.masked_to=0.3")...)
	if m := s.Options.Masked; s.Options.Dropout != 0.2 || m.Weight != 0.4 || m.From != 0.1 || m.To != 0.3 || m.ID != -1 || m.Vocab != vocab {
		t.Errorf("options %+v", s.Options)
	}
	if text := strings.Join(run.Header(s, "out", 0), "\n"); !strings.Contains(text, "noise   dropout 0.2  second loss times 0.4 on rows with 0.1 to 0.3 of the inputs replaced by any id") {
		t.Errorf("header:\n%s", text)
	}
	if text := strings.Join(run.Header(setup(t, dir), "out", 0), "\n"); strings.Contains(text, "noise") {
		t.Errorf("header of a plain run:\n%s", text)
	}
	r, err := config.Parse("tiny.yaml", []byte(tinyYAML), append(noise("regularize.masked_id=eos"), "data.store="+dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.NewSetup(&r.Config, r); run.ExitCode(err) != run.ExitUsage || !strings.Contains(err.Error(), "no id ends the documents of data.store; use random") {
		t.Errorf("eos of a store without one: %v", err)
	}
}
