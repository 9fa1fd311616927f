package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// saturated is the share of the best speed from which on a batch counts as enough.
const saturated = 0.95

// Saturation measures steps of one model with batches that grow from side to side. It
// returns a line for every side, with tok/s and of-best, the median over rounds of its rate
// over the highest of the round, with quartiles, and a last line with rows, the smallest
// batch whose of-best is at least 0.95: larger ones make a device hardly faster, and
// smaller ones waste it. Where it is the largest of all, the speed may still grow.
func Saturation(ctx context.Context, c ScaleConfig, emit func(Line)) (err error) {
	sides, err := openSides(ctx, &c, int64((c.Rounds+1)*(c.Warm+c.Steps)))
	defer func() { err = errors.Join(err, closeSides(sides)) }()
	if err != nil {
		return err
	}
	for range c.Rounds {
		rates := make([]float64, len(sides))
		for i, s := range sides {
			per, _, err := s.measure(ctx, c.Warm, c.Steps)
			if err != nil {
				return err
			}
			rates[i] = float64(s.cfg.B*s.cfg.T) / per.Seconds()
		}
		best := slices.Max(rates)
		for i, s := range sides {
			s.ratios = append(s.ratios, rates[i]/best)
		}
	}
	rows := 0
	for _, s := range sides {
		l := s.line(fmt.Sprintf("batch=%d", s.cfg.B), c.Steps)
		lo, mid, hi := Quartiles(s.ratios)
		l.Metrics = append(l.Metrics, Metric{mid, "of-best"}, Metric{lo, "of-best-q1"}, Metric{hi, "of-best-q3"})
		emit(l)
		if mid >= saturated && (rows == 0 || s.cfg.B < rows) {
			rows = s.cfg.B
		}
	}
	first, last := sides[0], sides[len(sides)-1]
	all := Line{Name: fmt.Sprintf("StepScale/by=batch/preset=%s/precision=%s/all=%d..%d", last.cfg.Name, last.cfg.Policy, first.cfg.B, last.cfg.B), Threads: last.threads(), N: c.Rounds}
	if rows > 0 { // none when every round had another best
		all.Metrics = append(all.Metrics, Metric{float64(rows), "rows"})
	}
	emit(all)
	return nil
}
