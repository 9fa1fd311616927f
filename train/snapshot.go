package train

import (
	"context"
	"errors"
	"fmt"

	"refrain/gpu"
)

// Snapshot is a copy of the model as it was after Step updates, in pinned
// memory that belongs to whoever holds it until Release.
type Snapshot struct {
	Step    int64
	Weights []float32 // Layout().Total elements, valid after Wait
	M, V    []float32 // nil unless taken with moments

	pool  *SnapshotPool
	buf   gpu.Pinned
	ready gpu.Event
}

// Wait blocks until the copy has arrived. It fails if a step up to this one
// was not finite: such a model is never handed out.
func (s *Snapshot) Wait(ctx context.Context) error {
	if err := s.ready.Sync(ctx); err != nil {
		return err
	}
	if gpu.BytesToInt32s(s.buf.Bytes())[0] != 0 {
		return fmt.Errorf("snapshot of step %d: %w", s.Step, ErrNotFinite)
	}
	return nil
}

// Pinned returns the memory of the snapshot and the byte in it at which Weights
// begins. It is the caller's to read until Release, after Wait.
func (s *Snapshot) Pinned() (p gpu.Pinned, weights int64) { return s.buf, snapshotHeader }

// Release gives the memory back. The snapshot must not be used afterwards.
func (s *Snapshot) Release() { s.pool.free <- s }

// SnapshotPool is a fixed number of snapshot buffers.
type SnapshotPool struct {
	free chan *Snapshot
	all  []*Snapshot
}

const snapshotHeader = 64 // bytes before the weights: the halt flag

// NewSnapshotPool allocates n snapshots on the first device, with or without
// moments: 4 or 12 bytes a parameter each.
func (t *Trainer) NewSnapshotPool(n int, moments bool) (*SnapshotPool, error) {
	p := &SnapshotPool{free: make(chan *Snapshot, n)}
	total, parts := t.l.Total, 1
	if moments {
		parts = 3
	}
	d := t.reps[0].d
	for range n {
		s := &Snapshot{pool: p}
		err := d.Run(context.Background(), func() (err error) {
			if s.ready, err = d.NewEvent(); err != nil {
				return err
			}
			s.buf, err = d.AllocPinned(snapshotHeader + int64(total)*4*int64(parts))
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("train: snapshot: %w", err), p.Close())
		}
		f := gpu.BytesToFloat32s(s.buf.Bytes())[snapshotHeader/4:]
		s.Weights = f[:total:total]
		if moments {
			s.M, s.V = f[total:2*total:2*total], f[2*total:3*total]
		}
		p.all = append(p.all, s)
		p.free <- s
	}
	return p, nil
}

// Close waits for the copies into the buffers, which go on whoever has lost
// interest in them, and frees them. All snapshots must have been released.
func (p *SnapshotPool) Close() error {
	var errs []error
	if len(p.free) != len(p.all) {
		errs = append(errs, fmt.Errorf("train: %d of %d snapshots were never released", len(p.all)-len(p.free), len(p.all)))
	}
	for _, s := range p.all {
		// A dead device has reported its error already, and copies no more.
		_ = s.ready.Sync(context.Background())
		errs = append(errs, s.buf.Free())
	}
	p.all = nil
	return errors.Join(errs...)
}

// TrySnapshot enqueues a copy of the model as of the last step enqueued, into a
// buffer of p. It returns nil without an error when every buffer is in use.
func (t *Trainer) TrySnapshot(p *SnapshotPool) (*Snapshot, error) {
	select {
	case s := <-p.free:
		return t.snapshot(s)
	default:
		return nil, nil
	}
}

// Snapshot is TrySnapshot, but waits for a buffer.
func (t *Trainer) Snapshot(ctx context.Context, p *SnapshotPool) (*Snapshot, error) {
	select {
	case s := <-p.free:
		return t.snapshot(s)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// snapshot enqueues downloads on the math queue, after the step and before the
// next one: the device pays one copy, the host nothing.
func (t *Trainer) snapshot(s *Snapshot) (*Snapshot, error) {
	s.Step = t.step
	r := t.reps[0]
	// The device's goroutine only enqueues, so this wait is short.
	if err := r.d.Run(context.Background(), func() error { return r.copyTo(s) }); err != nil {
		s.Release()
		return nil, fmt.Errorf("train: snapshot of step %d: %w", t.step, err)
	}
	return s, nil
}

// copyTo enqueues the copies into s and marks their end, also when one of them
// was refused: those before it may still be under way when the buffer is freed.
func (r *replica) copyTo(s *Snapshot) error {
	q := r.lanes[gpu.Math]
	err := q.Download(s.buf, 0, r.memory[extHalt])
	off := int64(snapshotHeader)
	names := []string{extParams}
	if s.M != nil {
		names = []string{extParams, extM, extV}
	}
	for _, n := range names {
		if err == nil {
			err = q.Download(s.buf, off, r.memory[n])
			off += r.memory[n].Len
		}
	}
	if markErr := q.Record(s.ready); err == nil {
		err = markErr
	}
	return err
}
