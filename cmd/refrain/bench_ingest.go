package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"refrain/bench"
	"refrain/internal/run"
)

func (a *app) benchIngest(f *benchFlags) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:     "ingest [INPUT...]",
		Short:   "The whole of data prepare, against the encoder alone on documents in memory",
		Example: `  refrain bench ingest --tokenizer tokenizer.json --count 5`,
		Args:    args(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, list []string) error {
			peers, err := f.check(c)
			if err != nil {
				return err
			}
			if peers {
				return bad(c, "ingest has no peers; leave --compare out")
			}
			if list, err = benchInputs(c.Context(), list); err != nil {
				return err
			}
			dir, err := os.MkdirTemp("", "refrain-bench-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			var text []byte
			if file == "" {
				if text, err = readTexts(c.Context(), list, 8<<20); err != nil {
					return err
				}
			}
			t, name, err := benchVocabulary(c.Context(), file, text)
			if err != nil {
				return err
			}
			if file == "" {
				file = filepath.Join(dir, "tokenizer.json")
				if err := writeTokenizer(file, t); err != nil {
					return &run.Error{Code: run.ExitDisk, Err: err}
				}
			}
			if err := a.benchHeader(); err != nil {
				return err
			}
			return bench.Ingest(c.Context(), bench.IngestConfig{
				Inputs: list, Tokenizer: t, File: file, Name: name, Workers: f.numThreads(), Rounds: f.count, Dir: dir,
			}, a.line)
		},
	}
	c.Flags().StringVarP(&file, "tokenizer", "t", "", "tokenizer.json; without it one of 32,768 entries is trained on the inputs")
	return c
}
