package main

import (
	"os"
	"path/filepath"
	"slices"
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
