package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"refrain/gpu"
	"refrain/internal/num"
	"refrain/model"
	"refrain/stages/repack"
)

// StepConfig is a training step fed by the real chain: repack, batch, upload.
type StepConfig struct {
	Model   model.Config
	Name    string // of the model, for the line
	T, B    int
	Shards  int
	Devices int
	Threads int // of all devices; 0: all
	Policy  model.Policy
	Warm    int // steps before measuring
	Steps   int // steps measured
}

// StepResult is a measured run of steps.
type StepResult struct {
	Line
	Best    time.Duration
	Wait    float64 // share of the time in which the device had nothing to do
	Kernels []gpu.KernelTime
}

// corpus is random tokens in documents of log-normal-like lengths: the step
// does not look at what they say.
type corpus struct {
	lengths []uint32
	total   int64
	s       num.Stream
	vocab   uint64
}

// NewCorpus returns n tokens or a few more of synthetic documents with ids below vocab.
func NewCorpus(n int64, vocab int, mean int, seed uint64) repack.Corpus {
	c := &corpus{s: num.NewStream("bench corpus", seed), vocab: uint64(vocab)}
	for i := uint64(0); c.total < n; i++ {
		l := uint32(1 + c.s.Uintn(i, uint64(2*mean)))
		c.lengths = append(c.lengths, l)
		c.total += int64(l)
	}
	return c
}

func (c *corpus) NumDocs() int          { return len(c.lengths) }
func (c *corpus) NumTokens() int64      { return c.total }
func (c *corpus) Lengths() []uint32     { return c.lengths }
func (c *corpus) Fingerprint() [32]byte { return [32]byte{1} }
func (c *corpus) Copy(doc, from, to int, dst []int32) {
	for i := from; i < to; i++ {
		dst[i-from] = int32(c.s.Uintn(uint64(doc)<<24+uint64(i)+1<<50, c.vocab))
	}
}

// Step measures cfg. profile keeps the time of every kernel.
func Step(ctx context.Context, cfg StepConfig, profile bool) (res *StepResult, err error) {
	s, err := openStep(ctx, cfg, int64(cfg.Warm+cfg.Steps), profile)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r, err := s.round(cfg.Warm, cfg.Steps)
	if err != nil {
		return nil, err
	}
	res = &StepResult{Best: slices.Min(r.times), Wait: float64(r.idle) / float64(r.sum())}
	tokens := float64(cfg.B * cfg.T)
	med := median(r.times)
	res.Line = Line{
		Name: fmt.Sprintf("Step/preset=%s/precision=%s", cfg.Name, cfg.Policy), Threads: s.threads(), N: len(r.times), PerOp: med,
		Metrics: []Metric{
			{tokens / med.Seconds(), "tok/s"}, {100 * res.Wait, "wait%"}, {tokens / res.Best.Seconds(), "best-tok/s"},
			{s.tr.Cost().FLOPs * float64(cfg.Devices) / med.Seconds() / 1e9, "GFLOP/s"},
		},
	}
	if profile {
		for _, d := range s.devs {
			if p, ok := d.(gpu.Profiler); ok {
				res.Kernels = append(res.Kernels, p.KernelTimes()...)
			}
		}
	}
	return res, nil
}
