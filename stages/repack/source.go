package repack

import (
	"context"
	"fmt"
	"math"

	"refrain/pipeline"
	"refrain/stages/item"
)

// Endless as endBatch makes a Source that stops only with its consumer.
const Endless = math.MaxInt64

// Source is the stage that asks for rows: it sends one item.Rows for each batch
// in [firstBatch, endBatch), batch k being windows k*batch .. k*batch+batch-1
// of the stream. It carries no data; whoever receives an item calls its Reader.
//
// When it enters an epoch, the stage builds the plan of the next one on a
// goroutine of its own, which ends before Run does, so that no batch waits at an
// epoch boundary. It fails at once when the batch is larger than an epoch. Where the
// store reads ahead, it has the rows of each batch fetched from disk before it asks for
// them.
func Source(s *Stream, batch int, firstBatch, endBatch int64) pipeline.Stage[struct{}, item.Rows] {
	return pipeline.StageFunc[struct{}, item.Rows](
		func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[item.Rows]) error {
			if err := s.CheckBatch(batch); err != nil {
				return err
			}
			if firstBatch < 0 || firstBatch > endBatch {
				return fmt.Errorf("stream: batches [%d, %d) are no range", firstBatch, endBatch)
			}
			end := min(endBatch, s.maxWindow()/int64(batch))
			if endBatch != Endless && end < endBatch {
				return fmt.Errorf("stream: batch %d is beyond the last of 63-bit positions, %d", endBatch, end)
			}
			ahead := pipeline.NewGroup(ctx)
			err := s.sendRows(ctx, out, ahead, batch, firstBatch, end)
			ahead.Stop()
			if aheadErr := ahead.Wait(); err == nil {
				err = aheadErr
			}
			return err
		})
}

func (s *Stream) sendRows(ctx context.Context, out pipeline.Out[item.Rows], ahead *pipeline.Group, batch int, first, end int64) error {
	planned := int64(-1)
	for k := first; k < end; k++ {
		g := k * int64(batch)
		e, row := s.locate(g)
		if e != planned {
			pipeline.AtIndex(ctx, "epoch", e)
			if _, err := s.Prepare(ctx, e); err != nil {
				return err
			}
			planned = e
			if e < s.maxEpoch() {
				ahead.Go(func(ctx context.Context) error {
					_, err := s.Prepare(ctx, e+1)
					return err
				})
			}
		}
		if s.near != nil && s.near.ReadsAhead() {
			if err := s.fetchRows(g, batch); err != nil {
				return err
			}
		}
		rows := item.Rows{Batch: k, Cursor: item.Cursor{Window: g, Epoch: e, Row: row}, N: batch, Reader: s}
		if err := out.Send(ctx, rows); err != nil {
			return err
		}
	}
	return nil
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

var _ item.RowReader = (*Stream)(nil)
