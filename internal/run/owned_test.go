package run_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"refrain/gpu"
	"refrain/gpu/gputest"
	"refrain/gpu/host"
	"refrain/internal/run"
	"refrain/stages/evals"
)

// TestCallsComeFromTheDevicesGoroutine is a whole run, stopped and resumed, on
// devices that only their own goroutine may call, as CUDA contexts demand.
func TestCallsComeFromTheDevicesGoroutine(t *testing.T) {
	dir := makeStore(t, 64)
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := setup(t, dir, fmt.Sprintf("train.devices=%d", n), "train.epochs=1")
			drv := host.New(host.Config{Devices: n, Threads: n})
			var devs []gpu.Device
			for i := range n {
				d, err := drv.Open(i)
				if err != nil {
					t.Fatal(err)
				}
				o := gputest.Owned(t, d)
				devs = append(devs, o)
				t.Cleanup(func() {
					if err := o.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			evaluated, before := 0, int64(0)
			j := run.Job{
				Setup: s, Out: filepath.Join(t.TempDir(), "run"), Resume: run.ResumeAuto, Devices: devs, Limit: 5,
				OnStart: func(*run.Running) { before = devs[0].(*gputest.Device).Syncs() },
				Watch: &watcher{onEval: func(evals.Result) {
					evaluated++
					if n := devs[0].(*gputest.Device).Syncs() - before; n > 0 {
						t.Errorf("the device's goroutine waited %d times for the device while the run went on; steps wait behind it", n)
					}
				}},
			}
			if _, err := run.Train(t.Context(), j); run.ExitCode(err) != run.ExitResumable {
				t.Fatal(err)
			}
			j.Limit = 0
			res, err := run.Train(t.Context(), j)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range devs {
				if n := d.(*gputest.Device).Queues(); n > 0 {
					t.Errorf("%d queues are left on device %d, which more runs will use", n, d.Ordinal())
				}
				if m := d.Memory(); len(m) > 1 || len(m) == 1 && m[0].Label != "scratch" {
					t.Errorf("device %d still holds %v", d.Ordinal(), m)
				}
			}
			if res.Path == "" || res.Val == nil || evaluated == 0 {
				t.Errorf("path %q, %d evaluations: nothing was tested", res.Path, evaluated)
			}
		})
	}
}
