package fit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Cell is the loss of an ensemble of K members of N parameters each.
type Cell struct {
	N    float64 `json:"n"`
	K    int     `json:"k"`
	Loss float64 `json:"loss"`
}

// Limit is a double limit: first the members, then the parameters.
type Limit struct {
	ByN     []Inner  `json:"by_n"`  // in rising order of N
	Joint   Result   `json:"joint"` // the law of the asymptotes over N; its E is the joint limit
	Skipped []string `json:"skipped"`
}

// Inner is the law over members at one size.
type Inner struct {
	N float64 `json:"n"`
	Result
}

// DoubleLimit fits a law over K at every N and a law over N of their asymptotes. The
// members come first, because hyperparameters are chosen for each N. A size with fewer
// than three K, or a broken law, is left out and named. It fails when fewer than three
// sizes are left, or a loss is named twice.
func DoubleLimit(cells []Cell, o Options) (Limit, error) {
	cells = slices.Clone(cells)
	slices.SortFunc(cells, func(a, b Cell) int { return cmp.Or(cmp.Compare(a.N, b.N), cmp.Compare(a.K, b.K)) })
	var lim Limit
	var outer []Point
	for len(cells) > 0 {
		n := 1
		for n < len(cells) && cells[n].N == cells[0].N {
			n++
		}
		group := cells[:n]
		cells = cells[n:]
		var points []Point
		for i, c := range group {
			if i > 0 && c.K == group[i-1].K {
				return lim, fmt.Errorf("fit: two losses for N = %v, K = %d; keep one of them", c.N, c.K)
			}
			points = append(points, Point{float64(c.K), c.Loss})
		}
		skip := func(why string) { lim.Skipped = append(lim.Skipped, fmt.Sprintf("N = %v: %s", group[0].N, why)) }
		if len(points) < 3 {
			skip(fmt.Sprintf("%d numbers of members; a law needs three", len(points)))
			continue
		}
		in := o
		in.Start = Ensemble
		r, err := Fit(points, in)
		if err != nil {
			return lim, fmt.Errorf("N = %v: %w", group[0].N, err)
		}
		lim.ByN = append(lim.ByN, Inner{group[0].N, r})
		if r.Broken {
			skip(r.Warnings[len(r.Warnings)-1])
			continue
		}
		outer = append(outer, Point{group[0].N, r.E})
	}
	if len(outer) < 3 {
		return lim, errors.Join(fmt.Errorf("fit: %d sizes with an asymptote over members; a double limit needs three", len(outer)), joined(lim.Skipped))
	}
	o.Start = Params
	var err error
	if lim.Joint, err = Fit(outer, o); err != nil {
		return lim, err
	}
	for i := range outer[1:] {
		if outer[i+1].Loss > outer[i].Loss {
			lim.Joint.Warnings = append(lim.Joint.Warnings, fmt.Sprintf("the asymptote rises from N = %v to N = %v: the limit over N supposes that it falls", outer[i].X, outer[i+1].X))
		}
	}
	return lim, nil
}

func joined(lines []string) error {
	var errs []error
	for _, l := range lines {
		errs = append(errs, errors.New(l))
	}
	return errors.Join(errs...)
}

// Efficiency is how many times as much data the standard recipe would need for a loss,
// against the data at which it has the loss base: both amounts are read off its law over
// data. It is undefined, an error, for a loss at or below the law's asymptote.
func Efficiency(standard Law, loss, base float64) (float64, error) {
	want, err := standard.Inverse(loss)
	if err != nil {
		return 0, err
	}
	have, err := standard.Inverse(base)
	if err != nil {
		return 0, fmt.Errorf("the base: %w", err)
	}
	return want / have, nil
}

// EfficiencyBetween is Efficiency without a law: amounts are interpolated linearly
// between the losses of the standard recipe at several amounts of data. A loss outside of
// them is an error, since nothing is known there.
func EfficiencyBetween(standard []Point, loss, base float64) (float64, error) {
	points := slices.Clone(standard)
	slices.SortFunc(points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	for i := range points {
		if i > 0 && !(points[i].Loss < points[i-1].Loss && points[i].X > points[i-1].X) {
			return 0, fmt.Errorf("the standard losses do not fall from %v to %v: amounts cannot be read off them", points[i-1].X, points[i].X)
		}
	}
	amount := func(loss float64) (float64, error) {
		for i := 1; i < len(points); i++ {
			a, b := points[i-1], points[i]
			if b.Loss <= loss && loss <= a.Loss {
				return a.X + (b.X-a.X)*(a.Loss-loss)/(a.Loss-b.Loss), nil
			}
		}
		return 0, fmt.Errorf("a loss of %.4f is outside of the standard recipe's losses", loss)
	}
	want, err := amount(loss)
	if err != nil {
		return 0, err
	}
	have, err := amount(base)
	if err != nil {
		return 0, fmt.Errorf("the base: %w", err)
	}
	return want / have, nil
}
