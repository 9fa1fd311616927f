package frontier

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Options are what is asked about runs. The zero value asks for the frontier in
// equivalents, with the smallest batch of each model as that of one GPU.
type Options struct {
	PerGPU    int       // b: rows that one GPU takes at a time; 0 is the smallest batch of the model's runs
	GPUs      []int     // of the grid; empty: powers of two up to the most that a run can use
	Deadlines []float64 // of the grid, in equivalents; empty: times of the Pareto set
	Times     Times     // for the second axis; the zero value leaves it out
	Latency   *Latency  // nil leaves the projection out
	Ways      []int     // of the projection; empty: 1, 2, 4, 8
}

// defaultWays are the numbers of GPUs that share a step, unless others are asked for.
var defaultWays = [...]int{1, 2, 4, 8}

// mostDeadlines is the width of a grid that nobody has asked for.
const mostDeadlines = 7

// Cell is the least loss within GPUs and Deadline; Best is nil when no run fits.
type Cell struct {
	GPUs     int     `json:"gpus"`
	Deadline float64 `json:"deadline"`
	Best     *Point  `json:"best"`
}

// Panel is the frontier on one measure of time.
type Panel struct {
	Axis      string    `json:"axis"`
	GPUs      []int     `json:"gpus"`
	Deadlines []float64 `json:"deadlines"`
	Grid      []Cell    `json:"grid"`   // by GPUs, then deadline
	Pareto    []Point   `json:"pareto"` // points that no other beats in GPUs, time and loss
}

// Model is what one size of model reaches. Its step is the unit, so sizes are apart.
type Model struct {
	Params        int       `json:"params"`
	PerGPU        int       `json:"per_gpu_batch"`
	PerGPUAssumed bool      `json:"per_gpu_batch_assumed"` // the smallest batch of the runs
	Frontier      *Panel    `json:"frontier"`
	Projected     *Panel    `json:"projected"` // null unless asked for; no run has shown it
	Latency       *Latency  `json:"latency,omitempty"`
	Speedups      []float64 `json:"speedups,omitempty"` // s(p) for Ways
	Ways          []int     `json:"ways,omitempty"`
}

// Source is what runs must have in common to stand in one frontier.
type Source struct {
	DataHash      string `json:"data_hash"`
	TokenizerHash string `json:"tokenizer_hash"`
	ValHash       string `json:"val_hash,omitempty"` // unknown for run folders outside a registry
	ValTokens     int64  `json:"val_tokens"`         // that a validation loss is over
	Code          string `json:"code"`               // of the first run
}

// Left is a run that does not count.
type Left struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Report is everything about some runs.
type Report struct {
	Runs   []Run   `json:"runs"`
	Models []Model `json:"models"` // by parameters
	// Wall is over all models, in measured or given seconds; null when no step time is known.
	Wall     *Panel   `json:"wall"`
	Times    *Times   `json:"step_times,omitempty"`
	Data     *Source  `json:"data,omitempty"` // what the runs have in common; null when they are not from the disk
	Left     []Left   `json:"left_out"`       // records that do not count
	Warnings []string `json:"warnings"`
}

// Build computes the frontiers of runs. It does not change them.
func Build(runs []Run, o Options) (*Report, error) {
	if len(runs) == 0 {
		return nil, usage("there is no run whose schedule ended")
	}
	var errs []error
	for i := range runs {
		errs = append(errs, runs[i].check())
	}
	if err := errors.Join(append(errs, o.check())...); err != nil {
		return nil, usage("%w", err)
	}
	r := &Report{Runs: runs, Left: []Left{}, Warnings: warnings(runs)}
	for _, params := range sizes(runs) {
		r.Models = append(r.Models, o.model(runs, params))
	}
	if o.Times.Known() {
		points := all(runs, o.Times.seconds(func(params int) int { return o.perGPU(runs, params) }))
		r.Times = &o.Times
		if len(points) == 0 {
			return nil, usage("no step time is of a batch that was trained (%s); measure with these batches, or give the time of an optimiser-step equivalent", batches(runs))
		}
		axis := "seconds, from measured step times"
		if o.Times.PerEquivalent > 0 {
			axis = fmt.Sprintf("seconds, with %g ms given for an optimiser-step equivalent", o.Times.PerEquivalent)
		}
		r.Wall = panel(points, axis, o.GPUs, nil)
		if n := untimed(runs, points); n > 0 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%d of %d runs have no measured step time and are not on the axis of seconds", n, len(runs)))
		}
	}
	return r, nil
}

func (o *Options) check() error {
	if o.PerGPU < 0 {
		return fmt.Errorf("%d rows a GPU; use 1 or more", o.PerGPU)
	}
	for _, g := range o.GPUs {
		if g < 1 {
			return fmt.Errorf("%d GPUs; use 1 or more", g)
		}
	}
	for _, t := range o.Deadlines {
		if !(t > 0) || math.IsInf(t, 0) {
			return fmt.Errorf("a deadline of %g; it is above 0", t)
		}
	}
	for _, p := range o.Ways {
		if p < 1 || p > 1<<20 {
			return fmt.Errorf("%d ways; use 1 or more", p)
		}
	}
	if o.Latency != nil {
		if err := o.Latency.check(); err != nil {
			return err
		}
	}
	return o.Times.check()
}

// perGPU is the b of a model.
func (o *Options) perGPU(runs []Run, params int) int {
	if o.PerGPU > 0 {
		return o.PerGPU
	}
	least := 0
	for _, r := range runs {
		if r.Params == params && (least == 0 || r.Batch < least) {
			least = r.Batch
		}
	}
	return least
}

// model is the frontier of one size.
func (o *Options) model(runs []Run, params int) Model {
	b := o.perGPU(runs, params)
	m := Model{Params: params, PerGPU: b, PerGPUAssumed: o.PerGPU == 0}
	own := func(ax axis) axis { // the other sizes have no options here
		return func(r *Run) []option {
			if r.Params != params {
				return nil
			}
			return ax(r)
		}
	}
	points := all(runs, own(equivalents(b)))
	for i := range points {
		p := &points[i]
		if s, ok := o.Times.step(&runs[p.Run], b, p.GPUs); ok {
			s *= float64(p.Steps)
			p.Seconds = &s
		}
	}
	m.Frontier = panel(points, "optimiser-step equivalents", o.GPUs, o.Deadlines)
	if o.Latency == nil {
		return m
	}
	m.Latency, m.Ways = o.Latency, slices.Clone(o.Ways)
	if len(m.Ways) == 0 {
		m.Ways = defaultWays[:]
	}
	for _, p := range m.Ways {
		m.Speedups = append(m.Speedups, o.Latency.Speedup(p))
	}
	points = all(runs, own(o.Latency.projected(b, m.Ways)))
	for i := range points {
		points[i].Projected, points[i].Speedup = true, o.Latency.Speedup(points[i].Ways)
	}
	deadlines := o.Deadlines
	if len(deadlines) == 0 {
		deadlines = m.Frontier.Deadlines // side by side
	}
	m.Projected = panel(points, "optimiser-step equivalents, projected: p GPUs share the step of one", o.GPUs, deadlines)
	return m
}

// panel fills the grid over points.
func panel(points []Point, axis string, gpus []int, deadlines []float64) *Panel {
	p := &Panel{Axis: axis, GPUs: sortedInts(gpus), Pareto: pareto(points)}
	if len(p.GPUs) == 0 {
		most := 1
		for i := range p.Pareto {
			most = max(most, p.Pareto[i].GPUs)
		}
		for g := 1; g < most; g *= 2 {
			p.GPUs = append(p.GPUs, g)
		}
		p.GPUs = append(p.GPUs, most)
	}
	p.Deadlines = slices.Clone(deadlines)
	if len(deadlines) == 0 {
		for i := range p.Pareto {
			p.Deadlines = append(p.Deadlines, p.Pareto[i].Time)
		}
	}
	slices.Sort(p.Deadlines)
	p.Deadlines = slices.Compact(p.Deadlines)
	if n := len(p.Deadlines); len(deadlines) == 0 && n > mostDeadlines {
		var some []float64
		for i := range mostDeadlines {
			some = append(some, p.Deadlines[(i*(n-1)+(mostDeadlines-1)/2)/(mostDeadlines-1)])
		}
		p.Deadlines = slices.Compact(some)
	}
	for _, g := range p.GPUs {
		for _, t := range p.Deadlines {
			p.Grid = append(p.Grid, Cell{g, t, best(points, g, t)})
		}
	}
	return p
}

func sortedInts(list []int) []int {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}

// sizes lists the parameters of the models, smallest first.
func sizes(runs []Run) []int {
	var out []int
	for _, r := range runs {
		out = append(out, r.Params)
	}
	return sortedInts(out)
}

func batches(runs []Run) string {
	var out []int
	for _, r := range runs {
		out = append(out, r.Batch)
	}
	return fmt.Sprintf("batches %v", sortedInts(out))
}

func untimed(runs []Run, points []Point) int {
	has := make([]bool, len(runs))
	for _, p := range points {
		has[p.Run] = true
	}
	n := 0
	for _, h := range has {
		if !h {
			n++
		}
	}
	return n
}

// warnings are about runs that compare less well than they look.
func warnings(runs []Run) []string {
	out := []string{}
	prefixes, fewest, most := 0, runs[0].Seeds, runs[0].Seeds
	for _, r := range runs {
		fewest, most = min(fewest, r.Seeds), max(most, r.Seeds)
		if r.Prefix {
			prefixes++
		}
	}
	if fewest != most {
		out = append(out, fmt.Sprintf("points have from %d to %d seeds; those with few are chosen by luck more often", fewest, most))
	}
	if prefixes > 0 {
		out = append(out, fmt.Sprintf("%d of %d points are prefixes of longer schedules, whose learning rate had not come down: biased stand-ins for runs of that length", prefixes, len(runs)))
	}
	return out
}

// Advice is what a deadline allows.
type Advice struct {
	GPUs    int     `json:"gpus"`
	Seconds float64 `json:"deadline_seconds"`
	// Best is the least loss of all; nil when no run fits, and then Fastest is the one that
	// needs the least time on so many GPUs.
	Best    *Point `json:"best"`
	Fastest *Point `json:"fastest,omitempty"`
	// Fewer are the best on fewer GPUs, by falling number, where the loss differs.
	Fewer []Point `json:"fewer_gpus"`
}

// Advise looks for the run to repeat when there are so many GPUs for so long, over all
// models of r, which has a wall axis.
func (r *Report) Advise(o Options, gpus int, seconds float64) (*Advice, error) {
	switch {
	case gpus < 1:
		return nil, usage("%d GPUs; use 1 or more", gpus)
	case !(seconds > 0) || math.IsInf(seconds, 0):
		return nil, usage("a deadline of %g seconds; it is above 0", seconds)
	case r.Wall == nil:
		return nil, usage("a deadline in hours needs step times: measured ones, or those of an optimiser-step equivalent")
	}
	points := all(r.Runs, o.Times.seconds(func(params int) int { return o.perGPU(r.Runs, params) }))
	a := &Advice{GPUs: gpus, Seconds: seconds, Best: best(points, gpus, seconds), Fewer: []Point{}}
	if a.Best == nil {
		for i := range points {
			if p := &points[i]; p.GPUs <= gpus && (a.Fastest == nil || p.Time < a.Fastest.Time || p.Time == a.Fastest.Time && compare(p, a.Fastest) < 0) {
				a.Fastest = p
			}
		}
		return a, nil
	}
	for last := a.Best; last != nil && last.GPUs > 1; {
		if last = best(points, last.GPUs-1, seconds); last != nil {
			a.Fewer = append(a.Fewer, *last)
		}
	}
	return a, nil
}
