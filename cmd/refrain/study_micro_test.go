package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/run"
)

// TestMicroRefuses: what cannot be done is told before anything is written.
func TestMicroRefuses(t *testing.T) {
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(full, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(full, "thesis.txt"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	few := filepath.Join(dir, "few")
	if err := os.MkdirAll(few, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(few, "a.txt"), []byte(strings.Repeat("some words of text\n", 40)), 0o644); err != nil {
		t.Fatal(err)
	}
	records := filepath.Join(dir, "records.json")
	if err := os.WriteFile(records, []byte(`{"kind":"sweep","version":1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{}, run.ExitUsage, "-o is not set"},
		{[]string{"-o", out, "--quick", "--night"}, run.ExitUsage, "keep one"},
		{[]string{"-o", out, "--records", records, "--quick"}, run.ExitUsage, "leave the other flags out"},
		{[]string{"-o", out, "--records", records}, run.ExitData, `kind "sweep"`},
		{[]string{"-o", out, "--records", filepath.Join(dir, "none.json")}, run.ExitData, "none.json"},
		{[]string{"-o", out, "--max-parallel", "-1"}, run.ExitUsage, "--max-parallel -1"},
		{[]string{"-o", full, "--quick"}, run.ExitUsage, "choose another -o"},
		{[]string{"-o", out, "--quick", "--corpus", "prose"}, run.ExitUsage, "bench/corpora/prose.sh"},
		{[]string{"-o", out, "--quick", "--corpus", filepath.Join(dir, "nowhere")}, run.ExitUsage, "there is no folder"},
		{[]string{"-o", out, "--quick", "--corpus", few}, run.ExitData, "bytes are needed"},
	} {
		var stdout, stderr bytes.Buffer
		code := execute(append([]string{"study", "micro"}, c.args...), strings.NewReader(""), &stdout, &stderr)
		if code != c.code || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%v: code %d, %q; want %d, %q", c.args, code, stderr.String(), c.code, c.want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(full, "thesis.txt")); err != nil || string(b) != "mine" {
		t.Errorf("a stranger's folder was changed (%v)", err)
	}
}
