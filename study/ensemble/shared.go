package ensemble

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"refrain/stages/repack"
	"refrain/store"
)

// Shared looks for a document that stands in both sets, token for token, and describes
// the first; it returns "" when there is none. Documents of one token, which is a boundary,
// do not count. It reads a whole, and of b the documents that have a length in a.
func Shared(a, b repack.Corpus) string {
	lengths := map[uint32]bool{}
	for _, n := range a.Lengths() {
		lengths[n] = n > 1
	}
	in := map[uint64][]int{} // documents of b by the hash of their tokens
	var x, y []int32
	var bytes []byte
	hashOf := func(ids []int32) uint64 {
		bytes = bytes[:0]
		for _, id := range ids {
			bytes = binary.LittleEndian.AppendUint32(bytes, uint32(id))
		}
		return xxhash.Sum64(bytes)
	}
	read := func(s repack.Corpus, doc int, to []int32) []int32 {
		n := int(s.Lengths()[doc])
		to = slices.Grow(to[:0], n)[:n]
		s.Copy(doc, 0, n, to)
		return to
	}
	for doc, n := range b.Lengths() {
		if lengths[n] {
			x = read(b, doc, x)
			h := hashOf(x)
			in[h] = append(in[h], doc)
		}
	}
	for doc, n := range a.Lengths() {
		if n < 2 {
			continue
		}
		x = read(a, doc, x)
		for _, other := range in[hashOf(x)] {
			if y = read(b, other, y); slices.Equal(x, y) {
				return fmt.Sprintf("%s is %s", place(a, doc), place(b, other))
			}
		}
	}
	return ""
}

// place says which document doc of c is.
func place(c repack.Corpus, doc int) string {
	s, _ := c.(*store.Store)
	if p, ok := c.(repack.Part); ok {
		var docs []int
		if s, docs = p.Part(); docs != nil {
			doc = docs[doc]
		}
	}
	if s == nil {
		return fmt.Sprintf("document %d", doc)
	}
	return fmt.Sprintf("document %d of %s (%s)", doc, s.Dir(), s.Source(doc))
}
