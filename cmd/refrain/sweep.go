package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"refrain/internal/run"
	"refrain/study"
	"refrain/study/descent"
)

func (a *app) sweepCommand() *cobra.Command {
	var o sweepOptions
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
command goes on. --backend slurm submits an array job whose tasks run the same cells
with --cell; --backend k8s-render prints a Kubernetes Job (1.29 or later) for kubectl
apply whose pods do, in a directory that is the root of a volume claim. With a section

  descend: {start: {train.epochs: 8, optim.weight_decay: 0.4}}

in the file, coordinate descent walks from there to a point that no neighbour on the
grid beats, and prints the certificate: every neighbour with its loss, its difference
and the spread of that over seeds, and where the runs are. freeze: [optim.weight_decay]
beside start is the standard recipe, which leaves the decay alone. sizes: there, with
entries such as - {model.preset: micro-1M}, descends with each and gives the best size
and, from three on, the law over parameters and its asymptote.

docs/formats/sweep.md describes all keys, the registry and the records.`,
		Example: `  refrain config init --preset micro-0.3M > run.yaml
  refrain sweep decay.yaml --dry-run
  refrain sweep decay.yaml --max-parallel 2
  refrain sweep decay.yaml --budget 2h --json > decay.json
  refrain sweep decay.yaml --backend slurm --sbatch --partition=cpu
  refrain sweep decay.yaml --backend k8s-render --k8s-image refrain:1 --k8s-claim studies | kubectl apply -f -`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			spec, err := a.loadSweep(c, list[0], &o, (*study.Spec).CheckSweep)
			if err != nil {
				return err
			}
			switch {
			case o.dry:
				return a.sweepDry(spec, o)
			case o.cell > 0:
				return a.sweepCell(c.Context(), c, spec, o)
			case o.backend == "slurm":
				return a.sweepSlurm(c.Context(), spec, o)
			case o.backend == "k8s-render":
				return a.sweepK8s(c, spec, o)
			}
			return a.sweepRun(c.Context(), spec, o)
		},
	}
	o.flags(c)
	f := c.Flags()
	f.IntVar(&o.cell, "cell", 0, "train only this cell, as --dry-run numbers them; others may be trained elsewhere meanwhile")
	f.StringVar(&o.backend, "backend", "local", "local; slurm: write an array job into the registry and submit it; k8s-render: print a Kubernetes Job")
	f.StringVar(&o.cells, "cells", "", "with --index: numbers of cells such as 1,3-4")
	f.IntVar(&o.index, "index", 0, "train only the cell that is that far into --cells, from 0, as a pod of an indexed job does")
	o.k8s.flags(c)
	f.StringArrayVar(&o.sbatch, "sbatch", nil, "with --backend slurm: an argument for sbatch, such as --partition=cpu; may be repeated")
	return c
}

// flags adds those that a sweep and the studies have in common.
func (o *sweepOptions) flags(c *cobra.Command) {
	o.backend = "local"
	f := c.Flags()
	f.BoolVar(&o.dry, "dry-run", false, "print every cell, its cost and the total, and train nothing")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	f.IntVar(&o.parallel, "max-parallel", 0, "most runs at a time; 0: as ends first, with memory for all of them")
	f.StringVar(&o.budgetText, "budget", "", "instead of the file's: core time such as 90m or 2h, or steps such as 5000steps")
}

// loadSweep reads the file of a sweep or study, refuses what is wrong with it, with the
// flags, or by check, and makes its store when the configuration names inputs.
func (a *app) loadSweep(c *cobra.Command, path string, o *sweepOptions, check func(*study.Spec) error) (*study.Spec, error) {
	spec, err := study.LoadSpec(path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(o.check(c, spec), check(spec)); err != nil {
		return nil, err
	}
	base, err := spec.Base()
	if err != nil {
		// All that is wrong is told at once, not only what the first cell meets.
		if _, all := spec.Cells(); all != nil {
			err = all
		}
		return nil, err
	}
	return spec, a.ingest(c.Context(), &base.Config, o.json)
}

// check reads what the flags say and refuses what does not go together.
func (o *sweepOptions) check(c *cobra.Command, spec *study.Spec) (err error) {
	if o.budgetText != "" {
		if spec.Budget, err = parseBudget(o.budgetText); err != nil {
			return bad(c, "--budget %s: %v", o.budgetText, err)
		}
	}
	switch {
	case o.parallel < 0:
		return bad(c, "--max-parallel %d: want a number of runs, or 0 for as many as the machine takes", o.parallel)
	case o.backend != "local" && o.backend != "slurm" && o.backend != "k8s-render":
		return bad(c, "--backend %s: use local, slurm or k8s-render", o.backend)
	case c.Flags().Changed("cells") != c.Flags().Changed("index"):
		return bad(c, "--cells and --index belong together")
	case c.Flags().Changed("cells"):
		if err := o.fromIndex(c); err != nil {
			return err
		}
	}
	switch {
	case o.cell < 0 || o.cell == 0 && c.Flags().Changed("cell"):
		return bad(c, "--cell %d: cells are numbered from 1", o.cell)
	case o.cell > 0 && (o.dry || o.backend != "local"):
		return bad(c, "--cell trains one cell here; it does not go with --dry-run or another backend")
	case o.cell > 0 && spec.Descend != nil:
		return bad(c, "--cell does not go with a descent, whose cells follow from its results")
	case len(o.sbatch) > 0 && o.backend != "slurm":
		return bad(c, "--sbatch needs --backend slurm")
	case o.backend != "k8s-render" && o.k8s.given(c) != "":
		return bad(c, "--%s needs --backend k8s-render", o.k8s.given(c))
	case o.backend == "k8s-render" && o.json && !o.dry:
		return bad(c, "--json: --backend k8s-render prints YAML and has no result yet")
	case o.backend == "slurm" && o.json && !o.dry:
		return bad(c, "--json: --backend slurm submits and has no result yet; --dry-run --json shows how far it is")
	}
	return nil
}

// fromIndex turns --cells and --index into --cell.
func (o *sweepOptions) fromIndex(c *cobra.Command) error {
	if c.Flags().Changed("cell") {
		return bad(c, "--cell and --cells are both there; keep one")
	}
	list, err := parseRanges(o.cells)
	if err != nil {
		return bad(c, "--cells %v", err)
	}
	if o.index < 0 || o.index >= len(list) {
		return bad(c, "--index %d: --cells %s has %d cells, counted from 0", o.index, o.cells, len(list))
	}
	o.cell = list[o.index]
	return nil
}

type sweepOptions struct {
	dry, json  bool
	parallel   int
	cell       int // from 1; 0: all
	backend    string
	budgetText string
	sbatch     []string
	cells      string // numbers, of which index chooses the cell
	index      int
	k8s        k8sOptions
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

// sweepResult is what --json prints at the end.
type sweepResult struct {
	Registry    string               `json:"registry"`
	Status      string               `json:"status"` // done, stopped, over budget, failed
	Reason      string               `json:"reason,omitempty"`
	Cells       []*study.Record      `json:"cells"` // in the order of the sweep; null: not there yet
	Groups      []*study.Group       `json:"groups"`
	Best        *study.Group         `json:"best"`
	Certificate *descent.Certificate `json:"certificate,omitempty"` // of a descent with one size
	Recipe      *study.Recipe        `json:"recipe,omitempty"`      // of a descent
	Others      []study.Other        `json:"others"`
}

func (a *app) sweepRun(ctx context.Context, spec *study.Spec, o sweepOptions) error {
	j, err := openSweep(spec, lockRegistry)
	if err != nil {
		return err
	}
	defer j.reg.Close()
	return a.sweepThese(ctx, j, j.cells, o)
}

// sweepThese brings cells to their ends and prints what came of it.
func (a *app) sweepThese(ctx context.Context, j *sweepJob, cells []*study.Cell, o sweepOptions) error {
	spec := j.spec
	work, live := a.sweepWork(j, cells, o)
	var err error
	res := sweepResult{Registry: spec.Out, Status: "done"}
	if spec.Descend == nil {
		res.Cells, err = work.Sweep(ctx, cells)
	} else {
		if res.Recipe, err = work.Recipe(ctx); err == nil && len(res.Recipe.Sizes) == 1 {
			res.Certificate = res.Recipe.Sizes[0].Certificate
		}
		res.Cells = live.all()
	}
	live.end(err == nil)
	res.Others = study.Others(j.reg.Records(), live.cells, spec.Code)
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
		return errors.Join(a.record("sweep", res), sameCommand(err))
	}
	a.printSweep(&res)
	return sameCommand(err)
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
