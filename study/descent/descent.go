// Package descent finds the best place on a grid of hyperparameters by coordinate
// descent, and says what proves that it is one: a certificate that lists every one-step
// neighbour with its loss (Kim et al. 2025, appendix C.1).
package descent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"
)

// Axis is one hyperparameter and the values it may take, in the order of the grid. A
// Frozen one keeps the value it starts from: it has no neighbours.
type Axis struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
	Frozen bool      `json:"frozen,omitempty"`
}

// Place is a point of the grid: for every axis the index of its value.
type Place []int

// Outcome is what was measured at a place, over seeds that are the same everywhere.
type Outcome struct {
	Losses []float64 `json:"losses"` // nats a token, one for every seed; not finite: that run diverged
	Runs   []string  `json:"runs"`   // their folders
	// Missing says why nothing was measured; empty when something was.
	Missing string `json:"missing,omitempty"`
}

// Loss is the mean over seeds, NaN when a run is missing or diverged.
func (o Outcome) Loss() float64 {
	if o.Missing != "" || len(o.Losses) == 0 {
		return math.NaN()
	}
	sum := 0.0
	for _, l := range o.Losses {
		sum += l
	}
	if math.IsInf(sum, 0) {
		return math.NaN()
	}
	return sum / float64(len(o.Losses))
}

// Measure trains and evaluates places that were not asked for before, all at once, so
// that they can share the machine. Outcomes are in the order of places. An error ends the
// descent; a run that fails is an Outcome with Missing set.
type Measure func(ctx context.Context, places []Place) ([]Outcome, error)

// Neighbour is one move from the best place.
type Neighbour struct {
	Axis string `json:"axis"`
	Step int    `json:"step"` // -1 or +1 along the axis
	// Edge says that the grid ends here, so that the neighbour is the place itself: the
	// optimum may lie outside.
	Edge    bool      `json:"edge,omitempty"`
	Values  []float64 `json:"values"`
	Loss    *float64  `json:"loss"` // nil when missing or diverged
	Outcome Outcome   `json:"outcome"`
	// Difference is the mean over seeds of its loss minus the best place's, and Spread
	// the standard deviation of these differences; 0 with one seed.
	Difference float64 `json:"difference"`
	Spread     float64 `json:"spread"`
	// Clear says that the difference exceeds the spread; never with one seed.
	Clear bool `json:"clear"`
}

// Certificate is the end of a descent.
type Certificate struct {
	Axes       []Axis      `json:"axes"`
	Best       Place       `json:"best"`
	Values     []float64   `json:"values"`
	Loss       float64     `json:"loss"`
	Outcome    Outcome     `json:"outcome"`
	Neighbours []Neighbour `json:"neighbours"`
	// Certified says that every neighbour was measured and none has a lower loss; equal
	// ones do not count against it. Withheld says why not.
	Certified bool     `json:"certified"`
	Withheld  []string `json:"withheld,omitempty"`
	// Edges are the axes at whose end the best place lies.
	Edges    []string `json:"edges,omitempty"`
	Path     []Place  `json:"path"`     // from the start to the best place
	Measured int      `json:"measured"` // places, in all
}

// Descend walks from start to a place with no better neighbour: it measures all missing
// neighbours, moves to the best one if its loss is strictly lower (the first in the order
// of axes among equal ones), and begins again.
func Descend(ctx context.Context, axes []Axis, start Place, measure Measure) (*Certificate, error) {
	if err := check(axes, start); err != nil {
		return nil, err
	}
	d := &descent{axes: axes, measure: measure, seen: map[string]Outcome{}}
	at := slices.Clone(start)
	if err := d.need(ctx, []Place{at}); err != nil {
		return nil, err
	}
	if math.IsNaN(d.at(at).Loss()) {
		return nil, fmt.Errorf("the first place, %s, %s: start where training works", d.name(at), d.at(at).why())
	}
	path := []Place{at}
	for {
		next := d.neighbours(at)
		if err := d.need(ctx, next); err != nil {
			return nil, err
		}
		best := at
		for _, p := range next {
			if d.at(p).Loss() < d.at(best).Loss() { // false for NaN
				best = p
			}
		}
		if slices.Equal(best, at) {
			return d.certificate(at, path), nil
		}
		at = best
		path = append(path, at)
	}
}

func check(axes []Axis, start Place) error {
	var errs []error
	if len(axes) == 0 {
		errs = append(errs, errors.New("a grid without axes"))
	}
	names := map[string]bool{}
	for i, a := range axes {
		if names[a.Name] {
			errs = append(errs, fmt.Errorf("axis %s is there twice", a.Name))
		}
		names[a.Name] = true
		values := slices.Clone(a.Values)
		slices.Sort(values)
		switch {
		case len(values) == 0:
			errs = append(errs, fmt.Errorf("axis %s has no values", a.Name))
		case len(slices.Compact(values)) != len(a.Values):
			errs = append(errs, fmt.Errorf("axis %s has a value twice: %v", a.Name, a.Values))
		case i < len(start) && (start[i] < 0 || start[i] >= len(a.Values)):
			errs = append(errs, fmt.Errorf("axis %s has %d values, and the start is number %d", a.Name, len(a.Values), start[i]))
		}
	}
	if len(start) != len(axes) {
		errs = append(errs, fmt.Errorf("a start of %d numbers for %d axes", len(start), len(axes)))
	}
	return errors.Join(errs...)
}

type descent struct {
	axes    []Axis
	measure Measure
	seen    map[string]Outcome // by key; never ranged over
}

func key(p Place) string              { return fmt.Sprint([]int(p)) }
func (d *descent) at(p Place) Outcome { return d.seen[key(p)] }

// need measures the places that were not measured yet.
func (d *descent) need(ctx context.Context, places []Place) error {
	var missing []Place
	for _, p := range places {
		if _, ok := d.seen[key(p)]; !ok {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	outcomes, err := d.measure(ctx, missing)
	if err != nil {
		return err
	}
	if len(outcomes) != len(missing) {
		return fmt.Errorf("%d outcomes for %d places", len(outcomes), len(missing))
	}
	for i, p := range missing {
		d.seen[key(p)] = outcomes[i]
	}
	return nil
}

// step is the neighbour of p along an axis, and whether there is one.
func (d *descent) step(p Place, axis, by int) (Place, bool) {
	to := p[axis] + by
	if to < 0 || to >= len(d.axes[axis].Values) {
		return p, false
	}
	q := slices.Clone(p)
	q[axis] = to
	return q, true
}

func (d *descent) neighbours(p Place) (out []Place) {
	for i, a := range d.axes {
		if a.Frozen {
			continue
		}
		for _, by := range []int{-1, 1} {
			if q, ok := d.step(p, i, by); ok {
				out = append(out, q)
			}
		}
	}
	return out
}

func (d *descent) values(p Place) []float64 {
	v := make([]float64, len(p))
	for i, k := range p {
		v[i] = d.axes[i].Values[k]
	}
	return v
}

// name words a place: epochs=16 lr=0.002.
func (d *descent) name(p Place) string {
	var parts []string
	for i, v := range d.values(p) {
		parts = append(parts, fmt.Sprintf("%s=%g", d.axes[i].Name, v))
	}
	return strings.Join(parts, " ")
}

// why says what is wrong with an outcome without a loss.
func (o Outcome) why() string {
	if o.Missing != "" {
		return "was not measured: " + o.Missing
	}
	if len(o.Losses) == 0 {
		return "was not measured"
	}
	return "diverged"
}

func (d *descent) certificate(at Place, path []Place) *Certificate {
	here := d.at(at)
	c := &Certificate{
		Axes: d.axes, Best: at, Values: d.values(at), Loss: here.Loss(), Outcome: here,
		Path: path, Measured: len(d.seen), Neighbours: []Neighbour{},
	}
	for i, a := range d.axes {
		if a.Frozen {
			continue
		}
		edge := false
		for _, by := range []int{-1, 1} {
			q, inside := d.step(at, i, by)
			o := d.at(q)
			n := Neighbour{Axis: a.Name, Step: by, Edge: !inside, Values: d.values(q), Outcome: o}
			edge = edge || !inside
			if loss := o.Loss(); math.IsNaN(loss) {
				c.Withheld = append(c.Withheld, fmt.Sprintf("%s %s", d.name(q), o.why()))
			} else {
				n.Loss = &loss
				if inside {
					n.compare(o, here)
				}
			}
			if len(o.Losses) != len(here.Losses) && n.Loss != nil {
				c.Withheld = append(c.Withheld, fmt.Sprintf("%s has %d seeds and the best place %d", d.name(q), len(o.Losses), len(here.Losses)))
			}
			c.Neighbours = append(c.Neighbours, n)
		}
		if edge {
			c.Edges = append(c.Edges, a.Name)
		}
	}
	c.Certified = len(c.Withheld) == 0
	return c
}

// compare sets the paired differences over seeds.
func (n *Neighbour) compare(o, best Outcome) {
	var differences []float64
	for i := range min(len(o.Losses), len(best.Losses)) {
		differences = append(differences, o.Losses[i]-best.Losses[i])
	}
	mean, sd := stat.MeanStdDev(differences, nil)
	n.Difference = mean
	if len(differences) > 1 {
		n.Spread, n.Clear = sd, mean > sd
	}
}
