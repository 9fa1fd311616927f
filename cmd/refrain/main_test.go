package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"refrain/internal/fsx"
	"refrain/internal/num"
	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/stages/shards"
	"refrain/store"
)

// The test binary is also the program: with one of these words first on its
// command line it does what the word says instead of testing.
const (
	asProgram = "as-refrain"         // the rest is a command line of refrain
	asHeld    = "as-refrain-held"    // train, and hold for ever at a file system call
	asLimited = "as-refrain-limited" // the program under a limit on the size of files
	asSmall   = "as-refrain-small"   // the program under a limit on its address space
)

func TestMain(m *testing.M) {
	if shards.IsChild(os.Args) {
		os.Exit(shards.ChildMain(os.Args, os.Stdin, os.Stdout))
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case asProgram:
			os.Exit(execute(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
		case asHeld:
			os.Exit(held(os.Args[2:]))
		case asLimited:
			os.Exit(limited(os.Args[2:]))
		case asSmall:
			os.Exit(small(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// held is `refrain train --resume auto` whose checkpoint writer or loader stops
// for ever after a chosen file system call, saying so on standard output. The
// arguments are: operation, pattern of the base name, which such call (from 1),
// configuration, run folder, overrides.
func held(args []string) int {
	op, glob, conf, out := args[0], args[1], args[3], args[4]
	nth, err := strconv.Atoi(args[2])
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	fs := fsx.NewFault(fsx.OS{})
	fs.After(func(c fsx.Call) {
		name := c.Name
		if c.New != "" {
			name = c.New
		}
		if ok, err := filepath.Match(glob, filepath.Base(name)); err != nil || !ok || c.Op.String() != op {
			return
		}
		mu.Lock()
		nth--
		hold := nth == 0
		mu.Unlock()
		if hold {
			fmt.Println("held")
			<-time.After(time.Hour)
		}
	})
	r, err := config.Load(conf, args[5:])
	if err != nil {
		panic(err)
	}
	s, err := run.NewSetup(&r.Config, r)
	if err != nil {
		panic(err)
	}
	_, err = run.Train(context.Background(), run.Job{Setup: s, Out: out, Resume: run.ResumeAuto, FS: fs, Watch: notes{}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return run.ExitCode(err)
}

// process is a running child.
type process struct {
	cmd      *exec.Cmd
	out, err *output
	done     chan struct{} // closed when it has ended
}

// output is what a child wrote so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start runs the test binary with args. env is added to the environment.
func start(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self, args...), out: new(output), err: new(output), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	p.cmd.Env = append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.cmd.Wait() // how it ended is read from ProcessState
	}()
	t.Cleanup(func() { p.kill() })
	return p
}

// kill ends the child at once and waits for that.
func (p *process) kill() {
	p.cmd.Process.Kill() // fails only when it has ended
	<-p.done
}

// code waits for the end and returns the exit code, -1 for a signal.
func (p *process) code(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%v does not end\n%s%s", p.cmd.Args[1:], p.out, p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// ended reports whether the child has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// until waits until yes, which is asked every half millisecond, or until the
// child has ended, and returns the last answer.
func (p *process) until(t testing.TB, what string, yes func() bool) bool {
	t.Helper()
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	late := time.After(2 * time.Minute)
	for !yes() {
		select {
		case <-tick.C:
		case <-p.done:
			return yes()
		case <-late:
			t.Fatalf("%v: waited in vain for %s\n%s%s", p.cmd.Args[1:], what, p.out, p.err)
		}
	}
	return true
}

const tinyVocab = 67

// writeStore writes a store of docs documents of 5 to 60 tokens in which the
// next token can be learnt.
func writeStore(t testing.TB, dir string, docs int, seed uint64) {
	t.Helper()
	w, err := store.Create(dir, store.Meta{Vocab: tinyVocab, TokenizerHash: "none"})
	if err != nil {
		t.Fatal(err)
	}
	s := num.NewStream("documents of the program's tests", seed)
	for d := range docs {
		ids := make([]uint32, 5+s.Uintn(uint64(d), 56))
		x := s.Uintn(uint64(d)+1<<32, tinyVocab)
		for i := range ids {
			ids[i] = uint32(x)
			x = (x*5 + 3 + s.Uintn(uint64(d)<<20+uint64(i)+1<<40, 3)) % tinyVocab
		}
		ids[len(ids)-1] = 0
		if err := w.Append(uint64(d), "test", ids); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

const tinyYAML = `model: {layers: 2, dim: 32, heads: 4, kv_heads: 2, ffn: 40}
data: {seq: 16}
train: {batch: 8, epochs: 3, threads: 1}
optim: {lr: 0.01}
save: {every: 3, minutes: 0, keep: 2}
eval: {every: 5}
log: {every: 1}
`

// tiny writes a configuration and its stores into a new folder and returns the
// path of the configuration.
func tiny(t testing.TB) (conf string) {
	t.Helper()
	dir := t.TempDir()
	writeStore(t, filepath.Join(dir, "store"), 64, 1)
	writeStore(t, filepath.Join(dir, "store", "val"), 32, 2)
	conf = filepath.Join(dir, "tiny.yaml")
	text := strings.Replace(tinyYAML, "seq: 16", "seq: 16, store: "+filepath.ToSlash(filepath.Join(dir, "store")), 1)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return conf
}

// stepLine is a step in metrics.jsonl: what must be the same however often a
// run was stopped.
type stepLine struct {
	Type   string
	Step   int64
	Window int64
	Rows   int
	Tokens int64
	Loss   float64
	Norm   float64
	LR     float64
	CRC    string
	Chain  string
}

// readLedger returns the steps of a run. A step that was run again after a kill
// must say the same, steps follow each other, and each begins where the one
// before it ended.
func readLedger(t testing.TB, out string) []stepLine {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, run.MetricsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var steps []stepLine
	for line := range strings.Lines(string(b)) {
		var l stepLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%s: line %q: %v", out, line, err)
		}
		if l.Type != "step" {
			continue
		}
		i := l.Step - 1
		if i < int64(len(steps)) {
			if steps[i] != l {
				t.Fatalf("%s: step %d was %+v, and when it ran again %+v", out, l.Step, steps[i], l)
			}
			continue
		}
		if i > int64(len(steps)) {
			t.Fatalf("%s: step %d follows step %d", out, l.Step, len(steps))
		}
		if want := i * int64(l.Rows); l.Window != want {
			t.Fatalf("%s: step %d consumed the windows from %d, want %d", out, l.Step, l.Window, want)
		}
		steps = append(steps, l)
	}
	return steps
}

// lastEval returns the evaluation of the largest step in metrics.jsonl.
func lastEval(t testing.TB, out string) (last stepLine) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, run.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var l stepLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Type == "eval" && l.Step >= last.Step {
			last = l
		}
	}
	return last
}

// lastStep is the last step in metrics.jsonl so far, however it ends.
func lastStep(out string) int64 {
	b, err := os.ReadFile(filepath.Join(out, run.MetricsFile))
	if err != nil {
		return 0
	}
	for line := range lastLines(b) {
		var l stepLine
		if json.Unmarshal(line, &l) == nil && l.Type == "step" {
			return l.Step
		}
	}
	return 0
}

// lastLines yields the lines of b from the last to the first.
func lastLines(b []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for _, line := range slices.Backward(bytes.Split(b, []byte("\n"))) {
			if !yield(line) {
				return
			}
		}
	}
}

// newest returns the path of the checkpoint with the largest step, or "".
func newest(out string) string {
	paths, err := filepath.Glob(filepath.Join(out, run.CkptDir, "step-?????????"))
	if err != nil || len(paths) == 0 {
		return ""
	}
	return slices.Max(paths)
}

// tensors returns the bytes of the tensor files of a checkpoint.
func tensors(t testing.TB, path string) []byte {
	t.Helper()
	var all []byte
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		b, err := os.ReadFile(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// readExit reads exit.json.
func readExit(t testing.TB, out string) run.Exit {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, run.ExitFile))
	if err != nil {
		t.Fatal(err)
	}
	var e run.Exit
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatal(err)
	}
	return e
}
