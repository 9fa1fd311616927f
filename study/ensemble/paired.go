package ensemble

import (
	"fmt"

	"refrain/internal/num"
	"refrain/internal/run"
	"refrain/stages/evals"
	"refrain/study/fit"
)

// Difference is the loss of b minus that of a over the same documents, nats a token, with
// its standard error over documents. The difference of two models on one document varies
// far less than the loss from document to document, so it is the differences that are
// compared. a and b must be of one data set; StdErr is NaN with fewer than two documents.
func Difference(a, b *Tally) (diff, stdErr float64) {
	docs := make([]evals.DocLoss, len(a.Docs))
	for i := range docs {
		docs[i] = evals.DocLoss{Sum: b.Docs[i].Sum - a.Docs[i].Sum, Tokens: a.Docs[i].Tokens}
	}
	stdErr, _ = run.StdErr(docs)
	return b.Loss - a.Loss, stdErr
}

// StdErr is the standard error of the loss itself, over documents.
func (t *Tally) StdErr() float64 {
	se, _ := run.StdErr(t.Docs)
	return se
}

// Points are the losses of nested ensembles as points of a law over members.
func Points(nested []*Tally) []fit.Point {
	var p []fit.Point
	for k, t := range nested {
		p = append(p, fit.Point{X: float64(k + 1), Loss: t.Loss})
	}
	return p
}

// Asymptote is the law over the number of members, and how far its end moves when other
// documents had been drawn.
type Asymptote struct {
	fit.Result
	// ByDocuments is the middle Level of the E of laws over losses of documents drawn with
	// replacement; nil without resamples or with fewer than two documents. It has the
	// noise of the documents in it and not that of the members' seeds.
	ByDocuments *[2]float64 `json:"E_by_documents"`
	Level       float64     `json:"level,omitempty"`
}

// Law fits the losses of three or more nested ensembles.
func Law(nested []*Tally, o fit.Options) (*Asymptote, error) {
	o.Start = fit.Ensemble
	r, err := fit.Fit(Points(nested), o)
	if err != nil {
		return nil, fmt.Errorf("ensemble: %w", err)
	}
	a := &Asymptote{Result: r}
	_, docs := run.StdErr(nested[0].Docs)
	if o.Resamples == 0 || docs < 2 {
		return a, nil
	}
	rng := num.NewStream("ensemble documents", o.Seed)
	n, draw := len(nested[0].Docs), uint64(0)
	count := make([]float64, n)
	var ends []float64
	for range o.Resamples {
		clear(count)
		for range n {
			count[rng.Uintn(draw, uint64(n))]++
			draw++
		}
		points := Points(nested)
		scored := true
		for k, t := range nested {
			var sum, tokens float64
			for d, l := range t.Docs {
				sum, tokens = sum+count[d]*l.Sum, tokens+count[d]*float64(l.Tokens)
			}
			scored = scored && tokens > 0
			points[k].Loss = sum / tokens
		}
		if !scored {
			continue // only documents without targets were drawn
		}
		again, err := fit.Quick(points, fit.Ensemble)
		if err != nil {
			return nil, fmt.Errorf("ensemble: %w", err)
		}
		ends = append(ends, again.E)
	}
	if len(ends) == 0 {
		return a, nil
	}
	middle := fit.Middle(ends, fit.Level)
	a.ByDocuments, a.Level = &middle, fit.Level
	return a, nil
}
