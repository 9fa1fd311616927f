package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"refrain/internal/run"
	"refrain/stages/repack"
	"refrain/stages/tokens"
	"refrain/store"
	"refrain/tokenize"
)

func (a *app) dataCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "data",
		Short: "Prepare, look at and verify token stores; show what an epoch holds",
	}, a.dataPrepareCommand(), a.dataInspectCommand(), a.dataVerifyCommand(), a.dataEpochsCommand())
}

// openStore opens a store and, where it has one, its tokenizer.
func openStore(dir string) (*store.Store, *tokenize.Tokenizer, error) {
	s, err := store.Open(dir, store.OpenOptions{})
	if err != nil {
		return nil, nil, &run.Error{Code: run.ExitData, Err: err}
	}
	t, err := storeTokenizer(dir)
	if err != nil {
		return nil, nil, errors.Join(&run.Error{Code: run.ExitData, Err: err}, s.Close())
	}
	return s, t, nil
}

// storeTokenizer reads the tokenizer of a store: beside its manifest, or for a
// validation store, a folder val inside another store, in the folder above. nil means
// that there is none.
func storeTokenizer(dir string) (*tokenize.Tokenizer, error) {
	full, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	paths := []string{filepath.Join(dir, tokens.TokenizerName)}
	if above, name := filepath.Split(full); name == tokens.ValDir {
		if _, err := os.Stat(filepath.Join(above, store.ManifestName)); err == nil {
			paths = append(paths, filepath.Join(dir, "..", tokens.TokenizerName))
		}
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		t, err := tokenize.Load(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return t, nil
	}
	return nil, nil
}

func (a *app) dataVerifyCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify STORE",
		Short: "Read every byte of a store and compare it with its manifest",
		Long: `Verify compares every byte of a store, and of the validation store inside it,
with the checksums of their manifests, and every id with the vocabulary. What
differs is named by shard, record batch and byte range; the exit code is then 3.`,
		Example: `  refrain data verify store`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			type part struct {
				Store       string `json:"store"`
				Documents   int64  `json:"documents"`
				Tokens      int64  `json:"tokens"`
				Bytes       int64  `json:"bytes"`
				Fingerprint string `json:"fingerprint"`
			}
			var parts []part
			dirs := []string{list[0]}
			val := filepath.Join(list[0], "val")
			if _, err := os.Stat(filepath.Join(val, store.ManifestName)); err == nil {
				dirs = append(dirs, val)
			}
			for _, dir := range dirs {
				if err := a.verify(c.Context(), dir); err != nil {
					if c.Context().Err() != nil {
						return err
					}
					return &run.Error{Code: run.ExitData, Err: err}
				}
				s, _, err := openStore(dir)
				if err != nil {
					return err
				}
				m := s.Manifest()
				p := part{Store: dir, Documents: m.Documents, Tokens: m.Tokens, Fingerprint: fmt.Sprintf("%x", s.Fingerprint())}
				for _, sh := range m.Shards {
					p.Bytes += sh.Bytes
				}
				if err := s.Close(); err != nil {
					return err
				}
				parts = append(parts, p)
			}
			if asJSON {
				return a.json(parts)
			}
			for _, p := range parts {
				a.printf("ok  %s  %d documents, %d tokens, %s  %.12s\n", p.Store, p.Documents, p.Tokens, bytesText(p.Bytes), p.Fingerprint)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON list, one object a store")
	return c
}

// verify checks one store, and that the tokenizer beside it is the one it was
// made with.
func (a *app) verify(ctx context.Context, dir string) error {
	s, t, err := openStore(dir)
	if err != nil {
		return err
	}
	want := s.Manifest().TokenizerHash
	if err := s.Close(); err != nil {
		return err
	}
	if t != nil && fmt.Sprintf("%x", t.Hash()) != want {
		return fmt.Errorf("%s: tokenizer.json is not the tokenizer the store was made with (hash %.12s, the store says %.12s)", dir, fmt.Sprintf("%x", t.Hash()), want)
	}
	var p *progress
	err = store.Verify(ctx, dir, func(done, total int64) {
		if p == nil {
			p = a.progress("verify", total)
		}
		p.set(done, p.rate(done))
	})
	if p != nil {
		p.end(err == nil)
	}
	return err
}

// epochFlags are the settings of a stream on the command line; the names and
// defaults are those of the configuration.
type epochFlags struct {
	mode, tail, targets string
	seq                 int
	block               int64
	seed                uint64
	epoch, rows         int64
	show                int64
	json, tokens        bool
}

func (a *app) dataEpochsCommand() *cobra.Command {
	var f epochFlags
	c := &cobra.Command{
		Use:   "epochs STORE",
		Short: "Show what each epoch reads, and how it differs from the first",
		Long: `Epochs computes the order that training would read: nothing is copied and
nothing is random, so this is exactly what a run with the same settings gets.

The table has one line an epoch: windows (rows of --seq tokens), tokens kept and
dropped, documents cut by a window edge, the hash of the order, and how many
window edges fall where epoch 0 has none. With --json the rows themselves are
printed, one object a line: epoch, row, spans as [document, from, to), and the
tokens with --tokens.`,
		Example: `  refrain data epochs store --mode repack --seq 512 --show 3
  refrain data epochs store --mode fixed --seq 128 --epoch 1 --rows 2 --json --tokens`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			s, err := f.open(c, list[0])
			if err != nil {
				return err
			}
			defer s.store.Close()
			if f.json {
				if err := s.stream.RowsJSON(a.out, f.epoch, f.rows, f.tokens); err != nil {
					return err
				}
				return nil
			}
			if err := a.epochTable(s.stream, &f); err != nil || !c.Flags().Changed("rows") {
				return err
			}
			return a.epochRows(s, &f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.mode, "mode", "repack", "order: fixed, block, reshuffle or repack")
	fl.IntVar(&f.seq, "seq", 512, "tokens in a row")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the order")
	fl.Int64Var(&f.block, "block", 2048, "windows in a block, for --mode block")
	fl.StringVar(&f.tail, "tail", "drop", "tokens that do not fill a row: drop, carry or pad")
	fl.StringVar(&f.targets, "targets", "all", "all, or inside to mask the last target of every row")
	fl.Int64Var(&f.epoch, "epoch", 0, "first epoch")
	fl.Int64Var(&f.show, "show", 3, "number of epochs in the table")
	fl.Int64Var(&f.rows, "rows", -1, "rows of the epoch to print; all by default with --json")
	fl.BoolVar(&f.json, "json", false, "print rows as JSON lines")
	fl.BoolVar(&f.tokens, "tokens", false, "print the tokens of each row too")
	return c
}

// openStream is a stream with the store below it.
type openStream struct {
	store  *store.Store
	tok    *tokenize.Tokenizer
	stream *repack.Stream
}

func (f *epochFlags) open(c *cobra.Command, dir string) (*openStream, error) {
	mode, err := repack.ParseMode(f.mode)
	if err != nil {
		return nil, bad(c, "--mode: %v", err)
	}
	tail, err := repack.ParseTail(f.tail)
	if err != nil {
		return nil, bad(c, "--tail: %v", err)
	}
	switch {
	case f.targets != "all" && f.targets != "inside":
		return nil, bad(c, "--targets %q; use all or inside", f.targets)
	case f.epoch < 0 || f.show < 1:
		return nil, bad(c, "--epoch must be at least 0 and --show at least 1")
	}
	cfg := repack.Config{Mode: mode, Seed: f.seed, T: f.seq, Tail: tail, TargetsInside: f.targets == "inside"}
	if mode == repack.Block {
		cfg.Block = f.block
	}
	s, t, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	st, err := repack.NewStream(s, cfg)
	if err != nil {
		return nil, errors.Join(&run.Error{Code: run.ExitUsage, Err: err}, s.Close())
	}
	return &openStream{s, t, st}, nil
}

func (a *app) epochTable(s *repack.Stream, f *epochFlags) error {
	t := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "epoch\trows\tkept\tdropped\tpadded\tscored\tdocs cut\torder\tnew edges\t")
	for e := f.epoch; e < f.epoch+f.show; e++ {
		n, err := s.Counters(e)
		if err != nil {
			return err
		}
		hash, err := s.OrderHash(e)
		if err != nil {
			return err
		}
		changed, total, err := s.CutsChanged(e)
		if err != nil {
			return err
		}
		kept := n.Inputs - n.Padded
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%x\t%d of %d\t\n", e, n.Windows, kept, n.Dropped, n.Padded, n.Scored, n.Cut, hash[:6], changed, total)
	}
	return t.Flush()
}

// epochRows prints the first rows of an epoch with the documents in them.
func (a *app) epochRows(s *openStream, f *epochFlags) error {
	n, err := s.stream.Counters(f.epoch)
	if err != nil {
		return err
	}
	rows := f.rows
	if rows < 0 || rows > n.Windows {
		rows = n.Windows
	}
	tokens, targets := make([]int32, f.seq), make([]int32, f.seq)
	starts := make([]byte, (f.seq+7)/8)
	plan, err := s.stream.Epoch(f.epoch)
	if err != nil {
		return err
	}
	for row := range rows {
		g := plan.First + row
		spans, err := s.stream.Spans(g)
		if err != nil {
			return err
		}
		var parts []string
		for _, sp := range spans {
			parts = append(parts, fmt.Sprintf("%d[%d:%d]", sp.Doc, sp.From, sp.To))
		}
		a.printf("epoch %d row %d: %s\n", f.epoch, row, strings.Join(parts, " "))
		if !f.tokens {
			continue
		}
		if _, err := s.stream.ReadRow(g, tokens, targets, starts); err != nil {
			return err
		}
		text, err := decodeText(s.tok, tokens)
		if err != nil {
			return err
		}
		a.printf("  %q\n", text)
	}
	return nil
}

// quantile returns the q-quantile of sorted values (the nearest rank).
func quantile(sorted []uint32, q float64) uint32 {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// storeSummary is what inspect prints.
type storeSummary struct {
	Store         string            `json:"store"`
	Documents     int64             `json:"documents"`
	Tokens        int64             `json:"tokens"`
	TextBytes     int64             `json:"text_bytes"`
	BytesPerToken float64           `json:"bytes_per_token"`
	DType         string            `json:"dtype"`
	Vocab         int               `json:"vocab"`
	Shards        int               `json:"shards"`
	Bytes         int64             `json:"bytes"`
	Length        lengths           `json:"document_tokens"`
	Fingerprint   string            `json:"fingerprint"`
	TokenizerHash string            `json:"tokenizer_hash"`
	Boundary      store.Boundary    `json:"boundary"`
	Inputs        int               `json:"inputs"`
	Policies      map[string]string `json:"policies,omitempty"`
	Counts        map[string]int64  `json:"counts,omitempty"`
	Generated     *store.Generated  `json:"generated,omitempty"` // null when people wrote the documents
	Samples       []sampleDoc       `json:"samples,omitempty"`
	Val           *storeSummary     `json:"val,omitempty"`
}

type lengths struct {
	Min    uint32  `json:"min"`
	Median uint32  `json:"median"`
	P90    uint32  `json:"p90"`
	P99    uint32  `json:"p99"`
	Max    uint32  `json:"max"`
	Mean   float64 `json:"mean"`
}

// sampleDoc is the beginning of one document.
type sampleDoc struct {
	Doc    int    `json:"document"`
	ID     uint64 `json:"id"`
	Source string `json:"source"`
	Tokens uint32 `json:"tokens"`
	Text   string `json:"text"`
}

const sampleTokens = 60

func (a *app) dataInspectCommand() *cobra.Command {
	var asJSON bool
	var docs int
	var seed uint64
	c := &cobra.Command{
		Use:   "inspect STORE",
		Short: "Print what a store holds, with decoded samples",
		Example: `  refrain data inspect store
  refrain data inspect store --docs 5 --seed 1
  refrain data inspect store --json`,
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			if docs < 0 {
				return bad(c, "--docs %d; use 0 or more", docs)
			}
			sum, err := summarize(list[0], docs, seed)
			if err != nil {
				return err
			}
			val := filepath.Join(list[0], "val")
			if _, err := os.Stat(filepath.Join(val, store.ManifestName)); err == nil {
				if sum.Val, err = summarize(val, 0, seed); err != nil {
					return err
				}
			}
			if asJSON {
				return a.json(sum)
			}
			a.printSummary(sum)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().IntVar(&docs, "docs", 3, "decoded beginnings of this many documents")
	c.Flags().Uint64Var(&seed, "seed", 0, "seed of the choice of documents")
	return c
}

// summarize reads the manifest and lengths of a store, and the beginnings of
// some documents.
func summarize(dir string, docs int, seed uint64) (sum *storeSummary, err error) {
	s, err := store.Open(dir, store.OpenOptions{})
	if err != nil {
		return nil, &run.Error{Code: run.ExitData, Err: err}
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	defer s.Catch(store.Faults(), &err)
	m := s.Manifest()
	sum = &storeSummary{
		Store: dir, Documents: m.Documents, Tokens: m.Tokens, TextBytes: m.TextBytes, DType: m.DType, Vocab: m.Vocab,
		Shards: len(m.Shards), Fingerprint: fmt.Sprintf("%x", s.Fingerprint()), TokenizerHash: m.TokenizerHash,
		Boundary: m.Boundary, Inputs: len(m.Inputs), Policies: m.Policies, Counts: m.Counts, Generated: m.Generated,
		BytesPerToken: float64(m.TextBytes) / float64(m.Tokens),
	}
	for _, sh := range m.Shards {
		sum.Bytes += sh.Bytes
	}
	l := slices.Clone(s.Lengths())
	slices.Sort(l)
	sum.Length = lengths{Min: l[0], Median: quantile(l, 0.5), P90: quantile(l, 0.9), P99: quantile(l, 0.99), Max: l[len(l)-1], Mean: float64(m.Tokens) / float64(m.Documents)}
	docs = min(docs, s.NumDocs())
	if docs == 0 {
		return sum, nil
	}
	t, err := storeTokenizer(dir) // which takes longer than all before
	if err != nil {
		return nil, &run.Error{Code: run.ExitData, Err: err}
	}
	order := repack.NewPRP(uint64(s.NumDocs()), repack.NewKey("inspect", seed, 0))
	for i := range docs {
		doc := int(order.At(uint64(i)))
		d := sampleDoc{Doc: doc, ID: s.DocID(doc), Source: s.Source(doc), Tokens: s.Lengths()[doc]}
		ids := make([]int32, min(sampleTokens, int(d.Tokens)))
		s.Copy(doc, 0, len(ids), ids)
		if d.Text, err = decodeText(t, ids); err != nil {
			return nil, err
		}
		sum.Samples = append(sum.Samples, d)
	}
	return sum, nil
}

// decodeText turns ids into text, or prints them where there is no tokenizer.
func decodeText(t *tokenize.Tokenizer, ids []int32) (string, error) {
	if t == nil {
		return fmt.Sprint(ids), nil
	}
	u := make([]uint32, len(ids))
	for i, id := range ids {
		u[i] = uint32(id)
	}
	b, err := t.Decode(nil, u)
	return string(b), err
}

func (a *app) printSummary(s *storeSummary) {
	a.printf("%s\n  %d documents, %d tokens (%.3f bytes of text a token), ids %s below %d\n", s.Store, s.Documents, s.Tokens, s.BytesPerToken, s.DType, s.Vocab)
	l := s.Length
	a.printf("  tokens a document: min %d  median %d  mean %.1f  90 %% %d  99 %% %d  longest %d\n", l.Min, l.Median, l.Mean, l.P90, l.P99, l.Max)
	a.printf("  %d shard(s), %s on disk", s.Shards, bytesText(s.Bytes))
	if s.Inputs > 0 { // a pipe has no name that a manifest could keep
		a.printf(", from %d input(s)", s.Inputs)
	}
	a.printf("\n")
	a.printf("  fingerprint %s\n  tokenizer   %s\n", s.Fingerprint, s.TokenizerHash)
	for _, k := range sortedKeys(s.Counts) {
		if n := s.Counts[k]; n > 0 {
			a.printf("  left out: %d %s\n", n, strings.ReplaceAll(k, "_", " "))
		}
	}
	if g := s.Generated; g != nil {
		a.printGenerated(g)
	}
	a.printSamples(s.Samples)
	if s.Val != nil {
		a.printSummary(s.Val)
	}
}

func (a *app) printSamples(list []sampleDoc) {
	for _, d := range list {
		more := ""
		if int(d.Tokens) > sampleTokens {
			more = "..."
		}
		a.printf("document %d (%s, %d tokens): %q%s\n", d.Doc, d.Source, d.Tokens, d.Text, more)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
