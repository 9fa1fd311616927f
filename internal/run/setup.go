// Package run wires a run together: it is the one place where configuration,
// stores, trainer, stages and files meet. Commands and studies call Train;
// everything below it works on parts.
package run

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"refrain/internal/run/config"
	"refrain/model"
	"refrain/stages/repack"
	"refrain/store"
	"refrain/tokenize"
	"refrain/train"
)

// Setup is a configuration joined with its data: everything about a run that
// is known before anything starts. Close it.
type Setup struct {
	Config    *config.Config
	Resolved  *config.Resolved // nil when the configuration did not come from a file
	Train     *store.Store
	Val       *store.Store  // nil when there is none
	Corpus    repack.Corpus // the training documents the configuration chose
	Stream    *repack.Stream
	Synth     *store.Store    // nil when the configuration mixes none in
	Mix       *repack.Mixture // of Stream and that of Synth; nil likewise
	Feed      repack.Feed     // what the run reads: Mix, or Stream
	Set       *ValSet         // nil when there is no validation store
	Tokenizer *tokenize.Tokenizer
	TokJSON   []byte
	Options   train.Options
	DataHash  string // fingerprint of the training documents, and of all else that is learned from, hexadecimal
	TokHash   string

	TeachersHash string     // of the weights of distill.teachers, hexadecimal; "" without
	Base         *BaseModel // weights that the run starts from; nil for new ones
}

// NewSetup opens the stores of c and checks everything that can be checked.
func NewSetup(c *config.Config, r *config.Resolved) (*Setup, error) {
	s := &Setup{Config: c, Resolved: r}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Verify reads every byte of the stores and compares it with their manifests. The
// order of a run says which tokens a step sees, so a changed token would train
// another model under the same name; the error is a *store.CorruptError, wrapped,
// that names shard, batch and bytes. It blocks for one pass over the files, which
// the run is about to read anyway. progress, when not nil, is told after each part
// whose store it is (its key in the configuration), and its bytes done and in all.
func (s *Setup) Verify(ctx context.Context, progress func(key string, done, total int64)) error {
	for _, st := range []struct {
		key string
		s   *store.Store
	}{{"data.store", s.Train}, {"data.synthetic.store", s.Synth}, {"data.val", s.Val}} {
		if st.s == nil {
			continue
		}
		var report func(done, total int64)
		if progress != nil {
			report = func(done, total int64) { progress(st.key, done, total) }
		}
		if err := store.Verify(ctx, st.s.Dir(), report); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return &Error{ExitData, fmt.Errorf("%s: %w", st.key, err)}
		}
	}
	return nil
}

// Close unmaps the stores.
func (s *Setup) Close() error {
	var errs []error
	if s.Train != nil {
		errs = append(errs, s.Train.Close())
	}
	if s.Synth != nil {
		errs = append(errs, s.Synth.Close())
	}
	if s.Val != nil {
		errs = append(errs, s.Val.Close())
	}
	return errors.Join(errs...)
}

func (s *Setup) open() error {
	c := s.Config
	if c.Data.Store == "" {
		return usage(errors.New("data.store is not set; prepare one with: refrain data prepare INPUT... -o STORE --tokenizer train:4096"))
	}
	var err error
	if s.Train, err = openStore(c.Data.Store); err != nil {
		return &Error{ExitData, fmt.Errorf("data.store: %w", err)}
	}
	if err := s.loadTokenizer(); err != nil {
		return &Error{ExitData, err}
	}
	corpus, err := selectDocs(s.Train, c)
	if err != nil {
		return usage(err)
	}
	s.Corpus = corpus
	fp := corpus.Fingerprint()
	s.DataHash = hex.EncodeToString(fp[:])
	s.TokHash = s.Train.Manifest().TokenizerHash
	mode, tail, err := orderOf(&c.Data)
	if err != nil {
		return usage(err)
	}
	rc := repack.Config{Mode: mode, Seed: *c.Data.Seed, T: c.Data.Seq, Tail: tail, TargetsInside: c.Data.Targets == "inside"}
	if mode == repack.Block {
		rc.Block = c.Data.Block
	}
	if s.Stream, err = repack.NewStream(corpus, rc); err != nil {
		return usage(err)
	}
	s.Feed = s.Stream
	if err := s.openSynth(); err != nil {
		return err
	}
	if err := s.openVal(); err != nil {
		return err
	}
	if err := s.options(); err != nil {
		return err
	}
	return s.openTeachers(context.Background())
}

func orderOf(d *config.Data) (repack.Mode, repack.Tail, error) {
	mode, err := repack.ParseMode(d.Mode)
	if err != nil {
		return 0, 0, err
	}
	tail, err := repack.ParseTail(d.Tail)
	return mode, tail, err
}

// gpuBits marks steps that GPUs computed.
const gpuBits = "cuda"

// bits says what gives the bits of a step beside the configuration: nothing on the CPU,
// whose kernels all give the same.
func (s *Setup) bits() string {
	if s.Config.Train.Device == "cuda" {
		return gpuBits
	}
	return ""
}

// loadTokenizer reads tokenizer.json beside the store's data and checks that
// it is the one the store was made with. A store without one still trains.
func (s *Setup) loadTokenizer() error {
	path := filepath.Join(s.Config.Data.Store, "tokenizer.json")
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	t, err := tokenize.Load(bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	h := t.Hash()
	if got, want := hex.EncodeToString(h[:]), s.Train.Manifest().TokenizerHash; got != want {
		return fmt.Errorf("%s is not the tokenizer the store was made with (hash %.12s, the store says %.12s); prepare the store again or put the right file back", path, got, want)
	}
	s.Tokenizer, s.TokJSON = t, b
	return nil
}

func (s *Setup) openVal() error {
	c := s.Config
	if _, err := os.Stat(filepath.Join(c.Data.Val, store.ManifestName)); err != nil {
		if s.Resolved != nil && s.Resolved.Origin("data.val").Kind != config.FromRule {
			return &Error{ExitData, fmt.Errorf("data.val: %w", err)}
		}
		return nil // no validation store was asked for, and none is there
	}
	var err error
	if s.Val, err = openStore(c.Data.Val); err != nil {
		return &Error{ExitData, fmt.Errorf("data.val: %w", err)}
	}
	if a, b := s.Val.Manifest().TokenizerHash, s.Train.Manifest().TokenizerHash; a != b {
		return &Error{ExitData, fmt.Errorf("data.val was made with another tokenizer (hash %.12s) than data.store (%.12s)", a, b)}
	}
	s.Set, err = NewValSet(s.Val, c.Data.Seq, c.Eval.Rows)
	if err != nil {
		return &Error{ExitData, fmt.Errorf("data.val: %w", err)}
	}
	return nil
}

// options fills the trainer's options from configuration and data.
func (s *Setup) options() error {
	c := s.Config
	m, err := ModelOf(c, s.Train.Manifest().Vocab)
	if err != nil {
		return usage(err)
	}
	if err := s.openBase(m); err != nil {
		return err
	}
	steps, err := c.Horizon(s.Stream.WindowsPerEpoch())
	if err != nil {
		return err
	}
	shards, err := Shards(c.Train.Batch, c.Train.Shards)
	if err != nil {
		return usage(err)
	}
	o := train.Options{
		Model: m, Seed: c.Train.Seed, Steps: steps,
		Batch: c.Train.Batch, T: c.Data.Seq, Shards: shards, Devices: c.Train.Devices, Micro: 1, Slots: 3,
		DocMask: c.Data.DocMask, ResetPositions: c.Data.ResetPositions,
	}
	if o.Policy, err = model.PolicyOf(c.Train.Precision); err != nil {
		return usage(fmt.Errorf("train.precision: %w", err))
	}
	if c.Train.MicroBatch > 0 {
		o.Micro = max(1, c.Train.Batch/c.Train.Devices/c.Train.MicroBatch)
	}
	p := &c.Optim
	o.Optim = train.Optim{
		LR: p.LR, Beta1: p.Beta1, Beta2: train.Beta2For(p.Beta2, p.Beta2RefBatch, c.Train.Batch), Eps: p.Eps, Clip: p.Clip, MinRatio: p.MinLRRatio,
		Warmup: max(1, int64(math.Round(p.WarmupFrac*float64(steps)))),
	}
	if p.Schedule == "cyclic" {
		o.Optim.Cycles = train.Cycles{N: p.Cycles, DecayFrom: p.CycleDecayFrom, DecayTo: p.CycleDecayTo}
	}
	if p.WarmupSteps != nil {
		o.Optim.Warmup = max(1, *p.WarmupSteps)
	}
	o.Optim.Decay = [model.NumRoles]float64{model.Embedding: p.EmbeddingDecay, model.Head: *p.HeadDecay, model.Tied: p.TiedDecay, model.Hidden: p.WeightDecay, model.Norm: p.NormDecay}
	o.Optim.LRMul = [model.NumRoles]float64{model.Embedding: p.LRMul.Embedding, model.Head: p.LRMul.Head, model.Tied: p.LRMul.Tied, model.Hidden: p.LRMul.Hidden, model.Norm: p.LRMul.Norm}
	if err := regularize(&o, &c.Regularize, s.Train.Manifest()); err != nil {
		return usage(err)
	}
	if err := o.Validate(); err != nil {
		return usage(err)
	}
	s.Options = o
	return nil
}

// defaultShards is the number of logical shards of a batch unless the
// configuration says otherwise: enough for four devices, few enough that the
// gradient products stay large.
const defaultShards = 4

// Shards returns the number of logical shards for a batch of that many rows:
// want, or for 0 the largest power of two up to defaultShards that divides it.
func Shards(batch, want int) (int, error) {
	if want > 0 {
		if batch%want != 0 {
			return 0, fmt.Errorf("train.shards = %d does not divide train.batch = %d", want, batch)
		}
		return want, nil
	}
	n := defaultShards
	for batch%n != 0 {
		n /= 2
	}
	return n, nil
}

// ModelOf returns the model shape of c for a store of that many ids.
func ModelOf(c *config.Config, vocab int) (model.Config, error) {
	m := model.Config{
		Vocab: c.Model.Vocab, Layers: c.Model.Layers, Dim: c.Model.Dim, Heads: c.Model.Heads, KVHeads: c.Model.KVHeads,
		FFN: c.Model.FFN, MaxT: c.Model.MaxT, RopeTheta: c.Model.RopeTheta, NormEps: c.Model.NormEps,
		Tie: c.Model.Tie, Init: model.Init(c.Model.Init),
	}
	var err error
	if m.RopeScaling, err = model.ParseRopeScaling(c.Model.RopeScaling); err != nil {
		return m, fmt.Errorf("model.%w", err)
	}
	switch {
	case m.Vocab == 0:
		m.Vocab = vocab
	case m.Vocab < vocab:
		return m, fmt.Errorf("model.vocab = %d, but the store has ids up to %d; use at least %d, or 0 for the store's own", m.Vocab, vocab-1, vocab)
	}
	return m, m.Validate()
}
