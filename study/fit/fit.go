// Package fit finds the laws of repeated-data pretraining in measured losses: how the
// loss falls with parameters, members or unique tokens, where it would end, and how much
// more data a recipe is worth.
//
// Every law is L(x) = A / x^Alpha + E (Kim et al. 2025, section 3 and appendix): E is the
// asymptote. Losses are in nats a token. x is in units of the caller's choice, which only
// changes A; the papers count parameters and tokens in billions.
package fit

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/optimize"
)

// Law is L(x) = A / x^Alpha + E.
type Law struct {
	A     float64 `json:"A"`
	Alpha float64 `json:"alpha"`
	E     float64 `json:"E"`
}

// At is the law's loss at x > 0.
func (l Law) At(x float64) float64 { return l.A*math.Pow(x, -l.Alpha) + l.E }

// Inverse is the x at which the law has this loss; an error when it never has.
func (l Law) Inverse(loss float64) (float64, error) {
	switch {
	case !(l.A > 0 && l.Alpha > 0):
		return 0, fmt.Errorf("the law %v does not fall with x, so no x belongs to a loss of %.4f", l, loss)
	case !(loss > l.E):
		return 0, fmt.Errorf("a loss of %.4f is not above the asymptote %.4f of the law: no amount is enough for it", loss, l.E)
	}
	return math.Pow(l.A/(loss-l.E), 1/l.Alpha), nil
}

func (l Law) String() string { return fmt.Sprintf("%.4g / x^%.4g + %.4f", l.A, l.Alpha, l.E) }

// Point is one measured loss.
type Point struct {
	X    float64 `json:"x"`
	Loss float64 `json:"loss"`
}

// Start is where the search begins and what it may find, as the papers have it.
type Start string

// The starts. Params is for laws over parameters and tokens, all of A, Alpha and E at
// least 0; Ensemble for laws over the number of members, without bounds.
const (
	Params   Start = "params"
	Ensemble Start = "ensemble"
)

// Options say how to fit. The zero value is Params without intervals.
type Options struct {
	Start Start // "" is Params
	// Resamples is how many bootstrap samples give the intervals, where there are points
	// enough for a bootstrap. Zero leaves the intervals out.
	Resamples int
	Seed      uint64
	// LeastE marks an asymptote below it as a broken fit; the papers use 1.8 for losses
	// of web text.
	LeastE float64
}

// Result is a fitted law. Residuals are measured minus fitted, in the order of the
// points. A fit with warnings is not necessarily wrong, and one that is Broken is.
type Result struct {
	Law
	Points    []Point    `json:"points"` // that it was fitted to
	RMSE      float64    `json:"rmse"`
	Residuals []float64  `json:"residuals"`
	Intervals *Intervals `json:"intervals"`
	Warnings  []string   `json:"warnings"`
	Broken    bool       `json:"broken"`
	// Profile is what the second method finds: for every Alpha the best A and E follow
	// from a linear problem, so only Alpha is searched.
	Profile Law `json:"profile"`
}

// Fit finds the law with the least sum of squares. It fails on fewer than three points
// with different x, on x that are not above 0, and on losses that are not finite.
func Fit(points []Point, o Options) (Result, error) {
	o, err := o.checked()
	if err != nil {
		return Result{}, err
	}
	if err := check(points); err != nil {
		return Result{}, err
	}
	r := solve(points, o.Start)
	r.judge(points, o)
	if o.Resamples > 0 {
		r.intervals(points, o)
	}
	return r, nil
}

// Quick is the law of Fit by the profile in Alpha alone, for those who fit hundreds of
// resamples: many times as fast, and as good unless the points are no power of x. It fails
// as Fit does.
func Quick(points []Point, start Start) (Law, error) {
	o, err := Options{Start: start}.checked()
	if err != nil {
		return Law{}, err
	}
	if err := check(points); err != nil {
		return Law{}, err
	}
	return profile(points, o.Start == Params), nil
}

func (o Options) checked() (Options, error) {
	switch o.Start {
	case "":
		o.Start = Params
	case Params, Ensemble:
	default:
		return o, fmt.Errorf("fit: start %q; use params or ensemble", o.Start)
	}
	if o.Resamples < 0 {
		return o, fmt.Errorf("fit: %d resamples; use 0 or more", o.Resamples)
	}
	return o, nil
}

func check(points []Point) error {
	var errs []error
	var xs []float64
	for i, p := range points {
		if !(p.X > 0) || math.IsInf(p.X, 0) {
			errs = append(errs, fmt.Errorf("fit: point %d has x = %v; x must be above 0", i+1, p.X))
		}
		if math.IsNaN(p.Loss) || math.IsInf(p.Loss, 0) {
			errs = append(errs, fmt.Errorf("fit: point %d (x = %v) has the loss %v; leave diverged runs out", i+1, p.X, p.Loss))
		}
		xs = append(xs, p.X)
	}
	slices.Sort(xs)
	if n := len(slices.Compact(xs)); n < 3 {
		errs = append(errs, fmt.Errorf("fit: %d points with different x; a law of three parameters needs at least 3, and 4 to tell how well it fits", n))
	}
	return errors.Join(errs...)
}

// solve finds the law by both methods and keeps the better one.
func solve(points []Point, start Start) Result {
	searched, profiled := search(points, start), profile(points, start == Params)
	r := of(points, searched)
	if squares(points, profiled) < squares(points, searched) {
		r = of(points, profiled)
	}
	r.Profile = profiled
	if a, b := squares(points, searched), squares(points, profiled); math.Abs(math.Sqrt(a)-math.Sqrt(b)) > 1e-3*(1e-6+math.Sqrt(min(a, b))) && math.Abs(searched.E-profiled.E) > 1e-3 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the search from the usual start ends at %v and the profile in alpha at %v; the better one is kept", searched, profiled))
	}
	return r
}

// of is the result that a law would be.
func of(points []Point, l Law) Result {
	r := Result{Law: l, Points: slices.Clone(points), Profile: l, Warnings: []string{}}
	for _, p := range points {
		r.Residuals = append(r.Residuals, p.Loss-l.At(p.X))
	}
	r.RMSE = math.Sqrt(squares(points, l) / float64(len(points)))
	return r
}

// squares is the sum of squared residuals.
func squares(points []Point, l Law) (sum float64) {
	for _, p := range points {
		d := p.Loss - l.At(p.X)
		sum += d * d
	}
	return sum
}

// search is least squares from the papers' start. Bounds are kept by squares of the
// variables.
func search(points []Point, start Start) Law {
	bounded := start == Params
	law := func(v []float64) Law {
		if bounded {
			return Law{v[0] * v[0], v[1] * v[1], v[2] * v[2]}
		}
		return Law{v[0], v[1], v[2]}
	}
	from := []float64{1, 1, 1}
	if bounded {
		from = []float64{1, math.Sqrt(0.5), math.Sqrt2} // A 1, alpha 0.5, E 2
	}
	problem := optimize.Problem{
		Func: func(v []float64) float64 { return squares(points, law(v)) },
		Grad: func(grad, v []float64) {
			l := law(v)
			clear(grad)
			for _, p := range points {
				power := math.Pow(p.X, -l.Alpha)
				d := -2 * (p.Loss - l.At(p.X))
				grad[0] += d * power
				grad[1] -= d * l.A * power * math.Log(p.X)
				grad[2] += d
			}
			if bounded {
				for i := range grad {
					grad[i] *= 2 * v[i]
				}
			}
		},
	}
	settings := &optimize.Settings{
		GradientThreshold: 1e-13, MajorIterations: 2000,
		Converger: &optimize.FunctionConverge{Absolute: 1e-20, Relative: 1e-14, Iterations: 50},
	}
	best := law(from)
	// A line search that cannot go on ends with an error beside the best place so far.
	for _, method := range []optimize.Method{&optimize.BFGS{}, &optimize.NelderMead{}} {
		found, _ := optimize.Minimize(problem, from, settings, method)
		if found == nil || !(found.F <= squares(points, best)) {
			continue
		}
		best, from = law(found.X), slices.Clone(found.X)
	}
	return best
}

// The range of Alpha that is searched; laws outside of it are flat or steps.
const (
	leastAlpha = 1e-3
	mostAlpha  = 20
)

// profile scans Alpha on a logarithmic grid and refines the best place by golden section.
func profile(points []Point, bounded bool) Law {
	const steps = 100
	ratio := math.Log(mostAlpha / leastAlpha)
	at := func(i float64) Law { return linear(points, leastAlpha*math.Exp(ratio*i/steps), bounded) }
	best, least := 0, math.Inf(1)
	for i := range steps + 1 {
		if s := squares(points, at(float64(i))); s < least {
			best, least = i, s
		}
	}
	lo, hi := math.Max(0, float64(best)-1), math.Min(steps, float64(best)+1)
	golden := (math.Sqrt(5) - 1) / 2
	value := func(i float64) float64 { return squares(points, at(i)) }
	a, b := hi-golden*(hi-lo), lo+golden*(hi-lo)
	for va, vb := value(a), value(b); hi-lo > 1e-7; {
		if va <= vb {
			hi, b, vb = b, a, va
			a = hi - golden*(hi-lo)
			va = value(a)
		} else {
			lo, a, va = a, b, vb
			b = lo + golden*(hi-lo)
			vb = value(b)
		}
	}
	return at((lo + hi) / 2)
}

// linear is the best law with this Alpha: simple regression on x^-Alpha, at the bounds
// where the free solution is beyond them.
func linear(points []Point, alpha float64, bounded bool) Law {
	n := float64(len(points))
	var meanX, meanY float64
	for _, p := range points {
		meanX += math.Pow(p.X, -alpha) / n
		meanY += p.Loss / n
	}
	var xx, xy, zz, zy float64
	for _, p := range points {
		z := math.Pow(p.X, -alpha)
		xx += (z - meanX) * (z - meanX)
		xy += (z - meanX) * (p.Loss - meanY)
		zz += z * z
		zy += z * p.Loss
	}
	l := Law{Alpha: alpha}
	if xx > 0 {
		l.A = xy / xx
	}
	l.E = meanY - l.A*meanX
	if !bounded {
		return l
	}
	if l.A < 0 {
		return Law{0, alpha, math.Max(0, meanY)}
	}
	if l.E < 0 {
		return Law{math.Max(0, zy/zz), alpha, 0}
	}
	return l
}

// judge adds what a reader of the fit must know.
func (r *Result) judge(points []Point, o Options) {
	warn := func(format string, args ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...)) }
	broken := func(format string, args ...any) { r.Broken = true; warn(format, args...) }
	lo, hi := points[0].Loss, points[0].Loss
	for _, p := range points {
		lo, hi = math.Min(lo, p.Loss), math.Max(hi, p.Loss)
	}
	if len(points) == 3 {
		warn("three points determine the three parameters: nothing is left to tell how well the law fits")
	}
	switch {
	case hi == lo:
		broken("all losses are equal: only E is determined")
	case r.A <= 1e-12*(hi-lo) || r.Alpha <= 2*leastAlpha:
		broken("the losses do not fall with x as a power: A = %.3g, alpha = %.3g", r.A, r.Alpha)
	case r.Alpha >= 0.95*mostAlpha:
		broken("alpha = %.3g: the points are a step and not a power", r.Alpha)
	case r.E < o.LeastE:
		broken("the asymptote %.4f is below %.4g, the least that is believed", r.E, o.LeastE)
	case o.Start == Params && r.E <= 1e-9:
		broken("the asymptote is at its bound 0: the points do not yet bend")
	case r.RMSE > 0.2*(hi-lo):
		warn("the residuals (rmse %.4f) are more than a fifth of the range of the losses (%.4f)", r.RMSE, hi-lo)
	}
	if !r.Broken && lo-r.E > 0.5*(hi-r.E) {
		warn("the best point is %.4f above the asymptote, the worst %.4f: the asymptote is far from the points", lo-r.E, hi-r.E)
	}
}
