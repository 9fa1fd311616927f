package study

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"refrain/internal/num"
	"refrain/stages/evals"
)

// scored makes scores of documents of 10 tokens each from their mean losses.
func scored(name string, docs ...float64) *Scores {
	s := &Scores{Run: name, DataHash: "d", Seq: 16, Rows: 2}
	sum := 0.0
	for _, l := range docs {
		s.Docs = append(s.Docs, evals.DocLoss{Sum: 10 * l, Tokens: 10})
		s.Tokens += 10
		sum += 10 * l
	}
	s.Loss = sum / float64(s.Tokens)
	return s
}

// TestContrast is worked out by hand: two seeds, two documents.
func TestContrast(t *testing.T) {
	c, err := NewContrast([]Pair{
		{3, scored("a3", 1, 5), scored("b3", 1.5, 5.1)}, // +0.5, +0.1: +0.3
		{7, scored("a7", 2, 4), scored("b7", 2.3, 4.3)}, // +0.3, +0.3: +0.3
		{7, scored("a8", 2, 4), scored("b8", 2.1, 4.1)}, // +0.1, +0.1: +0.1
	})
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	near("the difference", c.Difference, 0.7/3)
	near("seed 3", c.BySeed[0], 0.3)
	near("seed 7", c.BySeed[1], 0.2)
	near("the spread over seeds", *c.Spread, 0.1/math.Sqrt2)
	near("the error over seeds", *c.StdErrSeeds, 0.05)
	// By document the pairs are 0.3 and 0.5/3 on average, 0.2333 over both.
	near("the error over documents", *c.StdErrDocuments, (0.3-0.5/3)/2)
	both := math.Hypot(0.05, (0.3-0.5/3)/2)
	near("the error", *c.StdErr, both)
	vs, vd := 0.05*0.05, (0.3-0.5/3)*(0.3-0.5/3)/4
	near("freedom", c.Freedom, (vs+vd)*(vs+vd)/(vs*vs+vd*vd))
	if half := (c.Interval[1] - c.Interval[0]) / 2; half < 4.3*both || half > 12.8*both {
		t.Errorf("with %g degrees of freedom the interval is %g errors wide", c.Freedom, half/both)
	}
	if c.Clear || c.Pairs != 3 || !slices.Equal(c.Seeds, []uint64{3, 7}) {
		t.Errorf("%+v", c)
	}
}

// TestContrastCovers: of studies whose truth is known, about 95 in 100 have it in their
// interval; the error over documents alone would miss the noise of the seeds far more often.
func TestContrastCovers(t *testing.T) {
	rng := num.NewStream("contrast coverage", 1)
	n := uint64(0)
	normal := func() float64 {
		sum := 0.0
		for range 12 {
			sum += float64(rng.Uintn(n, 1<<30)) / (1 << 30)
			n++
		}
		return sum - 6
	}
	const studies, truth = 400, 0.3
	covered, docsOnly := 0, 0
	for range studies {
		doc := make([]float64, 60) // what the change does to a document, whatever the seed
		for i := range doc {
			doc[i] = truth + 0.2*normal()
		}
		var all []Pair
		for seed := range uint64(4) {
			level, with := make([]float64, 60), make([]float64, 60)
			by := 0.05 * normal() // what the seed does to every document
			for i := range level {
				level[i] = 4 + normal()
				with[i] = level[i] + doc[i] + by + 0.1*normal()
			}
			all = append(all, Pair{seed, scored("a", level...), scored("b", with...)})
		}
		c, err := NewContrast(all)
		if err != nil {
			t.Fatal(err)
		}
		if c.Interval[0] <= truth && truth <= c.Interval[1] {
			covered++
		}
		if math.Abs(c.Difference-truth) <= 2*(*c.StdErrDocuments) {
			docsOnly++
		}
	}
	if covered < studies*93/100 || docsOnly > covered-studies/50 {
		t.Errorf("%d of %d intervals hold the truth; with the error over documents alone %d would", covered, studies, docsOnly)
	}
	t.Logf("covered %d, by documents alone %d of %d", covered, docsOnly, studies)
}

func TestContrastRefuses(t *testing.T) {
	if _, err := NewContrast(nil); err == nil {
		t.Error("no pair was compared")
	}
	a, b := scored("runs/a", 1, 2), scored("runs/b", 1, 2)
	b.DataHash = "other"
	if _, err := NewContrast([]Pair{{0, a, b}}); err == nil || !strings.Contains(err.Error(), "runs/a") || !strings.Contains(err.Error(), "runs/b") {
		t.Errorf("other documents: %v", err)
	}
	one, err := NewContrast([]Pair{{0, a, scored("c", 1, 3)}})
	if err != nil || one.Clear || one.Interval != nil || one.StdErrSeeds != nil || one.StdErrDocuments == nil {
		t.Errorf("one seed: %+v, %v", one, err)
	}
	same, err := NewContrast([]Pair{{0, a, a}, {1, a, a}})
	if err != nil || same.Clear || same.Difference != 0 || *same.Interval != [2]float64{} {
		t.Errorf("the same runs: %+v, %v", same, err)
	}
}

// grid2 is a sweep over an order and a tying whose level sets two keys, on three seeds.
func grid2(t *testing.T, compare string) (*Spec, error) {
	t.Helper()
	return ParseSpec("spec.yaml", []byte(`base:
  model: {layers: 1, dim: 16, heads: 2, kv_heads: 1, ffn: 24}
  data: {store: s, seq: 16}
  train: {batch: 4, steps: 8, precision: f32}
grid:
  data.mode: [fixed, reshuffle, repack]
  tying:
    - {model.tie: false}
    - {model.tie: true, optim.tied_decay: 0.4}
seeds: [0, 1, 2]
compare: `+compare+`
out: out
`))
}

// TestAblationEffects: losses made of known effects give these effects back, over all and
// at every level, whatever the base cell is; a seed that is missing is left out of its
// pairs only, and told of.
func TestAblationEffects(t *testing.T) {
	for _, base := range []string{"{data.mode: fixed, model.tie: false}", "{data.mode: reshuffle, optim.tied_decay: 0.4}"} {
		s, err := grid2(t, base)
		if err != nil {
			t.Fatal(err)
		}
		cells, err := s.Cells()
		if err != nil {
			t.Fatal(err)
		}
		if len(cells) != 18 || cells[3].Label() != "data.mode=fixed model.tie=true optim.tied_decay=0.4" {
			t.Fatalf("%d cells, %s", len(cells), cells[3].Label())
		}
		order := []float64{0, -0.1, -0.3}
		together := 0.05 // repack and tying
		records, scores := make([]*Record, 18), make([]*Scores, 18)
		for i, c := range cells {
			o, tie, seed := i/6, i/3%2, float64(i%3)
			l := 4 + order[o] - 0.02*float64(tie) + 0.01*seed
			if o == 2 && tie == 1 {
				l += together
			}
			records[i] = &Record{Status: Done, Run: fmt.Sprint("runs/", i), Label: c.Label(), Seed: c.Seed}
			scores[i] = scored(records[i].Run, l-1, l+1)
		}
		records[17], scores[17] = &Record{Status: Diverged, Reason: "because", Seed: 2}, nil // repack, tied
		a, err := NewAblation(s, cells, records, scores)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Arms) != 6 || a.Arms[5].Loss != nil || len(a.Arms[5].Losses) != 2 || len(a.Warnings) != 1 || !strings.Contains(a.Warnings[0], "seed 2 is diverged: because") {
			t.Errorf("arms %+v, warnings %v", a.Arms[5], a.Warnings)
		}
		if a.Arms[0].Loss == nil || math.Abs(*a.Arms[0].Loss-4.01) > 1e-12 || (a.Arms[0].Contrast == nil) != (a.Base == a.Arms[0].Label) {
			t.Errorf("the first arm: %+v, base %s", a.Arms[0], a.Base)
		}
		got := map[string]float64{}
		for _, e := range a.Effects {
			if e.Contrast == nil {
				t.Fatalf("%+v", e)
			}
			got[e.Level+"|"+e.At] = e.Contrast.Difference
		}
		from := 0.0
		if strings.Contains(base, "reshuffle") {
			from = order[1]
		}
		const tied = "model.tie=true optim.tied_decay=0.4"
		want := map[string]float64{
			"data.mode=repack|model.tie=false": order[2] - from,
			"data.mode=repack|" + tied:         order[2] - from + together,
			"data.mode=repack|":                order[2] - from + together*2/5, // 5 pairs: one is missing
		}
		switch from {
		case 0:
			want["data.mode=reshuffle|"] = order[1]
			want[tied+"|data.mode=fixed"], want[tied+"|data.mode=repack"] = -0.02, -0.02+together
		default:
			want["data.mode=fixed|"] = -order[1]
			want["model.tie=false|data.mode=fixed"], want["model.tie=false|data.mode=repack"] = 0.02, 0.02-together
		}
		for k, w := range want {
			if g, ok := got[k]; !ok || math.Abs(g-w) > 1e-9 {
				t.Errorf("base %s: %s is %v, want %v", base, k, g, w)
			}
		}
		if len(got) != 2*(1+2)+1+3 {
			t.Errorf("%d effects", len(got))
		}
	}
}

// TestAblationMistakes: what cannot be compared is refused before anything is trained.
func TestAblationMistakes(t *testing.T) {
	for _, c := range []struct{ compare, want string }{
		{"{data.mode: fixed}", "stand together in 2 cells"},
		{"{data.mode: block}", "no cell has data.mode=block"},
		{"{data.mode: fixed, model.tie: false, train.batch: 4}", "no cell has train.batch=4"},
		{"7", "compare holds keys"},
		{"{}", "give settings of one cell"},
		{"{data.mode: fixed, model.tie: false}\ndescend: {start: {data.mode: fixed}}", "levels of tying are sections"},
		{"{data.mode: fixed, model.tie: false}\npools: [{data.pool: 1/2}]", "pools belong to a batch study"},
		{"{data.mode: fixed, model.tie: false}\ntest: [a]", "test: want the folder"},
	} {
		if _, err := grid2(t, c.compare); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.compare, err, c.want)
		}
	}
	_, err := ParseSpec("x", []byte("base: {model: {dim: 16}}\nout: o\ngrid:\n  train.epochs: [1]\n  a:\n    - {train.epochs: 2}\n"))
	if err == nil || !strings.Contains(err.Error(), "train.epochs is set by two axes, train.epochs and a") {
		t.Errorf("one key on two axes: %v", err)
	}
	s, err := grid2(t, "{data.mode: fixed, model.tie: false}")
	if err != nil {
		t.Fatal(err)
	}
	s.Compare = nil
	if err := s.CheckAblation(); err == nil || !strings.Contains(err.Error(), "compare is not set") {
		t.Errorf("without a base cell: %v", err)
	}
}
