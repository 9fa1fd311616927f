package distill_test

import (
	"math"
	"strings"
	"testing"

	"refrain/internal/num"
	"refrain/internal/run/config"
	"refrain/stages/evals"
	"refrain/study/distill"
)

// losses are documents with a loss of about each, nats a token: shift moves all of them and
// noise every one on its own.
func losses(docs int, shift, noise float64, name string) []evals.DocLoss {
	common, own := num.NewStream("documents"), num.NewStream(name)
	list := make([]evals.DocLoss, docs)
	for i := range list {
		n := 20 + int64(common.Uintn(uint64(2*i), 100))
		each := 3 + common.Normal(uint64(2*i+1)) + shift + noise*own.Normal(uint64(i))
		list[i] = evals.DocLoss{Sum: each * float64(n), Tokens: n}
	}
	return list
}

func retain(t *testing.T, single, teacher, student []evals.DocLoss) distill.Retention {
	t.Helper()
	r, err := distill.Retain(single, teacher, student, 400, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRow26Retention: the formula, on the published losses and on documents whose losses
// differ by fixed amounts, where every sample of documents gives the same.
func TestRow26Retention(t *testing.T) {
	one := func(loss float64) []evals.DocLoss { return []evals.DocLoss{{Sum: 1000 * loss, Tokens: 1000}} }
	r := retain(t, one(3.57), one(3.32), one(3.3635))
	if r.Value == nil || math.Abs(*r.Value-0.826) > 1e-9 || math.Abs(r.Gap-0.25) > 1e-9 || r.Interval != nil || r.Undefined != "one document has no interval" {
		t.Errorf("published losses: %+v, want a value of 0.826", r)
	}
	r = retain(t, losses(50, 0, 0, ""), losses(50, -0.4, 0, ""), losses(50, -0.3, 0, ""))
	if r.Value == nil || math.Abs(*r.Value-0.75) > 1e-9 || r.Interval == nil || math.Abs(r.Interval[0]-0.75) > 1e-9 || math.Abs(r.Interval[1]-0.75) > 1e-9 || r.Without != 0 || r.Samples != 400 {
		t.Errorf("fixed differences: %+v, want 0.75 in every sample", r)
	}
	// A student better than its teacher, and one that is worse than the single model.
	if r := retain(t, losses(9, 0, 0, ""), losses(9, -0.4, 0, ""), losses(9, -0.5, 0, "")); *r.Value < 1.2 {
		t.Errorf("a student better than its teacher: %v", *r.Value)
	}
	if r := retain(t, losses(9, 0, 0, ""), losses(9, -0.4, 0, ""), losses(9, 0.1, 0, "")); *r.Value > -0.2 {
		t.Errorf("a student worse than the single model: %v", *r.Value)
	}
}

// TestRow26IntervalCovers draws sets of documents from a known retention: nearly 95 of 100
// intervals must hold it, and more documents make them narrower.
func TestRow26IntervalCovers(t *testing.T) {
	covered, width := 0, map[int]float64{}
	const trials = 60
	for i := range uint64(trials) {
		for _, docs := range []int{60, 240} {
			rnd := num.NewStream("trial", i, uint64(docs))
			var lists [3][]evals.DocLoss
			for d := range docs {
				base := 3 + rnd.Normal(uint64(8*d))
				for k, shift := range []float64{0, -0.4, -0.3} {
					l := base + shift + 0.15*rnd.Normal(uint64(8*d+1+k))
					lists[k] = append(lists[k], evals.DocLoss{Sum: 100 * l, Tokens: 100})
				}
			}
			r, err := distill.Retain(lists[0], lists[1], lists[2], 200, i)
			if err != nil || r.Interval == nil {
				t.Fatal(r, err)
			}
			width[docs] += r.Interval[1] - r.Interval[0]
			if docs == 240 && r.Interval[0] <= 0.75 && 0.75 <= r.Interval[1] {
				covered++
			}
		}
	}
	if covered < trials*86/100 || covered > trials {
		t.Errorf("%d of %d intervals hold the true value", covered, trials)
	}
	if ratio := width[60] / width[240]; ratio < 1.6 || ratio > 2.6 {
		t.Errorf("four times the documents make intervals narrower by %.2f, want about 2", ratio)
	}
}

// TestRow26Undefined: a teacher that gains nothing has no retention, and one whose gain is
// in the noise has no interval; both are said in words.
func TestRow26Undefined(t *testing.T) {
	x := losses(40, 0, 0, "")
	for _, c := range []struct {
		want          string
		teacher       []evals.DocLoss
		value, within bool
	}{
		{"teacher's loss is that of the best single model", x, false, false},
		{"teacher's loss is 0.1000 above that of the best single", losses(40, 0.1, 0, ""), false, false},
		{"no interval that ends", losses(40, -0.1, 0.5, "noisy"), true, false},
	} {
		r := retain(t, x, c.teacher, losses(40, -0.1, 0, ""))
		if r.Gap <= 0 && c.value {
			t.Fatalf("%q: the gap is %v", c.want, r.Gap)
		}
		if !strings.Contains(r.Undefined, c.want) || (r.Value != nil) != c.value || (r.Interval != nil) != c.within {
			t.Errorf("%+v, want %q", r, c.want)
		}
	}
	for _, bad := range [][]evals.DocLoss{x[:39], {}} {
		if _, err := distill.Retain(x, x, bad, 10, 0); err == nil {
			t.Error("losses of other documents were taken")
		}
	}
	other := losses(40, 0, 0, "")
	other[7].Tokens++
	if _, err := distill.Retain(x, x, other, 10, 0); err == nil || !strings.Contains(err.Error(), "other rows") {
		t.Errorf("losses of other rows: %v", err)
	}
	if _, err := distill.Retain([]evals.DocLoss{{}}, []evals.DocLoss{{}}, []evals.DocLoss{{}}, 10, 0); err == nil {
		t.Error("documents without targets were taken")
	}
}

// TestRecipe: the settings of a recipe, whatever stands in a name, and what a
// configuration says about its recipe again.
func TestRecipe(t *testing.T) {
	r := distill.Recipe{Synthetic: "a store", Fraction: 0.9, Teachers: []string{"runs/a, b", `x"y`}}
	list, err := r.Overrides()
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse("c.yaml", nil, append(list, "model.preset=micro-1M", "data.store=s", "train.epochs=2", "distill.weight=1"))
	if err != nil {
		t.Fatal(err)
	}
	l := distill.LearnedFrom(&c.Config)
	if l.Synthetic != r.Synthetic || l.Fraction != 0.9 || len(l.Teachers) != 2 || l.Teachers[0] != "runs/a, b" || l.Teachers[1] != `x"y` || l.Weight != 1 || l.Temperature != 1 || l.Epochs != 2 {
		t.Errorf("%+v", l)
	}
	if _, err := (&distill.Recipe{}).Overrides(); err == nil {
		t.Error("a recipe of nothing was taken")
	}
}
