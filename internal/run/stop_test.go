package run_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/pipeline"
	"refrain/stages/evals"
	"refrain/stages/repack"
	"refrain/stages/saves"
)

// watcher records a run and calls hooks.
type watcher struct {
	onStep func(run.StepInfo)
	onEval func(evals.Result)
	onSave func(saves.Result)

	mu    sync.Mutex
	saves []saves.Result
	notes []string
	last  int64
}

func (w *watcher) Step(i run.StepInfo) {
	w.mu.Lock()
	w.last = i.Step
	w.mu.Unlock()
	if w.onStep != nil {
		w.onStep(i)
	}
}

func (w *watcher) Eval(r evals.Result) {
	if w.onEval != nil {
		w.onEval(r)
	}
}

func (w *watcher) Save(r saves.Result) {
	w.mu.Lock()
	w.saves = append(w.saves, r)
	w.mu.Unlock()
	if w.onSave != nil {
		w.onSave(r)
	}
}

func (w *watcher) Note(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, text)
}

func (w *watcher) noted(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(strings.Join(w.notes, "\n"), text)
}

// finish continues the run in out to its end and compares it with the run in
// base that never stopped.
func finish(t *testing.T, s *run.Setup, out string, want *run.Result) {
	t.Helper()
	got, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Resume: run.ResumeMust})
	if err != nil {
		t.Fatal(err)
	}
	if got.Chain != want.Chain || got.Step != want.Step {
		t.Errorf("ends at step %d with chain %v, the run that never stopped at %d with %v", got.Step, got.Chain, want.Step, want.Chain)
	}
	if n := len(ledger(t, out)); int64(n) != want.Step {
		t.Errorf("%d steps in the ledger, want %d", n, want.Step)
	}
}

// TestStopAtEachStage asks for a stop while the run does different things: the
// last finished step is saved, the code is that of a run that can go on, and it
// goes on to the bits of the run that never stopped.
func TestStopAtEachStage(t *testing.T) {
	dir := makeStore(t, 64)
	s := setup(t, dir)
	want, err := run.Train(t.Context(), run.Job{Setup: s, Out: filepath.Join(t.TempDir(), "straight")})
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name string
		arm  func(w *watcher, fs *fsx.Fault, stop func()) // arranges the stop
	}{
		{"first step", func(w *watcher, _ *fsx.Fault, stop func()) {
			w.onStep = func(i run.StepInfo) { stop() }
		}},
		{"step before a save", func(w *watcher, _ *fsx.Fault, stop func()) {
			w.onStep = func(i run.StepInfo) {
				if i.Step == 13 {
					stop()
				}
			}
		}},
		{"evaluation", func(w *watcher, _ *fsx.Fault, stop func()) {
			w.onEval = func(evals.Result) { stop() }
		}},
		{"save begins", func(_ *watcher, fs *fsx.Fault, stop func()) {
			fs.After(func(c fsx.Call) {
				if c.Op == fsx.OpMkdir && strings.HasPrefix(filepath.Base(c.Name), ".tmp-") {
					stop()
				}
			})
		}},
		{"save published", func(_ *watcher, fs *fsx.Fault, stop func()) {
			fs.After(func(c fsx.Call) {
				if c.Op == fsx.OpRename && filepath.Base(c.New) == "step-000000007" {
					stop()
				}
			})
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			ch := make(chan struct{})
			stop := sync.OnceFunc(func() { close(ch) })
			w, fs := new(watcher), fsx.NewFault(fsx.OS{})
			// Steps are faster than files here; the stop comes before the end.
			w.onStep = func(i run.StepInfo) {
				if i.Step == 40 {
					<-ch
				}
			}
			tc.arm(w, fs, stop)
			res, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Stop: ch, Watch: w, FS: fs})
			if !errors.Is(err, run.ErrStopped) || run.ExitCode(err) != run.ExitResumable {
				t.Fatalf("stopped with %v", err)
			}
			if want := filepath.Join(out, run.CkptDir, fmt.Sprintf("step-%09d", w.last)); res.Path != want || res.Step != w.last {
				t.Errorf("saved %s at step %d; the last finished step was %d", res.Path, res.Step, w.last)
			}
			finish(t, s, out, want)
		})
	}
}

// TestStopBeforeAnyStepOfAResume is a signal that comes while the checkpoint
// loads: nothing is lost, nothing is written, and the run is not called done.
func TestStopBeforeAnyStepOfAResume(t *testing.T) {
	dir := makeStore(t, 64)
	s := setup(t, dir)
	out := filepath.Join(t.TempDir(), "run")
	if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Limit: 9}); !errors.Is(err, run.ErrStopped) {
		t.Fatal(err)
	}
	ch := make(chan struct{})
	fs := fsx.NewFault(fsx.OS{})
	stop := sync.OnceFunc(func() { close(ch) })
	fs.After(func(c fsx.Call) {
		if c.Op != fsx.OpRead {
			return
		}
		if _, err := os.Stat(filepath.Join(out, run.ExitFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("exit.json says how the start before ended while this one goes on (%v)", err)
		}
		stop()
	})
	res, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Resume: run.ResumeAuto, Stop: ch, FS: fs})
	if !errors.Is(err, run.ErrStopped) {
		t.Fatalf("a stop during the load ends with %v at step %d of %d", err, res.Step, res.Steps)
	}
	if res.Step != 9 {
		t.Errorf("step %d, want 9", res.Step)
	}
}

// stalled is a corpus whose document reads wait for a gate from some read on,
// as a dead network disk makes them.
type stalled struct {
	repack.Corpus
	mu    sync.Mutex
	left  int
	ready chan struct{} // closed when reads may go on
}

func (c *stalled) Copy(doc, from, to int, dst []int32) {
	c.mu.Lock()
	c.left--
	wait := c.left < 0
	c.mu.Unlock()
	if wait {
		<-c.ready
	}
	c.Corpus.Copy(doc, from, to, dst)
}

// withCorpus makes s read from c, which has the documents of s.Corpus.
func withCorpus(t *testing.T, s *run.Setup, c repack.Corpus) {
	t.Helper()
	stream, err := repack.NewStream(c, repack.Config{Mode: repack.Repack, Seed: *s.Config.Data.Seed, T: s.Options.T})
	if err != nil {
		t.Fatal(err)
	}
	s.Corpus, s.Stream, s.Feed = c, stream, stream
}

// TestStopWhileDataStalls stops a run that waits for data that does not come:
// the finished steps are saved while it still waits.
func TestStopWhileDataStalls(t *testing.T) {
	dir := makeStore(t, 64)
	straight := setup(t, dir)
	want, err := run.Train(t.Context(), run.Job{Setup: straight, Out: filepath.Join(t.TempDir(), "straight")})
	if err != nil {
		t.Fatal(err)
	}
	s := setup(t, dir)
	c := &stalled{Corpus: s.Corpus, left: 200, ready: make(chan struct{})}
	withCorpus(t, s, c)
	out := filepath.Join(t.TempDir(), "run")
	stop := make(chan struct{})
	w := &watcher{}
	saved := make(chan saves.Result, 100)
	w.onSave = func(r saves.Result) { saved <- r }
	go func() {
		// The gate opens only when the stop has been saved, so a save that waits
		// for data never comes and the test fails by its deadline.
		defer close(c.ready)
		var step int64
		for { // the data has run out when no step comes for a while
			w.mu.Lock()
			now := w.last
			w.mu.Unlock()
			if now > 0 && now == step {
				break
			}
			step = now
			<-time.After(300 * time.Millisecond)
		}
		close(stop)
		deadline := time.After(20 * time.Second)
		for {
			select {
			case r := <-saved:
				if r.Last {
					return
				}
			case <-deadline:
				t.Error("the stop was not saved while the data stalled")
				return
			}
		}
	}()
	res, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Stop: stop, Watch: w})
	if !errors.Is(err, run.ErrStopped) {
		t.Fatal(err)
	}
	if res.Step == 0 || res.Step >= want.Step {
		t.Fatalf("stopped at step %d", res.Step)
	}
	finish(t, straight, out, want)
}

// TestLedgerComesBeforeTheCheckpoint holds the log back: a checkpoint must not
// appear before the lines of its steps are in metrics.jsonl, or a kill between
// the two would lose them for ever.
func TestLedgerComesBeforeTheCheckpoint(t *testing.T) {
	dir := makeStore(t, 64)
	s := setup(t, dir, "save.every=5")
	out := filepath.Join(t.TempDir(), "run")
	fs := fsx.NewFault(fsx.OS{})
	published := 0
	fs.After(func(c fsx.Call) {
		if c.Op != fsx.OpRename || !strings.HasPrefix(filepath.Base(c.New), "step-") {
			return
		}
		published++
		var step int
		if _, err := fmt.Sscanf(filepath.Base(c.New), "step-%d", &step); err != nil {
			t.Error(err)
		}
		if n := len(ledger(t, out)); n < step {
			t.Errorf("the checkpoint of step %d appears when the ledger has %d steps", step, n)
		}
	})
	w := &watcher{onStep: func(i run.StepInfo) {
		if i.Step%5 == 4 { // the line of the step to be saved is late
			<-time.After(30 * time.Millisecond)
		}
	}}
	if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, FS: fs, Watch: w}); err != nil {
		t.Fatal(err)
	}
	if published < 3 {
		t.Errorf("%d checkpoints were published", published)
	}
}

// TestSavedBytesAreThoseOfTheStep lets training go on for many steps while a
// checkpoint is being written: its bytes are those of its own step, and saves
// that come due meanwhile are skipped and counted, not queued.
func TestSavedBytesAreThoseOfTheStep(t *testing.T) {
	dir := makeStore(t, 64)
	s := setup(t, dir, "save.keep=0")
	base := filepath.Join(t.TempDir(), "base")
	if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: base, Limit: 7}); !errors.Is(err, run.ErrStopped) {
		t.Fatal(err)
	}
	want := hashOf(t, filepath.Join(base, run.CkptDir, "step-000000007"))

	out := filepath.Join(t.TempDir(), "run")
	fs := fsx.NewFault(fsx.OS{})
	far := make(chan struct{})
	fs.After(func(c fsx.Call) {
		if c.Op == fsx.OpMkdir && filepath.Base(c.Name) == ".tmp-step-000000007" {
			<-far // a slow disk: the first byte waits for thirteen more steps
		}
	})
	w := &watcher{}
	reached := sync.OnceFunc(func() { close(far) })
	w.onStep = func(i run.StepInfo) {
		if i.Step == 22 {
			reached()
		}
	}
	res, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, FS: fs, Watch: w})
	if err != nil {
		t.Fatal(err)
	}
	if got := hashOf(t, filepath.Join(out, run.CkptDir, "step-000000007")); got != want {
		t.Error("the checkpoint of step 7 holds other bytes than those of step 7")
	}
	// Steps 14 and 21 came due during the save.
	if res.Skipped < 2 || !w.noted("step 14: the checkpoint is skipped") || !w.noted("step 21: the checkpoint is skipped") {
		t.Errorf("%d saves skipped, notes %q", res.Skipped, w.notes)
	}
}

// TestShakenSchedules disturbs every send and receive of the chain, with
// different processors, devices and threads: the chains are equal.
func TestShakenSchedules(t *testing.T) {
	dir := makeStore(t, 64)
	var want []byte
	seeds := 3
	if testing.Short() {
		seeds = 1
	}
	for i := range 3 * seeds {
		procs, devices, threads := 1+i%3, 1<<(i/3%3), 1+i%2
		withProcs(t, procs)
		s := setup(t, dir, fmt.Sprintf("train.devices=%d", devices), fmt.Sprintf("train.threads=%d", threads), "save.every=5", "eval.every=4")
		out := filepath.Join(t.TempDir(), "run")
		res, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Options: []pipeline.Option{pipeline.WithShake(uint64(i))}})
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Appendf(nil, "%v %.17g %x", res.Chain, res.Val.Loss, hashOf(t, res.Path))
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Errorf("GOMAXPROCS %d, %d devices of %d threads, seed %d: another chain, loss or weights", procs, devices, threads, i)
		}
	}
}

// withProcs sets GOMAXPROCS for the rest of the test.
func withProcs(t *testing.T, n int) {
	old := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(old) })
}

// TestLastEvaluationIsMadeUpFor is a run that was killed after its last save and
// before its last evaluation: the next start evaluates, with the same result.
func TestLastEvaluationIsMadeUpFor(t *testing.T) {
	s := setup(t, makeStore(t, 64), "train.epochs=1")
	out := filepath.Join(t.TempDir(), "run")
	want, err := run.Train(t.Context(), run.Job{Setup: s, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(out, run.MetricsFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	last := fmt.Sprintf(`{"type":"eval","step":%d,`, want.Step)
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, last) {
			kept = append(kept, line)
		}
	}
	if err := os.WriteFile(path, []byte(strings.Join(kept, "")), 0o644); err != nil || len(kept) == strings.Count(string(b), "\n") {
		t.Fatalf("%d lines, none of the last evaluation (%v)", len(kept), err)
	}
	for range 2 { // the second start finds the line of the first
		evaluated := 0
		w := &watcher{onEval: func(evals.Result) { evaluated++ }}
		got, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Resume: run.ResumeAuto, Watch: w})
		if err != nil {
			t.Fatal(err)
		}
		if got.Val == nil || got.Val.Loss != want.Val.Loss || got.Val.Tokens != want.Val.Tokens || got.Loss != want.Loss || got.Chain != want.Chain {
			t.Errorf("the finished run says %+v, its end said %+v", got.Val, want.Val)
		}
		b, err := os.ReadFile(path)
		if err != nil || strings.Count(string(b), last) != 1 {
			t.Errorf("%d lines of the last evaluation (%v)", strings.Count(string(b), last), err)
		}
	}
}

// TestStopDuringTheLastEvaluation: a stop that comes after the last step does not
// wait for the evaluation of the final model; the run is not called done without
// it, and the next start makes up for it.
func TestStopDuringTheLastEvaluation(t *testing.T) {
	s := setup(t, makeStore(t, 1600), "train.epochs=null", "train.steps=3", "eval.every=1000", "eval.batch=1")
	want, err := run.Train(t.Context(), run.Job{Setup: s, Out: filepath.Join(t.TempDir(), "straight")})
	if err != nil {
		t.Fatal(err)
	}
	var out string
	var stop chan struct{}
	var res *run.Result
	for range 20 { // the evaluation may be over before the stop arrives
		out, stop = filepath.Join(t.TempDir(), "run"), make(chan struct{})
		w := &watcher{onStep: func(i run.StepInfo) {
			if i.Step == want.Steps-1 { // the last step is on the device already
				close(stop)
			}
		}}
		if res, err = run.Train(t.Context(), run.Job{Setup: s, Out: out, Stop: stop, Watch: w}); err != nil {
			break
		}
	}
	if !errors.Is(err, run.ErrStopped) || res.Step != want.Steps || res.Val != nil {
		t.Fatalf("step %d of %d, evaluation %+v, %v", res.Step, want.Steps, res.Val, err)
	}
	// A stop ends the made-up evaluation as well.
	if res, err = run.Train(t.Context(), run.Job{Setup: s, Out: out, Resume: run.ResumeAuto, Stop: stop}); !errors.Is(err, run.ErrStopped) || res.Val != nil {
		t.Fatalf("evaluation %+v, %v", res.Val, err)
	}
	res, err = run.Train(t.Context(), run.Job{Setup: s, Out: out, Resume: run.ResumeAuto})
	if err != nil || res.Val == nil || res.Val.Loss != want.Val.Loss || res.Chain != want.Chain {
		t.Errorf("the run comes to %+v, %v; the one that never stopped to %+v", res.Val, err, want.Val)
	}
}
