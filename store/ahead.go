package store

import (
	"fmt"
	"unsafe"
)

// Hint names cache lines with ids that will be copied soon. The zero value names none.
// It is valid until the store is closed.
type Hint struct {
	at    unsafe.Pointer
	lines int
}

// maxLines is how many lines of a hint are asked for at most: from there on the
// processor sees by itself that they are read one after the other.
const maxLines = 32

// Hint is where ids [from, to) of a document are, which must exist. It reads the
// document's entry, so PrefetchEntry comes before it.
func (s *Store) Hint(doc, from, to int) Hint {
	e := s.entries[doc]
	at := unsafe.Add(s.at(e.loc), from*s.dtype.Size())
	return Hint{at, min(((to-from)*s.dtype.Size()+int(uintptr(at)&63)+63)/64, maxLines)}
}

// after is what is left of h behind its first n lines.
func (h Hint) after(n int) Hint {
	if n >= h.lines {
		return Hint{}
	}
	return Hint{unsafe.Add(h.at, 64*n), h.lines - n}
}

// Prefetch asks for all lines of the hint at once. It saves time and changes nothing
// else.
func (h Hint) Prefetch() {
	if h.lines > 0 {
		prefetchLines(h.at, h.lines)
	}
}

// PrefetchEntry hints that document doc, which must exist, will be copied some hundred
// nanoseconds from now.
func (s *Store) PrefetchEntry(doc int) { Prefetch(unsafe.Pointer(&s.entries[doc])) }

// CopyPair writes the ids [from, to) of a document to tokens[0:to-from] and, as far as
// the document goes, the id after each of them to targets: to-from of them when there
// is an id at to, else one fewer. It is Copy twice in one pass over the ids, during
// which it asks for the lines of next; it returns those it did not come to.
//
// An empty range, one outside the document, or a short slice is a mistake of the
// program and panics.
func (s *Store) CopyPair(doc, from, to int, tokens, targets []int32, next Hint) Hint {
	e := s.entries[doc]
	if from < 0 || from >= to || to > int(e.n) {
		panic(fmt.Sprintf("store: tokens [%d,%d) of document %d, which has %d", from, to, doc, e.n))
	}
	n := to - from
	more := min(int(e.n)-to, 1) // 1 when the document goes on
	tokens, targets = tokens[:n], targets[:n-1+more]
	if s.dtype == U16 {
		return widenPair(tokens, targets, unsafe.Slice((*uint16)(s.at(e.loc)), to+more)[from:], next)
	}
	src := unsafe.Slice((*int32)(s.at(e.loc)), to+more)[from:]
	copy(tokens, src)
	copy(targets, src[1:])
	return next
}
