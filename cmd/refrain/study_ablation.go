package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"refrain/internal/run"
	"refrain/study"
)

func (a *app) ablationCommand() *cobra.Command {
	var o sweepOptions
	c := &cobra.Command{
		Use:   "ablation SPEC",
		Short: "Hold the cells of a grid against one of them, on the same documents and seeds",
		Long: `Ablation trains a sweep file, as refrain sweep does, and compares every cell with the
one that compare: names. Differences are paired: over the same seeds, and over the
same documents of the validation store, or of a store that test: names, which no
setting was chosen by. Each has a standard error over documents, one over seeds, and
a 95 % interval for both; it is clear when the interval leaves out 0.

  # recipe.yaml
  base: run.yaml
  grid:
    data.mode: [fixed, block, reshuffle, repack]
    tying:                            # a name of its own: levels set several keys
      - {model.tie: false}
      - {model.tie: true, optim.lr_mul.tied: 0.5, train.epochs: 12}
    decay:
      - {optim.embedding_decay: 0, optim.tied_decay: 0}
      - {optim.embedding_decay: 0.4, optim.tied_decay: 0.4}
    train.batch: [8, 32]
  seeds: [0, 1, 2]
  compare: {data.mode: fixed, model.tie: false, optim.embedding_decay: 0, train.batch: 8}
  test: store/test
  out: sweeps/recipe

Below the cells stand the effects: what a level does over all levels of the other
axes, and at each of them. The cells may be trained by refrain sweep as well, such
as with --backend slurm; the same command then only measures. A store for test: is
prepared from documents of its own, with the tokenizer of the others.`,
		Example: `  refrain data prepare held-out -o store/test --tokenizer store/tokenizer.json --val-docs 0
  refrain study ablation recipe.yaml --dry-run
  refrain study ablation recipe.yaml --max-parallel 2
  refrain study ablation recipe.yaml --json > recipe.json
  refrain report recipe.json -o recipe.html`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			spec, err := a.loadSweep(c, list[0], &o, (*study.Spec).CheckAblation)
			if err != nil {
				return err
			}
			if o.dry {
				return a.sweepDry(spec, o)
			}
			return a.ablation(c.Context(), spec, o)
		},
	}
	o.flags(c)
	return c
}

func (a *app) ablation(ctx context.Context, spec *study.Spec, o sweepOptions) error {
	j, err := openSweep(spec, lockRegistry)
	if err != nil {
		return err
	}
	defer j.reg.Close()
	if err := study.CheckTest(j.cells, spec.Test); err != nil {
		return err
	}
	work, live := a.sweepWork(j, j.cells, o)
	records, err := work.Sweep(ctx, j.cells)
	live.end(err == nil)
	if err != nil && !errors.Is(err, study.ErrBudget) {
		return sameCommand(err)
	}
	if err == nil {
		err = failedCells(records)
	}
	res, measureErr := work.Ablation(ctx, a.meter(j, o), j.cells, records)
	if measureErr != nil {
		return sameCommand(errors.Join(measureErr, err))
	}
	if o.json {
		return errors.Join(a.record("ablation", res), err)
	}
	a.printAblation(res)
	return err
}

// sameCommand is err, which says of a stop how a command goes on that has no --resume:
// as it was given.
func sameCommand(err error) error {
	if errors.Is(err, run.ErrStopped) {
		return &run.Error{Code: run.ExitResumable, Err: errors.New("stopped before the end; everything is saved, the same command goes on")}
	}
	return err
}

// meter measures the runs of a study.
func (a *app) meter(j *sweepJob, o sweepOptions) *study.Meter {
	return &study.Meter{Registry: j.reg, Stop: a.signals.Graceful(), Place: (&study.Local{Parallel: o.parallel}).Placement}
}

// contrastWords are a difference, its interval, its two errors, and whether it is clear.
func contrastWords(c *study.Contrast) (difference, interval, errs, clear string) {
	if c == nil {
		return "-", "-", "-", "-"
	}
	optional := func(x *float64) string {
		if x == nil {
			return "-"
		}
		return fmt.Sprintf("%.4f", *x)
	}
	interval, clear = "-", "one seed"
	if c.Interval != nil {
		interval, clear = fmt.Sprintf("%+.4f to %+.4f", c.Interval[0], c.Interval[1]), "no"
	}
	if c.Clear {
		clear = "yes"
	}
	return fmt.Sprintf("%+.4f", c.Difference), interval, optional(c.StdErrDocuments) + " " + optional(c.StdErrSeeds), clear
}

func (a *app) printAblation(r *study.Ablation) {
	a.printf("loss on %s, %d rows, %d tokens; differences from %s\n", r.Store, r.Rows, r.Tokens, r.Base)
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "loss\tseeds\tdifference\t95 % interval\tstderr docs, seeds\tclear\tsettings")
	for _, x := range r.Arms {
		d, in, errs, clear := contrastWords(x.Contrast)
		if x.Label == r.Base {
			clear = "base"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", armLoss(x), len(x.Losses), d, in, errs, clear, x.Label)
	}
	t.Flush()
	if len(r.Effects) > 0 {
		a.printf("\n")
		fmt.Fprintln(t, "pairs\tdifference\t95 % interval\tstderr docs, seeds\tclear\teffect")
	}
	for _, e := range r.Effects {
		d, in, errs, clear := contrastWords(e.Contrast)
		pairs, where := 0, "over all others"
		if e.Contrast != nil {
			pairs = e.Contrast.Pairs
		}
		if e.At != "" {
			where = "at " + e.At
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s against %s, %s\n", pairs, d, in, errs, clear, e.Level, e.Base, where)
	}
	t.Flush()
	for _, w := range r.Warnings {
		a.notef("%s", w)
	}
}

// armLoss words the mean loss of an arm and its spread over seeds.
func armLoss(x *study.Arm) string {
	text := number(x.Loss)
	if x.Loss != nil && x.Spread != nil {
		text += fmt.Sprintf(" +- %.4f", *x.Spread)
	}
	return text
}
