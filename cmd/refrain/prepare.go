package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/stages/shards"
	"refrain/stages/tokens"
)

// readFlags are the flags of every command that reads documents. Names and
// defaults are those of the section data of a configuration, so that both make
// the same store.
type readFlags struct {
	o       shards.Options
	policy  [6]string
	workers int
}

// policies lists the policy flags in the order of readFlags.policy.
func policies() [6][3]string {
	return [6][3]string{
		{"invalid-utf8", "", "text that is not UTF-8: fail, skip or replace; unset: fail, but leave binary files of a folder out"},
		{"bad-line", "fail", "a JSONL line that is not an object with the text field: fail or skip"},
		{"truncated", "fail", "a file that ends early: fail, or skip to keep what came before the cut"},
		{"too-long", "fail", "a document over --max-doc or a line over --max-line: fail or skip"},
		{"empty", "skip", "a document without text: skip or fail"},
		{"duplicate", "skip", "a document whose text was seen before: skip, fail or keep"},
	}
}

func (r *readFlags) add(f *pflag.FlagSet) {
	for i, p := range policies() {
		f.StringVar(&r.policy[i], p[0], p[1], p[2])
	}
	f.StringVar(&r.o.Field, "field", "text", "text column of JSONL, Parquet and Arrow inputs")
	f.StringVar((*string)(&r.o.Kind), "kind", "", "read every input as text, jsonl, parquet, arrow-file or arrow-stream; unset: by content and name")
	f.Float64Var(&r.o.SkipBudget, "skip-budget", 0.01, "largest share of documents that may be skipped for being bad; 0 = no limit")
	f.Int64Var(&r.o.MaxLine, "max-line", shards.DefaultMaxLine, "bytes of a JSONL line")
	f.Int64Var(&r.o.MaxDoc, "max-doc", shards.DefaultMaxDoc, "bytes of a document")
	f.Int64Var(&r.o.MaxBatch, "max-batch", shards.DefaultMaxBatch, "bytes of the text column in one Arrow record batch")
	f.StringArrayVar(&r.o.Include, "include", nil, "pattern of files to read in folders, such as '*.go' or 'docs/**/*.md'; may be repeated")
	f.StringArrayVar(&r.o.Exclude, "exclude", nil, "pattern of files to leave out; may be repeated")
	f.IntVar(&r.workers, "workers", 0, "encoding goroutines; 0 = all cores. The result does not depend on it")
}

func (r *readFlags) options() shards.Options {
	o := r.o
	for i, p := range []*shards.Policy{&o.InvalidUTF8, &o.BadLine, &o.Truncated, &o.TooLong, &o.Empty, &o.Duplicate} {
		*p = shards.Policy(r.policy[i])
	}
	return o
}

// asFlags words the settings that an error names as flags: what is data.bad_line
// in a configuration is --bad-line on these command lines.
func asFlags(err error) error {
	text := dataKeys().ReplaceAllStringFunc(err.Error(), func(key string) string {
		key, value, _ := strings.Cut(strings.TrimPrefix(key, "data."), ": ")
		if key == "inputs" {
			return "the command line"
		}
		return strings.TrimSpace("--" + strings.ReplaceAll(key, "_", "-") + " " + value)
	})
	return &worded{text, err}
}

func dataKeys() *regexp.Regexp {
	return regexp.MustCompile(`data\.(inputs|field|kind|invalid_utf8|bad_line|truncated|too_long|empty|duplicate|skip_budget|max_line|max_doc|max_batch|include|exclude)(: (skip|fail|replace|keep)\b)?`)
}

// worded is an error with another text.
type worded struct {
	text string
	err  error
}

func (w *worded) Error() string { return w.text }
func (w *worded) Unwrap() error { return w.err }

func (a *app) dataPrepareCommand() *cobra.Command {
	var r readFlags
	var out, tok, family, valDocs string
	var inspect int
	var asJSON bool
	c := &cobra.Command{
		Use:   "prepare INPUT...",
		Short: "Turn text files, JSON lines, Parquet or Arrow files into a token store",
		Long: `Prepare reads files, folders (recursively), glob patterns or "-" (standard input),
plain or in gzip or zstd; the kind of each file is known by its content. It drops
duplicate documents, encodes the rest, and leaves a folder with the training
documents, the validation documents in STORE/val, and STORE/tokenizer.json. The
folder appears whole or not at all. Equal inputs give equal bytes.

What cannot be used stops the command, with the place and the reason, unless a
policy says to skip or mend it; everything left out is counted.`,
		Example: `  refrain data prepare "$(go env GOROOT)/src" -o store --tokenizer train:4096 --val-docs 1%
  refrain data prepare shards/*.parquet -o store --tokenizer tokenizer.json --field content
  zcat dump.gz | refrain data prepare - -o store --tokenizer tokenizer.json --kind jsonl
  refrain data prepare docs -o store --tokenizer train:2048 --include '*.md' --bad-line skip`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			switch {
			case out == "":
				return bad(c, "name the store with -o STORE")
			case tok == "":
				return bad(c, "--tokenizer is not set; name a tokenizer.json, or train:4096 to train one")
			}
			share, docs, err := (&config.Data{ValDocs: valDocs}).Validation()
			if err != nil {
				return bad(c, "--val-docs: %v", err)
			}
			show := a.showIngest()
			res, err := run.Ingest(c.Context(), run.IngestConfig{
				Inputs: list, Options: r.options(), Out: out, Tokenizer: tok, Family: family,
				Val: tokens.Val{Share: share, Docs: docs}, Workers: r.workers, Stdin: a.stdin, Progress: show.progress,
			})
			show.end(err == nil)
			if err != nil {
				return asFlags(err)
			}
			return a.ingested(res, show, inspect, asJSON)
		},
	}
	f := c.Flags()
	f.StringVarP(&out, "output", "o", "", "folder of the new store")
	f.StringVar(&tok, "tokenizer", "", "tokenizer.json, or train:V to train one of V entries on the training documents")
	f.StringVar(&family, "family", "", "split pattern of a trained tokenizer: r50k, cl100k (default) or o200k")
	f.StringVar(&valDocs, "val-docs", "1%", "documents kept for validation: a share or a number; 0 for none")
	f.IntVar(&inspect, "inspect", 0, "print the decoded beginnings of this many documents")
	f.BoolVar(&asJSON, "json", false, "print the summary as one JSON object")
	r.add(f)
	return c
}

// ingestSummary is what prepare prints with --json.
type ingestSummary struct {
	*storeSummary
	Cached  bool           `json:"cached"`
	Seconds float64        `json:"seconds"`
	Skipped []shards.Count `json:"skipped,omitempty"`
}

// ingested prints the result of an ingest.
func (a *app) ingested(r *run.IngestResult, show *ingestBars, inspect int, asJSON bool) error {
	sum, err := summarize(r.Dir, inspect, 0)
	if err != nil {
		return err
	}
	if r.Val != nil {
		if sum.Val, err = summarize(r.Dir+"/"+tokens.ValDir, 0, 0); err != nil {
			return err
		}
	}
	took := time.Since(show.start)
	if asJSON {
		return a.json(ingestSummary{sum, r.Cached, took.Seconds(), r.Report.Skipped})
	}
	if a.quiet {
		return nil
	}
	if r.Cached {
		a.printf("%s is there already, made of the same inputs by the same tokenizer and policies\n", r.Dir)
	}
	text, toks, docs, longest := sum.TextBytes, sum.Tokens, sum.Documents, sum.Length.Max
	val := ""
	if v := sum.Val; v != nil {
		text, toks, docs, longest = text+v.TextBytes, toks+v.Tokens, docs+v.Documents, max(longest, v.Length.Max)
		val = fmt.Sprintf(" (%d of them for validation)", v.Documents)
	}
	a.printf("%s: %d documents%s, %d bytes of text, %d tokens, %.3f bytes a token, longest document %d tokens\n",
		r.Dir, docs, val, text, toks, float64(text)/float64(toks), longest)
	a.printf("vocabulary %d, ids %s, tokenizer %.12s, fingerprint %.12s\n", sum.Vocab, sum.DType, sum.TokenizerHash, sum.Fingerprint)
	for _, n := range r.Report.Skipped {
		what := "left out"
		if n.Reason == shards.Replaced {
			what = "mended"
		}
		a.printf("%s: %d %s, first %s\n", what, n.Count, strings.ReplaceAll(string(n.Reason), "_", " "), n.Places[0])
	}
	if n := r.Report.BlankLines; n > 0 {
		a.printf("left out: %d blank lines\n", n)
	}
	for _, n := range r.Report.Notes {
		a.printf("note: %s\n", n)
	}
	a.printSamples(sum.Samples)
	if !r.Cached {
		a.printf("took %s", round(took))
		if d := show.encode.Seconds(); d > 0 && !math.IsInf(float64(text)/d, 0) {
			a.printf("; read, encoded and written at %.3g MB/s", float64(text)/1e6/d)
		}
		a.printf("\n")
	}
	a.printf("next: refrain config init --preset micro-1M > run.yaml && refrain plan run.yaml data.store=%s\n", shellWords([]string{r.Dir}))
	return nil
}

// setup reads CONFIG [key=value...], runs its ingest, and joins it with its
// data. The caller closes it. aside is as in ingest. Train does the same in its
// own steps, since signals change their meaning between them.
func (a *app) setup(ctx context.Context, list []string, aside bool) (*run.Setup, error) {
	r, err := config.Load(list[0], list[1:])
	if err != nil {
		return nil, err
	}
	if err := a.ingest(ctx, &r.Config, aside); err != nil {
		return nil, err
	}
	return run.NewSetup(&r.Config, r)
}

// ingest runs what a configuration with data.inputs asks for, before training.
// aside sends what it says to the error output.
func (a *app) ingest(ctx context.Context, c *config.Config, aside bool) error {
	show := a.showIngest()
	r, err := run.IngestData(ctx, c, show.progress)
	show.end(err == nil)
	if err != nil || r == nil || a.quiet {
		return err
	}
	what, w := "made", a.out
	if r.Cached {
		what = "found"
	}
	if aside {
		w = a.err
	}
	fmt.Fprintf(w, "ingest  %s %s: %d documents, %d tokens, took %s\n", what, r.Dir, r.Train.Documents, r.Train.Tokens, round(time.Since(show.start)))
	for _, n := range r.Report.Skipped {
		fmt.Fprintf(w, "ingest  left out or mended: %d %s, first %s\n", n.Count, strings.ReplaceAll(string(n.Reason), "_", " "), n.Places[0])
	}
	return nil
}

// ingestBars shows the phases of an ingest one after the other.
type ingestBars struct {
	a      *app
	start  time.Time
	phase  run.Phase
	p      *progress
	encode time.Duration
}

func (a *app) showIngest() *ingestBars { return &ingestBars{a: a, start: time.Now()} }

func (b *ingestBars) progress(i run.IngestProgress) {
	if b.phase != i.Phase {
		if b.p != nil {
			b.p.end(true)
		}
		b.phase, b.p = i.Phase, b.a.progress(string(i.Phase), i.Total)
	}
	note := ""
	switch i.Phase {
	case run.PhaseMerge:
		note = fmt.Sprintf("%d of %d ids", i.Done, i.Total)
	case run.PhaseEncode:
		note = fmt.Sprintf("%d docs  %s tokens  %s", i.Docs, short(float64(i.Tokens)), b.p.rate(i.Done))
		b.encode = time.Since(b.p.start)
	case run.PhaseFingerprint:
	default:
		note = fmt.Sprintf("%d docs  %s", i.Docs, b.p.rate(i.Done))
	}
	b.p.set(i.Done, note)
}

// end finishes the last bar.
func (b *ingestBars) end(ok bool) {
	if b.p != nil {
		b.p.end(ok)
	}
}

func (a *app) tokenizerCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "tokenizer",
		Short: "Train a tokenizer, encode and decode with it",
	}, a.tokenizerTrainCommand(), a.tokenizerEncodeCommand(), a.tokenizerDecodeCommand(), a.tokenizerInspectCommand())
}

func (a *app) tokenizerTrainCommand() *cobra.Command {
	var r readFlags
	var out, family string
	var vocab int
	c := &cobra.Command{
		Use:   "train INPUT...",
		Short: "Train a byte-level BPE tokenizer and write tokenizer.json",
		Long: `Train learns a vocabulary from the documents of the inputs, which are read as by
"data prepare". The merges are those of Hugging Face's trainer for the same
settings, and do not depend on the order of documents or the number of workers.`,
		Example: `  refrain tokenizer train corpus/ --vocab 8192 -o tokenizer.json
  refrain tokenizer train books.jsonl.zst --vocab 32768 --field body -o tokenizer.json`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			if out == "" {
				return bad(c, "name the file with -o FILE")
			}
			if vocab < 257 || vocab > 1<<20 {
				return bad(c, "--vocab %d; use 257 to 1048576", vocab)
			}
			if _, err := os.Stat(out); err == nil {
				return bad(c, "%s is there already; remove it or choose another file", out)
			}
			if err := folderOf(c, out); err != nil {
				return err
			}
			show := a.showIngest()
			t, err := run.TrainTokenizer(c.Context(), run.IngestConfig{
				Inputs: list, Options: r.options(), Family: family, Workers: r.workers, Stdin: a.stdin, Progress: show.progress,
			}, vocab)
			show.end(err == nil)
			if err != nil {
				return asFlags(err)
			}
			if err := writeTokenizer(out, t); err != nil {
				return &run.Error{Code: run.ExitDisk, Err: err}
			}
			if !a.quiet {
				a.printf("%s: %d ids, family %s, hash %.12s\n", out, t.VocabSize(), t.Family(), fmt.Sprintf("%x", t.Hash()))
				if t.VocabSize() < vocab {
					a.printf("the text has no more pairs to merge, so there are fewer ids than the %d asked for\n", vocab)
				}
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVarP(&out, "output", "o", "", "file to write")
	f.IntVar(&vocab, "vocab", 4096, "number of ids: special tokens, bytes and merges together")
	f.StringVar(&family, "family", "", "split pattern: r50k, cl100k (default) or o200k")
	r.add(f)
	return c
}
