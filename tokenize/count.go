package tokenize

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
)

// pieceCounter counts pieces: an open-addressed table over an arena of their bytes.
type pieceCounter struct {
	slots []countSlot
	used  int
	keys  []byte
	long  int64 // pieces that were longer than the limit
}

type countSlot struct {
	hash  uint64
	off   uint64
	len   uint32 // 0 marks a free slot: no piece is empty
	count int64
}

const (
	hashKey0 = 0xa0761d6478bd642f
	hashKey1 = 0xe7037ed1a0b428db
)

// mix multiplies to 128 bits and folds them.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^hashKey0, b^hashKey1)
	return hi ^ lo
}

// hashBytes hashes a piece; b is not empty.
func hashBytes(b []byte) uint64 {
	n := len(b)
	h := uint64(n) * hashKey0
	if n >= 16 {
		for i := 0; i+16 < n; i += 16 {
			h = mix(binary.LittleEndian.Uint64(b[i:])^h, binary.LittleEndian.Uint64(b[i+8:]))
		}
		return mix(binary.LittleEndian.Uint64(b[n-16:])^h, binary.LittleEndian.Uint64(b[n-8:]))
	}
	var lo, hi uint64
	switch {
	case n >= 8:
		lo, hi = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[n-8:])
	case n >= 4:
		lo, hi = uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[n-4:]))
	default:
		lo, hi = uint64(b[0]), uint64(b[n/2])<<8|uint64(b[n-1])
	}
	return mix(lo^h, hi)
}

func newPieceCounter() *pieceCounter { return &pieceCounter{slots: make([]countSlot, 1<<12)} }

func (c *pieceCounter) add(piece []byte, count int64) {
	h := hashBytes(piece)
	mask := uint64(len(c.slots) - 1)
	i := h & mask
	for {
		s := &c.slots[i]
		if s.len == 0 {
			break
		}
		if s.hash == h && int(s.len) == len(piece) && string(c.keys[s.off:s.off+uint64(s.len)]) == string(piece) {
			s.count += count
			return
		}
		i = (i + 1) & mask
	}
	c.slots[i] = countSlot{h, uint64(len(c.keys)), uint32(len(piece)), count}
	c.keys = append(c.keys, piece...)
	if c.used++; 2*c.used > len(c.slots) {
		c.grow()
	}
}

func (c *pieceCounter) grow() {
	old := c.slots
	c.slots = make([]countSlot, 2*len(old))
	mask := uint64(len(c.slots) - 1)
	for _, s := range old {
		if s.len == 0 {
			continue
		}
		i := s.hash & mask
		for c.slots[i].len != 0 {
			i = (i + 1) & mask
		}
		c.slots[i] = s
	}
}

// each visits all pieces in the order of the table.
func (c *pieceCounter) each(f func(piece []byte, count int64)) {
	for _, s := range c.slots {
		if s.len > 0 {
			f(c.keys[s.off:s.off+uint64(s.len)], s.count)
		}
	}
}

// addText counts the pieces of one document.
func (c *pieceCounter) addText(s *splitter, text []byte, limit int) {
	for len(text) > 0 {
		n, ends := s.next(text)
		start := 0
		for _, end := range ends {
			c.addPiece(text[start:end], limit)
			start = int(end)
		}
		if ends == nil {
			c.addPiece(text[:n], limit)
		}
		text = text[n:]
	}
}

// addPiece counts a piece; one longer than limit is cut, between characters where it
// has any.
func (c *pieceCounter) addPiece(piece []byte, limit int) {
	if len(piece) > limit {
		c.long++
	}
	for len(piece) > limit {
		k := limit
		for k > limit-utf8.UTFMax && k > 1 && !utf8.RuneStart(piece[k]) {
			k--
		}
		if !utf8.RuneStart(piece[k]) {
			k = limit
		}
		c.add(piece[:k], 1)
		piece = piece[k:]
	}
	c.add(piece, 1)
}

// docBatch carries documents to a counting worker, back to back.
type docBatch struct {
	text []byte
	ends []int
}

const batchBytes = 256 << 10

// countPieces splits all documents with the given number of workers and returns the
// counts of all. The sum does not depend on who counted what.
func countPieces(ctx context.Context, fam *family, workers, limit int, docs iter.Seq2[[]byte, error]) (*pieceCounter, error) {
	group, ctx := errgroup.WithContext(ctx)
	full := make(chan *docBatch) // no room: the free list already lets workers run ahead
	free := make(chan *docBatch, workers+1)
	for range workers + 1 {
		free <- &docBatch{}
	}
	counters := make([]*pieceCounter, workers)
	for k := range counters {
		counters[k] = newPieceCounter()
		group.Go(func() error {
			split := newSplitter(fam, haveMasks())
			for b := range full {
				start := 0
				for _, end := range b.ends {
					counters[k].addText(&split, b.text[start:end], limit)
					start = end
				}
				free <- b // never blocks: there are no more batches than room
			}
			return nil
		})
	}
	group.Go(func() error {
		defer close(full)
		return feed(ctx, docs, free, full)
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	total := counters[0]
	for _, c := range counters[1:] {
		total.long += c.long
		c.each(total.add)
	}
	return total, nil
}

// feed copies documents into batches, since a document is only ours until the next.
func feed(ctx context.Context, docs iter.Seq2[[]byte, error], free <-chan *docBatch, full chan<- *docBatch) error {
	var b *docBatch
	send := func() error {
		if b == nil {
			return nil
		}
		select {
		case full <- b:
			b = nil
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	n := 0
	for doc, err := range docs {
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		n++
		if b == nil {
			select {
			case b = <-free:
				b.text, b.ends = b.text[:0], b.ends[:0]
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		b.text = append(b.text, doc...)
		b.ends = append(b.ends, len(b.text))
		if len(b.text) >= batchBytes {
			if err := send(); err != nil {
				return err
			}
		}
	}
	return send()
}
