package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"refrain/internal/run"
	"refrain/internal/run/config"
)

func (a *app) runsCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "runs",
		Short: "List runs, show one, compare two",
	}, a.runsListCommand(), a.runsShowCommand(), a.runsDiffCommand())
}

// runSummary is a run in one line, and what the commands print with --json.
type runSummary struct {
	Dir        string    `json:"dir"`
	ID         string    `json:"id"`
	Status     string    `json:"status"`
	Created    time.Time `json:"created"`
	Step       int64     `json:"step"`
	Steps      int64     `json:"steps,omitempty"` // 0: not known
	Epoch      float64   `json:"epoch"`
	Loss       *float64  `json:"loss"`
	Val        *float64  `json:"val_loss"`
	BestVal    *float64  `json:"best_val_loss"`
	BestStep   int64     `json:"best_val_step,omitempty"`
	TokensSec  float64   `json:"tok_s"`
	Chain      string    `json:"chain,omitempty"`
	Checkpoint string    `json:"checkpoint,omitempty"`
	ConfigHash string    `json:"config_hash"`
	DataHash   string    `json:"data_hash"`
	Reason     string    `json:"reason,omitempty"`
}

func summaryOf(r *run.Record) runSummary {
	s := runSummary{
		Dir: r.Dir, ID: r.Info.ID, Status: r.Status(), Created: r.Info.Created, Step: r.Last.Step, Epoch: r.Last.Epoch,
		TokensSec: r.Speed, Chain: r.Last.Chain, ConfigHash: r.Info.ConfigHash, DataHash: r.Info.DataHash,
	}
	if r.Last.Step > 0 {
		s.Loss = &r.Last.Loss
	}
	if n := len(r.Val); n > 0 {
		s.Val = &r.Val[n-1].Loss
	}
	if b, ok := r.Best(); ok {
		s.BestVal, s.BestStep = &b.Loss, b.Step
	}
	for _, v := range r.Saves {
		if v.Path != "" {
			s.Checkpoint = v.Path
		}
	}
	if r.Config != nil {
		s.Steps = stepsOf(r)
	}
	if r.Exit != nil {
		s.Reason = r.Exit.Reason
	}
	return s
}

// stepsOf is the length of the run: known when the configuration gives it in
// steps or tokens, or when the run is done; otherwise from the epoch reached.
func stepsOf(r *run.Record) int64 {
	t := &r.Config.Config.Train
	switch {
	case r.Status() == "done":
		return r.Last.Step
	case t.Steps > 0:
		return t.Steps
	case r.Last.Step > 0 && t.Epochs > 0 && r.Last.Epoch > 0:
		// A run ends with the last whole step of its last epoch; the small number
		// is for a product that is whole but for rounding.
		return int64(t.Epochs/r.Last.Epoch*float64(r.Last.Step) + 1e-6)
	}
	return 0
}

// number prints a loss, or a dash.
func number(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.4f", *x)
}

// readRun reads a run folder; a folder that is none is a mistake of usage.
func readRun(dir string) (*run.Record, error) {
	r, err := run.ReadRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%s is not a run folder (no %s)", dir, run.RunFile)}
	}
	return r, err
}

func (a *app) runsListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "ls [DIR...]",
		Short: "List the runs in folders (default runs)",
		Example: `  refrain runs ls
  refrain runs ls runs sweeps/lr --json`,
		RunE: func(_ *cobra.Command, list []string) error {
			byDefault := len(list) == 0
			if byDefault {
				list = []string{"runs"}
			}
			rows := []runSummary{}
			for _, dir := range list {
				found, err := run.FindRuns(dir)
				if errors.Is(err, fs.ErrNotExist) && byDefault {
					continue // nothing was trained here yet
				}
				if errors.Is(err, fs.ErrNotExist) {
					err = fmt.Errorf("there is no folder %s; name one that holds runs", dir)
				}
				if err != nil {
					return &run.Error{Code: run.ExitUsage, Err: err}
				}
				for _, d := range found {
					r, err := run.ReadRecord(d)
					if err != nil {
						a.notef("%v", err)
						continue
					}
					rows = append(rows, summaryOf(r))
				}
			}
			if asJSON {
				return a.json(rows)
			}
			if len(rows) == 0 {
				a.notef("no runs in %s", strings.Join(list, ", "))
				return nil
			}
			t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "run\tstatus\tstep\tepoch\tloss\tval\tbest\ttok/s\tcreated")
			for _, s := range rows {
				steps := fmt.Sprint(s.Step)
				if s.Steps > 0 {
					steps += fmt.Sprintf("/%d", s.Steps)
				}
				fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\t%s\t%s\t%s\t%s\t%s\n", s.Dir, s.Status, steps, s.Epoch, number(s.Loss), number(s.Val), number(s.BestVal), short(s.TokensSec), s.Created.Local().Format("2006-01-02 15:04"))
			}
			return t.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return c
}

func (a *app) runsShowCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "show RUN",
		Short:   "Show what a run is and how it stands",
		Example: `  refrain runs show runs/first`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, list []string) error {
			r, err := readRun(list[0])
			if err != nil {
				return err
			}
			s := summaryOf(r)
			if asJSON {
				return a.json(struct {
					runSummary
					Info  run.Info         `json:"info"`
					Evals []run.EvalRecord `json:"evals"`
				}{s, r.Info, r.Val})
			}
			a.showRun(r, &s)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func (a *app) showRun(r *run.Record, s *runSummary) {
	a.printf("%s  %s", s.Dir, s.Status)
	if s.Status == "running" {
		a.printf(", last line %s ago", round(time.Since(r.Wrote)))
	}
	a.printf("\n  step %d", s.Step)
	if s.Steps > 0 {
		a.printf(" of %d", s.Steps)
	}
	a.printf("  epoch %.3f  loss %s  val %s", s.Epoch, number(s.Loss), number(s.Val))
	if s.BestVal != nil {
		a.printf("  best val %s at step %d", number(s.BestVal), s.BestStep)
	}
	a.printf("\n")
	if s.Reason != "" {
		a.printf("  %s\n", s.Reason)
	}
	if s.Checkpoint != "" {
		a.printf("  newest checkpoint %s\n", s.Checkpoint)
	}
	i := &r.Info
	a.printf("  id %s  config %.12s  data %.12s  tokenizer %.12s\n", i.ID, i.ConfigHash, i.DataHash, i.TokenizerHash)
	a.printf("  created %s  code %s  %s %s/%s  %s\n", i.Created.Local().Format(time.DateTime), i.Code, i.Go, i.OS, i.Arch, i.CPU)
	if r.Config != nil {
		c := &r.Config.Config
		a.printf("  data %s  mode %s  seq %d  batch %d  seed %d\n", c.Data.Store, c.Data.Mode, c.Data.Seq, c.Train.Batch, c.Train.Seed)
	}
	if len(i.Args) > 0 {
		a.printf("  command: %s\n", strings.Join(i.Args, " "))
	}
	if n := failedSaves(r); n > 0 {
		a.printf("  %d checkpoint(s) could not be written; see %s\n", n, filepath.Join(r.Dir, run.LogFile))
	}
}

func failedSaves(r *run.Record) (n int) {
	for _, s := range r.Saves {
		if s.Path == "" {
			n++
		}
	}
	return n
}

// diffReport is what diff prints with --json.
type diffReport struct {
	A, B    runSummary
	Changes []config.Change `json:"changes"`
	Same    struct {
		Data      bool `json:"data"`
		Tokenizer bool `json:"tokenizer"`
		Code      bool `json:"code"`
		Chain     bool `json:"chain"` // equal bits to the last step
	} `json:"same"`
	Val *float64 `json:"val_loss_difference"` // B - A, of the last evaluations
}

func (a *app) runsDiffCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "diff RUN RUN",
		Short:   "Compare the settings and results of two runs",
		Example: `  refrain runs diff runs/fixed runs/repack`,
		Args:    args(cobra.ExactArgs(2)),
		RunE: func(_ *cobra.Command, list []string) error {
			var rec [2]*run.Record
			for i, dir := range list {
				r, err := readRun(dir)
				if err != nil {
					return err
				}
				if r.Config == nil {
					return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%s has no %s that can be read", dir, run.ConfigFile)}
				}
				rec[i] = r
			}
			d := diffRuns(rec[0], rec[1])
			if asJSON {
				return a.json(d)
			}
			a.printDiff(rec[0], rec[1], d)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func diffRuns(x, y *run.Record) *diffReport {
	d := &diffReport{A: summaryOf(x), B: summaryOf(y), Changes: config.Diff(&x.Config.Config, &y.Config.Config)}
	d.Same.Data = x.Info.DataHash == y.Info.DataHash
	d.Same.Tokenizer = x.Info.TokenizerHash == y.Info.TokenizerHash
	d.Same.Code = x.Info.Code == y.Info.Code
	d.Same.Chain = x.Last.Chain == y.Last.Chain && x.Last.Step == y.Last.Step
	if d.A.Val != nil && d.B.Val != nil {
		v := *d.B.Val - *d.A.Val
		d.Val = &v
	}
	return d
}

func (a *app) printDiff(x, y *run.Record, d *diffReport) {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\t%s\t%s\n", x.Dir, y.Dir)
	row := func(name, p, q string) { fmt.Fprintf(t, "%s\t%s\t%s\n", name, p, q) }
	row("status", d.A.Status, d.B.Status)
	row("step", fmt.Sprint(d.A.Step), fmt.Sprint(d.B.Step))
	row("epoch", fmt.Sprintf("%.2f", d.A.Epoch), fmt.Sprintf("%.2f", d.B.Epoch))
	row("loss", number(d.A.Loss), number(d.B.Loss))
	val := number(d.B.Val)
	if d.Val != nil {
		val += fmt.Sprintf(" (%+.4f)", *d.Val)
	}
	row("val", number(d.A.Val), val)
	for _, h := range [][3]string{
		{"data", x.Info.DataHash, y.Info.DataHash}, {"tokenizer", x.Info.TokenizerHash, y.Info.TokenizerHash}, {"code", x.Info.Code, y.Info.Code},
	} {
		if h[1] != h[2] {
			row(h[0], fmt.Sprintf("%.12s", h[1]), fmt.Sprintf("%.12s", h[2]))
		}
	}
	for _, c := range d.Changes {
		name := c.Key
		if !c.Weights {
			name += " (no effect on weights)"
		}
		row(name, c.A, c.B)
	}
	if err := t.Flush(); err != nil {
		return
	}
	switch {
	case d.Same.Chain && d.A.Step > 0:
		a.printf("equal to the bit: both chains are %s\n", d.A.Chain)
	case len(d.Changes) == 0 && d.Same.Data:
		a.printf("same settings and data\n")
	}
}
