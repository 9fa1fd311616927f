package repack

import (
	"context"
)

// docRef is one entry of a document order. The length stands beside the index
// because a row needs both, and they would be two cache misses apart.
type docRef struct{ doc, n uint32 }

// docOrder is pi_e, materialised.
type docOrder struct {
	epoch int64 // the epoch whose key made it
	docs  []docRef
}

// cut is where a window starts: token off of the document of rank rank.
type cut struct{ rank, off uint32 }

// Plan is everything that is computed ahead for one epoch: 8 bytes a document
// and 8 bytes a window. Its cuts lie in the order the rows are shown, so that a
// reader that goes on to the next row finds them in its cache; no row needs a
// search over prefix sums. A Plan never changes and may be read concurrently.
type Plan struct {
	Epoch   int64
	Windows int64 // number of windows of this epoch
	First   int64 // global number of its first window

	order *docOrder
	rows  []cut // in the order shown: row i is window sigma(i)
}

// rowOf returns the plan that window g belongs to and its row there. The common case
// takes no lock, allocates nothing and divides nothing.
func (s *Stream) rowOf(g int64) (*Plan, int64, error) {
	if set := s.plans.Load(); set != nil {
		for _, p := range set {
			if p != nil && uint64(g-p.First) < uint64(p.Windows) {
				return p, g - p.First, nil
			}
		}
	}
	e, row := s.locate(g)
	p, err := s.plan(context.Background(), e)
	return p, row, err
}

// plan returns the plan of epoch e, building it when it is not at hand.
func (s *Stream) plan(ctx context.Context, e int64) (*Plan, error) {
	if set := s.plans.Load(); set != nil {
		for _, p := range set {
			if p != nil && p.Epoch == e {
				return p, nil
			}
		}
	}
	return s.planSlow(ctx, e)
}

// keptPlans covers a run: the epoch that slow readers still finish, the current
// one, and the next.
const keptPlans = 3

func (s *Stream) planSlow(ctx context.Context, e int64) (*Plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var old [keptPlans]*Plan
	if set := s.plans.Load(); set != nil {
		old = *set
	}
	for _, p := range old {
		if p != nil && p.Epoch == e {
			return p, nil
		}
	}
	p, err := s.build(ctx, e, old[:])
	if err != nil {
		return nil, err
	}
	// Replace an empty place, else the plan farthest from e.
	slot, far := 0, int64(-1)
	for i, q := range old {
		if q == nil {
			slot = i
			break
		}
		if d := max(q.Epoch-e, e-q.Epoch); d > far {
			slot, far = i, d
		}
	}
	next := old
	next[slot] = p
	s.plans.Store(&next)
	return p, nil
}

// build makes the plan of epoch e; what it shares with a plan in have is not
// made twice.
func (s *Stream) build(ctx context.Context, e int64, have []*Plan) (*Plan, error) {
	p := &Plan{Epoch: e, Windows: s.WindowsIn(e), First: s.FirstWindow(e)}
	docEpoch := int64(0)
	if s.cfg.Mode == Repack {
		docEpoch = e
	}
	for _, q := range have {
		if q == nil || q.order.epoch != docEpoch {
			continue
		}
		p.order = q.order
		if s.cfg.Mode == Fixed && s.cfg.Tail != Carry {
			p.rows = q.rows
			return p, nil
		}
	}
	if p.order == nil {
		var err error
		if p.order, err = s.buildOrder(ctx, docEpoch); err != nil {
			return nil, err
		}
	}
	cuts, err := s.buildCuts(ctx, p.order, s.phase(e), p.Windows)
	if err != nil {
		return nil, err
	}
	p.rows = make([]cut, p.Windows)
	switch s.cfg.Mode {
	case Block:
		err = s.showBlocks(ctx, p.rows, cuts, e)
	case Fixed:
		err = show(ctx, p.rows, cuts, NewKey("win", s.cfg.Seed, 0))
	default:
		err = show(ctx, p.rows, cuts, NewKey("win", s.cfg.Seed, uint64(e)))
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// chunk is how many entries are planned between two looks at the context.
const chunk = 1 << 14

// forChunks calls f with the images of [0, n) under p, a chunk at a time.
func forChunks(ctx context.Context, p *PRP, f func(at int, image []uint64)) error {
	n := int(p.N())
	p.Tabulate()
	image := make([]uint64, min(chunk, n))
	for at := 0; at < n; at += chunk {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		part := image[:min(chunk, n-at)]
		p.Fill(part, uint64(at))
		f(at, part)
	}
	return nil
}

func (s *Stream) buildOrder(ctx context.Context, docEpoch int64) (*docOrder, error) {
	pi := NewPRP(uint64(s.numDocs), NewKey("doc", s.cfg.Seed, uint64(docEpoch)))
	docs := make([]docRef, s.numDocs)
	err := forChunks(ctx, &pi, func(at int, image []uint64) {
		for i, d := range image {
			docs[at+i] = docRef{uint32(d), s.lengths[d]}
		}
	})
	return &docOrder{epoch: docEpoch, docs: docs}, err
}

// buildCuts finds the starts of all windows in stream order.
func (s *Stream) buildCuts(ctx context.Context, order *docOrder, phase, windows int64) ([]cut, error) {
	cuts := make([]cut, windows)
	T := int64(s.cfg.T)
	pos, next, j := int64(0), phase, int64(0) // start of the document; start of window j
	for r, d := range order.docs {
		if r%chunk == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		end := pos + int64(d.n)
		for next < end && j < windows {
			cuts[j] = cut{uint32(r), uint32(next - pos)}
			j++
			next += T
		}
		pos = end
	}
	return cuts, nil
}

// show puts cuts into the order of a window permutation.
func show(ctx context.Context, rows, cuts []cut, k Key) error {
	sigma := NewPRP(uint64(len(cuts)), k)
	return forChunks(ctx, &sigma, func(at int, image []uint64) {
		for i, j := range image {
			rows[at+i] = cuts[j]
		}
	})
}

// showBlocks is show for mode Block: inside the b-th run of m windows of epoch e
// the order is PRP(key("blk", e*blocks + b)).
func (s *Stream) showBlocks(ctx context.Context, rows, cuts []cut, e int64) error {
	m := s.cfg.Block
	blocks := ceilDiv(s.maxWindows(), m)
	n := int64(len(cuts))
	for b, base := int64(0), int64(0); base < n; b, base = b+1, base+m {
		end := base + min(m, n-base)
		k := NewKey("blk", s.cfg.Seed, uint64(e*blocks+b))
		if err := show(ctx, rows[base:end], cuts[base:end], k); err != nil {
			return err
		}
	}
	return nil
}
