package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"refrain/internal/run"
	"refrain/study/chain"
	"refrain/study/ensemble"
)

// chainResult is what study chain prints with --json.
type chainResult struct {
	Members     []chain.Member   `json:"members"`
	Weight      float64          `json:"weight"`
	Temperature float64          `json:"temperature"`
	TopK        int              `json:"top_k"`
	Ensemble    *ensemble.Report `json:"ensemble"` // null without a validation store
}

func (a *app) chainCommand() *cobra.Command {
	r := chain.Request{}
	var asJSON bool
	var seed uint64
	c := &cobra.Command{
		Use:   "chain CONFIG -o DIR [key=value...]",
		Short: "Train an ensemble whose members teach each other in a row",
		Long: `Chain trains members of an ensemble one after the other. The first learns from the
tokens alone; for every other one the member before it is the teacher: its loss is
(1-w) * cross entropy + w * T^2 * KL(teacher || member), on the same rows. Members
have seeds of their own, for initial weights and order (--vary). At the end stand
the losses of the members and of all of them together, as refrain ensemble says it,
without its asymptote: members that get better are no draws of one recipe.

DIR gets the run folders member-1, member-2, ... After a stop the same command goes
on, and with more --members it adds to a chain that is there. What a chain gives
over members that learned alone is the difference of two ensembles: train the same
seeds without it, and give both to refrain ensemble --group.`,
		Example: `  refrain study chain run.yaml -o chains/first --members 4
  refrain study chain run.yaml -o chains/soft --members 4 --weight 0.7 --temperature 2
  refrain study chain run.yaml -o chains/first --members 8 --json > chain.json
  refrain ensemble chains/first/member-*`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			r.Config, r.Overrides = list[0], list[1:]
			if c.Flags().Changed("seed") {
				r.Seed = &seed
			}
			if r.Out == "" {
				return bad(c, "-o DIR is missing: where the members' run folders go")
			}
			return a.chain(c, r, asJSON)
		},
	}
	f := c.Flags()
	f.StringVarP(&r.Out, "out", "o", "", "folder of the members' run folders")
	f.IntVar(&r.Members, "members", 4, "members of the chain, the first included")
	f.Uint64Var(&seed, "seed", 0, "of the first member; each next one has the next (default train.seed of CONFIG)")
	f.StringVar(&r.Vary, "vary", "both", "what the seeds are for: both, init or order")
	f.Float64Var(&r.Weight, "weight", 0.5, "share of the teacher in the loss; the tokens have the rest")
	f.Float64Var(&r.Temperature, "temperature", 1, "that both predictions are softened by")
	f.IntVar(&r.TopK, "top-k", 0, "only the likeliest tokens of the teacher; 0 means all")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func (a *app) chain(c *cobra.Command, r chain.Request, asJSON bool) error {
	first, err := r.Check()
	if err != nil {
		return err
	}
	if err := a.ingest(c.Context(), &first.Config, asJSON); err != nil {
		return err
	}
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return &run.Error{Code: run.ExitDisk, Err: err}
	}
	r.Args, r.Stop = append([]string{"refrain"}, a.args...), a.graceful()
	r.Attend = func(number int, job *run.Job) (func(*run.Result, error), error) {
		if asJSON { // the output is one object
			quiet := *a
			quiet.quiet = true
			return quiet.attend(job, "")
		}
		if !a.quiet {
			a.printf("member %d of %d\n", number, r.Members)
		}
		return a.attend(job, "the same command")
	}
	out := chainResult{Weight: r.Weight, Temperature: r.Temperature, TopK: r.TopK}
	if out.Members, err = chain.Train(c.Context(), r); err != nil {
		return sameCommand(err)
	}
	if out.Members[0].Val != nil {
		ask := ensemble.Request{Chain: true, Subsets: ensemble.MostSubsets, Memory: ensemble.DefaultMemory, Rows: first.Config.Eval.Rows}
		for _, m := range out.Members {
			ask.Members = append(ask.Members, m.Run)
		}
		if out.Ensemble, err = ensemble.Measure(c.Context(), ask); err != nil {
			return err
		}
		// A law over the number of members is one of draws of a recipe, and these get better
		// from one to the next.
		out.Ensemble.LogitLaw, out.Ensemble.ProbLaw = nil, nil
	}
	if asJSON {
		return a.record("chain", out)
	}
	return a.printChain(&out)
}

func (a *app) printChain(r *chainResult) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "member\tseed\tsteps\ttrain loss\tval loss\tteacher")
	for _, m := range r.Members {
		teacher := "-"
		if m.Teacher != "" {
			teacher = filepath.Base(m.Teacher)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%.4f\t%s\t%s\n", filepath.Base(m.Run), m.Seed, m.Steps, m.Loss, number(m.Val), teacher)
	}
	err := t.Flush()
	if r.Ensemble == nil {
		a.notef("there is no validation store, so the ensemble is not measured")
		return err
	}
	a.printf("\n")
	a.showEnsemble(r.Ensemble)
	return errors.Join(err)
}
