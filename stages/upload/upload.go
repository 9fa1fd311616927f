// Package upload copies batches from the pinned ring to slots on the devices,
// on a copy queue of its own, so that the next batch travels while the current
// one is computed. The host waits for nothing but the copy it gave away.
package upload

import (
	"context"
	"errors"
	"fmt"

	"refrain/gpu"
	"refrain/pipeline"
	"refrain/stages/item"
)

// Config names the devices and where their slots are.
type Config struct {
	Devices []gpu.Device
	N, T    int                     // rows of a global batch, positions of a row
	Slots   int                     // slots on every device
	Slot    func(d, s int) gpu.Span // memory of slot s on device d: item.Layout{N/len(Devices), T}.Bytes()
}

// Stage uploads batches. It implements pipeline.Stage[*item.Batch, *item.DeviceBatch].
type Stage struct {
	c      Config
	queues []gpu.Queue
	slots  *pipeline.Pool[*item.DeviceBatch]
}

// New creates the copy queues and events.
func New(ctx context.Context, c Config) (*Stage, error) {
	if len(c.Devices) == 0 || c.N%len(c.Devices) != 0 {
		return nil, fmt.Errorf("upload: %d rows do not divide among %d devices", c.N, len(c.Devices))
	}
	s := &Stage{c: c}
	for _, d := range c.Devices {
		err := d.Run(ctx, func() error {
			q, err := d.NewQueue("copy")
			s.queues = append(s.queues, q)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("upload: device %d: %w", d.Ordinal(), err)
		}
	}
	slots, err := pipeline.NewPool(c.Slots, func(i int) (*item.DeviceBatch, error) {
		b := &item.DeviceBatch{N: c.N, T: c.T, Slot: i}
		for _, d := range c.Devices {
			ready, err := d.NewEvent()
			if err != nil {
				return nil, err
			}
			free, err := d.NewEvent()
			if err != nil {
				return nil, err
			}
			b.Ready, b.Free = append(b.Ready, ready), append(b.Free, free)
		}
		b.Release = func() { s.slots.Put(b) }
		return b, nil
	})
	if err != nil {
		return nil, fmt.Errorf("upload: %w", err)
	}
	s.slots = slots
	return s, nil
}

// Run uploads until the input ends. It returns the pinned buffer of a batch
// once its copy has arrived on every device.
func (s *Stage) Run(ctx context.Context, in pipeline.In[*item.Batch], out pipeline.Out[*item.DeviceBatch]) error {
	for b, err := range pipeline.Each(ctx, in) {
		if err != nil {
			return err
		}
		if err := s.one(ctx, b, out); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stage) one(ctx context.Context, b *item.Batch, out pipeline.Out[*item.DeviceBatch]) error {
	if b.N != s.c.N || b.T != s.c.T {
		b.Release()
		return fmt.Errorf("batch %d is %dx%d, expected %dx%d", b.Batch, b.N, b.T, s.c.N, s.c.T)
	}
	slot, err := s.slots.Get(ctx)
	if err != nil {
		b.Release()
		return err
	}
	slot.Batch, slot.Cursor, slot.Valid, slot.CRC = b.Batch, b.Cursor, b.Valid, b.CRC
	for d, dev := range s.c.Devices {
		if err := dev.Run(ctx, func() error { return s.copy(d, slot, b) }); err != nil {
			// The device is dead; nothing may reuse these buffers, and what the
			// others are copying arrives before anybody frees them.
			for _, q := range s.queues[:d] {
				err = errors.Join(err, q.Sync(context.WithoutCancel(ctx)))
			}
			return fmt.Errorf("batch %d to device %d: %w", b.Batch, dev.Ordinal(), err)
		}
	}
	ready := slot.Ready
	err = out.Send(ctx, slot)
	// The copy reads the pinned buffer whatever became of the batch and of the
	// run. It may have to wait for the slot's last reader first; that wait is
	// backpressure too.
	for _, e := range ready {
		err = errors.Join(err, e.Sync(context.WithoutCancel(ctx)))
	}
	b.Release()
	return errors.Join(err, context.Cause(ctx))
}

// copy enqueues the upload of device d's rows: the slot's last reader first,
// then the three sections, then the ready mark.
func (s *Stage) copy(d int, slot *item.DeviceBatch, b *item.Batch) error {
	q := s.queues[d]
	if err := q.Wait(slot.Free[d]); err != nil {
		return err
	}
	n := s.c.N / len(s.c.Devices)
	from, to := item.Layout{N: s.c.N, T: s.c.T}, item.Layout{N: n, T: s.c.T}
	dst := s.c.Slot(d, slot.Slot)
	row, bits := int64(s.c.T)*4, int64(to.StartsRow())
	for _, sec := range [...]struct{ src, dst, row int64 }{
		{from.TokensOff(), to.TokensOff(), row},
		{from.TargetsOff(), to.TargetsOff(), row},
		{from.StartsOff(), to.StartsOff(), bits},
	} {
		size := int64(n) * sec.row
		if err := q.Upload(dst.Sub(sec.dst, size), b.Host, sec.src+int64(d)*size); err != nil {
			return err
		}
	}
	return q.Record(slot.Ready[d])
}
