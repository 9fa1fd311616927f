package fit

import (
	"math"
	"slices"

	"refrain/internal/num"
)

// Intervals say how far the parameters move when the points do.
type Intervals struct {
	// Method is bootstrap, the middle Level of fits to the law plus residuals drawn with
	// replacement; or leave-one-out, the range of the fits without one point each, which
	// has no level.
	Method string     `json:"method"`
	Level  float64    `json:"level,omitempty"`
	Fits   int        `json:"fits"`             // that were made
	Broken int        `json:"broken,omitempty"` // of them; they are in the intervals all the same
	A      [2]float64 `json:"A"`
	Alpha  [2]float64 `json:"alpha"`
	E      [2]float64 `json:"E"`
}

const (
	// fewPoints is where the bootstrap begins: below it there are too few residuals to
	// draw from.
	fewPoints = 6
	// Level is the share of fits that an interval holds.
	Level = 0.95
)

// intervals refits the law. With three points there is nothing to vary.
func (r *Result) intervals(points []Point, o Options) {
	if len(points) < 4 {
		return
	}
	in := &Intervals{Method: "leave-one-out"}
	var laws []Law
	add := func(p []Point) {
		if check(p) != nil {
			return // too few different x are left
		}
		f := of(p, profile(p, o.Start == Params)) // many times as fast as the search, and as good
		f.judge(p, o)
		if f.Broken {
			in.Broken++
		}
		laws = append(laws, f.Law)
	}
	if len(points) >= fewPoints {
		in.Method, in.Level = "bootstrap", Level
		rng := num.NewStream("fit bootstrap", o.Seed)
		// Residuals of a fit are smaller than the noise by the parameters it spent.
		scale := math.Sqrt(float64(len(points)) / float64(len(points)-3))
		var n uint64
		for range o.Resamples {
			p := slices.Clone(points)
			for i := range p {
				p[i].Loss = r.At(p[i].X) + scale*r.Residuals[int(rng.Float64(n)*float64(len(points)))]
				n++
			}
			add(p)
		}
	} else {
		for i := range points {
			add(slices.Delete(slices.Clone(points), i, i+1))
		}
	}
	if in.Fits = len(laws); in.Fits == 0 {
		return
	}
	in.A = span(laws, in.Level, func(l Law) float64 { return l.A })
	in.Alpha = span(laws, in.Level, func(l Law) float64 { return l.Alpha })
	in.E = span(laws, in.Level, func(l Law) float64 { return l.E })
	r.Intervals = in
}

// span is the middle share of a value, all of it for 0.
func span(laws []Law, level float64, of func(Law) float64) [2]float64 {
	var v []float64
	for _, l := range laws {
		v = append(v, of(l))
	}
	if level == 0 {
		level = 1
	}
	return Middle(v, level)
}

// Middle is the range of the middle share, above 0 and up to 1, of one or more values.
// It sorts them.
func Middle(v []float64, share float64) [2]float64 {
	slices.Sort(v)
	cut := int((1 - share) / 2 * float64(len(v)))
	return [2]float64{v[cut], v[len(v)-1-cut]}
}
