package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"unsafe"

	"refrain/gpu"
	"refrain/internal/fsx"
	"refrain/model"
	"refrain/stages/repack"
	"refrain/train"
	"refrain/train/ckpt"
)

// state is state.json of a checkpoint: all that a resume needs beside the
// tensors. The schedule is a pure function of step and horizon, randomness of
// keys and counters, the data order of the stream's state.
type state struct {
	Step    int64        `json:"step"`    // optimiser updates done, AdamW's step count
	Horizon int64        `json:"horizon"` // steps of the whole run, frozen
	Stream  repack.State `json:"stream"`  // next window to be consumed
	Chain   string       `json:"chain"`   // hash chain over all steps
	Batch   int          `json:"batch"`   // rows a step, so that windows and steps agree
	Shards  int          `json:"shards"`  // logical shards, the tree of all sums

	// Precision of the activations. Checkpoints from before there was a choice
	// have none and are f32.
	Precision string `json:"precision,omitempty"`

	// Bits is set where the last steps have other bits than the CPU's kernels give:
	// "cuda" for steps of GPUs, and "purego" in checkpoints of plain Go kernels that did
	// not yet give the bits of all others.
	Bits string `json:"bits,omitempty"`
}

// infos lists the tensors of a model under their Hugging Face names.
func infos(l *model.Layout, prefix string) []ckpt.TensorInfo {
	var out []ckpt.TensorInfo
	for _, p := range l.Params {
		out = append(out, ckpt.TensorInfo{Name: prefix + p.Name, DType: "F32", Shape: p.Shape, Off: int64(p.Off) * 4, Len: int64(p.Len) * 4})
	}
	return out
}

func floatBytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*4)
}

// Checkpoints writes and finds the checkpoints of one run.
type Checkpoints struct {
	fs   fsx.FS
	dir  string
	id   ckpt.Identity
	keep int
	s    *Setup
}

func (s *Setup) checkpoints(fs fsx.FS, dir, runID string) *Checkpoints {
	return &Checkpoints{fs: fs, dir: dir, keep: s.Config.Save.Keep, s: s, id: ckpt.Identity{
		RunID: runID, ConfigHash: s.ConfigHash(), TokenizerHash: s.TokHash, DataHash: s.DataHash,
	}}
}

// Write saves v durably and applies the retention rule.
func (c *Checkpoints) Write(ctx context.Context, v *train.Save) (string, error) {
	l := c.s.Options.Model.Layout()
	snap := v.Snapshot
	st := state{
		Step: snap.Step, Horizon: c.s.Options.Steps, Stream: c.s.Feed.State(v.Window),
		Chain: v.Chain.String(), Batch: c.s.Options.Batch, Shards: c.s.Options.Shards,
		Precision: c.s.Options.Policy.String(), Bits: c.s.bits(),
	}
	cfg, err := c.hfConfig()
	if err != nil {
		return "", err
	}
	out := &ckpt.Snapshot{
		Identity: c.id, Step: snap.Step, Tokens: v.Window * int64(c.s.Options.T),
		State: st, ModelConfig: cfg, Tokenizer: c.s.TokJSON,
	}
	if out.Model, err = ckpt.Slice(infos(l, ""), floatBytes(snap.Weights)); err != nil {
		return "", err
	}
	for _, m := range []struct {
		prefix string
		x      []float32
	}{{"m.", snap.M}, {"v.", snap.V}} {
		t, err := ckpt.Slice(infos(l, m.prefix), floatBytes(m.x))
		if err != nil {
			return "", err
		}
		out.Optim = append(out.Optim, t...)
	}
	saved, err := ckpt.Save(ctx, c.fs, c.dir, out, ckpt.SaveOptions{})
	if errors.Is(err, ckpt.ErrStepExists) {
		// A stop right after a regular save: the step is on disk already.
		return filepath.Join(c.dir, ckpt.NameOf(snap.Step)), nil
	}
	if err != nil {
		return "", err
	}
	if c.keep > 0 {
		if _, err := ckpt.Retain(ctx, c.fs, c.dir, ckpt.Policy{Keep: max(2, c.keep), RunID: c.id.RunID, Pinned: c.s.endsCycle}); err != nil {
			return saved.Path, fmt.Errorf("saved, but old checkpoints were not removed: %w", err)
		}
	}
	return saved.Path, nil
}

func (c *Checkpoints) hfConfig() ([]byte, error) {
	var h model.HF
	if t := c.s.Tokenizer; t != nil {
		set := func(id uint32, ok bool) *int {
			if !ok {
				return nil
			}
			n := int(id)
			return &n
		}
		h.BOS, h.EOS = set(t.BOS()), set(t.EOS())
	}
	return model.HFConfig(c.s.Options.Model, h)
}

// Resume is a checkpoint ready to be continued.
type Resume struct {
	Step    int64
	Window  int64
	Chain   train.Chain
	Weights []float32
	M, V    []float32
	Report  *ckpt.Report
	// OwnBits is set where kernels computed the last steps that gave bits of their own.
	OwnBits bool
	// GPU is set where GPUs computed them.
	GPU bool
}

// Latest loads the newest good checkpoint of this run. ckpt.ErrNone means that
// the run has none yet.
func (c *Checkpoints) Latest(ctx context.Context) (*Resume, error) {
	l, report, err := ckpt.LoadLatest(ctx, c.fs, c.dir, ckpt.LoadOptions{Want: c.id})
	if err != nil {
		if len(report.Skipped) > 0 {
			err = fmt.Errorf("%s\n%w", report, err)
		}
		return nil, err
	}
	r, err := c.resume(l)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", l.Path, err)
	}
	r.Report = report
	return r, nil
}

func (c *Checkpoints) resume(l *ckpt.Loaded) (*Resume, error) {
	var st state
	if err := json.Unmarshal(l.State, &st); err != nil {
		return nil, fmt.Errorf("state.json: %w", err)
	}
	o := &c.s.Options
	if st.Precision == "" {
		st.Precision = gpu.F32.String()
	}
	switch {
	case st.Precision != o.Policy.String():
		return nil, usage(fmt.Errorf("the run computes in %s and is now configured for train.precision = %s; put that back, or start a new run", st.Precision, o.Policy))
	case st.Horizon != o.Steps:
		return nil, usage(fmt.Errorf("the run was started for %d steps and is now configured for %d; the schedule's horizon is frozen: restore the setting or start a new run", st.Horizon, o.Steps))
	case st.Batch != o.Batch || st.Shards != o.Shards:
		return nil, usage(fmt.Errorf("the run has %d rows a step in %d shards, the configuration %d in %d", st.Batch, st.Shards, o.Batch, o.Shards))
	case st.Step != l.Manifest.Step:
		return nil, fmt.Errorf("state.json says step %d, the manifest %d", st.Step, l.Manifest.Step)
	}
	g, err := c.s.Feed.Resume(st.Stream)
	if err != nil {
		return nil, usage(err)
	}
	if g != st.Step*int64(st.Batch) {
		return nil, fmt.Errorf("state.json says step %d and window %d; with %d rows a step they cannot both be right", st.Step, g, st.Batch)
	}
	r := &Resume{Step: st.Step, Window: g, OwnBits: st.Bits == "purego", GPU: st.Bits == gpuBits}
	if r.Chain, err = train.ParseChain(st.Chain); err != nil {
		return nil, err
	}
	lay := o.Model.Layout()
	r.Weights, r.M, r.V = make([]float32, lay.Total), make([]float32, lay.Total), make([]float32, lay.Total)
	if err := ckpt.Gather(infos(lay, ""), floatBytes(r.Weights), l.Model); err != nil {
		return nil, err
	}
	if len(l.Optim) != 2*len(lay.Params) {
		return nil, fmt.Errorf("optimizer.safetensors has %d tensors, expected %d", len(l.Optim), 2*len(lay.Params))
	}
	byName := func(prefix string) []ckpt.Tensor {
		var out []ckpt.Tensor
		for _, t := range l.Optim {
			if len(t.Name) > len(prefix) && t.Name[:len(prefix)] == prefix {
				out = append(out, t)
			}
		}
		return out
	}
	return r, errors.Join(
		ckpt.Gather(infos(lay, "m."), floatBytes(r.M), byName("m.")),
		ckpt.Gather(infos(lay, "v."), floatBytes(r.V), byName("v.")),
	)
}
