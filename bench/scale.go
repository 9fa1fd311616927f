package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"refrain/internal/par"
	"refrain/kernels/asm"
	"refrain/model"
)

// ScaleConfig compares training steps that differ in one thing. The sides take turns:
// in a round each makes Warm steps that do not count and then Steps that do.
type ScaleConfig struct {
	Sides  []StepConfig // Warm and Steps of these are not looked at
	Warm   int
	Steps  int
	Rounds int
}

// side is an open step and what was measured of it.
type side struct {
	*stepSide
	times  []time.Duration // of a step, a round each
	ratios []float64
}

// tokSec is the input tokens a second of a side.
func (s *side) tokSec() float64 {
	return float64(s.cfg.B*s.cfg.T) / median(s.times).Seconds()
}

// openSides opens all of them; the caller closes what it gets, also with an error.
func openSides(ctx context.Context, c *ScaleConfig, horizon int64) (sides []*side, err error) {
	for _, cfg := range c.Sides {
		s, err := openStep(ctx, cfg, horizon, false)
		if err != nil {
			return sides, err
		}
		sides = append(sides, &side{stepSide: s})
	}
	return sides, nil
}

func closeSides(sides []*side) (err error) {
	for _, s := range slices.Backward(sides) {
		err = errors.Join(err, s.close())
	}
	return err
}

// measure makes one round of a side and returns the time of a step and the last loss.
func (s *side) measure(ctx context.Context, warm, steps int) (time.Duration, float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, context.Cause(ctx)
	}
	r, err := s.round(warm, steps)
	if err != nil {
		return 0, 0, err
	}
	per := r.sum() / time.Duration(steps)
	s.times = append(s.times, per)
	return per, r.loss, nil
}

// StepScale returns a line for every side, with the speed and for all but the first
// x-first, the rate of the side over that of the first, medians and quartiles of the
// ratios inside a round. label names a side in its line, as in "threads=2".
//
// The sides must compute the same bits, as they do with any number of threads and
// devices: it fails when the losses of a round differ.
func StepScale(ctx context.Context, c ScaleConfig, label func(StepConfig) string, emit func(Line)) (err error) {
	sides, err := openSides(ctx, &c, int64((c.Rounds+1)*(c.Warm+c.Steps)))
	defer func() { err = errors.Join(err, closeSides(sides)) }()
	if err != nil {
		return err
	}
	for round := range c.Rounds {
		var first time.Duration
		var loss float64
		for i, s := range sides {
			per, l, err := s.measure(ctx, c.Warm, c.Steps)
			switch {
			case err != nil:
				return err
			case i == 0:
				first, loss = per, l
			case math.Float64bits(l) != math.Float64bits(loss):
				return fmt.Errorf("bench: round %d: the loss is %v with %s and %v with %s; these steps are not the same", round+1, loss, label(sides[0].cfg), l, label(s.cfg))
			}
			s.ratios = append(s.ratios, first.Seconds()/per.Seconds())
		}
	}
	for i, s := range sides {
		l := s.line(label(s.cfg), c.Steps)
		if i > 0 {
			lo, mid, hi := Quartiles(s.ratios)
			l.Metrics = append(l.Metrics, Metric{mid, "x-first"}, Metric{lo, "x-first-q1"}, Metric{hi, "x-first-q3"})
		}
		emit(l)
	}
	return nil
}

// line is the speed of a side in a comparison by what label says.
func (s *side) line(label string, steps int) Line {
	by, _, _ := strings.Cut(label, "=")
	name := fmt.Sprintf("StepScale/by=%s/preset=%s/precision=%s", by, s.cfg.Name, s.cfg.Policy)
	if by != "size" {
		name += "/" + label
	}
	return Line{Name: name, Threads: s.threads(), N: len(s.times) * steps, PerOp: median(s.times), Metrics: []Metric{{s.tokSec(), "tok/s"}}}
}

// Sizes are the models over which the growth of a step is measured, 0.3M to 30M
// parameters: the micro presets and one more of their kind. The largest is last.
func Sizes() (out []model.Preset) {
	for _, p := range model.Presets() {
		if name, ok := strings.CutPrefix(p.Name, "micro-"); ok {
			out = append(out, model.Preset{Name: name, Config: p.Config})
		}
	}
	big := out[len(out)-1].Config
	big.Layers, big.Dim, big.Heads, big.KVHeads, big.FFN = 9, 512, 8, 8, 1376
	return append(out, model.Preset{Name: "30M", Config: big})
}

// TokenFLOPs is the rule 6P + 7LTD for the floating point operations that a token
// costs in training, of research on small models: P parameters of matrices that are
// multiplied, which an untied embedding is not, L layers, rows of T tokens, width D.
func TokenFLOPs(m model.Config, T int) float64 {
	l := m.Layout()
	p := l.Total - l.Roles[model.Embedding].Len()
	return 6*float64(p) + 7*float64(m.Layers)*float64(T)*float64(m.Dim)
}

// Growth measures the steps of models of several sizes and how well one constant
// foretells them: tokens a second = constant / TokenFLOPs. It returns a line for each
// side with tok/s, rule-GFLOP/s (their product), of-peak (that over the multiply-add
// peak of the session) and x-mean (over the geometric mean of all sides), and a last
// one with off%, the largest distance of a side from that mean, and spread%, that of
// the fastest side from the slowest, both of medians over rounds, with quartiles. In
// a round a small model makes as many steps as fit into an eighth of the time of the
// largest, up to 16 times Steps, and one whose steps take over half a second, beside
// which the start of a step is nothing, makes none that do not count.
func Growth(ctx context.Context, c ScaleConfig, emit func(Line)) (err error) {
	const most = 16
	sides, err := openSides(ctx, &c, int64((c.Rounds+1)*(c.Warm+most*c.Steps)))
	defer func() { err = errors.Join(err, closeSides(sides)) }()
	if err != nil {
		return err
	}
	pool := par.New(sides[0].threads())
	defer pool.Close()
	steps, warm := make([]int, len(sides)), make([]int, len(sides))
	first := make([]time.Duration, len(sides))
	for i, s := range sides { // the first steps, which touch all memory
		if first[i], _, err = s.measure(ctx, 0, 1); err != nil {
			return err
		}
		s.times = nil
	}
	for i := range sides {
		if first[i] < time.Second/2 {
			warm[i] = c.Warm
		}
		steps[i] = c.Steps * int(min(most, max(1, slices.Max(first)/(8*first[i]))))
	}
	var peak float64
	var off, spread []float64
	for range c.Rounds {
		rates := make([]float64, len(sides))
		logs := 0.0
		for i, s := range sides {
			per, _, err := s.measure(ctx, warm[i], steps[i])
			if err != nil {
				return err
			}
			rates[i] = float64(s.cfg.B*s.cfg.T) / per.Seconds() * TokenFLOPs(s.cfg.Model, s.cfg.T)
			logs += math.Log(rates[i])
			peak = max(peak, peakRate(pool, asm.FMAPeak))
		}
		mean, far := math.Exp(logs/float64(len(sides))), 0.0
		for i, s := range sides {
			s.ratios = append(s.ratios, rates[i]/mean)
			far = max(far, math.Abs(rates[i]/mean-1))
		}
		off, spread = append(off, 100*far), append(spread, 100*(slices.Max(rates)/slices.Min(rates)-1))
	}
	for i, s := range sides {
		l := s.line("size="+s.cfg.Name, steps[i])
		lo, mid, hi := Quartiles(s.ratios)
		rate := s.tokSec() * TokenFLOPs(s.cfg.Model, s.cfg.T)
		l.Metrics = append(l.Metrics, Metric{rate / 1e9, "rule-GFLOP/s"}, Metric{rate / peak, "of-peak"},
			Metric{mid, "x-mean"}, Metric{lo, "x-mean-q1"}, Metric{hi, "x-mean-q3"})
		emit(l)
	}
	all := Line{Name: fmt.Sprintf("StepScale/by=size/all=%s..%s/precision=%s", sides[0].cfg.Name, sides[len(sides)-1].cfg.Name, sides[0].cfg.Policy), Threads: sides[0].threads(), N: c.Rounds}
	for _, q := range []struct {
		unit string
		of   []float64
	}{{"off%", off}, {"spread%", spread}} {
		lo, mid, hi := Quartiles(q.of)
		all.Metrics = append(all.Metrics, Metric{mid, q.unit}, Metric{lo, q.unit + "-q1"}, Metric{hi, q.unit + "-q3"})
	}
	emit(all)
	return nil
}

// peakRate is the rate of one sample of a peak on all threads of a pool, in floating
// point operations a second.
func peakRate(pool *par.Pool, of func(n int) int) float64 {
	flops := make([]int, pool.Threads()*16) // a cache line a thread
	t0 := time.Now()
	pool.Run(func(w int) { flops[w*16] = of(50_000) })
	d := time.Since(t0)
	total := 0
	for _, n := range flops {
		total += n
	}
	return float64(total) / d.Seconds()
}
