// Package batch turns row requests into global batches in a ring of pinned
// host buffers. Rows are gathered straight into the buffer that the device
// copies from; when no buffer is free the stage waits, and that wait is the
// chain's backpressure.
package batch

import (
	"context"
	"errors"
	"fmt"

	"refrain/gpu"
	"refrain/pipeline"
	"refrain/stages/item"
)

// Config is the shape of a batch and of the ring.
type Config struct {
	N, T    int // rows of a global batch, positions of a row
	Ring    int // pinned buffers; at least 2, so that one fills while one is copied
	Workers int // batches gathered at the same time; 0 means 1
	Vocab   int // ids are checked against it; 0 leaves that to the reader
}

// Stage gathers batches. It implements pipeline.Stage[item.Rows, *item.Batch].
type Stage struct {
	c    Config
	ring *pipeline.Pool[*item.Batch]
	past uint32 // moves a CRC past the section of targets
}

// New allocates the ring on d. Close frees it.
func New(d gpu.Device, c Config) (*Stage, error) {
	if c.N < 1 || c.T < 1 || c.Ring < 2 || c.Vocab < 0 {
		return nil, fmt.Errorf("batch: %d rows of %d tokens in a ring of %d, vocabulary %d; need at least 1, 1, 2 and 0", c.N, c.T, c.Ring, c.Vocab)
	}
	c.Workers = max(1, c.Workers)
	lay := item.Layout{N: c.N, T: c.T}
	s := &Stage{c: c, past: power(8 * (lay.StartsOff() - lay.TargetsOff()))}
	var made []gpu.Pinned
	ring, err := pipeline.NewPool(c.Ring, func(int) (*item.Batch, error) {
		var p gpu.Pinned
		err := d.Run(context.Background(), func() (err error) {
			p, err = d.AllocPinned(lay.Bytes())
			return err
		})
		if err != nil {
			return nil, err
		}
		made = append(made, p)
		b := &item.Batch{N: c.N, T: c.T, Host: p}
		b.Release = func() { s.ring.Put(b) }
		return b, nil
	})
	if err != nil {
		for _, p := range made {
			err = errors.Join(err, p.Free())
		}
		return nil, fmt.Errorf("batch: %w", err)
	}
	s.ring = ring
	return s, nil
}

// Close frees the ring. Every batch must have been released.
func (s *Stage) Close() error {
	var errs []error
	if s.ring.Len() != s.ring.Cap() {
		errs = append(errs, fmt.Errorf("batch: %d of %d buffers were never released", s.ring.Cap()-s.ring.Len(), s.ring.Cap()))
	}
	for _, b := range s.ring.All() {
		errs = append(errs, b.Host.Free())
	}
	return errors.Join(errs...)
}

// work is a request with the buffer it will fill.
type work struct {
	rows item.Rows
	into *item.Batch
}

// buffered attaches buffers to requests in input order. Were the gatherers to
// take buffers themselves, later batches could take all of them and starve the
// one that everybody waits for.
type buffered struct {
	in   pipeline.In[item.Rows]
	ring *pipeline.Pool[*item.Batch]
}

func (b buffered) Recv(ctx context.Context) (work, error) {
	rows, err := b.in.Recv(ctx)
	if err != nil {
		return work{}, err
	}
	buf, err := b.ring.Get(ctx)
	return work{rows, buf}, err
}

// Run gathers until the input ends.
func (s *Stage) Run(ctx context.Context, in pipeline.In[item.Rows], out pipeline.Out[*item.Batch]) error {
	if s.c.Workers == 1 {
		return s.serial(ctx, in, out)
	}
	gather := pipeline.Ordered(s.c.Workers, func(ctx context.Context, w work) (*item.Batch, error) {
		pipeline.AtIndex(ctx, "batch", w.rows.Batch)
		if err := s.fill(w); err != nil {
			w.into.Release()
			return nil, err
		}
		return w.into, nil
	})
	return gather.Run(ctx, buffered{in, s.ring}, out)
}

func (s *Stage) serial(ctx context.Context, in pipeline.In[item.Rows], out pipeline.Out[*item.Batch]) error {
	for rows, err := range pipeline.Each(ctx, in) {
		if err != nil {
			return err
		}
		pipeline.AtIndex(ctx, "batch", rows.Batch)
		buf, err := s.ring.Get(ctx)
		if err != nil {
			return err
		}
		if err := s.fill(work{rows, buf}); err != nil {
			buf.Release()
			return err
		}
		if err := out.Send(ctx, buf); err != nil {
			return err
		}
	}
	return nil
}

// lookWords is how many tokens are gathered before they are looked at again: they and
// their targets are then still in the first-level cache.
const lookWords = 2048

// fill gathers the rows of w and stamps the batch.
func (s *Stage) fill(w work) error {
	b, r := w.into, w.rows
	if r.N != s.c.N {
		return fmt.Errorf("batch %d: %d rows requested, the ring holds %d", r.Batch, r.N, s.c.N)
	}
	lay := item.Layout{N: b.N, T: b.T}
	mem := b.Host.Bytes()[:lay.Bytes()]
	tokens, targets := gpu.BytesToInt32s(mem[:lay.TargetsOff()]), gpu.BytesToInt32s(mem[lay.TargetsOff():lay.StartsOff()])
	starts := mem[lay.StartsOff():]
	b.Batch, b.Cursor, b.Valid = r.Batch, r.Cursor, 0
	var sum, sumTargets uint32 // of each section alone, since they are filled side by side
	for from, block := 0, max(1, lookWords/b.T); from < b.N; from += block {
		to := min(from+block, b.N)
		for i := from; i < to; i++ {
			g := r.Cursor.Window + int64(i)
			n, err := r.Reader.ReadRow(g, tokens[i*b.T:(i+1)*b.T], targets[i*b.T:(i+1)*b.T], starts[i*lay.StartsRow():(i+1)*lay.StartsRow()])
			if err != nil {
				if before := s.checkRows(r, tokens, targets, from, i); before != nil {
					err = before // it comes first
				} else {
					err = fmt.Errorf("batch %d, window %d: %w", r.Batch, g, err)
				}
				return err
			}
			b.Valid += int64(n)
		}
		var top, topTarget uint32
		sum, top = look(sum, tokens[from*b.T:to*b.T], 0)
		sumTargets, topTarget = look(sumTargets, targets[from*b.T:to*b.T], 1)
		if top >= uint32(s.c.Vocab) || topTarget > uint32(s.c.Vocab) {
			if err := s.checkRows(r, tokens, targets, from, to); err != nil {
				return err
			}
		}
	}
	sum, _ = look(sum, tokens[b.N*b.T:], 0) // what aligns the sections is in the sum too
	sumTargets, _ = look(sumTargets, targets[b.N*b.T:], 0)
	b.CRC, _ = look(times(s.past, sum)^sumTargets, gpu.BytesToInt32s(starts), 0)
	return nil
}

// checkRows checks the ids of rows [from, to) of a batch.
func (s *Stage) checkRows(r item.Rows, tokens, targets []int32, from, to int) error {
	if s.c.Vocab == 0 {
		return nil
	}
	for i := from; i < to; i++ {
		at, end := i*s.c.T, (i+1)*s.c.T
		if err := checkIDs(tokens[at:end], targets[at:end], s.c.Vocab); err != nil {
			return fmt.Errorf("batch %d, window %d: %w", r.Batch, r.Cursor.Window+int64(i), err)
		}
	}
	return nil
}

// checkIDs makes sure that no kernel reads beside a table of vocab rows. Masked
// targets are -1.
func checkIDs(tokens, targets []int32, vocab int) error {
	for t, id := range tokens {
		if uint32(id) >= uint32(vocab) {
			return fmt.Errorf("position %d holds token %d, outside [0,%d); the store is damaged or of another tokenizer: run data verify on it", t, id, vocab)
		}
	}
	for t, id := range targets {
		if uint32(id+1) > uint32(vocab) {
			return fmt.Errorf("position %d has target %d, outside [-1,%d); the store is damaged or of another tokenizer: run data verify on it", t, id, vocab)
		}
	}
	return nil
}
