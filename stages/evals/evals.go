// Package evals measures snapshots on the validation set while training goes
// on. Its input drops the oldest snapshot when it cannot keep up, so step
// never waits for it.
package evals

import (
	"context"
	"errors"
	"time"

	"refrain/pipeline"
	"refrain/train"
	"refrain/train/eval"
)

// Result is the validation loss of one snapshot.
type Result struct {
	Step int64
	eval.Result
	Docs []DocLoss     // by document, in set order; nil unless Config.Docs
	Busy time.Duration // wall time spent, taken from the shared cores on a CPU
}

// DocLoss is the part of a result that falls on one document.
type DocLoss struct {
	Sum    float64 // nats
	Tokens int64
}

// Config is what the stage evaluates with.
type Config struct {
	Evaluator *eval.Evaluator
	Set       eval.Set
	// Docs, when not nil, gives the document of every target of a row: it calls
	// at for consecutive runs [from, to) of targets of document doc.
	Docs    func(row int64, at func(doc, from, to int))
	NumDocs int
	// Stop, once closed, ends the evaluation under way at its next pass, and lets
	// go of the snapshots that wait unmeasured. Nil means never.
	Stop <-chan struct{}
}

// Stage evaluates snapshots and releases them. It implements
// pipeline.Stage[*train.Snapshot, Result].
type Stage struct {
	c       Config
	leftOut int64
}

// New returns the stage.
func New(c Config) *Stage { return &Stage{c: c} }

// LeftOut returns, after Run, the step of the newest snapshot that was not
// measured because of Config.Stop; 0 when there was none.
func (s *Stage) LeftOut() int64 { return s.leftOut }

// Run evaluates until the input ends.
func (s *Stage) Run(ctx context.Context, in pipeline.In[*train.Snapshot], out pipeline.Out[Result]) error {
	// A stop ends measuring, not receiving: what is still sent has to be released.
	return pipeline.Until(ctx, s.c.Stop, func(measure context.Context) error { return s.loop(ctx, measure, in, out) })
}

func (s *Stage) loop(ctx, measure context.Context, in pipeline.In[*train.Snapshot], out pipeline.Out[Result]) error {
	for snap, err := range pipeline.Each(ctx, in) {
		if err != nil {
			return err
		}
		step := snap.Step
		pipeline.AtIndex(ctx, "snapshot of step", step)
		var res Result
		select {
		case <-s.c.Stop: // even when an evaluation would end before it is noticed
			err = pipeline.ErrStopRequested
		default:
			res, err = s.Evaluate(measure, snap)
		}
		snap.Release()
		switch {
		case errors.Is(err, train.ErrNotFinite):
			continue // the step stage reports it
		case errors.Is(err, pipeline.ErrStopRequested):
			s.leftOut = step
			continue
		case err != nil:
			return err
		}
		if err := out.Send(ctx, res); err != nil {
			return err
		}
	}
	return nil
}

// Evaluate measures one snapshot, which stays the caller's.
func (s *Stage) Evaluate(ctx context.Context, snap *train.Snapshot) (Result, error) {
	if err := snap.Wait(ctx); err != nil {
		return Result{}, err
	}
	t0 := time.Now()
	weights, off := snap.Pinned()
	if err := s.c.Evaluator.LoadFrom(ctx, weights, off); err != nil {
		return Result{}, err
	}
	res := Result{Step: snap.Step}
	var visit func(row int64, targets []int32, loss []float32)
	if s.c.Docs != nil {
		res.Docs = make([]DocLoss, s.c.NumDocs)
		visit = ByDocument(res.Docs, s.c.Docs)
	}
	r, err := s.c.Evaluator.Run(ctx, s.c.Set, visit)
	res.Result, res.Busy = r, time.Since(t0)
	return res, err
}

// ByDocument returns a visitor for eval.Evaluator.Run that adds the loss of
// every scored target to its document's entry in docs.
func ByDocument(docs []DocLoss, at func(row int64, at func(doc, from, to int))) func(row int64, targets []int32, loss []float32) {
	return func(row int64, targets []int32, loss []float32) {
		at(row, func(doc, from, to int) {
			for i := from; i < to; i++ {
				if targets[i] >= 0 {
					docs[doc].Sum += float64(loss[i])
					docs[doc].Tokens++
				}
			}
		})
	}
}
