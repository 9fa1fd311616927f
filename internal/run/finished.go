package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"refrain/pipeline"
	"refrain/stages/evals"
)

// finished answers for a run whose last checkpoint is that of its last step. What
// it came to is read from its metrics. The last evaluation goes on beside the
// last save, so a kill after the one may have taken the other; it is made up for.
func (r *runner) finished(ctx context.Context) error {
	step := r.start.Step
	r.note(fmt.Sprintf("already finished: step %d of %d", step, r.s.Options.Steps))
	rec, err := ReadRecord(r.f.Dir)
	if err != nil {
		return &Error{ExitDisk, err}
	}
	if rec.Last.Step == step {
		r.res.Loss = rec.Last.Loss
	}
	if r.s.Set == nil {
		return nil
	}
	if n := len(rec.Val); n > 0 && rec.Val[n-1].Step == step {
		r.res.Val = &evals.Result{Step: step}
		r.res.Val.Loss, r.res.Val.Tokens = rec.Val[n-1].Loss, rec.Val[n-1].Tokens
		return nil
	}
	begin := time.Now()
	var e *Evaluation
	err = r.untilStop(ctx, func(ctx context.Context) (err error) {
		e, err = Evaluate(ctx, r.s, &Model{Config: r.s.Options.Model, Weights: r.start.Weights, Step: step})
		return err
	})
	if err != nil {
		return err
	}
	return r.logEval(&evals.Result{Step: step, Result: e.Result, Busy: time.Since(begin)})
}

// untilStop calls f with a context that a stop of the job ends too. It returns
// ErrStopped when f failed because of that.
func (r *runner) untilStop(ctx context.Context, f func(context.Context) error) error {
	err := pipeline.Until(ctx, r.j.Stop, f)
	if errors.Is(err, pipeline.ErrStopRequested) {
		return ErrStopped
	}
	return err
}
