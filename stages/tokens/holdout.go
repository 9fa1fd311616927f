package tokens

import (
	"cmp"
	"container/heap"
	"crypto/sha256"
)

// Holdout tells which texts a Val keeps for validation before anything is
// written, so that a tokenizer can be trained on training documents alone. For a
// number of documents it must have seen every text first; for a share it need
// not.
type Holdout struct {
	v     Val
	seen  draws // the smallest draws so far, of v.Docs texts
	limit uint64
}

// NewHoldout returns the holdout of v.
func NewHoldout(v Val) (*Holdout, error) {
	if err := v.validate(); err != nil {
		return nil, err
	}
	return &Holdout{v: v}, nil
}

// MustSee reports whether See has to be called for every text before Holds.
func (h *Holdout) MustSee() bool { return h.v.Docs > 0 }

// See takes a text into account. It keeps no reference.
func (h *Holdout) See(text []byte) {
	d := h.draw(text)
	if int64(len(h.seen)) < h.v.Docs || cmp.Compare(d, h.seen[0].draw) < 0 {
		heap.Push(&h.seen, drawn{draw: d})
		if int64(len(h.seen)) > h.v.Docs {
			heap.Pop(&h.seen)
		}
		h.limit = h.seen[0].draw
	}
}

// Holds reports whether text goes to validation.
func (h *Holdout) Holds(text []byte) bool {
	switch {
	case h.v.Share > 0:
		return h.v.below(h.draw(text))
	case h.v.Docs > 0:
		return len(h.seen) > 0 && h.draw(text) <= h.limit
	}
	return false
}

func (h *Holdout) draw(text []byte) uint64 {
	sum := sha256.Sum256(text)
	return h.v.draw([16]byte(sum[:16]))
}
