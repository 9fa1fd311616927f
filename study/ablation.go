package study

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/stat"

	"refrain/internal/run"
)

// Arm is a point of a study over its seeds, measured on the documents of the study.
type Arm struct {
	Label    string            `json:"label"`
	Settings map[string]string `json:"settings"`
	Params   int               `json:"params"`
	Seeds    []uint64          `json:"seeds"`  // that are done
	Runs     []string          `json:"runs"`   // of them
	Losses   []float64         `json:"losses"` // of them, nats a token
	// Loss is the mean of Losses, and Spread their standard deviation; null where a seed is
	// missing or did not end well, and with one seed.
	Loss     *float64  `json:"loss"`
	Spread   *float64  `json:"spread"`
	Contrast *Contrast `json:"contrast"` // against the arm that others are held against; null for itself
	Trouble  []string  `json:"trouble,omitempty"`

	scores []*Scores // of Seeds
}

// newArm joins the seeds of a point.
func newArm(cells []*Cell, records []*Record, scores []*Scores) *Arm {
	a := &Arm{
		Label: cells[0].Label(), Settings: map[string]string{}, Params: cells[0].Params,
		Seeds: []uint64{}, Runs: []string{}, Losses: []float64{},
	}
	for _, s := range cells[0].Settings {
		a.Settings[s.Key] = s.Value
	}
	for i, c := range cells {
		switch r := records[i]; {
		case r == nil:
			a.Trouble = append(a.Trouble, fmt.Sprintf("seed %d is not trained yet", c.Seed))
		case scores[i] == nil:
			a.Trouble = append(a.Trouble, fmt.Sprintf("seed %d is %s: %s", c.Seed, r.Status, r.Reason))
		default:
			a.Seeds, a.Runs, a.Losses = append(a.Seeds, c.Seed), append(a.Runs, r.Run), append(a.Losses, scores[i].Loss)
			a.scores = append(a.scores, scores[i])
		}
	}
	if len(a.Losses) == 0 {
		return a
	}
	mean, spread := stat.MeanStdDev(a.Losses, nil)
	if len(a.Trouble) == 0 {
		a.Loss = &mean
	}
	if len(a.Losses) > 1 {
		a.Spread = &spread
	}
	return a
}

// pairs are the runs of seeds that both arms have.
func pairs(a, b *Arm) (out []Pair) {
	for i, seed := range a.Seeds {
		if k := slices.Index(b.Seeds, seed); k >= 0 {
			out = append(out, Pair{seed, a.scores[i], b.scores[k]})
		}
	}
	return out
}

// Effect is what a level of an axis does against the level that the base cell has, over all
// cells that differ in nothing else.
type Effect struct {
	Axis  string `json:"axis"`
	Level string `json:"level"`
	Base  string `json:"base"` // the level it is held against
	// At is the level of one other axis that all of the cells have; empty for the mean over
	// all levels of all other axes.
	At       string    `json:"at,omitempty"`
	Contrast *Contrast `json:"contrast"` // null where no two runs are there
}

// Ablation is the comparison of the cells of a grid or list against one of them.
type Ablation struct {
	Registry string   `json:"registry"`
	Store    string   `json:"store"` // of the documents that losses are of
	DataHash string   `json:"data_hash"`
	Rows     int64    `json:"rows"`
	Tokens   int64    `json:"tokens"`
	Base     string   `json:"base"` // label of the cell that others are held against
	Arms     []*Arm   `json:"arms"` // in the order of the sweep
	Effects  []Effect `json:"effects"`
	Warnings []string `json:"warnings"`
}

// CheckSweep refuses a study that a sweep would train in part only.
func (s *Spec) CheckSweep() error {
	if len(s.Batches) > 0 {
		return s.refuse("batches belong to a batch study: refrain study batch %s", s.Path)
	}
	return nil
}

// CheckAblation refuses a sweep that an ablation cannot be made of, before anything is
// trained.
func (s *Spec) CheckAblation() error {
	switch {
	case s.Descend != nil || len(s.Batches) > 0:
		return s.refuse("an ablation compares all cells of a grid or list; it does not go with descend or batches")
	case len(s.Compare) == 0:
		return s.refuse("compare is not set: settings of the cell that others are held against, such as compare: {data.mode: fixed}")
	case len(s.points()) < 2:
		return s.refuse("there is one cell, and nothing to hold it against")
	}
	return nil
}

func (s *Spec) refuse(format string, args ...any) error {
	return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%s: %s", s.Path, fmt.Sprintf(format, args...))}
}

// Ablation measures what is done of cells, which are those of the spec with their records,
// and compares it. Cells that are missing or did not end well are told of.
func (w *Work) Ablation(ctx context.Context, m *Meter, cells []*Cell, records []*Record) (*Ablation, error) {
	scores, err := m.Score(ctx, cells, records, Split{Store: w.Spec.Test})
	if err != nil {
		return nil, err
	}
	return NewAblation(w.Spec, cells, records, scores)
}

// NewAblation compares what was measured: a pure function of its arguments.
func NewAblation(s *Spec, cells []*Cell, records []*Record, scores []*Scores) (*Ablation, error) {
	if err := s.CheckAblation(); err != nil {
		return nil, err
	}
	a := &Ablation{Registry: s.Out, Effects: []Effect{}, Warnings: []string{}}
	points := s.points()
	seeds := len(cells) / len(points)
	base := -1
	for i, point := range points {
		from, to := i*seeds, (i+1)*seeds
		a.Arms = append(a.Arms, newArm(cells[from:to], records[from:to], scores[from:to]))
		if holds(point, s.Compare) {
			base = i
		}
	}
	a.Base = a.Arms[base].Label
	for _, x := range scores {
		if x != nil {
			a.Store, a.DataHash, a.Rows, a.Tokens = x.Store, x.DataHash, x.Rows, x.Tokens
			break
		}
	}
	for i, arm := range a.Arms {
		for _, t := range arm.Trouble {
			a.Warnings = append(a.Warnings, fmt.Sprintf("%s: %s", arm.Label, t))
		}
		if two := pairs(a.Arms[base], arm); i != base && len(two) > 0 {
			var err error
			if arm.Contrast, err = NewContrast(two); err != nil {
				return nil, fmt.Errorf("%s against %s: %w", arm.Label, a.Base, err)
			}
		}
	}
	if len(a.Arms[base].Losses) == 0 {
		a.Warnings = append(a.Warnings, fmt.Sprintf("the base cell %s has no run, so nothing can be held against it", a.Base))
	}
	if seeds < 2 {
		a.Warnings = append(a.Warnings, "with one seed the noise of training is not known, and no difference is clear")
	}
	return a, a.effects(s, base)
}

// effects fills in the effect of every level of every axis: over all other axes, and at
// every level of each of them.
func (a *Ablation) effects(s *Spec, base int) error {
	if s.List != nil {
		return nil
	}
	n := make([]int, len(s.Grid)) // levels
	for i := range s.Grid {
		n[i] = len(s.Grid[i].Levels())
	}
	at := func(point, axis int) int { // the level of a point on an axis: the last axis is fastest
		for i := len(n) - 1; i > axis; i-- {
			point /= n[i]
		}
		return point % n[axis]
	}
	name := func(axis, level int) string { return label(s.Grid[axis].Levels()[level]) }
	var errs []error
	for axis := range n {
		stride := 1
		for i := axis + 1; i < len(n); i++ {
			stride *= n[i]
		}
		for level := range n[axis] {
			from := at(base, axis)
			if level == from {
				continue
			}
			add := func(where string, in func(point int) bool) {
				var all []Pair
				for point := range a.Arms {
					if at(point, axis) == from && in(point) {
						all = append(all, pairs(a.Arms[point], a.Arms[point+(level-from)*stride])...)
					}
				}
				e := Effect{Axis: s.Grid[axis].Key, Level: name(axis, level), Base: name(axis, from), At: where}
				if len(all) > 0 {
					var err error
					if e.Contrast, err = NewContrast(all); err != nil {
						errs = append(errs, fmt.Errorf("effect of %s: %w", e.Level, err))
					}
				}
				a.Effects = append(a.Effects, e)
			}
			add("", func(int) bool { return true })
			for other := range n {
				for l := 0; other != axis && n[other] > 1 && l < n[other]; l++ {
					add(name(other, l), func(point int) bool { return at(point, other) == l })
				}
			}
		}
	}
	return errors.Join(errs...)
}
