package repack

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"refrain/store"
)

// Stream is the endless sequence of rows of a corpus under a Config. It is safe
// for concurrent use and holds no position: rows are addressed by their global
// number g.
type Stream struct {
	corpus    Corpus
	near      *store.Store // the corpus, or what it is a Part of: it has faster ways than Copy
	part      []int        // for a Part, the documents in the store
	mapped    bool         // near can fault
	cfg       Config
	lengths   []uint32
	numDocs   int
	numTokens int64
	perEpoch  int64 // W; for Carry the smaller of the two counts that occur
	last      int64 // the last global window whose positions fit in 63 bits

	plans atomic.Pointer[[keptPlans]*Plan]
	mu    sync.Mutex // held while a plan is built
}

// NewStream checks cfg against the corpus and returns the stream. The error
// lists every problem with its numbers; in particular a corpus too small for
// one window is refused here, before anything starts. It reads the lengths once
// and builds no plan yet.
func NewStream(c Corpus, cfg Config) (*Stream, error) {
	s := &Stream{corpus: c, cfg: cfg, lengths: c.Lengths(), numDocs: c.NumDocs(), numTokens: c.NumTokens()}
	switch c := c.(type) {
	case *store.Store:
		s.near = c
	case Part:
		s.near, s.part = c.Part()
		if err := checkPart(s.near, s.part, s.lengths); err != nil {
			return nil, err
		}
	}
	s.mapped = s.near != nil && s.near.Mapped()
	if len(s.lengths) != s.numDocs {
		return nil, fmt.Errorf("stream: the corpus lists %d lengths for %d documents", len(s.lengths), s.numDocs)
	}
	var sum int64
	for i, n := range s.lengths {
		if n == 0 {
			return nil, fmt.Errorf("stream: document %d has no tokens; empty documents must be left out at ingest", i)
		}
		sum += int64(n)
	}
	if sum != s.numTokens {
		return nil, fmt.Errorf("stream: the lengths add up to %d tokens and the corpus says %d", sum, s.numTokens)
	}
	if err := cfg.validate(s.numDocs, s.numTokens); err != nil {
		return nil, err
	}
	s.perEpoch = s.numTokens / int64(cfg.T)
	s.last = (math.MaxInt64-2*s.numTokens)/int64(cfg.T) - 2
	if cfg.Tail == Pad {
		s.perEpoch = s.maxWindows()
	}
	return s, nil
}

// checkPart checks what ReadRow relies on: documents that are there and not longer
// than in the store.
func checkPart(s *store.Store, docs []int, lengths []uint32) error {
	if len(docs) != len(lengths) {
		return fmt.Errorf("stream: the corpus lists %d lengths for %d documents of a store", len(lengths), len(docs))
	}
	whole := s.Lengths()
	for i, doc := range docs {
		if doc < 0 || doc >= len(whole) || lengths[i] > whole[doc] {
			return fmt.Errorf("stream: document %d of the corpus, %d tokens of document %d of the store, is not there", i, lengths[i], doc)
		}
	}
	return nil
}

// inStore is the number of a document of the corpus in s.near.
func (s *Stream) inStore(doc int) int {
	if s.part != nil {
		return s.part[doc]
	}
	return doc
}

// Config returns the configuration of the stream.
func (s *Stream) Config() Config { return s.cfg }

// T returns the inputs per row.
func (s *Stream) T() int { return s.cfg.T }

// NumTokens returns N, the tokens of one epoch of the corpus.
func (s *Stream) NumTokens() int64 { return s.numTokens }

// WindowsPerEpoch returns W: N div T for Drop, its ceiling for Pad. With Carry
// epochs have W or W+1 windows (see WindowsIn).
func (s *Stream) WindowsPerEpoch() int64 { return s.perEpoch }

// maxWindows is ceil(N/T).
func (s *Stream) maxWindows() int64 { return ceilDiv(s.numTokens, int64(s.cfg.T)) }

func ceilDiv(a, b int64) int64 { return a/b + min(1, a%b) }

func (s *Stream) maxWindow() int64 { return s.last }

// maxEpoch bounds epochs the same way.
func (s *Stream) maxEpoch() int64 {
	e, _ := s.locate(s.maxWindow())
	return e - 1
}

func (s *Stream) checkEpoch(e int64) error {
	if e < 0 || e > s.maxEpoch() {
		return fmt.Errorf("stream: epoch %d is outside 0..%d", e, s.maxEpoch())
	}
	return nil
}

// FirstWindow returns the global number of the first window of epoch e.
func (s *Stream) FirstWindow(e int64) int64 {
	if s.cfg.Tail == Carry {
		return ceilDiv(e*s.numTokens, int64(s.cfg.T))
	}
	return e * s.perEpoch
}

// WindowsIn returns the number of windows of epoch e.
func (s *Stream) WindowsIn(e int64) int64 { return s.FirstWindow(e+1) - s.FirstWindow(e) }

// phase is the position of the first window of epoch e, counted from the first
// token of that epoch. Only Carry has one: the tokens before it belong to the
// last window of the epoch before.
func (s *Stream) phase(e int64) int64 {
	if s.cfg.Tail == Carry {
		return s.FirstWindow(e)*int64(s.cfg.T) - e*s.numTokens
	}
	return 0
}

func (s *Stream) locate(g int64) (epoch, row int64) {
	if s.cfg.Tail == Carry {
		// Window g starts at position gT; FirstWindow(e) <= g iff eN <= gT.
		epoch = g * int64(s.cfg.T) / s.numTokens
		return epoch, g - s.FirstWindow(epoch)
	}
	return g / s.perEpoch, g % s.perEpoch
}

// Locate returns the epoch of global window g and its row within that epoch.
// g must lie in the range that ReadRow accepts.
func (s *Stream) Locate(g int64) (epoch, row int64) { return s.locate(g) }

// Epochs returns the exact position of window g as a number of epochs, for
// display: 1.5 is the middle of the second pass.
func (s *Stream) Epochs(g int64) float64 {
	e, row := s.locate(g)
	return float64(e) + float64(row)/float64(s.WindowsIn(e))
}

// Epoch returns the plan of epoch e, building it when needed: about 20 ns a
// document. It blocks while another plan is being built.
func (s *Stream) Epoch(e int64) (*Plan, error) { return s.Prepare(context.Background(), e) }

// Prepare is Epoch under a context: an owner that cancels it stops the build
// and gets the context's error.
func (s *Stream) Prepare(ctx context.Context, e int64) (*Plan, error) {
	if err := s.checkEpoch(e); err != nil {
		return nil, err
	}
	return s.plan(ctx, e)
}

// CheckBatch returns an error when a global batch of n rows cannot be served:
// it must be positive and no larger than an epoch.
func (s *Stream) CheckBatch(n int) error {
	if n < 1 {
		return fmt.Errorf("stream: a batch of %d rows; it must be at least 1", n)
	}
	if int64(n) > s.perEpoch {
		return fmt.Errorf("stream: a batch of %d rows is larger than an epoch of %d windows (%d tokens, T = %d); "+
			"use a smaller batch, a shorter window or more data", n, s.perEpoch, s.numTokens, s.cfg.T)
	}
	return nil
}
