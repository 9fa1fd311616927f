package tokens

import (
	"bytes"
	"cmp"
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"refrain/store"
)

// Val says which documents are kept for validation: a share of them, a number of
// them, or, with both zero, none. The choice looks at a hash of the text and the
// seed only, so a document is on the same side in every ingest, and equal texts
// are never on both.
type Val struct {
	Share float64 // 0 < Share < 1
	Docs  int64   // this many, those with the smallest hashes; fewer if the last of them has copies that do not fit
	Seed  uint64
}

// maxValDocs bounds the documents that are held in memory to find the Docs with
// the smallest hashes.
const maxValDocs = 1 << 20

// maxHeld bounds their ids, in bytes: documents may be large, and the machine should
// say so rather than run out of memory.
const maxHeld = 1 << 30

func (v Val) validate() error {
	switch {
	case math.IsNaN(v.Share) || v.Share < 0 || v.Share >= 1:
		return fmt.Errorf("a validation share of %v; it must be at least 0 and below 1", v.Share)
	case v.Docs < 0 || v.Docs > maxValDocs:
		return fmt.Errorf("%d validation documents; 0 to %d are possible", v.Docs, maxValDocs)
	case v.Share > 0 && v.Docs > 0:
		return fmt.Errorf("a validation share (%v) and a number of documents (%d); give one", v.Share, v.Docs)
	}
	return nil
}

func (v Val) some() bool { return v.Share > 0 || v.Docs > 0 }

// String is how a manifest states the rule.
func (v Val) String() string {
	switch {
	case v.Share > 0:
		return fmt.Sprintf("share %v of the documents by text hash, seed %d", v.Share, v.Seed)
	case v.Docs > 0:
		return fmt.Sprintf("the %d documents with the smallest text hashes, seed %d", v.Docs, v.Seed)
	}
	return "none"
}

// draw is the number that decides about a document: the first 8 bytes of
// SHA-256("refrain split" 0x00 || u64 seed || text hash), big-endian, so that it
// orders like the hash.
func (v Val) draw(hash [16]byte) uint64 {
	var buf [48]byte
	b := append(buf[:0], "refrain split\x00"...)
	b = binary.LittleEndian.AppendUint64(b, v.Seed)
	b = append(b, hash[:]...)
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:])
}

// below reports whether a draw falls into the share.
func (v Val) below(draw uint64) bool { return float64(draw) < math.Ldexp(v.Share, 64) }

// document is what a splitter passes on. ids are only lent.
type document struct {
	id     uint64
	source string
	hash   [16]byte
	ids    []byte // store.Pack
}

// splitter sends each document to one of two writers.
type splitter struct {
	val       Val
	trainTo   *store.Writer
	valTo     *store.Writer // nil without validation
	held      draws         // with Docs: the smallest so far
	heldBytes int64         // of their ids,
	room      int64         // and the most there may be
	full      bool          // some have been given up for training,
	limit     uint64        // of which this is the smallest draw; all below it are held
	countText func(ids []byte) int64
	valBytes  int64
}

func (s *splitter) add(d document) error {
	switch {
	case s.val.Share > 0:
		if s.val.below(s.val.draw(d.hash)) {
			return s.toVal(d)
		}
	case s.val.Docs > 0:
		draw := s.val.draw(d.hash)
		if s.full && draw >= s.limit {
			break
		}
		d.ids = slices.Clone(d.ids)
		heap.Push(&s.held, drawn{draw, d})
		s.heldBytes += int64(len(d.ids))
		if int64(len(s.held)) > s.val.Docs {
			if err := s.giveUp(); err != nil {
				return err
			}
		}
		if s.heldBytes > s.room {
			return fmt.Errorf("%s, document %d: finding %v takes more than %d bytes of memory, at %d documents; choose fewer, or a share, which holds none in memory",
				d.source, d.id, s.val, s.room, len(s.held))
		}
		return nil
	}
	return s.trainTo.AppendPacked(d.id, d.source, d.ids)
}

// giveUp sends the held document with the largest draw to training, where it stands
// at the place at which that became known, and its copies with it: equal texts are
// never on both sides.
func (s *splitter) giveUp() error {
	s.full, s.limit = true, s.held[0].draw
	for len(s.held) > 0 && s.held[0].draw == s.limit {
		d := heap.Pop(&s.held).(drawn).document
		s.heldBytes -= int64(len(d.ids))
		if err := s.trainTo.AppendPacked(d.id, d.source, d.ids); err != nil {
			return err
		}
	}
	return nil
}

func (s *splitter) toVal(d document) error {
	s.valBytes += s.countText(d.ids)
	return s.valTo.AppendPacked(d.id, d.source, d.ids)
}

// finish passes on what is held, in input order, and checks that both sides have
// documents.
func (s *splitter) finish() error {
	if s.val.Docs > 0 {
		slices.SortFunc(s.held, func(a, b drawn) int { return cmp.Compare(a.id, b.id) })
		for _, d := range s.held {
			if err := s.toVal(d.document); err != nil {
				return err
			}
		}
		s.held = nil
	}
	train, val := s.trainTo.Documents(), int64(0)
	if s.valTo != nil {
		val = s.valTo.Documents()
	}
	switch {
	case train+val == 0:
		return fmt.Errorf("the inputs hold no document with text")
	case train == 0:
		return fmt.Errorf("all %d documents went to validation (%v) and none is left for training; choose fewer", val, s.val)
	case s.valTo != nil && val == 0:
		return fmt.Errorf("of %d documents none went to validation (%v); choose a larger share or a number of documents, such as --val-docs 5 (data.val_docs: 5 in a configuration)", train, s.val)
	}
	return nil
}

type drawn struct {
	draw uint64
	document
}

// draws is a heap with the largest draw on top; equal draws, which only equal
// texts or a collision have, go by hash and number.
type draws []drawn

func (h draws) Len() int      { return len(h) }
func (h draws) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h draws) Less(i, j int) bool {
	a, b := &h[i], &h[j]
	return cmp.Or(cmp.Compare(a.draw, b.draw), bytes.Compare(a.hash[:], b.hash[:]), cmp.Compare(a.id, b.id)) > 0
}
func (h *draws) Push(x any) { *h = append(*h, x.(drawn)) }
func (h *draws) Pop() any {
	last := len(*h) - 1
	d := (*h)[last]
	(*h)[last] = drawn{}
	*h = (*h)[:last]
	return d
}
