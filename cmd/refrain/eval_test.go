package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"refrain/internal/run"
)

// TestEvalKeepsTheFullResult: a result of part of the set, or under other
// settings, goes to a file of its own and leaves the full one as it is.
func TestEvalKeepsTheFullResult(t *testing.T) {
	conf := tiny(t)
	out := filepath.Join(t.TempDir(), "run")
	writeStore(t, filepath.Join(filepath.Dir(out), "other"), 8, 3)
	eval := func(args ...string) {
		t.Helper()
		if code, _, msg := cli("", append([]string{"eval", out}, args...)...); code != 0 {
			t.Fatalf("eval %q: exit %d: %s", args, code, msg)
		}
	}
	if code, _, msg := cli("", "train", conf, "--out", out, "train.epochs=1"); code != 0 {
		t.Fatalf("train: exit %d: %s", code, msg)
	}
	names := func() (list []string) {
		t.Helper()
		all, err := os.ReadDir(filepath.Join(out, run.EvalDir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			list = append(list, e.Name())
		}
		return list
	}
	eval("train.threads=1") // changes no result
	full := names()
	if len(full) != 1 {
		t.Fatalf("files %q", full)
	}
	path := filepath.Join(out, run.EvalDir, full[0])
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	eval("--rows", "2")
	eval("data.val=" + filepath.Join(filepath.Dir(out), "other"))
	eval("data.seq=8", "data.doc_mask=false")
	eval("data.reset_positions=true")
	if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
		t.Errorf("the full result is now %s, %v; it was %s", got, err, want)
	}
	if got := names(); len(got) != 5 || !slices.Contains(got, full[0]) {
		t.Errorf("files %q, want one of each evaluation", got)
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	eval()
	if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
		t.Errorf("the full result is %s, %v; it was %s", got, err, want)
	}
}

// TestRow37TrainingAgainstValidation: a run that reads few documents often knows its own
// windows better than those of other documents, at the same step, and the report says by
// how much. The windows are the last that were trained on: the loss on one epoch of them
// is near the training loss of that epoch, and that of an untrained order is refused.
func TestRow37TrainingAgainstValidation(t *testing.T) {
	conf := tiny(t)
	dir := filepath.Dir(conf)
	out := filepath.Join(dir, "run")
	other := filepath.Join(dir, "other")
	writeStore(t, other, 64, 3)
	run := func(want int, say string, args ...string) string {
		t.Helper()
		code, text, msg := cli("", args...)
		if code != want || !strings.Contains(msg, say) {
			t.Fatalf("%q: exit %d, want %d: %s", args, code, want, msg)
		}
		return text
	}
	run(0, "", "train", conf, "--out", out, "train.epochs=12", "optim.lr=0.01", "data.subset.docs=12", "data.mode=repack")
	measure := func(args ...string) (r evalReport) {
		t.Helper()
		if err := json.Unmarshal([]byte(run(0, "", append([]string{"eval", out, "--json"}, args...)...)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	val, seen, part := measure(), measure("--seen"), measure("--seen", "--rows", "3")
	if val.Seen || !seen.Seen || val.Step != seen.Step || part.Rows != 3 || seen.Rows <= 3 || seen.DataHash == val.DataHash {
		t.Errorf("val %+v\nseen %+v\npart %+v", val, seen, part)
	}
	var sum float64
	var n int
	steps := readLedger(t, out)
	for _, s := range steps[len(steps)*11/12:] {
		sum, n = sum+s.Loss, n+1
	}
	late := sum / float64(n)
	if seen.Loss > val.Loss-0.1 || seen.Loss > late+0.05 || seen.Loss < late-0.3 {
		t.Errorf("seen %.4f, validation %.4f, training in the last epoch %.4f", seen.Loss, val.Loss, late)
	}
	page := filepath.Join(dir, "page.html")
	run(0, "", "report", out, "-o", page)
	b, err := os.ReadFile(page)
	if gap := fmt.Sprintf("%+.4f", val.Loss-seen.Loss); err != nil || !strings.Contains(string(b), strings.TrimPrefix(gap, "+")) {
		t.Errorf("the report does not say %s (%v)", gap, err)
	}
	run(2, "leave out all but data.store", "eval", out, "--seen", "data.mode=fixed")
	run(2, "leave it out with --choices", "eval", out, "--seen", "--choices", "x.jsonl")
	run(3, "was trained on other documents", "eval", out, "--seen", "data.store="+other)
}
