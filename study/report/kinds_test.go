package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"refrain/store"
	"refrain/study/chain"
	"refrain/study/choices"
	"refrain/study/distill"
	"refrain/study/ensemble"
	"refrain/study/fit"
	"refrain/study/frontier"
	"refrain/study/generate"
)

func ptr[T any](x T) *T { return &x }

// panelOf is an ensemble of five members, and its law.
func panelOf(t *testing.T) *ensemble.Report {
	t.Helper()
	r := &ensemble.Report{Store: "val", DataHash: hash("val"), Seq: 128, Tokens: 5000, Docs: 40, Warnings: []string{"a warning of the ensemble"}}
	var points []fit.Point
	for k := 1; k <= 5; k++ {
		loss := 3 + 0.4/float64(k)
		points = append(points, fit.Point{X: float64(k), Loss: loss})
		r.Members = append(r.Members, ensemble.MemberReport{
			Path: fmt.Sprintf("members/m%d/ckpt/step-000000040", k), InitSeed: uint64(k), OrderSeed: uint64(k), Config: hash("member", k), DataHash: hash("train"), Loss: 3.4 + 0.01*float64(k),
		})
		r.Curve = append(r.Curve, ensemble.CurvePoint{K: k, Logit: ensemble.Mean{Loss: loss, Gain: 3.41 - loss, GainStdErr: ptr(0.01)}, Prob: ensemble.Mean{Loss: loss + 0.02, Gain: 3.39 - loss}})
	}
	law, err := fit.Fit(points, fit.Options{Start: fit.Ensemble})
	if err != nil {
		t.Fatal(err)
	}
	r.Subsets = []ensemble.SubsetSpread{{K: 1, Subsets: 5, Logit: ensemble.Spread{Mean: 3.43, Min: 3.41, Max: 3.45, SD: 0.0158}}}
	r.Learned = &ensemble.Learned{Store: "third", Mean: ensemble.Mean{Loss: 3.07, Gain: 0.34}, OverPlain: 0.01}
	r.LogitLaw = &ensemble.Asymptote{Result: law}
	return r
}

// studentOf is a student of that ensemble.
func studentOf() *distill.Report {
	from := func(seed uint64) *ensemble.Source {
		return &ensemble.Source{InitSeed: seed, OrderSeed: seed, Config: hash("member", seed), DataHash: hash("train")}
	}
	m := func(run string, loss float64, seed uint64) distill.Model {
		return distill.Model{Path: run + "/ckpt/step-000000040", Run: run, Loss: loss, StdErr: ptr(0.04), Source: from(seed)}
	}
	return &distill.Report{
		Store: "val", DataHash: hash("val"), Seq: 128, Tokens: 5000, Docs: 40,
		Single: m("members/m1", 3.41, 1), OfMany: true, Members: []distill.Model{m("members/m1", 3.41, 1), m("members/m2", 3.42, 2)},
		Ensemble: distill.Model{Loss: 3.2}, Student: m("student/student", 3.25, 9),
		OverSingle: distill.Paired{Difference: -0.16, StdErr: ptr(0.02)}, OverEnsemble: distill.Paired{Difference: 0.05, StdErr: ptr(0.01)},
		Retention: distill.Retention{Value: ptr(0.762), Gap: 0.21, Interval: &[2]float64{0.61, 0.88}, Level: 0.95, Samples: 1000, Without: 3},
		Learned:   distill.Learned{Epochs: 16, Synthetic: "student/synthetic", Fraction: 0.75},
	}
}

// frontierOf is a frontier of four runs with a projection and seconds.
func frontierOf(t *testing.T) *frontier.Report {
	t.Helper()
	var runs []frontier.Run
	for i, x := range []struct {
		batch int
		steps int64
		loss  float64
	}{{8, 100, 3.5}, {16, 100, 3.4}, {32, 100, 3.3}, {64, 100, 3.35}} {
		runs = append(runs, frontier.Run{Name: fmt.Sprintf("train.batch=%d", x.batch), Params: 300000, Batch: x.batch, Steps: x.steps, Loss: x.loss, SD: 0.01, Seeds: 2,
			From: []string{fmt.Sprintf("sweep/runs/%d-a", i), fmt.Sprintf("sweep/runs/%d-b", i)}})
	}
	latency, err := frontier.NewLatency(0.1, 0.02)
	if err != nil {
		t.Fatal(err)
	}
	r, err := frontier.Build(runs, frontier.Options{Latency: latency, Times: frontier.Times{PerEquivalent: 20}})
	if err != nil {
		t.Fatal(err)
	}
	r.Data = &frontier.Source{DataHash: hash("data"), TokenizerHash: hash("tokenizer"), ValTokens: 5000, Code: "0123456789abcdef"}
	r.Left = []frontier.Left{{Path: "sweep/runs/x", Why: "its schedule did not end"}}
	return r
}

// everyKind writes a record of each kind that has no runs beside it, and returns their names.
func everyKind(t *testing.T, dir string) (names []string) {
	t.Helper()
	front := frontierOf(t)
	advice, err := front.Advise(frontier.Options{Times: *front.Times}, 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	answers := choices.Result{Acc: choices.Accuracy{Acc: 0.25, StdErr: ptr(0.05)}, Norm: choices.Accuracy{Acc: 0.5}, Bytes: choices.Accuracy{Acc: 0.75}}
	member := ensemble.ChoiceMember{Path: "members/m1/ckpt/step-000000040", Source: ensemble.Source{InitSeed: 1, OrderSeed: 1, Config: hash("member", 1), DataHash: hash("train")}}
	chained := panelOf(t)
	chained.Store = "another val"
	chained.DataHash = hash("another")
	law := fit.Result{}
	if law, err = fit.Fit([]fit.Point{{X: 0.15, Loss: 3.49}, {X: 0.3, Loss: 3.27}, {X: 0.6, Loss: 3.15}, {X: 1.4, Loss: 3.09}}, fit.Options{Start: fit.Params, Resamples: 50}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		kind string
		v    any
	}{
		{"fit", fitRecord{Result: law}},
		{"ensemble", panelOf(t)},
		{"distill", studentOf()},
		{"chain", chainRecord{Members: []chain.Member{{Run: "members/m1", Seed: 1, Steps: 40, Loss: 2.5, Val: ptr(3.41)}, {Run: "members/m2", Teacher: "members/m1", Seed: 2, Steps: 40, Loss: 2.4, Val: ptr(3.3)}}, Weight: 0.5, Temperature: 1, Ensemble: chained}},
		{"frontier", front},
		{"plan-frontier", advice},
		{"choices", ensemble.ChoiceReport{Members: []ensemble.ChoiceMember{member}, Files: []ensemble.ChoiceFile{{File: "easy.jsonl", Items: 80, Rows: 320, Members: []choices.Result{answers}}}, Warnings: []string{"a context was cut"}}},
		{"generate", generate.Result{Store: "student/synthetic", Fingerprint: hash("synthetic"), Documents: 90, Tokens: 9000, Rate: 1234, Slots: 64,
			Generated: &store.Generated{Mode: "pool", Temperature: 1, MaxLength: 128, Cut: 4, Teachers: []store.Teacher{{Run: "m1", Checkpoint: "step-000000040", Weights: hash("weights"), Documents: 45, Tokens: 4500}}}}},
	} {
		name := x.kind + ".json"
		write(t, dir, map[string]any{name: withKind(t, x.kind, x.v)})
		names = append(names, name)
	}
	micro := `{"kind":"micro","version":1,"code":"0123456789abcdef","command":["refrain","study","micro","-o","out"],"form":"quick","answers":[{"id":"a","title":"Epochs","corpus":"go","question":"Is there a best number?",
"verdict":"shown","text":"Shown: 4 epochs.","effects":[{"name":"1 minus 4","difference":0.125,"pairs":6,"interval":[0.1,0.15],"clear":true,"by_pool":[]}],"notes":["A note."],"tables":[{"title":"What was tried","caption":"","head":["recipe","loss"],"rows":[["4 epochs","3.1000"]]}]}]}`
	write(t, dir, map[string]any{"micro.json": micro})
	return append(names, "micro.json")
}

// TestRow38EveryKindOfRecord (E row 38): what every command prints with --json has a place
// on the page, with the rows behind every number, the same bytes each time, and the command
// that made it.
func TestRow38EveryKindOfRecord(t *testing.T) {
	dir := t.TempDir()
	names := everyKind(t, dir)
	p, page := pageOf(t, dir, names...)
	if _, again := pageOf(t, dir, names...); !bytes.Equal(page, again) {
		t.Error("a second page of the same records has other bytes")
	}
	for _, want := range []string{
		"5 members together have a loss of 3.0800", "The distilled student has a loss of 3.2500, the best of the teachers 3.4100, the ensemble 3.2000; it keeps 76.2 % of the gain (95 % over documents: 61.0 to 88.0).",
		"Of 300k parameters, more GPUs gain the most within 100 optimiser-step equivalents: 3.3000 on 4 of up to 4 GPUs, with batch 32, against 3.5000 on up to 1.", "5 members of the chain together", "With 4 GPUs for 4 seconds the best run is batch 32 for 100 steps, with a loss of 3.3000", "The model answers 50.0 % of the 80 questions of easy.jsonl.", "(a) Epochs. Shown: 4 epochs.",
	} {
		if !strings.Contains(p.said(), want) {
			t.Errorf("there is no %q in\n%s", want, p.said())
		}
	}
	var titles []string
	for _, s := range p.Sections {
		titles = append(titles, s.Title)
		for _, f := range s.Figures {
			rows, err := csv.NewReader(strings.NewReader(f.CSV())).ReadAll()
			if err != nil || len(rows) < 2 {
				t.Fatalf("the CSV of %s: %d rows, %v", f.Title, len(rows), err)
			}
		}
		for _, tab := range s.Tables {
			for i, r := range tab.Rows {
				checkRef(t, s.Title+" "+tab.Title, tab.Refs[i], len(p.Sources.list))
				if len(r) != len(tab.Head) {
					t.Errorf("%s, %s: a row of %d cells under %d heads", s.Title, tab.Title, len(r), len(tab.Head))
				}
			}
		}
	}
	for _, want := range []string{"Ensemble", "Chain", "Ensemble of the chain", "Distillation", "Generated documents", "Frontier, 300k parameters", "Projection, 300k parameters", "Frontier in seconds", "Plan: 4 GPUs for 4 seconds", "Multiple-choice questions", "(a) Epochs"} {
		if !slices.Contains(titles, want) {
			t.Errorf("no section %q among %q", want, titles)
		}
	}
	for _, s := range p.Sources.list { // of runs and their checkpoints
		if strings.Contains(s.Where, "/ckpt/") && (s.Config == "" || s.Data == "" || s.Seed == "") {
			t.Errorf("row %+v lacks something", s)
		}
	}
	for _, want := range []string{"All subsets of the members", "fitted on third the mean of logits gains &#43;0.0100", "0.0158"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("no %q on the page", want)
		}
	}
	for _, want := range []string{"a warning of the ensemble", "a context was cut", "in 3 of 1000 samples", "its schedule did not end"} {
		if !slices.ContainsFunc(p.Warnings, func(w Statement) bool { return strings.Contains(w.Text, want) }) {
			t.Errorf("no warning %q in %+v", want, p.Warnings)
		}
	}
	if len(p.Commands) != len(names) {
		t.Errorf("%d commands for %d records: %q", len(p.Commands), len(names), p.Commands)
	}
}

// TestRow39Panels (E row 39): the frontier is the least loss in the records, its projection
// stands in a panel of its own that says so, the student stands in the panel of its
// ensemble only, and the page looks right.
func TestRow39Panels(t *testing.T) {
	dir := t.TempDir()
	names := everyKind(t, dir)
	p, page := pageOf(t, dir, names...)
	members := p.figure(t, "Ensemble: loss over members")
	i := slices.IndexFunc(members.Series, func(s Series) bool { return s.Name == "law of mean logits" })
	if i < 0 || !slices.Equal(members.Series[0].Y, []float64{3.4, 3.2, 3 + 0.4/3.0, 3.1, 3.08}) || members.Series[0].Err[1] != 0.01 || math.Abs(members.Series[i].Y[0]-3.4) > 1e-4 {
		t.Errorf("curve and law over members: %+v", members.Series)
	}
	f := p.figure(t, "Least loss over time, frontier, 300k parameters")
	// With 8 rows a GPU: 100 steps of 8, 16, 32 rows take 1, 2, 4 equivalents each on one.
	if s := f.Series[0]; s.Name != "1 GPU" || !slices.Equal(s.X, []float64{100, 200, 400}) || !slices.Equal(s.Y, []float64{3.5, 3.4, 3.3}) || !s.Steps {
		t.Errorf("one GPU: %+v", s)
	}
	if s := f.Series[2]; s.Name != "4 GPUs" || s.X[0] != 100 || s.Y[0] != 3.3 {
		t.Errorf("four GPUs: %+v", s)
	}
	for _, s := range f.Series {
		if s.Dash || strings.Contains(s.Name, "projected") {
			t.Errorf("a projection among what was observed: %s", s.Name)
		}
	}
	projected := p.figure(t, "Least loss over time, projection, 300k parameters")
	for _, s := range projected.Series {
		if !s.Dash || !strings.Contains(s.Name, "projected") {
			t.Errorf("%s does not look projected", s.Name)
		}
	}
	if s := projected.Series[0]; !slices.Equal(s.X, f.Series[0].X) || !slices.Equal(s.Y, f.Series[0].Y) {
		t.Errorf("on one GPU the projection is %v %v", s.X, s.Y)
	}
	if !strings.HasPrefix(projected.Caption, "Projected, not observed") {
		t.Errorf("caption %q", projected.Caption)
	}
	student := func(title string) *Series {
		for _, s := range p.figure(t, title).Series {
			if s.Name == "distilled student, one model" {
				return &s
			}
		}
		return nil
	}
	if s := student("Ensemble: loss over members"); s == nil || s.Y[0] != 3.25 {
		t.Errorf("the panel of the ensemble has the student %+v", s)
	}
	if s := student("Ensemble of the chain: loss over members"); s != nil {
		t.Error("a student that was measured on other documents is in a panel")
	}
	path := filepath.Join(pageDir(t), "kinds.html")
	if err := os.WriteFile(path, page, 0o644); err != nil {
		t.Fatal(err)
	}
	openBrowser(t).looksRight(path)
}

// TestRow38FrontierAlone: the folders of a frontier's runs say what is behind its points even
// where the page has no sections about them.
func TestRow38FrontierAlone(t *testing.T) {
	dir := t.TempDir()
	one := usual()
	one.seed = 3
	sweepOf(t, filepath.Join(dir, "sweep"), true, []recipe{one})
	runs, err := filepath.Glob(filepath.Join(dir, "sweep", "runs", "*"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("%q, %v", runs, err)
	}
	r, err := frontier.Build([]frontier.Run{{Name: "usual", Params: 9, Batch: 8, Steps: 40, Loss: 3, Seeds: 1, From: []string{filepath.Join("sweep", "runs", filepath.Base(runs[0]))}}}, frontier.Options{})
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]any{"f.json": withKind(t, "frontier", r)})
	p, _ := pageOf(t, dir, "f.json")
	if s := p.Sources.list; len(s) != 2 || s[1].Seed != "3" || len(s[1].Config) != 64 || s[1].Data == "" || s[1].Tokenizer == "" || s[1].Code == "" || s[1].What != "usual" {
		t.Errorf("%+v", s)
	}
	if len(p.runSections()) > 0 && len(p.Runs) > 0 {
		t.Error("the run has sections of its own")
	}
}

// TestDamagedNumbers: a number that no axis can show is an error with its place, not a panic.
func TestDamagedNumbers(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write(t, dir, map[string]any{"r.json": withKind(t, "fit", fitRecord{Result: fit.Result{Points: []fit.Point{{X: 0, Loss: 3}, {X: 1, Loss: 2}}, Broken: true}})})
	r, err := Read([]string{"r.json"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := From(r, "T").HTML(); err == nil || !strings.Contains(err.Error(), "r.json") || !strings.Contains(err.Error(), "0 has no place on a logarithmic axis") {
		t.Errorf("%v", err)
	}
}

// TestRecordsThatLackSomething: a record without what the page draws names its file, its
// kind and what is missing.
func TestRecordsThatLackSomething(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for kind, want := range map[string]string{
		"ensemble": "no curve", "ensembles": "no places", "distill": "no student", "chain": "no members", "frontier": "no runs", "plan-frontier": "no number of GPUs",
		"choices": "no files", "generate": "no teachers", "micro": "no answers", "micro-records": "refrain study micro --records", "other": "no place on the page",
	} {
		write(t, dir, map[string]any{"r.json": withKind(t, kind, struct{ A int }{})})
		if _, err := Read([]string{"r.json"}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "r.json") {
			t.Errorf("%s: %v, want %q", kind, err, want)
		}
	}
	write(t, dir, map[string]any{"r.json": `{"kind":"frontier","version":1,"runs":[{"loss":"NaN"}]}`})
	if _, err := Read([]string{"r.json"}); err == nil || !strings.Contains(err.Error(), "frontier") {
		t.Errorf("a loss that is no number: %v", err)
	}
}
