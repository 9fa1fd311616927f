package kerneltest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"refrain/gpu"
	"refrain/internal/par"
)

// OnDevice runs one case on a device and compares with the reference: results within
// the tolerance, what is only read unchanged, what is written written everywhere, and
// the same bits when it is replayed.
func OnDevice(ctx context.Context, dev gpu.Device, c Case) error {
	b := &Builder{seed: 1}
	op, err := c.Build(b)
	if err != nil {
		return err
	}
	pool := par.New(1)
	defer pool.Close()
	ref := NewHost(b, pool, true)
	if _, err := trial(b, ref, op); err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	first, err := runOnDevice(ctx, dev, b, op)
	if err != nil {
		return err
	}
	if err := touched(b, first, op); err != nil {
		return err
	}
	if err := compare(b, op, c.Exact, ref, first); err != nil {
		return fmt.Errorf("against the reference: %w", err)
	}
	again, err := runOnDevice(ctx, dev, b, op)
	if err != nil {
		return err
	}
	if err := sameBits(b, op, first, again); err != nil {
		return fmt.Errorf("run a second time: %w", err)
	}
	return nil
}

// deviceRun is the memory of a case on a device.
type deviceRun struct {
	spans []gpu.Span
	host  gpu.Pinned
	off   []int64 // of each buffer in host
	done  gpu.Event
}

// runOnDevice returns a host that holds what the buffers hold after the op.
func runOnDevice(ctx context.Context, dev gpu.Device, b *Builder, op gpu.Op) (after *Host, err error) {
	after = &Host{}
	for _, u := range b.bufs {
		after.mem = append(after.mem, slices.Clone(u.init))
		after.half = append(after.half, u.t.DType == gpu.BF16)
	}
	after.undefine(op)
	var r deviceRun
	err = dev.Run(ctx, func() error { return r.enqueue(dev, after, op) })
	if err == nil {
		err = r.done.Sync(ctx)
	}
	if err == nil {
		for i := range after.mem {
			copy(after.mem[i], r.host.Bytes()[r.off[i]:])
		}
	}
	free := dev.Run(ctx, func() error {
		var errs []error
		for _, s := range r.spans {
			errs = append(errs, dev.Free(s))
		}
		return errors.Join(errs...)
	})
	if r.host != nil {
		free = errors.Join(free, r.host.Free())
	}
	return after, errors.Join(err, free)
}

// enqueue uploads the buffers, runs the op and downloads them, on one queue.
func (r *deviceRun) enqueue(dev gpu.Device, h *Host, op gpu.Op) (err error) {
	var total int64
	for _, m := range h.mem {
		s, err := dev.Alloc(int64(len(m)), "case")
		if err != nil {
			return err
		}
		r.spans, r.off = append(r.spans, s), append(r.off, total)
		total += (int64(len(m)) + 63) &^ 63
	}
	if r.host, err = dev.AllocPinned(total); err != nil {
		return err
	}
	for i, m := range h.mem {
		copy(r.host.Bytes()[r.off[i]:], m)
	}
	q, err := dev.NewQueue("case")
	if err != nil {
		return err
	}
	if r.done, err = dev.NewEvent(); err != nil {
		return err
	}
	bound, err := dev.Bind(op, func(s gpu.Span) gpu.Span { return r.spans[s.Mem].Sub(s.Off, s.Len) })
	if err != nil {
		return err
	}
	for i, s := range r.spans {
		err = errors.Join(err, q.Upload(s, r.host, r.off[i]))
	}
	err = errors.Join(err, q.Do(bound))
	for i, s := range r.spans {
		err = errors.Join(err, q.Download(r.host, r.off[i], s))
	}
	return errors.Join(err, q.Record(r.done), q.Close())
}
