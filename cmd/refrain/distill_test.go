package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/study/distill"
	"refrain/study/ensemble"
)

// distilled is distill --json.
func distilled(t *testing.T, args ...string) (r distill.Report, out string) {
	t.Helper()
	code, out, msg := cli("", append([]string{"distill", "--json"}, args...)...)
	if code != 0 {
		t.Fatalf("distill %q: exit %d: %s", args, code, msg)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return r, out
}

// TestRow26Distill (E row 26): one command generates, trains the student and reports. Its
// losses are those of ensemble and eval, the retention is their ratio, and the same command
// again changes nothing. Self-distillation and learning from logits are other recipes of it.
func TestRow26Distill(t *testing.T) {
	plain, _, runs := bordered(t, seed(1, 1), seed(2, 2))
	writeStore(t, filepath.Join(filepath.Dir(plain), "none", "val"), 32, 2)
	conf := filepath.Join(runs[0], run.ConfigFile)
	teachers := strings.Join(runs, ",")
	t.Run("from documents", func(t *testing.T) { distillDocuments(t, conf, runs, teachers) })
	t.Run("from logits", func(t *testing.T) { distillLogits(t, conf, runs, teachers) })
	t.Run("refusals", func(t *testing.T) { distillRefuses(t, conf, runs, teachers) })
}

func distillDocuments(t *testing.T, conf string, runs []string, teachers string) {
	out := filepath.Join(t.TempDir(), "out")
	args := []string{conf, "train.seed=5", "train.epochs=3", "--teacher", teachers, "--generate-tokens", "1e3", "--fraction", "0.5", "--samples", "100", "-o", out}
	r, text := distilled(t, args...)
	var e ensemble.Report
	code, more, msg := cli("", append([]string{"ensemble", "--json"}, runs...)...)
	if err := json.Unmarshal([]byte(more), &e); err != nil || code != 0 {
		t.Fatal(err, msg)
	}
	if r.Single.Loss != e.Members[e.Best].Loss || r.Ensemble.Loss != e.Curve[1].Logit.Loss || r.Tokens != e.Tokens || r.Docs != e.Docs || r.DataHash != e.DataHash || !r.OfMany || len(r.Members) != 2 {
		t.Errorf("single %v and ensemble %v over %d tokens; refrain ensemble says %v, %v, %d", r.Single.Loss, r.Ensemble.Loss, r.Tokens, e.Members[e.Best].Loss, e.Curve[1].Logit.Loss, e.Tokens)
	}
	var alone evalReport
	if code, more, msg = cli("", "eval", filepath.Join(out, "student"), "--json"); code != 0 {
		t.Fatal(msg)
	}
	if err := json.Unmarshal([]byte(more), &alone); err != nil || alone.Loss != r.Student.Loss {
		t.Errorf("eval says %v of the student, the report %v (%v)", alone.Loss, r.Student.Loss, err)
	}
	k := r.Retention
	if want := (r.Single.Loss - r.Student.Loss) / (r.Single.Loss - r.Ensemble.Loss); k.Value == nil || math.Abs(*k.Value-want) > 1e-6*math.Abs(want) {
		t.Errorf("retention %+v, want %v", k, want)
	}
	if k.Interval != nil && !(k.Interval[0] < *k.Value && *k.Value < k.Interval[1]) || k.Interval == nil && k.Undefined == "" {
		t.Errorf("interval of %+v", k)
	}
	if l := r.Learned; l.Synthetic != filepath.Join(out, "synthetic") || l.Fraction != 0.5 || l.Epochs != 3 || len(l.Teachers) != 0 || r.Self {
		t.Errorf("learned from %+v", l)
	}
	if r.OverSingle.Difference != r.Student.Loss-r.Single.Loss || r.OverSingle.StdErr == nil || r.OverOwn != nil {
		t.Errorf("differences %+v, %+v", r.OverSingle, r.OverOwn)
	}
	saved, err := os.ReadFile(filepath.Join(out, "distill.json"))
	if err != nil || string(saved) != text || !bytes.Contains(saved, []byte(`"kind": "distill"`)) {
		t.Errorf("distill.json is not what was printed (%v)", err)
	}
	onThePage(t, "Distillation", "distill", r, append(runs, filepath.Join(out, "student"))...)
	onThePage(t, "Ensemble", "ensemble", e, filepath.Join(out, "distill.json"))
	ledger := metricsOf(t, out)
	if again, _ := distilled(t, args...); *again.Retention.Value != *k.Value || metricsOf(t, out) != ledger {
		t.Error("the same command trained or found something else")
	}
	// Self-distillation on the same store, with a single model of its own.
	self := filepath.Join(t.TempDir(), "self")
	code, more, msg = cli("", "distill", conf, "train.seed=6", "--teacher", teachers, "--self", "--synthetic", filepath.Join(out, "synthetic"), "--single", filepath.Join(out, "student"), "--samples", "50", "-o", self)
	if code != 0 || !strings.Contains(more, "report "+filepath.Join(self, "distill.json")) || !strings.Contains(more, "the student's own") || !strings.Contains(more, "against its own teacher") || !strings.Contains(more, "retention") {
		t.Errorf("--self: exit %d: %s%s", code, more, msg)
	}
}

// metricsOf are the metrics of the student.
func metricsOf(t *testing.T, out string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, "student", run.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func distillLogits(t *testing.T, conf string, runs []string, teachers string) {
	out := filepath.Join(t.TempDir(), "out")
	r, _ := distilled(t, conf, "train.seed=5", "--teacher", teachers, "--logits", "distill.temperature=2", "distill.top_k=20", "--samples", "0", "-o", out)
	if l := r.Learned; len(l.Teachers) != 2 || l.Weight != 0.5 || l.Temperature != 2 || l.TopK != 20 || l.Synthetic != "" {
		t.Errorf("learned from %+v", l)
	}
	if r.Retention.Value == nil || r.Retention.Interval != nil || r.Retention.Samples != 0 {
		t.Errorf("retention %+v", r.Retention)
	}
	// One teacher, which is the best single as well: there is nothing to retain, and that is said.
	code, text, msg := cli("", "distill", conf, "train.seed=5", "--teacher", runs[0], "--logits", "-o", filepath.Join(t.TempDir(), "one"))
	if code != 0 || !strings.Contains(text, "retention is undefined: the teacher's loss is that of the best single model") {
		t.Errorf("one teacher: exit %d: %s%s", code, text, msg)
	}
}

func distillRefuses(t *testing.T, conf string, runs []string, teachers string) {
	other := tiny(t)
	out := filepath.Join(t.TempDir(), "out")
	wide := filepath.Join(t.TempDir(), "wide")
	if code, _, msg := cli("", "train", conf, "model.vocab=80", "--out", wide); code != 0 {
		t.Fatal(msg)
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{run.ExitUsage, "no configuration was named", []string{"--teacher", teachers, "--logits", "-o", out}},
		{run.ExitUsage, "name the runs to learn from", []string{conf, "--logits", "-o", out}},
		{run.ExitUsage, "-o DIR", []string{conf, "--teacher", teachers, "--logits"}},
		{run.ExitUsage, "say what the student learns from", []string{conf, "--teacher", teachers, "-o", out}},
		{run.ExitUsage, "give one of them", []string{conf, "--teacher", teachers, "--synthetic", "x", "--generate-tokens", "5", "-o", out}},
		{run.ExitUsage, "--fraction 1;", []string{conf, "--teacher", teachers, "--synthetic", "x", "--fraction", "1", "-o", out}},
		{run.ExitUsage, "--fraction is the share", []string{conf, "--teacher", teachers, "--logits", "--fraction", "0.5", "-o", out}},
		{run.ExitUsage, "runs to learn from come after --teacher", []string{conf, runs[0], "--logits", "-o", out}},
		{run.ExitUsage, "--mode mean", []string{conf, "--teacher", teachers, "--logits", "--mode", "mean", "-o", out}},
		{run.ExitUsage, "more than six decimals", []string{conf, "--teacher", teachers, "--synthetic", "x", "--fraction", "0.33333333", "-o", out}},
		{run.ExitData, "data.synthetic.store", []string{conf, "--teacher", teachers, "--synthetic", filepath.Join(out, "none"), "-o", out}},
		{run.ExitUsage, "is the folder of a run", []string{conf, "--teacher", teachers, "--logits", "-o", runs[0]}},
		{run.ExitUsage, "neither a run folder", []string{conf, "--teacher", t.TempDir(), "--logits", "-o", out}},
		{run.ExitData, "its vocabulary is 80 and the student's 67", []string{conf, "--teacher", wide, "--logits", "-o", out}},
		{run.ExitData, "data.seq is 16 in", []string{conf, "data.seq=8", "--teacher", teachers, "--logits", "-o", out}},
		{run.ExitUsage, "neither a run folder", []string{conf, "--teacher", teachers, "--logits", "--single", out, "-o", out}},
		{run.ExitData, "no boundary ids", []string{other, "--teacher", filepath.Join(filepath.Dir(other), "run"), "--generate-tokens", "100", "-o", out}},
	} {
		if c.want == "no boundary ids" {
			if code, _, msg := cli("", "train", other, "train.epochs=1", "--out", filepath.Join(filepath.Dir(other), "run")); code != 0 {
				t.Fatal(msg)
			}
		}
		if code, _, msg := cli("", append([]string{"distill"}, c.args...)...); code != c.code || !strings.Contains(msg, c.want) {
			t.Errorf("%q: exit %d (want %d): %s; want %q", c.args, code, c.code, msg, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "student")); err == nil {
		t.Error("a student was begun before its teachers were looked at")
	}
}
