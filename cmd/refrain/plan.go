package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"refrain/internal/run"
	"refrain/internal/run/config"
)

func (a *app) planCommand() *cobra.Command {
	var asJSON bool
	var f frontierFlags
	var deadline time.Duration
	var gpus int
	var records []string
	c := &cobra.Command{
		Use:   "plan CONFIG [key=value...]",
		Short: "Print what a run needs and does, without starting it",
		Long: `Plan prints parameters, memory, steps, tokens and time, and starts nothing. The
time is what the steps would need at a rate measured now; that of the evaluations
comes on top. A configuration with data.inputs gets its store first; train then
finds it.

With --records it looks for the run to repeat instead: of the finished runs there, the
one with the least loss that --gpus GPUs end within --deadline. A step's time is given
(--step-ms) or measured (--step-time); refrain frontier shows the whole picture.
CONFIG may be left out then; with it, the documents must be those of the records.`,
		Example: `  refrain plan run.yaml data.store=store
  refrain plan run.yaml train.epochs=32 --json
  refrain plan --deadline 6h --gpus 8 --records sweeps/batches --per-gpu-batch 8 --step-ms 120`,
		Args: func(c *cobra.Command, list []string) error {
			if len(records) > 0 {
				return nil
			}
			for _, name := range []string{"deadline", "gpus", "per-gpu-batch", "step-time", "step-ms", "any-code"} {
				if c.Flags().Changed(name) {
					return bad(c, "--%s needs --records, the runs to choose from", name)
				}
			}
			return args(cobra.MinimumNArgs(1))(c, list)
		},
		RunE: func(c *cobra.Command, list []string) error {
			if len(records) > 0 {
				return a.planFrontier(c, list, records, &f, deadline, gpus, asJSON)
			}
			// What a run does depends on the number of tokens, so they must be there.
			s, err := a.setup(c.Context(), list, asJSON)
			if err != nil {
				return err
			}
			defer s.Close()
			p, err := run.NewPlan(s)
			if err != nil {
				return err
			}
			if asJSON {
				return errors.Join(a.json(p), p.TooLittle)
			}
			for _, line := range run.Header(s, run.DefaultOut(list[0]), p.PeakFLOPs) {
				a.printf("%s\n", line)
			}
			a.printf("compute %s FLOP a token, %s FLOP in all\n", short(p.TokenFLOPs), short(p.TotalFLOPs))
			a.printf("memory  %s a device:", bytesText(p.MemoryBytes))
			for _, u := range p.Memory {
				a.printf("  %s %s", u.Label, bytesText(u.Bytes))
			}
			a.printf("\n        %s for the whole run, with", bytesText(p.RunBytes))
			for _, u := range p.Run[len(p.Memory):] { // the first are those of the devices
				a.printf("  %s %s", u.Label, bytesText(u.Bytes))
			}
			for _, l := range p.Limits {
				a.printf("\n        %s has %s, %s of it free", l.What, bytesText(l.Bytes), bytesText(l.Free))
			}
			a.printf("\ntime    about %s at %.0f %% of the peak measured now (%s tok/s)\n", round(seconds(p.Seconds)), 100*p.Share, short(float64(p.Tokens)/p.Seconds))
			a.printf("evals   %s\n", evalPlan(s, p))
			if p.Seconds > 3600 && s.Config.Data.Subset.Tokens == 0 {
				a.printf("        data.subset.tokens=N trains on a part of the documents, train.epochs=N fewer times\n")
			}
			for _, note := range p.Notes {
				a.notef("%s", note)
			}
			if p.TooLittle != nil {
				return p.TooLittle // and train says the same
			}
			a.printf("next    refrain train %s\n", shellWords(list))
			return nil
		},
	}
	fl := c.Flags()
	fl.BoolVar(&asJSON, "json", false, "print one JSON object")
	fl.DurationVar(&deadline, "deadline", 0, "time for the whole run, as 6h or 90m; with --records")
	fl.IntVar(&gpus, "gpus", 0, "GPUs there are; with --records")
	fl.StringArrayVar(&records, "records", nil, "registry of a sweep, run folder or folder of them, to choose a run from")
	f.add(fl)
	return c
}

// evalPlan words what the evaluations of a run cost. They go on beside the steps,
// on the cores that the steps use, so their time comes on top. A forward pass is
// taken as a third of a step, which counts the backward pass as two of them.
func evalPlan(s *run.Setup, p *run.Plan) string {
	if s.Set == nil {
		return "none: there is no validation store"
	}
	every := s.Config.Eval.Every
	if every == 0 {
		every = max(1, p.Steps/20) // as train does
	}
	n := (p.Steps + every - 1) / every // those on the way, and one after the last step
	rows := s.Set.Rows()
	extra := float64(n*rows*int64(s.Options.T)) * p.TokenFLOPs / 3 / (p.PeakFLOPs * p.Share)
	text := fmt.Sprintf("%d of %d rows, every %d steps: about %s more", n, rows, every, round(seconds(extra)))
	if extra > p.Seconds/2 && s.Config.Eval.Rows == 0 {
		text += "; eval.rows=N reads fewer"
	}
	return text
}

// shellWords joins arguments as they can be typed again.
func shellWords(list []string) string {
	out := make([]string, len(list))
	for i, w := range list {
		if w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-+./:=,@%", r))
		}) {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		out[i] = w
	}
	return strings.Join(out, " ")
}

func seconds(x float64) time.Duration { return time.Duration(x * 1e9) }

// bytesText prints a size in binary units.
func bytesText(n int64) string { return run.BytesText(n) }

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Print configurations: a new one, a resolved one, the schema",
	}
	var preset, from string
	initC := &cobra.Command{
		Use:   "init",
		Short: "Print a commented configuration that trains once data.store is set",
		Long: `Init prints a configuration with every key, its default and its range. --from DIR is for
continued pretraining: shape and weights are those of a Llama model in a Hugging Face
folder (config.json and model.safetensors, or parts of it), such as a checkpoint.`,
		Example: `  refrain config init --preset micro-1M > run.yaml
  refrain config init --from runs/first/ckpt/step-000000400 > on.yaml`,
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := config.Init(preset)
			if from != "" {
				if c.Flags().Changed("preset") {
					return bad(c, "--preset and --from both say the shape; keep one")
				}
				var base *run.BaseModel
				if base, err = run.OpenBase(from); err != nil {
					return err
				}
				b, err = config.InitFrom(from, base.Config)
			}
			if err != nil {
				return &run.Error{Code: run.ExitUsage, Err: err}
			}
			_, err = a.out.Write(b)
			return err
		},
	}
	initC.Flags().StringVar(&preset, "preset", "micro-1M", "model shape; an unknown one lists them")
	initC.Flags().StringVar(&from, "from", "", "folder of Llama weights to start from, instead of a preset")
	show := &cobra.Command{
		Use:     "show CONFIG [key=value...]",
		Short:   "Print the resolved configuration with the origin of every value",
		Example: `  refrain config show run.yaml optim.lr=1e-3`,
		Args:    args(cobra.MinimumNArgs(1)),
		RunE: func(_ *cobra.Command, list []string) error {
			r, err := config.Load(list[0], list[1:])
			if err != nil {
				return err
			}
			_, err = a.out.Write(r.YAML())
			return err
		},
	}
	schema := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of a configuration, for editors",
		Args:  args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(config.Schema())
			return err
		},
	}
	return group(c, initC, show, schema)
}
