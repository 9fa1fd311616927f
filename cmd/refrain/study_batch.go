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

func (a *app) batchCommand() *cobra.Command {
	var o sweepOptions
	c := &cobra.Command{
		Use:   "batch SPEC",
		Short: "Find the best batch, each tuned for itself, on more than one pool of documents",
		Long: `Batch tunes learning rate, decay and epochs for every batch by coordinate descent on
the first pool, each with a certificate, and compares the best endpoints: over the
same seeds, on the same documents of the validation store, or of a store that test:
names, which no setting was chosen by. Then it trains the same settings on the other
pools and holds the batches against each other there. Beside each loss stands that on
documents the runs were trained on.

  # batch.yaml
  base: run.yaml
  batches: [4, 16, 64]
  grid:
    optim.lr: [0.001, 0.002, 0.004, 0.008]
    optim.weight_decay: [0.1, 0.4, 1.6, 6.4]
    train.epochs: [4, 8, 16, 32]
  descend: {start: {optim.lr: 0.002, optim.weight_decay: 1.6, train.epochs: 8}}
  seeds: [0, 1, 2]
  pools:
    - {data.pool: 1/2}
    - {data.pool: 2/2}
  test: store/test
  out: sweeps/batch

The first batch starts where the file says, each other one from the best place of the
batch before it. A shape is read from clear differences only: u-shaped when a smaller
and a larger batch are both clearly worse than the best one of the first pool.
optim.beta2_reference_batch in the base keeps the half-life of the second moment in
tokens over batches. The same command goes on after any stop.`,
		Example: `  refrain data prepare held-out -o store/test --tokenizer store/tokenizer.json --val-docs 0
  refrain study batch batch.yaml --dry-run
  refrain study batch batch.yaml
  refrain study batch batch.yaml --budget 4h --json > batch.json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			spec, err := a.loadSweep(c, list[0], &o, (*study.Spec).CheckBatches)
			if err != nil {
				return err
			}
			if o.dry {
				return a.sweepDry(spec, o)
			}
			return a.batch(c.Context(), spec, o)
		},
	}
	o.flags(c)
	return c
}

func (a *app) batch(ctx context.Context, spec *study.Spec, o sweepOptions) error {
	j, err := openSweep(spec, lockRegistry)
	if err != nil {
		return err
	}
	defer j.reg.Close()
	warnings, err := spec.CheckPools()
	if err != nil {
		return err
	}
	work, live := a.sweepWork(j, j.cells, o)
	res, err := work.Batches(ctx, a.meter(j, o))
	live.end(err == nil)
	if res == nil {
		return sameCommand(err)
	}
	res.Warnings = append(warnings, res.Warnings...)
	if err == nil {
		err = failedCells(live.all())
	}
	if err == nil && res.Reference == "" {
		err = &run.Error{Code: run.ExitFailed, Err: errors.New("no batch could be trained, so there is nothing to compare; start where training works")}
	}
	if o.json {
		return errors.Join(a.record("batch", res), sameCommand(err))
	}
	a.printBatches(res)
	return sameCommand(err)
}

func (a *app) printBatches(r *study.BatchStudy) {
	for _, t := range r.Tuned {
		a.printf("batch %s\n", t.Batch)
		if t.Certificate == nil {
			a.printf("missing: %s\n", t.Trouble)
			continue
		}
		a.printCertificate(t.Certificate, r.Registry)
	}
	if r.Reference != "" { // or there is an error beside it
		a.printPools(r)
	}
	for _, w := range r.Warnings {
		a.notef("%s", w)
	}
}

// printPools prints the endpoints on every pool.
func (a *app) printPools(r *study.BatchStudy) {
	a.printf("loss on %s, %d rows, %d tokens; differences from batch %s\n", r.Store, r.Rows, r.Tokens, r.Reference)
	for _, p := range r.Pools {
		how := "settings of the first pool"
		if p.Tuned {
			how = "settings chosen here"
		}
		a.printf("pool  %s  %s  %s\n", p.Pool, how, p.Shape)
		t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "batch\tsteps\tloss\tchosen by\ton seen\tseeds\tdifference\t95 % interval\tstderr docs, seeds\tclear")
		for _, e := range p.Endpoints {
			d, in, errs, clear := contrastWords(e.Contrast)
			if e.Batch == r.Reference {
				clear = "base"
			}
			fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", e.Batch, e.Steps, armLoss(e.Arm), number(e.Val), number(e.Train), len(e.Losses), d, in, errs, clear)
		}
		t.Flush()
	}
}
