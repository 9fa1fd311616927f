package report

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRow37TrainAgainstValidation (E row 37): the report has the loss on windows that were
// trained on beside the validation loss of the same step, and the path of each run over
// both.
func TestRow37TrainAgainstValidation(t *testing.T) {
	dir := t.TempDir()
	few, many := usual(), usual()
	few.epochs, many.epochs = 1, 16
	sweepOf(t, filepath.Join(dir, "sweep"), true, []recipe{few, many})
	runs, err := filepath.Glob(filepath.Join(dir, "sweep", "runs", "*"))
	if err != nil || len(runs) != 2 {
		t.Fatalf("%d run folders, %v", len(runs), err)
	}
	for _, r := range runs {
		write(t, r, map[string]any{
			"eval/step-000000040-seen.json": `{"step":40,"store":"train","loss":1.5,"tokens":9000,"seen":true}`,
			"eval/step-000000016-seen.json": `{"step":16,"store":"train","loss":2.5,"tokens":9000,"seen":true}`, // older
			"eval/step-000000040.json":      `{"step":40,"store":"val","loss":2.9,"tokens":5000}`,               // not on seen windows
		})
	}
	p, _ := pageOf(t, dir, "sweep")
	i := slices.IndexFunc(p.Sections, func(s Section) bool { return s.Title == "Training against validation" })
	if i < 0 {
		t.Fatal("no section about the gap")
	}
	tab := p.Sections[i].Tables[0]
	at := func(name string) int { return slices.Index(tab.Head, name) }
	if len(tab.Rows) != 2 {
		t.Fatalf("%d rows", len(tab.Rows))
	}
	for k, row := range tab.Rows {
		want := few.loss()
		if row[at("epochs")] == "16" {
			want = many.loss()
		}
		if row[at("seen windows")] != "1.5000" || row[at("val at that step")] != loss4(want) || row[at("val - seen")] != fmt.Sprintf("%+.4f", want-1.5) || row[at("val loss")] != loss4(want) {
			t.Errorf("row %q, want the validation loss %.4f beside 1.5", row, want)
		}
		checkRef(t, "gap", tab.Refs[k], len(p.Sources.list))
	}
	// The first epoch has seen nothing before: only the long run has a path, and learned most.
	f := p.figure(t, "Validation over training loss")
	if len(f.Series) != 1 || len(f.Series[0].X) != 5 {
		t.Fatalf("paths %+v", f.Series)
	}
	s := f.Series[0]
	// The validations are every 8 steps, and the training loss is the mean of those 8.
	train := many.loss() - 0.1*math.Log2(17)
	for k := range s.X {
		var mean float64
		for step := 8*k + 1; step <= 8*k+8; step++ {
			mean += (train + 2*math.Exp(-6*float64(step)/40)) / 8
		}
		if math.Abs(s.X[k]-mean) > 1e-9 {
			t.Errorf("training loss %g before validation %d, want %g", s.X[k], k, mean)
		}
	}
	if want := fmt.Sprintf("The largest distance between validation and training is %.4f nats", many.loss()-1.5); !strings.Contains(p.said(), want) {
		t.Errorf("no %q in %s", want, p.said())
	}
}
