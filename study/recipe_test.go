package study

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"refrain/study/descent"
)

// sized is a finished descent with that loss.
func sized(name string, params int, loss float64, certified bool) Sized {
	c := &descent.Certificate{Loss: loss, Certified: certified}
	if !certified {
		c.Withheld = []string{"a neighbour diverged"}
	}
	return Sized{Label: name, Params: params, Certificate: c}
}

// TestRecipeReport: the standard result is the best of the sizes, the regularised one the
// asymptote of a law that falls with every size; anything else is said.
func TestRecipeReport(t *testing.T) {
	law := func(n float64) float64 { return 0.05/math.Pow(n, 1.02) + 3.43 } // of Kim et al. 2025, section 3
	var list []Sized
	for _, n := range []float64{1.4, 0.15, 0.6, 0.3} { // millions here, in no order
		list = append(list, sized("x", int(n*1e6), law(n), true))
	}
	r := NewRecipe(list)
	if !r.Monotone || r.Best != 3 || r.Law == nil || math.Abs(r.Law.E-3.43) > 1e-3 || len(r.Warnings) != 0 {
		t.Errorf("%+v, law %+v", r, r.Law)
	}
	r = NewRecipe([]Sized{sized("a", 1, 3.5, true), sized("b", 2, 3.4, false), sized("c", 3, 3.45, true), {Label: "d", Params: 4, Trouble: "the first place diverged"}})
	if r.Monotone || r.Best != 1 {
		t.Errorf("%+v", r)
	}
	for _, w := range []string{"b has no certificate: a neighbour diverged", "d is missing: the first place diverged", "does not fall with every larger size"} {
		if !slices.Contains(r.Warnings, w) && !strings.Contains(strings.Join(r.Warnings, "\n"), w) {
			t.Errorf("without %q: %q", w, r.Warnings)
		}
	}
	if r := NewRecipe(nil); r.Best != -1 || r.Law != nil {
		t.Errorf("%+v", r)
	}
}

// TestSizes: a descent with two sizes trains each on its own and shares the registry; a
// size whose start diverges is marked and the other goes on.
func TestSizes(t *testing.T) {
	data, out := testStore(t), filepath.Join(t.TempDir(), "out")
	spec, err := LoadSpec(specFile(t, data, out, `grid:
  optim.lr: [0.01, 0.02]
descend:
  start: {optim.lr: 0.01}
  sizes:
    - {model.dim: 32}
    - {model.dim: 16}
    - {model.dim: 8, train.steps: 60, optim.clip: 0, optim.weight_decay: 1000, optim.lr_mul.hidden: 1000}
`))
	if err != nil {
		t.Fatal(err)
	}
	reg, err := OpenRegistry(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	r, err := newWork(spec, reg, 2).Recipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Sizes) != 3 || r.Sizes[1].Label != "model.dim=16" || r.Sizes[1].Params >= r.Sizes[2].Params || r.Sizes[0].Certificate != nil || r.Sizes[0].Trouble == "" || len(reg.Records()) != 5 {
		t.Errorf("%d records, %+v", len(reg.Records()), r)
	}
	for _, s := range r.Sizes[1:] {
		if s.Certificate == nil || !s.Certificate.Certified {
			t.Errorf("%+v", s)
		}
	}
}
