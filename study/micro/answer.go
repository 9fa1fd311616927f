package micro

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat"

	"refrain/study/report"
)

// Verdict is what became of an expectation.
type Verdict string

// The verdicts.
const (
	Shown       Verdict = "shown"         // every interval that it needs lies on the side that was expected
	Partly      Verdict = "shown in part" // of several expectations some are shown
	Opposite    Verdict = "opposite"      // the decisive interval lies on the other side
	NotShown    Verdict = "not shown"     // an interval holds zero, or pools disagree
	NotAnswered Verdict = "not answered"  // runs are missing, or did not end well
)

// Answer is what was found about one question on one corpus.
type Answer struct {
	ID       string   `json:"id"`
	Title    string   `json:"title"`
	Corpus   string   `json:"corpus"`
	Question string   `json:"question"`
	Verdict  Verdict  `json:"verdict"`
	Text     string   `json:"text"` // one sentence or two
	Effects  []Effect `json:"effects"`
	Notes    []string `json:"notes"`
	Tables   []Table  `json:"tables"`

	figures []*report.Figure // drawn from the same numbers
}

// Table is rows of text under a heading; the first column is the row's name.
type Table struct {
	Title   string     `json:"title"`
	Caption string     `json:"caption"`
	Head    []string   `json:"head"`
	Rows    [][]string `json:"rows"`
	Runs    [][]string `json:"runs"` // that a row is made of, by their names in the records; null: not of runs alone
}

// question is one of the study. Both parts are pure functions of the scope.
type question struct {
	id, title, text string
	demand          func(s scope, d *demand)
	// answer fills in everything but what is above.
	answer func(s scope, a *Answer)
	asked  func(t *table) bool
}

// questions are all of them, in their order.
func questions() []question {
	return []question{
		{"a", "Epochs", "At a decay of 0.1, is there an interior best number of epochs?", scope.wantEpochs, scope.answerEpochs, func(t *table) bool { return t.middle < len(t.sizes) && t.sizes[t.middle].epochs != nil }},
		{"b", "Decay and size", "How many times 0.1 is the tuned decay when parameters far exceed tokens, and does the tuned loss then fall with every larger model?", scope.wantDecay, scope.answerDecay, func(*table) bool { return true }},
		{"c", "Ensembles", "Does an ensemble of equal models, by mean logits, beat the best single model by more than two standard deviations over seeds, and is its limit over members below the limit of single models over size?", scope.wantMembers, scope.answerMembers, func(t *table) bool { return t.members > 1 }},
		{"d", "Members alone", "Is the best member of an ensemble more overfit than the best single model?", scope.wantMembers, scope.answerOverfit, func(t *table) bool { return t.members > 1 }},
		{"e", "Order of the data", "Does packing anew every epoch beat a new order of the same rows, and that the same rows in the same order, at two batch sizes?", scope.wantOrders, scope.answerOrders, func(t *table) bool { return t.orders != nil }},
		{"f", "Batch", "With everything else tuned for each batch, is a middle batch the best?", scope.wantBatches, scope.answerBatches, func(t *table) bool { return t.batches != nil }},
		{"g", "Embeddings", "Does decay of the embedding help, and does tying it to the head, tuned by itself?", scope.wantTying, scope.answerTying, func(t *table) bool { return t.decayed != nil }},
		{"h", "Distillation", "Is a student of text that an ensemble's members wrote, or that one member wrote, beside the real text, better than the best single model?", scope.wantStudents, scope.answerStudents, func(t *table) bool { return t.students != nil }},
		{"i", "Devices and time", "With half the steps of the usual recipe, do more devices reach a lower loss, by a larger batch?", scope.wantFrontier, scope.answerFrontier, func(t *table) bool { return t.batches != nil }},
	}
}

// Answers are what the form's questions come to, the first corpus first. Equal results give
// equal answers.
func (f *Form) Answers(r *Results) []*Answer {
	out := []*Answer{}
	for i, s := range f.scopes(r) {
		for _, q := range questions() {
			if i == 0 || q.asked(s.t) { // fewer questions are asked of further corpora
				out = append(out, f.answer(s, q))
			}
		}
	}
	return out
}

func (f *Form) answer(s scope, q question) *Answer {
	a := &Answer{ID: q.id, Title: q.title, Corpus: s.corpus, Question: q.text, Verdict: NotAnswered, Effects: []Effect{}, Notes: []string{}, Tables: []Table{}}
	if q.asked(s.t) {
		q.answer(s, a)
	} else {
		a.fail("the form %s leaves this question out", f.Name)
	}
	return a
}

func (a *Answer) note(format string, list ...any) {
	a.Notes = append(a.Notes, fmt.Sprintf(format, list...))
}

// fail leaves the question without an answer, for a reason.
func (a *Answer) fail(format string, list ...any) {
	a.Verdict, a.Text = NotAnswered, fmt.Sprintf("Not answered: %s.", fmt.Sprintf(format, list...))
}

// contrast adds the difference of two recipes; ok is false, and the answer failed, when it
// is not known.
func (s scope) contrast(a *Answer, name string, x, y []side) (Effect, bool) {
	e, err := s.r.contrast(name, s.corpus, x, y)
	if err != nil {
		a.fail("%v", err)
		return e, false
	}
	a.Effects = append(a.Effects, e)
	return e, true
}

// judge is the verdict of an effect whose expected sign is known.
func judge(e Effect, expected int) Verdict {
	switch e.sign() {
	case expected:
		return Shown
	case -expected:
		return Opposite
	}
	return NotShown
}

// all is the verdict of several expectations that belong together.
func all(list ...Verdict) Verdict {
	has := func(v Verdict) bool { return slices.Contains(list, v) }
	switch {
	case has(NotAnswered):
		return NotAnswered
	case !has(Opposite) && !has(NotShown):
		return Shown
	case has(Shown):
		return Partly
	case has(Opposite):
		return Opposite
	}
	return NotShown
}

// say puts the verdict before the sentence.
func (a *Answer) say(v Verdict, format string, list ...any) {
	a.Verdict = v
	a.Text = fmt.Sprintf("%s: %s.", capital(string(v)), fmt.Sprintf(format, list...))
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// models are those of a recipe over the pools and seeds that are reported.
func (s scope) models(p Point) (list []*Model) {
	for _, pool := range s.pools() {
		for seed := range uint64(s.t.seeds) {
			if m := s.r.model(p.in(pool), seed); m.well() {
				list = append(list, m)
			}
		}
	}
	return list
}

// meanOf is the mean of a value over models that have it; NaN for none.
func meanOf(list []*Model, value func(m *Model) *float64) float64 {
	var x []float64
	for _, m := range list {
		if v := value(m); v != nil {
			x = append(x, *v)
		}
	}
	if len(x) == 0 {
		return math.NaN()
	}
	return stat.Mean(x, nil)
}

func valOf(m *Model) *float64   { return m.Val }
func trainOf(m *Model) *float64 { return m.Train }

// recipe adds a line with the losses of a recipe on the three sets.
func (t *Table) recipe(s scope, name string, p Point) {
	list := s.models(p)
	mean, spread := s.r.mean(s.corpus, s.sides(p))
	var runs []string
	for _, m := range list {
		runs = append(runs, m.Run)
	}
	t.Rows = append(t.Rows, []string{name, p.Label(), fmt.Sprint(len(list)), number(meanOf(list, trainOf)), number(meanOf(list, valOf)), number(mean), number(spread)})
	t.Runs = append(t.Runs, runs)
}

// recipeTable is one for Table.recipe.
func recipeTable(title, caption string, first string) Table {
	return Table{Title: title, Head: []string{first, "recipe", "runs", "training loss", "loss for choices", "test loss", "spread"}, Caption: caption + " " + recipeCaption}
}

const recipeCaption = "Means over seeds and pools; training loss is the mean of the last epoch, spread the standard deviation of the test loss over runs."

// triedTable lists what was tried with one seed.
func (s scope) triedTable(title string, points []Point) Table {
	t := Table{Title: title, Head: []string{"recipe", "training loss", "loss for choices"}, Caption: "One seed on the first pool; the recipe of the least loss on this split is trained again with all seeds and pools and reported on another split."}
	for _, p := range points {
		row, runs := []string{p.Label(), "", "missing"}, []string{}
		if m := s.r.model(p, 0); m != nil {
			runs = append(runs, m.Run)
			if row[2] = string(m.Status); m.well() {
				row[1], row[2] = number(meanOf([]*Model{m}, trainOf)), number(*m.Val)
			}
		}
		t.Rows, t.Runs = append(t.Rows, row), append(t.Runs, runs)
	}
	return t
}

func number(x float64) string {
	if math.IsNaN(x) {
		return ""
	}
	return fmt.Sprintf("%.4f", x)
}

// edges says which values of the chosen recipe stand at an end of what was tried, where a
// better one may lie beyond.
func edges(best Point, points []Point) string {
	var out []string
	for _, v := range []struct {
		name string
		of   func(p Point) float64
	}{
		{"epochs", func(p Point) float64 { return float64(p.Epochs) }},
		{"lr", func(p Point) float64 { return p.LR }},
		{"decay", func(p Point) float64 { return p.Decay }},
		{"embedding decay", func(p Point) float64 { return p.Embed }},
		{"tied lr", func(p Point) float64 { return p.TiedLR }},
	} {
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, p := range points {
			lo, hi = min(lo, v.of(p)), max(hi, v.of(p))
		}
		if x := v.of(best); lo < hi && (x == lo || x == hi) && x != 0 {
			end := "highest"
			if x == lo {
				end = "lowest"
			}
			out = append(out, fmt.Sprintf("%s %g is the %s tried", v.name, x, end))
		}
	}
	return strings.Join(out, ", ")
}
