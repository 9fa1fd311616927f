package repack

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
)

type rowLine struct {
	Epoch  int64      `json:"epoch"`
	Row    int64      `json:"row"`
	Spans  [][3]int64 `json:"spans"`
	Tokens []int32    `json:"tokens,omitempty"`
}

// RowsJSON writes the first rows rows of an epoch (all when rows is negative or
// larger than the epoch), one JSON object a line: epoch, row, spans as [doc,
// from, to], and the T inputs when withTokens is set.
func (s *Stream) RowsJSON(w io.Writer, epoch, rows int64, withTokens bool) error {
	p, err := s.Prepare(context.Background(), epoch)
	if err != nil {
		return err
	}
	if rows < 0 || rows > p.Windows {
		rows = p.Windows
	}
	tokens, targets := make([]int32, s.cfg.T), make([]int32, s.cfg.T)
	starts := make([]byte, (s.cfg.T+7)/8)
	bw := bufio.NewWriter(w)
	enc := json.NewEncoder(bw)
	var spans []Span
	for row := range rows {
		if spans, err = s.appendSpans(spans[:0], p, row); err != nil {
			return err
		}
		line := rowLine{Epoch: epoch, Row: row, Spans: make([][3]int64, len(spans))}
		for i, sp := range spans {
			line.Spans[i] = [3]int64{sp.Doc, sp.From, sp.To}
		}
		if withTokens {
			if _, err := s.ReadRow(p.First+row, tokens, targets, starts); err != nil {
				return err
			}
			line.Tokens = tokens
		}
		if err := enc.Encode(line); err != nil {
			return fmt.Errorf("write row %d: %w", row, err)
		}
	}
	return bw.Flush()
}
