//go:build cuda && cudaheaders

package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/kernels"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simulated returns the driver over the simulator with these settings.
func simulated(t *testing.T, settings string) *Driver {
	t.Helper()
	if err := Simulate(settings); err != nil {
		t.Skip(err)
	}
	d, err := New(Config{Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// opened opens a device until the test ends.
func opened(t *testing.T, d *Driver, ordinal int) *Device {
	t.Helper()
	dev, err := d.Open(ordinal)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil && dev.(*Device).failure() == nil {
			t.Error(err)
		}
	})
	return dev.(*Device)
}

// inside runs f on the device's goroutine.
func inside(t *testing.T, d *Device, f func() error) {
	t.Helper()
	if err := d.Run(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

var modes = []string{"mode=eager", "mode=random", "mode=lazy"}

// rig is a device with what the tests of copies and kernels need.
type rig struct {
	t    *testing.T
	d    *Device
	q    [2]gpu.Queue
	e    gpu.Event
	x, y gpu.Span
	host gpu.Pinned // [2, elems] f32
}

const elems = 10_000

func newRig(t *testing.T, settings string) *rig {
	r := &rig{t: t, d: opened(t, simulated(t, settings), 0)}
	inside(t, r.d, func() (err error) {
		for i := range r.q {
			if r.q[i], err = r.d.NewQueue(fmt.Sprintf("queue %d", i)); err != nil {
				return err
			}
		}
		if r.e, err = r.d.NewEvent(); err != nil {
			return err
		}
		if r.x, err = r.d.Alloc(4*elems, "x"); err != nil {
			return err
		}
		if r.y, err = r.d.Alloc(4*elems, "y"); err != nil {
			return err
		}
		r.host, err = r.d.AllocPinned(8 * elems)
		return err
	})
	t.Cleanup(func() {
		if err := r.host.Free(); err != nil {
			t.Error(err)
		}
	})
	for i := range elems {
		r.in()[i] = float32(i) / 3
	}
	return r
}

func (r *rig) in() []float32  { return gpu.BytesToFloat32s(r.host.Bytes())[:elems] }
func (r *rig) out() []float32 { return gpu.BytesToFloat32s(r.host.Bytes())[elems:] }

// op binds a kernel over spans of the device.
func (r *rig) op(o gpu.Op, err error) gpu.Bound {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := r.d.Bind(o, func(s gpu.Span) gpu.Span { return s })
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *rig) tensor(s gpu.Span) gpu.Tensor { return gpu.NewTensor(s, gpu.F32, elems) }

// TestKernelsBetweenQueues uploads on one queue, computes on another and downloads on
// the first, with a wait at each crossing: y = x + 1 + x.
func TestKernelsBetweenQueues(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			r := newRig(t, mode)
			inside(t, r.d, func() error {
				fill := r.op(kernels.Fill.Op(kernels.FillArgs{X: r.tensor(r.y), Value: 1}))
				add := r.op(kernels.AddTo.Op(kernels.AddToArgs{Dst: r.tensor(r.y), Src: r.tensor(r.x)}))
				return errors.Join(
					r.q[0].Upload(r.x, r.host, 0), r.q[0].Record(r.e),
					r.q[1].Do(fill), r.q[1].Wait(r.e), r.q[1].Do(add), r.q[1].Do(add), r.q[1].Record(r.e),
					r.q[0].Wait(r.e), r.q[0].Download(r.host, 4*elems, r.y), r.q[0].Record(r.e),
				)
			})
			if err := r.e.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, got := range r.out() {
				if want := 1 + r.in()[i] + r.in()[i]; got != want {
					t.Fatalf("element %d is %v, want %v", i, got, want)
				}
			}
		})
	}
}

// TestMissingWaitShows: without the wait between the queues the lazy schedule computes
// on memory that nobody has written yet, every time.
func TestMissingWaitShows(t *testing.T) {
	r := newRig(t, "mode=lazy")
	for range 5 {
		inside(t, r.d, func() error {
			clear := r.op(kernels.Fill.Op(kernels.FillArgs{X: r.tensor(r.x), Value: -1}))
			move := r.op(kernels.Copy.Op(kernels.CopyArgs{Dst: r.tensor(r.y), Src: r.tensor(r.x)}))
			return errors.Join(
				r.q[0].Do(clear), r.q[0].Sync(t.Context()),
				r.q[0].Upload(r.x, r.host, 0), // and no wait for it
				r.q[1].Do(move), r.q[1].Download(r.host, 4*elems, r.y), r.q[1].Record(r.e),
			)
		})
		if err := r.e.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := r.out()[7]; got != -1 {
			t.Fatalf("element 7 is %v: the upload ran although nobody waited for it", got)
		}
		inside(t, r.d, func() error { return r.q[0].Sync(t.Context()) }) // before its memory goes
	}
}

// TestPeers passes a value round a ring of devices.
func TestPeers(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			const n = 4
			drv := simulated(t, "devices=4 "+mode)
			var devs [n]*Device
			var mem [n]gpu.Span
			var q [n]gpu.Queue
			var e [n]gpu.Event
			for i := range n {
				devs[i] = opened(t, drv, i)
				inside(t, devs[i], func() (err error) {
					if mem[i], err = devs[i].Alloc(4096, "ring"); err != nil {
						return err
					}
					if q[i], err = devs[i].NewQueue("ring"); err != nil {
						return err
					}
					e[i], err = devs[i].NewEvent()
					return err
				})
			}
			var host gpu.Pinned
			inside(t, devs[0], func() (err error) {
				if host, err = devs[0].AllocPinned(8192); err != nil {
					return err
				}
				for i := range 4096 {
					host.Bytes()[i] = byte(i * 7)
				}
				return errors.Join(q[0].Upload(mem[0], host, 0), q[0].Record(e[0]))
			})
			for i := range n {
				to := (i + 1) % n
				inside(t, devs[to], func() error {
					return errors.Join(q[to].Wait(e[i]), q[to].CopyPeer(mem[to], mem[i]), q[to].Record(e[to]))
				})
			}
			inside(t, devs[0], func() error { return errors.Join(q[0].Download(host, 4096, mem[0]), q[0].Record(e[0])) })
			if err := e[0].Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i := range 4096 {
				if got := host.Bytes()[4096+i]; got != byte(i*7) {
					t.Fatalf("byte %d is %d, want %d", i, got, byte(i*7))
				}
			}
			if err := host.Free(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestFailureOfWork: an error that the GPU meets while it runs kills the device with
// the driver's words for it, and nobody waits for ever.
func TestFailureOfWork(t *testing.T) {
	r := newRig(t, "fault=cuLaunchKernel fault-at=2 fault-later=1 fault-code=700")
	inside(t, r.d, func() error {
		fill := r.op(kernels.Fill.Op(kernels.FillArgs{X: r.tensor(r.x), Value: 1}))
		for range 3 {
			if err := r.q[0].Do(fill); err != nil {
				return nil // it may be met already
			}
		}
		_ = r.q[0].Record(r.e)
		return nil
	})
	err := r.e.Sync(t.Context())
	var e *Error
	if !errors.Is(err, gpu.ErrDevice) || !errors.As(err, &e) || e.Code != 700 {
		t.Fatalf("waiting returned %v, want the failure 700", err)
	}
	if err := r.d.Run(t.Context(), func() error { return r.q[1].Upload(r.x, r.host, 0) }); !errors.Is(err, gpu.ErrDevice) {
		t.Errorf("a later call returned %v, want the device's failure", err)
	}
}

// TestHang: work that does not end is given up after the deadline, and the message
// names the queue and what it was given.
func TestHang(t *testing.T) {
	r := newRig(t, "fault=cuLaunchKernel fault-at=1 fault-hang=1")
	r.d.driver.deadline = 100 * time.Millisecond
	inside(t, r.d, func() error {
		return errors.Join(r.q[1].Do(r.op(kernels.Fill.Op(kernels.FillArgs{X: r.tensor(r.x), Value: 1}))), r.q[1].Record(r.e))
	})
	err := r.e.Sync(t.Context())
	var h *Hang
	if !errors.As(err, &h) || !errors.Is(err, gpu.ErrDevice) {
		t.Fatalf("waiting returned %v, want a Hang", err)
	}
	if s := h.Error(); !strings.Contains(s, "queue 1") || !strings.Contains(s, "fill") {
		t.Errorf("%q names neither queue nor op", s)
	}
}

// TestMemory: what does not fit is refused with the need, the rest and its holders.
func TestMemory(t *testing.T) {
	d := opened(t, simulated(t, "memory=1M"), 0)
	inside(t, d, func() error {
		weights, err := d.Alloc(700<<10, "weights")
		if err != nil {
			return err
		}
		_, err = d.Alloc(700<<10, "moments")
		var e *Error
		if !errors.As(err, &e) || e.Code != codeOutOfMemory {
			return fmt.Errorf("the second allocation returned %v", err)
		}
		for _, part := range []string{"moments", "716800 bytes", "weights holds 716800"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not name %q", err, part)
			}
		}
		if err := d.Free(weights); err != nil {
			return err
		}
		if err := d.Free(weights); err == nil {
			t.Error("memory was freed twice")
		}
		_, err = d.Alloc(700<<10, "moments")
		return err
	})
}

// TestNoGPU: a driver without a GPU, one that refuses, and no driver at all say so. The
// driver starts with the process, so each is another process of this test.
func TestNoGPU(t *testing.T) {
	if os.Getenv("REFRAIN_SIM_CHILD") != "" {
		_, err := New(Config{})
		fmt.Println("child:", err)
		return
	}
	for _, c := range []struct{ name, driver, settings, part string }{
		{"no GPU", "", "devices=0", "no GPU is visible"},
		{"mismatch", "", "init=803", "differ in version"},
		{"no permission", "", "init=800", "permissions"},
		{"no driver", "libno-such-driver.so", "", "no CUDA driver: libno-such-driver.so"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := Simulate(""); err != nil {
				t.Skip(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestNoGPU$", "-test.v")
			cmd.Env = append(os.Environ(), "REFRAIN_SIM_CHILD=1", "REFRAIN_SIM="+c.settings)
			if c.driver != "" {
				cmd.Env = append(cmd.Env, "REFRAIN_CUDA_DRIVER="+c.driver)
			}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.part) {
				t.Errorf("%v; the output does not say %q:\n%s", err, c.part, out)
			}
		})
	}
}

// TestIdle: the queue that waited was idle, and the one it waited for was not.
func TestIdle(t *testing.T) {
	r := newRig(t, "mode=random delay=20000 seed=3")
	for range 6 {
		inside(t, r.d, func() error {
			fill := r.op(kernels.Fill.Op(kernels.FillArgs{X: r.tensor(r.x), Value: 1}))
			return errors.Join(r.q[0].Do(fill), r.q[0].Do(fill), r.q[0].Record(r.e), r.q[1].Wait(r.e), r.q[1].Do(fill), r.q[1].Record(r.e))
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := r.e.Sync(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	if r.q[1].Idle() == 0 {
		t.Error("a queue that waited for another was never idle")
	}
}
