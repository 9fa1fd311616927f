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
	Slots   int                     // slots on every device; 2 let a copy overlap a step
	Slot    func(d, s int) gpu.Span // memory of slot s on device d: item.Layout{N/len(Devices), T}.Bytes()
}

// Stage uploads batches. It implements pipeline.Stage[*item.Batch, *item.DeviceBatch].
type Stage struct {
	c      Config
	from   item.Layout // of a batch in pinned memory
	to     item.Layout // of one device's rows
	queues []gpu.Queue
	slots  *pipeline.Pool[*item.DeviceBatch]

	// What copies read: one batch is under way at a time. They are made once, so
	// that a batch allocates nothing.
	copies []func() error
	batch  *item.Batch
	slot   *item.DeviceBatch
}

// New creates the copy queues and events. Close ends the queues.
func New(ctx context.Context, c Config) (*Stage, error) {
	if len(c.Devices) == 0 || c.N < 1 || c.T < 1 || c.N%len(c.Devices) != 0 {
		return nil, fmt.Errorf("upload: %d rows of %d tokens do not divide among %d devices", c.N, c.T, len(c.Devices))
	}
	s := &Stage{c: c, from: item.Layout{N: c.N, T: c.T}, to: item.Layout{N: c.N / len(c.Devices), T: c.T}}
	for d, dev := range c.Devices {
		for i := range c.Slots {
			if m := c.Slot(d, i); m.Len < s.to.Bytes() {
				return nil, errors.Join(fmt.Errorf("upload: slot %d on device %d has %d bytes, a batch of %dx%d needs %d", i, dev.Ordinal(), m.Len, s.to.N, s.to.T, s.to.Bytes()), s.Close())
			}
		}
		err := dev.Run(ctx, func() error {
			q, err := dev.NewQueue("copy")
			if err == nil {
				s.queues = append(s.queues, q)
			}
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("upload: device %d: %w", dev.Ordinal(), err), s.Close())
		}
		s.copies = append(s.copies, func() error { return s.copy(d) })
	}
	slots, err := pipeline.NewPool(c.Slots, func(i int) (*item.DeviceBatch, error) {
		b := &item.DeviceBatch{N: c.N, T: c.T, Slot: i}
		b.Release = func() { s.slots.Put(b) }
		return b, s.events(ctx, b)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("upload: %w", err), s.Close())
	}
	s.slots = slots
	return s, nil
}

// Close ends the copy queues, after the copies they hold.
func (s *Stage) Close() error {
	var errs []error
	for d, q := range s.queues {
		errs = append(errs, s.c.Devices[d].Run(context.Background(), q.Close))
	}
	return errors.Join(errs...)
}

// events gives b its marks on every device.
func (s *Stage) events(ctx context.Context, b *item.DeviceBatch) error {
	for _, dev := range s.c.Devices {
		err := dev.Run(ctx, func() error {
			ready, err := dev.NewEvent()
			if err != nil {
				return err
			}
			free, err := dev.NewEvent()
			b.Ready, b.Free = append(b.Ready, ready), append(b.Free, free)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Run uploads until the input ends. It returns the pinned buffer of a batch
// once its copy has arrived on every device.
func (s *Stage) Run(ctx context.Context, in pipeline.In[*item.Batch], out pipeline.Out[*item.DeviceBatch]) error {
	// Copies under way read pinned memory whatever becomes of the run, so waits
	// for them do not end with it. They end: what they wait for is enqueued.
	settle := context.WithoutCancel(ctx)
	for b, err := range pipeline.Each(ctx, in) {
		if err != nil {
			return err
		}
		pipeline.AtIndex(ctx, "batch", b.Batch)
		if err := s.one(ctx, settle, b, out); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stage) one(ctx, settle context.Context, b *item.Batch, out pipeline.Out[*item.DeviceBatch]) error {
	if b.N != s.c.N || b.T != s.c.T {
		defer b.Release()
		return fmt.Errorf("batch %d is %dx%d, expected %dx%d", b.Batch, b.N, b.T, s.c.N, s.c.T)
	}
	slot, err := s.slots.Get(ctx)
	if err != nil {
		b.Release()
		return err
	}
	slot.Batch, slot.Cursor, slot.Valid, slot.CRC = b.Batch, b.Cursor, b.Valid, b.CRC
	s.batch, s.slot = b, slot
	for d, dev := range s.c.Devices {
		if err := dev.Run(ctx, s.copies[d]); err != nil {
			s.settle(settle)
			slot.Release()
			b.Release()
			return fmt.Errorf("batch %d to device %d: %w", b.Batch, dev.Ordinal(), err)
		}
	}
	ready := slot.Ready // the slot is the consumer's after Send, its marks stay ours
	err = out.Send(ctx, slot)
	// A copy may have to wait for the slot's last reader; that wait is
	// backpressure too.
	for _, e := range ready {
		if arrived := e.Sync(settle); err == nil {
			err = arrived
		}
	}
	b.Release()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// settle waits for all copies. Devices that are dead have reported it.
func (s *Stage) settle(ctx context.Context) {
	for d, dev := range s.c.Devices {
		_ = dev.Run(ctx, func() error { return s.queues[d].Sync(ctx) })
	}
}

// copy enqueues the upload of device d's rows: the slot's last reader first,
// then the three sections, then the ready mark.
func (s *Stage) copy(d int) error {
	q, slot, n := s.queues[d], s.slot, int64(s.to.N)
	if err := q.Wait(slot.Free[d]); err != nil {
		return err
	}
	dst := s.c.Slot(d, slot.Slot)
	row, bits := int64(s.c.T)*4, int64(s.to.StartsRow())
	for _, sec := range [...]struct{ src, dst, size int64 }{
		{s.from.TokensOff(), s.to.TokensOff(), n * row},
		{s.from.TargetsOff(), s.to.TargetsOff(), n * row},
		{s.from.StartsOff(), s.to.StartsOff(), n * bits},
	} {
		if err := q.Upload(dst.Sub(sec.dst, sec.size), s.batch.Host, sec.src+int64(d)*sec.size); err != nil {
			return err
		}
	}
	return q.Record(slot.Ready[d])
}
