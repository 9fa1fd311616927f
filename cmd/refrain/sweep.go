package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"refrain/internal/run"
	"refrain/study"
	"refrain/study/descent"
)

func (a *app) sweepCommand() *cobra.Command {
	var (
		o      sweepOptions
		budget string
	)
	c := &cobra.Command{
		Use:   "sweep SPEC",
		Short: "Train a grid of configurations over seeds; the same command goes on after any stop",
		Long: `Sweep trains every cell of a sweep file once and keeps a registry: a run folder for
every cell that was begun and a record for every one that ended. Cells share the
cores, longest first; one that fails or diverges is marked, and the sweep goes on.

  # decay.yaml
  base: run.yaml                      # or a section with the keys of a configuration
  grid:
    train.epochs: [4, 8, 16]
    optim.weight_decay: [0.1, 0.4, 1.6]
  seeds: [0, 1, 2]
  out: sweeps/decay

--dry-run prints every cell, its cost and the total. Ctrl-C saves all runs; the same
command goes on. With a section

  descend: {start: {train.epochs: 8, optim.weight_decay: 0.4}}

in the file, coordinate descent walks from there to a point that no neighbour on the
grid beats, and prints the certificate: every neighbour with its loss, its difference
and the spread of that over seeds, and where the runs are. freeze: [optim.weight_decay]
beside start is the standard recipe, which leaves the decay alone.

docs/formats/sweep.md describes all keys, the registry and the records.`,
		Example: `  refrain config init --preset micro-0.3M > run.yaml
  refrain sweep decay.yaml --dry-run
  refrain sweep decay.yaml --max-parallel 2
  refrain sweep decay.yaml --budget 2h --json > decay.json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			spec, err := study.LoadSpec(list[0])
			if err != nil {
				return err
			}
			if budget != "" {
				if spec.Budget, err = parseBudget(budget); err != nil {
					return bad(c, "--budget %s: %v", budget, err)
				}
			}
			if o.parallel < 0 {
				return bad(c, "--max-parallel %d: want a number of runs, or 0 for as many as the machine takes", o.parallel)
			}
			base, err := spec.Base()
			if err != nil {
				// All that is wrong is told at once, not only what the first cell meets.
				if _, all := spec.Cells(); all != nil {
					err = all
				}
				return err
			}
			if err := a.ingest(c.Context(), &base.Config, o.json); err != nil {
				return err
			}
			if o.dry {
				return a.sweepDry(spec, o)
			}
			return a.sweepRun(c.Context(), spec, o)
		},
	}
	f := c.Flags()
	f.BoolVar(&o.dry, "dry-run", false, "print every cell, its cost and the total, and train nothing")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	f.IntVar(&o.parallel, "max-parallel", 0, "most runs at a time; 0: as ends first, with memory for all of them")
	f.StringVar(&budget, "budget", "", "instead of the file's: core time such as 90m or 2h, or steps such as 5000steps")
	return c
}

type sweepOptions struct {
	dry, json bool
	parallel  int
}

func parseBudget(text string) (b study.Budget, err error) {
	if n, ok := strings.CutSuffix(text, "steps"); ok {
		if b.Steps, err = strconv.ParseInt(strings.TrimSpace(n), 10, 64); err != nil || b.Steps <= 0 {
			return b, errors.New("want a number of steps above 0, such as 5000steps")
		}
		return b, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return b, errors.New("want core time such as 90m or 2h, or steps such as 5000steps")
	}
	b.CoreSeconds = d.Seconds()
	return b, nil
}

// sweepCells resolves the cells of a sweep and estimates them; of a descent those that it
// asks for first.
func sweepCells(spec *study.Spec, records []*study.Record) (cells []*study.Cell, rate float64, from string, err error) {
	if cells, err = spec.Cells(); err != nil {
		return nil, 0, "", err
	}
	if rate, from, err = study.Rate(records, cells[0]); err != nil {
		return nil, 0, "", err
	}
	if spec.Descend != nil {
		axes, start, err := spec.Axes()
		if err != nil {
			return nil, 0, "", err
		}
		cells = nil
		for _, p := range study.First(axes, start) {
			at, err := spec.At(spec.Point(p))
			if err != nil {
				return nil, 0, "", err
			}
			cells = append(cells, at...)
		}
	}
	return cells, rate, from, study.Open(cells, rate)
}

// drySum is the cost of some cells.
type drySum struct {
	Cells       int     `json:"cells"`
	Steps       int64   `json:"steps"`
	Tokens      int64   `json:"tokens"`
	FLOPs       float64 `json:"flops"`
	CoreSeconds float64 `json:"core_seconds"`
}

func (d *drySum) add(c study.Cost) {
	d.Cells++
	d.Steps += c.Steps
	d.Tokens += c.Tokens
	d.FLOPs += c.FLOPs
	d.CoreSeconds += c.CoreSeconds
}

type dryCell struct {
	Cell     int               `json:"cell"` // from 1
	Label    string            `json:"label"`
	Settings map[string]string `json:"settings"`
	Seed     uint64            `json:"seed"`
	Status   string            `json:"status"` // new, over budget, or that of its record
	Run      string            `json:"run"`
	Identity string            `json:"identity"`
	Cost     study.Cost        `json:"cost"`
}

type dryRun struct {
	Registry  string          `json:"registry"`
	Cells     []dryCell       `json:"cells"`
	Total     drySum          `json:"total"`
	Todo      drySum          `json:"todo"`
	Rate      float64         `json:"flops_per_core_second"`
	RateFrom  string          `json:"rate_from"`
	Placement study.Placement `json:"placement"`
	GridCells int             `json:"grid_cells,omitempty"` // of a descent: all that it could come to
	Others    []study.Other   `json:"others"`
}

func (a *app) sweepDry(spec *study.Spec, o sweepOptions) error {
	records, err := study.ReadRegistry(spec.Out)
	if err != nil {
		return err
	}
	cells, rate, from, err := sweepCells(spec, records)
	if err != nil {
		return err
	}
	d := dryRun{Registry: spec.Out, Rate: rate, RateFrom: from, Others: []study.Other{}}
	if spec.Descend == nil { // where a descent will go is not known
		d.Others = study.Others(records, cells, spec.Code)
	}
	ledger := study.NewLedger(spec.Budget)
	var todo []*study.Cell
	found := make([]*study.Record, len(cells))
	for i, c := range cells {
		if found[i], err = study.Find(records, c, spec.Code); err != nil {
			return err
		}
		if r := found[i]; r != nil && r.Final() {
			ledger.Spend(r)
		} else {
			todo = append(todo, c)
		}
	}
	within := ledger.Within(todo)
	over := map[*study.Cell]bool{}
	for _, c := range todo[len(within):] {
		over[c] = true
	}
	for i, c := range cells {
		x := dryCell{
			Cell: i + 1, Label: c.Label(), Settings: map[string]string{}, Seed: c.Seed, Status: "new",
			Run: filepath.Join(spec.Out, "runs", c.Name()), Identity: c.Identity(), Cost: c.Cost,
		}
		for _, s := range c.Settings {
			x.Settings[s.Key] = s.Value
		}
		if found[i] != nil {
			x.Status = string(found[i].Status)
		}
		if over[c] {
			x.Status = "over budget"
		}
		d.Cells = append(d.Cells, x)
		d.Total.add(c.Cost)
	}
	for _, c := range within {
		d.Todo.add(c.Cost)
	}
	d.Placement = (&study.Local{Parallel: o.parallel}).Placement(within)
	if spec.Descend != nil {
		all, err := spec.Cells()
		if err != nil {
			return err
		}
		d.GridCells = len(all)
	}
	if o.json {
		return a.json(d)
	}
	a.printDry(&d)
	return nil
}

func (a *app) printDry(d *dryRun) {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "cell\tstatus\tsteps\ttokens\tFLOP\tcore time\tseed\tsettings")
	for _, c := range d.Cells {
		fmt.Fprintf(t, "%d\t%s\t%d\t%s\t%s\t%s\t%d\t%s\n", c.Cell, c.Status, c.Cost.Steps, short(float64(c.Cost.Tokens)), short(c.Cost.FLOPs), round(seconds(c.Cost.CoreSeconds)), c.Seed, c.Label)
	}
	t.Flush()
	line := func(what string, s drySum) {
		a.printf("%s  %d cells, %d steps, %s tokens, %s FLOP, %s of core time\n", what, s.Cells, s.Steps, short(float64(s.Tokens)), short(s.FLOPs), round(seconds(s.CoreSeconds)))
	}
	line("total", d.Total)
	line("todo ", d.Todo)
	if d.Todo.Cells > 0 {
		p := d.Placement
		a.printf("       %d at a time on %d thread(s) each: about %s (speed: %s)\n", p.Slots, p.Threads, round(seconds(p.Makespan)), d.RateFrom)
	}
	if d.GridCells > 0 {
		a.printf("       these are the start of the descent and its neighbours; the grid has %d cells in all\n", d.GridCells)
	}
	a.sweepOthers(d.Others)
}

// sweepOthers lists what else lies in the registry, a line for each reason.
func (a *app) sweepOthers(others []study.Other) {
	var whys []string
	count := map[string]int{}
	for _, o := range others {
		if count[o.Why]++; count[o.Why] == 1 {
			whys = append(whys, o.Why)
		}
	}
	for _, w := range whys {
		a.notef("%d record(s) of the registry do not count here: %s", count[w], w)
	}
}

// sweepResult is what --json prints at the end.
type sweepResult struct {
	Registry    string               `json:"registry"`
	Status      string               `json:"status"` // done, stopped, over budget, failed
	Reason      string               `json:"reason,omitempty"`
	Cells       []*study.Record      `json:"cells"` // in the order of the sweep; null: not there yet
	Groups      []*study.Group       `json:"groups"`
	Best        *study.Group         `json:"best"`
	Certificate *descent.Certificate `json:"certificate,omitempty"`
	Others      []study.Other        `json:"others"`
}

func (a *app) sweepRun(ctx context.Context, spec *study.Spec, o sweepOptions) error {
	reg, err := study.OpenRegistry(spec.Out, nil)
	if err != nil {
		return err
	}
	defer reg.Close()
	cells, rate, _, err := sweepCells(spec, reg.Records())
	if err != nil {
		return err
	}
	stop := a.graceful()
	ledger := study.NewLedger(spec.Budget)
	live := newSweepWatch(a, spec, reg, cells, o.json)
	work := &study.Work{
		Spec: spec, Records: reg.Records, Ledger: ledger, Rate: rate, Each: live.record,
		Runner: &study.Local{
			Registry: reg, Policy: spec.Code, Parallel: o.parallel, Stop: stop, Watch: live, Admit: ledger.Admit,
			Args: append([]string{"refrain"}, a.args...),
		},
	}
	res := sweepResult{Registry: spec.Out, Status: "done"}
	if spec.Descend == nil {
		res.Cells, err = work.Sweep(ctx, cells)
	} else {
		res.Certificate, err = work.Descend(ctx)
		res.Cells = live.all()
	}
	live.end(err == nil)
	res.Others = study.Others(reg.Records(), live.cells, spec.Code)
	switch {
	case errors.Is(err, study.ErrBudget):
		res.Status = "over budget"
	case errors.Is(err, run.ErrStopped):
		res.Status = "stopped"
	case err != nil:
		res.Status = "failed"
	}
	if err != nil {
		res.Reason = err.Error()
	}
	if spec.Descend == nil && res.Cells != nil {
		res.Groups = study.Groups(cells, res.Cells)
		res.Best = study.BestOf(res.Groups)
	}
	if err == nil {
		err = failedCells(res.Cells)
	}
	if o.json {
		return errors.Join(a.json(res), err)
	}
	a.printSweep(&res)
	return err
}

// failedCells makes an error of cells that failed for another reason than their settings.
func failedCells(records []*study.Record) error {
	n, first := 0, ""
	for _, r := range records {
		if r != nil && r.Status == study.Failed {
			if n++; n == 1 {
				first = fmt.Sprintf("%s seed %d: %s", r.Label, r.Seed, r.Reason)
			}
		}
	}
	if n == 0 {
		return nil
	}
	return &run.Error{Code: run.ExitFailed, Err: fmt.Errorf("%d cell(s) failed, first %s; the same command tries them again", n, first)}
}

// withSpread words a mean loss.
func withSpread(g *study.Group) string {
	text := number(g.Mean)
	if g.Spread != nil {
		text += fmt.Sprintf(" +- %.4f", *g.Spread)
	}
	return text
}

func (a *app) printSweep(r *sweepResult) {
	if len(r.Groups) > 0 {
		t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "loss\tseeds\tsettings\t")
		for _, g := range r.Groups {
			remark := strings.Join(g.Trouble, ", ")
			if g.Missing > 0 {
				remark = strings.TrimPrefix(fmt.Sprintf("%s, %d not trained yet", remark, g.Missing), ", ")
			}
			if g == r.Best {
				remark = "best"
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", withSpread(g), len(g.Losses), g.Label, remark)
		}
		t.Flush()
	}
	if r.Certificate != nil {
		a.printCertificate(r.Certificate, r.Registry)
	}
	a.sweepOthers(r.Others)
	if r.Status == "stopped" {
		a.printf("stopped; the same command goes on\n")
	}
}

func (a *app) printCertificate(c *descent.Certificate, dir string) {
	name := func(v []float64) string {
		var parts []string
		for i, x := range v {
			parts = append(parts, fmt.Sprintf("%s=%g", c.Axes[i].Name, x))
		}
		return strings.Join(parts, " ")
	}
	a.printf("best  %s  loss %.4f over %d seed(s), %d points measured, %d moves\n", name(c.Values), c.Loss, len(c.Outcome.Losses), c.Measured, len(c.Path)-1)
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "loss\tdifference\tclear\tneighbour\truns")
	for _, n := range c.Neighbours {
		switch {
		case n.Edge:
			fmt.Fprintf(t, "-\t-\t-\t%s %+d: the grid ends\t\n", n.Axis, n.Step)
			continue
		case n.Loss == nil:
			fmt.Fprintf(t, "-\t-\t-\t%s: %s\t%s\n", name(n.Values), n.Outcome.Missing, strings.Join(n.Outcome.Runs, " "))
			continue
		}
		clear := "no"
		if n.Clear {
			clear = "yes"
		}
		if len(n.Outcome.Losses) < 2 {
			clear = "one seed"
		}
		fmt.Fprintf(t, "%.4f\t%+.4f +- %.4f\t%s\t%s\t%s\n", *n.Loss, n.Difference, n.Spread, clear, name(n.Values), strings.Join(n.Outcome.Runs, " "))
	}
	t.Flush()
	if len(c.Edges) > 0 {
		a.printf("the best point lies at the end of %s: the optimum may be outside the grid\n", strings.Join(c.Edges, ", "))
	}
	if c.Certified {
		a.printf("certified: no neighbour on the grid is better; runs are in %s\n", dir)
		return
	}
	a.printf("no certificate: %s\n", strings.Join(c.Withheld, "; "))
}

// sweepWatch shows a sweep while it goes on: a bar on a terminal, and a line for every
// cell that ended, with the best point so far.
type sweepWatch struct {
	a     *app
	spec  *study.Spec
	reg   *study.Registry
	lines bool

	mu    sync.Mutex
	cells []*study.Cell
	known map[string]bool  // by key
	steps map[string]int64 // of runs, done
	done  int64
	bar   *progress
}

func newSweepWatch(a *app, spec *study.Spec, reg *study.Registry, cells []*study.Cell, quiet bool) *sweepWatch {
	w := &sweepWatch{a: a, spec: spec, reg: reg, lines: !quiet && !a.quiet, known: map[string]bool{}, steps: map[string]int64{}}
	total := int64(0)
	for _, c := range cells {
		w.add(c)
		total += c.Cost.Steps
	}
	if spec.Descend != nil {
		total = 0 // not known
	}
	w.bar = a.progress("sweep", total)
	for _, r := range w.answers() {
		if r != nil && r.Final() {
			w.done += r.Cost.Steps
		}
	}
	return w
}

func (w *sweepWatch) add(c *study.Cell) {
	if !w.known[c.Key()] {
		w.known[c.Key()] = true
		w.cells = append(w.cells, c)
	}
}

// answers are the records so far of the cells that are known.
func (w *sweepWatch) answers() []*study.Record {
	out := make([]*study.Record, len(w.cells))
	for i, c := range w.cells {
		out[i], _ = study.Find(w.reg.Records(), c, w.spec.Code) // the sweep itself tells of an error
	}
	return out
}

// all returns the records of everything a descent has come to.
func (w *sweepWatch) all() []*study.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answers()
}

func (w *sweepWatch) Began(c *study.Cell, _ string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(c)
}

func (w *sweepWatch) Step(c *study.Cell, i run.StepInfo) {
	w.mu.Lock()
	before := w.steps[c.Key()]
	w.steps[c.Key()] = i.Step
	w.done += i.Step - before
	done := w.done
	w.mu.Unlock()
	w.bar.set(done, fmt.Sprintf("%d steps, now %s seed %d step %d/%d", done, c.Label(), c.Seed, i.Step, i.Steps))
}

func (w *sweepWatch) Note(c *study.Cell, text string) {
	if w.lines {
		w.a.notef("%s seed %d: %s", c.Label(), c.Seed, text)
	}
}

// record prints a cell that ended. It is called one at a time, when the registry has it.
func (w *sweepWatch) record(r *study.Record) {
	if !w.lines {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	answers := w.answers()
	ended := 0
	for _, x := range answers {
		if x != nil {
			ended++
		}
	}
	best := ""
	if g := study.BestOf(study.Groups(w.cells, answers)); g != nil {
		best = fmt.Sprintf("  best %s (%s)", withSpread(g), g.Label)
	}
	loss := r.Val
	if loss == nil {
		loss = r.Loss
	}
	var out io.Writer = w.a.out
	if w.bar.all != nil {
		out = w.bar.all // above the bar
	}
	fmt.Fprintf(out, "%d/%d  %-8s loss %s  %s  %s seed %d%s\n", ended, len(w.cells), r.Status, number(loss), round(seconds(r.Seconds)), r.Label, r.Seed, best)
	if r.Status != study.Done {
		w.a.notef("%s seed %d is %s: %s", r.Label, r.Seed, r.Status, r.Reason)
	}
}

func (w *sweepWatch) end(ok bool) { w.bar.end(ok) }
