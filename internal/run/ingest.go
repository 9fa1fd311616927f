package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"refrain/gpu/host"
	"refrain/internal/run/config"
	"refrain/pipeline"
	"refrain/stages/item"
	"refrain/stages/shards"
	"refrain/stages/tokens"
	"refrain/store"
	"refrain/tokenize"
)

// IngestDir is where stores go that a configuration with data.inputs does not
// name: below it, one folder for each combination of inputs, tokenizer and
// policies.
const IngestDir = "stores"

// holdBytes is how much text is kept in memory between finding, hashing and encoding
// it: 512 MiB, or an eighth of the memory where that is less.
func holdBytes() int64 {
	const most = 512 << 20
	if total := host.TotalMemory(); total > 0 {
		return min(most, total/8)
	}
	return most
}

// trainPrefix marks a tokenizer that is trained on the inputs: train:V.
const trainPrefix = "train:"

// Phase is a part of an ingest, in the order they run.
type Phase string

// The phases. Fingerprint reads the inputs that were not read and hashed before: all of
// them when the store has no name or is there already, else, at the end, what is no plain
// text. Choose, Count and Merge happen only when a tokenizer is trained.
const (
	PhaseFingerprint Phase = "fingerprint" // bytes of the inputs
	PhaseChoose      Phase = "choose"      // find the documents kept for validation
	PhaseCount       Phase = "count"       // text into the tokenizer's trainer
	PhaseMerge       Phase = "merge"       // ids made
	PhaseEncode      Phase = "encode"      // text into the store
)

// IngestProgress is how far an ingest has come.
type IngestProgress struct {
	Phase  Phase
	Done   int64 // text bytes, or ids for PhaseMerge
	Total  int64 // about; 0: not known
	Docs   int64
	Tokens int64
}

// IngestConfig says what becomes a token store. Inputs, Tokenizer and Out are
// required, except that an empty Out is a folder below IngestDir named after
// what it holds.
type IngestConfig struct {
	Inputs    []string // files, folders, patterns, or "-" for standard input
	Options   shards.Options
	Out       string
	Tokenizer string // a tokenizer.json, or train:V
	Family    string // split pattern of a trained tokenizer; "" is the default
	Val       tokens.Val
	Workers   int       // 0: all cores. The store does not depend on it
	Stdin     io.Reader // for the input "-"; nil: the process's own

	// Progress, when not nil, is called now and then, never by two goroutines
	// at once.
	Progress func(IngestProgress)
}

// IngestResult is a store that was made or found.
type IngestResult struct {
	Dir       string
	Cached    bool // the store was there already, made of the same things
	Train     *store.Manifest
	Val       *store.Manifest // nil without validation documents
	Report    shards.Report   // of the reading; empty when Cached
	Tokenizer *tokenize.Tokenizer
	Stats     []pipeline.StageStats
}

// IngestOf returns the ingest that c.Data asks for.
func IngestOf(c *config.Config) (IngestConfig, error) {
	d := &c.Data
	share, docs, err := d.Validation()
	if err != nil {
		return IngestConfig{}, err
	}
	return IngestConfig{
		Inputs: d.Inputs, Out: d.Store, Tokenizer: d.Tokenizer, Val: tokens.Val{Share: share, Docs: docs},
		Options: shards.Options{
			Field: d.Field, Kind: shards.Kind(d.Kind), InvalidUTF8: shards.Policy(d.InvalidUTF8), BadLine: shards.Policy(d.BadLine),
			Truncated: shards.Policy(d.Truncated), TooLong: shards.Policy(d.TooLong), Empty: shards.Policy(d.Empty),
			Duplicate: shards.Policy(d.Duplicate), SkipBudget: d.SkipBudget, MaxLine: d.MaxLine, MaxDoc: d.MaxDoc, MaxBatch: d.MaxBatch,
			Include: d.Include, Exclude: d.Exclude,
		},
	}, nil
}

// IngestData runs the ingest of a configuration with data.inputs and sets
// c.Data.Store and c.Data.Val to what it made or found. Without data.inputs it
// does nothing and returns nil.
//
// A store is used again only when its manifest names the same content of the
// same inputs, the same tokenizer and the same policies; one that does not is
// never replaced or used, but reported.
func IngestData(ctx context.Context, c *config.Config, progress func(IngestProgress)) (*IngestResult, error) {
	if len(c.Data.Inputs) == 0 {
		return nil, nil
	}
	cfg, err := IngestOf(c)
	if err != nil {
		return nil, usage(err)
	}
	cfg.Progress = progress
	r, err := Ingest(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if c.Data.Store == "" {
		c.Data.Store = r.Dir
		if c.Data.Val == "" {
			c.Data.Val = filepath.Join(r.Dir, tokens.ValDir)
		}
	}
	return r, nil
}

// Ingest reads the inputs, trains a tokenizer if asked to, and leaves a token
// store with its validation store and tokenizer.json. The folder appears whole
// or not at all. Faults of the inputs have the exit code ExitData.
func Ingest(ctx context.Context, c IngestConfig) (*IngestResult, error) {
	g := &ingest{c: c}
	if g.c.Workers <= 0 {
		g.c.Workers = runtime.GOMAXPROCS(0)
	}
	if g.c.Progress == nil {
		g.c.Progress = func(IngestProgress) {}
	}
	r, err := g.run(ctx)
	if err != nil {
		return nil, classifyIngest(ctx, err)
	}
	return r, nil
}

// classifyIngest gives an error its exit code: what is wrong with the inputs is
// ExitData, what the file system says is ExitDisk.
func classifyIngest(ctx context.Context, err error) error {
	var coded interface{ ExitCode() int }
	var path *fs.PathError
	var data *shards.Error
	var budget *shards.BudgetError
	switch {
	case ctx.Err() != nil:
		return err
	case errors.As(err, &coded):
		return err
	case errors.As(err, &data): // names the place better than who met it
		return &Error{ExitData, data}
	case errors.As(err, &budget):
		return &Error{ExitData, budget}
	case errors.Is(err, fs.ErrExist):
		return usage(err)
	case errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist):
		return &Error{ExitDisk, err}
	}
	return &Error{ExitData, err}
}

// ingest is one run of Ingest.
type ingest struct {
	c      IngestConfig
	inputs []shards.Input
	size   int64  // bytes of text, about; 0 when not known
	vocab  int    // of the tokenizer to train; 0: it comes from a file,
	file   []byte // which holds this
	tok    *tokenize.Tokenizer
	print  *tokens.Fingerprint // nil until it was asked for
}

func (g *ingest) run(ctx context.Context) (*IngestResult, error) {
	if err := g.check(); err != nil {
		return nil, usage(err)
	}
	var load sync.WaitGroup
	var loadErr error
	if g.vocab == 0 { // a file, which is loaded while others look at the inputs
		var err error
		if g.file, err = os.ReadFile(g.c.Tokenizer); err != nil {
			return nil, usage(fmt.Errorf("tokenizer: %w", err))
		}
		load.Go(func() { loadErr = g.load(g.c.Tokenizer, g.file) })
	}
	err := g.look(ctx)
	load.Wait()
	if err != nil {
		return nil, err
	}
	if g.vocab > 0 {
		loadErr = g.trained(ctx)
	}
	if loadErr != nil {
		return nil, loadErr
	}
	src := shards.New(g.inputs, g.c.Options)
	if g.c.Stdin != nil {
		src.SetStdin(g.c.Stdin)
	}
	if _, err := os.Stat(g.c.Out); err != nil {
		g.c.Progress(IngestProgress{Phase: PhaseEncode, Total: g.size})
	}
	res, err := tokens.Prepare(ctx, tokens.PrepareConfig{
		Out: g.c.Out, Source: src, Tokenizer: g.tok, Val: g.c.Val, Workers: g.c.Workers,
		Fingerprint: g.fingerprint, Policies: g.policies(),
		Counts: func() map[string]int64 {
			counts := map[string]int64{}
			for _, n := range src.Report().Skipped {
				counts[string(n.Reason)] = n.Count
			}
			return counts
		},
		Progress: func(p tokens.Progress) {
			g.c.Progress(IngestProgress{Phase: PhaseEncode, Done: p.Bytes, Total: g.size, Docs: p.Docs, Tokens: p.Tokens})
		},
	})
	if err != nil {
		return nil, err
	}
	r := &IngestResult{Dir: g.c.Out, Cached: res.Cached, Train: res.Store, Val: res.Val, Tokenizer: g.tok, Stats: res.Stats}
	if !res.Cached {
		r.Report = src.Report()
	}
	return r, nil
}

// look finds the inputs and chooses the folder.
func (g *ingest) look(ctx context.Context) (err error) {
	if g.inputs, err = shards.DiscoverHeld(g.c.Inputs, g.c.Options, holdBytes()); err != nil {
		return err
	}
	g.size = textSize(g.inputs)
	if g.c.Out != "" {
		return nil
	}
	fp, err := g.fingerprint(ctx)
	if err != nil {
		return err
	}
	return g.place(fp.Digest)
}

// check finds what is wrong with the request itself.
func (g *ingest) check() error {
	if err := g.c.Options.Validate(); err != nil {
		return err
	}
	v, ok := strings.CutPrefix(g.c.Tokenizer, trainPrefix)
	switch {
	case g.c.Tokenizer == "":
		return errors.New("a tokenizer is needed: a tokenizer.json, or train:V to train one of V entries")
	case ok:
		n, err := strconv.Atoi(v)
		if err != nil || n < 257 || n > 1<<20 {
			return fmt.Errorf("tokenizer %q: want train:V with V from 257 to 1048576", g.c.Tokenizer)
		}
		g.vocab = n
	}
	if g.vocab > 0 && slices.Contains(g.c.Inputs, "-") {
		return errors.New("train:V reads the inputs more than once, and standard input can be read only once; save it to a file, or name a tokenizer file")
	}
	return nil
}

// textSize estimates the bytes of text in inputs from the sizes of their files,
// for progress alone: compressed text is taken to be four times as large, what
// Parquet holds twice. 0 means that nothing is known, as for a pipe.
func textSize(inputs []shards.Input) int64 {
	var n int64
	for _, in := range inputs {
		switch {
		case in.Skip != "":
		case in.Size < 0:
			return 0
		case in.Compression != "":
			n += 4 * in.Size
		case in.Kind == shards.KindParquet:
			n += 2 * in.Size
		default:
			n += in.Size
		}
	}
	return n
}

// fingerprint returns the digest of all inputs, and of every argument by itself, once
// for all. It reads what nobody has read and hashed yet. A pipe has none, so what comes
// from one is never found again.
func (g *ingest) fingerprint(ctx context.Context) (tokens.Fingerprint, error) {
	if g.print != nil {
		return *g.print, nil
	}
	var fp tokens.Fingerprint
	if slices.ContainsFunc(g.inputs, func(in shards.Input) bool { return in.Size < 0 }) {
		return fp, nil
	}
	total := sha256.New()
	for from := 0; from < len(g.inputs); {
		to := from
		for to < len(g.inputs) && g.inputs[to].Arg == g.inputs[from].Arg {
			to++
		}
		part := g.inputs[from:to]
		from = to
		g.c.Progress(IngestProgress{Phase: PhaseFingerprint, Total: g.size})
		d, err := shards.Digest(ctx, part)
		if err != nil {
			return fp, err
		}
		fp.Inputs = append(fp.Inputs, manifestInput(part, d))
		fmt.Fprintf(total, "%s\n", d)
	}
	fp.Digest = hex.EncodeToString(total.Sum(nil))
	g.print = &fp
	return fp, nil
}

// manifestInput is what a manifest says about an argument. It must follow from the
// digest, which decides whether a store is used again: so there is no path, and
// the name is that of a single file, which the digest holds, and not that of a
// folder, which it does not.
func manifestInput(part []shards.Input, digest string) store.Input {
	in := store.Input{Digest: digest}
	files := 0
	for i := range part {
		if part[i].Skip == "" {
			files++
			in.Name, in.Bytes = part[i].Rel, in.Bytes+part[i].Size
		}
	}
	if files != 1 {
		in.Name = ""
	}
	return in
}

// policies is everything about the reading that can change the store.
func (g *ingest) policies() map[string]string {
	o := g.c.Options
	p := map[string]string{
		"field": o.Field, "kind": string(o.Kind), "invalid_utf8": string(o.InvalidUTF8), "bad_line": string(o.BadLine),
		"truncated": string(o.Truncated), "too_long": string(o.TooLong), "empty": string(o.Empty), "duplicate": string(o.Duplicate),
		"max_line": fmt.Sprint(o.MaxLine), "max_doc": fmt.Sprint(o.MaxDoc),
		"include": strings.Join(o.Include, " "), "exclude": strings.Join(o.Exclude, " "),
	}
	if g.vocab > 0 {
		p["tokenizer"] = g.c.Tokenizer
		if g.c.Family != "" {
			p["tokenizer"] += " " + g.c.Family
		}
	}
	for _, k := range []string{"kind", "include", "exclude", "field", "invalid_utf8", "bad_line", "truncated", "too_long", "empty", "duplicate"} {
		if p[k] == "" {
			delete(p, k)
		}
	}
	for _, k := range []string{"max_line", "max_doc"} {
		if p[k] == "0" {
			delete(p, k)
		}
	}
	return p
}

// place chooses the folder when none is named.
func (g *ingest) place(digest string) error {
	if g.c.Out != "" {
		return nil
	}
	if digest == "" {
		return usage(errors.New("a store made from standard input needs a name: set data.store"))
	}
	spec := g.c.Tokenizer
	if g.vocab == 0 {
		sum := sha256.Sum256(g.file)
		spec = hex.EncodeToString(sum[:])
	}
	b, err := json.Marshal([]any{digest, spec, g.c.Val.String(), g.policies()})
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	g.c.Out = filepath.Join(IngestDir, hex.EncodeToString(sum[:8]))
	return nil
}

// trained trains the tokenizer that is asked for, or takes it from the store that is
// there already: the key of the store then tells whether it is the same, since training
// has one result.
func (g *ingest) trained(ctx context.Context) error {
	path := filepath.Join(g.c.Out, tokens.TokenizerName)
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		return g.load(path, b)
	case errors.Is(err, fs.ErrPermission):
		return usage(fmt.Errorf("tokenizer: %w", err))
	}
	// Found out now rather than after the training.
	if _, err := os.Stat(g.c.Out); err == nil {
		return usage(fmt.Errorf("%s is there already and is no store with a tokenizer; remove it or choose another folder", g.c.Out))
	}
	g.tok, err = g.train(ctx)
	return err
}

// load makes the tokenizer of a file that holds b.
func (g *ingest) load(path string, b []byte) (err error) {
	if g.tok, err = tokenize.Load(bytes.NewReader(b)); err != nil {
		return usage(fmt.Errorf("tokenizer %s: %w", path, err))
	}
	g.tok.Warm() // while something else runs beside it
	return nil
}

// train learns a tokenizer from the documents that are not kept for validation.
func (g *ingest) train(ctx context.Context) (*tokenize.Tokenizer, error) {
	hold, err := tokens.NewHoldout(g.c.Val)
	if err != nil {
		return nil, usage(err)
	}
	if hold.MustSee() {
		for text, err := range g.texts(ctx, PhaseChoose) {
			if err != nil {
				return nil, err
			}
			hold.See(text)
		}
	}
	cfg := tokenize.TrainConfig{Vocab: g.vocab, Family: g.c.Family, Workers: g.c.Workers, Progress: func(done, total int) {
		g.c.Progress(IngestProgress{Phase: PhaseMerge, Done: int64(done), Total: int64(total)})
	}}
	return tokenize.Train(ctx, cfg, func(yield func([]byte, error) bool) {
		for text, err := range g.texts(ctx, PhaseCount) {
			if err == nil && hold.Holds(text) {
				continue
			}
			if !yield(text, err) {
				return
			}
		}
	})
}

// TrainTokenizer trains a tokenizer of vocab ids on all documents of the inputs.
// Family is the split pattern, "" for the default.
func TrainTokenizer(ctx context.Context, c IngestConfig, vocab int) (*tokenize.Tokenizer, error) {
	c.Tokenizer, c.Val = trainPrefix+strconv.Itoa(vocab), tokens.Val{}
	g := &ingest{c: c}
	if g.c.Workers <= 0 {
		g.c.Workers = runtime.GOMAXPROCS(0)
	}
	if g.c.Progress == nil {
		g.c.Progress = func(IngestProgress) {}
	}
	t, err := func() (*tokenize.Tokenizer, error) {
		if len(c.Inputs) == 1 && c.Inputs[0] == "-" {
			g.vocab = vocab // one pass is enough here
		} else if err := g.check(); err != nil {
			return nil, usage(err)
		}
		var err error
		if g.inputs, err = shards.DiscoverHeld(g.c.Inputs, g.c.Options, holdBytes()); err != nil {
			return nil, err
		}
		g.size = textSize(g.inputs)
		return g.train(ctx)
	}()
	if err != nil {
		return nil, classifyIngest(ctx, err)
	}
	return t, nil
}

// texts reads all inputs once. The reading runs in a pipeline of its own, which
// ends before the iteration does. A text is valid until the next one is asked
// for.
func (g *ingest) texts(ctx context.Context, phase Phase) func(yield func([]byte, error) bool) {
	return func(yield func([]byte, error) bool) {
		src := shards.New(g.inputs, g.c.Options)
		if g.c.Stdin != nil {
			src.SetStdin(g.c.Stdin)
		}
		p := pipeline.New()
		docs := pipeline.Source(p, "shards", pipeline.LinkConfig{Items: 16, Bytes: 32 << 20}, src)
		blocks := make(chan *item.Docs)
		enough := make(chan struct{})
		pipeline.Sink(p, "texts", docs, pipeline.StageFunc[*item.Docs, struct{}](
			func(ctx context.Context, in pipeline.In[*item.Docs], _ pipeline.Out[struct{}]) error {
				for b, err := range pipeline.Each(ctx, in) {
					if err != nil {
						return err
					}
					select {
					case blocks <- b:
					case <-enough:
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				return nil
			}))
		end := make(chan error, 1)
		go func() {
			end <- p.Run(ctx)
			close(blocks)
		}()
		prog := IngestProgress{Phase: phase, Total: g.size}
		for b := range blocks {
			for i := range b.Docs {
				if !yield(b.Docs[i].Text, nil) {
					close(enough)
					for range blocks { // until the pipeline has ended
					}
					return
				}
			}
			if b.Free != nil {
				b.Free()
			}
			prog.Docs, prog.Done = prog.Docs+int64(len(b.Docs)), prog.Done+b.Bytes
			g.c.Progress(prog)
		}
		if err := <-end; err != nil {
			yield(nil, err)
		}
	}
}
