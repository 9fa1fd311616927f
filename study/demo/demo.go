// Package demo is the demonstration: real text, a trained tokenizer, a token
// store, ten small runs that read the same 65,536 tokens many times, a run that
// is killed and resumed, and a report. It shows what the recipes of
// repeated-data pretraining do at a scale of minutes on two cores, and says
// what it found, whatever that is.
package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/model"
	"refrain/stages/tokens"
	"refrain/study/corpus"
	"refrain/tokenize"
)

// Options of a demonstration.
type Options struct {
	Out    string // folder to create; must be empty or absent, or an earlier demo's
	Quick  bool
	Corpus string // folder of text files; empty means the Go source tree
	Binary string // this program, for the run that is killed
	Say    func(format string, args ...any)
	Tick   func(format string, args ...any) // replaces the progress line
}

// Outcome is what a demonstration leaves.
type Outcome struct {
	Report   string
	Findings []string
}

type demo struct {
	o      Options
	start  time.Time
	corpus *text
	tok    *tokenize.Tokenizer
	store  string
	plan   plan
	note   string // why the plan is smaller
	rate   float64
	valTok int64
	kill   string // the sentence about kill and resume
}

// marker names the file that makes a folder a demo's own.
const marker = "demo.json"

// Run makes the demonstration. It ends early when ctx is done.
func Run(ctx context.Context, o Options) (*Outcome, error) {
	d := &demo{o: o, start: time.Now(), store: filepath.Join(o.Out, "store")}
	// An earlier demo's folder is emptied only when there is something to put there.
	if err := d.read(ctx); err != nil {
		return nil, err
	}
	if err := d.claim(); err != nil {
		return nil, err
	}
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	if err := d.measure(ctx); err != nil {
		return nil, err
	}
	results, err := d.runAll(ctx)
	if err != nil {
		return nil, err
	}
	f := d.findings(results)
	path := filepath.Join(o.Out, run.ReportFile)
	if err := d.report(path, results, f); err != nil {
		return nil, err
	}
	return &Outcome{Report: path, Findings: f}, nil
}

func (d *demo) say(format string, args ...any) {
	d.o.Say("[%4.0fs] "+format, append([]any{time.Since(d.start).Seconds()}, args...)...)
}

// claim makes the output folder, or empties an earlier demo's.
func (d *demo) claim() error {
	entries, err := os.ReadDir(d.o.Out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return &run.Error{Code: run.ExitDisk, Err: err}
	}
	if len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(d.o.Out, marker)); err != nil {
			return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%s is not empty and not an earlier demo's folder; choose another --out", d.o.Out)}
		}
		if err := os.RemoveAll(d.o.Out); err != nil {
			return &run.Error{Code: run.ExitDisk, Err: err}
		}
	}
	if err := os.MkdirAll(d.o.Out, 0o755); err != nil {
		return &run.Error{Code: run.ExitDisk, Err: err}
	}
	b, err := json.Marshal(map[string]any{"made_by": "refrain demo", "started": time.Now().UTC()})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.o.Out, marker), append(b, '\n'), 0o644)
}

// read chooses the text.
func (d *demo) read(ctx context.Context) error {
	root, what, err := corpus.Find(ctx, d.o.Corpus, "--corpus")
	if err != nil {
		return &run.Error{Code: run.ExitUsage, Err: err}
	}
	if d.corpus, err = readCorpus(ctx, root, what, corpusBytes); err != nil {
		return &run.Error{Code: run.ExitData, Err: err}
	}
	d.say("corpus     %s: %d files, %d bytes", d.corpus.What, len(d.corpus.Docs), d.corpus.Bytes)
	return nil
}

// prepare trains the tokenizer on the training documents and writes the store.
func (d *demo) prepare(ctx context.Context) error {
	val := tokens.Val{Docs: valDocs}
	hold, err := tokens.NewHoldout(val)
	if err != nil {
		return err
	}
	for _, x := range d.corpus.Docs {
		hold.See(x.Text)
	}
	d.tok, err = tokenize.Train(ctx, tokenize.TrainConfig{Vocab: vocab, Workers: runtime.GOMAXPROCS(0)}, func(yield func([]byte, error) bool) {
		for _, x := range d.corpus.Docs {
			if !hold.Holds(x.Text) && !yield(x.Text, nil) {
				return
			}
		}
	})
	if err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	r, err := tokens.Prepare(ctx, tokens.PrepareConfig{
		Out: d.store, Source: corpus.Source(d.corpus.Docs), Tokenizer: d.tok, Val: val,
		Workers: runtime.GOMAXPROCS(0), CacheBytes: 4 << 20,
		Fingerprint: func(context.Context) (tokens.Fingerprint, error) {
			return tokens.Fingerprint{Digest: corpus.Digest(d.corpus.Docs)}, nil
		},
	})
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if r.Store.Tokens < uniqueTokens {
		return &run.Error{Code: run.ExitData, Err: fmt.Errorf("the training documents have %d tokens; the demo needs %d", r.Store.Tokens, uniqueTokens)}
	}
	d.valTok = r.Val.Tokens
	d.say("tokenizer  %d entries, %.2f bytes a token; store: %d training documents, %d for validation (%d tokens)",
		d.tok.VocabSize(), float64(d.corpus.Bytes)/float64(r.Store.Tokens+r.Val.Tokens), r.Store.Documents, r.Val.Documents, r.Val.Tokens)
	return d.writeTokenizer()
}

// writeTokenizer puts tokenizer.json into the store unless Prepare did.
func (d *demo) writeTokenizer() error {
	path := filepath.Join(d.store, "tokenizer.json")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	var b bytes.Buffer
	if err := d.tok.WriteJSON(&b); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// configText is the configuration of one run, as a user would write it.
func (d *demo) configText(a arm, seed int) string {
	steps := a.Epochs * (uniqueTokens / seq / batchRows)
	return fmt.Sprintf(`# %s: %s
model: {preset: micro-0.3M, init: normal-0.02}
data:
  store: %q
  mode: %s
  seq: %d
  subset: {tokens: %d}
train: {batch: %d, epochs: %d, seed: %d, threads: 1}
optim: {lr: %g, weight_decay: %g, embedding_decay: %g}
eval: {every: %d, batch: 32}
save: {every: %d, keep: 2}
log: {every: 64}
`, a.Name, a.What, d.store, a.Mode, seq, uniqueTokens, batchRows, a.Epochs, seed, learningRate, a.Decay, a.EmbedWD,
		max(1, (steps+evalsPerRun-1)/evalsPerRun), max(1, steps/8))
}

// setup resolves the configuration of a run and leaves it as a file.
func (d *demo) setup(a arm, seed int) (*run.Setup, string, error) {
	name := fmt.Sprintf("%s-seed%d", a.Name, seed)
	path := filepath.Join(d.o.Out, name+".yaml")
	if err := os.WriteFile(path, []byte(d.configText(a, seed)), 0o644); err != nil {
		return nil, "", &run.Error{Code: run.ExitDisk, Err: err}
	}
	r, err := config.Load(path, nil)
	if err != nil {
		return nil, "", err
	}
	s, err := run.NewSetup(&r.Config, r)
	return s, name, err
}

// measure runs a few steps on two devices at once and chooses the plan.
func (d *demo) measure(ctx context.Context) error {
	devs, err := openDevices()
	if err != nil {
		return err
	}
	defer devs.Close()
	rate, err := d.speed(ctx, devs)
	if err != nil {
		return err
	}
	budget := 165*time.Second - time.Since(d.start)
	if d.o.Quick {
		budget = 50*time.Second - time.Since(d.start)
	}
	d.rate = rate
	d.plan, d.note = choose(d.o.Quick, rate, d.valTok, budget)
	if d.note != "" {
		d.say("speed      %s", d.note)
	}
	d.say("plan       %d runs of %.2f M parameters in %s on %d unique tokens, two at a time, about %.0f s",
		d.plan.Runs(), 0.363, model.AutoPolicy(), uniqueTokens, d.plan.seconds(rate, d.valTok))
	return nil
}

// numWorkers is how many runs go on side by side.
const numWorkers = 2

func openDevices() (run.Devices, error) { return run.OpenDevices(numWorkers, numWorkers, false) }
