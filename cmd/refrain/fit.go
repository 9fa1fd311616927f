package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"refrain/internal/run"
	"refrain/study/fit"
)

// defaultResamples is how many bootstrap samples give an interval.
const defaultResamples = 1000

func (a *app) fitCommand() *cobra.Command {
	var (
		xy, nk     string
		start      string
		loss, base float64
		o          fit.Options
		asJSON     bool
	)
	c := &cobra.Command{
		Use:   "fit --xy X:LOSS,...",
		Short: "Fit L = A / x^alpha + E to losses: asymptotes, double limits, data efficiency",
		Long: `Fit finds the law L(x) = A / x^alpha + E with the least squares, x being parameters,
unique tokens or ensemble members in any unit: E is where the loss would end. It
prints residuals, and intervals by bootstrap from six points on, by leaving one
out with four or five. Three points are the least, and tell nothing about the fit.

--start params keeps A, alpha and E at or above 0 and begins at 1, 0.5 and 2;
--start ensemble has no bounds and begins at 1, 1 and 1.

--nk takes losses of ensembles as N:K:LOSS and gives the double limit: a law over
the members K for every size N, then a law over N of their asymptotes.

--loss and --base, beside --xy of the standard recipe's losses over unique tokens,
give the data efficiency: how many times the tokens behind --base the standard
recipe would need for --loss.`,
		Example: `  refrain fit --xy 0.15:3.4949,0.3:3.2730,0.6:3.2122,1.4:3.1740
  refrain fit --start ensemble --xy 1:3.57,2:3.46,3:3.42,5:3.39 --json
  refrain fit --nk 0.15:1:3.7,0.15:2:3.6,0.15:3:3.56,0.3:1:3.6,0.3:2:3.45,0.3:3:3.4,0.6:1:3.5,0.6:2:3.4,0.6:3:3.36
  refrain fit --xy 0.2:3.75,0.4:3.48,0.8:3.26,1.6:3.07 --loss 3.43 --base 3.75`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			o.Start = fit.Start(start)
			switch {
			case (xy == "") == (nk == ""):
				return bad(c, "give either --xy or --nk")
			case c.Flags().Changed("loss") != c.Flags().Changed("base"):
				return bad(c, "--loss and --base belong together")
			case nk != "" && c.Flags().Changed("loss"):
				return bad(c, "--loss needs --xy, the standard recipe's losses over tokens")
			}
			if nk != "" {
				return a.fitLimit(c, nk, o, asJSON)
			}
			points, err := parsePoints(xy)
			if err != nil {
				return bad(c, "%v", err)
			}
			r, err := fit.Fit(points, o)
			if err != nil {
				return &run.Error{Code: run.ExitData, Err: err}
			}
			if !c.Flags().Changed("loss") {
				return a.fitted(r, asJSON)
			}
			return a.fitEfficiency(r, loss, base, asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&xy, "xy", "", "points as X:LOSS,X:LOSS,...")
	f.StringVar(&nk, "nk", "", "losses of ensembles as N:K:LOSS,..., for a double limit")
	f.StringVar(&start, "start", string(fit.Params), "where the search begins: params or ensemble")
	f.Float64Var(&loss, "loss", 0, "a recipe's loss, whose data efficiency is asked for")
	f.Float64Var(&base, "base", 0, "the standard recipe's loss on the same data")
	f.IntVar(&o.Resamples, "resamples", defaultResamples, "bootstrap samples; 0 leaves the intervals out")
	f.Uint64Var(&o.Seed, "seed", 0, "of the bootstrap")
	f.Float64Var(&o.LeastE, "least-e", 0, "an asymptote below this marks a broken fit (the papers use 1.8)")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// fitted prints a law.
func (a *app) fitted(r fit.Result, asJSON bool) error {
	if asJSON {
		return a.record("fit", r)
	}
	a.printf("A %.6g  alpha %.6g  E %.6f  rmse %.5f\n", r.A, r.Alpha, r.E, r.RMSE)
	if in := r.Intervals; in != nil {
		how := fmt.Sprintf("%s of %d fits", in.Method, in.Fits)
		if in.Level > 0 {
			how = fmt.Sprintf("%g %% by %s", 100*in.Level, how)
		}
		a.printf("A %.4g to %.4g  alpha %.4g to %.4g  E %.4f to %.4f  (%s)\n", in.A[0], in.A[1], in.Alpha[0], in.Alpha[1], in.E[0], in.E[1], how)
	}
	var residuals []string
	for _, v := range r.Residuals {
		residuals = append(residuals, strings.TrimLeft(fmt.Sprintf("%+.4f", math.Round(1e4*v)/1e4+0), "+"))
	}
	a.printf("residuals %s\n", strings.Join(residuals, " "))
	a.fitWarnings(r)
	return nil
}

func (a *app) fitWarnings(r fit.Result) {
	for _, w := range r.Warnings {
		a.notef("%s", w)
	}
	if r.Broken {
		a.notef("the fit is broken: do not use its asymptote")
	}
}

func (a *app) fitLimit(c *cobra.Command, nk string, o fit.Options, asJSON bool) error {
	cells, err := parseCells(nk)
	if err != nil {
		return bad(c, "%v", err)
	}
	lim, err := fit.DoubleLimit(cells, o)
	if err != nil {
		return &run.Error{Code: run.ExitData, Err: err}
	}
	if asJSON {
		return a.record("limit", lim)
	}
	for _, in := range lim.ByN {
		a.printf("N %-8g over K: A %.4g  alpha %.4g  E %.4f  rmse %.5f\n", in.N, in.A, in.Alpha, in.E, in.RMSE)
		a.fitWarnings(in.Result)
	}
	for _, s := range lim.Skipped {
		a.notef("left out: %s", s)
	}
	a.printf("over N: ")
	return a.fitted(lim.Joint, false)
}

func (a *app) fitEfficiency(r fit.Result, loss, base float64, asJSON bool) error {
	times, err := fit.Efficiency(r.Law, loss, base)
	if asJSON {
		out := struct {
			fit.Result
			Efficiency *float64 `json:"efficiency"` // null where it is undefined
			Undefined  string   `json:"undefined,omitempty"`
		}{Result: r}
		if err != nil {
			out.Undefined = err.Error()
		} else {
			out.Efficiency = &times
		}
		return a.record("fit", out)
	}
	if e := a.fitted(r, false); e != nil {
		return e
	}
	if err != nil {
		a.printf("data efficiency undefined: %v\n", err)
		return nil
	}
	a.printf("data efficiency %.3f: the standard recipe needs %.3f times its data for a loss of %.4f\n", times, times, loss)
	return nil
}

// parsePoints reads X:LOSS,X:LOSS.
func parsePoints(s string) ([]fit.Point, error) {
	var points []fit.Point
	err := eachGroup(s, 2, "X:LOSS", func(v []float64) error {
		points = append(points, fit.Point{X: v[0], Loss: v[1]})
		return nil
	})
	return points, err
}

// parseCells reads N:K:LOSS,N:K:LOSS.
func parseCells(s string) ([]fit.Cell, error) {
	var cells []fit.Cell
	err := eachGroup(s, 3, "N:K:LOSS", func(v []float64) error {
		k := int(v[1])
		if float64(k) != v[1] || k < 1 {
			return errors.New("K is a number of members, 1 or more")
		}
		cells = append(cells, fit.Cell{N: v[0], K: k, Loss: v[2]})
		return nil
	})
	return cells, err
}

// eachGroup calls f with the numbers of every group of n.
func eachGroup(s string, n int, form string, f func([]float64) error) error {
	for i, group := range strings.Split(s, ",") {
		parts := strings.Split(strings.TrimSpace(group), ":")
		wrong := func(err error) error {
			return fmt.Errorf("point %d, %q, is not %s: %w", i+1, group, form, err)
		}
		if len(parts) != n {
			return wrong(fmt.Errorf("it has %d numbers", len(parts)))
		}
		v := make([]float64, n)
		for j, p := range parts {
			var err error
			if v[j], err = strconv.ParseFloat(p, 64); err != nil {
				return wrong(fmt.Errorf("%q is no number", p))
			}
		}
		if err := f(v); err != nil {
			return wrong(err)
		}
	}
	return nil
}
