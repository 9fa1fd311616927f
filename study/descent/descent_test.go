package descent

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func axes() []Axis {
	return []Axis{
		{Name: "epochs", Values: []float64{1, 2, 4, 8, 16, 32}},
		{Name: "lr", Values: []float64{1e-3, 2e-3, 4e-3}},
		{Name: "decay", Values: []float64{0.1, 0.4, 1.6, 6.4}},
	}
}

// bowl is a surface with its lowest loss, 3, at the place min.
func bowl(min Place, asked *[]Place) Measure {
	return func(_ context.Context, places []Place) ([]Outcome, error) {
		var out []Outcome
		for _, p := range places {
			*asked = append(*asked, slices.Clone(p))
			loss := 3.0
			for i := range p {
				loss += 0.1 * float64((p[i]-min[i])*(p[i]-min[i]))
			}
			out = append(out, Outcome{Losses: []float64{loss}, Runs: []string{"run"}})
		}
		return out, nil
	}
}

// TestRow15CoordinateDescent: from every start the known optimum is found and certified
// with its six neighbours, no place is measured twice, and edges are named.
func TestRow15CoordinateDescent(t *testing.T) {
	for _, min := range []Place{{3, 1, 2}, {0, 0, 0}, {5, 2, 1}} {
		for e := range 6 {
			for l := range 3 {
				for d := range 4 {
					var asked []Place
					c, err := Descend(t.Context(), axes(), Place{e, l, d}, bowl(min, &asked))
					if err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(c.Best, min) || !c.Certified || len(c.Neighbours) != 6 || math.Abs(c.Loss-3) > 1e-12 || c.Measured != len(asked) {
						t.Fatalf("optimum %v from %v: %+v", min, Place{e, l, d}, c)
					}
					seen := map[string]bool{}
					for _, p := range asked {
						if seen[key(p)] {
							t.Fatalf("%v is measured twice", p)
						}
						seen[key(p)] = true
					}
					var edges []string
					for _, n := range c.Neighbours {
						if n.Edge {
							edges = append(edges, n.Axis)
							if *n.Loss != c.Loss || n.Difference != 0 {
								t.Errorf("a neighbour beyond the edge is %+v", n)
							}
						} else if !(n.Difference > 0.099) {
							t.Errorf("neighbour %+v of the optimum", n)
						}
					}
					if !slices.Equal(edges, c.Edges) {
						t.Errorf("edges %v, want %v", c.Edges, edges)
					}
				}
			}
		}
	}
}

// TestFrozen: with the decay frozen (the standard recipe) four neighbours are real.
func TestFrozen(t *testing.T) {
	a := axes()
	a[2].Frozen = true
	var asked []Place
	c, err := Descend(t.Context(), a, Place{0, 0, 0}, bowl(Place{3, 1, 2}, &asked))
	if err != nil || !slices.Equal(c.Best, Place{3, 1, 0}) || !c.Certified || len(c.Neighbours) != 4 {
		t.Errorf("%+v (%v)", c, err)
	}
}

// TestTies: an equal neighbour does not move the descent and does not cost the
// certificate; among equal better ones the first axis is taken.
func TestTies(t *testing.T) {
	flat := func(_ context.Context, places []Place) ([]Outcome, error) {
		out := make([]Outcome, len(places))
		for i := range out {
			out[i].Losses = []float64{2}
		}
		return out, nil
	}
	c, err := Descend(t.Context(), axes(), Place{2, 1, 1}, flat)
	if err != nil || !c.Certified || !slices.Equal(c.Best, Place{2, 1, 1}) || len(c.Path) != 1 {
		t.Errorf("%+v (%v)", c, err)
	}
	var asked []Place
	c, err = Descend(t.Context(), axes(), Place{2, 1, 1}, bowl(Place{3, 2, 1}, &asked))
	if err != nil || !reflect.DeepEqual(c.Path, []Place{{2, 1, 1}, {3, 1, 1}, {3, 2, 1}}) {
		t.Errorf("%+v (%v)", c, err)
	}
}

// TestRow40Withheld: a missing or diverged neighbour withholds the certificate and is
// named; a start that does not train is an error.
func TestRow40Withheld(t *testing.T) {
	best := Place{3, 1, 2}
	for _, c := range []struct {
		outcome Outcome
		want    string
	}{
		{Outcome{Missing: "out of memory"}, "epochs=4 lr=0.002 decay=1.6 was not measured: out of memory"},
		{Outcome{Losses: []float64{math.NaN()}}, "epochs=4 lr=0.002 decay=1.6 diverged"},
		{Outcome{Losses: []float64{math.Inf(1)}}, "diverged"},
		{Outcome{}, "was not measured"},
		{Outcome{Losses: []float64{4, 4}}, "has 2 seeds and the best place 1"},
	} {
		var asked []Place
		well := bowl(best, &asked)
		measure := func(ctx context.Context, places []Place) ([]Outcome, error) {
			out, err := well(ctx, places)
			for i, p := range places {
				if slices.Equal(p, Place{2, 1, 2}) {
					out[i] = c.outcome
				}
			}
			return out, err
		}
		got, err := Descend(t.Context(), axes(), Place{4, 1, 2}, measure)
		if err != nil || got.Certified || !slices.Equal(got.Best, best) || !strings.Contains(strings.Join(got.Withheld, "\n"), c.want) {
			t.Errorf("%+v: %+v (%v)", c.outcome, got, err)
		}
		if _, err := Descend(t.Context(), axes(), Place{2, 1, 2}, measure); len(c.outcome.Losses) < 2 && (err == nil || !strings.Contains(err.Error(), "start where training works")) {
			t.Errorf("a start with %+v: %v", c.outcome, err)
		}
	}
}

// TestSeeds: neighbours are compared over the same seeds, and a difference is clear when
// it exceeds the spread of the differences.
func TestSeeds(t *testing.T) {
	a := []Axis{{Name: "lr", Values: []float64{1, 2, 3}}}
	losses := map[int][]float64{0: {3.3, 3.5, 3.4}, 1: {3.0, 3.2, 3.1}, 2: {3.5, 2.9, 3.2}}
	c, err := Descend(t.Context(), a, Place{1}, func(_ context.Context, places []Place) ([]Outcome, error) {
		var out []Outcome
		for _, p := range places {
			out = append(out, Outcome{Losses: losses[p[0]]})
		}
		return out, nil
	})
	if err != nil || !c.Certified {
		t.Fatalf("%+v (%v)", c, err)
	}
	low, high := c.Neighbours[0], c.Neighbours[1]
	if math.Abs(low.Difference-0.3) > 1e-12 || low.Spread > 1e-12 || !low.Clear {
		t.Errorf("the lower neighbour is %+v", low)
	}
	if math.Abs(high.Difference-0.1) > 1e-12 || high.Clear || math.Abs(high.Spread-0.4) > 1e-9 {
		t.Errorf("the upper neighbour is %+v", high)
	}
}

// TestGridFaults: every fault of a grid is named.
func TestGridFaults(t *testing.T) {
	bad := []Axis{{Name: "a"}, {Name: "b", Values: []float64{1, 1}}, {Name: "b", Values: []float64{1}}}
	_, err := Descend(t.Context(), bad, Place{0, 0, 5}, nil)
	for _, want := range []string{"axis a has no values", "axis b has a value twice", "axis b is there twice", "the start is number 5"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Descend(t.Context(), axes(), Place{0}, nil); err == nil || !strings.Contains(err.Error(), "a start of 1 numbers for 3 axes") {
		t.Error(err)
	}
	if _, err := Descend(t.Context(), nil, nil, nil); err == nil {
		t.Error("no axes")
	}
	boom := errors.New("disk full")
	_, err = Descend(t.Context(), axes(), Place{0, 0, 0}, func(context.Context, []Place) ([]Outcome, error) { return nil, boom })
	if !errors.Is(err, boom) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = Descend(ctx, axes(), Place{0, 0, 0}, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
