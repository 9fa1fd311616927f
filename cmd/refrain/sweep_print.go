package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"refrain/study"
	"refrain/study/descent"
)

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
	if r.Recipe != nil {
		a.printRecipe(r.Recipe, r.Registry)
	} else if r.Best != nil {
		a.printf("the best is %s; runs are in %s\n", strings.Join(r.Best.Runs, " "), r.Registry)
	}
	a.sweepOthers(r.Others)
}

func (a *app) printRecipe(r *study.Recipe, dir string) {
	for _, s := range r.Sizes {
		a.printf("size  %s  %s parameters\n", s.Label, short(float64(s.Params)))
		if s.Certificate == nil {
			a.printf("missing: %s\n", s.Trouble)
			continue
		}
		a.printCertificate(s.Certificate, dir)
	}
	if len(r.Sizes) > 1 && r.Best >= 0 {
		a.printf("best size  %s  loss %.4f\n", r.Sizes[r.Best].Label, r.Sizes[r.Best].Certificate.Loss)
	}
	if l := r.Law; l != nil {
		a.printf("law over millions of parameters  A %.4g  alpha %.4g  E %.4f  rmse %.5f\n", l.A, l.Alpha, l.E, l.RMSE)
		for _, w := range l.Warnings {
			a.notef("%s", w)
		}
	}
	for _, w := range r.Warnings {
		a.notef("%s", w)
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
