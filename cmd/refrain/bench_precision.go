package main

import (
	"os"

	"github.com/spf13/cobra"

	"refrain/bench"
	"refrain/internal/run"
	"refrain/model"
)

// benchPreset finds a shape by its name or, since those for a CPU are what is measured
// most, by its size alone: 1M is micro-1M.
func benchPreset(c *cobra.Command, name string) (full string, m model.Config, err error) {
	for _, full := range []string{name, "micro-" + name} {
		if m, ok := model.PresetByName(full); ok {
			return full, m, nil
		}
	}
	return "", m, bad(c, "no preset %q; there are %s", name, presetNames())
}

func (a *app) benchPrecision(f *benchFlags) *cobra.Command {
	cfg := bench.PrecisionConfig{Share: 0.05}
	var steps, limit int
	c := &cobra.Command{
		Use:   "precision [INPUT...]",
		Short: "What bf16 and f32 learn: held-out losses of pairs of small runs",
		Long: `Precision trains a small model twice for each seed, in f32 and in bf16, and
compares their losses on documents kept from training: the difference of each
pair, its mean and standard error, and the spread of the f32 losses from seed to
seed beside it. --count is the number of seeds. Without inputs it reads the Go
source tree. The losses do not depend on the machine or on what else it does.`,
		Example: `  refrain bench precision --count 4`,
		Args:    args(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, list []string) error {
			if peers, err := f.check(c); err != nil || peers {
				return errOr(err, bad(c, "precision has no peers; leave --compare out"))
			}
			if f.count < 2 {
				return bad(c, "--count %d; one pair of runs has no spread, use 2 or more", f.count)
			}
			var err error
			if cfg.Preset, _, err = benchPreset(c, cfg.Preset); err != nil {
				return err
			}
			if list, err = benchInputs(c.Context(), list); err != nil {
				return err
			}
			if cfg.Docs, err = distinctDocs(c.Context(), list, limit); err != nil {
				return err
			}
			if cfg.Dir, err = os.MkdirTemp("", "refrain-bench-"); err != nil {
				return &run.Error{Code: run.ExitDisk, Err: err}
			}
			defer os.RemoveAll(cfg.Dir)
			cfg.Steps, cfg.Seeds, cfg.Threads = int64(steps), f.count, f.numThreads()
			if err := a.benchHeader(); err != nil {
				return err
			}
			return bench.Precision(c.Context(), cfg, a.line)
		},
	}
	c.Flags().StringVar(&cfg.Preset, "preset", "micro-0.3M", "model shape")
	c.Flags().IntVar(&cfg.T, "seq", 256, "tokens in a row")
	c.Flags().IntVar(&cfg.B, "batch", 8, "rows in a step")
	c.Flags().IntVar(&steps, "steps", 400, "of each run")
	c.Flags().IntVar(&cfg.Vocab, "vocab", 2048, "entries of the tokenizer, which is trained on the text")
	c.Flags().IntVar(&limit, "bytes", 8<<20, "most text to read")
	return c
}
