package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"refrain/internal/run"
)

// TestComparePeersThatBreak: every comparison measures what is ours and has a line with
// the reason in the place of each peer.
func TestComparePeersThatBreak(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the fake Python is a shell script")
	}
	peers := t.TempDir()
	for _, env := range []string{"", "loaders"} {
		bin := filepath.Join(peers, ".env", env, "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		script := "#!/bin/sh\necho \"ImportError: libfoo.so.1\" >&2\nexit 1\n"
		if err := os.WriteFile(filepath.Join(bin, "python"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"peer_step.py", "peer_gemm.py", "peer_tokenizer.py", "peer_ingest.py", "peer_rows.py"} {
		if err := os.WriteFile(filepath.Join(peers, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text := filepath.Join(t.TempDir(), "text.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("some words of no meaning, again and again\n", 300)), 0o644); err != nil {
		t.Fatal(err)
	}
	const why = ": it ended without an answer (exit status 1): ImportError: libfoo.so.1\n"
	for _, c := range []struct {
		args []string
		own  string // the beginning of our own line
		says []string
	}{
		{[]string{"step", "--preset", "micro-0.3M", "--seq", "32", "--batch", "4"}, "BenchmarkStep/", []string{"# peer=step: peer peer_step.py" + why}},
		{[]string{"tokenizer", text}, "BenchmarkTokenizer/", []string{"# peer=gigatoken: ", "# peer=tiktoken: ", "# peer=tokenizers: peer peer_tokenizer.py" + why}},
		{[]string{"train-tokenizer", text, "--vocab", "300"}, "BenchmarkTrainTokenizer/", []string{"# peer=train: peer peer_tokenizer.py" + why}},
		{[]string{"ingest", text}, "BenchmarkIngest/", []string{"# peer=datasets: ", "# peer=datatrove: peer peer_ingest.py" + why}},
	} {
		code, out, msg := cli("", append(append([]string{"bench"}, c.args...), "--count", "1", "--compare", "peers", "--peers-dir", peers)...)
		if code != run.ExitDone || !strings.Contains(out, c.own) {
			t.Errorf("%v: exit code %d, %s\n%s", c.args, code, msg, out)
		}
		for _, s := range c.says {
			if !strings.Contains(out, s) {
				t.Errorf("%v: no %q in\n%s", c.args, s, out)
			}
		}
	}
}
