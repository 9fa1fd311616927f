package repack

import (
	"context"
)

// docOrder is pi_e, materialised.
type docOrder struct {
	epoch int64 // the epoch whose key made it
	docs  []uint32
}

// cutTable says where each window of an epoch starts: in the document of rank
// rank[j], at token off[j]. It costs 8 bytes a window and spares every row a
// binary search over prefix sums.
type cutTable struct {
	order *docOrder
	phase int64 // stream position of window 0, counted from the epoch's first token
	rank  []uint32
	off   []uint32
}

// Plan is everything that is computed ahead for one epoch: 4 bytes a document
// and 8 bytes a window (12 for Block). It never changes and may be read
// concurrently.
type Plan struct {
	Epoch   int64
	Windows int64 // number of windows of this epoch
	First   int64 // global number of its first window

	cuts  *cutTable
	sigma PRP      // order of the windows, unless block is set
	block []uint32 // order of the windows in mode Block
}

// window returns the stream index of the row-th window that the epoch shows.
func (p *Plan) window(row int64) int64 {
	if p.block != nil {
		return int64(p.block[row])
	}
	return int64(p.sigma.At(uint64(row)))
}

// plan returns the plan of epoch e, building it when it is not at hand. The
// common case takes no lock and allocates nothing.
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
	docEpoch, phase := int64(0), s.phase(e)
	if s.cfg.Mode == Repack {
		docEpoch = e
	}
	var order *docOrder
	for _, q := range have {
		if q == nil || q.cuts.order.epoch != docEpoch {
			continue
		}
		order = q.cuts.order
		if q.cuts.phase == phase && q.Windows == p.Windows {
			p.cuts = q.cuts
		}
	}
	if order == nil {
		var err error
		if order, err = s.buildOrder(ctx, docEpoch); err != nil {
			return nil, err
		}
	}
	if p.cuts == nil {
		var err error
		if p.cuts, err = s.buildCuts(ctx, order, phase, p.Windows); err != nil {
			return nil, err
		}
	}
	switch s.cfg.Mode {
	case Fixed:
		p.sigma = NewPRP(uint64(p.Windows), NewKey("win", s.cfg.Seed, 0))
	case Block:
		p.block = s.buildBlocks(e, p.Windows)
	default:
		p.sigma = NewPRP(uint64(p.Windows), NewKey("win", s.cfg.Seed, uint64(e)))
	}
	return p, nil
}

// ctxEvery is how many documents are planned between two looks at the context.
const ctxEvery = 1 << 16

func (s *Stream) buildOrder(ctx context.Context, docEpoch int64) (*docOrder, error) {
	pi := NewPRP(uint64(s.numDocs), NewKey("doc", s.cfg.Seed, uint64(docEpoch)))
	docs := make([]uint32, s.numDocs)
	for r := range docs {
		if r%ctxEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		docs[r] = uint32(pi.At(uint64(r)))
	}
	return &docOrder{epoch: docEpoch, docs: docs}, nil
}

func (s *Stream) buildCuts(ctx context.Context, order *docOrder, phase, windows int64) (*cutTable, error) {
	c := &cutTable{order: order, phase: phase, rank: make([]uint32, windows), off: make([]uint32, windows)}
	T := int64(s.cfg.T)
	pos, next, j := int64(0), phase, int64(0) // start of the document; start of window j
	for r, doc := range order.docs {
		if r%ctxEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		end := pos + int64(s.lengths[doc])
		for next < end && j < windows {
			c.rank[j], c.off[j] = uint32(r), uint32(next-pos)
			j++
			next += T
		}
		pos = end
	}
	return c, nil
}

// buildBlocks is the window order of mode Block: inside the b-th block of m
// windows of epoch e the order is PRP(key("blk", e*blocks + b)).
func (s *Stream) buildBlocks(e, windows int64) []uint32 {
	m := s.cfg.Block
	blocks := (s.maxWindows() + m - 1) / m
	out := make([]uint32, windows)
	for b, base := int64(0), int64(0); base < windows; b, base = b+1, base+m {
		size := min(m, windows-base)
		p := NewPRP(uint64(size), NewKey("blk", s.cfg.Seed, uint64(e*blocks+b)))
		for i := range size {
			out[base+i] = uint32(base + int64(p.At(uint64(i))))
		}
	}
	return out
}
