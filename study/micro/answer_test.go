package micro

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func form(t *testing.T, name string) *Form {
	t.Helper()
	f, err := FindForm(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestAnswersOfAWorldAsExpected: where losses are as the papers say, all is shown, and the
// effects are those that were put in.
func TestAnswersOfAWorldAsExpected(t *testing.T) {
	f, w := form(t, "short"), usualWorld()
	r := simulate(t, f, w, "go", "prose")
	for _, a := range f.Answers(r) {
		t.Logf("(%s) %s: %s", a.ID, a.Corpus, a.Text)
		if a.Verdict != Shown {
			t.Errorf("(%s) on %s: %s", a.ID, a.Corpus, a.Text)
		}
	}
	orders, missed := answerOf(t, f, r, "e"), 0
	for _, e := range orders.Effects {
		want := map[string]float64{"fixed minus repack": 0.10, "reshuffle minus repack": 0.05, "fixed minus reshuffle": 0.05}[e.Name[strings.Index(e.Name, ": ")+2:]]
		if strings.HasPrefix(e.Name, "gain") {
			want = 0
		}
		if math.Abs(e.Difference-want) > 0.012 {
			t.Errorf("%s: %v, put in %.2f", e.Name, e, want)
		}
		if e.Interval[0] > want || e.Interval[1] < want {
			missed++
		}
		if e.Pairs != 6 || len(e.ByPool) != 2 || e.Documents != 110 {
			t.Errorf("%s: %d pairs, %d pools, %d documents", e.Name, e.Pairs, len(e.ByPool), e.Documents)
		}
	}
	if n := len(orders.Effects); n != 10 || missed > 2 { // of intervals that hold 95 of 100
		t.Errorf("%d of %d intervals miss what was put in", missed, n)
	}
	if b := answerOf(t, f, r, "b"); !strings.Contains(b.Text, "is 3.2, 32 times 0.1") {
		t.Errorf("the tuned decay: %s", b.Text)
	}
	if d := answerOf(t, f, r, "d"); !strings.Contains(d.Text, "0.25 times the decay and 1 times") && !strings.Contains(d.Text, "0.5 times the decay") {
		t.Errorf("the best member: %s", d.Text)
	}
}

// TestAnswersOfAFlatWorld: where recipes differ by noise alone, nothing is shown, and that
// is said.
func TestAnswersOfAFlatWorld(t *testing.T) {
	w := usualWorld()
	w.loss = func(p Point, members int) float64 { return 4.6 }
	w.train = func(p Point) float64 { return 4 }
	f := form(t, "short")
	r := simulate(t, f, w, "go")
	for _, a := range f.Answers(r) {
		t.Logf("(%s) %s", a.ID, a.Text)
		if a.Verdict == NotAnswered || a.Verdict == Shown {
			t.Errorf("(%s): %s", a.ID, a.Text)
		}
	}
	if a := answerOf(t, f, r, "e"); a.Verdict != NotShown || !strings.HasPrefix(a.Text, "Not shown: B=8: fixed minus repack ") {
		t.Errorf("(e): %s", a.Text)
	}
}

// TestAnswersOfAnOppositeWorld: what is the other way round is called so.
func TestAnswersOfAnOppositeWorld(t *testing.T) {
	w := usualWorld()
	usual := w.loss
	w.loss = func(p Point, members int) float64 {
		l := usual(p, 1) + 0.1*(1-1/float64(members)) // members hurt
		if p.Order == "fixed" {
			l -= 0.2
		}
		if p.Embed > 0 {
			l += 0.1
		}
		return l - 0.1/math.Sqrt(millions(p)) // larger models are worse
	}
	f := form(t, "short")
	r := simulate(t, f, w, "go")
	for id, want := range map[string]Verdict{"a": Shown, "b": Partly, "c": Opposite, "d": NotShown, "e": Partly, "f": Shown, "g": Partly, "i": Shown} {
		if a := answerOf(t, f, r, id); a.Verdict != want {
			t.Errorf("(%s) is not %s: %s", id, want, a.Text)
		}
	}
}

// TestAnswersWithMissingRuns: a recipe whose runs do not end well is not chosen, and a
// question whose runs are missing is not answered, with a reason.
func TestAnswersWithMissingRuns(t *testing.T) {
	w := usualWorld()
	w.fails = func(p Point, seed uint64) bool {
		return p.Decay == usualDecay && p.Epochs == 32 || p.Tied || p.Decay == 3.2 && p.Epochs == 16 && p.Batch == 8 && p.Embed == 0
	}
	f := form(t, "short")
	r := simulate(t, f, w, "go")
	if a := answerOf(t, f, r, "a"); a.Verdict != NotAnswered || !strings.Contains(a.Text, "0 of 6 runs of XS with 32 epochs ended well") {
		t.Errorf("(a): %s", a.Text)
	}
	if a := answerOf(t, f, r, "g"); a.Verdict != NotAnswered || !strings.Contains(a.Text, `"tied, no decay"`) {
		t.Errorf("(g): %s", a.Text)
	}
	if a := answerOf(t, f, r, "b"); a.Verdict == NotAnswered || strings.Contains(a.Text, "is 3.2, 32 times") {
		t.Errorf("(b): %s", a.Text)
	}
	for _, m := range r.Models {
		if !m.well() && m.Test != nil {
			t.Errorf("%s was measured", m.Label())
		}
	}
}

// TestAnswersBeforeAnythingIsThere: every prefix of the program has answers without a panic.
func TestAnswersBeforeAnythingIsThere(t *testing.T) {
	f := form(t, "quick")
	full := simulate(t, f, usualWorld(), "go")
	for n := 0; n < len(full.Models); n += 6 {
		r := *full
		r.Models, r.Ensembles = full.Models[:n], nil
		for _, a := range f.Answers(&r) {
			if a.Text == "" {
				t.Fatalf("(%s) with %d runs says nothing", a.ID, n)
			}
		}
	}
	if got := f.Answers(&Results{}); len(got) != 0 {
		t.Errorf("%d answers without a corpus", len(got))
	}
}

func TestResultsRoundTripAndMixing(t *testing.T) {
	f := form(t, "quick")
	dir := t.TempDir()
	write := func(change func(r *Results)) string {
		r := simulate(t, f, usualWorld(), "go")
		change(r)
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, RecordsFile)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	r, err := Load(write(func(*Results) {}))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := r.Encode()
	b, _ := os.ReadFile(filepath.Join(dir, RecordsFile))
	if string(a) != string(b) {
		t.Error("reading and writing records changes them")
	}
	for _, c := range []struct {
		name, want string
		change     func(r *Results)
	}{
		{"other data", "runs of different training documents", func(r *Results) { r.Models[3].DataHash = "other" }},
		{"other code", "runs of different code", func(r *Results) { r.Models[3].Code = "other" }},
		{"other validation", "runs of different validation documents", func(r *Results) { r.Models[3].ValHash = "other" }},
		{"other tokenizer", "runs of different tokenizer", func(r *Results) { r.Models[3].TokenizerHash = "other" }},
		{"kind", `kind "sweep"`, func(r *Results) { r.Kind = "sweep" }},
		{"documents", "losses of 1 documents", func(r *Results) { r.Models[0].Test = []float64{1} }},
		{"members", "is damaged", func(r *Results) { r.Ensembles[0].Logit = nil }},
		{"corpus", "is not listed", func(r *Results) { r.Models[0].Corpus = "nowhere" }},
	} {
		if _, err := Load(write(c.change)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, RecordsFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(filepath.Join(dir, RecordsFile)); err == nil {
		t.Error("half a file is no error")
	}
}
