package study

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/model"
	"refrain/study/frontier"
	"refrain/train/ckpt"
)

// EndpointOptions say what of the records counts.
type EndpointOptions struct {
	Prefix  bool // also evaluations on the way, as prefixes
	AnyCode bool // runs of other revisions of the program too
}

// Endpoints are the runs found on the disk, for a frontier.
type Endpoints struct {
	Runs   []frontier.Run // means over seeds, in the order of names
	Times  frontier.Times // measured by these runs; their machine is one
	Source frontier.Source
	Left   []frontier.Left
	// TimesTrouble says why the runs tell no step times; "" when they do.
	TimesTrouble string
	Warnings     []string
}

// endpoint is one run, or a prefix of one.
type endpoint struct {
	key           string // of what is the same but for seeds
	name, path    string
	params, batch int
	steps         int64
	epochs, loss  float64
	prefix        bool
	source        frontier.Source

	// Of the whole run; ms is 0 when its speed is not known.
	devices, threads int
	cpu              string
	ms               float64
}

// ReadEndpoints reads registries of sweeps, run folders and folders of run folders. Runs that did
// not come to the end of their schedule are left out, with the reason. Runs of other data,
// another tokenizer or validation, or other code are an error that names two of them. It
// changes nothing.
func ReadEndpoints(paths []string, o EndpointOptions) (*Endpoints, error) {
	var rd endpointReader
	rd.o = o
	for _, p := range paths {
		if err := rd.path(p); err != nil {
			return nil, err
		}
	}
	out := &Endpoints{Left: rd.left, Warnings: []string{}}
	if len(rd.found) == 0 {
		why := ""
		if len(rd.left) > 0 {
			why = fmt.Sprintf("; %d were left out, the first, %s, because %s", len(rd.left), rd.left[0].Path, rd.left[0].Why)
		}
		return nil, badRecords("%s: no run here came to the end of its schedule%s", strings.Join(paths, ", "), why)
	}
	for _, e := range rd.found[1:] {
		if err := sameGround(&rd.found[0], &e, o); err != nil {
			return nil, err
		}
	}
	out.Source = rd.found[0].source
	for _, e := range rd.found {
		if e.source.ValHash != "" {
			out.Source.ValHash = e.source.ValHash
		}
	}
	out.Runs = mergeSeeds(rd.found)
	out.measure(rd.found)
	return out, nil
}

// Build is the report about the records.
func (r *Endpoints) Build(o frontier.Options) (*frontier.Report, error) {
	rep, err := frontier.Build(r.Runs, o)
	if err != nil {
		return nil, err
	}
	rep.Data, rep.Left = &r.Source, append(rep.Left, r.Left...)
	if o.Times.Known() && o.Times.Machine == r.Times.Machine {
		rep.Warnings = append(rep.Warnings, r.Warnings...)
	}
	return rep, nil
}

type endpointReader struct {
	o     EndpointOptions
	found []endpoint
	left  []frontier.Left
	seen  map[string]bool   // ids of runs
	done  map[string]string // folder of the run of settings with their seeds
}

// again reports whether the run of that id was read before, as where a registry and its
// folder of runs are both named.
func (rd *endpointReader) again(id, path string) bool {
	if rd.seen == nil {
		rd.seen = map[string]bool{}
	}
	if id == "" || !rd.seen[id] {
		rd.seen[id] = true
		return false
	}
	rd.leave(path, "the same run was read before")
	return true
}

func (rd *endpointReader) leave(path, format string, args ...any) {
	rd.left = append(rd.left, frontier.Left{Path: path, Why: fmt.Sprintf(format, args...)})
}

// path reads what one argument names.
func (rd *endpointReader) path(path string) error {
	if _, err := os.Stat(path); err != nil {
		return badRecords("%w; name a registry, a run folder, or a folder of them", err)
	}
	if st, err := os.Stat(filepath.Join(path, "cells")); err == nil && st.IsDir() {
		return rd.registry(path)
	}
	dirs, err := run.FindRuns(path)
	if err != nil {
		return badRecords("%w", err)
	}
	if len(dirs) == 0 {
		return badRecords("%s is neither a registry of a sweep (no folder cells) nor a run folder (no %s) nor a folder of such", path, run.RunFile)
	}
	for _, d := range dirs {
		if err := rd.folder(d); err != nil {
			return err
		}
	}
	return nil
}

// registry reads the records of a sweep, and of their run folders what is there.
func (rd *endpointReader) registry(dir string) error {
	records, err := ReadRegistry(dir)
	if err != nil {
		return err
	}
	for _, r := range records {
		path := filepath.Join(dir, r.Run)
		switch {
		case r.Status != Done:
			rd.leave(path, "it is %s (%s)", r.Status, r.Reason)
			continue
		case r.Val == nil:
			rd.leave(path, "it has no validation loss")
			continue
		case rd.again(r.RunID, path):
			continue
		}
		e := endpoint{
			key: dir + "\x00" + r.Label, name: r.Label, path: path, params: r.Params, batch: r.Cost.Batch, steps: r.Steps, loss: *r.Val,
			source: frontier.Source{DataHash: r.DataHash, TokenizerHash: r.TokenizerHash, ValHash: r.ValHash, ValTokens: r.Tokens, Code: r.Code}, threads: r.Threads,
		}
		if n, err := strconv.Atoi(r.Settings["train.batch"]); err == nil {
			e.batch = n
		}
		// The run folder may have gone; the record says what is needed.
		rec, err := run.ReadRecord(path)
		switch {
		case err == nil && rec.Config != nil:
			if err := rd.add(e, rec); err != nil {
				return err
			}
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%s: %w", path, err)
		case e.batch == 0:
			return badRecords("record %s does not say its batch, and its run folder is gone; put %s back, or leave the registry out", r.Name(), path)
		default:
			rd.found = append(rd.found, e)
		}
	}
	return nil
}

// folder reads a run folder by itself.
func (rd *endpointReader) folder(dir string) error {
	rec, err := run.ReadRecord(dir)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	switch s := rec.Status(); {
	case s != "done":
		rd.leave(dir, "it is %s after step %d", s, rec.Last.Step)
		return nil
	case rec.Config == nil:
		rd.leave(dir, "it has no %s that can be read", run.ConfigFile)
		return nil
	case len(rec.Val) == 0 || rec.Val[len(rec.Val)-1].Step != rec.Last.Step:
		rd.leave(dir, "it has no validation loss of its last step")
		return nil
	case rd.again(rec.Info.ID, dir):
		return nil
	}
	params, err := paramsOf(dir)
	if err != nil {
		rd.leave(dir, "its number of parameters is not known: %v", err)
		return nil
	}
	last := rec.Val[len(rec.Val)-1]
	return rd.add(endpoint{
		name: dir, path: dir, params: params, steps: rec.Last.Step, loss: last.Loss,
		source: frontier.Source{DataHash: rec.Info.DataHash, TokenizerHash: rec.Info.TokenizerHash, ValTokens: last.Tokens, Code: rec.Info.Code},
	}, rec)
}

// paramsOf is the number of parameters of the run in a folder: its plan says it, or, where
// a sweep has trained it, the shape in a checkpoint.
func paramsOf(dir string) (int, error) {
	var plan struct {
		Params int `json:"params"`
	}
	b, err := fsx.ReadFile(fsx.OS{}, filepath.Join(dir, run.PlanFile), maxRecordBytes)
	if err == nil {
		if err = json.Unmarshal(b, &plan); err == nil && plan.Params > 0 {
			return plan.Params, nil
		}
	}
	shapes, globErr := filepath.Glob(filepath.Join(dir, run.CkptDir, "*", ckpt.ConfigFile))
	if len(shapes) == 0 {
		return 0, errors.Join(err, globErr, errors.New("there is no checkpoint"))
	}
	if b, err = fsx.ReadFile(fsx.OS{}, shapes[len(shapes)-1], maxRecordBytes); err != nil {
		return 0, err
	}
	c, _, err := model.ParseHFConfig(b)
	if err != nil {
		return 0, err
	}
	return c.Layout().Total, nil
}

// add completes e from the run folder and takes it, and its prefixes when they are asked
// for.
func (rd *endpointReader) add(e endpoint, rec *run.Record) error {
	c := rec.Config.Config
	e.batch, e.devices, e.cpu, e.epochs = c.Train.Batch, c.Train.Devices, rec.Info.CPU, rec.Last.Epoch
	if e.threads == 0 {
		e.threads = c.Train.Threads * c.Train.Devices
	}
	if rec.Speed > 0 {
		e.ms = 1000 * float64(e.batch) * float64(c.Data.Seq) / rec.Speed
	}
	// The same settings with the same seeds, as two registries may both have them, give the
	// same bits: a second time is no second seed.
	if rd.done == nil {
		rd.done = map[string]string{}
	}
	i := &rec.Info
	same := strings.Join([]string{c.Hash(), i.DataHash, i.BaseHash, i.TeachersHash, i.Precision}, " ")
	if first, there := rd.done[same]; there {
		rd.leave(e.path, "%s has the same settings and seeds", first)
		return nil
	}
	rd.done[same] = e.path
	// Runs that differ in seeds alone are one point.
	zero := uint64(0)
	c.Train.Seed, c.Data.Seed = 0, &zero
	e.key = c.Hash() + rec.Info.BaseHash
	if rec.Last.Step != e.steps {
		return badRecords("%s: its record says %d steps, its metrics %d", e.path, e.steps, rec.Last.Step)
	}
	rd.found = append(rd.found, e)
	if !rd.o.Prefix {
		return nil
	}
	whole := e
	for _, v := range rec.Val {
		if v.Step < 1 || v.Step >= whole.steps || v.Tokens != whole.source.ValTokens {
			continue
		}
		p := whole
		p.prefix, p.steps, p.loss, p.ms = true, v.Step, v.Loss, 0
		p.epochs = whole.epochs * float64(v.Step) / float64(whole.steps)
		p.name = fmt.Sprintf("%s @ step %d of %d", whole.name, v.Step, whole.steps)
		rd.found = append(rd.found, p)
	}
	return nil
}

// sameGround refuses runs whose losses do not compare.
func sameGround(a, b *endpoint, o EndpointOptions) error {
	for _, f := range []struct{ what, a, b string }{
		{"training documents (data_hash)", a.source.DataHash, b.source.DataHash},
		{"tokenizers", a.source.TokenizerHash, b.source.TokenizerHash},
		{"validation documents (val_hash)", cmp.Or(a.source.ValHash, b.source.ValHash), cmp.Or(b.source.ValHash, a.source.ValHash)},
		{"validation rows (tokens scored)", fmt.Sprint(a.source.ValTokens), fmt.Sprint(b.source.ValTokens)},
	} {
		if f.a != f.b {
			return badRecords("runs of different %s: %s has %.12s, %s has %.12s; losses of the two do not compare: name only one kind", f.what, a.path, f.a, b.path, f.b)
		}
	}
	if a.source.Code != b.source.Code && !o.AnyCode {
		return badRecords("runs of different code: %s is by %s, %s by %s; --any-code takes both", a.path, a.source.Code, b.path, b.source.Code)
	}
	return nil
}

// mergeSeeds joins seeds to means.
func mergeSeeds(list []endpoint) []frontier.Run {
	type group struct {
		key    string
		steps  int64
		prefix bool
	}
	at := map[group]int{}
	var groups [][]endpoint
	for _, e := range list {
		g := group{e.key, e.steps, e.prefix}
		i, there := at[g]
		if !there {
			i = len(groups)
			at[g], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], e)
	}
	var out []frontier.Run
	for _, g := range groups {
		slices.SortFunc(g, func(a, b endpoint) int { return cmp.Compare(a.path, b.path) })
		r := frontier.Run{Name: g[0].name, Params: g[0].params, Batch: g[0].batch, Steps: g[0].steps, Epochs: g[0].epochs, Prefix: g[0].prefix, Seeds: len(g)}
		var losses []float64
		for _, e := range g {
			losses, r.From = append(losses, e.loss), append(r.From, e.path)
		}
		r.Loss = losses[0]
		if len(g) > 1 {
			r.Loss, r.SD = stat.MeanStdDev(losses, nil)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b frontier.Run) int {
		return cmp.Or(cmp.Compare(a.Params, b.Params), cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.Steps, b.Steps), cmp.Compare(a.Name, b.Name), cmp.Compare(a.From[0], b.From[0]))
	})
	return out
}

// measure takes the step times of the runs: the median over those of one model, batch and
// number of devices. Times of two machines do not mix.
func (r *Endpoints) measure(list []endpoint) {
	type key struct{ params, batch, devices int }
	by := map[key][]float64{}
	var order []key
	var first *endpoint
	threads := map[int]bool{}
	for i := range list {
		e := &list[i]
		if e.ms == 0 {
			continue
		}
		if first == nil {
			first = e
		} else if first.cpu != e.cpu {
			r.TimesTrouble = fmt.Sprintf("step times of two machines: %s was on %s, %s on %s; measure on one, or give the times in a file", first.path, first.cpu, e.path, e.cpu)
			return
		}
		threads[e.threads] = true
		k := key{e.params, e.batch, e.devices}
		if by[k] == nil {
			order = append(order, k)
		}
		by[k] = append(by[k], e.ms)
	}
	if first == nil {
		r.TimesTrouble = "no run folder has metrics with the speed of its steps; give the times in a file"
		return
	}
	if len(threads) > 1 {
		r.Warnings = append(r.Warnings, "the runs had different numbers of threads, so their step times are of different machines, as it were")
	}
	r.Times.Machine = first.cpu
	for _, k := range order {
		ms := by[k]
		slices.Sort(ms)
		r.Times.Measured = append(r.Times.Measured, frontier.StepTime{Params: k.params, Batch: k.batch, GPUs: k.devices, MS: math.Round(1e6*ms[len(ms)/2]) / 1e6, Runs: len(ms)})
	}
	slices.SortFunc(r.Times.Measured, func(a, b frontier.StepTime) int {
		return cmp.Or(cmp.Compare(a.Params, b.Params), cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.GPUs, b.GPUs))
	})
}

func badRecords(format string, args ...any) error {
	return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf(format, args...)}
}
