package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"refrain/internal/run"
	"refrain/study"
)

// sweepFile writes a sweep over the tiny configuration.
func sweepFile(t *testing.T, lines string) (path, out string) {
	t.Helper()
	conf, out := tiny(t), filepath.Join(t.TempDir(), "out")
	text, err := os.ReadFile(conf)
	if err == nil { // a save takes longer than the steps between two of them
		text = bytes.Replace(text, []byte("save: {every: 3"), []byte("save: {every: 50"), 1)
		err = os.WriteFile(conf, bytes.Replace(text, []byte("epochs: 3"), []byte("epochs: 1"), 1), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "sweep.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, "base: %q\nout: %q\n%s", conf, out, lines), 0o644); err != nil {
		t.Fatal(err)
	}
	return path, out
}

// object runs a command with --json and reads what it prints.
func object[T any](t *testing.T, code int, args ...string) (v T) {
	t.Helper()
	c, out, errOut := cli("", append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), &v); err != nil || c != code {
		t.Fatalf("%v: exit %d, %v\n%s%s", args, c, err, out, errOut)
	}
	return v
}

// TestRow14SweepCommand: a dry run prints every cell and the total and makes nothing; a
// budget holds; the same command goes on and trains nothing twice.
func TestRow14SweepCommand(t *testing.T) {
	path, out := sweepFile(t, "grid:\n  train.epochs: [1, 2]\n  optim.lr: [0.003, 0.01]\nseeds: [0, 1]\n")
	dry := object[dryRun](t, 0, "sweep", path, "--dry-run")
	if len(dry.Cells) != 8 || dry.Total.Cells != 8 || dry.Todo.Cells != 8 || dry.Total.FLOPs <= 0 || dry.Total.CoreSeconds <= 0 || dry.Placement.Makespan <= 0 {
		t.Errorf("dry run %+v", dry)
	}
	sum := drySum{}
	for _, c := range dry.Cells {
		sum.add(c.Cost)
	}
	if sum != dry.Total {
		t.Errorf("the total is %+v, the cells add up to %+v", dry.Total, sum)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("the dry run made the registry")
	}
	steps := dry.Cells[0].Cost.Steps
	budget := fmt.Sprintf("%dsteps", 3*steps)
	if d := object[dryRun](t, 0, "sweep", path, "--dry-run", "--budget", budget); d.Todo.Cells != 3 || d.Cells[3].Status != "over budget" {
		t.Errorf("with a budget of three cells: %+v", d.Todo)
	}
	part := object[sweepResult](t, run.ExitResumable, "sweep", path, "--budget", budget)
	if part.Status != "over budget" || part.Cells[2] == nil || part.Cells[3] != nil || part.Best == nil || part.Groups[1].Mean != nil || part.Groups[1].Missing != 1 {
		t.Errorf("three cells of eight: %+v", part)
	}
	code, text, errText := cli("", "sweep", path, "--max-parallel", "1")
	if code != 0 || !strings.Contains(text, "8/8  done") || !strings.Contains(text, "best\n") || strings.Contains(text, "1/8") {
		t.Errorf("exit %d\n%s%s", code, text, errText)
	}
	all := object[sweepResult](t, 0, "sweep", path)
	if all.Status != "done" || len(all.Groups) != 4 || all.Best == nil || !all.Cells[0].Finished.Equal(part.Cells[0].Finished) {
		t.Errorf("%+v", all)
	}
	for _, r := range all.Cells {
		if _, err := os.Stat(filepath.Join(out, r.Run, run.RunFile)); err != nil || r.Status != study.Done {
			t.Errorf("%+v: %v", r, err)
		}
	}
	// Another grid on the registry: what is there counts, the rest is listed.
	other := strings.Replace(path, "sweep.yaml", "other.yaml", 1)
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(other, []byte(strings.Replace(string(b), "[1, 2]", "[1]", 1)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := object[dryRun](t, 0, "sweep", other, "--dry-run"); d.Todo.Cells != 0 || len(d.Others) != 4 {
		t.Errorf("half of the grid: %+v", d)
	}
}

// TestRow15SweepDescent: a descent ends with a certificate that names neighbours, runs and
// what is beyond the grid.
func TestRow15SweepDescent(t *testing.T) {
	path, _ := sweepFile(t, "grid:\n  train.epochs: [1, 2]\n  optim.lr: [0.001, 0.01]\nseeds: [0, 1]\ndescend:\n  start: {train.epochs: 1, optim.lr: 0.001}\n")
	if d := object[dryRun](t, 0, "sweep", path, "--dry-run"); len(d.Cells) != 6 || d.GridCells != 8 {
		t.Errorf("the start and two neighbours, two seeds each: %+v", d)
	}
	r := object[sweepResult](t, 0, "sweep", path)
	c := r.Certificate
	if c == nil || !c.Certified || c.Values[0] != 2 || c.Values[1] != 0.01 || len(c.Neighbours) != 4 || len(c.Edges) != 2 {
		t.Fatalf("%+v", c)
	}
	for _, n := range c.Neighbours {
		if n.Edge != (n.Step > 0) || !n.Edge && (len(n.Outcome.Runs) != 2 || n.Difference <= 0) {
			t.Errorf("%+v", n)
		}
	}
	code, text, _ := cli("", "sweep", path)
	if code != 0 || !strings.Contains(text, "certified") || !strings.Contains(text, "the grid ends") {
		t.Errorf("exit %d\n%s", code, text)
	}
}

// TestSweepStopped: an interrupt saves the runs that go on; meanwhile a second sweep on the
// registry is refused; the same command ends the sweep.
func TestSweepStopped(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot send another one an interrupt here")
	}
	path, out := sweepFile(t, "grid:\n  train.epochs: [20, 21]\nseeds: [0, 1]\n")
	p := start(t, nil, asProgram, "sweep", path)
	for began := time.Now(); ; <-time.After(5 * time.Millisecond) {
		if m, err := filepath.Glob(filepath.Join(out, "runs", "*", run.MetricsFile)); err == nil && len(m) > 0 {
			break
		}
		if p.ended() || time.Since(began) > time.Minute {
			t.Fatalf("no run began\n%s%s", p.out, p.err)
		}
	}
	if code, _, errText := cli("", "sweep", path); code != run.ExitUsage || !strings.Contains(errText, "another sweep has it") {
		t.Errorf("a second sweep: exit %d, %s", code, errText)
	}
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if c := p.code(t); c != run.ExitResumable || !strings.Contains(p.err.String(), "the same command goes on") || strings.Contains(p.err.String(), "--resume") {
		t.Fatalf("exit %d\n%s%s", c, p.out, p.err)
	}
	r := object[sweepResult](t, 0, "sweep", path)
	for _, c := range r.Cells {
		readLedger(t, filepath.Join(out, c.Run)) // fails when a step is missing or differs
	}
}

// TestSweepMistakes: what is wrong on the command line or in the file.
func TestSweepMistakes(t *testing.T) {
	path, _ := sweepFile(t, "grid:\n  optim.lx: [1]\n  optim.lr: [x]\n")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"sweep"}, "no argument"},
		{[]string{"sweep", "missing.yaml"}, "no such file"},
		{[]string{"sweep", path, "--budget", "lots"}, "--budget lots: want core time such as 90m"},
		{[]string{"sweep", path, "--budget", "0steps"}, "want a number of steps above 0"},
		{[]string{"sweep", path, "--max-parallel", "-1"}, "--max-parallel -1"},
		{[]string{"sweep", path, "--dry-run"}, `unknown key "lx"`},
		{[]string{"sweep", path}, `optim.lr: want a number, got "x"`},
	} {
		if code, _, errText := cli("", c.args...); code != run.ExitUsage || !strings.Contains(errText, c.want) {
			t.Errorf("%v: exit %d, %s", c.args, code, errText)
		}
	}
}
