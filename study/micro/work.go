package micro

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/pipeline"
	"refrain/study"
	"refrain/study/report"
)

// Names in the folder of a study.
const (
	markerFile   = "study.json"
	registryDir  = "registry"
	corporaDir   = "corpora"
	ensemblesDir = "ensembles"
	// ResultsDir has the small files that are worth keeping: records, findings and report.
	ResultsDir = "results"
)

// evalRows is how many rows are evaluated at a time.
const evalRows = 32

// Options of a study.
type Options struct {
	Out      string // folder; an earlier start's goes on
	Form     *Form
	SoFar    bool     // train and generate nothing more: measure what is there, and answer from that
	Corpora  []string // folders of text, or GoCorpus; the first gets the whole program. nil: GoCorpus
	Parallel int      // most runs at a time; 0: what the machine takes
	Stop     <-chan struct{}
	Args     []string // command line, for run.json and the report
	Say      func(format string, args ...any)
	Tick     func(format string, args ...any) // replaces the progress line
}

// Outcome is what a study leaves.
type Outcome struct {
	Results *Results
	Answers []*Answer
	Files   []string // in ResultsDir
	Failed  []*Model // runs that failed for another reason than their recipe
}

// work is a study that goes on.
type work struct {
	o     Options
	form  *Form
	start time.Time
	reg   *study.Registry
	run   *study.Work
	specs map[string]*study.Spec // by corpus
	cells map[seeded]*study.Cell
	r     *Results

	mu          sync.Mutex
	steps, done map[*study.Cell]int64 // of cells of this start: all, made
	last        time.Time
}

type seeded struct {
	Point
	seed uint64
}

// Run makes the study, or goes on with it, and blocks until it is done. The error is
// run.ErrStopped after a stop; the same call goes on.
func Run(ctx context.Context, o Options) (out *Outcome, err error) {
	if o.Corpora == nil {
		o.Corpora = []string{GoCorpus}
	}
	w := &work{o: o, form: o.Form, start: time.Now(), specs: map[string]*study.Spec{}, cells: map[seeded]*study.Cell{}, steps: map[*study.Cell]int64{}, done: map[*study.Cell]int64{}}
	w.o.Say = func(format string, args ...any) {
		o.Say("[%5.0fs] "+format, append([]any{time.Since(w.start).Seconds()}, args...)...)
	}
	if err := w.claim(); err != nil {
		return nil, err
	}
	if w.reg, err = study.OpenRegistry(w.path(registryDir), nil); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.reg.Close()) }()
	w.r = newResults(o)
	for _, arg := range o.Corpora {
		c, err := w.prepare(ctx, arg)
		if err != nil {
			return nil, err
		}
		if w.r.corpus(c.Name) != nil {
			return nil, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("two corpora are called %s; rename one of the folders", c.Name)}
		}
		w.r.Corpora = append(w.r.Corpora, *c)
		if err := w.spec(c); err != nil {
			return nil, err
		}
	}
	if err := w.all(ctx); err != nil {
		return nil, err
	}
	out = &Outcome{Results: w.r}
	for _, m := range w.r.Models {
		if m.Status == study.Failed {
			out.Failed = append(out.Failed, m)
		}
	}
	out.Answers, out.Files, err = w.form.Write(w.r, w.path(ResultsDir))
	return out, err
}

func newResults(o Options) *Results {
	return &Results{
		Kind: Kind, Version: resultsVersion, Form: o.Form.Name, Command: o.Args,
		Code: run.CodeVersion(), Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH, CPU: run.CPUName(), Cores: runtime.GOMAXPROCS(0),
	}
}

func (w *work) path(names ...string) string {
	return filepath.Join(append([]string{w.o.Out}, names...)...)
}

// claim makes the folder of the study, or finds that it is one.
func (w *work) claim() error {
	entries, err := os.ReadDir(w.o.Out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return &run.Error{Code: run.ExitDisk, Err: err}
	}
	marker := w.path(markerFile)
	if there, err := fsx.Exists(fsx.OS{}, marker); there || err != nil {
		return err
	}
	if len(entries) > 0 {
		return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%s is not empty and not the folder of an earlier study micro; choose another -o", w.o.Out)}
	}
	for _, d := range []string{w.o.Out, w.path(ensemblesDir), w.path(corporaDir), w.path(ResultsDir)} {
		if err := fsx.MkdirAll(fsx.OS{}, d, fsx.DirPerm); err != nil {
			return &run.Error{Code: run.ExitDisk, Err: err}
		}
	}
	b, err := json.Marshal(map[string]any{"made_by": "refrain study micro", "started": time.Now().UTC()})
	if err != nil {
		return err
	}
	if err := fsx.WriteFileAtomic(fsx.OS{}, marker, append(b, '\n')); err != nil {
		return &run.Error{Code: run.ExitDisk, Err: err}
	}
	return nil
}

// spec is the base that all cells of a corpus start from.
func (w *work) spec(c *Corpus) error {
	t := &w.form.text
	text := fmt.Sprintf(`base:
  model: {init: normal-0.02}
  data:
    store: %q
    val: %q
    seq: %d
    subset: {tokens: %d}
  eval: {every: 1000000000, batch: %d}
  save: {keep: 1, minutes: 2}
  log: {every: 64}
seeds: [0]
out: %q
`, w.store(c.Name, trainStore), w.store(c.Name, valStore), t.seq, t.unique, evalRows, w.path(registryDir))
	spec, err := study.ParseSpec("study micro", []byte(text))
	if err != nil {
		return err
	}
	w.specs[c.Name] = spec
	return nil
}

// cell is the one of a point with a seed, joined with its data.
func (w *work) cell(p Point, seed uint64) (*study.Cell, error) {
	key := seeded{p, seed}
	if c := w.cells[key]; c != nil {
		return c, nil
	}
	settings, err := p.settings(w.form.text.sizes, w.form.text.pools, w.store(p.Corpus, p.Text))
	if err != nil {
		return nil, err
	}
	spec := *w.specs[p.Corpus]
	spec.Seeds = []uint64{seed}
	cells, err := spec.At(settings)
	if err != nil {
		return nil, err
	}
	if w.run == nil {
		rate, _, err := study.Rate(w.reg.Records(), cells[0])
		if err != nil {
			return nil, err
		}
		w.run = &study.Work{
			Spec: &spec, Records: w.reg.Records, Ledger: study.NewLedger(study.Budget{}), Rate: rate, Each: w.ended,
			Runner: &study.Local{Registry: w.reg, Policy: spec.Code, Parallel: w.o.Parallel, Stop: w.o.Stop, Args: w.o.Args, Watch: w},
		}
	}
	if err := study.Open(cells, w.run.Rate); err != nil {
		return nil, err
	}
	w.cells[key] = cells[0]
	return cells[0], nil
}

// all brings the program to its end: what it asks for next follows from what is there.
func (w *work) all(ctx context.Context) error {
	for {
		d := w.form.demand(w.r)
		more, err := w.train(ctx, d)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		if more, err = w.test(ctx, d); err != nil || more {
			if err != nil {
				return err
			}
			continue
		}
		if more, err = w.ensembles(ctx, d); err != nil || more {
			if err != nil {
				return err
			}
			continue
		}
		if more, err = w.texts(ctx, d); err != nil || more {
			if err != nil {
				return err
			}
			continue
		}
		return nil
	}
}

// train brings the models that are not in the results to their ends, and says whether
// there were any.
func (w *work) train(ctx context.Context, d *demand) (bool, error) {
	var cells []*study.Cell
	var keys []seeded
	cost, steps := 0.0, int64(0)
	for _, m := range d.models {
		if w.r.model(m.Point, m.Seed) != nil {
			continue
		}
		c, err := w.cell(m.Point, m.Seed)
		if err != nil {
			return false, err
		}
		cells, keys = append(cells, c), append(keys, seeded{m.Point, m.Seed})
		old, err := study.Find(w.reg.Records(), c, w.run.Spec.Code)
		if err != nil {
			return false, err
		}
		if w.o.SoFar && old == nil {
			cells, keys = cells[:len(cells)-1], keys[:len(keys)-1]
			continue
		}
		if old == nil || !old.Final() {
			cost += c.Cost.CoreSeconds
			steps += c.Cost.Steps
			w.steps[c] = c.Cost.Steps
		}
	}
	if len(cells) == 0 {
		return false, nil
	}
	if steps > 0 && !w.o.SoFar {
		w.o.Say("train      %d runs, about %.0f s of one core", len(cells), cost)
	}
	records := make([]*study.Record, len(cells))
	if w.o.SoFar {
		for i, c := range cells {
			var err error
			if records[i], err = study.Find(w.reg.Records(), c, w.run.Spec.Code); err != nil {
				return false, err
			}
		}
	} else {
		var err error
		if records, err = w.run.Answers(ctx, cells); err != nil {
			return false, err
		}
	}
	for i, rec := range records {
		if rec == nil {
			return false, fmt.Errorf("cell %s seed %d has no record", cells[i].Label(), cells[i].Seed)
		}
		m, err := w.model(keys[i], rec)
		if err != nil {
			return false, err
		}
		w.r.Models = append(w.r.Models, m)
	}
	return true, nil
}

// model is the entry of a record.
func (w *work) model(key seeded, rec *study.Record) (*Model, error) {
	m := &Model{
		Point: key.Point, Seed: key.seed, Run: filepath.ToSlash(rec.Run), Provenance: rec.Provenance, Status: rec.Status, Reason: rec.Reason,
		Params: rec.Params, Steps: rec.Steps, Val: rec.Val, Seconds: rec.Seconds, CoreSeconds: rec.CoreSeconds,
	}
	if rec.Status != study.Done {
		return m, nil
	}
	r, err := report.Load(w.runDir(m))
	if err != nil {
		return nil, err
	}
	if _, loss := r.EpochMeans(); len(loss) > 0 {
		m.Train = &loss[len(loss)-1]
	}
	return m, nil
}

// test measures the models that are reported and were not measured yet.
func (w *work) test(ctx context.Context, d *demand) (bool, error) {
	todo := map[string][]*Model{} // by corpus
	for _, x := range d.models {
		if m := w.r.model(x.Point, x.Seed); x.Test && m.well() && m.Test == nil {
			todo[m.Corpus] = append(todo[m.Corpus], m)
		}
	}
	for _, c := range w.r.Corpora {
		models := todo[c.Name]
		if len(models) == 0 {
			continue
		}
		if err := w.stopped(ctx); err != nil {
			return false, err
		}
		w.o.Say("measure    %d models on the test split of %s", len(models), c.Name)
		var cells []*study.Cell
		var records []*study.Record
		for _, m := range models {
			cell, err := w.cell(m.Point, m.Seed)
			if err != nil {
				return false, err
			}
			rec, err := study.Find(w.reg.Records(), cell, w.run.Spec.Code)
			if err != nil {
				return false, err
			}
			cells, records = append(cells, cell), append(records, rec)
		}
		meter := study.Meter{Registry: w.reg, Stop: w.o.Stop, Place: func([]*study.Cell) study.Placement { return study.Placement{Slots: w.threads(), Threads: 1} }}
		scores, err := meter.Score(ctx, cells, records, study.Split{Store: w.store(c.Name, testStore)})
		if err != nil {
			return false, err
		}
		for i, m := range models {
			for _, x := range scores[i].Docs {
				m.Test = append(m.Test, rounded(x.Sum))
			}
		}
	}
	return len(todo) > 0, nil
}

func (w *work) threads() int {
	if w.o.Parallel > 0 {
		return w.o.Parallel
	}
	return runtime.GOMAXPROCS(0)
}

// stopped is the error of a stop that was asked for.
func (w *work) stopped(ctx context.Context) error {
	select {
	case <-w.o.Stop:
		return run.ErrStopped
	default:
		return context.Cause(ctx)
	}
}

// until calls f with a context that a stop ends too; what was under way is done again by
// the next start.
func (w *work) until(ctx context.Context, f func(context.Context) error) error {
	if err := w.stopped(ctx); err != nil {
		return err
	}
	err := pipeline.Until(ctx, w.o.Stop, f)
	if errors.Is(err, pipeline.ErrStopRequested) {
		return run.ErrStopped
	}
	return err
}

// ensembles measures those that are missing, or miss their weights.
func (w *work) ensembles(ctx context.Context, d *demand) (more bool, err error) {
	for _, x := range d.ensembles {
		if w.o.SoFar && !w.known(x.Point, x.Members) {
			continue
		}
		old := w.r.ensemble(x.Point)
		if old != nil && (!x.Weights || old.Weights != nil || len(old.Val) == 0) {
			continue
		}
		var e *Ensemble
		err := w.until(ctx, func(ctx context.Context) (err error) {
			e, err = w.ensembleOf(ctx, x, w.threads())
			return err
		})
		if err != nil {
			return false, err
		}
		if old != nil {
			*old = *e
		} else {
			w.r.Ensembles = append(w.r.Ensembles, e)
		}
		more = true
	}
	return more, nil
}

// known says that the first so many models of a recipe have ended.
func (w *work) known(p Point, members int) bool {
	for seed := range uint64(members) {
		if w.r.model(p, seed) == nil {
			return false
		}
	}
	return true
}

// texts has members write what students read.
func (w *work) texts(ctx context.Context, d *demand) (more bool, err error) {
	for _, x := range d.texts {
		if w.r.text(x.Corpus, x.Name) != nil {
			continue
		}
		if w.o.SoFar {
			there, err := fsx.Exists(fsx.OS{}, w.store(x.Corpus, x.Name))
			if err != nil {
				return false, &run.Error{Code: run.ExitDisk, Err: err}
			}
			if !there || !w.known(x.Teacher, x.Members) {
				continue
			}
		}
		var t *Text
		err := w.until(ctx, func(ctx context.Context) (err error) {
			t, err = w.write(ctx, x)
			return err
		})
		if err != nil {
			return false, err
		}
		w.r.Texts = append(w.r.Texts, t)
		more = true
	}
	return more, nil
}

// ended tells of a run that has a record now.
func (w *work) ended(r *study.Record) {
	loss := string(r.Status)
	if r.Status == study.Done {
		loss = fmt.Sprintf("val %.4f  train %.4f", r.Result(), *r.Loss)
	}
	w.o.Say("run        %s  seed %d  %s  (%.0f core-seconds)", w.label(r), r.Seed, loss, r.CoreSeconds)
}

func (w *work) label(r *study.Record) string {
	for key, c := range w.cells { // only one has the key, so the order does not matter
		if c.Key() == r.Key() {
			return fmt.Sprintf("%s pool %d  %s", key.Corpus, key.Pool, key.Label())
		}
	}
	return r.Label
}

// Began implements study.Progress.
func (w *work) Began(*study.Cell, string) {}

// Note implements study.Progress.
func (w *work) Note(c *study.Cell, text string) {}

// Step implements study.Progress.
func (w *work) Step(c *study.Cell, i run.StepInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[c] = i.Step
	now := time.Now()
	if now.Sub(w.last) < 500*time.Millisecond {
		return
	}
	w.last = now
	var done, all int64
	for c, n := range w.steps {
		done, all = done+w.done[c], all+n
	}
	w.o.Tick("[%5.0fs] step %d of %d that are known to come", time.Since(w.start).Seconds(), done, all)
}
