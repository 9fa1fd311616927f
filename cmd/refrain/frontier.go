package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"refrain/study"
	"refrain/study/frontier"
)

// frontierFlags say what of the records counts and what a step costs. refrain plan has
// them too.
type frontierFlags struct {
	perGPU   int
	stepTime string
	stepMS   float64
	read     study.EndpointOptions
}

func (f *frontierFlags) add(fl *pflag.FlagSet) {
	fl.IntVar(&f.perGPU, "per-gpu-batch", 0, "rows that one GPU takes at a time; 0 is the smallest batch of the runs")
	fl.StringVar(&f.stepTime, "step-time", "", "a file of step times, or measured: those of the runs")
	fl.Float64Var(&f.stepMS, "step-ms", 0, "milliseconds of one optimiser-step equivalent, instead of --step-time")
	fl.BoolVar(&f.read.AnyCode, "any-code", false, "take runs of several revisions of the program")
}

func (f *frontierFlags) check(c *cobra.Command) error {
	switch {
	case f.stepTime != "" && c.Flags().Changed("step-ms"):
		return bad(c, "--step-time and --step-ms both say what a step takes; keep one")
	case c.Flags().Changed("step-ms") && !(f.stepMS > 0):
		return bad(c, "--step-ms %g; use a number above 0", f.stepMS)
	case f.perGPU < 0:
		return bad(c, "--per-gpu-batch %d; use 1 or more", f.perGPU)
	}
	return nil
}

// times are what the flags say about the time of a step.
func (f *frontierFlags) times(c *cobra.Command, rec *study.Endpoints) (frontier.Times, error) {
	switch f.stepTime {
	case "":
		return frontier.Times{PerEquivalent: f.stepMS}, nil
	case "measured":
		if rec.TimesTrouble != "" {
			return frontier.Times{}, bad(c, "--step-time measured: %s", rec.TimesTrouble)
		}
		return rec.Times, nil
	}
	t, err := frontier.ReadTimes(f.stepTime)
	if err != nil {
		return frontier.Times{}, err
	}
	return *t, nil
}

func (a *app) frontierCommand() *cobra.Command {
	var f frontierFlags
	var gpus, deadlines, ways, latency string
	var asJSON bool
	c := &cobra.Command{
		Use:   "frontier RECORDS...",
		Short: "The least loss for so many GPUs and so much time, from finished runs",
		Long: `Frontier reads finished runs, from registries of sweeps, run folders and folders of run
folders, and says which loss they reach on how many GPUs in how much time. Time is in
optimiser-step equivalents: with b rows a GPU, a step of B rows on G GPUs is
ceil(B / (b*G)) of them. Every number is that of runs whose schedule ended, the mean over
their seeds; sizes of models are apart, since the unit is a step of the model.

--step-time measured adds an axis of seconds from the speed of the runs themselves;
--step-time FILE from a file; --step-ms from one time for every equivalent. A batch on a
number of GPUs that was not measured is left out, not guessed.

--prefix also takes evaluations on the way of longer runs, marked with @. Their learning
rate had not come down, so each is a biased stand-in for a run of that length.

--latency f,c adds a projection in a panel of its own: p GPUs share the step of one and
make it s(p) = 1/(f + (1-f)/p + c*log2(p)) times faster. --latency FILE fits f and c to
measured times. docs/formats/frontier.md describes the files.`,
		Example: `  refrain sweep batches.yaml                         # train.batch: [8, 16, 32] and so on
  refrain frontier sweeps/batches --per-gpu-batch 8
  refrain frontier sweeps/batches --gpus 1,2,4,8 --deadlines 500,1000,2000 --json
  refrain frontier sweeps/batches --step-time measured
  refrain frontier sweeps/batches --latency 0.1,0.02 --ways 1,2,4
  refrain plan --deadline 6h --gpus 8 --records sweeps/batches --step-ms 120`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			if err := f.check(c); err != nil {
				return err
			}
			o := frontier.Options{PerGPU: f.perGPU}
			var err error
			if o.GPUs, err = intList(gpus); err != nil {
				return bad(c, "--gpus %s: %v", gpus, err)
			}
			if o.Ways, err = intList(ways); err != nil {
				return bad(c, "--ways %s: %v", ways, err)
			}
			if ways != "" && latency == "" {
				return bad(c, "--ways are of the projection; give --latency")
			}
			if o.Deadlines, err = floatList(deadlines); err != nil {
				return bad(c, "--deadlines %s: %v", deadlines, err)
			}
			if o.Latency, err = parseLatency(latency); err != nil {
				return bad(c, "--latency %s: %v", latency, err)
			}
			rec, err := study.ReadEndpoints(list, f.read)
			if err != nil {
				return err
			}
			if o.Times, err = f.times(c, rec); err != nil {
				return err
			}
			r, err := rec.Build(o)
			if err != nil {
				return err
			}
			if asJSON {
				return a.record("frontier", r)
			}
			a.showFrontier(r)
			return nil
		},
	}
	fl := c.Flags()
	f.add(fl)
	fl.BoolVar(&f.read.Prefix, "prefix", false, "take evaluations inside longer schedules too, marked as such")
	fl.StringVar(&gpus, "gpus", "", "numbers of GPUs to list; empty: powers of two")
	fl.StringVar(&deadlines, "deadlines", "", "deadlines to list, in optimiser-step equivalents; empty: where the best changes")
	fl.StringVar(&latency, "latency", "", "project GPUs that share a step: f,c or a file of measured times")
	fl.StringVar(&ways, "ways", "", "numbers of GPUs that share a step; empty: 1,2,4,8")
	fl.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func intList(text string) ([]int, error) {
	var out []int
	for _, part := range splitList(text) {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no whole number from 1 up", part)
		}
		out = append(out, n)
	}
	return out, nil
}

func floatList(text string) ([]float64, error) {
	var out []float64
	for _, part := range splitList(text) {
		x, err := strconv.ParseFloat(part, 64)
		if err != nil || !(x > 0) {
			return nil, fmt.Errorf("%q is no number above 0", part)
		}
		out = append(out, x)
	}
	return out, nil
}

func splitList(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// parseLatency reads f,c; what is no pair of numbers is the name of a file.
func parseLatency(text string) (*frontier.Latency, error) {
	if text == "" {
		return nil, nil
	}
	first, second, two := strings.Cut(text, ",")
	x, err1 := strconv.ParseFloat(first, 64)
	y, err2 := strconv.ParseFloat(second, 64)
	if two && err1 == nil && err2 == nil {
		return frontier.NewLatency(x, y)
	}
	if two || err1 == nil {
		return nil, fmt.Errorf("want two numbers as f,c, or the name of a file")
	}
	return frontier.ReadLatency(text)
}

// showFrontier prints a report.
func (a *app) showFrontier(r *frontier.Report) {
	trained := 0
	for _, x := range r.Runs {
		if !x.Prefix {
			trained += x.Seeds
		}
	}
	a.printf("%d points, means over seeds of %d runs; validation on %d tokens\n", len(r.Runs), trained, r.Data.ValTokens)
	for i := range r.Models {
		m := &r.Models[i]
		from := ""
		if m.PerGPUAssumed {
			from = ", the smallest batch of its runs"
		}
		a.printf("\nmodel of %s params, %d rows a GPU%s\n", short(float64(m.Params)), m.PerGPU, from)
		a.showPanel(m.Frontier, equivalentText, true)
		if p := m.Projected; p != nil {
			a.printf("\nPROJECTED, not observed: p GPUs share a step, f %.4g, c %.4g (%s); s =", m.Latency.Serial, m.Latency.Communication, m.Latency.From)
			for j, w := range m.Ways {
				a.printf(" %.3gx with %d", m.Speedups[j], w)
				if j < len(m.Ways)-1 {
					a.printf(",")
				}
			}
			a.printf("\n")
			a.showPanel(p, equivalentText, false)
		}
	}
	if r.Wall != nil {
		a.printf("\nall models, %s\n", r.Wall.Axis)
		a.showPanel(r.Wall, secondText, true)
	}
	for _, l := range r.Left {
		a.notef("left out: %s: %s", l.Path, l.Why)
	}
	for _, w := range r.Warnings {
		a.notef("%s", w)
	}
}

// showPanel prints the grid as a table, loss, batch and GPUs really used, and, where list
// says so, the Pareto set. when words a time of the axis.
func (a *app) showPanel(p *frontier.Panel, when func(float64) string, list bool) {
	a.printf("  loss, Batch/GPUs used, for deadlines in %s\n  %6s", p.Axis, "GPUs")
	for _, t := range p.Deadlines {
		a.printf("  %16s", when(t))
	}
	a.printf("\n")
	for i, c := range p.Grid {
		if i%len(p.Deadlines) == 0 {
			a.printf("  %6d", c.GPUs)
		}
		a.printf("  %16s", cellText(c.Best))
		if i%len(p.Deadlines) == len(p.Deadlines)-1 {
			a.printf("\n")
		}
	}
	if !list {
		return
	}
	a.printf("  nothing else is as good in GPUs, time and loss:\n")
	for i := range p.Pareto {
		x := &p.Pareto[i]
		took := ""
		if x.Seconds != nil {
			took = round(seconds(*x.Seconds))
		}
		a.printf("    %3d GPUs  %-10s %-8s  loss %s  batch %d x %d steps", x.GPUs, when(x.Time), took, lossText(x), x.Batch, x.Steps)
		if x.Epochs > 0 {
			a.printf(" (%.4g epochs)", x.Epochs)
		}
		a.printf("  %s\n", x.Name)
	}
}

func equivalentText(t float64) string { return fmt.Sprintf("T=%.6g", t) }

func secondText(t float64) string { return round(seconds(t)) }

func lossText(x *frontier.Point) string {
	text := fmt.Sprintf("%.4f", x.Loss)
	if x.Seeds > 1 {
		text += fmt.Sprintf(" (sd %.4f, %d seeds)", x.SD, x.Seeds)
	}
	if x.Prefix {
		text += " @prefix"
	}
	return text
}

func cellText(x *frontier.Point) string {
	if x == nil {
		return "-"
	}
	mark := ""
	if x.Prefix {
		mark = "@"
	}
	if x.Ways > 1 {
		mark += fmt.Sprintf("/p%d", x.Ways)
	}
	return fmt.Sprintf("%.4f B%d/%d%s", x.Loss, x.Batch, x.GPUs, mark)
}

// planFrontier is refrain plan --records: the run to repeat for a deadline.
func (a *app) planFrontier(c *cobra.Command, list, records []string, f *frontierFlags, deadline time.Duration, gpus int, asJSON bool) error {
	if err := f.check(c); err != nil {
		return err
	}
	switch {
	case deadline <= 0 || gpus < 1:
		return bad(c, "--records needs --deadline (as 6h or 90m) and --gpus")
	case f.stepTime == "" && f.stepMS == 0:
		return bad(c, "a deadline in hours needs the time of a step: --step-ms, or --step-time with a file or the word measured")
	}
	rec, err := study.ReadEndpoints(records, f.read)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		// What was found for other documents says nothing about these.
		s, err := a.setup(c.Context(), list, asJSON)
		if err != nil {
			return err
		}
		hash, tok := s.DataHash, s.TokHash
		if err := s.Close(); err != nil {
			return err
		}
		if src := rec.Source; hash != src.DataHash || tok != src.TokenizerHash {
			return bad(c, "%s trains on other documents or ids (data hash %.12s, tokenizer %.12s) than the runs in %s (%.12s, %.12s)", list[0], hash, tok, strings.Join(records, ", "), src.DataHash, src.TokenizerHash)
		}
	}
	o := frontier.Options{PerGPU: f.perGPU}
	if o.Times, err = f.times(c, rec); err != nil {
		return err
	}
	r, err := rec.Build(o)
	if err != nil {
		return err
	}
	adv, err := r.Advise(o, gpus, deadline.Seconds())
	if err != nil {
		return err
	}
	if asJSON {
		return a.record("plan-frontier", adv)
	}
	a.printf("%d GPUs for %s, from %d points (%s)\n", gpus, round(deadline), len(r.Runs), r.Wall.Axis)
	if adv.Best == nil {
		if adv.Fastest == nil {
			a.printf("no run was timed on so few GPUs\n")
		} else {
			a.printf("no run fits; the shortest takes %s: %s\n", round(seconds(adv.Fastest.Time)), adviceText(adv.Fastest))
		}
		return nil
	}
	a.printf("best    %s\n", adviceText(adv.Best))
	for i := range adv.Fewer {
		a.printf("fewer   %s\n", adviceText(&adv.Fewer[i]))
	}
	for _, w := range r.Warnings {
		a.notef("%s", w)
	}
	if len(list) > 0 {
		a.printf("next    refrain train %s\n", shellWords(repeat(list, adv.Best)))
	}
	return nil
}

// repeat is the command line that trains a configuration as the run of x was: with the
// settings of its cell, or, of a run folder by itself, with its batch and length.
func repeat(list []string, x *frontier.Point) []string {
	words := strings.Fields(x.Name)
	for _, w := range words {
		if !strings.Contains(w, "=") || strings.ContainsRune(w, '/') {
			words = []string{fmt.Sprintf("train.batch=%d", x.Batch), fmt.Sprintf("train.steps=%d", x.Steps)}
			break
		}
	}
	lengths := []string{"train.epochs", "train.tokens", "train.steps"}
	key := func(w string) string { k, _, _ := strings.Cut(w, "="); return k }
	set := map[string]bool{}
	for _, w := range words {
		set[key(w)] = true
	}
	own := slices.ContainsFunc(lengths, func(k string) bool { return set[k] }) // of two lengths only one may stand
	out := list[:1:1]
	for _, w := range list[1:] {
		if !set[key(w)] && !(own && slices.Contains(lengths, key(w))) {
			out = append(out, w)
		}
	}
	for _, k := range lengths {
		if own && !set[k] {
			out = append(out, k+"=null")
		}
	}
	return append(out, words...)
}

// adviceText words a point for a plan.
func adviceText(x *frontier.Point) string {
	text := fmt.Sprintf("loss %s  %d of the GPUs for %s  batch %d x %d steps", lossText(x), x.GPUs, round(seconds(x.Time)), x.Batch, x.Steps)
	if x.Epochs > 0 {
		text += fmt.Sprintf(" (%.4g epochs)", x.Epochs)
	}
	return text + "  " + x.Name
}
