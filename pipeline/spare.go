package pipeline

import "sync"

// Spare keeps buffers that one stage no longer needs for another that does, since fresh
// memory costs more than most of what is done with it. It bounds what it keeps, not what
// it hands out, and never waits, which tells it from a Pool. Buffers are handed out the
// one last put first, as the caches still hold that one. A nil Spare keeps nothing.
type Spare struct {
	largest int
	mu      sync.Mutex
	free    [][]byte
}

// NewSpare keeps up to n buffers of up to largest bytes each.
func NewSpare(n, largest int) *Spare {
	return &Spare{largest: largest, free: make([][]byte, 0, n)}
}

// spareUnit is what the sizes of new buffers are multiples of, so that most buffers fit
// most needs.
const spareUnit = 64 << 10

// Get returns an empty buffer with room for n bytes. The caller owns it, and may Put it
// or leave it to the collector.
func (s *Spare) Get(n int) []byte {
	if b := s.take(n); b != nil {
		return b[:0]
	}
	return make([]byte, 0, (max(n, 1)+spareUnit-1)/spareUnit*spareUnit)
}

func (s *Spare) take(n int) []byte {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.free) - 1; i >= 0; i-- {
		if b := s.free[i]; cap(b) >= n {
			s.free = append(s.free[:i], s.free[i+1:]...)
			return b
		}
	}
	return nil
}

// Put takes a buffer that nobody uses any more. When there is no room for it, the one
// kept longest gives way.
func (s *Spare) Put(b []byte) {
	if s == nil || cap(b) == 0 || cap(b) > s.largest {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch len(s.free) {
	case 0:
		if cap(s.free) == 0 {
			return
		}
	case cap(s.free):
		s.free = append(s.free[:0], s.free[1:]...)
	}
	s.free = append(s.free, b)
}
