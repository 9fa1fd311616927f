// Package saves writes snapshots to checkpoint folders while training goes on.
// It works on copies: whatever happens to a save, training and the older
// checkpoints are untouched.
package saves

import (
	"context"
	"errors"
	"time"

	"refrain/pipeline"
	"refrain/train"
)

// Result is one attempt to save.
type Result struct {
	Step int64
	Path string // of the checkpoint, empty when it failed
	Err  error  // why it failed; training goes on
	Busy time.Duration
	Last bool
}

// Stage writes snapshots and releases them. It implements
// pipeline.Stage[*train.Save, Result].
type Stage struct {
	write func(ctx context.Context, s *train.Save) (path string, err error)
}

// New returns a stage that writes with write, which must not keep the snapshot.
func New(write func(ctx context.Context, s *train.Save) (path string, err error)) *Stage {
	return &Stage{write}
}

// Run saves until the input ends. A failed save is a result, not a failure of
// the stage.
func (s *Stage) Run(ctx context.Context, in pipeline.In[*train.Save], out pipeline.Out[Result]) error {
	for v, err := range pipeline.Each(ctx, in) {
		if err != nil {
			return err
		}
		pipeline.AtIndex(ctx, "checkpoint of step", v.Snapshot.Step)
		t0 := time.Now()
		res := Result{Step: v.Snapshot.Step, Last: v.Last}
		if err := v.Snapshot.Wait(ctx); err != nil {
			v.Snapshot.Release()
			if errors.Is(err, train.ErrNotFinite) {
				continue // the step stage reports it
			}
			return err
		}
		res.Path, res.Err = s.write(ctx, v)
		v.Snapshot.Release()
		res.Busy = time.Since(t0)
		if err := out.Send(ctx, res); err != nil {
			return err
		}
	}
	return nil
}
