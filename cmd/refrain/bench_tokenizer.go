package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"refrain/bench"
	"refrain/internal/run"
	"refrain/tokenize"
)

// textFlags say what text a tokenizer scenario takes.
type textFlags struct {
	corpus []string
	limit  int
}

func (t *textFlags) add(c *cobra.Command) {
	c.Flags().StringArrayVar(&t.corpus, "corpus", nil, "text file or folder, beside those named without a flag (default the Go source tree)")
	c.Flags().IntVar(&t.limit, "bytes", 32<<20, "most text to read")
}

// docs are documents of about size bytes. What is not UTF-8 in them is replaced, since
// peers take only text.
func (t *textFlags) docs(ctx context.Context, list []string, size int) ([][]byte, error) {
	inputs, err := benchInputs(ctx, append(list, t.corpus...))
	if err != nil {
		return nil, err
	}
	text, err := readTexts(ctx, inputs, t.limit)
	if err != nil {
		return nil, err
	}
	if len(text) == 0 {
		return nil, &run.Error{Code: run.ExitData, Err: fmt.Errorf("no text in %s", strings.Join(inputs, ", "))}
	}
	docs := bench.CutDocs(text, size)
	for i := range docs {
		docs[i] = bytes.ToValidUTF8(docs[i], []byte("\uFFFD"))
	}
	return docs, nil
}

func (a *app) benchTokenizer(f *benchFlags) *cobra.Command {
	var file, peer string
	var text textFlags
	c := &cobra.Command{
		Use:   "tokenizer [TEXT...]",
		Short: "Encoding of 8 KB documents on one thread, cold and warm",
		Example: `  refrain bench tokenizer --corpus books.txt --tokenizer tokenizer.json --count 5
  refrain bench tokenizer -t store/tokenizer.json --compare peers --peer gigatoken,tiktoken`,
		Args: args(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, list []string) error {
			peers, err := f.check(c)
			if err != nil {
				return err
			}
			docs, err := text.docs(c.Context(), list, 8<<10)
			if err != nil {
				return err
			}
			t, name, err := benchVocabulary(c.Context(), file, bytes.Join(docs, nil))
			if err != nil {
				return err
			}
			cfg := bench.TokenizerConfig{Tokenizer: t, Name: name, Docs: docs, Rounds: f.count, Cache: 64 << 20}
			if err := a.benchHeader(); err != nil {
				return err
			}
			if !peers {
				return bench.Tokenizer(c.Context(), cfg, a.line)
			}
			dir, err := os.MkdirTemp("", "refrain-bench-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(dir)
			vocab := filepath.Join(dir, "tokenizer.json")
			if err := writeTokenizer(vocab, t); err != nil {
				return &run.Error{Code: run.ExitDisk, Err: err}
			}
			in, err := writeDocs(dir, docs)
			if err != nil {
				return err
			}
			for _, kind := range strings.Split(peer, ",") {
				p, err := a.startPeer(c.Context(), f, kind, "peer_tokenizer.py", kind, vocab, in)
				if err != nil {
					return err
				}
				if p == nil {
					continue
				}
				defer p.Close()
				cfg.Peers = append(cfg.Peers, bench.TokenizerPeer{Name: kind, Encode: func(context.Context) (e bench.Encoded, err error) {
					return e, p.Ask(map[string]int{}, &e)
				}})
			}
			cfg.Lost = a.lost
			return bench.Tokenizer(c.Context(), cfg, a.line)
		},
	}
	c.Flags().StringVarP(&file, "tokenizer", "t", "", "tokenizer.json; without it one of 32,768 entries is trained on the text")
	c.Flags().StringVar(&peer, "peer", "gigatoken,tiktoken,tokenizers", "with --compare peers: which of them")
	text.add(c)
	return c
}

// writeDocs writes documents as peers read them: u32 length and bytes.
func writeDocs(dir string, docs [][]byte) (path string, err error) {
	var raw []byte
	for _, d := range docs {
		raw = append(binary.LittleEndian.AppendUint32(raw, uint32(len(d))), d...)
	}
	path = filepath.Join(dir, "docs.bin")
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		return "", &run.Error{Code: run.ExitDisk, Err: err}
	}
	return path, nil
}

func (a *app) benchTrainTokenizer(f *benchFlags) *cobra.Command {
	var vocab int
	var family string
	var text textFlags
	c := &cobra.Command{
		Use:   "train-tokenizer [TEXT...]",
		Short: "Training of a vocabulary by CPU time, with the same merges as Hugging Face tokenizers",
		Long: `Train-tokenizer trains on documents of 64 KB and counts the CPU time of all
threads. The peer trains on one thread; --threads 1 gives the same to both.`,
		Example: `  refrain bench train-tokenizer --corpus books.txt --vocab 30000 --threads 1 --count 3 --compare peers`,
		Args:    args(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, list []string) error {
			peers, err := f.check(c)
			if err != nil {
				return err
			}
			pattern, err := tokenize.SplitPattern(family)
			if err != nil {
				return bad(c, "--family %q; use r50k, cl100k or o200k", family)
			}
			docs, err := text.docs(c.Context(), list, 64<<10)
			if err != nil {
				return err
			}
			cfg := bench.TrainTokenizerConfig{Vocab: vocab, Family: family, Docs: docs, Workers: f.numThreads(), Rounds: f.count}
			if err := a.benchHeader(); err != nil {
				return err
			}
			if peers {
				dir, err := os.MkdirTemp("", "refrain-bench-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(dir)
				in, err := writeDocs(dir, docs)
				if err != nil {
					return err
				}
				p, err := a.startPeer(c.Context(), f, "train", "peer_tokenizer.py", "train", fmt.Sprint(vocab), in, pattern)
				if err != nil {
					return err
				}
				if p == nil {
					return bench.TrainTokenizer(c.Context(), cfg, a.line)
				}
				defer p.Close()
				cfg.Lost = a.lost
				cfg.Peer = func(context.Context) (t bench.Trained, err error) { return t, p.Ask(map[string]int{}, &t) }
			}
			return bench.TrainTokenizer(c.Context(), cfg, a.line)
		},
	}
	c.Flags().IntVar(&vocab, "vocab", 30000, "ids to make")
	c.Flags().StringVar(&family, "family", "cl100k", "split pattern: r50k, cl100k or o200k")
	text.add(c)
	return c
}
