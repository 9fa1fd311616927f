package tokenize

// merger holds the scratch of byte pair merging. It is not safe for concurrent use.
//
// All methods do the same thing at different lengths: start from single bytes and
// merge the pair of lowest rank, the leftmost among equals, until none is left.
type merger struct {
	short struct {
		key  [64]uint64 // value<<8 | position, so that one minimum finds lowest rank, then leftmost
		id   [64]uint32
		next [64]uint8
		prev [64]uint8
	}
	sym        []uint32
	next, prev []int32
	heap       []uint64
	pushed     int // entries put on the heap so far, for tests of the running time
	kept       []byte
	dead       []uint64
}

const (
	noKey    = ^uint64(0)
	maxShort = 63

	// Scratch above this many bytes of piece is given back after use.
	maxKeptScratch = 1 << 20
)

// append appends the ids of one piece to dst. Bytes without a token are left out
// and counted in the second result; only vocabularies loaded with AllowMissingBytes
// have such bytes.
func (g *merger) append(dst []uint32, m *mergeTable, piece []byte, missing bool) ([]uint32, int) {
	dropped := 0
	if missing {
		g.kept = g.kept[:0]
		for _, c := range piece {
			if m.byteID[c] != none {
				g.kept = append(g.kept, c)
			}
		}
		dropped = len(piece) - len(g.kept)
		piece = g.kept
	}
	switch n := len(piece); {
	case n == 0:
	case n == 1:
		dst = append(dst, m.byteID[piece[0]])
	case n <= maxShort:
		dst = g.appendShort(dst, m, piece)
	default:
		dst = g.appendHeap(dst, m, piece)
	}
	return dst, dropped
}

// appendShort merges 2 to 63 bytes by scanning all keys for the minimum; at this
// length that beats a heap.
func (g *merger) appendShort(dst []uint32, m *mergeTable, w []byte) []uint32 {
	s := &g.short
	n := len(w)
	dense := (*[1 << 16]uint32)(m.dense)
	c0 := w[0]
	s.id[0] = m.byteID[c0]
	best := uint64(noKey)
	for i := 1; i < n; i++ {
		c1 := w[i]
		s.id[i&63] = m.byteID[c1]
		k := uint64(noKey)
		if v := dense[int(c0)<<8|int(c1)]; v != none {
			k = uint64(v)<<8 | uint64(i-1)
		}
		s.key[(i-1)&63] = k
		s.next[(i-1)&63] = uint8(i)
		s.prev[i&63] = uint8(i - 1)
		best = min(best, k)
		c0 = c1
	}
	s.next[(n-1)&63] = uint8(n)
	s.key[(n-1)&63] = noKey
	for best != noKey {
		i := best & 63
		id := m.id(uint32(best >> 8))
		j := s.next[i] & 63
		after := s.next[j]
		s.id[i] = id
		s.next[i] = after
		s.key[j] = noKey
		s.key[i] = noKey
		if int(after) < n {
			s.prev[after&63] = uint8(i)
			if v := m.value(id, s.id[after&63]); v != none {
				s.key[i] = uint64(v)<<8 | i
			}
		}
		if i > 0 {
			p := s.prev[i] & 63
			s.key[p] = noKey
			if v := m.value(s.id[p], id); v != none {
				s.key[p] = uint64(v)<<8 | uint64(p)
			}
		}
		best = noKey
		second := uint64(noKey) // two chains of minima, so that they overlap
		k := 0
		for ; k+1 < n; k += 2 {
			best = min(best, s.key[k&63])
			second = min(second, s.key[(k+1)&63])
		}
		if k < n {
			best = min(best, s.key[k&63])
		}
		best = min(best, second)
	}
	for i := 0; i < n; i = int(s.next[i&63]) {
		dst = append(dst, s.id[i&63])
	}
	return dst
}

// appendHeap merges a piece of any length in n log n: a 4-ary heap of value<<32 |
// position with entries that may be out of date, over a linked list.
func (g *merger) appendHeap(dst []uint32, m *mergeTable, w []byte) []uint32 {
	n := len(w)
	if cap(g.sym) < n {
		g.sym = make([]uint32, n)
		g.next = make([]int32, n)
		g.prev = make([]int32, n)
	}
	sym, next, prev := g.sym[:n], g.next[:n], g.prev[:n]
	g.heap = g.heap[:0]
	for i, c := range w {
		sym[i] = m.byteID[c]
		next[i] = int32(i + 1)
		prev[i] = int32(i - 1)
	}
	for i := 0; i+1 < n; i++ {
		if v := m.dense[int(w[i])<<8|int(w[i+1])]; v != none {
			g.push(uint64(v)<<32 | uint64(i))
		}
	}
	for len(g.heap) > 0 {
		top := g.pop()
		i, v := int32(uint32(top)), uint32(top>>32)
		if next[i] < 0 { // absorbed by the token on its left
			continue
		}
		j := next[i]
		if int(j) >= n || m.value(sym[i], sym[j]) != v { // out of date
			continue
		}
		id := m.id(v)
		sym[i] = id
		after := next[j]
		next[j] = -1
		next[i] = after
		if int(after) < n {
			prev[after] = i
			if v := m.value(id, sym[after]); v != none {
				g.push(uint64(v)<<32 | uint64(i))
			}
		}
		if p := prev[i]; p >= 0 {
			if v := m.value(sym[p], id); v != none {
				g.push(uint64(v)<<32 | uint64(p))
			}
		}
	}
	for i := int32(0); int(i) < n; i = next[i] {
		dst = append(dst, sym[i])
	}
	if n > maxKeptScratch {
		g.sym, g.next, g.prev, g.heap = nil, nil, nil, nil
	}
	return dst
}

func (g *merger) push(x uint64) {
	g.pushed++
	h := append(g.heap, x)
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) >> 2
		if h[p] <= x {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = x
	g.heap = h
}

func (g *merger) pop() uint64 {
	h := g.heap
	top := h[0]
	x := h[len(h)-1]
	h = h[:len(h)-1]
	g.heap = h
	i := 0
	for {
		c := 4*i + 1
		if c >= len(h) {
			break
		}
		least := c
		for k := c + 1; k < c+4 && k < len(h); k++ {
			if h[k] < h[least] {
				least = k
			}
		}
		if h[least] >= x {
			break
		}
		h[i] = h[least]
		i = least
	}
	if len(h) > 0 {
		h[i] = x
	}
	return top
}
