package corpus

import (
	"bytes"
	"crypto/sha256"

	"github.com/cespare/xxhash/v2"
)

// Sieve keeps documents that are no copy and no near copy of one it kept before. A near
// copy shares most of its shingles, runs of a few words, with the other: the share is
// taken of the shorter one, so that a text inside another is found as well (containment,
// Broder 1997). All shingles of all kept documents are asked, so what is kept depends on
// the texts and their order and on nothing else; a few million words are its scale.
type Sieve struct {
	Copies     int // left out because an equal text was kept
	NearCopies int // left out because of shared shingles

	seen  map[[32]byte]bool
	kept  []int              // shingles of each kept document
	where map[uint64][]int32 // kept documents that hold a shingle
}

const (
	shingleWords = 8
	// nearShare is the share of the shorter document's shingles that makes a near copy.
	nearShare = 0.5
)

// Keep says whether text is new, and remembers it if so.
func (s *Sieve) Keep(text []byte) bool {
	if s.seen == nil {
		s.seen, s.where = map[[32]byte]bool{}, map[uint64][]int32{}
	}
	h := sha256.Sum256(text)
	if s.seen[h] {
		s.Copies++
		return false
	}
	list := shingles(text)
	shared := map[int32]int{}
	for _, x := range list {
		for _, d := range s.where[x] {
			shared[d]++
		}
	}
	for d, n := range shared { // any one will do, so the order of the map does not matter
		if float64(n) >= nearShare*float64(min(len(list), s.kept[d])) {
			s.NearCopies++
			return false
		}
	}
	s.seen[h] = true
	me := int32(len(s.kept))
	s.kept = append(s.kept, len(list))
	for _, x := range list {
		s.where[x] = append(s.where[x], me)
	}
	return true
}

// shingles returns the hashes of the runs of words of a text, each once, in the order of
// their first place. Words are what stands between white space, so that indentation does
// not count. A text with fewer words than a shingle is one shingle.
func shingles(text []byte) []uint64 {
	words := bytes.Fields(text)
	var out []uint64
	seen := map[uint64]bool{}
	var d xxhash.Digest
	for i := 0; i == 0 || i+shingleWords <= len(words); i++ {
		d.Reset()
		for _, w := range words[i:min(i+shingleWords, len(words))] {
			d.Write(w)
			d.Write([]byte{' '})
		}
		if x := d.Sum64(); !seen[x] {
			seen[x] = true
			out = append(out, x)
		}
	}
	return out
}
