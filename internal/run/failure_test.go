package run_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/run"
	"refrain/train"
)

// exitOf reads exit.json.
func exitOf(t *testing.T, out string) (e run.Exit) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, run.ExitFile))
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestNotFinite: a run that diverges, in a step or by its very last update, ends
// with the code of its class, says what to do, and leaves lines that can be read.
func TestNotFinite(t *testing.T) {
	dir := makeStore(t, 64)
	for name, c := range map[string]struct {
		overrides []string
		mul       float64
		says      string
	}{
		"step":       {[]string{"train.steps=20", "eval.every=1000"}, 1e36, "step 2 (windows 8 to 15)"},
		"evaluation": {[]string{"train.steps=1"}, 1e36, "evaluation of step 1: loss NaN"},
		"checkpoint": {[]string{"train.steps=1", "optim.lr=9"}, 1e38, "the last checkpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			s := setup(t, dir, append(c.overrides, "train.epochs=null", "optim.min_lr_ratio=1", "optim.warmup_steps=1")...)
			for role := range s.Options.Optim.LRMul {
				s.Options.Optim.LRMul[role] = c.mul
			}
			if name == "checkpoint" {
				s.Set = nil // or the evaluation may be first to say so
			}
			out := filepath.Join(t.TempDir(), "run")
			_, err := run.Train(t.Context(), run.Job{Setup: s, Out: out})
			if !errors.Is(err, train.ErrNotFinite) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%v, want %q", err, c.says)
			}
			if e := exitOf(t, out); e.Status != "failed" || e.Code != run.ExitNumerics || strings.Contains(e.Next, "resume") {
				t.Errorf("exit.json says %+v", e)
			}
			if n := len(ledger(t, out)); n != 1 {
				t.Errorf("%d steps in the ledger, want the finite one", n)
			}
		})
	}
}

// TestDeviceFailure: a device that dies in the middle of a run ends it with the
// code of devices.
func TestDeviceFailure(t *testing.T) {
	s := setup(t, makeStore(t, 64))
	d, err := host.New(host.Config{Threads: 1}).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	out := filepath.Join(t.TempDir(), "run")
	w := &watcher{onStep: func(i run.StepInfo) {
		if i.Step == 3 {
			kill(t, d)
		}
	}}
	_, err = run.Train(t.Context(), run.Job{Setup: s, Out: out, Devices: []gpu.Device{d}, Watch: w})
	if !errors.Is(err, gpu.ErrDevice) || !strings.Contains(err.Error(), "bomb") {
		t.Fatal(err)
	}
	if e := exitOf(t, out); e.Code != run.ExitDevice || e.Step < 3 {
		t.Errorf("exit.json says %+v", e)
	}
}

// bomb is an op that panics.
type bomb struct{}

func (bomb) Name() string                       { return "bomb" }
func (bomb) Access() (reads, writes []gpu.Span) { return nil, nil }
func (bomb) Cost() gpu.Cost                     { return gpu.Cost{} }
func (bomb) BindHost(gpu.Host) func()           { return func() { panic("for the test") } }
func (bomb) Launch(gpu.Launcher) error          { return errors.New("not for CUDA") }

func kill(t *testing.T, d gpu.Device) {
	q, err := d.NewQueue("test")
	if err != nil {
		t.Error(err)
		return
	}
	b, err := d.Bind(bomb{}, nil)
	if err = errors.Join(err, q.Do(b)); err != nil {
		t.Error(err)
	}
}

// TestTornMetricsLine: a line that a kill cut short stays alone, whole lines stay
// as they are, and the file is not read into memory for that.
func TestTornMetricsLine(t *testing.T) {
	for _, before := range []string{"", "{\"type\":\"step\"}\n", "{\"type\":\"step\"}\n{\"ty"} {
		out := filepath.Join(t.TempDir(), "run")
		f, err := run.OpenFolder(out)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(out, run.MetricsFile)
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if err := f.Append(map[string]int{"line": i}); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		want := before
		if want != "" && !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
		want += "{\"line\":0}\n{\"line\":1}\n"
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, []byte(want)) {
			t.Error(fmt.Sprintf("after %q: %q, want %q", before, got, want), err)
		}
	}
}
