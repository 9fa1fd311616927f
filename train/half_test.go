package train_test

import (
	"math"
	"testing"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/model"
	"refrain/train"
)

// halfOptions are tinyOptions in mixed precision.
func halfOptions(devices int) train.Options {
	o := tinyOptions(devices)
	o.Policy = model.Policy{Act: gpu.BF16}
	return o
}

// TestHalfBitsDoNotDependOnDevicesOrThreads is DESIGN D6 in mixed precision.
func TestHalfBitsDoNotDependOnDevicesOrThreads(t *testing.T) { sameBits(t, halfOptions) }

// TestHalfRestoreEqualsNeverStopped: the masters are f32, so a checkpoint holds
// all there is to hold.
func TestHalfRestoreEqualsNeverStopped(t *testing.T) { restoreEquals(t, halfOptions) }

// TestRow36HalfTrainsAsWell: mixed precision follows f32 within 0.03 nats for ten steps
// of a loss of about 4. Then rounding has grown, as any difference does at this
// learning rate: within 0.1 at every one of sixty steps, and 0.05 on average over
// the last twenty, of a loss that has fallen by 1.5.
func TestRow36HalfTrainsAsWell(t *testing.T) {
	o, h := tinyOptions(1), halfOptions(1)
	o.Steps, h.Steps = 60, 60
	full, mixed := newRig(t, o, host.Config{Threads: 2}).run(60), newRig(t, h, host.Config{Threads: 2}).run(60)
	var early, worst, late float64
	equal := 0
	for i := range full {
		d := mixed[i].Loss - full[i].Loss
		worst = max(worst, math.Abs(d))
		if i < 10 {
			early = worst
		}
		if d == 0 {
			equal++
		}
		if i >= 40 {
			late += d / 20
		}
	}
	t.Logf("last loss %.4f in f32, %.4f in bf16; largest difference %.2g in ten steps, %.2g in all; mean of the last twenty %+.2g", full[59].Loss, mixed[59].Loss, early, worst, late)
	if early > 0.03 || worst > 0.1 || math.Abs(late) > 0.05 {
		t.Error("want at most 0.03, 0.1 and 0.05")
	}
	if equal == len(full) {
		t.Error("every loss is that of f32: nothing was rounded")
	}
}

// TestHalfFootprint: mixed precision adds two bytes for every element of a matrix
// that is multiplied, and takes two away for every element of a branch.
func TestHalfFootprint(t *testing.T) {
	o, h := tinyOptions(1), halfOptions(1)
	o.Batch, h.Batch = 64, 64
	uses := func(o *train.Options) map[string]int64 {
		n, err := train.Footprint(o)
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]int64{}
		for _, u := range n.Memory {
			m[u.Label] = u.Bytes
		}
		return m
	}
	full, mixed := uses(&o), uses(&h)
	for label, n := range full {
		if label != "activations" && mixed[label] != n {
			t.Errorf("%s take %d bytes in bf16, %d in f32", label, mixed[label], n)
		}
	}
	if a, b := mixed["activations"], full["activations"]; a >= b*3/4 || a <= b/2 {
		t.Errorf("activations take %d bytes in bf16, %d in f32; want between half and three quarters", a, b)
	}
}
