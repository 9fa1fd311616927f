package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"refrain/bench"
	"refrain/internal/run"
)

func (a *app) benchIngest(f *benchFlags) *cobra.Command {
	var file string
	var limit int
	c := &cobra.Command{
		Use:   "ingest [INPUT...]",
		Short: "The whole of data prepare, against the encoder alone on documents in memory",
		Long: `Ingest measures data prepare on the inputs against the encoder alone on documents
in memory. With --compare peers it cuts the inputs into documents, writes them as
JSON lines, and lets Hugging Face datasets with tokenizers, and datatrove, make ids
on disk of them with the same vocabulary (tier T3 of bench loader); a peer whose
ids are not ours gets no speed.`,
		Example: `  refrain bench ingest --tokenizer tokenizer.json --count 5
  refrain bench ingest --compare peers --count 5`,
		Args: args(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, list []string) error {
			peers, err := f.check(c)
			if err != nil {
				return err
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
			if peers {
				docs, err := distinctDocs(c.Context(), list, limit)
				if err != nil {
					return err
				}
				file, err := filepath.Abs(file)
				if err != nil {
					return err
				}
				return bench.IngestCompare(c.Context(), bench.IngestPeersConfig{
					Docs: docs, File: file, Name: name, Workers: f.numThreads(), Rounds: f.count, Dir: dir, Peers: f.peers,
				}, a.line, func(s string) { a.note("%s", s) })
			}
			return bench.Ingest(c.Context(), bench.IngestConfig{
				Inputs: list, Tokenizer: t, File: file, Name: name, Workers: f.numThreads(), Rounds: f.count, Dir: dir,
			}, a.line)
		},
	}
	c.Flags().IntVar(&limit, "bytes", 16<<20, "with --compare peers: most text to read; with a few MB the start of ours counts most")
	c.Flags().StringVarP(&file, "tokenizer", "t", "", "tokenizer.json; without it one of 32,768 entries is trained on the inputs")
	return c
}

// distinctDocs cuts text of the inputs into documents of about 4 KB at the ends of
// lines, each once, all of them valid UTF-8.
func distinctDocs(ctx context.Context, inputs []string, limit int) (docs [][]byte, err error) {
	text, err := readTexts(ctx, inputs, limit)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for len(text) > 0 {
		n := min(len(text), 4<<10)
		if i := bytes.IndexByte(text[n:], '\n'); i >= 0 {
			n += i + 1
		} else {
			n = len(text)
		}
		d := bytes.ToValidUTF8(text[:n], []byte("?"))
		if text = text[n:]; !seen[string(d)] {
			seen[string(d)] = true
			docs = append(docs, d)
		}
	}
	return docs, nil
}
