package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/study/frontier"
)

// TestRow32And33FrontierCommand (E rows 32, 33): frontier and plan over a sweep that was
// trained here, both axes, prefixes and the projection, and the words for bad input.
func TestRow32And33FrontierCommand(t *testing.T) {
	path, out := sweepFile(t, "grid:\n  train.batch: [4, 8]\nseeds: [0, 1]\n")
	if code, _, msg := cli("", "sweep", path); code != 0 {
		t.Fatalf("sweep: exit %d: %s", code, msg)
	}
	r := object[frontier.Report](t, 0, "frontier", out, "--step-time", "measured", "--latency", "0.1,0.02")
	if len(r.Runs) != 2 || r.Runs[0].Batch != 4 || r.Runs[0].Seeds != 2 || r.Runs[0].SD <= 0 || r.Runs[0].Steps < 2*r.Runs[1].Steps || r.Runs[0].Epochs <= 0 {
		t.Fatalf("%+v", r.Runs)
	}
	if m := r.Models[0]; len(r.Models) != 1 || m.PerGPU != 4 || m.Projected == nil || len(m.Frontier.Pareto) == 0 || m.Frontier.Pareto[0].Seconds == nil {
		t.Errorf("%+v", m)
	}
	if r.Wall == nil || r.Wall.Pareto[0].Time <= 0 || len(r.Times.Measured) != 2 || r.Times.Machine == "" {
		t.Errorf("wall %+v, times %+v", r.Wall, r.Times)
	}
	onThePage(t, "Frontier in seconds", "frontier", r, out)
	// A second registry that trained two of the cells again has no new seeds.
	spec, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path+"2", []byte(strings.Replace(strings.Replace(string(spec), out, out+"2", 1), "[4, 8]", "[4]", 1)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if code, _, msg := cli("", "sweep", path+"2"); code != 0 {
		t.Fatalf("sweep: exit %d: %s", code, msg)
	}
	if b := object[frontier.Report](t, 0, "frontier", out, out+"2"); len(b.Runs) != 2 || !reflect.DeepEqual(b.Runs, r.Runs) || len(b.Left) != 2 || !strings.Contains(b.Left[0].Why, "same settings and seeds") {
		t.Errorf("%+v, left out %+v", b.Runs, b.Left)
	}
	// The runs alone say the same as the registry about their losses.
	alone := object[frontier.Report](t, 0, "frontier", filepath.Join(out, "runs"), "--prefix")
	if alone.Data.DataHash != r.Data.DataHash || alone.Runs[0].Params != r.Runs[0].Params {
		t.Errorf("%+v", alone)
	}
	whole, prefixes := 0, 0
	for _, x := range alone.Runs {
		if !x.Prefix && x.Loss != r.Runs[whole].Loss {
			t.Errorf("%+v, the registry says %+v", x, r.Runs[whole])
		}
		if x.Prefix {
			prefixes++
		} else {
			whole++
		}
	}
	if whole != 2 || prefixes == 0 {
		t.Errorf("%d whole runs, %d prefixes", whole, prefixes)
	}
	code, text, msg := cli("", "frontier", out, "--latency", "0.1,0.02", "--step-ms", "20")
	for _, part := range []string{"PROJECTED, not observed", "optimiser-step equivalents", "20 ms given", "2 seeds"} {
		if code != 0 || !strings.Contains(text, part) {
			t.Errorf("exit %d, %q is missing in\n%s%s", code, part, text, msg)
		}
	}

	adv := object[frontier.Advice](t, 0, "plan", "--records", out, "--gpus", "2", "--deadline", "1h", "--step-ms", "10")
	if adv.Best == nil || adv.Best.Loss != min(r.Runs[0].Loss, r.Runs[1].Loss) || adv.Best.GPUs > 2 || adv.Seconds != 3600 {
		t.Errorf("%+v", adv)
	}
	onThePage(t, "Plan: 2 GPUs for 3600 seconds", "plan-frontier", adv)
	code, text, _ = cli("", "plan", "--records", out, "--gpus", "2", "--deadline", "1ns", "--step-time", "measured")
	if code != 0 || !strings.Contains(text, "no run fits; the shortest takes") {
		t.Errorf("exit %d: %s", code, text)
	}
	conf := filepath.Join(filepath.Dir(path), "base.yaml")
	b, err := os.ReadFile(filepath.Join(out, "runs", filepath.Base(r.Runs[0].From[0]), run.ConfigFile))
	if err == nil {
		err = os.WriteFile(conf, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	code, text, msg = cli("", "plan", conf, "--records", out, "--gpus", "2", "--deadline", "1h", "--step-ms", "10")
	_, next, found := strings.Cut(text, "next    refrain ")
	if code != 0 || !found {
		t.Fatalf("exit %d: %s%s", code, text, msg)
	}
	// The line can be typed, and trains the run again: what plan says of it is the cell.
	if code, text, msg := cli("", append([]string{"plan"}, words(strings.TrimPrefix(strings.TrimSpace(next), "train "))...)...); code != 0 {
		t.Errorf("%s: exit %d: %s%s", next, code, text, msg)
	}
	for _, c := range []struct{ name, want string }{
		{"train.batch=4 optim.lr=0.01", "run.yaml x=1 train.batch=4 optim.lr=0.01"},
		{"train.tokens=9", "run.yaml x=1 train.epochs=null train.steps=null train.tokens=9"},
		{"runs/a", "run.yaml x=1 train.epochs=null train.tokens=null train.batch=8 train.steps=30"},
	} {
		list := []string{"run.yaml", "x=1", "train.batch=2"}
		if c.name == "train.tokens=9" {
			list = []string{"run.yaml", "x=1", "train.epochs=3"}
		}
		if got := strings.Join(repeat(list, &frontier.Point{Name: c.name, Batch: 8, Steps: 30}), " "); got != c.want {
			t.Errorf("%s: %s instead of %s", c.name, got, c.want)
		}
	}

	// Other documents, and what the command line must not say.
	other := tiny(t)
	store := filepath.Join(filepath.Dir(other), "store")
	if err := os.RemoveAll(store); err != nil {
		t.Fatal(err)
	}
	writeStore(t, store, 40, 7)
	for want, line := range map[string][]string{
		"trains on other documents": {"plan", other, "--records", out, "--gpus", "2", "--deadline", "1h", "--step-ms", "10"},
		"needs --records":           {"plan", other, "--gpus", "2"},
		"--deadline needs --record": {"plan", "--deadline", "6h"},
		"needs --deadline":          {"plan", "--records", out, "--gpus", "2"},
		"needs the time of a step":  {"plan", "--records", out, "--gpus", "2", "--deadline", "1h"},
		"--step-ms -1":              {"frontier", out, "--step-ms", "-1"},
		"keep one":                  {"frontier", out, "--step-ms", "1", "--step-time", "measured"},
		"want two numbers":          {"frontier", out, "--latency", "0.1"},
		"f is 3":                    {"frontier", out, "--latency", "3,0"},
		"give --latency":            {"frontier", out, "--ways", "2"},
		"no whole number":           {"frontier", out, "--gpus", "1,x"},
		"no number above 0":         {"frontier", out, "--deadlines", "0"},
		"name a registry":           {"frontier", filepath.Join(out, "nothing")},
		"neither a registry":        {"frontier", filepath.Dir(path)},
		"no such file or directory": {"frontier", out, "--step-time", "gone.json"},
		"refrain frontier RECORDS":  {"frontier"},
	} {
		if code, text, msg := cli("", line...); code == 0 || !strings.Contains(msg, want) {
			t.Errorf("%q: exit %d, want %q: %s%s", line, code, want, text, msg)
		}
	}
	var head struct{ Kind string }
	_, text, _ = cli("", "frontier", out, "--json")
	if err := json.Unmarshal([]byte(text), &head); err != nil || head.Kind != "frontier" {
		t.Errorf("%v in %s", err, text)
	}
}
