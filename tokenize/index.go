package tokenize

import (
	"hash/maphash"
	"math/bits"
)

// byteIndex finds the number of a string of bytes among strings that stand one after
// another in text. It is a Go map without an allocation for every key: loading a
// vocabulary of a hundred thousand should not take longer than reading it. The hash is
// seeded at random, so that no file can be made to collide.
type byteIndex struct {
	text    []byte
	offsets []uint32 // string i is text[offsets[i]:offsets[i+1]]
	seed    maphash.Seed
	slots   []uint64 // upper half of the hash<<32 | number+1; 0 is free
	n       int
}

// newByteIndex returns an index for n strings; it grows beyond them.
func newByteIndex(n int) byteIndex {
	return byteIndex{seed: maphash.MakeSeed(), slots: make([]uint64, 1<<bits.Len(uint(max(2*n, 16)-1)))}
}

func (x *byteIndex) at(i uint32) []byte { return x.text[x.offsets[i]:x.offsets[i+1]] }

// slot is where b is, or the free place where it belongs.
func (x *byteIndex) slot(b []byte) (at, tag uint64) {
	h := maphash.Bytes(x.seed, b)
	tag = h >> 32 << 32
	mask := uint64(len(x.slots) - 1)
	for at = h & mask; ; at = (at + 1) & mask {
		s := x.slots[at]
		if s == 0 || s>>32<<32 == tag && string(x.at(uint32(s)-1)) == string(b) {
			return at, tag
		}
	}
}

// find returns the number of b.
func (x *byteIndex) find(b []byte) (uint32, bool) {
	at, _ := x.slot(b)
	s := x.slots[at]
	return uint32(s) - 1, s != 0
}

// add makes string i, which stands in text, one that is found. When an equal one is
// there it returns that and false.
func (x *byteIndex) add(i uint32) (uint32, bool) {
	at, tag := x.slot(x.at(i))
	if s := x.slots[at]; s != 0 {
		return uint32(s) - 1, false
	}
	x.slots[at] = tag | uint64(i+1)
	if x.n++; 2*x.n > len(x.slots) {
		x.grow()
	}
	return i, true
}

func (x *byteIndex) grow() {
	old := x.slots
	x.slots = make([]uint64, 2*len(old))
	for _, s := range old {
		if s != 0 {
			at, tag := x.slot(x.at(uint32(s) - 1))
			x.slots[at] = tag | s<<32>>32
		}
	}
}
