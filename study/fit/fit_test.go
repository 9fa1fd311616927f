package fit

import (
	"math"
	"strings"
	"testing"

	"refrain/internal/num"
)

// asymptotes are E over K at 200M to 1.6B tokens and 150M to 1.4B parameters, from the
// published plotting code of Kim et al. 2025.
var asymptotes = [4][4]float64{
	{3.494941417720857, 3.2729813419904183, 3.2122277662817145, 3.173966150932168},
	{3.399930198165533, 3.1503966937866053, 3.0519037696079496, 3.002520844567612},
	{3.357577868802383, 3.1018990697199413, 2.9058312693222317, 2.8680140499504847},
	{3.2995859709652104, 3.0172424035912697, 2.8262327566492838, 2.752375695327966},
}

var (
	sizes  = []float64{0.15, 0.3, 0.6, 1.4}                        // billions of parameters
	tokens = []float64{0.2097152, 0.4194304, 0.8388608, 1.6777216} // billions
)

func points(xs []float64, losses ...float64) (p []Point) {
	for i, x := range xs {
		p = append(p, Point{x, losses[i]})
	}
	return p
}

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s = %.6f, want %.6f within %g", what, got, want, tol)
	}
}

// TestRow21PowerLawFitter: the published fits come out, both methods agree on them, an
// exact law is recovered, and residuals are the points' distances.
func TestRow21PowerLawFitter(t *testing.T) {
	for _, c := range []struct {
		name                   string
		points                 []Point
		a, alpha, e, rmse, tol float64
	}{
		{"200M", points(sizes, asymptotes[0][:]...), 0.0158, 1.594, 3.1690, 0.0047, 1e-3},
		{"400M", points(sizes, asymptotes[1][:]...), 0.0362, 1.2915, 2.980, -1, 1e-3},
		{"exact", points(sizes, 0.05/math.Pow(0.15, 1.02)+3.43, 0.05/math.Pow(0.3, 1.02)+3.43, 0.05/math.Pow(0.6, 1.02)+3.43, 0.05/math.Pow(1.4, 1.02)+3.43), 0.05, 1.02, 3.43, 0, 1e-6},
	} {
		r, err := Fit(c.points, Options{})
		if err != nil {
			t.Fatal(err)
		}
		near(t, c.name+": A", r.A, c.a, c.tol)
		near(t, c.name+": alpha", r.Alpha, c.alpha, c.tol)
		near(t, c.name+": E", r.E, c.e, c.tol)
		near(t, c.name+": E of the profile", r.Profile.E, r.E, 1e-6)
		if c.rmse >= 0 {
			near(t, c.name+": rmse", r.RMSE, c.rmse, 1e-4)
		}
		var sum float64
		for i, p := range c.points {
			near(t, c.name+": residual", r.Residuals[i], p.Loss-r.At(p.X), 1e-15)
			sum += r.Residuals[i] * r.Residuals[i]
		}
		near(t, c.name+": rmse", r.RMSE, math.Sqrt(sum/float64(len(c.points))), 1e-12)
		if r.Broken {
			t.Errorf("%s: broken: %v", c.name, r.Warnings)
		}
	}
}

// TestEnsembleStart: a law over members is found, also one that begins far from the start.
func TestEnsembleStart(t *testing.T) {
	for _, want := range []Law{{0.3, 1, 3.27}, {0.02, 0.4, 3.3}, {2.5, 2.2, 0.7}} {
		var p []Point
		for k := 1; k <= 8; k++ {
			p = append(p, Point{float64(k), want.At(float64(k))})
		}
		r, err := Fit(p, Options{Start: Ensemble})
		if err != nil {
			t.Fatal(err)
		}
		near(t, "A", r.A, want.A, 1e-5)
		near(t, "alpha", r.Alpha, want.Alpha, 1e-5)
		near(t, "E", r.E, want.E, 1e-5)
	}
}

// TestRefusals: what cannot be fitted is an error that says why; what can but should not
// be believed is marked.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		points []Point
		o      Options
		want   string
	}{
		{points([]float64{1, 2}, 3, 2), Options{}, "needs at least 3"},
		{points([]float64{1, 2, 2}, 3, 2, 2.1), Options{}, "2 points with different x"},
		{points([]float64{1, 0, 2}, 3, 2, 1), Options{}, "point 2 has x = 0"},
		{points([]float64{1, 2, 3}, 3, math.NaN(), 1), Options{}, "point 2 (x = 2) has the loss NaN"},
		{points([]float64{1, 2, 3}, 3, 2, 1), Options{Start: "other"}, "params or ensemble"},
	} {
		if _, err := Fit(c.points, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.points, err, c.want)
		}
	}
	for _, c := range []struct {
		points []Point
		o      Options
		want   string
	}{
		{points([]float64{1, 2, 3, 4}, 3, 3, 3, 3), Options{}, "all losses are equal"},
		{points([]float64{1, 2, 3, 4}, 3, 3.1, 3.2, 3.3), Options{}, "do not fall"},
		{points([]float64{1, 2, 4, 8}, 3, 1.5, 0.75, 0.375), Options{}, "bound 0"},
		{points([]float64{1, 2, 4, 8}, 3, 2, 1.5, 1.25), Options{LeastE: 1.8}, "below 1.8"},
	} {
		r, err := Fit(c.points, c.o)
		if err != nil || !r.Broken || !strings.Contains(strings.Join(r.Warnings, "\n"), c.want) {
			t.Errorf("%v: broken %t, warnings %q (%v), want %q", c.points, r.Broken, r.Warnings, err, c.want)
		}
	}
	r, err := Fit(points([]float64{1, 2, 4}, 3, 2.5, 2.3), Options{Resamples: 10})
	if err != nil || r.Intervals != nil || r.Broken || !strings.Contains(r.Warnings[0], "three points determine") {
		t.Errorf("three points: %+v (%v)", r, err)
	}
}

// TestIntervals: noise about a known law is covered as often as the level says, by and
// large; the same seed gives the same intervals; four points give the range without each.
func TestIntervals(t *testing.T) {
	want := Law{0.4, 0.8, 3}
	const sets = 40
	covered := 0
	for set := range sets {
		rng := num.NewStream("fit test", uint64(set))
		var p []Point
		for i := range 12 {
			x := math.Pow(1.5, float64(i)) / 4
			noise := 0.0
			for j := range 12 {
				noise += rng.Float64(uint64(12*i+j)) - 0.5
			}
			p = append(p, Point{x, want.At(x) + 0.005*noise})
		}
		r, err := Fit(p, Options{Resamples: 120, Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		if in := r.Intervals; in.Method != "bootstrap" || in.Fits != 120 || in.E[0] > in.E[1] {
			t.Fatalf("%+v", in)
		} else if in.E[0] <= want.E && want.E <= in.E[1] {
			covered++
		}
		if set > 0 {
			continue
		}
		if again, _ := Fit(p, Options{Resamples: 120, Seed: 5}); *again.Intervals != *r.Intervals {
			t.Fatalf("%+v, then %+v", r.Intervals, again.Intervals)
		}
	}
	if covered < sets*80/100 || covered == sets {
		t.Errorf("%d of %d intervals of 0.95 hold the law", covered, sets)
	}
	r, err := Fit(points(sizes, asymptotes[0][:]...), Options{Resamples: 100})
	if err != nil || r.Intervals.Method != "leave-one-out" || r.Intervals.Fits != 4 || r.Intervals.E[0] > r.E || r.Intervals.E[1] < r.E {
		t.Errorf("%+v (%v)", r.Intervals, err)
	}
}

// TestRow22DoubleLimit: members first, then parameters, gives the published limits, and
// those give the data law.
func TestRow22DoubleLimit(t *testing.T) {
	var limits []Point
	for d, row := range asymptotes {
		var cells []Cell
		for i, e := range row {
			law := Law{0.3 + 0.1*float64(i), 1, e}
			for k := 5; k >= 1; k-- {
				cells = append(cells, Cell{sizes[i], k, law.At(float64(k))})
			}
		}
		lim, err := DoubleLimit(cells, Options{})
		if err != nil || len(lim.ByN) != 4 || len(lim.Skipped) != 0 {
			t.Fatalf("%+v (%v)", lim, err)
		}
		for i, in := range lim.ByN {
			near(t, "asymptote over members", in.E, row[i], 1e-5)
		}
		near(t, "joint limit", lim.Joint.E, []float64{3.169, 2.980, 2.789, 2.657}[d], 1e-3)
		limits = append(limits, Point{tokens[d], lim.Joint.E})
	}
	law, err := Fit(limits, Options{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "A of the data law", law.A, 0.961, 1e-3)
	near(t, "exponent of the data law", law.Alpha, 0.228, 1e-3)
	near(t, "infinite data", law.E, 1.799, 1e-3)

	cells := []Cell{{1, 1, 3}, {1, 2, 2.9}, {1, 2, 2.8}}
	if _, err := DoubleLimit(cells, Options{}); err == nil || !strings.Contains(err.Error(), "two losses for N = 1, K = 2") {
		t.Error(err)
	}
	if _, err := DoubleLimit([]Cell{{1, 1, 3}, {1, 2, 2.9}, {2, 1, 2.8}}, Options{}); err == nil || !strings.Contains(err.Error(), "N = 1: 2 numbers of members") {
		t.Error(err)
	}
}

// TestRow23DataEfficiency: the published check values, a loss below the asymptote, and
// interpolation between measured losses.
func TestRow23DataEfficiency(t *testing.T) {
	law := Law{1, 0.235, 1.92} // A cancels
	for loss, want := range map[float64]float64{3.43: 2.26, 3.34: 2.94, 3.27: 3.65, 3.17: 5.06} {
		got, err := Efficiency(law, loss, 3.74974)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "efficiency", got, want, 0.005)
	}
	for _, loss := range []float64{1.92, 1.5} {
		if _, err := Efficiency(law, loss, 3.75); err == nil || !strings.Contains(err.Error(), "not above the asymptote") {
			t.Errorf("a loss of %v: %v", loss, err)
		}
	}
	if _, err := Efficiency(Law{0, 1, 2}, 3, 4); err == nil {
		t.Error("a flat law has an inverse")
	}
	base := points([]float64{4, 1, 2}, 3, 4, 3.5)
	if got, err := EfficiencyBetween(base, 3.25, 3.75); err != nil || math.Abs(got-2) > 1e-12 {
		t.Errorf("%v (%v), want 3 of 1.5", got, err)
	}
	if _, err := EfficiencyBetween(base, 2.9, 3.75); err == nil {
		t.Error("a loss below all measured ones has an amount")
	}
	if _, err := EfficiencyBetween(points([]float64{1, 2, 4}, 4, 4.1, 3), 3.5, 4); err == nil {
		t.Error("losses that rise are read off")
	}
}

// TestQuick: the profile alone finds the law that made the points, and refuses what
// Fit refuses.
func TestQuick(t *testing.T) {
	want := Law{A: 0.5, Alpha: 1.1, E: 3.2}
	var points []Point
	for k := 1.0; k <= 5; k++ {
		points = append(points, Point{X: k, Loss: want.At(k)})
	}
	got, err := Quick(points, Ensemble)
	if err != nil || math.Abs(got.E-want.E) > 1e-4 || math.Abs(got.Alpha-want.Alpha) > 1e-3 {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if _, err := Quick(points[:2], Ensemble); err == nil {
		t.Error("a law of two points")
	}
	if _, err := Quick(points, "x"); err == nil {
		t.Error("an unknown start")
	}
}
