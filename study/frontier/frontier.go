// Package frontier says what loss is to be had on how many GPUs in how much time, from
// runs that have been trained: every claim is a run whose schedule ended.
//
// Time is counted in optimiser-step equivalents. With b rows a GPU at a time, a step of B
// rows takes a = ceil(B / (b*G)) of them on G GPUs, so a run of S steps takes S*a, and
//
//	L*(G,T) = the least loss of the runs with S*a(B,G) <= T.
//
// A second axis has measured seconds, where step times are known. A third, kept apart,
// has projections for GPUs that make a step shorter instead of wider.
package frontier

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Run is an endpoint: what training with some settings came to, on the mean over seeds.
type Run struct {
	Name   string  `json:"name"`   // settings, or a folder
	Params int     `json:"params"` // of the model
	Batch  int     `json:"batch"`  // rows a step
	Steps  int64   `json:"steps"`
	Epochs float64 `json:"epochs,omitempty"` // 0 when unknown
	Loss   float64 `json:"loss"`             // of the validation set, nats a token; mean over seeds
	SD     float64 `json:"sd,omitempty"`     // over seeds; 0 for one
	Seeds  int     `json:"seeds"`
	// Prefix says that the schedule went on after Steps: the loss is that of a model whose
	// learning rate had not come down, a biased stand-in for a run of that length.
	Prefix bool     `json:"prefix,omitempty"`
	From   []string `json:"from"` // run folders or records, one a seed
}

// check refuses what no run can be.
func (r *Run) check() error {
	switch {
	case r.Batch < 1 || r.Steps < 1:
		return fmt.Errorf("%s has %d steps of %d rows", r.Name, r.Steps, r.Batch)
	case math.IsNaN(r.Loss) || math.IsInf(r.Loss, 0):
		return fmt.Errorf("%s has the loss %g", r.Name, r.Loss)
	}
	return nil
}

// Rounds is a(B,G): how many rows-a-GPU rounds a step of batch rows takes.
func Rounds(batch, perGPU, gpus int) int64 {
	room := int64(perGPU) * int64(gpus)
	return (int64(batch) + room - 1) / room
}

// option is one way to train a run: so many GPUs for so long.
type option struct {
	gpus int
	time float64
	ways int // GPUs that share the work of one; 0 where it is observed
}

// axis lists the options of a run that are worth having, on one measure of time: with more
// GPUs comes less time. The list is in the order of GPUs.
type axis func(r *Run) []option

// equivalents is the axis of optimiser-step equivalents.
func equivalents(perGPU int) axis {
	return func(r *Run) []option {
		var out []option
		for gpus := 1; ; {
			a := Rounds(r.Batch, perGPU, gpus)
			out = append(out, option{gpus, float64(r.Steps) * float64(a), 0})
			if a == 1 {
				return out
			}
			// The fewest GPUs with a round less.
			gpus = int(Rounds(r.Batch, perGPU, int(a-1)))
		}
	}
}

// Point is a run on some GPUs.
type Point struct {
	Run     int     `json:"run"` // index in the list of runs
	Name    string  `json:"name"`
	Params  int     `json:"params"`
	Batch   int     `json:"batch"`
	Steps   int64   `json:"steps"`
	Epochs  float64 `json:"epochs,omitempty"`
	Loss    float64 `json:"loss"`
	SD      float64 `json:"sd,omitempty"` // over seeds
	Seeds   int     `json:"seeds"`
	Prefix  bool    `json:"prefix,omitempty"` // see Run
	GPUs    int     `json:"gpus"`             // that it really uses
	Time    float64 `json:"time"`             // on the axis of the panel
	GPUTime float64 `json:"gpu_time"`         // GPUs times Time
	// Seconds are on the axis of equivalents, where the step time on so many GPUs is known.
	Seconds *float64 `json:"seconds,omitempty"`
	// Of projections: GPUs that share one replica's step, and s(ways).
	Projected bool    `json:"projected,omitempty"`
	Ways      int     `json:"ways,omitempty"`
	Speedup   float64 `json:"speedup,omitempty"`
}

func point(i int, r *Run, o option) Point {
	return Point{
		Run: i, Name: r.Name, Params: r.Params, Batch: r.Batch, Steps: r.Steps, Loss: r.Loss, GPUs: o.gpus, Time: o.time,
		GPUTime: float64(o.gpus) * o.time, Prefix: r.Prefix, Seeds: r.Seeds, SD: r.SD, Epochs: r.Epochs,
	}
}

// compare orders points of one loss: fewer GPUs, less time, a smaller batch, a finished
// schedule before a prefix, then names, so that nothing depends on the order of records.
func compare(a, b *Point) int {
	prefix := func(p *Point) int {
		if p.Prefix {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Time, b.Time), cmp.Compare(a.Batch, b.Batch), cmp.Compare(prefix(a), prefix(b)),
		cmp.Compare(a.Params, b.Params), cmp.Compare(a.Ways, b.Ways), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Run, b.Run))
}

// all are the options of every run as points.
func all(runs []Run, ax axis) []Point {
	var out []Point
	for i := range runs {
		for _, o := range ax(&runs[i]) {
			p := point(i, &runs[i], o)
			p.Ways = o.ways
			out = append(out, p)
		}
	}
	return out
}

// best is the point with the least loss within so many GPUs and so much time; of equal
// ones the first by compare, so that no more GPUs are used than are needed. nil when
// nothing fits.
func best(points []Point, gpus int, time float64) *Point {
	var found *Point
	for i := range points {
		p := &points[i]
		if p.GPUs > gpus || p.Time > time {
			continue
		}
		if found == nil || p.Loss < found.Loss || p.Loss == found.Loss && compare(p, found) < 0 {
			found = p
		}
	}
	if found == nil {
		return nil
	}
	copied := *found
	return &copied
}

// pareto are the points that no other beats: none has as few GPUs, as little time and as
// low a loss, unless it is equal in all three, of which the first by compare stays. They
// come in the order of GPUs, then time.
func pareto(points []Point) []Point {
	sorted := slices.Clone(points)
	slices.SortFunc(sorted, func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Time, b.Time), cmp.Compare(a.Loss, b.Loss), compare(&a, &b))
	})
	out := []Point{}
	// stairs are the points so far that are least in loss for their time: rising in time,
	// falling in loss. Whoever comes later has as many GPUs or more.
	var stairs []Point
	for _, p := range sorted {
		at, _ := slices.BinarySearchFunc(stairs, p.Time, func(s Point, t float64) int {
			if s.Time <= t {
				return -1
			}
			return 1
		})
		if at > 0 && stairs[at-1].Loss <= p.Loss {
			continue
		}
		end := at
		for end < len(stairs) && stairs[end].Loss >= p.Loss {
			end++
		}
		begin := at
		if at > 0 && stairs[at-1].Time == p.Time {
			begin-- // a worse loss in the same time
		}
		stairs = slices.Replace(stairs, begin, end, p)
		out = append(out, p)
	}
	return out
}
