package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"refrain/internal/run"
	"refrain/train/ckpt"
)

// baseline is the run of a configuration that nobody disturbs.
type baseline struct {
	conf    string
	ledger  []stepLine
	tensors []byte
}

func newBaseline(t *testing.T) *baseline {
	t.Helper()
	b := &baseline{conf: tiny(t)}
	// Long enough that a signal to a run on a busy machine does not come too late.
	text, err := os.ReadFile(b.conf)
	if err == nil {
		err = os.WriteFile(b.conf, bytes.Replace(text, []byte("epochs: 3"), []byte("epochs: 9"), 1), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "base")
	p := start(t, nil, b.command(out)...)
	if c := p.code(t); c != run.ExitDone {
		t.Fatalf("exit code %d\n%s%s", c, p.out, p.err)
	}
	b.ledger, b.tensors = readLedger(t, out), tensors(t, newest(out))
	return b
}

// command trains into out, or continues there.
func (b *baseline) command(out string, overrides ...string) []string {
	return append([]string{asProgram, "train", b.conf, "--out", out, "--resume", "auto"}, overrides...)
}

// finish continues the run in out and compares its end with the baseline.
func (b *baseline) finish(t *testing.T, out string) {
	t.Helper()
	p := start(t, nil, b.command(out)...)
	if c := p.code(t); c != run.ExitDone {
		t.Fatalf("the resumed run ends with code %d\n%s%s", c, p.out, p.err)
	}
	if got := readLedger(t, out); !slices.Equal(got, b.ledger) {
		t.Errorf("the ledger of %d steps is not that of the run that nobody disturbed, of %d", len(got), len(b.ledger))
	}
	if !bytes.Equal(tensors(t, newest(out)), b.tensors) {
		t.Error("final weights or moments differ from those of the run that nobody disturbed")
	}
}

// stopped checks a run that was asked to stop: everything up to the last
// finished step is saved, and the files say how it ended.
func stopped(t *testing.T, p *process, out string) {
	t.Helper()
	if c := p.code(t); c != run.ExitResumable {
		t.Fatalf("exit code %d, want %d\n%s%s", c, run.ExitResumable, p.out, p.err)
	}
	steps := int64(len(readLedger(t, out)))
	if want := ckpt.NameOf(steps); filepath.Base(newest(out)) != want {
		t.Errorf("the newest checkpoint is %s; the last finished step is %d", newest(out), steps)
	}
	if e := readExit(t, out); e.Status != "stopped" || e.Code != run.ExitResumable || e.Step != steps {
		t.Errorf("exit.json says %+v after step %d", e, steps)
	}
}

func needSignals(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals to send to another process")
	}
}

// TestInterrupted disturbs training processes from outside.
func TestInterrupted(t *testing.T) {
	b := newBaseline(t)
	for _, tc := range []struct {
		name string
		test func(t *testing.T, b *baseline)
	}{
		{"signals", signalsAt}, {"signal during the load", signalDuringLoad}, {"second signal", secondSignal},
		{"reader goes away", readerGoesAway}, {"two processes in one folder", twoProcesses}, {"files may not grow", filesMayNotGrow}, {"no permission", noPermission},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, b) })
	}
}

// signalsAt sends a signal to a training process at chosen moments.
func signalsAt(t *testing.T, b *baseline) {
	needSignals(t)
	stepped := func(n int64) func(p *process, out string) bool {
		return func(_ *process, out string) bool { return lastStep(out) >= n }
	}
	for _, tc := range []struct {
		name string
		sig  os.Signal
		when func(p *process, out string) bool
	}{
		{"SIGINT after the first step", os.Interrupt, stepped(1)},
		{"SIGTERM in the middle", syscall.SIGTERM, stepped(20)},
		{"SIGTERM at an evaluation", syscall.SIGTERM, func(_ *process, out string) bool { n := lastStep(out); return n > 0 && n%5 == 0 }},
		{"SIGTERM in a running save", syscall.SIGTERM, func(_ *process, out string) bool {
			tmp, err := filepath.Glob(filepath.Join(out, run.CkptDir, ".tmp-step-*"))
			return err == nil && len(tmp) > 0
		}},
		{"SIGHUP, the terminal is gone", syscall.SIGHUP, stepped(10)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if signal.Ignored(tc.sig) {
				t.Skip("this process was told to ignore the signal, as nohup does, and so are those that it starts")
			}
			out := filepath.Join(t.TempDir(), "run")
			p := start(t, nil, b.command(out)...)
			if !p.until(t, tc.name, func() bool { return tc.when(p, out) }) {
				t.Fatalf("the run ended before the signal\n%s%s", p.out, p.err)
			}
			if err := p.cmd.Process.Signal(tc.sig); err != nil {
				t.Fatal(err)
			}
			stopped(t, p, out)
			if !strings.Contains(p.err.String(), "finishing the step and saving") {
				t.Errorf("the signal is not answered:\n%s", p.err)
			}
			b.finish(t, out)
		})
	}
}

// signalDuringLoad sends SIGTERM when the checkpoint has just been read.
func signalDuringLoad(t *testing.T, b *baseline) {
	needSignals(t)
	out := filepath.Join(t.TempDir(), "run")
	p := start(t, nil, append(b.command(out), "--stop-after", "9")...)
	stopped(t, p, out)
	p = start(t, nil, b.command(out)...)
	p.until(t, "the resume", func() bool { return strings.Contains(p.err.String(), "resuming at step 9") })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	stopped(t, p, out)
	b.finish(t, out)
}

// secondSignal sends two: the process ends at once with the code of that.
// It is halted meanwhile, so that both are there when it looks.
func secondSignal(t *testing.T, b *baseline) {
	needSignals(t)
	out := filepath.Join(t.TempDir(), "run")
	p := start(t, nil, b.command(out)...)
	p.until(t, "a step", func() bool { return lastStep(out) >= 5 })
	for _, s := range []os.Signal{stopSignal, syscall.SIGTERM, os.Interrupt, continueSignal} {
		if err := p.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	if c := p.code(t); c != run.ExitInterrupted {
		t.Errorf("exit code %d, want %d\n%s%s", c, run.ExitInterrupted, p.out, p.err)
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("the second signal took %v", d)
	}
	b.finish(t, out)
}

// readerGoesAway closes the pipe that the run prints to, as `| head` and a
// lost connection do: the run saves and can go on.
func readerGoesAway(t *testing.T, b *baseline) {
	needSignals(t)
	out := filepath.Join(t.TempDir(), "run")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self, b.command(out)...), out: new(output), err: new(output), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = w, w // both ends of the terminal
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.cmd.Wait() // how it ended is read from ProcessState
	}()
	t.Cleanup(p.kill)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	stopped(t, p, out)
	b.finish(t, out)
}

// twoProcesses starts a second run into the folder of a running
// one: it is refused at once and the first one does not notice.
func twoProcesses(t *testing.T, b *baseline) {
	out := filepath.Join(t.TempDir(), "run")
	// The first one holds in its second save, so that it is there all the while.
	p := start(t, nil, asHeld, "mkdir", ".tmp-step-*", "2", b.conf, out)
	p.until(t, "the first process", func() bool { return strings.Contains(p.out.String(), "held") })
	q := start(t, nil, b.command(out)...)
	if c := q.code(t); c != run.ExitUsage || !strings.Contains(q.err.String(), "lock") {
		t.Errorf("the second process ends with code %d\n%s%s", c, q.out, q.err)
	}
	if p.ended() {
		t.Errorf("the first process ended\n%s%s", p.out, p.err)
	}
	p.kill()
	b.finish(t, out) // a lock does not outlive its process
}

// filesMayNotGrow lets the kernel refuse every optimiser file, half written:
// training goes on, each failed save is reported, the last one is the code of
// the run, and where the limit is lifted the run comes to the same bits.
func filesMayNotGrow(t *testing.T, b *baseline) {
	if runtime.GOOS != "linux" {
		t.Skip("needs RLIMIT_FSIZE of Linux")
	}
	out := filepath.Join(t.TempDir(), "run")
	limit := len(b.tensors) / 2 // between the model, a third, and the optimiser
	p := start(t, nil, append([]string{asLimited, fmt.Sprint(limit)}, b.command(out)[1:]...)...)
	if c := p.code(t); c != run.ExitDisk {
		t.Fatalf("exit code %d, want %d\n%s%s", c, run.ExitDisk, p.out, p.err)
	}
	if n := strings.Count(p.err.String(), "checkpoint failed, training goes on"); n < 2 {
		t.Errorf("%d failed saves are reported\n%s", n, p.err)
	}
	if !strings.Contains(p.err.String(), "optimizer.safetensors: file too large") {
		t.Errorf("the reason is not named:\n%s", p.err)
	}
	if got := readLedger(t, out); !slices.Equal(got, b.ledger) {
		t.Error("the training itself was changed")
	}
	if left, _ := filepath.Glob(filepath.Join(out, run.CkptDir, "*step*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(out, run.CkptDir, ".*step*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	b.finish(t, out)

	// Nothing fits at all: no run begins, and nothing is in its way later.
	out = filepath.Join(t.TempDir(), "run")
	p = start(t, nil, append([]string{asLimited, "10"}, b.command(out)[1:]...)...)
	if c := p.code(t); c != run.ExitDisk || !strings.Contains(p.err.String(), "file too large") {
		t.Fatalf("exit code %d, want %d\n%s%s", c, run.ExitDisk, p.out, p.err)
	}
	b.finish(t, out)
}

// noPermission trains where nothing may be written, and then where it may.
func noPermission(t *testing.T, b *baseline) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("permissions mean something else here")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "run")
	p := start(t, nil, b.command(out)...)
	if c := p.code(t); c != run.ExitDisk || !strings.Contains(p.err.String(), "run folder "+out) || !strings.Contains(p.err.String(), "permission denied") {
		t.Errorf("exit code %d, want %d\n%s%s", c, run.ExitDisk, p.out, p.err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b.finish(t, out)
}
