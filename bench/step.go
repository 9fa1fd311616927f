package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/num"
	"refrain/model"
	"refrain/pipeline"
	"refrain/stages/batch"
	"refrain/stages/item"
	"refrain/stages/repack"
	"refrain/stages/upload"
	"refrain/train"
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
	drv := host.New(host.Config{Devices: cfg.Devices, Threads: cfg.Threads, Profile: profile})
	var devs []gpu.Device
	closers := []func() error{}
	defer func() {
		for _, c := range slices.Backward(closers) {
			err = errors.Join(err, c())
		}
	}()
	for i := range cfg.Devices {
		d, err := drv.Open(i)
		if err != nil {
			return nil, err
		}
		devs, closers = append(devs, d), append(closers, d.Close)
	}
	total := int64(cfg.Warm + cfg.Steps)
	o := train.Options{
		Model: cfg.Model, Seed: 1, Steps: total, Batch: cfg.B, T: cfg.T, Shards: cfg.Shards, Devices: cfg.Devices, Micro: 1, Slots: 3,
		DocMask: false, Policy: cfg.Policy, Optim: train.Optim{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1, Warmup: 1},
	}
	for r := range o.Optim.LRMul {
		o.Optim.LRMul[r], o.Optim.Decay[r] = 1, 0.1
	}
	tr, err := train.New(ctx, o, devs)
	if err != nil {
		return nil, err
	}
	closers = append(closers, tr.Close)
	stream, err := repack.NewStream(NewCorpus(int64(cfg.T*cfg.B*4), cfg.Model.Vocab, 400, 1), repack.Config{Mode: repack.Repack, T: cfg.T})
	if err != nil {
		return nil, err
	}
	b, err := batch.New(devs[0], batch.Config{N: cfg.B, T: cfg.T, Ring: 4, Vocab: cfg.Model.Vocab})
	if err != nil {
		return nil, err
	}
	closers = append(closers, b.Close)
	up, err := upload.New(ctx, upload.Config{Devices: devs, N: cfg.B, T: cfg.T, Slots: o.Slots, Slot: tr.Slot})
	if err != nil {
		return nil, err
	}
	closers = append(closers, up.Close)
	p := pipeline.New()
	rows := pipeline.Source(p, "repack", pipeline.LinkConfig{Items: 4}, repack.Source(stream, cfg.B, 0, total))
	batches := pipeline.Then(p, "batch", rows, pipeline.LinkConfig{Items: 2, Release: pipeline.ReleaseOf((*item.Batch).Drop)}, b)
	ready := pipeline.Then(p, "upload", batches, pipeline.LinkConfig{Items: 1, Release: pipeline.ReleaseOf((*item.DeviceBatch).Drop)}, up)
	m := &meter{tr: tr, warm: int64(cfg.Warm)}
	pipeline.Sink(p, "step", ready, pipeline.StageFunc[*item.DeviceBatch, struct{}](m.run))
	if err := p.Run(ctx); err != nil {
		return nil, err
	}
	times := m.times
	res = &StepResult{Best: slices.Min(times), Wait: m.wait()}
	tokens := float64(cfg.B * cfg.T)
	med := median(times)
	threads := 0
	for _, d := range devs {
		threads += d.Info().Threads
	}
	res.Line = Line{
		Name: fmt.Sprintf("Step/preset=%s/precision=%s", cfg.Name, cfg.Policy), Threads: threads, N: len(times), PerOp: med,
		Metrics: []Metric{
			{tokens / med.Seconds(), "tok/s"}, {100 * res.Wait, "wait%"}, {tokens / res.Best.Seconds(), "best-tok/s"},
			{tr.Cost().FLOPs * float64(cfg.Devices) / med.Seconds() / 1e9, "GFLOP/s"},
		},
	}
	if profile {
		for _, d := range devs {
			if p, ok := d.(gpu.Profiler); ok {
				res.Kernels = append(res.Kernels, p.KernelTimes()...)
			}
		}
	}
	return res, nil
}

// meter is the end of the chain: it steps and notes when each step is done.
type meter struct {
	tr    *train.Trainer
	warm  int64
	times []time.Duration // of the steps after warm
	last  time.Time
	idle  time.Duration // of the device, when measuring began
}

func (m *meter) run(ctx context.Context, in pipeline.In[*item.DeviceBatch], _ pipeline.Out[struct{}]) error {
	for b, err := range pipeline.Each(ctx, in) {
		if err != nil {
			return err
		}
		r, ok, err := m.tr.Step(ctx, b)
		if err != nil {
			return err
		}
		if ok {
			m.done(r.Step)
		}
	}
	r, ok, err := m.tr.Flush(ctx)
	if ok {
		m.done(r.Step)
	}
	return err
}

func (m *meter) done(step int64) {
	now := time.Now()
	switch {
	case step > m.warm:
		m.times = append(m.times, now.Sub(m.last))
	case step == m.warm:
		m.idle = m.tr.Idle()
	}
	m.last = now
}

// wait is the share of the measured time in which the device had nothing to do.
func (m *meter) wait() float64 {
	var sum time.Duration
	for _, t := range m.times {
		sum += t
	}
	return float64(m.tr.Idle()-m.idle) / float64(sum)
}
