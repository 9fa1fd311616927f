package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"

	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/stages/shards"
	"refrain/stages/tokens"
)

// PrecisionConfig compares what bf16 and f32 learn: pairs of runs that differ in
// precision alone, evaluated on documents that were kept from training.
type PrecisionConfig struct {
	Docs   [][]byte // distinct documents of valid UTF-8
	Share  float64  // of the documents that are kept for evaluation
	Vocab  int      // entries of the tokenizer, which is trained on Docs
	Preset string   // model shape, with its learning rate
	T, B   int      // tokens in a row, rows in a step
	Steps  int64    // of each run
	Seeds  int      // pairs, at least 2; a seed sets initial weights and order of both
	// Threads of all runs, which come one after the other; losses do not depend on it.
	Threads int
	Dir     string // an empty folder
}

// pair is what two runs of a seed learned: held-out losses, nats a token.
type pair struct{ f32, bf16 float64 }

// Precision returns a line for each seed, with both held-out losses and nats-diff,
// that of bf16 less that of f32, and a last one over all seeds:
//
//	nats-diff    mean of the differences, with their quartiles
//	nats-diff-se its standard error
//	nats-spread  standard deviation of the f32 losses from seed to seed
//	diff/spread  size of the mean difference over that
//
// ns/op is the wall time of a whole run of f32, evaluation and checkpoint included.
func Precision(ctx context.Context, c PrecisionConfig, emit func(Line)) error {
	if c.Seeds < 2 {
		return fmt.Errorf("bench: %d pairs of runs have no spread; use 2 or more", c.Seeds)
	}
	dir, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	var pairs []pair
	var walls []time.Duration
	name := fmt.Sprintf("Precision/preset=%s/T=%d/B=%d/steps=%d", strings.TrimPrefix(c.Preset, "micro-"), c.T, c.B, c.Steps)
	for seed := range c.Seeds {
		var p pair
		t0 := time.Now()
		if p.f32, err = c.train(ctx, dir, seed, "f32"); err != nil {
			return err
		}
		wall := time.Since(t0)
		if p.bf16, err = c.train(ctx, dir, seed, "bf16"); err != nil {
			return err
		}
		pairs, walls = append(pairs, p), append(walls, wall)
		emit(Line{Name: fmt.Sprintf("%s/seed=%d", name, seed), Threads: c.Threads, N: 1, PerOp: wall,
			Metrics: []Metric{{p.f32, "nats-f32"}, {p.bf16, "nats-bf16"}, {p.bf16 - p.f32, "nats-diff"}}})
	}
	emit(Line{Name: name + "/all", Threads: c.Threads, N: len(pairs), PerOp: median(walls), Metrics: compare(pairs)})
	return nil
}

// compare is the figures over all pairs.
func compare(pairs []pair) []Metric {
	var diffs, wide []float64
	for _, p := range pairs {
		diffs, wide = append(diffs, p.bf16-p.f32), append(wide, p.f32)
	}
	mean, sd := stat.MeanStdDev(diffs, nil)
	spread := stat.StdDev(wide, nil)
	lo, _, hi := Quartiles(diffs)
	return []Metric{{mean, "nats-diff"}, {lo, "nats-diff-q1"}, {hi, "nats-diff-q3"},
		{stat.StdErr(sd, float64(len(pairs))), "nats-diff-se"}, {spread, "nats-spread"}, {math.Abs(mean) / spread, "diff/spread"}}
}

// prepare makes the token store and returns its folder.
func (c *PrecisionConfig) prepare(ctx context.Context) (string, error) {
	text := filepath.Join(c.Dir, "text.jsonl")
	if err := writeJSONL(text, c.Docs); err != nil {
		return "", err
	}
	r, err := run.Ingest(ctx, run.IngestConfig{
		Inputs: []string{text}, Options: shards.Options{Field: "text"}, Out: filepath.Join(c.Dir, "store"),
		Tokenizer: fmt.Sprintf("train:%d", c.Vocab), Val: tokens.Val{Share: c.Share}, Workers: c.Threads,
	})
	if err != nil {
		return "", err
	}
	if r.Val == nil || r.Val.Documents == 0 {
		return "", errors.New("bench: no document was kept for evaluation; there are too few")
	}
	return r.Dir, nil
}

func writeJSONL(path string, docs [][]byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for _, d := range docs {
		if err := enc.Encode(map[string]string{"text": string(d)}); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(w.Flush(), f.Close())
}

// train makes one run and returns its held-out loss at the end.
func (c *PrecisionConfig) train(ctx context.Context, storeDir string, seed int, precision string) (loss float64, err error) {
	name := fmt.Sprintf("%s-%d", precision, seed)
	r, err := config.Parse(name+".yaml", fmt.Appendf(nil, `model: {preset: %s}
data: {store: %q, seq: %d}
train: {batch: %d, steps: %d, seed: %d, threads: %d, precision: %s}
eval: {every: %d}
save: {minutes: 100000, keep: 1}
`, c.Preset, storeDir, c.T, c.B, c.Steps, seed, c.Threads, precision, c.Steps), nil)
	if err != nil {
		return 0, err
	}
	s, err := run.NewSetup(&r.Config, r)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if got := s.Options.Policy.String(); got != precision {
		return 0, fmt.Errorf("bench: the run computes in %s, not in %s", got, precision)
	}
	out := filepath.Join(c.Dir, name)
	res, err := run.Train(ctx, run.Job{Setup: s, Out: out, Resume: run.ResumeNever})
	if err != nil {
		return 0, err
	}
	if res.Val == nil {
		return 0, errors.New("bench: the run has no evaluation at its end")
	}
	return res.Val.Loss, os.RemoveAll(out)
}
