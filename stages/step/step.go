// Package step drives the trainer: device batches in, step results out, and
// snapshots to the side. It decides when a snapshot is due; it never waits for
// what happens to one.
package step

import (
	"context"
	"errors"
	"io"

	"refrain/pipeline"
	"refrain/stages/item"
	"refrain/train"
)

// Trainer is what the stage needs of train.Trainer.
type Trainer interface {
	Step(ctx context.Context, b *item.DeviceBatch) (train.StepResult, bool, error)
	Flush(ctx context.Context) (train.StepResult, bool, error)
	Steps() int64
	Snapshot(ctx context.Context, p *train.SnapshotPool) (*train.Snapshot, error)
	TrySnapshot(p *train.SnapshotPool) (*train.Snapshot, error)
}

// Result is a finished step and the chain after it.
type Result struct {
	train.StepResult
	Chain train.Chain
}

// Config says how far to go and when snapshots are due.
type Config struct {
	Steps    int64                 // the run ends after this many
	Stopping bool                  // ending after Steps is a stop before the run's end
	Chain    train.Chain           // chain of the checkpoint the run starts from
	EvalDue  func(step int64) bool // asked after every step but the last; nil: only at the end
	SaveDue  func(step int64) bool // likewise
	SaveMust func(step int64) bool // likewise, but this save is waited for where SaveDue's is skipped
	Window   int64                 // first window the run consumes
	Skipped  func(step int64)      // a save was due while the last was being written
	Stop     <-chan struct{}       // closed: finish the step, save, end
}

// Stage runs the trainer. It implements pipeline.Stage[*item.DeviceBatch, Result].
type Stage struct {
	t       Trainer
	c       Config
	chain   train.Chain
	window  int64 // first window after the last finished step
	start   int64 // steps done before the stage ran
	pending *train.Snapshot
	stopped bool

	evalPool, savePool *train.SnapshotPool
	evals              pipeline.Out[*train.Snapshot]
	saves              pipeline.Out[*train.Save]
}

// New returns a stage that drives t.
func New(t Trainer, c Config) *Stage { return &Stage{t: t, c: c, chain: c.Chain, window: c.Window} }

// EvalTo makes the stage send snapshots for evaluation, taken into pool's
// buffers. It is called before Run.
func (s *Stage) EvalTo(pool *train.SnapshotPool, out pipeline.Out[*train.Snapshot]) {
	s.evalPool, s.evals = pool, out
}

// SaveTo makes the stage send snapshots to be saved, taken into pool's buffers.
// It is called before Run.
func (s *Stage) SaveTo(pool *train.SnapshotPool, out pipeline.Out[*train.Save]) {
	s.savePool, s.saves = pool, out
}

// Stopped reports, after Run, whether the stage ended because of Config.Stop
// before the last step.
func (s *Stage) Stopped() bool { return s.stopped }

// Run steps until Config.Steps are done, the input ends, or Stop is closed. In
// each case the last step is finished, reported, evaluated and saved.
func (s *Stage) Run(ctx context.Context, in pipeline.In[*item.DeviceBatch], out pipeline.Out[Result]) error {
	// Waiting for data must end when a stop is requested, nothing else may.
	err := pipeline.Until(ctx, s.c.Stop, func(wait context.Context) error { return s.loop(ctx, wait, in, out) })
	if err != nil && s.pending != nil {
		s.pending.Release()
	}
	return err
}

func (s *Stage) loop(ctx, wait context.Context, in pipeline.In[*item.DeviceBatch], out pipeline.Out[Result]) error {
	s.start = s.t.Steps()
	for s.t.Steps() < s.c.Steps {
		select {
		case <-s.c.Stop: // even when a batch is ready
			return s.finish(ctx, out)
		default:
		}
		b, err := in.Recv(wait)
		switch {
		case errors.Is(err, pipeline.ErrStopRequested):
			return s.finish(ctx, out)
		case err == io.EOF:
			return s.finish(ctx, out)
		case err != nil:
			return err
		}
		pipeline.AtIndex(ctx, "step", s.t.Steps()+1)
		res, ok, err := s.t.Step(ctx, b)
		if err != nil {
			return err
		}
		if ok {
			if err := s.report(ctx, res, out); err != nil {
				return err
			}
		}
		if s.t.Steps() < s.c.Steps {
			if err := s.snapshots(ctx); err != nil {
				return err
			}
		}
	}
	return s.finish(ctx, out)
}

// report sends a finished step on, and with it the save that waited for its
// chain.
func (s *Stage) report(ctx context.Context, res train.StepResult, out pipeline.Out[Result]) error {
	s.chain = s.chain.Next(&res)
	s.window = res.Cursor.Window + int64(res.Rows)
	if err := out.Send(ctx, Result{res, s.chain}); err != nil {
		return err
	}
	if s.pending == nil || s.pending.Step != res.Step {
		return nil
	}
	p := s.pending
	s.pending = nil
	return s.saves.Send(ctx, &train.Save{Snapshot: p, Window: s.window, Chain: s.chain})
}

// snapshots takes what is due after the step just enqueued. A full pool means
// that the last one is still in use: an evaluation drops the oldest waiting, a
// save is skipped and counted.
func (s *Stage) snapshots(ctx context.Context) error {
	k := s.t.Steps()
	if s.evals != nil && s.c.EvalDue != nil && s.c.EvalDue(k) {
		snap, err := s.t.TrySnapshot(s.evalPool)
		if err != nil {
			return err
		}
		if snap != nil {
			if err := s.evals.Send(ctx, snap); err != nil && !errors.Is(err, pipeline.ErrStopped) {
				return err
			}
		}
	}
	if s.saves != nil && s.c.SaveMust != nil && s.c.SaveMust(k) {
		// The save before this one may be in flight; it is not this stage that it waits for.
		snap, err := s.t.Snapshot(ctx, s.savePool)
		if err != nil {
			return err
		}
		s.pending = snap
		return nil
	}
	if s.saves != nil && s.c.SaveDue != nil && s.c.SaveDue(k) {
		snap, err := s.t.TrySnapshot(s.savePool)
		if err != nil {
			return err
		}
		if snap == nil {
			if s.c.Skipped != nil {
				s.c.Skipped(k)
			}
			return nil
		}
		s.pending = snap
	}
	return nil
}

// finish reports the last step and hands the final model to evals and saves.
func (s *Stage) finish(ctx context.Context, out pipeline.Out[Result]) error {
	res, ok, err := s.t.Flush(ctx)
	if err != nil {
		return err
	}
	if ok {
		if err := s.report(ctx, res, out); err != nil {
			return err
		}
	}
	done := s.t.Steps() >= s.c.Steps && !s.c.Stopping
	s.stopped = !done
	if s.start > 0 && s.t.Steps() == s.start {
		return nil // nothing happened since the checkpoint this run came from
	}
	if s.evals != nil && done {
		snap, err := s.t.Snapshot(ctx, s.evalPool)
		if err != nil {
			return err
		}
		if err := s.evals.Send(ctx, snap); err != nil {
			return err
		}
	}
	if s.saves == nil {
		return nil
	}
	snap, err := s.t.Snapshot(ctx, s.savePool)
	if err != nil {
		return err
	}
	return s.saves.Send(ctx, &train.Save{Snapshot: snap, Window: s.window, Chain: s.chain, Last: true})
}
