package run_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/store"
)

// trained trains a model and returns its run folder.
func trained(t testing.TB, dir string, overrides ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "teacher")
	if _, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, overrides...), Out: out}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRow26Resume trains a student of two teachers, stops and resumes it elsewhere, and
// refuses to go on with other teachers.
func TestRow26Resume(t *testing.T) {
	dir := makeStore(t, 40)
	a := trained(t, dir, "train.epochs=1", "train.seed=3")
	b := trained(t, dir, "train.epochs=1", "train.seed=4", "model.layers=1", "model.dim=16")
	taught := []string{fmt.Sprintf("distill.teachers=[%s, %s]", a, b), "distill.temperature=2", "distill.top_k=20", "train.epochs=2"}
	s := setup(t, dir, taught...)
	want, err := run.Train(t.Context(), run.Job{Setup: s, Out: filepath.Join(t.TempDir(), "straight")})
	if err != nil {
		t.Fatal(err)
	}
	plain := setup(t, dir, "train.epochs=2")
	alone, err := run.Train(t.Context(), run.Job{Setup: plain, Out: filepath.Join(t.TempDir(), "alone")})
	if err != nil {
		t.Fatal(err)
	}
	if alone.Chain == want.Chain || plain.DataHash == s.DataHash || s.TeachersHash == "" || plain.TeachersHash != "" {
		t.Error("a run with teachers is the run without")
	}
	out := filepath.Join(t.TempDir(), "run")
	if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Limit: 5}); !errors.Is(err, run.ErrStopped) {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want      string
		overrides []string
	}{
		{"other teachers", []string{fmt.Sprintf("distill.teachers=[%s, %s]", b, a)}},
		{"distill.temperature was 2 and is now 1", []string{"distill.teachers=[]", "distill.temperature=1", "distill.top_k=0"}},
		{"distill.temperature was 2", []string{"distill.temperature=3"}},
	} {
		o := slices.DeleteFunc(slices.Clone(taught), func(x string) bool {
			return slices.ContainsFunc(c.overrides, func(y string) bool { return strings.HasPrefix(x, y[:strings.Index(y, "=")+1]) })
		})
		_, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, append(o, c.overrides...)...), Out: out, Resume: run.ResumeAuto})
		if run.ExitCode(err) != run.ExitUsage || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.overrides, err, c.want)
		}
	}
	// The same teachers elsewhere are the same teachers.
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(a, moved); err != nil {
		t.Fatal(err)
	}
	taught[0] = fmt.Sprintf("distill.teachers=[%s, %s]", moved, b)
	got, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, append(taught, "train.devices=2")...), Out: out, Resume: run.ResumeMust})
	if err != nil {
		t.Fatal(err)
	}
	if got.Chain != want.Chain || hashOf(t, got.Path) != hashOf(t, want.Path) {
		t.Error("the resumed run has other bits than the run that never stopped")
	}
	// Evaluating the student needs no teacher: the one that its configuration names has gone.
	e, err := run.OpenRun(filepath.Dir(filepath.Dir(want.Path)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

func TestRow26BadTeachers(t *testing.T) {
	dir := makeStore(t, 40)
	a := trained(t, dir, "train.epochs=1")
	wide := trained(t, dir, "train.epochs=1", "model.vocab=70")
	damaged := trained(t, dir, "train.epochs=1", "train.seed=9")
	files, err := filepath.Glob(filepath.Join(damaged, "ckpt", "*", "model.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if err := os.Truncate(f, 100); err != nil {
			t.Fatal(err)
		}
	}
	other := filepath.Join(t.TempDir(), "other")
	w, err := store.Create(other, store.Meta{Vocab: vocab, TokenizerHash: "another"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(0, "a", make([]uint32, 2000)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want, store, teacher string
		code                 int
	}{
		{"neither a run folder", dir, t.TempDir(), run.ExitUsage},
		{"vocabulary is 70 and the student's 67", dir, wide, run.ExitData},
		{"another tokenizer", other, a, run.ExitData},
		{"damaged", dir, damaged, run.ExitNoCkpt},
	} {
		r, err := config.Parse("tiny.yaml", []byte(tinyYAML), []string{"data.store=" + c.store, "distill.teachers=[" + c.teacher + "]"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = run.NewSetup(&r.Config, r)
		if run.ExitCode(err) != c.code || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "distill.teachers") {
			t.Errorf("%v (exit code %d), want %q and %d", err, run.ExitCode(err), c.want, c.code)
		}
	}
}
