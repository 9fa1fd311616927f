package train_test

import (
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/stages/item"
)

// TestDeadDeviceEndsTheRun: whichever device dies, and however far the hosts of
// the others have come, the trainer reports it soon, never a result of that
// step, and can be closed.
func TestDeadDeviceEndsTheRun(t *testing.T) {
	const bad = 3 // the step whose batch kills the device
	for _, devices := range []int{1, 2, 4} {
		for _, last := range []bool{false, true} {
			for dead := range devices {
				o := tinyOptions(devices)
				r := newRig(t, o, host.Config{Threads: devices})
				r.dead = true
				steps := o.Steps
				if last {
					steps = bad
				}
				var err error
				var seen int64
				for err == nil && r.tr.Steps() < steps {
					k := r.tr.Steps()
					b := r.batch(k)
					if k+1 == bad {
						r.spoil(dead, b)
					}
					res, ok, stepErr := r.tr.Step(t.Context(), b)
					if ok {
						seen = res.Step
					}
					err = stepErr
				}
				if err == nil {
					_, _, err = r.tr.Flush(t.Context())
				}
				want := []string{"device " + string(rune('0'+dead)), "embed"}
				for _, w := range want {
					if err == nil || !strings.Contains(err.Error(), w) {
						t.Errorf("devices=%d dead=%d last=%v: error %v, want one with %q", devices, dead, last, err, w)
					}
				}
				if seen >= bad {
					t.Errorf("devices=%d dead=%d last=%v: step %d was reported", devices, dead, last, seen)
				}
			}
		}
	}
}

// spoil overwrites the first token of b on device d by one that no vocabulary
// has, behind the upload and before the step.
func (r *rig) spoil(d int, b *item.DeviceBatch) {
	r.t.Helper()
	p, err := r.devs[d].AllocPinned(4)
	if err != nil {
		r.t.Fatal(err)
	}
	r.bufs = append(r.bufs, p)
	gpu.BytesToInt32s(p.Bytes())[0] = 1 << 30
	if err := r.qs[d].Upload(r.tr.Slot(d, b.Slot).Sub(0, 4), p, 0); err != nil {
		r.t.Fatal(err)
	}
	if err := r.qs[d].Record(b.Ready[d]); err != nil {
		r.t.Fatal(err)
	}
}
