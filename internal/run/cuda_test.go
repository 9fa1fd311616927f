//go:build cuda && cudaheaders

package run_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"testing"

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
