package repack

import (
	"context"
	"fmt"
	"math"

	"refrain/pipeline"
	"refrain/stages/item"
)

// Feed is what a Source asks rows of: a Stream, or a Mixture of two.
type Feed interface {
	item.RowReader

	// Epochs returns the position of window g as a number of passes over the data.
	Epochs(g int64) float64
	// CheckBatch returns an error when a global batch of n rows cannot be served.
	CheckBatch(n int) error
	// State returns the state in which g is the next window, and Resume that window.
	State(g int64) State
	Resume(st State) (g int64, err error)

	maxWindow() int64
	ahead(ctx context.Context, group *pipeline.Group) lookout
}

// lookout is told of windows [g, g+n) before they are asked for, in rising order, and has
// ready what they need. It returns where g is.
type lookout func(g int64, n int) (item.Cursor, error)

// Endless as endBatch makes a Source that stops only with its consumer.
const Endless = math.MaxInt64

// Source is the stage that asks for rows: it sends one item.Rows for each batch
// in [firstBatch, endBatch), batch k being windows k*batch .. k*batch+batch-1
// of the feed. It carries no data; whoever receives an item calls its Reader.
//
// When it enters an epoch, the stage builds the plan of the next one on a
// goroutine of its own, which ends before Run does, so that no batch waits at an
// epoch boundary. It fails at once when the batch is larger than an epoch. Where the
// store reads ahead, it has the rows of each batch fetched from disk before it asks for
// them.
func Source(f Feed, batch int, firstBatch, endBatch int64) pipeline.Stage[struct{}, item.Rows] {
	return pipeline.StageFunc[struct{}, item.Rows](
		func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[item.Rows]) error {
			if err := f.CheckBatch(batch); err != nil {
				return err
			}
			if firstBatch < 0 || firstBatch > endBatch {
				return fmt.Errorf("stream: batches [%d, %d) are no range", firstBatch, endBatch)
			}
			end := min(endBatch, f.maxWindow()/int64(batch))
			if endBatch != Endless && end < endBatch {
				return fmt.Errorf("stream: batch %d is beyond the last of 63-bit positions, %d", endBatch, end)
			}
			group := pipeline.NewGroup(ctx)
			err := sendRows(ctx, out, f, f.ahead(ctx, group), batch, firstBatch, end)
			group.Stop()
			if aheadErr := group.Wait(); err == nil {
				err = aheadErr
			}
			return err
		})
}

func sendRows(ctx context.Context, out pipeline.Out[item.Rows], f Feed, ready lookout, batch int, first, end int64) error {
	for k := first; k < end; k++ {
		at, err := ready(k*int64(batch), batch)
		if err != nil {
			return err
		}
		if err := out.Send(ctx, item.Rows{Batch: k, Cursor: at, N: batch, Reader: f}); err != nil {
			return err
		}
	}
	return nil
}

// ahead has the plan of an epoch made when its first window is announced, and that of the
// next one on a goroutine of group.
func (s *Stream) ahead(ctx context.Context, group *pipeline.Group) lookout {
	planned := int64(-1)
	return func(g int64, n int) (item.Cursor, error) {
		e, row := s.locate(g)
		if e != planned {
			pipeline.AtIndex(ctx, "epoch", e)
			if _, err := s.Prepare(ctx, e); err != nil {
				return item.Cursor{}, err
			}
			planned = e
			if e < s.maxEpoch() {
				group.Go(func(ctx context.Context) error {
					_, err := s.Prepare(ctx, e+1)
					return err
				})
			}
		}
		if s.near != nil && s.near.ReadsAhead() {
			if err := s.fetchRows(g, n); err != nil {
				return item.Cursor{}, err
			}
		}
		return item.Cursor{Window: g, Epoch: e, Row: row}, nil
	}
}

// fetchRows asks for the tokens of n windows from g on, which are read when the batches
// sent before them have been.
func (s *Stream) fetchRows(g int64, n int) error {
	var spans []Span
	for i := range int64(n) {
		p, row, err := s.rowOf(g + i)
		if err != nil {
			return err
		}
		if spans, err = s.appendSpans(spans[:0], p, row); err != nil {
			return err
		}
		for _, sp := range spans {
			s.near.WillNeed(s.inStore(int(sp.Doc)), int(sp.From), int(sp.To))
		}
	}
	return nil
}

var (
	_ Feed = (*Stream)(nil)
	_ Feed = (*Mixture)(nil)
)
