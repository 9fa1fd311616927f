package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"refrain/bench"
	"refrain/internal/run"
)

func (a *app) benchPlan(f *benchFlags) *cobra.Command {
	var docs []int
	var T int
	c := &cobra.Command{
		Use:   "plan",
		Short: "The plan of an epoch of repack: time and memory by number of documents",
		Args:  args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if peers, err := f.check(c); err != nil || peers {
				return errOr(err, bad(c, "plan has no peers; leave --compare out"))
			}
			for _, n := range docs {
				if n < 1 || n > 100_000_000 {
					return bad(c, "--docs %d; use 1 to 100000000", n)
				}
			}
			if err := a.benchHeader(); err != nil {
				return err
			}
			return bench.Plan(c.Context(), bench.PlanConfig{Docs: docs, T: T, Rounds: f.count}, a.line)
		},
	}
	c.Flags().IntSliceVar(&docs, "docs", []int{100_000, 1_000_000, 10_000_000}, "documents of each corpus")
	c.Flags().IntVar(&T, "seq", 4096, "tokens in a row; a plan has 8 bytes a document and 8 a row")
	return c
}

// errOr is err, or other where there is none.
func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

func (a *app) benchCkpt(f *benchFlags) *cobra.Command {
	var preset, dir string
	c := &cobra.Command{
		Use:   "ckpt",
		Short: "Saving and loading of a checkpoint, against a plain copy of the same bytes",
		Args:  args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if peers, err := f.check(c); err != nil || peers {
				return errOr(err, bad(c, "ckpt has no peers; leave --compare out"))
			}
			preset, m, err := benchPreset(c, preset)
			if err != nil {
				return err
			}
			dir, err := os.MkdirTemp(dir, "refrain-bench-")
			if err != nil {
				return &run.Error{Code: run.ExitDisk, Err: fmt.Errorf("a folder for checkpoints: %w", err)}
			}
			defer os.RemoveAll(dir)
			if err := a.benchHeader(); err != nil {
				return err
			}
			return bench.Ckpt(c.Context(), bench.CkptConfig{Model: m, Name: strings.TrimPrefix(preset, "micro-"), Rounds: f.count, Dir: dir}, a.line)
		},
	}
	c.Flags().StringVar(&preset, "preset", "micro-11M", "model shape")
	c.Flags().StringVar(&dir, "dir", "", "folder on the disk to measure; the system's for temporary files without it")
	return c
}
