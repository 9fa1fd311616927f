package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/study/ensemble"
	"refrain/train/ckpt"
)

// trainMembers trains runs of the tiny configuration, one for each list of overrides.
func trainMembers(t *testing.T, overrides ...[]string) (conf string, runs []string) {
	t.Helper()
	conf = tiny(t)
	dir := t.TempDir()
	for i, o := range overrides {
		out := filepath.Join(dir, fmt.Sprintf("s%d", i+1))
		if code, _, msg := cli("", append([]string{"train", conf, "--out", out, "save.every=10", "eval.every=0", "log.every=1000"}, o...)...); code != 0 {
			t.Fatalf("train %q: exit %d: %s", o, code, msg)
		}
		runs = append(runs, out)
	}
	return conf, runs
}

// measured is ensemble --json.
func measured(t *testing.T, args ...string) (r ensemble.Report, out string) {
	t.Helper()
	code, out, msg := cli("", append([]string{"ensemble", "--json"}, args...)...)
	if code != 0 {
		t.Fatalf("ensemble %q: exit %d: %s", args, code, msg)
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return r, out
}

func seed(init, order int) []string {
	return []string{fmt.Sprintf("train.seed=%d", init), fmt.Sprintf("data.seed=%d", order)}
}

// brief is seed for members that need not be good.
func brief(init, order int) []string { return append(seed(init, order), "train.epochs=1") }

// TestRow18And19And27EnsembleOfRuns (E rows 18, 19, 27), with members trained here: the
// report names the seeds in which they differ, with the same documents behind all; the
// K-curve falls and ends below the best single; every member's loss is that of eval; the
// soup of members with initial weights of their own is worse than any member; and the
// bytes of the report do not depend on blocks and threads.
func TestRow18And19And27EnsembleOfRuns(t *testing.T) {
	_, runs := trainMembers(t, seed(1, 1), seed(2, 2), seed(3, 3))
	r, out := measured(t, append(runs, "--soup", "--resamples", "20")...)
	if r.Varies != "init and order" || len(r.Members) != 3 || len(r.Warnings) != 0 {
		t.Errorf("seeds differ in %q, warnings %q", r.Varies, r.Warnings)
	}
	for i, m := range r.Members {
		if m.InitSeed != uint64(i+1) || m.OrderSeed != uint64(i+1) || m.DataHash != r.Members[0].DataHash {
			t.Errorf("member %d: %+v", i, m)
		}
		var alone evalReport
		code, text, msg := cli("", "eval", runs[i], "--json")
		if err := json.Unmarshal([]byte(text), &alone); err != nil || code != 0 {
			t.Fatalf("exit %d, %v, %s", code, err, msg)
		}
		if alone.Loss != m.Loss || alone.Tokens != r.Tokens || alone.Docs != r.Docs || alone.DataHash != r.DataHash {
			t.Errorf("eval says %v over %d tokens, the ensemble %v over %d", alone.Loss, alone.Tokens, m.Loss, r.Tokens)
		}
	}
	best := r.Members[r.Best].Loss
	for k := 1; k < len(r.Curve); k++ {
		if a, b := r.Curve[k-1], r.Curve[k]; b.Logit.Loss >= a.Logit.Loss || b.Prob.Loss >= a.Prob.Loss {
			t.Errorf("K=%d: %.4f and %.4f after %.4f and %.4f", b.K, b.Logit.Loss, b.Prob.Loss, a.Logit.Loss, a.Prob.Loss)
		}
	}
	last := r.Curve[2].Logit
	if last.Loss >= best || math.Abs(last.Gain-(best-last.Loss)) > 1e-12 || last.GainStdErr == nil || *last.GainStdErr <= 0 || *last.GainStdErr >= *last.StdErr {
		t.Errorf("three members: %+v, the best single %.4f", last, best)
	}
	if len(r.Subsets) != 3 || r.Subsets[1].Subsets != 3 || r.LogitLaw == nil || r.LogitLaw.E >= last.Loss {
		t.Errorf("subsets %+v, law %+v", r.Subsets, r.LogitLaw)
	}
	if r.Soup == nil || r.Soup.Loss <= best {
		t.Errorf("the weight average has %+v, the best single %.4f", r.Soup, best)
	}
	same, again := measured(t, append(runs, "--soup", "--resamples", "20", "--threads", "3", "--memory", "1")...)
	if same.BlockRows >= r.BlockRows {
		t.Errorf("blocks of %d rows with little memory, of %d with much", same.BlockRows, r.BlockRows)
	}
	same.BlockRows, same.LogitBytes, same.MemberLoads, same.ModelBytes = r.BlockRows, r.LogitBytes, r.MemberLoads, r.ModelBytes
	if !reflect.DeepEqual(same, r) {
		t.Errorf("other numbers on other threads:\n%s\n%s", out, again)
	}
	code, text, msg := cli("", append([]string{"ensemble"}, runs...)...)
	for _, part := range []string{"3 members (seeds differ in init and order)", "best single", "all subsets", "for ever more members", "memory: one model"} {
		if code != 0 || !strings.Contains(text, part) {
			t.Errorf("exit %d, %q is missing in\n%s%s", code, part, text, msg)
		}
	}
}

// TestRow18SeedsApart (E row 18): members may differ in initial weights or in order
// alone, and the report says which.
func TestRow18SeedsApart(t *testing.T) {
	_, runs := trainMembers(t, seed(1, 1), seed(2, 1), seed(1, 2))
	for _, v := range []struct {
		list []string
		want string
	}{{[]string{runs[0], runs[1]}, "init"}, {[]string{runs[0], runs[2]}, "order"}, {runs, "init and order"}} {
		r, _ := measured(t, v.list...)
		if r.Varies != v.want {
			t.Errorf("%q instead of %q", r.Varies, v.want)
		}
		if k := len(v.list); r.Curve[k-1].Logit.Loss >= r.Members[r.Best].Loss {
			t.Errorf("%s: %+v", v.want, r.Curve)
		}
	}
}

// TestRow20Groups (E row 20): recipes are ranked by the asymptote, and the place of
// their single models stands beside it.
func TestRow20Groups(t *testing.T) {
	longer := func(s int) []string { return []string{fmt.Sprintf("train.seed=%d", s), "train.epochs=3"} }
	shorter := func(s int) []string { return []string{fmt.Sprintf("train.seed=%d", s), "train.epochs=1"} }
	_, runs := trainMembers(t, longer(1), longer(2), longer(3), shorter(1), shorter(2), shorter(3))
	a, b := "longer="+strings.Join(runs[:3], ","), "shorter="+strings.Join(runs[3:], ",")
	code, out, msg := cli("", "ensemble", "--json", "--resamples", "0", "--group", b, "--group", a)
	var r groupRanking
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("exit %d, %v, %s", code, err, msg)
	}
	for _, list := range [][]ensemble.Ranked{r.Logit, r.Prob} {
		if len(list) != 2 || list[0].SingleRank+list[1].SingleRank != 3 {
			t.Fatalf("%+v", list)
		}
		if !list[0].Law.Broken && !list[1].Law.Broken && list[0].E > list[1].E {
			t.Errorf("not by the asymptote: %+v", list)
		}
		for _, x := range list {
			if x.Single != r.Reports[x.Name].Members[0].Loss {
				t.Errorf("%s alone has %v, its first member %v", x.Name, x.Single, r.Reports[x.Name].Members[0].Loss)
			}
		}
	}
	if code, text, _ := cli("", "ensemble", "--resamples", "0", "--group", a, "--group", b); code != 0 || !strings.Contains(text, "rank alone") {
		t.Errorf("exit %d: %s", code, text)
	}
	for _, args := range [][]string{{"--group", a}, {"--group", a, "--group", a}, {"--group", a, runs[0]}, {"--group", "x=" + runs[0], "--group", b}, {"--group", "x", "--group", b}} {
		if code, _, msg := cli("", append([]string{"ensemble"}, args...)...); code != run.ExitUsage {
			t.Errorf("%q: exit %d: %s", args, code, msg)
		}
	}
}

// TestRow19LearnedWeightsOnAThirdSplit (E row 19): weights are fitted on documents of
// their own and reported beside the plain mean; a store that shares a document with the
// validation or with training is refused, and the document is named.
func TestRow19LearnedWeightsOnAThirdSplit(t *testing.T) {
	conf, runs := trainMembers(t, seed(1, 1), append(seed(2, 2), "optim.lr=0.0001"))
	dir := filepath.Dir(conf)
	third := filepath.Join(dir, "third")
	writeStore(t, third, 16, 9)
	r, _ := measured(t, append(runs, "--fit-on", third)...)
	w := r.Learned
	if w == nil || len(w.Weights) != 2 || w.Weights[0] <= w.Weights[1] || w.Fitted > w.Equal || w.Mean.Loss == r.Curve[1].Logit.Loss {
		t.Errorf("%+v", w)
	}
	if math.Abs(w.OverPlain-(r.Curve[1].Logit.Loss-w.Mean.Loss)) > 1e-12 || w.OverPlainError == nil {
		t.Errorf("%+v against %+v", w, r.Curve[1])
	}
	for _, v := range []struct{ store, says string }{
		{filepath.Join(dir, "store", "val"), "documents of the validation: document 0"},
		{filepath.Join(dir, "store"), "was trained on: document 0"},
		{filepath.Join(dir, "nothing"), "nothing"},
	} {
		code, _, msg := cli("", append([]string{"ensemble", "--fit-on", v.store}, runs...)...)
		if code != run.ExitData || !strings.Contains(msg, v.says) {
			t.Errorf("%s: exit %d: %s", v.store, code, msg)
		}
	}
}

// TestRow19BadMembers (E row 19; bad input): every mistake is an error that names the
// member and says what to do.
func TestRow19BadMembers(t *testing.T) {
	conf, runs := trainMembers(t, brief(1, 1), brief(2, 2), append(brief(3, 3), "data.seq=8"), append(brief(4, 4), "model.dim=48"), append(brief(5, 5), "model.vocab=70"))
	dir := filepath.Dir(conf)
	other := filepath.Join(dir, "other")
	writeStore(t, other, 32, 7)
	val := filepath.Join(dir, "sval")
	if code, _, msg := cli("", append([]string{"train", conf, "--out", val, "data.val=" + other}, brief(6, 6)...)...); code != 0 {
		t.Fatal(msg)
	}
	newest := filepath.Join(runs[1], run.CkptDir)
	entries, err := filepath.Glob(filepath.Join(newest, "step-*"))
	if err != nil || len(entries) < 2 {
		t.Fatal(entries, err)
	}
	checkpoint := entries[len(entries)-1]
	for _, v := range []struct {
		args []string
		code int
		says string
	}{
		{nil, run.ExitUsage, "no run was named"},
		{[]string{runs[0], filepath.Join(dir, "gone")}, run.ExitUsage, "gone is neither a run folder"},
		{[]string{runs[0], runs[0]}, run.ExitData, "bit for bit"},
		{[]string{runs[1], checkpoint}, run.ExitData, "bit for bit"},
		{[]string{runs[0], runs[2]}, run.ExitData, "data.seq is 16"},
		{[]string{runs[0], runs[4]}, run.ExitData, "vocabulary of 70"},
		{[]string{runs[0], val}, run.ExitData, "different documents"},
		{[]string{runs[0], runs[3], "--soup"}, run.ExitFailed, "another shape"},
		{[]string{runs[0], "data.sek=8"}, run.ExitUsage, `mean "seq"`},
		{[]string{runs[0], "--val", filepath.Join(dir, "no-store")}, run.ExitData, "no-store"},
		{[]string{runs[0], "--ema", "1"}, run.ExitUsage, "--ema"},
		{[]string{runs[0], "--memory", "0"}, run.ExitUsage, "--memory"},
	} {
		code, _, msg := cli("", append([]string{"ensemble"}, v.args...)...)
		if code != v.code || !strings.Contains(msg, v.says) {
			t.Errorf("%q: exit %d, want %d with %q: %s", v.args, code, v.code, v.says, msg)
		}
	}
	// What makes them right.
	for _, args := range [][]string{
		{runs[0], runs[0], "--allow-copies"}, {runs[0], runs[2], "data.seq=8"}, {runs[0], val, "--val", other}, {runs[0], runs[3]},
		{runs[0], entries[0]}, {entries[0], entries[1], "--ema", "0.5"},
	} {
		measured(t, args...)
	}
	r, _ := measured(t, runs[0], runs[0], runs[0], "--allow-copies", "--soup", "--resamples", "0")
	for _, p := range r.Curve {
		if p.Logit.Loss != r.Members[0].Loss || p.Prob.Loss != r.Members[0].Loss || r.Soup.Loss != r.Members[0].Loss {
			t.Errorf("%d copies: %+v, the model %v", p.K, p, r.Members[0].Loss)
		}
	}
	// Damage is found before anything is measured.
	name := filepath.Join(checkpoint, ckpt.ModelFile)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-3] ^= 8
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, msg := cli("", "ensemble", runs[0], checkpoint)
	if code == 0 || !strings.Contains(msg, ckpt.ModelFile) || !strings.Contains(msg, "sha256") {
		t.Errorf("a damaged member: exit %d: %s", code, msg)
	}
	// A run whose newest checkpoint is damaged is not measured by an older one unasked.
	code, _, msg = cli("", "ensemble", runs[0], runs[1])
	if code != run.ExitData || !strings.Contains(msg, entries[len(entries)-2]) {
		t.Errorf("a run with a damaged checkpoint: exit %d: %s", code, msg)
	}
}

// TestCyclesAreAnEnsemble: one run with a cyclic schedule is an ensemble by itself: its
// members are named by RUN@cycles, and the one warning is that they are not draws of one
// recipe.
func TestCyclesAreAnEnsemble(t *testing.T) {
	_, runs := trainMembers(t, append(seed(1, 1), "optim.schedule=cyclic", "optim.cycles=3"))
	r, _ := measured(t, runs[0]+"@cycles", "--resamples", "20")
	if len(r.Members) != 3 || len(r.Curve) != 3 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "are of one run: later members are better") {
		t.Fatalf("members %+v, warnings %q", r.Members, r.Warnings)
	}
	if a, b := r.Members[0], r.Members[2]; a.Step >= b.Step || a.RunID != b.RunID {
		t.Errorf("members %+v", r.Members)
	}
	// The store here has no tokenizer, which sample says of the checkpoint it has found.
	if _, _, msg := cli("", "sample", runs[0]+"@cycle-2"); !strings.Contains(msg, fmt.Sprintf("step-%09d has no tokenizer.json", r.Members[1].Step)) {
		t.Errorf("sample of a member: %s", msg)
	}
	if code, _, msg := cli("", "ensemble", runs[0]+"@cycle-4"); code != 2 || !strings.Contains(msg, "it has cycle-1 to cycle-3") {
		t.Errorf("a member that is not there: exit %d: %s", code, msg)
	}
}
