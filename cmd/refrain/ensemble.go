package main

import (
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"refrain/internal/run"
	"refrain/study/ensemble"
	"refrain/study/fit"
)

// ensembleFlags are what the command line says beside the members.
type ensembleFlags struct {
	ensemble.Request
	decay    float64
	memory   int64 // MiB
	groups   []string
	asJSON   bool
	noSubset bool
}

func (a *app) ensembleCommand() *cobra.Command {
	var f ensembleFlags
	c := &cobra.Command{
		Use:   "ensemble RUN... [key=value...]",
		Short: "Measure what several runs predict together: K-curve, asymptote, weights, soup",
		Long: `Ensemble averages the predictions of several runs on the same validation documents: the
logits, as the papers do, and the probabilities. It prints the loss of the first 1, 2, ... K
members, what each gains over the best one alone with the standard error of that
difference over documents, the spread over all subsets for up to 6 members, and from
three members on the law L = A / K^alpha + E: E is where more members would lead.

A RUN is a run folder, of which the newest checkpoint counts, or one checkpoint. RUN@cycles
stands for what a run with optim.schedule=cyclic has kept at the end of every cycle,
RUN@cycle-2 for one of them, RUN@120 for the checkpoint of a step. Members
need one tokenizer, the same validation documents and the same data.seq; their shapes may
differ. They are read one at a time, so memory is that of one model and of the logits of
a block of rows (--memory). key=value arguments are read over the configurations of all.

--fit-on STORE also fits weights of the members' logits, on documents that neither
validation nor training has seen. --soup and --ema evaluate the average of the members'
weights as one model, a baseline; --ema takes checkpoints of one run, in order.

--group NAME=RUN,RUN,... twice or more ranks recipes by the asymptote of their ensembles,
with the rank by single models beside it: the best recipe for members is more overfit than
the best one alone, often with half the weight decay.`,
		Example: `  for s in 1 2 3 4; do refrain train run.yaml train.seed=$s --out runs/s$s; done
  refrain ensemble runs/s1 runs/s2 runs/s3 runs/s4
  refrain ensemble runs/s* --fit-on third --soup --json
  refrain ensemble runs/long@cycles --fit-on third
  refrain train run.yaml save.every=20 save.keep=5 --out runs/e && refrain ensemble runs/e/ckpt/step-* --ema 0.5
  refrain ensemble --group full=runs/a1,runs/a2,runs/a3 --group half=runs/b1,runs/b2,runs/b3`,
		RunE: func(c *cobra.Command, list []string) error {
			for _, arg := range list {
				if _, err := os.Stat(arg); err != nil && strings.Contains(arg, "=") {
					f.Overrides = append(f.Overrides, arg)
				} else {
					f.Members = append(f.Members, arg)
				}
			}
			if err := f.check(c); err != nil {
				return err
			}
			if len(f.groups) > 0 {
				return a.rankGroups(c, f)
			}
			rep, err := ensemble.Measure(c.Context(), f.Request)
			if err != nil {
				return err
			}
			if f.asJSON {
				return a.record("ensemble", rep)
			}
			a.showEnsemble(rep)
			return nil
		},
	}
	fl := c.Flags()
	fl.BoolVar(&f.asJSON, "json", false, "print one JSON object")
	fl.StringVar(&f.Val, "val", "", "validate on this store instead of the runs' own")
	fl.StringVar(&f.FitOn, "fit-on", "", "fit weights of the members on this store")
	fl.BoolVar(&f.Soup, "soup", false, "also evaluate the average of the members' weights")
	fl.Float64Var(&f.decay, "ema", 0, "also evaluate the moving average of the members' weights with this decay")
	fl.BoolVar(&f.AllowCopies, "allow-copies", false, "let members have equal weights")
	fl.StringArrayVar(&f.groups, "group", nil, "a recipe as NAME=RUN,RUN,RUN; repeat it to rank recipes")
	fl.IntVar(&f.Resamples, "resamples", 200, "samples of documents for intervals of asymptotes; 0 leaves them out")
	fl.Uint64Var(&f.Seed, "seed", 0, "of the samples")
	fl.Int64Var(&f.Rows, "rows", 0, "evaluate this many rows only; 0 means all")
	fl.Int64Var(&f.memory, "memory", ensemble.DefaultMemory>>20, "MiB of logits that may be held at once")
	fl.IntVar(&f.Threads, "threads", 0, "worker threads; 0 means one a processor")
	fl.BoolVar(&f.noSubset, "no-subsets", false, "leave out the subsets, which take most of the time of 5 and 6 members")
	return c
}

// check completes the request and reports mistakes of the command line.
func (f *ensembleFlags) check(c *cobra.Command) error {
	f.Memory = f.memory << 20
	if !f.noSubset {
		f.Subsets = ensemble.MostSubsets
	}
	if c.Flags().Changed("ema") {
		f.EMA = &f.decay
	}
	switch {
	case len(f.groups) == 0 && len(f.Members) == 0:
		return bad(c, "%s; no run was named", c.UseLine())
	case len(f.groups) > 0 && len(f.Members) > 0:
		return bad(c, "name runs either as arguments or in --group")
	case len(f.groups) == 1:
		return bad(c, "one --group has nothing to be ranked against; name two or more")
	case len(f.groups) > 0 && (f.FitOn != "" || f.Soup || f.EMA != nil):
		return bad(c, "--fit-on, --soup and --ema are of one ensemble; leave out --group")
	case f.memory < 1:
		return bad(c, "--memory %d; use 1 MiB or more", f.memory)
	case f.Rows < 0 || f.Resamples < 0 || f.Threads < 0:
		return bad(c, "--rows, --resamples and --threads are 0 or more")
	case f.EMA != nil && !(f.decay >= 0 && f.decay < 1):
		return bad(c, "--ema %g; use a decay from 0 to below 1", f.decay)
	}
	return nil
}

// showEnsemble prints a report.
func (a *app) showEnsemble(r *ensemble.Report) {
	varies := "equal seeds"
	if r.Varies != "" {
		varies = "seeds differ in " + r.Varies
	}
	a.printf("%d members (%s) on %s: %d tokens in %d documents, data.seq %d\n", len(r.Members), varies, r.Store, r.Tokens, r.Docs, r.Seq)
	for i, m := range r.Members {
		mark := ""
		if i == r.Best {
			mark = "  best single"
		}
		a.printf("  %d  loss %.4f  %s%s\n", i+1, m.Loss, m.Path, mark)
	}
	a.printf("\n  K  logit mean  gain over best single    probability mean  gain over best single\n")
	for _, p := range r.Curve {
		a.printf("%3d  %-10.4f  %-24s %-16.4f  %s\n", p.K, p.Logit.Loss, gainText(p.Logit.Gain, p.Logit.GainStdErr), p.Prob.Loss, gainText(p.Prob.Gain, p.Prob.GainStdErr))
	}
	if len(r.Subsets) > 2 {
		a.printf("\nall subsets of K   logit mean: mean, range       probability mean: mean, range\n")
		for _, s := range r.Subsets {
			a.printf("%3d  %9s     %.4f  %.4f to %.4f      %.4f  %.4f to %.4f\n", s.K, fmt.Sprintf("(%d)", s.Subsets), s.Logit.Mean, s.Logit.Min, s.Logit.Max, s.Prob.Mean, s.Prob.Min, s.Prob.Max)
		}
	}
	if r.LogitLaw != nil {
		a.printf("\n")
		a.showLaw("logit mean", r.LogitLaw)
		a.showLaw("probability mean", r.ProbLaw)
	}
	if l := r.Learned; l != nil {
		a.printf("\nlearned weights %.3f, fitted on %s: loss %.4f, %s against the plain logit mean\n", l.Weights, l.Store, l.Mean.Loss, gainText(l.OverPlain, l.OverPlainError))
	}
	if r.Soup != nil {
		a.printf("weight average (baseline, one model): loss %.4f, %s against the best single\n", r.Soup.Loss, gainText(r.Soup.Gain, r.Soup.GainStdErr))
	}
	if r.EMA != nil {
		a.printf("moving average of weights (baseline, one model): loss %.4f, %s against the best single\n", r.EMA.Loss, gainText(r.EMA.Gain, r.EMA.GainStdErr))
	}
	a.printf("memory: one model %s, logits %s in blocks of %d rows\n", run.BytesText(r.ModelBytes), run.BytesText(r.LogitBytes), r.BlockRows)
	for _, w := range r.Warnings {
		a.notef("%s", w)
	}
}

// gainText is a gain with its error where there is one.
func gainText(gain float64, se *float64) string {
	text := fmt.Sprintf("%+.4f", math.Round(1e4*gain)/1e4+0)
	if se != nil {
		text += fmt.Sprintf(" +- %.4f", *se)
	}
	return text
}

func (a *app) showLaw(name string, l *ensemble.Asymptote) {
	a.printf("%s for ever more members: E %.4f", name, l.E)
	if l.ByDocuments != nil {
		a.printf(" (%g %% over documents: %.4f to %.4f)", 100*l.Level, l.ByDocuments[0], l.ByDocuments[1])
	}
	if in := l.Intervals; in != nil {
		a.printf(" (%s: %.4f to %.4f)", in.Method, in.E[0], in.E[1])
	}
	broken := ""
	if l.Broken {
		broken = "  broken"
	}
	a.printf("  A %.4g  alpha %.4g  rmse %.5f%s\n", l.A, l.Alpha, l.RMSE, broken)
	for _, w := range l.Warnings {
		a.notef("%s: %s", name, w)
	}
	if l.Broken {
		a.notef("%s: the fit is broken: do not use its asymptote", name)
	}
}

// groupRanking is what --group prints with --json.
type groupRanking struct {
	Logit   []ensemble.Ranked           `json:"logit"`
	Prob    []ensemble.Ranked           `json:"prob"`
	Reports map[string]*ensemble.Report `json:"reports"` // by name of the group
}

func (a *app) rankGroups(c *cobra.Command, f ensembleFlags) error {
	out := groupRanking{Reports: map[string]*ensemble.Report{}}
	var logit, prob []ensemble.Curve
	var first string
	for _, g := range f.groups {
		name, runs, ok := strings.Cut(g, "=")
		if !ok || name == "" || runs == "" {
			return bad(c, "--group %q is not NAME=RUN,RUN,RUN", g)
		}
		if out.Reports[name] != nil {
			return bad(c, "two groups are called %s", name)
		}
		r := f.Request
		r.Members = strings.Split(runs, ",")
		if len(r.Members) < 3 {
			return bad(c, "group %s has %d runs; an asymptote needs 3", name, len(r.Members))
		}
		rep, err := ensemble.Measure(c.Context(), r)
		if err != nil {
			return fmt.Errorf("group %s: %w", name, err)
		}
		if o := out.Reports[first]; o == nil {
			first = name
		} else if o.DataHash != rep.DataHash || o.Seq != rep.Seq || o.DocMask != rep.DocMask {
			return &run.Error{Code: run.ExitData, Err: fmt.Errorf("groups %s and %s are measured on different rows; give --val, and data.seq=N and data.doc_mask=true or false", first, name)}
		}
		out.Reports[name] = rep
		l, p := rep.Curves(name)
		logit, prob = append(logit, l), append(prob, p)
	}
	var err error
	if out.Logit, err = ensemble.Rank(logit, fit.Options{}); err != nil {
		return &run.Error{Code: run.ExitData, Err: err}
	}
	if out.Prob, err = ensemble.Rank(prob, fit.Options{}); err != nil {
		return &run.Error{Code: run.ExitData, Err: err}
	}
	if f.asJSON {
		return a.record("ensembles", out)
	}
	for _, part := range []struct {
		name string
		list []ensemble.Ranked
	}{{"logit mean", out.Logit}, {"probability mean", out.Prob}} {
		a.printf("%s\n  rank  asymptote   K  at K    rank alone  alone   recipe\n", part.name)
		for _, r := range part.list {
			rank := fmt.Sprint(r.Rank)
			if r.Rank == 0 {
				rank = "-"
			}
			a.printf("  %4s  %-9.4f  %2d  %.4f  %10d  %.4f  %s\n", rank, r.E, r.Members, r.Last, r.SingleRank, r.Single, r.Name)
		}
	}
	for _, r := range out.Logit {
		for _, w := range r.Law.Warnings {
			a.notef("%s: %s", r.Name, w)
		}
	}
	return nil
}
