package tokenize

import "math/bits"

// backtracker encodes long pieces in linear time. It walks from left to right,
// takes the longest token that fits the one before it, and steps back when nothing
// fits. Two neighbours fit if merging their bytes would have kept them apart, which
// is found by undoing merges from the youngest on. This is the published method of
// the rust-gems bpe crate; on vocabularies it is not proven for there is none and
// the heap does the work.
type backtracker struct {
	halves
	length []uint32
	prefix []uint32 // longest other token that the token begins with, or none
	first  [256]uint32
	slots  []uint64 // trie: node(24) byte(8) child(24), 0 free
	shift  uint
	token  []uint32 // [nodes] the token that ends there, or none
}

// halves is the pair of each token, for vocabularies in which merges make a token each.
type halves struct {
	table *mergeTable
	left  []uint32 // [VocabSize] none for single bytes
	right []uint32
	whole []bool // [VocabSize] what self has said
}

// self is selfByMerging in a few steps, for tokens asked for in the order of ids: the
// bytes of one end in its two halves when each half comes out of its own bytes and they
// stay apart until it is merged.
func (h *halves) self(id uint32, size int) bool {
	l, r := h.left[id], h.right[id]
	switch {
	case l == none:
		h.whole[id] = size == 1
	case l < id && r < id: // else they are made too late
		h.whole[id] = h.whole[l] && h.whole[r] && h.apart(l, r, id)
	}
	return h.whole[id]
}

// halves says whether ids are in merge order, above those of the bytes, with one merge
// each and a token for every byte.
func (t *Tokenizer) halves() (halves, bool) {
	if t.table.ids != nil || t.missing > 0 || len(t.merges) == 0 {
		return halves{}, false
	}
	for _, id := range t.table.byteID {
		if id > t.merges[0].id {
			return halves{}, false
		}
	}
	h := halves{t.table, make([]uint32, t.VocabSize()), make([]uint32, t.VocabSize()), make([]bool, t.VocabSize())}
	for i := range h.left {
		h.left[i], h.right[i] = none, none
	}
	for _, m := range t.merges {
		h.left[m.id], h.right[m.id] = m.left, m.right
	}
	return h, true
}

const (
	// minBacktrack is the length of a piece from which the tables are worth having.
	minBacktrack = 256
	maxTrieNodes = 1 << 24
)

// newBacktracker returns nil unless the vocabulary is of the kind the method needs:
// ids in merge order, above those of the bytes, one merge each, every token the
// result of its own bytes, and a token for every byte.
func (t *Tokenizer) newBacktracker() *backtracker {
	r := t.reach()
	if !r.ordered || r.broken > 0 {
		return nil
	}
	num := 0
	for _, plain := range t.plain {
		if plain {
			num++
		}
	}
	if len(t.text) >= maxTrieNodes || num != len(t.merges)+256 {
		return nil
	}
	log := bits.Len(uint(3*num - 1)) // about two nodes a token
	b := &backtracker{
		halves: r.halves,
		length: make([]uint32, t.VocabSize()), prefix: make([]uint32, t.VocabSize()),
		slots: freshTable[uint64](log), shift: uint(64 - log),
		token: append(make([]uint32, 0, 3*num), none),
	}
	clear(b.slots)                        // a page that is read first is faulted in twice
	node := make([]uint32, t.VocabSize()) // where each token ends
	// The nodes of the left half are there already, since it was made before.
	for id := range b.prefix {
		b.prefix[id] = none
		if !t.plain[id] {
			continue
		}
		n, rest := uint32(0), t.bytesOf(uint32(id))
		b.length[id] = uint32(len(rest))
		if l := b.left[id]; l != none {
			n, rest = node[l], rest[b.length[l]:]
		}
		for _, c := range rest {
			n = b.grow(n, c)
		}
		node[id] = n
		b.token[n] = uint32(id)
	}
	for c := range b.first {
		b.first[c] = b.child(0, byte(c)) // every byte has a token, so never none
	}
	for id, l := range b.left {
		if l == none {
			continue
		}
		best, n := l, node[l]
		for _, c := range t.bytesOf(uint32(id))[b.length[l] : b.length[id]-1] {
			if n = b.child(n, c); b.token[n] != none {
				best = b.token[n]
			}
		}
		b.prefix[id] = best
	}
	return b
}

// child returns the node after byte c, or none.
func (b *backtracker) child(node uint32, c byte) uint32 {
	key := uint64(node)<<8 | uint64(c)
	mask := uint64(len(b.slots) - 1)
	for i := key * golden64 >> b.shift; ; i++ {
		s := b.slots[i&mask]
		if s == 0 {
			return none
		}
		if s>>24 == key {
			return uint32(s & (maxTrieNodes - 1))
		}
	}
}

// grow is child, but makes the node.
func (b *backtracker) grow(node uint32, c byte) uint32 {
	if n := b.child(node, c); n != none {
		return n
	}
	n := uint32(len(b.token))
	b.token = append(b.token, none)
	if 4*len(b.token) > 3*len(b.slots) {
		old := b.slots
		b.slots = make([]uint64, 2*len(old))
		b.shift--
		for _, s := range old {
			if s != 0 {
				b.place(s)
			}
		}
	}
	b.place((uint64(node)<<8|uint64(c))<<24 | uint64(n))
	return n
}

func (b *backtracker) place(slot uint64) {
	mask := uint64(len(b.slots) - 1)
	i := slot >> 24 * golden64 >> b.shift
	for b.slots[i&mask] != 0 {
		i++
	}
	b.slots[i&mask] = slot
}

// longest returns the longest token that w begins with, and how many bytes were
// looked at. w is not empty.
func (b *backtracker) longest(w []byte) (id uint32, steps int) {
	n := b.first[w[0]]
	best := b.token[n]
	for i, c := range w[1:] {
		if n = b.child(n, c); n == none {
			return best, i + 2
		}
		if k := b.token[n]; k != none {
			best = k
		}
	}
	return best, len(w)
}

// fits says whether merging the bytes of both tokens ends in just these two.
//
// Of the two, the token with the larger id was made last. Just before that, its half
// at the border was a token of its own next to the other; had these two a merge that
// comes earlier, it would have been done instead. At equal rank the leftmost pair
// goes first, which is why the limit on the right side is one more.
func (h *halves) fits(left, right uint32) bool { return h.apart(left, right, none) }

// apart is fits for merging that stops before the merge of value limit.
func (h *halves) apart(left, right, limit uint32) bool {
	for {
		if v := h.table.value(left, right); v < limit {
			return false
		}
		switch {
		case left > right && h.right[left] != none:
			limit, left = min(limit, left), h.right[left]
		case right >= left && h.left[right] != none:
			limit, right = min(limit, right+1), h.left[right]
		default:
			return true // two bytes
		}
	}
}

// appendBacktrack appends the ids of a piece. dead has a bit for every position from
// which no continuation fits, so that none is tried twice. The last result counts
// bytes looked at and pairs tried, for tests of the running time.
func (g *merger) appendBacktrack(dst []uint32, b *backtracker, w []byte) ([]uint32, int) {
	words := len(w)>>6 + 1
	if cap(g.dead) < words {
		g.dead = make([]uint64, words)
	}
	dead := g.dead[:words]
	clear(dead)
	from := len(dst)
	pos := 0
	next, work := b.longest(w)
	for pos < len(w) {
		last := none
		if len(dst) > from {
			last = dst[len(dst)-1]
		}
		for {
			work++
			end := pos + int(b.length[next])
			if dead[end>>6]>>uint(end&63)&1 == 0 && (last == none || b.fits(last, next)) {
				dst = append(dst, next)
				pos = end
				if pos < len(w) {
					var steps int
					next, steps = b.longest(w[pos:])
					work += steps
				}
				break
			}
			if next = b.prefix[next]; next != none {
				continue
			}
			// Nothing fits here: give up the token before and try its prefixes. The
			// first position is never given up, because some division always fits.
			dead[pos>>6] |= 1 << uint(pos&63)
			dst = dst[:len(dst)-1]
			pos -= int(b.length[last])
			next = last
			break
		}
	}
	if len(w) > maxKeptScratch {
		g.dead = nil
	}
	return dst, work
}
