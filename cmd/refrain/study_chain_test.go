package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/internal/run/config"
)

// TestChain: every member but the first has the one before it for a teacher, seeds follow
// each other, and the ensemble of all is measured. The command goes on where a member was
// stopped, adds members to a chain that is there, and ends the same either way.
func TestChain(t *testing.T) {
	conf, dir := tiny(t), filepath.Join(t.TempDir(), "chain")
	args := func(out string, more ...string) []string {
		return append([]string{"study", "chain", conf, "-o", out, "--seed", "5", "--weight", "0.7", "train.epochs=1", "eval.rows=8"}, more...)
	}
	whole := object[chainResult](t, 0, args(dir, "--members", "3")...)
	if len(whole.Members) != 3 || whole.Weight != 0.7 || whole.Ensemble == nil || len(whole.Ensemble.Curve) != 3 || whole.Ensemble.LogitLaw != nil {
		t.Fatalf("%+v", whole)
	}
	for _, w := range whole.Ensemble.Warnings {
		if strings.Contains(w, "other teachers") {
			t.Errorf("a chain is warned of being one: %s", w)
		}
	}
	for i, m := range whole.Members {
		r, err := config.Load(filepath.Join(m.Run, run.ConfigFile), nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &r.Config
		if m.Seed != 5+uint64(i) || c.Train.Seed != m.Seed || *c.Data.Seed != m.Seed || m.Val == nil || m.Steps == 0 {
			t.Errorf("member %d: %+v", i+1, m)
		}
		if e := whole.Ensemble.Members[i]; math.Abs(e.Loss-*m.Val) > 1e-6 {
			t.Errorf("member %d has the loss %v after its last step and %v in the ensemble", i+1, *m.Val, e.Loss)
		}
		if i == 0 && (len(c.Distill.Teachers) != 0 || m.Teacher != "") {
			t.Errorf("the first member learned from %q", c.Distill.Teachers)
		}
		if i > 0 && (len(c.Distill.Teachers) != 1 || c.Distill.Teachers[0] != whole.Members[i-1].Run || m.Teacher != c.Distill.Teachers[0] || c.Distill.Weight != 0.7) {
			t.Errorf("member %d learned from %q with weight %g", i+1, c.Distill.Teachers, c.Distill.Weight)
		}
	}
	onThePage(t, "Ensemble of the chain", "chain", whole, dir)
	// Two members, and the second stopped on its way; then three.
	other := filepath.Join(t.TempDir(), "chain")
	object[chainResult](t, 0, args(other, "--members", "2")...)
	second := filepath.Join(other, "member-2")
	if err := os.RemoveAll(second); err != nil {
		t.Fatal(err)
	}
	code, _, msg := cli("", "train", conf, "--out", second, "--stop-after", "3", "train.epochs=1", "eval.rows=8", "train.seed=6", "data.seed=6",
		"distill.teachers=["+filepath.ToSlash(filepath.Join(other, "member-1"))+"]", "distill.weight=0.7")
	if code != run.ExitResumable {
		t.Fatalf("exit %d: %s", code, msg)
	}
	again := object[chainResult](t, 0, args(other, "--members", "3")...)
	for i, m := range again.Members {
		if w := whole.Members[i]; *m.Val != *w.Val || m.Loss != w.Loss || m.Seed != w.Seed {
			t.Errorf("member %d came to %v, the chain that never stopped to %v", i+1, *m.Val, *w.Val)
		}
	}
	code, out, msg := cli("", args(other, "--members", "3")...)
	if code != 0 || !strings.Contains(out, "member-3  7") || !strings.Contains(out, "best single") {
		t.Errorf("exit %d: %s\n%s", code, msg, out)
	}
}

func TestChainRefuses(t *testing.T) {
	conf, dir := tiny(t), filepath.Join(t.TempDir(), "chain")
	for want, args := range map[string][]string{
		"-o DIR is missing":                       {},
		"a chain of 1 members":                    {"-o", dir, "--members", "1"},
		"the weight of the teacher is 0":          {"-o", dir, "--weight", "0"},
		"the temperature is 0":                    {"-o", dir, "--temperature", "0"},
		`vary "all"; use both, init or order`:     {"-o", dir, "--vary", "all"},
		"distill.weight=1: the chain sets this":   {"-o", dir, "distill.weight=1"},
		"train.seed=3: the chain sets this":       {"-o", dir, "train.seed=3"},
		"top_k: -1":                               {"-o", dir, "--top-k", "-1"},
		`unknown key "epohcs" in train - did you`: {"-o", dir, "train.epohcs=3"},
	} {
		code, _, msg := cli("", append([]string{"study", "chain", conf}, args...)...)
		if want == "top_k: -1" {
			want = "the -1 likeliest tokens"
		}
		if code != 2 || !strings.Contains(msg, want) {
			t.Errorf("%q: exit %d, %q, want %q", args, code, msg, want)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("something was made before the command line was understood")
	}
}
