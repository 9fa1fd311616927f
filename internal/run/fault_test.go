package run_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/pipeline"
	"refrain/stages/evals"
	"refrain/stages/repack"
	"refrain/stages/saves"
	"refrain/train/ckpt"
)

// failedLines counts the saves that metrics.jsonl reports as failed.
func failedLines(t *testing.T, out string) (n int64) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, run.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var l struct{ Type, Path, Error string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Type == "save" && l.Error != "" && l.Path == "" {
			n++
		}
	}
	return n
}

// intact verifies every checkpoint of a run, byte by byte, and returns how many
// there are.
func intact(t *testing.T, fs fsx.FS, out string) int {
	t.Helper()
	list, err := ckpt.List(fs, filepath.Join(out, run.CkptDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if _, err := ckpt.Verify(t.Context(), fs, e.Path); err != nil {
			t.Errorf("checkpoint %s: %v", e.Name, err)
		}
	}
	return len(list)
}

// hashIn returns the bytes of the tensors of a checkpoint on fs as a string.
func hashIn(t *testing.T, fs fsx.FS, path string) string {
	t.Helper()
	var all []byte
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		b, err := fsx.ReadFile(fs, filepath.Join(path, name), 1<<24)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return string(all)
}

// TestEverySaveFault makes file system call number n fail while a run saves, for
// n = 1, 9, 17, ... until a run ends before it meets the fault. Training comes to
// the same chain every time, what has been saved stays good, and only a failure
// of the last save is the run's own, with the code for disks.
func TestEverySaveFault(t *testing.T) {
	dir := makeStore(t, 64)
	small := []string{"train.epochs=1", "save.every=4", "save.keep=2", "eval.every=100"}
	s := setup(t, dir, small...)
	base := fsx.NewMem()
	straight, err := run.Train(t.Context(), run.Job{Setup: s, Out: filepath.Join(t.TempDir(), "straight"), FS: base})
	if err != nil {
		t.Fatal(err)
	}
	weights := hashIn(t, base, straight.Path)
	rules := []fsx.Rule{
		{Err: syscall.EIO},
		{Ops: []fsx.Op{fsx.OpWrite}, Short: true, Err: syscall.ENOSPC},
		{Ops: []fsx.Op{fsx.OpSync, fsx.OpSyncDir}, Err: syscall.EIO},
	}
	stride := 8
	if testing.Short() {
		stride = 24
	}
	var atEnd, during int
	for _, rule := range rules {
		for n := 1; ; n += stride {
			rule.Nth = n
			mem := fsx.NewMem()
			f := fsx.NewFault(mem, rule)
			out, w := filepath.Join(t.TempDir(), "run"), new(watcher)
			res, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, FS: f, Watch: w})
			if res == nil || res.Chain != straight.Chain || res.Step != straight.Step {
				t.Fatalf("%v at call %d: the training itself ends with %+v, %v", rule.Err, n, res, err)
			}
			failed, last := int64(0), false
			for _, r := range w.saves {
				if r.Path == "" {
					failed++
					last = last || r.Last
				}
			}
			if failed > 1 || failed != res.Failed || failed != failedLines(t, out) {
				t.Errorf("%v at call %d: %d saves failed by the watcher, %d by the result, %d by metrics.jsonl", rule.Err, n, failed, res.Failed, failedLines(t, out))
			}
			have := intact(t, mem, out)
			switch {
			case last:
				atEnd++
				if run.ExitCode(err) != run.ExitDisk || have == 0 {
					t.Errorf("%v at call %d, in the last save: exit code %d (%v), %d checkpoints left", rule.Err, n, run.ExitCode(err), err, have)
				}
				f.SetRules()
				again, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, FS: f, Resume: run.ResumeMust})
				if err != nil || again.Chain != straight.Chain {
					t.Errorf("%v at call %d: the disk obeys again, and the run ends with %v", rule.Err, n, err)
				}
			case err != nil:
				t.Errorf("%v at call %d: %v", rule.Err, n, err)
			default:
				during += int(failed)
				if got := hashIn(t, mem, res.Path); got != weights {
					t.Errorf("%v at call %d: the last checkpoint holds other weights", rule.Err, n)
				}
			}
			if f.Fired() == 0 {
				break
			}
		}
	}
	if atEnd == 0 || during == 0 {
		t.Errorf("%d faults hit the last save and %d another one; both were to be seen", atEnd, during)
	}
	t.Logf("%d faults failed a save during the run, %d the last save", during, atEnd)
}

// TestDiskFullForAWhile fills the disk in the middle of a run and empties it
// again: training goes on, each failed save is reported, older checkpoints stay,
// and saves succeed again afterwards.
func TestDiskFullForAWhile(t *testing.T) {
	dir := makeStore(t, 64)
	s := setup(t, dir, "save.every=1", "train.epochs=6", "eval.every=1000")
	mem := fsx.NewMem()
	f := fsx.NewFault(mem)
	out := filepath.Join(t.TempDir(), "run")
	full := fsx.Rule{Ops: []fsx.Op{fsx.OpWrite, fsx.OpMkdir}, Permanent: true, Short: true, Err: syscall.ENOSPC}
	w := &watcher{onStep: func(run.StepInfo) { <-time.After(time.Millisecond) }}
	var good, bad, after int
	w.onSave = func(r saves.Result) {
		switch {
		case r.Path == "":
			if !errors.Is(r.Err, syscall.ENOSPC) {
				t.Errorf("a save on a full disk fails with %v", r.Err)
			}
			if n := intact(t, mem, out); n < 2 {
				t.Errorf("%d checkpoints while the disk is full", n)
			}
			if bad++; bad == 3 {
				f.SetRules()
			}
		case bad > 0:
			after++
		default:
			if good++; good == 3 {
				f.SetRules(full)
			}
		}
	}
	res, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, FS: f, Watch: w})
	if err != nil {
		t.Fatal(err)
	}
	if good < 3 || bad < 3 || after < 2 || res.Failed != int64(bad) {
		t.Errorf("%d saves before the disk was full, %d failed (%d by the result), %d after", good, bad, res.Failed, after)
	}
	left, err := mem.ReadDir(filepath.Join(out, run.CkptDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("%s is left over", e.Name())
		}
	}
}

// faulty is a corpus that panics at its n-th read.
type faulty struct {
	repack.Corpus
	mu   sync.Mutex
	left int
	text string
}

func (c *faulty) Copy(doc, from, to int, dst []int32) {
	c.mu.Lock()
	c.left--
	now := c.left == 0
	c.mu.Unlock()
	if now {
		panic(c.text)
	}
	c.Corpus.Copy(doc, from, to, dst)
}

// TestPanics plants a panic in the stages of a run: it ends soon, names stage
// and record, leaves every checkpoint good and no goroutine behind, and a resume
// comes to the bits of the run that never panicked.
func TestPanics(t *testing.T) {
	dir := makeStore(t, 64)
	straight, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir), Out: filepath.Join(t.TempDir(), "straight"), FS: fsx.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name, stage, record string
		plant               func(t *testing.T, s *run.Setup, w *watcher, fs *fsx.Fault)
	}{
		{"corpus", "batch", " 20", func(t *testing.T, s *run.Setup, _ *watcher, _ *fsx.Fault) {
			withCorpus(t, s, &faulty{Corpus: s.Corpus, left: 400, text: "planted in the corpus"})
		}},
		{"validation set", "evals", "snapshot of step ", func(t *testing.T, s *run.Setup, _ *watcher, _ *fsx.Fault) {
			set, err := run.NewValSet(&faulty{Corpus: s.Val, left: 30, text: "planted in the validation set"}, s.Options.T, 0)
			if err != nil {
				t.Fatal(err)
			}
			s.Set = set
		}},
		{"file system", "saves", "checkpoint of step 7", func(_ *testing.T, _ *run.Setup, _ *watcher, fs *fsx.Fault) {
			fs.After(func(c fsx.Call) {
				if filepath.Base(c.Name) == "optimizer.safetensors" && c.Op == fsx.OpWrite {
					panic("planted in the file system")
				}
			})
		}},
		{"step line", "log", "item 10", func(_ *testing.T, _ *run.Setup, w *watcher, _ *fsx.Fault) {
			w.onStep = func(i run.StepInfo) {
				if i.Step == 11 {
					panic("planted in the step line")
				}
			}
		}},
		{"evaluation line", "evals-log", "item 0", func(_ *testing.T, _ *run.Setup, w *watcher, _ *fsx.Fault) {
			w.onEval = func(evals.Result) { panic("planted in the evaluation line") }
		}},
		{"save line", "saves-log", "item 0", func(_ *testing.T, _ *run.Setup, w *watcher, _ *fsx.Fault) {
			w.onSave = func(saves.Result) { panic("planted in the save line") }
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			s, w := setup(t, dir), new(watcher)
			mem := fsx.NewMem()
			f := fsx.NewFault(mem)
			tc.plant(t, s, w, f)
			out := filepath.Join(t.TempDir(), "run")
			res, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, FS: f, Watch: w})
			var pe *pipeline.PanicError
			if !errors.As(err, &pe) {
				t.Fatalf("a panic ends the run with %v", err)
			}
			if pe.Stage != tc.stage || !strings.Contains(pe.Record, tc.record) || !strings.HasPrefix(err.Error(), "stage "+tc.stage+": panic at "+pe.Record+": planted in the "+tc.name) {
				t.Errorf("stage %q, record %q, error %.300q; want stage %q and record %q", pe.Stage, pe.Record, err.Error(), tc.stage, tc.record)
			}
			if run.ExitCode(err) != run.ExitFailed {
				t.Errorf("exit code %d", run.ExitCode(err))
			}
			var exit run.Exit
			b, rerr := os.ReadFile(filepath.Join(out, run.ExitFile))
			if rerr != nil {
				t.Fatal(rerr)
			}
			if err := json.Unmarshal(b, &exit); err != nil || exit.Status != "failed" || exit.Code != run.ExitFailed || !strings.Contains(exit.Reason, "planted") {
				t.Errorf("exit.json is %s", b)
			}
			intact(t, mem, out)
			again, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir), Out: out, FS: mem, Resume: run.ResumeAuto})
			if err != nil || again.Chain != straight.Chain {
				t.Errorf("resumed after a panic at step %d: %v, another chain %v", res.Step, err, again.Chain != straight.Chain)
			}
		})
	}
}

// TestPanicStopsAtOnce measures from a planted panic to the end of the run. The
// promise of a second is kept by the pipeline and proved there in virtual time;
// here a busy machine gets five.
func TestPanicStopsAtOnce(t *testing.T) {
	s := setup(t, makeStore(t, 64), "train.epochs=50")
	var at time.Time
	w := &watcher{onStep: func(i run.StepInfo) {
		if i.Step == 20 {
			at = time.Now()
			panic("planted")
		}
	}}
	_, err := run.Train(t.Context(), run.Job{Setup: s, Out: filepath.Join(t.TempDir(), "run"), Watch: w, FS: fsx.NewMem()})
	if err == nil || at.IsZero() {
		t.Fatalf("no panic: %v", err)
	}
	if d := time.Since(at); d > 5*time.Second {
		t.Errorf("%v from panic to stop", d)
	} else {
		t.Logf("%v from panic to stop", d)
	}
	if slices.Contains([]int{run.ExitDone, run.ExitResumable}, run.ExitCode(err)) {
		t.Errorf("exit code %d", run.ExitCode(err))
	}
}
