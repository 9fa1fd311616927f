package step

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/model"
	"refrain/pipeline"
	"refrain/pipeline/pipelinetest"
	"refrain/stages/item"
	"refrain/train"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func options(devices int) train.Options {
	o := train.Options{
		Model: model.Config{Vocab: 32, Layers: 1, Dim: 16, Heads: 2, KVHeads: 1, FFN: 24, MaxT: 8, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers},
		Steps: 1 << 20, Batch: 4, T: 8, Shards: 4, Devices: devices, Micro: 1, Slots: 3, DocMask: true,
		Optim: train.Optim{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1, Warmup: 2},
	}
	for r := range o.Optim.LRMul {
		o.Optim.LRMul[r] = 1
	}
	return o
}

// realTrainer opens a tiny trainer, which makes real snapshots.
func realTrainer(t testing.TB) *train.Trainer {
	t.Helper()
	d, err := host.New(host.Config{Threads: 1}).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := train.New(t.Context(), options(1), []gpu.Device{d})
	if err != nil {
		t.Fatal(errors.Join(err, d.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(tr.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	})
	return tr
}

func pool(t testing.TB, tr *train.Trainer, n int) *train.SnapshotPool {
	t.Helper()
	p, err := tr.NewSnapshotPool(n, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil { // says so when one was not released
			t.Error(err)
		}
	})
	return p
}

// fake steps by counting. Results come one step later, as from a Trainer.
type fake struct {
	real    *train.Trainer
	steps   int64
	waiting *train.StepResult
	failAt  int64
	before  func(k int64) // called at the start of step k
}

var errStep = errors.New("step failed")

func resultOf(k int64) train.StepResult {
	return train.StepResult{Step: k, Cursor: item.Cursor{Window: (k - 1) * 4}, Rows: 4, Loss: 1 / float64(k), Norm: float64(k), CRC: uint32(k)}
}

func (f *fake) Step(_ context.Context, b *item.DeviceBatch) (res train.StepResult, ok bool, err error) {
	f.steps++
	if f.before != nil {
		f.before(f.steps)
	}
	if f.steps == f.failAt {
		return res, false, errStep
	}
	if b.Batch != f.steps-1 {
		return res, false, fmt.Errorf("batch %d at step %d", b.Batch, f.steps)
	}
	b.Release()
	last := f.waiting
	now := resultOf(f.steps)
	f.waiting = &now
	if last == nil {
		return res, false, nil
	}
	return *last, true, nil
}

func (f *fake) Flush(context.Context) (res train.StepResult, ok bool, err error) {
	if f.waiting == nil {
		return res, false, nil
	}
	res, f.waiting = *f.waiting, nil
	return res, true, nil
}

func (f *fake) Steps() int64 { return f.steps }

func (f *fake) named(s *train.Snapshot, err error) (*train.Snapshot, error) {
	if s != nil {
		s.Step = f.steps
	}
	return s, err
}

func (f *fake) Snapshot(ctx context.Context, p *train.SnapshotPool) (*train.Snapshot, error) {
	return f.named(f.real.Snapshot(ctx, p))
}

func (f *fake) TrySnapshot(p *train.SnapshotPool) (*train.Snapshot, error) {
	return f.named(f.real.TrySnapshot(p))
}

// batches makes n batches for steps first+1 on; home counts those released.
func batches(first, n int, home *atomic.Int64) (all []*item.DeviceBatch) {
	for k := range n {
		all = append(all, &item.DeviceBatch{Batch: int64(first + k), N: 4, T: 8, Release: func() { home.Add(1) }})
	}
	return all
}

// want is the whole output of steps first+1 to last, with the chain over all.
func want(first, last int64) (all []Result) {
	var c train.Chain
	for k := int64(1); k <= last; k++ {
		r := resultOf(k)
		c = c.Next(&r)
		if k > first {
			all = append(all, Result{r, c})
		}
	}
	return all
}

func every(n int64) func(int64) bool { return func(k int64) bool { return k%n == 0 } }

func TestConforms(t *testing.T) {
	const n = 12
	real := realTrainer(t)
	var home, made atomic.Int64
	evalPool, savePool := pool(t, real, 3), pool(t, real, 1)
	pipelinetest.Run(t, pipelinetest.Case[*item.DeviceBatch, Result]{
		New: func() pipeline.Stage[*item.DeviceBatch, Result] {
			s := New(&fake{real: real}, Config{Steps: n, EvalDue: every(3), SaveDue: every(4)})
			s.EvalTo(evalPool, &pipelinetest.Recorder[*train.Snapshot]{Release: (*train.Snapshot).Release})
			s.SaveTo(savePool, &pipelinetest.Recorder[*train.Save]{Release: (*train.Save).Drop})
			return s
		},
		Inputs: func() []*item.DeviceBatch {
			home.Store(0)
			made.Store(n)
			return batches(0, n, &home)
		},
		ReleaseInput: (*item.DeviceBatch).Drop,
		Want: func(got []Result) error {
			if !slices.Equal(got, want(0, n)) {
				return fmt.Errorf("results %v", got)
			}
			return nil
		},
		Done: func(error) error {
			if home.Load() != made.Load() {
				return fmt.Errorf("%d of %d batches were released", home.Load(), made.Load())
			}
			return nil
		},
	})
}

// ran is what a run of the stage left behind.
type ran struct {
	results []Result
	evals   []int64
	saves   []train.Save
	skipped []int64
	err     error
	s       *Stage
}

// run steps over inputs 0..n-1 of the trainer f, whose evals and saves go to
// recorders. hold, when not nil, gets the saves instead, before the recorder.
func run(t *testing.T, f *fake, c Config, n int, hold func(*train.Save)) *ran {
	t.Helper()
	r := &ran{}
	c.Skipped = func(k int64) { r.skipped = append(r.skipped, k) }
	r.s = New(f, c)
	evals := pipelinetest.Recorder[*train.Snapshot]{Release: func(s *train.Snapshot) {
		r.evals = append(r.evals, s.Step)
		s.Release()
	}}
	saves := pipelinetest.Recorder[*train.Save]{Release: func(s *train.Save) {
		r.saves = append(r.saves, train.Save{Snapshot: &train.Snapshot{Step: s.Snapshot.Step}, Window: s.Window, Chain: s.Chain, Last: s.Last})
		if hold != nil {
			hold(s)
			return
		}
		s.Drop()
	}}
	r.s.EvalTo(pool(t, f.real, 1), &evals)
	r.s.SaveTo(pool(t, f.real, 1), &saves)
	first, home := int(f.steps), new(atomic.Int64)
	p := pipeline.New()
	in := pipeline.Source(p, "source", pipeline.LinkConfig{Items: 1}, pipeline.StageFunc[struct{}, *item.DeviceBatch](
		func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[*item.DeviceBatch]) error {
			for _, b := range batches(first, n, home) {
				if err := out.Send(ctx, b); err != nil {
					return err
				}
			}
			if c.Stop != nil { // a stop ends the wait for data
				<-ctx.Done()
			}
			return nil
		}))
	out := pipeline.Then(p, "step", in, pipeline.LinkConfig{Items: 1}, r.s)
	pipeline.Sink(p, "sink", out, pipeline.StageFunc[Result, struct{}](
		func(ctx context.Context, in pipeline.In[Result], _ pipeline.Out[struct{}]) error {
			for v, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				r.results = append(r.results, v)
			}
			return nil
		}))
	r.err = p.Run(t.Context())
	return r
}

func (r *ran) check(t *testing.T, first, last int64, evals []int64, saves ...train.Save) {
	t.Helper()
	if r.err != nil {
		t.Error(r.err)
	}
	if w := want(first, last); !slices.Equal(r.results, w) {
		t.Errorf("results:\n%v\nwant\n%v", r.results, w)
	}
	if !slices.Equal(r.evals, evals) {
		t.Errorf("evaluated steps %v, want %v", r.evals, evals)
	}
	if !slices.EqualFunc(r.saves, saves, func(a, b train.Save) bool {
		return a.Snapshot.Step == b.Snapshot.Step && a.Window == b.Window && a.Chain == b.Chain && a.Last == b.Last
	}) {
		t.Errorf("saves %+v, want %+v", r.saves, saves)
	}
}

// save is the save of step k: its chain and window are those after step k, not
// those of the step that was running when it was taken.
func save(k int64, last bool) train.Save {
	w := want(0, k)
	return train.Save{Snapshot: &train.Snapshot{Step: k}, Window: k * 4, Chain: w[len(w)-1].Chain, Last: last}
}

func TestSnapshotsAreOfTheirStep(t *testing.T) {
	f := &fake{real: realTrainer(t)}
	r := run(t, f, Config{Steps: 10, EvalDue: every(4), SaveDue: every(3)}, 10, nil)
	r.check(t, 0, 10, []int64{4, 8, 10}, save(3, false), save(6, false), save(9, false), save(10, true))
	if r.s.Stopped() {
		t.Error("a finished run says that it was stopped")
	}
}

func TestSaveDueAtTheLastStepIsSavedOnce(t *testing.T) {
	f := &fake{real: realTrainer(t)}
	run(t, f, Config{Steps: 6, EvalDue: every(3), SaveDue: every(3)}, 6, nil).
		check(t, 0, 6, []int64{3, 6}, save(3, false), save(6, true))
}

func TestSaveInFlightSkipsTheNext(t *testing.T) {
	f := &fake{real: realTrainer(t)}
	var held *train.Save
	f.before = func(k int64) {
		if k == 8 && held != nil { // the writing of step 2 ends during step 8
			held.Drop()
			held = nil
		}
	}
	first := true
	r := run(t, f, Config{Steps: 10, SaveDue: every(2)}, 10, func(s *train.Save) {
		if first {
			first, held = false, s
			return
		}
		s.Drop()
	})
	r.check(t, 0, 10, []int64{10}, save(2, false), save(8, false), save(10, true))
	if !slices.Equal(r.skipped, []int64{4, 6}) {
		t.Errorf("skipped %v, want [4 6]", r.skipped)
	}
}

// TestSaveThatMustBe: a save of SaveMust waits for the one in flight where one of SaveDue
// is skipped, and is taken once where both ask for it.
func TestSaveThatMustBe(t *testing.T) {
	f := &fake{real: realTrainer(t)}
	first := true
	r := run(t, f, Config{Steps: 8, SaveDue: every(2), SaveMust: func(k int64) bool { return k == 3 || k == 6 }}, 8, func(s *train.Save) {
		if first { // step 2 is being written while step 3 is taken
			first = false
			time.AfterFunc(20*time.Millisecond, s.Drop)
			return
		}
		s.Drop()
	})
	var got []int64
	for _, s := range r.saves {
		got = append(got, s.Snapshot.Step)
	}
	if r.err != nil || !slices.Contains(got, 3) || !slices.Contains(got, 6) || got[len(got)-1] != 8 || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("saved %v (%v), want 3, 6 and 8 among them, each once", got, r.err)
	}
	for _, s := range r.saves {
		if w := save(s.Snapshot.Step, s.Last); s.Chain != w.Chain || s.Window != w.Window {
			t.Errorf("the save of step %d has the chain of another", s.Snapshot.Step)
		}
	}
	if slices.Contains(r.skipped, 3) || slices.Contains(r.skipped, 6) {
		t.Errorf("skipped %v", r.skipped)
	}
}

func TestResumedRunContinuesItsChain(t *testing.T) {
	f := &fake{real: realTrainer(t), steps: 5}
	start := save(5, false)
	run(t, f, Config{Steps: 8, Chain: start.Chain, Window: start.Window}, 3, nil).check(t, 5, 8, []int64{8}, save(8, true))
}

func TestStop(t *testing.T) {
	closed := func() chan struct{} { c := make(chan struct{}); close(c); return c }
	t.Run("between steps", func(t *testing.T) {
		f := &fake{real: realTrainer(t)}
		stop := make(chan struct{})
		f.before = func(k int64) {
			if k == 4 {
				close(stop)
			}
		}
		r := run(t, f, Config{Steps: 10, Stop: stop, SaveDue: every(100)}, 10, nil)
		r.check(t, 0, 4, nil, save(4, true))
		if !r.s.Stopped() {
			t.Error("the stage does not say that it was stopped")
		}
	})
	t.Run("right after a regular save", func(t *testing.T) {
		f := &fake{real: realTrainer(t)}
		stop := make(chan struct{})
		f.before = func(k int64) {
			if k == 4 {
				close(stop)
			}
		}
		run(t, f, Config{Steps: 10, Stop: stop, SaveDue: every(4)}, 10, nil).check(t, 0, 4, nil, save(4, false), save(4, true))
	})
	t.Run("while it waits for data", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{real: realTrainer(t)}
			stop := make(chan struct{})
			go func() {
				synctest.Wait() // all that came is done, and no more will come
				close(stop)
			}()
			r := run(t, f, Config{Steps: 10, Stop: stop}, 3, nil)
			r.check(t, 0, 3, nil, save(3, true))
			if !r.s.Stopped() {
				t.Error("the stage does not say that it was stopped")
			}
		})
	})
	t.Run("before the first step of a resumed run", func(t *testing.T) {
		f := &fake{real: realTrainer(t), steps: 5}
		r := run(t, f, Config{Steps: 10, Stop: closed(), Chain: save(5, false).Chain, Window: 20}, 3, nil)
		r.check(t, 5, 5, nil) // the checkpoint it came from says it all
		if !r.s.Stopped() {
			t.Error("the stage does not say that it was stopped")
		}
	})
	t.Run("at a limit", func(t *testing.T) {
		f := &fake{real: realTrainer(t)}
		r := run(t, f, Config{Steps: 3, Stopping: true}, 10, nil)
		r.check(t, 0, 3, nil, save(3, true))
		if !r.s.Stopped() {
			t.Error("the stage does not say that it was stopped")
		}
	})
}

func TestInputEndsEarly(t *testing.T) {
	f := &fake{real: realTrainer(t)}
	r := run(t, f, Config{Steps: 10}, 4, nil)
	r.check(t, 0, 4, nil, save(4, true))
	if !r.s.Stopped() {
		t.Error("a run without data to its end says that it is done")
	}
}

func TestFailedStep(t *testing.T) {
	f := &fake{real: realTrainer(t), failAt: 5}
	r := run(t, f, Config{Steps: 10, SaveDue: every(4)}, 10, nil)
	if !errors.Is(r.err, errStep) || !strings.Contains(r.err.Error(), "stage step: step 5") {
		t.Errorf("error %v", r.err)
	}
	if len(r.saves) > 0 {
		t.Errorf("saved %+v; the chain of step 4 was never known", r.saves)
	}
}
