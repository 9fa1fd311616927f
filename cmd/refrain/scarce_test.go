package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/kernels/asm"
)

// TestLittleMemory: under a limit that is too small for the run, train and plan name
// what is needed and what there is, and nothing is begun; the settings that they
// propose are enough.
func TestLittleMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("limits on the address space are set on Linux only")
	}
	conf, out := tiny(t), filepath.Join(t.TempDir(), "run")
	// The run takes 70 MB and reserves 128 MB more at its start.
	for _, command := range [][]string{{"train", conf, "--out", out}, {"plan", conf}, {"plan", conf, "--json"}} {
		p := start(t, nil, append([]string{asSmall, "150"}, command...)...)
		if c := p.code(t); c != run.ExitUsage {
			t.Fatalf("%v: exit code %d\n%s%s", command, c, p.out, p.err)
		}
		msg := p.err.String()
		for _, part := range []string{"the run needs ", "ulimit -v allows ", "MiB are left\n", "  activations\n", "  moments\n", "  reserved by the start\n", "choose a smaller model or data.seq, or raise the limit"} {
			if !strings.Contains(msg, part) {
				t.Errorf("%v: no %q in\n%s", command, part, msg)
			}
		}
		if command[0] == "plan" && !strings.Contains(p.out.String(), "evaluation copies") {
			t.Errorf("%v prints no plan:\n%s", command, p.out)
		}
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("a run folder was begun: %v", err)
	}
	if p := start(t, nil, asSmall, "1500", "train", conf, "--out", out); p.code(t) != run.ExitDone {
		t.Errorf("with room enough: exit code %d\n%s%s", p.code(t), p.out, p.err)
	}
}

// TestOneProcessor takes text to a trained model, with a stop on the way, an evaluation
// and a benchmark, where only one goroutine runs at a time: nothing waits for ever, and
// store, weights and losses are those of three processors.
func TestOneProcessor(t *testing.T) {
	text := t.TempDir()
	for i := range 60 {
		s := strings.Repeat(fmt.Sprintf("func f%d(x int) int { return x + %d }\n", i, i*i), 20)
		if err := os.WriteFile(filepath.Join(text, fmt.Sprintf("f%02d.go", i)), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	type result struct {
		manifest, tensors []byte
		ledger            []stepLine
		val               stepLine
	}
	results := map[string]result{}
	for _, procs := range []string{"1", "3"} {
		env := []string{"GOMAXPROCS=" + procs}
		dir := t.TempDir()
		must := func(code int, args ...string) {
			t.Helper()
			p := start(t, env, append([]string{asProgram}, args...)...)
			if c := p.code(t); c != code {
				t.Fatalf("GOMAXPROCS=%s %v: exit code %d\n%s%s", procs, args, c, p.out, p.err)
			}
		}
		st, conf, out := filepath.Join(dir, "store"), filepath.Join(dir, "run.yaml"), filepath.Join(dir, "run")
		must(run.ExitDone, "data", "prepare", text, "-o", st, "--tokenizer", "train:300", "--val-docs", "10%")
		yaml := strings.Replace(tinyYAML, "seq: 16", "seq: 16, store: "+filepath.ToSlash(st), 1)
		yaml = strings.Replace(yaml, "epochs: 3, threads: 1", "steps: 12, devices: 2", 1)
		if err := os.WriteFile(conf, []byte(yaml), 0o644); err != nil {
			t.Fatal(err)
		}
		must(run.ExitResumable, "train", conf, "--out", out, "--stop-after", "5")
		must(run.ExitDone, "train", conf, "--out", out, "--resume", "auto")
		must(run.ExitDone, "eval", out)
		if procs == "1" && asm.Kernels() != "purego" { // where a step takes a minute
			must(run.ExitDone, "bench", "step", "--preset", "micro-0.3M", "--count", "1")
		}
		manifest, err := os.ReadFile(filepath.Join(st, "manifest.json"))
		if err != nil {
			t.Fatal(err)
		}
		results[procs] = result{manifest, tensors(t, newest(out)), readLedger(t, out), lastEval(t, out)}
	}
	one, three := results["1"], results["3"]
	if !bytes.Equal(one.manifest, three.manifest) || !bytes.Equal(one.tensors, three.tensors) || !slices.Equal(one.ledger, three.ledger) || one.val != three.val {
		t.Errorf("one processor gives another store, weights, losses or evaluation than three: %+v and %+v", one.val, three.val)
	}
}
