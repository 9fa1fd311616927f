package gemm

import (
	"sync/atomic"

	"refrain/internal/par"
)

// shares is how the workers of a region divide a block of C among them: first the
// packing of B, then column chunks of row blocks, which go to whoever asks. It does not
// show in the result who gets what.
type shares struct {
	taken []counter // column chunks taken, by row block
	_     [64]byte
	next  counter // parts of B handed out for packing
	ready counter // parts packed
	row   counter // row blocks handed out
}

// counter has a cache line to itself.
type counter struct {
	atomic.Int32
	_ [60]byte
}

// reset begins a block. No region may be under way.
func (s *shares) reset() {
	s.next.Store(0)
	s.ready.Store(0)
	s.row.Store(0)
	for i := range s.taken {
		s.taken[i].Store(0)
	}
}

// await returns when n parts of B are packed, or false when the pool has failed.
func (s *shares) await(pool *par.Pool, n int) bool {
	for polls := 0; int(s.ready.Load()) < n; polls++ {
		if pool.Failed() {
			return false
		}
		par.Backoff(polls)
	}
	return true
}

// rows hands out the next of n row blocks.
func (s *shares) rows(n int) (block int, ok bool) {
	block = int(s.row.Add(1)) - 1
	return block, block < n
}

// chunk hands out the next chunk of a row block of cols columns: where it begins.
func (s *shares) chunk(block, cols int) (j int, ok bool) {
	if int(s.taken[block].Load())*mulColumns >= cols {
		return 0, false
	}
	j = (int(s.taken[block].Add(1)) - 1) * mulColumns
	return j, j < cols
}
