package tokenize

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"unsafe"
)

// byteIndex finds the number of a string of bytes among strings that stand one after
// another in text. It is a Go map without an allocation for every key: loading a
// vocabulary of a hundred thousand should not take longer than reading it. Strings of
// up to twelve bytes, which most tokens are, lie in the table itself, so that finding
// one is one access to memory. The hash is seeded at random, so that no file can be
// made to collide.
type byteIndex struct {
	text     []byte
	offsets  []uint32 // string i is text[offsets[i]:offsets[i+1]]
	seed     maphash.Seed
	key      uint64       // of the hash of short strings, out of seed
	short    []shortEntry // open addressing, at most three quarters full
	numShort int          // in short
	long     []uint64     // the same for longer strings: upper half of the hash<<32 | number+1; 0 is free
	numLong  int
}

// shortEntry holds a string of up to twelve bytes; it is free where hi is 0.
type shortEntry struct {
	lo uint64 // the first eight bytes
	hi uint64 // four more, the length in 4 bits, then number+1
}

const (
	maxShortKey  = 12
	shortKeyBits = 36
	shortKeyMask = 1<<shortKeyBits - 1
)

// newByteIndex returns an index for n strings; it grows beyond them.
func newByteIndex(n int) byteIndex {
	seed := maphash.MakeSeed()
	return byteIndex{
		seed: seed, key: maphash.String(seed, ""),
		short: freshTable[shortEntry](bits.Len(uint(max(4*n/3, 16) - 1))),
		long:  freshTable[uint64](bits.Len(uint(max(n/4, 16) - 1))),
	}
}

// freshTable makes a table of 1<<log free places of which most pages will be used. It
// writes to each page: one that is read first is faulted in twice.
func freshTable[T any](log int) []T {
	s := make([]T, 1<<log)
	var free T
	for i := 0; i < len(s); i += (4 << 10) / int(unsafe.Sizeof(free)) {
		s[i] = free
	}
	return s
}

// len is how many strings are found.
func (x *byteIndex) len() int { return x.numShort + x.numLong }

func (x *byteIndex) at(i uint32) []byte { return x.text[x.offsets[i]:x.offsets[i+1]] }

// shortKey packs up to twelve bytes and their number.
func shortKey(b []byte) (lo, hi uint64) {
	n := len(b)
	if cap(b) >= 16 {
		// What stands behind them is masked: no branches, which names would take at random.
		w, keep := b[:16], &keyMasks[n&15]
		return binary.LittleEndian.Uint64(w) & keep.lo, uint64(binary.LittleEndian.Uint32(w[8:]))&keep.hi | uint64(n)<<32
	}
	for i, c := range b {
		if i < 8 {
			lo |= uint64(c) << (8 * i)
		} else {
			hi |= uint64(c) << (8 * (i - 8))
		}
	}
	return lo, hi | uint64(n)<<32
}

// shortSlot is where a key is, or the free place where it belongs.
func (x *byteIndex) shortSlot(lo, hi uint64) *shortEntry { return x.shortFrom(lo, hi, x.home(lo, hi)) }

// shortFrom is shortSlot for a key whose home is known.
func (x *byteIndex) shortFrom(lo, hi, home uint64) *shortEntry {
	mask := uint64(len(x.short) - 1)
	for at := home & mask; ; at = (at + 1) & mask {
		if e := &x.short[at]; e.lo == lo && e.hi&shortKeyMask == hi || e.hi == 0 {
			return e
		}
	}
}

// longSlot is the same for a longer string.
func (x *byteIndex) longSlot(b []byte) (at, tag uint64) {
	h := maphash.Bytes(x.seed, b)
	tag = h >> 32 << 32
	mask := uint64(len(x.long) - 1)
	for at = h & mask; ; at = (at + 1) & mask {
		s := x.long[at]
		if s == 0 || s>>32<<32 == tag && string(x.at(uint32(s)-1)) == string(b) {
			return at, tag
		}
	}
}

// nameKey is what find looks for, ready to be looked up: a short string and its home, or
// where hi is 0 the number of one that has been found.
type nameKey struct{ lo, hi, home uint64 }

// keyOf prepares for finding b, which is not empty. It says no where b is known not to
// be there.
func (x *byteIndex) keyOf(b []byte) (nameKey, bool) {
	if len(b) <= maxShortKey {
		lo, hi := shortKey(b)
		return nameKey{lo, hi, x.home(lo, hi)}, true
	}
	i, ok := x.find(b)
	return nameKey{lo: uint64(i)}, ok
}

// number is find for what was prepared.
func (x *byteIndex) number(k *nameKey) (uint32, bool) {
	if k.hi == 0 {
		return uint32(k.lo), true
	}
	e := x.shortFrom(k.lo, k.hi, k.home)
	return uint32(e.hi>>shortKeyBits) - 1, e.hi != 0
}

// touchKey brings the place of a key into the cache. The result means nothing.
func (x *byteIndex) touchKey(k *nameKey) uint64 { return x.short[k.home].lo }

// touch is touchKey for a string, if it is short.
func (x *byteIndex) touch(b []byte) uint64 {
	if len(b) > maxShortKey {
		return 0
	}
	lo, hi := shortKey(b)
	return x.short[x.home(lo, hi)].lo
}

// home is the first place for a short string.
func (x *byteIndex) home(lo, hi uint64) uint64 {
	return mix(lo^x.key, hi^bits.ReverseBytes64(x.key)) & uint64(len(x.short)-1)
}

// find returns the number of b.
func (x *byteIndex) find(b []byte) (uint32, bool) {
	if len(b) <= maxShortKey {
		e := x.shortSlot(shortKey(b))
		return uint32(e.hi>>shortKeyBits) - 1, e.hi != 0
	}
	at, _ := x.longSlot(b)
	s := x.long[at]
	return uint32(s) - 1, s != 0
}

// add makes string i, which stands in text, one that is found. When an equal one is
// there it returns that and false.
func (x *byteIndex) add(i uint32) (uint32, bool) {
	b := x.at(i)
	if len(b) <= maxShortKey {
		lo, hi := shortKey(b)
		e := x.shortSlot(lo, hi)
		if e.hi != 0 {
			return uint32(e.hi>>shortKeyBits) - 1, false
		}
		*e = shortEntry{lo, hi | uint64(i+1)<<shortKeyBits}
		if x.numShort++; 4*x.numShort > 3*len(x.short) {
			x.growShort()
		}
		return i, true
	}
	at, tag := x.longSlot(b)
	if s := x.long[at]; s != 0 {
		return uint32(s) - 1, false
	}
	x.long[at] = tag | uint64(i+1)
	if x.numLong++; 2*x.numLong > len(x.long) {
		x.growLong()
	}
	return i, true
}

func (x *byteIndex) growShort() {
	old := x.short
	x.short = make([]shortEntry, 2*len(old))
	for _, e := range old {
		if e.hi != 0 {
			*x.shortSlot(e.lo, e.hi&shortKeyMask) = e
		}
	}
}

func (x *byteIndex) growLong() {
	old := x.long
	x.long = make([]uint64, 2*len(old))
	for _, s := range old {
		if s != 0 {
			at, tag := x.longSlot(x.at(uint32(s) - 1))
			x.long[at] = tag | s<<32>>32
		}
	}
}
