package store

import (
	"fmt"
	"unsafe"
)

// Ahead names cache lines that will be read soon, so that a copy can ask for them while
// it has nothing else to wait for. It saves time and changes nothing else. The zero value
// names none. What it names is valid until the store is closed.
type Ahead struct {
	ids   unsafe.Pointer // consecutive lines
	lines int
	once  [4]unsafe.Pointer // single lines, in any order; nil is none
}

// maxLines is how many consecutive lines are asked for at most: from there on the
// processor sees by itself that they are read one after the other.
const maxLines = 32

// IDs makes a name where ids [from, to) of a document are, which must exist. It reads the
// document's entry, so that should have been named some hundred nanoseconds before.
func (a *Ahead) IDs(s *Store, doc, from, to int) {
	e := s.entries[doc]
	size := s.dtype.Size()
	at := unsafe.Add(s.at(e.loc), from*size)
	a.ids, a.lines = at, min(((to-from)*size+int(uintptr(at)&63)+63)/64, maxLines)
}

// Line makes a name the line at p as its i-th single one, of four.
func (a *Ahead) Line(i int, p unsafe.Pointer) { a.once[i] = p }

// Entry makes a name, as its i-th single line, what is read first of a document.
func (a *Ahead) Entry(i int, s *Store, doc int) { a.once[i] = unsafe.Pointer(&s.entries[doc]) }

// First makes a name, as its i-th single line, the first ids of a document, whose entry
// it reads.
func (a *Ahead) First(i int, s *Store, doc int) { a.once[i] = s.at(s.entries[doc].loc) }

// passed takes away the first n lines of the ids, and the single ones.
func (a *Ahead) passed(n int) {
	if n < a.lines { // else nothing is left, and the pointer would leave the ids
		a.ids = unsafe.Add(a.ids, 64*n)
	}
	a.lines -= min(n, a.lines)
}

// Rest asks for the ids that no copy has asked for.
func (a *Ahead) Rest() {
	if a.lines > 0 {
		prefetchLines(a.ids, a.lines)
		a.lines = 0
	}
}

// CopyPair writes the ids [from, to) of a document to tokens[0:to-from] and, as far as
// the document goes, the id after each of them to targets: to-from of them when there
// is an id at to, else one fewer. It is Copy twice in one pass over the ids, during
// which it asks for what next names; what it did not come to stays there.
//
// An empty range, one outside the document, or a short slice is a mistake of the
// program and panics.
func (s *Store) CopyPair(doc, from, to int, tokens, targets []int32, next *Ahead) {
	e := s.entries[doc]
	n := to - from
	if from < 0 || n <= 0 || to > int(e.n) {
		panic(fmt.Sprintf("store: tokens [%d,%d) of document %d, which has %d", from, to, doc, e.n))
	}
	pairs := n // of tokens and targets; one fewer where the document ends
	if to == int(e.n) {
		pairs--
	}
	tokens, targets = tokens[:n], targets[:pairs]
	if s.dtype == U16 {
		widenPair(tokens, targets, unsafe.Slice((*uint16)(unsafe.Add(s.at(e.loc), 2*from)), pairs+1), next)
		return
	}
	src := unsafe.Slice((*int32)(unsafe.Add(s.at(e.loc), 4*from)), pairs+1)
	copy(tokens, src)
	copy(targets, src[1:])
}
