package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/run"
)

const profiledYAML = `
model: {layers: 1, dim: 32, heads: 2, kv_heads: 2, ffn: 48}
data: {store: store, seq: 32}
train: {batch: 4, steps: 400, threads: 1}
optim: {lr: 0.01}
eval: {every: 100}
save: {every: 150}
`

func TestProfileLeavesFilesAndNamesTheBottleneck(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := writeCorpus("text", "60"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("run.yaml", []byte(profiledYAML), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"data prepare text -o store --tokenizer train:300 --val-docs 10% -q",
		"profile run.yaml --steps 400 --out p --json",
	} {
		code, out, msg := cli("", words(line)...)
		if code != 0 {
			t.Fatalf("%s: exit %d: %s", line, code, msg)
		}
		if strings.HasPrefix(line, "data") {
			continue
		}
		var rep profileReport
		if err := json.Unmarshal([]byte(out), &rep); err != nil {
			t.Fatal(err)
		}
		checkProfile(t, &rep)
	}
	checkTimeline(t, filepath.Join("p", run.ProfDir, timelineFile))
	b, err := os.ReadFile(filepath.Join("p", run.ProfDir, traceFile))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(b, []byte("go 1.")) {
		t.Errorf("the execution trace begins with %.16q", b)
	}
	if code, _, msg := cli("", words("profile run.yaml --steps 2")...); code != run.ExitUsage {
		t.Errorf("two steps: exit %d: %s", code, msg)
	}
	if code, _, msg := cli("", words("profile run.yaml --steps 20 --out p")...); code != run.ExitUsage {
		t.Errorf("a folder that holds a run: exit %d: %s", code, msg)
	}
}

func checkProfile(t *testing.T, rep *profileReport) {
	t.Helper()
	if rep.First != warmSteps+1 || rep.Last != 400 || rep.Wall <= 0 || rep.TokensSec <= 0 {
		t.Errorf("measured %+v", rep)
	}
	if rep.Bottleneck == "" || !strings.Contains(rep.Why, rep.Bottleneck) {
		t.Errorf("bottleneck %q because %q", rep.Bottleneck, rep.Why)
	}
	stages := map[string]uint64{}
	for _, s := range rep.Stages {
		stages[s.Name] = s.Items
	}
	for _, name := range []string{"repack", "batch", "upload", "step", "evals", "saves", "log"} {
		if _, ok := stages[name]; !ok {
			t.Errorf("no stage %s among %v", name, stages)
		}
	}
	if n := stages["log"]; n < 396 || n > 398 {
		t.Errorf("the stage log has %d items in 397 steps", n)
	}
	calls := map[string]int64{}
	for _, k := range rep.Kernels {
		calls[k.Name] = k.Calls
	}
	if calls["adamw"] == 0 || calls["matmul"] < calls["adamw"] {
		t.Errorf("kernel calls %v", calls)
	}
	labelled := false
	for _, c := range rep.CPU {
		labelled = labelled || c.Stage == "device" && c.Time > 0
	}
	if !labelled {
		t.Errorf("no CPU time with the label of the device among %+v", rep.CPU)
	}
}

func checkTimeline(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var tl struct{ TraceEvents []traceEvent }
	if err := json.Unmarshal(b, &tl); err != nil {
		t.Fatal(err)
	}
	steps, end := 0, 0.0
	for _, e := range tl.TraceEvents {
		if e.Ph != "X" || e.Name != "step" {
			continue
		}
		steps++
		if e.TS < end-1 || e.Dur <= 0 {
			t.Errorf("step %v begins at %v for %v, the one before ends at %v", e.Args["step"], e.TS, e.Dur, end)
		}
		end = e.TS + e.Dur
	}
	if steps != 397 {
		t.Errorf("%d steps in the timeline, want 397", steps)
	}
}

func TestDoctor(t *testing.T) {
	code, out, msg := cli("", "doctor", "--quick", "--json", "--dir", t.TempDir())
	var m machine
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		t.Fatalf("%v in %q, %q", err, out, msg)
	}
	verdicts := map[string]verdict{}
	anyFailed := false
	for _, f := range m.Findings {
		verdicts[f.Check] = f.Verdict
		anyFailed = anyFailed || f.Verdict == failed
		if (f.Verdict == good) != (f.Do == "") {
			t.Errorf("%s is %s with the advice %q", f.Check, f.Verdict, f.Do)
		}
	}
	if (code != 0) != anyFailed {
		t.Errorf("exit %d with verdicts %v", code, verdicts)
	}
	if v := verdicts["disk"]; v == "" || v == failed || m.DiskWrite <= 0 || m.Peak <= 0 {
		t.Errorf("disk is %q at %v B/s, peak %v", v, m.DiskWrite, m.Peak)
	}
	code, out, _ = cli("", "doctor", "--quick", "--dir", "no/such/folder")
	if code != run.ExitFailed || !strings.Contains(out, "fail  disk") || !strings.Contains(out, "-> ") {
		t.Errorf("a folder that is not there: exit %d\n%s", code, out)
	}
}
