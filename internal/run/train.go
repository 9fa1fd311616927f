package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"refrain/gpu"
	"refrain/internal/fsx"
	"refrain/pipeline"
	"refrain/stages/batch"
	"refrain/stages/evals"
	"refrain/stages/item"
	"refrain/stages/repack"
	"refrain/stages/saves"
	"refrain/stages/step"
	"refrain/stages/upload"
	"refrain/store"
	"refrain/train"
	"refrain/train/ckpt"
	"refrain/train/eval"
)

// ResumeMode says what Train does with a run folder that holds a run.
type ResumeMode string

// The modes.
const (
	ResumeNever ResumeMode = "never" // refuse it
	ResumeAuto  ResumeMode = "auto"  // continue it, or begin if there is nothing to continue
	ResumeMust  ResumeMode = "must"  // continue it, or fail
)

// Job is one training run.
type Job struct {
	Setup  *Setup
	Out    string // run folder
	Resume ResumeMode
	Args   []string // command line, for run.json
	FS     fsx.FS   // where checkpoints go; nil means the operating system

	// Devices, when not nil, are used and left open; their number is the
	// configuration's. Otherwise CPU devices are opened for the run.
	Devices []gpu.Device
	Profile bool            // keep kernel times, when devices are opened here
	Stop    <-chan struct{} // closed: finish the step, leave evaluations, save, end with ErrStopped
	Limit   int64           // stop after this many steps in total, as by Stop; 0 means none
	Watch   Watcher         // nil: nobody watches
	OnStart func(*Running)  // called once everything stands, before the first step

	// OnVerify is told how far Setup.Verify is, which a start waits for. It is not
	// the watcher's: the folder may still be somebody else's then, and its log.
	OnVerify func(key string, done, total int64)

	Options []pipeline.Option // further options of the pipeline, such as pipeline.WithShake in tests
}

// Running gives access to a run in progress.
type Running struct {
	Pipeline *pipeline.Pipeline
	Trainer  *train.Trainer
	Devices  []gpu.Device
}

// Result is how a run ended.
type Result struct {
	Step    int64
	Steps   int64
	Loss    float64 // of the last step
	Val     *evals.Result
	Chain   train.Chain
	Path    string // of the last checkpoint
	Stats   []pipeline.StageStats
	Wait    float64       // share of the time from the first to the last finished step in which the device had nothing to do
	Wall    time.Duration // since the first step
	Skipped int64         // saves that were skipped because one was in flight
	Failed  int64         // saves that were tried and failed
}

// Train runs j to its end. It returns ErrStopped when it was asked to stop
// earlier, and train.ErrNotFinite, wrapped, when a loss or norm was not
// finite. A run that is already finished is a no-op. Whatever happens, the
// folder says how it ended.
func Train(ctx context.Context, j Job) (*Result, error) {
	if j.FS == nil {
		j.FS = fsx.OS{}
	}
	if j.Watch == nil {
		j.Watch = silent{}
	}
	notes, err := j.Setup.checkMemory()
	if err != nil {
		return nil, err
	}
	if err := j.Setup.Verify(ctx, j.OnVerify); err != nil {
		return nil, err
	}
	f, err := OpenFolder(j.Out)
	if err != nil {
		return nil, err
	}
	if text := j.Setup.mixtureText(); text != "" {
		notes = append(notes, text)
	}
	for _, note := range notes {
		j.Watch.Note(note)
	}
	r := &runner{j: j, s: j.Setup, f: f}
	res, err := r.run(ctx)
	if r.begun {
		err = errors.Join(err, r.end(res, err))
	}
	return res, errors.Join(err, f.Close())
}

type runner struct {
	j     Job
	s     *Setup
	f     *Folder
	begun bool
	ck    *Checkpoints
	start *Resume // nil for a fresh run

	devs    []gpu.Device
	trainer *train.Trainer
	closers []func() error
	evals   *evals.Stage // nil without a validation set

	mu     sync.Mutex // guards res and watch calls, made by several sinks
	res    *Result
	clock  clock
	ledger ledger
}

func (r *runner) run(ctx context.Context) (res *Result, err error) {
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	o := &r.s.Options
	r.res = &Result{Steps: o.Steps}
	if r.start != nil {
		r.res.Step, r.res.Chain = r.start.Step, r.start.Chain
		if r.start.Step >= o.Steps {
			return r.res, r.finished(ctx)
		}
	}
	defer func() {
		for _, c := range slices.Backward(r.closers) {
			err = errors.Join(err, c())
		}
	}()
	if err := r.openDevices(); err != nil {
		return r.res, err
	}
	if err := r.openTrainer(ctx); err != nil {
		return r.res, err
	}
	return r.res, r.pipe(ctx)
}

// begin decides between a fresh start and a resume, and writes the folder's
// first files.
func (r *runner) begin(ctx context.Context) error {
	f, j := r.f, &r.j
	if f.New && j.Resume == ResumeMust {
		return &Error{ExitNoCkpt, fmt.Errorf("--resume must: %s holds no run", j.Out)}
	}
	if !f.New && (j.Resume == ResumeNever || j.Resume == "") {
		return usage(fmt.Errorf("%s holds a run already; add --resume auto to continue it, or choose another --out", j.Out))
	}
	if f.New {
		if err := f.Begin(r.s, j.Args); err != nil {
			return &Error{ExitDisk, fmt.Errorf("run folder %s: %w", j.Out, err)}
		}
	} else if err := f.fits(r.s); err != nil {
		return err // and what exit.json says of the run stays
	}
	if err := f.forget(ExitFile); err != nil {
		return &Error{ExitDisk, fmt.Errorf("run folder %s: %w", j.Out, err)}
	}
	r.begun = true
	r.ck = r.s.checkpoints(j.FS, f.Path(CkptDir), f.Info.ID)
	// At every start, since a kill may have come before the first could.
	if err := f.writeMembers(r.s); err != nil {
		return &Error{ExitDisk, fmt.Errorf("run folder %s: %w", j.Out, err)}
	}
	if f.New {
		return nil
	}
	if err := f.writeConfig(r.s, false); err != nil {
		return &Error{ExitDisk, fmt.Errorf("run folder %s: %w", j.Out, err)}
	}
	start, err := r.ck.Latest(ctx)
	switch {
	case errors.Is(err, ckpt.ErrNone) && j.Resume == ResumeAuto:
		j.Watch.Note("no checkpoint yet; starting from the beginning")
		return nil
	case isPathError(err):
		return &Error{ExitDisk, err}
	case err != nil:
		return err
	}
	r.start = start
	if len(start.Report.Skipped) > 0 {
		j.Watch.Note(start.Report.String())
	}
	j.Watch.Note(fmt.Sprintf("resuming at step %d, window %d, epoch %.3f", start.Step, start.Window, r.s.Feed.Epochs(start.Window)))
	if start.OwnBits {
		j.Watch.Note("the steps so far were computed by plain Go kernels of an earlier version, which rounded otherwise than all kernels do now: what follows agrees with a run of that version to within rounding, not to the bit")
	}
	if now := r.s.bits() == gpuBits; start.GPU != now {
		from, to := "the CPU", "GPUs"
		if start.GPU {
			from, to = to, from
		}
		j.Watch.Note(fmt.Sprintf("the steps so far were computed by %s, those to come are by %s: what follows agrees with a run that never moved to within rounding, not to the bit", from, to))
	}
	return nil
}

// isPathError reports whether the disk refused something, unless that has a
// class of its own.
func isPathError(err error) bool {
	var coded interface{ ExitCode() int }
	var path *fs.PathError
	return errors.As(err, &path) && !errors.As(err, &coded) && !errors.Is(err, ckpt.ErrNoGood) && !errors.Is(err, ckpt.ErrOtherRun)
}

// end writes exit.json.
func (r *runner) end(res *Result, err error) error {
	e := Exit{Status: "done", Code: ExitCode(err), At: time.Now().UTC()}
	if res != nil {
		e.Step = res.Step
	}
	switch {
	case errors.Is(err, ErrStopped):
		e.Status = "stopped"
	case errors.Is(err, context.Canceled):
		e.Status = "interrupted"
	case err != nil:
		e.Status = "failed"
	}
	if err != nil {
		e.Reason = err.Error()
		e.Next = "the same command with --resume auto"
		if errors.Is(err, train.ErrNotFinite) {
			e.Next = "a new run with a lower optim.lr or a longer warm-up; the same settings come to the same step again"
		}
	}
	return r.f.WriteJSON(ExitFile, e)
}

func (r *runner) openDevices() error {
	if r.j.Devices != nil {
		r.devs = r.j.Devices
		return nil
	}
	c := &r.s.Config.Train
	open := func() (Devices, error) { return OpenDevices(c.Devices, c.Threads*c.Devices, r.j.Profile) }
	if c.Device == "cuda" {
		open = func() (Devices, error) { return openGPUs(c.Devices) }
	}
	devs, err := open()
	if err != nil {
		return err
	}
	r.devs = devs
	r.closers = append(r.closers, devs.Close)
	return nil
}

func (r *runner) openTrainer(ctx context.Context) error {
	// The first weights and those of a checkpoint pass through the Go heap: up to 24
	// bytes a parameter, which would stay there, since steps allocate next to nothing.
	defer debug.FreeOSMemory()
	t, err := train.New(ctx, r.s.Options, r.devs)
	if err != nil {
		return &Error{ExitDevice, err}
	}
	r.trainer = t
	r.closers = append(r.closers, t.Close)
	if r.start == nil {
		return r.fromBase(ctx)
	}
	s := r.start
	if err := t.Restore(ctx, s.Step, s.Weights, s.M, s.V); err != nil {
		return err
	}
	s.Weights, s.M, s.V = nil, nil, nil
	return nil
}

// fromBase gives the trainer the weights that a fresh run starts from, if it does not
// start from new ones.
func (r *runner) fromBase(ctx context.Context) error {
	b := r.s.Base
	if b == nil {
		return nil
	}
	w, err := b.Weights(ctx)
	if err != nil {
		return err
	}
	r.j.Watch.Note(fmt.Sprintf("starting from the weights in %s (hash %.12s)", b.Dir, b.Hash))
	return r.trainer.Restore(ctx, 0, w, nil, nil)
}

// pipe builds the chain and runs it.
func (r *runner) pipe(ctx context.Context) error {
	o := &r.s.Options
	first := r.trainer.Steps()
	p := pipeline.New(append([]pipeline.Option{pipeline.WithLabels("device", r.devs[0].Info().Name)}, r.j.Options...)...)
	b, err := batch.New(r.devs[0], batch.Config{N: o.Batch, T: o.T, Ring: ringSize, Vocab: o.Model.Vocab})
	if err != nil {
		return &Error{ExitDevice, err}
	}
	r.closers = append(r.closers, b.Close)
	up, err := upload.New(ctx, upload.Config{Devices: r.devs, N: o.Batch, T: o.T, Slots: o.Slots, Slot: r.trainer.Slot})
	if err != nil {
		return &Error{ExitDevice, err}
	}
	r.closers = append(r.closers, up.Close)
	rows := pipeline.Source(p, "repack", pipeline.LinkConfig{Items: 4}, repack.Source(r.s.Feed, o.Batch, first, o.Steps))
	batches := pipeline.Then(p, "batch", rows, pipeline.LinkConfig{Items: 2, Release: pipeline.ReleaseOf((*item.Batch).Drop)}, b)
	// The device keeps one batch computing and one waiting; the third slot fills.
	ready := pipeline.Then(p, "upload", batches, pipeline.LinkConfig{Items: 1, Release: pipeline.ReleaseOf((*item.DeviceBatch).Drop)}, up)

	cfg := step.Config{Steps: o.Steps, Window: first * int64(o.Batch), Stop: r.stop(ctx), EvalDue: r.evalDue(), SaveDue: r.saveDue(), SaveMust: r.s.endsCycle}
	if r.j.Limit > 0 {
		cfg.Steps = min(o.Steps, r.j.Limit)
		cfg.Stopping = cfg.Steps < o.Steps
	}
	if r.start != nil {
		cfg.Chain = r.start.Chain
	}
	cfg.Skipped = func(step int64) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.res.Skipped++
		r.j.Watch.Note(fmt.Sprintf("step %d: the checkpoint is skipped, the one before is still being written", step))
	}
	st := step.New(r.trainer, cfg)
	results := pipeline.Then(p, "step", ready, pipeline.LinkConfig{Items: 16}, st)
	if err := r.addEvals(ctx, p, results, st); err != nil {
		return err
	}
	if err := r.addSaves(p, results, st); err != nil {
		return err
	}
	pipeline.Sink(p, "log", results, pipeline.StageFunc[step.Result, struct{}](r.logSteps))

	r.clock.begin(r.trainer, first)
	r.ledger.reach(first)
	if r.j.OnStart != nil {
		r.j.OnStart(&Running{p, r.trainer, r.devs})
	}
	err = p.Run(ctx)
	r.res.Stats = p.Stats()
	r.res.Wall, r.res.Wait = time.Since(r.clock.start), r.clock.wait()
	if err != nil {
		return r.classify(err)
	}
	// Without its last evaluation a run is not done: the next start makes up for it.
	if st.Stopped() || r.evals != nil && r.evals.LeftOut() == o.Steps {
		return ErrStopped
	}
	return nil
}

// classify gives an error of the chain its exit code.
func (r *runner) classify(err error) error {
	if errors.Is(err, train.ErrNotFinite) || errors.Is(err, gpu.ErrDevice) || errors.Is(err, context.Canceled) {
		return err
	}
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return err
	}
	var gone *store.GoneError
	if errors.As(err, &gone) {
		return &Error{ExitData, err}
	}
	return &Error{ExitFailed, err}
}

func (r *runner) stop(ctx context.Context) <-chan struct{} {
	if r.j.Stop != nil {
		return r.j.Stop
	}
	return make(chan struct{}) // never
}

// evalDue says after which steps the model is evaluated: every so many, by
// default twenty times in a run, and at the ends of cycles. The last step is not asked.
func (r *runner) evalDue() func(int64) bool {
	every := r.s.Config.Eval.Every
	if every == 0 {
		every = max(1, r.s.Options.Steps/20)
	}
	return func(k int64) bool { return k%every == 0 || r.s.endsCycle(k) }
}

// saveDue says after which steps a checkpoint is written: every so many steps,
// and when so much time has passed since the last.
func (r *runner) saveDue() func(int64) bool {
	c := r.s.Config.Save
	last := time.Now()
	return func(k int64) bool {
		due := c.Every > 0 && k%c.Every == 0 ||
			c.Minutes > 0 && time.Since(last).Minutes() >= c.Minutes
		if due {
			last = time.Now()
		}
		return due
	}
}

// addEvals hangs the evaluation on the side of step. It has its own weights
// and activations on the first device; kernels of the two take turns there.
func (r *runner) addEvals(ctx context.Context, p *pipeline.Pipeline, results *pipeline.Link[step.Result], st *step.Stage) error {
	if r.s.Set == nil {
		return nil
	}
	o := &r.s.Options
	ev, err := eval.New(ctx, r.devs[0], r.s.evalConfig(o, r.s.Config.Eval.Batch))
	if err != nil {
		return &Error{ExitDevice, err}
	}
	r.closers = append(r.closers, ev.Close)
	pool, err := r.trainer.NewSnapshotPool(evalSnaps, false)
	if err != nil {
		return &Error{ExitDevice, err}
	}
	r.closers = append(r.closers, pool.Close)
	in, out := pipeline.Output[*train.Snapshot](p, results, pipeline.LinkConfig{
		Items: 1, DropOldest: true, Release: pipeline.ReleaseOf((*train.Snapshot).Release),
	})
	st.EvalTo(pool, out)
	r.evals = evals.New(evals.Config{
		Evaluator: ev, Set: r.s.Set, Docs: r.s.Set.Docs, NumDocs: r.s.Set.NumDocs(), Stop: r.j.Stop,
	})
	done := pipeline.Then(p, "evals", in, pipeline.LinkConfig{Items: 4}, r.evals)
	pipeline.Sink(p, "evals-log", done, pipeline.StageFunc[evals.Result, struct{}](r.logEvals))
	return nil
}

// addSaves hangs the checkpoints on the side of step: one in flight at most.
func (r *runner) addSaves(p *pipeline.Pipeline, results *pipeline.Link[step.Result], st *step.Stage) error {
	pool, err := r.trainer.NewSnapshotPool(1, true)
	if err != nil {
		return &Error{ExitDevice, err}
	}
	r.closers = append(r.closers, pool.Close)
	in, out := pipeline.Output[*train.Save](p, results, pipeline.LinkConfig{Items: 1, Release: pipeline.ReleaseOf((*train.Save).Drop)})
	st.SaveTo(pool, out)
	done := pipeline.Then(p, "saves", in, pipeline.LinkConfig{Items: 4}, saves.New(r.save))
	pipeline.Sink(p, "saves-log", done, pipeline.StageFunc[saves.Result, struct{}](r.logSaves))
	return nil
}

// save writes a checkpoint once every step in it is in metrics.jsonl, and there
// for good: a resume from it begins with the step after, so a line that got
// lost then would be missing for ever.
func (r *runner) save(ctx context.Context, v *train.Save) (string, error) {
	for _, st := range []*store.Store{r.s.Train, r.s.Synth} {
		if st == nil {
			continue
		}
		if err := st.Intact(); err != nil {
			return "", err // the steps may have read zeros for tokens
		}
	}
	if err := r.ledger.wait(ctx, v.Snapshot.Step); err != nil {
		return "", err
	}
	if err := r.f.Sync(); err != nil {
		// The model is worth more than its log, so it is saved all the same.
		r.note(fmt.Sprintf("step %d: metrics.jsonl may lose lines if the power fails: %v", v.Snapshot.Step, err))
	}
	return r.ck.Write(ctx, v)
}

// note tells the watcher something from inside the chain.
func (r *runner) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.j.Watch.Note(text)
}

// DefaultOut is the run folder for a configuration file: runs/NAME beside the
// working directory.
func DefaultOut(configPath string) string {
	base := filepath.Base(configPath)
	return filepath.Join("runs", base[:len(base)-len(filepath.Ext(base))])
}
