package run

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"refrain/stages/evals"
	"refrain/train"
	"refrain/train/eval"
)

// Evaluation is the validation loss of a model.
type Evaluation struct {
	eval.Result
	StdErr   float64 // of the mean, over documents
	Docs     int     // documents with scored targets
	DataHash string
}

// Evaluate measures m on the validation set of s.
func Evaluate(ctx context.Context, s *Setup, m *Model) (*Evaluation, error) {
	return EvaluateOn(ctx, s, m, s.Set, s.Val.Fingerprint())
}

// EvaluateOn measures m on a set of rows of the documents with the fingerprint; see Measure.
func EvaluateOn(ctx context.Context, s *Setup, m *Model, set *ValSet, fingerprint [32]byte) (*Evaluation, error) {
	res, docs, err := Measure(ctx, s, m, set)
	if err != nil {
		return nil, err
	}
	rep := &Evaluation{Result: res, DataHash: hex.EncodeToString(fingerprint[:])}
	rep.StdErr, rep.Docs = StdErr(docs)
	return rep, nil
}

// Measure is the loss of m on any set of rows of the length that s trains with, and the
// part of it that falls on each of the set's documents. It opens a device with the threads
// of s and blocks for one pass over the rows; a loss that is not finite is an error.
func Measure(ctx context.Context, s *Setup, m *Model, set *ValSet) (res eval.Result, docs []evals.DocLoss, err error) {
	devs, err := OpenDevices(1, s.Config.Train.Threads*s.Config.Train.Devices, false)
	if err != nil {
		return res, nil, err
	}
	defer func() { err = errors.Join(err, devs.Close()) }()
	c := s.evalConfig(&s.Options, s.Config.Eval.Batch)
	c.Model = m.Config
	ev, err := eval.New(ctx, devs[0], c)
	if err != nil {
		return res, nil, err
	}
	defer func() { err = errors.Join(err, ev.Close()) }()
	if err := ev.Load(ctx, m.Weights); err != nil {
		return res, nil, err
	}
	docs = make([]evals.DocLoss, set.NumDocs())
	if res, err = ev.Run(ctx, set, evals.ByDocument(docs, set.Docs)); err != nil {
		return res, nil, err
	}
	return res, docs, checkLoss(m.Step, res.Loss)
}

// checkLoss refuses a validation loss that is not a number. The last update of a
// run can make such a model, and no step comes after it to notice.
func checkLoss(step int64, loss float64) error {
	if math.IsNaN(loss) || math.IsInf(loss, 0) {
		return fmt.Errorf("evaluation of step %d: loss %g: %w", step, loss, train.ErrNotFinite)
	}
	return nil
}

// StdErr is the standard error of a token mean when documents, not tokens, are
// the independent draws: the ratio estimator's, with n the documents that
// have scored targets.
//
//	se = sqrt( n/(n-1) * sum_d (S_d - mean*T_d)^2 ) / sum_d T_d
func StdErr(docs []evals.DocLoss) (se float64, n int) {
	var sum float64
	var tokens int64
	for _, d := range docs {
		if d.Tokens > 0 {
			n++
			sum += d.Sum
			tokens += d.Tokens
		}
	}
	if n < 2 {
		return math.NaN(), n
	}
	mean := sum / float64(tokens)
	var ss float64
	for _, d := range docs {
		r := d.Sum - mean*float64(d.Tokens)
		ss += r * r
	}
	return math.Sqrt(ss*float64(n)/float64(n-1)) / float64(tokens), n
}
