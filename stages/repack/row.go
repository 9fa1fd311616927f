package repack

import (
	"context"
	"fmt"
	"unsafe"

	"refrain/store"
)

// Span is tokens [From, To) of document Doc, the document's index in the corpus.
type Span struct{ Doc, From, To int64 }

func (s *Stream) checkRow(g int64, tokens, targets []int32, starts []byte) error {
	T := s.cfg.T
	if g < 0 || g > s.maxWindow() {
		return fmt.Errorf("stream: window %d is outside 0..%d", g, s.maxWindow())
	}
	if len(tokens) != T || len(targets) != T || len(starts) != (T+7)/8 {
		return fmt.Errorf("stream: row buffers of %d tokens, %d targets, %d bitmap bytes; T = %d needs %d, %d, %d",
			len(tokens), len(targets), len(starts), T, T, T, (T+7)/8)
	}
	return nil
}

// ReadRow fills the row of global window g: T inputs, T targets (Masked where
// not scored) and the boundary bitmap of ceil(T/8) bytes, bit t%8 of byte t/8
// set when a document starts at input t. It returns the number of scored
// targets. The buffers stay the caller's. It allocates nothing and takes no
// lock, except when the plan of the row's epoch has not been built yet: then it
// builds it, or waits for whoever does.
//
// It is an error when g is negative or beyond 63-bit positions, or when a buffer
// has the wrong length; the buffers are then untouched. A part of the store that can
// no longer be read is a *store.GoneError, and what the buffers hold is undefined.
func (s *Stream) ReadRow(g int64, tokens, targets []int32, starts []byte) (scored int, err error) {
	if err := s.checkRow(g, tokens, targets, starts); err != nil {
		return 0, err
	}
	p, row, err := s.rowOf(g)
	if err != nil {
		return 0, err
	}
	docs, at, T := p.order.docs, p.rows[row], len(tokens)
	var next store.Ahead
	if s.mapped {
		defer s.near.Catch(store.Faults(), &err)
	}
	if s.near != nil {
		s.lookAhead(&next, p, row)
	}
	rank, off := int(at.rank), int(at.off)
	clear(starts)
	filled := 0
	for {
		if rank == len(docs) {
			if s.cfg.Tail != Carry {
				break
			}
			if p, err = s.plan(context.Background(), p.Epoch+1); err != nil {
				return 0, err
			}
			docs, rank = p.order.docs, 0
		}
		d := docs[rank]
		if filled == T { // only the target of the last input is left
			s.corpus.Copy(int(d.doc), 0, 1, targets[T-1:])
			next.Rest()
			return s.maskLast(targets), nil
		}
		if off == 0 {
			starts[filled>>3] |= 1 << (filled & 7)
		}
		left := int(d.n) - off
		take := min(left, T-filled)
		if s.near != nil { // a Part may end before its document: the target written for its end is replaced below
			s.near.CopyPair(s.inStore(int(d.doc)), off, off+take, tokens[filled:], targets[filled:], &next)
		} else {
			s.copyPair(int(d.doc), off, off+take, left > take, tokens[filled:], targets[filled:])
		}
		if filled > 0 {
			targets[filled-1] = tokens[filled]
		}
		filled += take
		if left > take { // the row is full, and its last target came with it
			next.Rest()
			return s.maskLast(targets), nil
		}
		rank, off = rank+1, 0
	}
	// The stream ended at or before the end of this window: the last input has
	// no next token, and what follows it is padding.
	clear(tokens[filled:])
	for i := filled - 1; i < T; i++ {
		targets[i] = Masked
	}
	return filled - 1, nil
}

// copyPair is store.Store.CopyPair on any corpus. more says that the document goes on
// after to.
func (s *Stream) copyPair(doc, from, to int, more bool, tokens, targets []int32) {
	n := to - from
	s.corpus.Copy(doc, from, to, tokens[:n])
	copy(targets[:n-1], tokens[1:n])
	if more {
		s.corpus.Copy(doc, to, to+1, targets[n-1:n])
	}
}

// lookAhead hides the cache misses of the rows that come next. Finding the first token
// of a row is a chain of three reads at random places: the document order, the store's
// entry and the token; each of the next three rows is helped over one link. A row
// often goes on into a second document, which is helped likewise, but only to its first
// line; what is behind that is not worth its cost.
func (s *Stream) lookAhead(next *store.Ahead, p *Plan, row int64) {
	rows, docs, T := p.rows[row+1:], p.order.docs, s.cfg.T
	if len(rows) < 3 {
		return
	}
	next.Line(0, unsafe.Pointer(&docs[rows[2].rank]))
	r := rows[1]
	d := docs[r.rank]
	next.Entry(1, s.near, s.inStore(int(d.doc)))
	if int(d.n-r.off) < T && int(r.rank)+1 < len(docs) {
		next.Entry(2, s.near, s.inStore(int(docs[r.rank+1].doc)))
	}
	r = rows[0]
	d = docs[r.rank]
	left := int(d.n - r.off)
	if left < T && int(r.rank)+1 < len(docs) {
		next.First(3, s.near, s.inStore(int(docs[r.rank+1].doc)))
	}
	next.IDs(s.near, s.inStore(int(d.doc)), int(r.off), int(r.off)+min(left, T))
}

// maskLast applies targets=inside to a full row and counts what is scored.
func (s *Stream) maskLast(targets []int32) int {
	if !s.cfg.TargetsInside {
		return len(targets)
	}
	targets[len(targets)-1] = Masked
	return len(targets) - 1
}

// Spans returns the inputs of global window g as pieces of documents, in order.
// A row cut short by padding has spans of fewer than T tokens in total.
func (s *Stream) Spans(g int64) ([]Span, error) {
	if g < 0 || g > s.maxWindow() {
		return nil, fmt.Errorf("stream: window %d is outside 0..%d", g, s.maxWindow())
	}
	p, row, err := s.rowOf(g)
	if err != nil {
		return nil, err
	}
	return s.appendSpans(nil, p, row)
}

// appendSpans appends the spans of a row of p.
func (s *Stream) appendSpans(dst []Span, p *Plan, row int64) ([]Span, error) {
	docs, at := p.order.docs, p.rows[row]
	rank, off := int(at.rank), int64(at.off)
	for left := int64(s.cfg.T); left > 0; {
		if rank == len(docs) {
			if s.cfg.Tail != Carry {
				break
			}
			next, err := s.plan(context.Background(), p.Epoch+1)
			if err != nil {
				return nil, err
			}
			docs, rank = next.order.docs, 0
		}
		n := int64(docs[rank].n)
		take := min(n-off, left)
		dst = append(dst, Span{int64(docs[rank].doc), off, off + take})
		left -= take
		rank, off = rank+1, 0
	}
	return dst, nil
}
