package bench

import (
	"context"
	"errors"
	"slices"
	"time"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/pipeline"
	"refrain/stages/batch"
	"refrain/stages/item"
	"refrain/stages/repack"
	"refrain/stages/upload"
	"refrain/train"
)

// stepSide is a training step with its devices and the real chain before it, which
// stands still between rounds, so that several take turns in one session.
type stepSide struct {
	cfg   StepConfig
	devs  []gpu.Device
	tr    *train.Trainer
	group *pipeline.Group // of the goroutine in which the chain runs

	ask    chan stepAsk   // closed: no more rounds
	answer chan stepRound // of the round that was asked for
	ended  chan struct{}  // closed: the chain is over
	told   bool           // round has returned why the chain ended

	closers []func() error
}

// stepAsk asks for a round: warm steps that do not count and then steps that do.
type stepAsk struct{ warm, steps int }

// stepRound is a measured round.
type stepRound struct {
	times []time.Duration // of the steps that count
	idle  time.Duration   // of the first device, while they ran
	loss  float64         // of the last step
}

// sum is the time of all steps that count.
func (r *stepRound) sum() (d time.Duration) {
	for _, t := range r.times {
		d += t
	}
	return d
}

// openStep starts a side. horizon is the number of steps of the schedule. Close it.
func openStep(ctx context.Context, cfg StepConfig, horizon int64, profile bool) (*stepSide, error) {
	s := &stepSide{cfg: cfg, ask: make(chan stepAsk), answer: make(chan stepRound), ended: make(chan struct{})}
	p, err := s.build(ctx, horizon, profile)
	if err != nil {
		return nil, errors.Join(err, s.free())
	}
	s.group = pipeline.NewGroup(ctx)
	s.group.Go(func(ctx context.Context) error {
		defer close(s.ended)
		return p.Run(ctx)
	})
	return s, nil
}

// build opens devices, trainer and chain.
func (s *stepSide) build(ctx context.Context, horizon int64, profile bool) (*pipeline.Pipeline, error) {
	cfg := &s.cfg
	drv := host.New(host.Config{Devices: cfg.Devices, Threads: cfg.Threads, Profile: profile})
	for i := range cfg.Devices {
		d, err := drv.Open(i)
		if err != nil {
			return nil, err
		}
		s.devs, s.closers = append(s.devs, d), append(s.closers, d.Close)
	}
	o := train.Options{
		Model: cfg.Model, Seed: 1, Steps: horizon, Batch: cfg.B, T: cfg.T, Shards: cfg.Shards, Devices: cfg.Devices, Micro: 1, Slots: 3,
		DocMask: false, Policy: cfg.Policy, Optim: train.Optim{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1, Warmup: 1},
	}
	for r := range o.Optim.LRMul {
		o.Optim.LRMul[r], o.Optim.Decay[r] = 1, 0.1
	}
	var err error
	if s.tr, err = train.New(ctx, o, s.devs); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.tr.Close)
	stream, err := repack.NewStream(NewCorpus(int64(cfg.T*cfg.B*4), cfg.Model.Vocab, 400, 1), repack.Config{Mode: repack.Repack, T: cfg.T})
	if err != nil {
		return nil, err
	}
	b, err := batch.New(s.devs[0], batch.Config{N: cfg.B, T: cfg.T, Ring: 4, Vocab: cfg.Model.Vocab})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, b.Close)
	up, err := upload.New(ctx, upload.Config{Devices: s.devs, N: cfg.B, T: cfg.T, Slots: o.Slots, Slot: s.tr.Slot})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, up.Close)
	p := pipeline.New()
	rows := pipeline.Source(p, "repack", pipeline.LinkConfig{Items: 4}, repack.Source(stream, cfg.B, 0, horizon))
	batches := pipeline.Then(p, "batch", rows, pipeline.LinkConfig{Items: 2, Release: pipeline.ReleaseOf((*item.Batch).Drop)}, b)
	ready := pipeline.Then(p, "upload", batches, pipeline.LinkConfig{Items: 1, Release: pipeline.ReleaseOf((*item.DeviceBatch).Drop)}, up)
	pipeline.Sink(p, "step", ready, pipeline.StageFunc[*item.DeviceBatch, struct{}](s.sink))
	return p, nil
}

// sink is the end of the chain: it makes a round for each that is asked for.
func (s *stepSide) sink(ctx context.Context, in pipeline.In[*item.DeviceBatch], _ pipeline.Out[struct{}]) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case a, more := <-s.ask:
			if !more {
				return nil
			}
			r, err := s.steps(ctx, in, a)
			if err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case s.answer <- r:
			}
		}
	}
}

// steps makes one round. The time of a step is that from the end of the one before
// to its own; the host is one step ahead of the device but at the end.
func (s *stepSide) steps(ctx context.Context, in pipeline.In[*item.DeviceBatch], a stepAsk) (r stepRound, err error) {
	last, idle, done := time.Now(), s.tr.Idle(), 0
	note := func(res train.StepResult) {
		now := time.Now()
		if done++; done > a.warm {
			r.times = append(r.times, now.Sub(last))
		} else {
			idle = s.tr.Idle()
		}
		last, r.loss = now, res.Loss
	}
	for range a.warm + a.steps {
		b, err := in.Recv(ctx)
		if err != nil {
			return r, err
		}
		res, ok, err := s.tr.Step(ctx, b)
		if err != nil {
			return r, err
		}
		if ok {
			note(res)
		}
	}
	res, ok, err := s.tr.Flush(ctx)
	if ok {
		note(res)
	}
	r.idle = s.tr.Idle() - idle
	return r, err
}

// round makes warm steps and then steps that are measured; it blocks until they are
// done.
func (s *stepSide) round(warm, steps int) (stepRound, error) {
	select {
	case s.ask <- stepAsk{warm, steps}:
	case <-s.ended:
		return stepRound{}, s.failure()
	}
	select {
	case r := <-s.answer:
		return r, nil
	case <-s.ended:
		return stepRound{}, s.failure()
	}
}

// failure is why the chain ended without having been told to.
func (s *stepSide) failure() error {
	s.told = true
	if err := s.group.Wait(); err != nil {
		return err
	}
	return errors.New("bench: the steps of the schedule are used up")
}

// threads is the number of threads of all devices.
func (s *stepSide) threads() (n int) {
	for _, d := range s.devs {
		n += d.Info().Threads
	}
	return n
}

// close ends the chain and frees everything; nothing else may be called afterwards.
// It returns no failure that round has returned.
func (s *stepSide) close() error {
	close(s.ask)
	err := s.group.Wait()
	if s.told {
		err = nil
	}
	return errors.Join(err, s.free())
}

func (s *stepSide) free() (err error) {
	for _, c := range slices.Backward(s.closers) {
		err = errors.Join(err, c())
	}
	s.closers = nil
	return err
}
