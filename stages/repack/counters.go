package repack

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Counters account for every token of one epoch. Always
//
//	Tokens + CarriedOut + Padded == Inputs + Dropped + CarriedIn
//
// which under the tail policy Drop is N = W*T + dropped with dropped < T.
type Counters struct {
	Epoch      int64 `json:"epoch"`
	Documents  int64 `json:"documents"`   // D
	Tokens     int64 `json:"tokens"`      // N
	Windows    int64 `json:"windows"`     // W of this epoch
	Inputs     int64 `json:"inputs"`      // W*T
	Scored     int64 `json:"scored"`      // targets that count
	Masked     int64 `json:"masked"`      // targets that do not: Inputs - Scored
	Dropped    int64 `json:"dropped"`     // tokens in no window
	Padded     int64 `json:"padded"`      // inputs that are no token
	CarriedIn  int64 `json:"carried_in"`  // tokens the epoch before already used
	CarriedOut int64 `json:"carried_out"` // tokens of the epoch after used here
	Started    int64 `json:"started"`     // documents whose first token is an input of this epoch's windows
	Completed  int64 `json:"completed"`   // documents whose last token is one
	Cut        int64 `json:"cut"`         // documents with a token here that no single window holds whole
}

// Counters returns the accounts of epoch e, from its plan and the lengths alone.
func (s *Stream) Counters(e int64) (Counters, error) {
	p, err := s.Prepare(context.Background(), e)
	if err != nil {
		return Counters{}, err
	}
	T := int64(s.cfg.T)
	c := Counters{Epoch: e, Documents: int64(s.numDocs), Tokens: s.numTokens, Windows: p.Windows, Inputs: p.Windows * T}
	c.CarriedIn = s.phase(e)
	switch over := c.CarriedIn + c.Inputs - s.numTokens; {
	case over < 0:
		c.Dropped = -over
	case s.cfg.Tail == Carry:
		c.CarriedOut = over
	default:
		c.Padded = over
	}
	switch {
	case s.cfg.TargetsInside:
		// A padded last window has one masked position after its last token in
		// any case, so inside changes only the full windows.
		c.Masked = p.Windows + c.Padded
	case s.cfg.Tail != Carry && c.Dropped == 0:
		c.Masked = 1 + c.Padded
	}
	c.Scored = c.Inputs - c.Masked
	c.countDocs(p.order.docs, 0, T)
	if c.CarriedOut > 0 {
		next, err := s.Prepare(context.Background(), e+1)
		if err != nil {
			return Counters{}, err
		}
		c.countDocs(next.order.docs, s.numTokens, T)
	}
	return c, nil
}

// countDocs counts documents that stand end to end from stream position pos on,
// counted from the first token of the epoch.
func (c *Counters) countDocs(docs []docRef, pos, T int64) {
	first, limit := c.CarriedIn, c.CarriedIn+c.Inputs
	for _, d := range docs {
		start, end := pos, pos+int64(d.n)
		pos = end
		if end <= first {
			continue
		}
		if start >= limit {
			return
		}
		if start >= first {
			c.Started++
		}
		if end <= limit {
			c.Completed++
		}
		if start < first || end > limit || (start-first)/T != (end-1-first)/T {
			c.Cut++
		}
	}
}

// OrderHash is the SHA-256 of the spans of every row of epoch e in the order the
// epoch shows them: per row u32 number of spans, per span u64 doc, u64 from, u64
// to, little-endian. Two epochs with equal hashes show the same windows in the
// same order. It costs one pass over the windows.
func (s *Stream) OrderHash(e int64) ([32]byte, error) {
	var sum [32]byte
	p, err := s.Prepare(context.Background(), e)
	if err != nil {
		return sum, err
	}
	h := sha256.New()
	var spans []Span
	var buf []byte
	for row := range p.Windows {
		if spans, err = s.appendSpans(spans[:0], p, row); err != nil {
			return sum, err
		}
		buf = binary.LittleEndian.AppendUint32(buf[:0], uint32(len(spans)))
		for _, sp := range spans {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(sp.Doc))
			buf = binary.LittleEndian.AppendUint64(buf, uint64(sp.From))
			buf = binary.LittleEndian.AppendUint64(buf, uint64(sp.To))
		}
		h.Write(buf)
	}
	h.Sum(sum[:0])
	return sum, nil
}

// CutsChanged compares the window edges of epoch e with those of epoch 0: of
// total edges, changed fall at a place (document, token) where epoch 0 has none.
func (s *Stream) CutsChanged(e int64) (changed, total int64, err error) {
	base, err := s.cutPlaces(0)
	if err != nil {
		return 0, 0, err
	}
	slices.Sort(base)
	here, err := s.cutPlaces(e)
	if err != nil {
		return 0, 0, err
	}
	for _, place := range here {
		if _, found := slices.BinarySearch(base, place); !found {
			changed++
		}
	}
	return changed, int64(len(here)), nil
}

// cutPlaces lists document<<32|token of every window start of epoch e.
func (s *Stream) cutPlaces(e int64) ([]uint64, error) {
	p, err := s.Prepare(context.Background(), e)
	if err != nil {
		return nil, err
	}
	out := make([]uint64, p.Windows)
	for i, c := range p.rows {
		out[i] = uint64(p.order.docs[c.rank].doc)<<32 | uint64(c.off)
	}
	return out, nil
}
