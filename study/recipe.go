package study

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"refrain/internal/run"
	"refrain/study/descent"
	"refrain/study/fit"
)

// Axes are the axes of the grid as numbers, and the place to start from.
func (s *Spec) Axes() (axes []descent.Axis, start descent.Place, err error) {
	for _, a := range s.Grid {
		axis := descent.Axis{Name: a.Key, Frozen: slices.Contains(s.Descend.Freeze, a.Key)}
		at := -1
		for i, v := range a.Values {
			x, err := parseNumber(v.Value)
			if err != nil {
				return nil, nil, fmt.Errorf("%s=%s: %w", a.Key, v.Value, err)
			}
			axis.Values = append(axis.Values, x)
			if slices.ContainsFunc(s.Descend.Start, func(o Setting) bool { return o.Key == a.Key && o.Value == v.Value }) {
				at = i
			}
		}
		// Neighbours are the next values, so an axis is in their order.
		if !slices.IsSorted(axis.Values) {
			return nil, nil, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%s: %s: write its values in increasing order: neighbours on the grid are one step apart", s.Path, a.Key)}
		}
		axes, start = append(axes, axis), append(start, at)
	}
	return axes, start, nil
}

// Point is the settings of a place on the grid, for a model of that size.
func (s *Spec) Point(size []Setting, p descent.Place) []Setting {
	out := slices.Clone(size)
	for i, k := range p {
		out = append(out, s.Grid[i].Values[k])
	}
	return out
}

// First are the places that a descent certainly asks for: the start and its neighbours.
func First(axes []descent.Axis, start descent.Place) []descent.Place {
	places := []descent.Place{start}
	for i, a := range axes {
		for _, by := range []int{-1, 1} {
			if k := start[i] + by; !a.Frozen && k >= 0 && k < len(a.Values) {
				p := slices.Clone(start)
				p[i] = k
				places = append(places, p)
			}
		}
	}
	return places
}

// Descend walks down the grid with a model of one size: places are measured over the seeds of the sweep, those that
// have records without training again. The certificate is withheld when a neighbour
// failed, diverged or was over the budget.
func (w *Work) Descend(ctx context.Context, size []Setting) (*descent.Certificate, error) {
	axes, start, err := w.Spec.Axes()
	if err != nil {
		return nil, err
	}
	return w.descend(ctx, size, axes, start)
}

// descend is Descend from a place of the caller's.
func (w *Work) descend(ctx context.Context, size []Setting, axes []descent.Axis, start descent.Place) (*descent.Certificate, error) {
	return descent.Descend(ctx, axes, start, func(ctx context.Context, places []descent.Place) ([]descent.Outcome, error) {
		var cells []*Cell
		for _, p := range places {
			more, err := w.Spec.At(w.Spec.Point(size, p))
			if err != nil {
				return nil, err
			}
			cells = append(cells, more...)
		}
		if err := Open(cells, w.Rate); err != nil {
			return nil, err
		}
		old, _, err := w.there(cells)
		if err != nil {
			return nil, err
		}
		for _, r := range old {
			if r != nil && r.Final() && w.tried[r.Key()] == nil {
				w.Ledger.Spend(r)
			}
		}
		answers, err := w.Answers(ctx, cells)
		if err != nil {
			return nil, err
		}
		seeds := len(cells) / len(places)
		var out []descent.Outcome
		for i := range places {
			out = append(out, outcome(cells[i*seeds:(i+1)*seeds], answers[i*seeds:(i+1)*seeds]))
		}
		return out, nil
	})
}

// outcome joins the seeds of a place. One that has no loss makes the place missing, with
// the reason: a mean over other seeds than its neighbours' would not compare.
func outcome(cells []*Cell, answers []*Record) descent.Outcome {
	var o descent.Outcome
	for i, r := range answers {
		switch {
		case r == nil:
			o.Missing = fmt.Sprintf("seed %d is over the budget", cells[i].Seed)
			continue
		case r.Status != Done:
			o.Missing = fmt.Sprintf("seed %d is %s (%s)", r.Seed, r.Status, r.Reason)
		default:
			o.Losses = append(o.Losses, r.Result())
		}
		o.Runs = append(o.Runs, r.Run)
	}
	return o
}

// Sized is the descent with a model of one size.
type Sized struct {
	Label       string               `json:"label"`
	Params      int                  `json:"params"`
	Certificate *descent.Certificate `json:"certificate"`       // null when it could not begin
	Trouble     string               `json:"trouble,omitempty"` // why it could not
}

// Recipe is the result of descents with models of several sizes. With the decay frozen it
// is the standard recipe, whose result is the best of the sizes; with the decay tuned the
// regularised one, whose result is the asymptote of the law.
type Recipe struct {
	Sizes []Sized `json:"sizes"` // by parameters
	// Best is the index of the size with the lowest loss; -1 when there is none.
	Best int `json:"best"`
	// Monotone says that the loss falls with every larger size; only then does the law
	// mean anything.
	Monotone bool        `json:"monotone"`
	Law      *fit.Result `json:"law"` // of the losses over millions of parameters; null with fewer than three sizes
	Warnings []string    `json:"warnings"`
}

// Recipe descends with every size, as they are written. A size whose start does not train
// is marked, and the others go on.
func (w *Work) Recipe(ctx context.Context) (*Recipe, error) {
	var list []Sized
	for _, size := range w.Spec.Sizes() {
		_, start, err := w.Spec.Axes()
		if err != nil {
			return nil, err
		}
		cells, err := w.Spec.At(w.Spec.Point(size, start))
		if err != nil {
			return nil, err
		}
		if err := Open(cells, w.Rate); err != nil {
			return nil, err
		}
		x := Sized{Label: label(size), Params: cells[0].Params}
		if x.Certificate, err = w.Descend(ctx, size); err != nil {
			if !w.startFailed(ctx, cells) {
				return nil, err
			}
			x.Trouble = err.Error()
		}
		list = append(list, x)
	}
	return NewRecipe(list), nil
}

// startFailed reports whether a descent ended in an error because the cells it starts from
// did not end well; others may go on then.
func (w *Work) startFailed(ctx context.Context, cells []*Cell) bool {
	answers, _, err := w.there(cells)
	return err == nil && ctx.Err() == nil && slices.ContainsFunc(answers, func(r *Record) bool { return r != nil && r.Status != Done })
}

// NewRecipe judges descents that are done. It sorts sizes by their parameters.
func NewRecipe(sizes []Sized) *Recipe {
	r := &Recipe{Sizes: slices.Clone(sizes), Best: -1, Monotone: true, Warnings: []string{}}
	slices.SortStableFunc(r.Sizes, func(a, b Sized) int { return a.Params - b.Params })
	var points []fit.Point
	for i, s := range r.Sizes {
		if s.Certificate == nil {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s is missing: %s", s.Label, s.Trouble))
			r.Monotone = false
			continue
		}
		if !s.Certificate.Certified {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s has no certificate: %s", s.Label, strings.Join(s.Certificate.Withheld, "; ")))
		}
		if len(s.Certificate.Edges) > 0 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s is best at the end of the grid in %s", s.Label, strings.Join(s.Certificate.Edges, ", ")))
		}
		loss := s.Certificate.Loss
		if n := len(points); n > 0 && loss >= points[n-1].Loss {
			r.Monotone = false
		}
		if r.Best < 0 || loss < r.Sizes[r.Best].Certificate.Loss {
			r.Best = i
		}
		points = append(points, fit.Point{X: float64(s.Params) / 1e6, Loss: loss})
	}
	if len(points) < 2 {
		return r
	}
	if !r.Monotone {
		r.Warnings = append(r.Warnings, "the loss does not fall with every larger size, so its asymptote says nothing")
	}
	if len(points) >= 3 {
		law, err := fit.Fit(points, fit.Options{Start: fit.Params, Resamples: 0})
		if err != nil {
			r.Warnings = append(r.Warnings, fmt.Sprintf("no law over the sizes: %v", err))
		} else {
			r.Law = &law
		}
	}
	return r
}
