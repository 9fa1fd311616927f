//go:build cuda && cudaheaders

package run_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"refrain/gpu"
	"refrain/gpu/cuda"
	"refrain/internal/run"
)

// losses trains ten steps and returns their losses.
func losses(t *testing.T, dir string, overrides ...string) (all []float64) {
	t.Helper()
	overrides = append(overrides, "train.epochs=0", "train.steps=10", "train.shards=4", "eval.every=10", "eval.rows=8", "save.every=0")
	out := filepath.Join(t.TempDir(), "run")
	if _, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, overrides...), Out: out}); err != nil {
		t.Fatal(err)
	}
	for _, m := range ledger(t, out) {
		all = append(all, m["loss"].(float64))
	}
	return all
}

func agree(t *testing.T, got, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d steps, want %d", len(got), len(want))
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > tolerance {
			t.Errorf("step %d: loss %.6f, on the CPU %.6f", i+1, got[i], want[i])
		}
	}
}

// TestCUDAAgreesWithTheCPU trains on simulated GPUs under every schedule: losses are the
// CPU's within the rounding of the precision, and the same to the bit on one, two and
// four of them, whatever the schedule.
func TestCUDAAgreesWithTheCPU(t *testing.T) {
	if err := cuda.Simulate(""); err != nil {
		t.Skip(err)
	}
	dir := makeStore(t, 64)
	for _, p := range []struct {
		precision string
		tolerance float64
	}{{"f32", 2e-5}, {"bf16", 5e-2}} {
		t.Run(p.precision, func(t *testing.T) {
			want := losses(t, dir, "train.precision="+p.precision)
			var first []float64
			for i, devices := range []int{1, 2, 4, 4} {
				mode := []string{"eager", "random delay=50", "lazy", "random delay=50 seed=7"}[i]
				t.Run(fmt.Sprintf("%d devices %s", devices, mode), func(t *testing.T) {
					if err := cuda.Simulate("devices=4 mode=" + mode); err != nil {
						t.Fatal(err)
					}
					got := losses(t, dir, "train.precision="+p.precision, "train.device=cuda", fmt.Sprint("train.devices=", devices))
					agree(t, got, want, p.tolerance)
					if first == nil {
						first = got
					}
					agree(t, got, first, 0)
				})
			}
		})
	}
}

// TestCUDAResumesOnFewer stops a run on four GPUs and goes on on two: the losses are
// those of a run that never stopped.
func TestCUDAResumesOnFewer(t *testing.T) {
	if err := cuda.Simulate("devices=4 mode=lazy"); err != nil {
		t.Skip(err)
	}
	dir := makeStore(t, 64)
	base := []string{"train.device=cuda", "train.precision=f32", "train.epochs=0", "train.steps=8", "train.shards=4", "save.every=4", "eval.every=8", "eval.rows=8"}
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, append(base, "train.devices=4")...), Out: whole}); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "run")
	if _, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, append(base, "train.devices=4")...), Out: out, Limit: 5}); !errors.Is(err, run.ErrStopped) {
		t.Fatalf("stopping returned %v", err)
	}
	if _, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, append(base, "train.devices=2")...), Out: out, Resume: run.ResumeMust}); err != nil {
		t.Fatal(err)
	}
	a, b := ledger(t, whole), ledger(t, out)
	for i := range a {
		if a[i]["loss"] != b[i]["loss"] {
			t.Errorf("step %d: loss %v after the move, %v without", i+1, b[i]["loss"], a[i]["loss"])
		}
	}
}

// TestCUDANoise: dropout, masked rows and cycles on two simulated GPUs follow the CPU within
// rounding, since the masks are the same.
func TestCUDANoise(t *testing.T) {
	if err := cuda.Simulate("devices=2 mode=lazy"); err != nil {
		t.Skip(err)
	}
	dir := makeStore(t, 64)
	with := []string{"train.precision=f32", "model.layers=1", "regularize.dropout=0.2", "regularize.masked_weight=0.4", "optim.schedule=cyclic", "optim.cycles=2"}
	want := losses(t, dir, with...)
	agree(t, losses(t, dir, append(with, "train.device=cuda", "train.devices=2")...), want, 2e-5)
}

// lossy is a device whose queues leave out one wait, which is named by its queue and its
// number there.
type lossy struct {
	gpu.Device
	drop string
	mu   sync.Mutex
	seen []string
}

func (d *lossy) NewQueue(label string) (gpu.Queue, error) {
	q, err := d.Device.NewQueue(label)
	return &lossyQueue{Queue: q, d: d, label: label}, err
}

type lossyQueue struct {
	gpu.Queue
	d     *lossy
	label string
	waits int
}

func (q *lossyQueue) Wait(e gpu.Event) error {
	q.waits++
	name := fmt.Sprint(q.label, " ", q.waits)
	q.d.mu.Lock()
	q.d.seen = append(q.d.seen, name)
	q.d.mu.Unlock()
	if name == q.d.drop {
		return nil
	}
	return q.Queue.Wait(e)
}

// TestCUDAMissingWait trains on two simulated GPUs under the race check, once as it is,
// which finds nothing, and then with one wait left out, each in turn: it is found, or
// others stand for it, so that the lazy schedule changes no bit either.
func TestCUDAMissingWait(t *testing.T) {
	if err := cuda.Simulate("devices=2"); err != nil {
		t.Skip(err)
	}
	dir := makeStore(t, 64)
	train := func(drop, mode string, check bool) (waits []string, chain string, err error) {
		if err := cuda.Simulate("devices=2 mode=" + mode); err != nil {
			t.Fatal(err)
		}
		drv, err := cuda.New(cuda.Config{RaceCheck: check})
		if err != nil {
			t.Fatal(err)
		}
		var devs []gpu.Device
		var first *lossy
		for i := range 2 {
			d, err := drv.Open(i)
			if err != nil {
				t.Fatal(err)
			}
			l := &lossy{Device: d}
			if i == 0 {
				l.drop, first = drop, l
			}
			devs = append(devs, l)
		}
		defer func() {
			for _, d := range devs {
				_ = d.Close() // it may be dead, which is the point
			}
		}()
		s := setup(t, dir, "train.devices=2", "train.epochs=0", "train.steps=5", "train.batch=4", "data.seq=8", "eval.every=3", "eval.rows=4", "save.every=0")
		res, err := run.Train(t.Context(), run.Job{Setup: s, Out: filepath.Join(t.TempDir(), "run"), Devices: devs})
		if err != nil {
			return first.seen, "", err
		}
		return first.seen, res.Chain.String(), nil
	}
	waits, chain, err := train("", "eager", true)
	if err != nil {
		t.Fatalf("without a mistake: %v", err)
	}
	found := 0
	for _, n := range waits {
		if _, _, err := train(n, "eager", true); err != nil && strings.Contains(err.Error(), "race: ") {
			found++
			continue
		}
		if _, got, err := train(n, "lazy", false); err != nil || got != chain {
			t.Errorf("wait %s is missing unseen: chain %s, %v; want %s", n, got, err, chain)
		}
	}
	t.Logf("%d waits of a device, %d are found when they are missing", len(waits), found)
	if found < 20 {
		t.Errorf("%d of %d missing waits were found", found, len(waits))
	}
}
