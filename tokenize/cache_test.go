package tokenize

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPieceCache puts pieces of every length into caches of several sizes and compares
// what they say with a map that forgets when they are emptied.
func TestPieceCache(t *testing.T) {
	for _, budget := range []int{1, 1 << 20, 5 << 20} {
		c := newPieceCache(budget)
		rng := rand.New(rand.NewPCG(31, uint64(budget)))
		known := map[string][]uint32{}
		var all []string
		found, grown := 0, len(c.pages)
		for round := range 60_000 {
			piece := make([]byte, 1+rng.IntN(20))
			if round%64 == 0 {
				piece = make([]byte, 1+rng.IntN(maxLongKey))
			}
			for i := range piece {
				piece[i] = byte(rng.IntN(7)) // so that short ones come again
			}
			if round%3 == 0 && len(all) > 0 {
				piece = []byte(all[rng.IntN(len(all))])
			}
			ids := make([]uint32, 1+rng.IntN(len(piece)))
			for i := range ids {
				ids[i] = rng.Uint32N(maxVocab)
			}
			before := c.wipes
			got := lookUp(&c, piece, ids)
			if want := known[string(piece)]; !slices.Equal(got, want) {
				t.Fatalf("budget %d, round %d, %d bytes: got %v, want %v", budget, round, len(piece), got, want)
			}
			if got != nil {
				found++
				continue
			}
			if c.wipes != before {
				clear(known)
			}
			known[string(piece)] = ids
			all = append(all, string(piece))
			if c.used != len(known) {
				t.Fatalf("budget %d, round %d: %d pieces instead of %d", budget, round, c.used, len(known))
			}
		}
		if found < 1000 || len(c.pages) == grown || budget == 1 && c.wipes == 0 {
			t.Errorf("budget %d: %d found, %d pages, emptied %d times: not a test", budget, found, len(c.pages), c.wipes)
		}
	}
}

// lookUp returns the ids of a piece as the encoder finds them; when it is not there it
// puts it there with others.
func lookUp(c *pieceCache, piece []byte, ids []uint32) (got []uint32) {
	if len(piece) > maxKey {
		h := hashBytes(piece)
		if got = c.long(piece, h); got == nil {
			c.putLong(piece, h, ids)
		}
		return got
	}
	lo, hi := pieceKey(append(slices.Clone(piece), make([]byte, 16)...), len(piece))
	h := mix(lo, hi)
	got = c.short(lo, hi, h)
	e := c.recent[h&uint64(len(c.recent)-1)]
	if e.lo == lo && e.hi == hi {
		in := slices.Clone(e.ids[:e.ids[0]>>idBits])
		if in[0] &= idMask; !slices.Equal(in, got) {
			panic(fmt.Sprintf("recent says %v, the records %v", in, got))
		}
	}
	kept := got
	if got == nil {
		kept = ids
		c.putShort(lo, hi, h, ids)
	}
	c.remember(lo, hi, h, kept, got != nil)
	return got
}
