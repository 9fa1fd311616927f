//go:build cuda && cudaheaders

package cuda

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"refrain/gpu"
	"refrain/kernels"
)

// small is a whole life of a device: memory, two queues, copies, a kernel, a wait of
// the host, and the end. It returns the first error, and that of Close.
func small(ctx context.Context, drv *Driver) (err, closing error) {
	dev, err := drv.Open(0)
	if err != nil {
		return err, nil
	}
	var host gpu.Pinned
	var e gpu.Event
	err = dev.Run(ctx, func() error {
		x, err := dev.Alloc(4096, "x")
		if err != nil {
			return err
		}
		if host, err = dev.AllocPinned(4096); err != nil {
			return err
		}
		var q [2]gpu.Queue
		for i := range q {
			if q[i], err = dev.NewQueue(fmt.Sprint("queue ", i)); err != nil {
				return err
			}
		}
		if e, err = dev.NewEvent(); err != nil {
			return err
		}
		op, err := kernels.Fill.Op(kernels.FillArgs{X: gpu.NewTensor(x, gpu.F32, 1024), Value: 3})
		if err != nil {
			return err
		}
		b, err := dev.Bind(op, func(s gpu.Span) gpu.Span { return s })
		if err != nil {
			return err
		}
		for _, call := range []func() error{
			func() error { return q[0].Upload(x, host, 0) }, func() error { return q[0].Record(e) },
			func() error { return q[1].Wait(e) }, func() error { return q[1].Do(b) },
			func() error { return q[1].Download(host, 0, x) }, func() error { return q[1].Record(e) },
		} {
			if err := call(); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = e.Sync(ctx)
	}
	if err == nil && gpu.BytesToFloat32s(host.Bytes())[7] != 3 {
		err = errors.New("no error, and the result is wrong")
	}
	closing = dev.Close() // and with it what is under way
	if host != nil {
		closing = errors.Join(closing, host.Free())
	}
	return err, closing
}

// TestEveryCallMayFail lets every call of the driver fail in turn, in the call or in the
// work that it enqueued, with a code that passes and with one that kills the device:
// there is an error of ours that names the call, no panic, no wait without end, and the
// next device works.
func TestEveryCallMayFail(t *testing.T) {
	for _, kind := range []string{"fault-code=2", "fault-code=700", "fault-code=700 fault-later=1"} {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			met := 0
			for n := 1; ; n++ {
				drv := simulated(t, fmt.Sprintf("devices=1 fault=* fault-at=%d %s", n, kind))
				err, closing := small(ctx, drv)
				if ctx.Err() != nil {
					t.Fatalf("call %d: still waiting after a minute", n)
				}
				if err == nil && closing == nil {
					if n > 200 {
						break // more than there are calls
					}
					continue // a call whose result nobody needs, such as a query
				}
				met++
				var e *Error
				if !errors.As(errors.Join(err, closing), &e) || e.Op == "" || e.Name == "" {
					t.Errorf("call %d: %v; %v: no error of the driver in it", n, err, closing)
				}
			}
			if met < 5 {
				t.Errorf("only %d calls failed", met)
			}
			if err, closing := small(ctx, simulated(t, "devices=1")); err != nil || closing != nil {
				t.Errorf("afterwards: %v; %v", err, closing)
			}
		})
	}
}
