package tokenize

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// pieceCache maps pieces of up to 256 bytes to their ids; longer ones are not worth
// keeping. Memory touched for the first time costs more than the merging it saves, so
// all that is known lies in records one after another, in blocks that stay where they
// are, under an index of four bytes a place. In front of it is a table of fixed size with
// the pieces of up to 15 bytes and four ids that came last, for the speed of finding
// them: it has one place for a hash, and needs no more than to be right or to miss.
//
// When the records have grown to the budget the cache is emptied and starts again in the
// memory that it has.
type pieceCache struct {
	recent []cacheEntry // their number is a power of two

	// Open addressing, at most three quarters full: upper bits of the hash<<24 | place of
	// the record + 1; 0 is free. In pages, so that growing takes only what is new.
	pages  []*[pageSlots]uint32
	used   int        // slots
	blocks [][]uint64 // records, each within a block
	filled int        // blocks in use; the others are kept
	shift  uint       // log2 of the words of a block

	maxPages  int
	maxBlocks int
	wipes     int64
}

// cacheEntry is a piece and its ids.
type cacheEntry struct {
	lo, hi uint64           // the piece, and its length in the top byte; hi is 0 in a free entry
	ids    [entryIDs]uint32 // the top byte of the first is their number
}

// Records are of words. The first two words of a piece of up to 15 bytes are its key, with
// the number of ids in the top four bits; of a longer one they are its hash and the
// lengths, and its bytes follow. The ids come last.

const (
	entryBytes  = 32
	entryIDs    = 4
	idBits      = 24
	idMask      = 1<<idBits - 1
	maxKey      = 15
	maxLongKey  = 256
	sizeShift   = 56 // of the length in the upper half of a key
	countShift  = 60 // of the number of ids there
	placeBits   = 24
	pageBits    = 10
	pageSlots   = 1 << pageBits // 4 KiB
	smallBlock  = 10            // log2 of words: 8 KiB
	largeBlock  = 13            // 64 KiB
	largeBudget = 4 << 20
	minBudget   = 128 << 10
	defaultSize = 64 << 20
	maxRecent   = 1 << 16 // 2 MiB
)

// keyMask keeps the first bytes of two words loaded from a piece.
type keyMask struct{ lo, hi uint64 }

// keyMasks[n] keeps n bytes.
var keyMasks = [16]keyMask{
	{},
	{0xff, 0}, {0xffff, 0}, {0xffffff, 0}, {0xffffffff, 0},
	{0xffffffffff, 0}, {0xffffffffffff, 0}, {0xffffffffffffff, 0}, {^uint64(0), 0},
	{^uint64(0), 0xff}, {^uint64(0), 0xffff}, {^uint64(0), 0xffffff}, {^uint64(0), 0xffffffff},
	{^uint64(0), 0xffffffffff}, {^uint64(0), 0xffffffffffff}, {^uint64(0), 0xffffffffffffff},
}

// pieceKey packs n <= 15 bytes at the start of b, which has at least 16.
func pieceKey(b []byte, n int) (lo, hi uint64) {
	m := &keyMasks[n&15]
	b = b[:16]
	lo = binary.LittleEndian.Uint64(b) & m.lo
	hi = binary.LittleEndian.Uint64(b[8:])&m.hi | uint64(n)<<sizeShift
	return lo, hi
}

// newPieceCache is an empty cache for a budget in bytes.
func newPieceCache(budget int) pieceCache {
	if budget <= 0 {
		budget = defaultSize
	}
	budget = max(budget, minBudget)
	c := pieceCache{shift: smallBlock}
	if budget >= largeBudget {
		c.shift = largeBlock
	}
	recent := min(powerOfTwo(budget/4/entryBytes), maxRecent)
	c.recent = make([]cacheEntry, recent)
	budget -= recent * entryBytes
	// Records have five words, so a fifth for the index is enough.
	c.maxPages = min(powerOfTwo(budget/5/(4*pageSlots)), 1<<(placeBits-pageBits))
	c.maxBlocks = min((budget-4*pageSlots*c.maxPages)/(8<<c.shift), (1<<placeBits-1)>>c.shift)
	c.pages = []*[pageSlots]uint32{new([pageSlots]uint32)}
	return c
}

// powerOfTwo is the largest one up to n, which is positive.
func powerOfTwo(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// table is the table of recent pieces for reading at masked indexes.
func (c *pieceCache) table() (first unsafe.Pointer, mask uint64) {
	return unsafe.Pointer(unsafe.SliceData(c.recent)), uint64(len(c.recent) - 1)
}

// remember puts a short piece into the table of recent ones, if it has few enough ids.
// One that is new there gives way to one that is there.
func (c *pieceCache) remember(lo, hi, h uint64, ids []uint32, again bool) {
	e := &c.recent[h&uint64(len(c.recent)-1)]
	if len(ids) > len(e.ids) || e.hi != 0 && !again {
		return
	}
	e.lo, e.hi = lo, hi
	copy(e.ids[:], ids)
	e.ids[0] |= uint32(len(ids)) << idBits
}

func (c *pieceCache) mask() uint64 { return uint64(len(c.pages)<<pageBits - 1) }

func (c *pieceCache) slot(i uint64) *uint32 { return &c.pages[i>>pageBits][i&(pageSlots-1)] }

func (c *pieceCache) clearIndex() {
	for _, p := range c.pages {
		clear(p[:])
	}
}

// record is what begins at a place; it reaches to the end of the block.
func (c *pieceCache) record(place uint32) []uint64 {
	return c.blocks[place>>c.shift][place&(1<<c.shift-1):]
}

// short returns the ids of a piece of up to 15 bytes, nil when it is not there. h is the
// hash of its key.
func (c *pieceCache) short(lo, hi, h uint64) []uint32 {
	mask := c.mask()
	for i := h & mask; ; i = (i + 1) & mask {
		s := *c.slot(i)
		if s == 0 {
			return nil
		}
		if uint64(s>>placeBits) != h>>(64-8) {
			continue
		}
		r := c.record(s&(1<<placeBits-1) - 1)
		if r[0] == lo && r[1]&(1<<countShift-1) == hi {
			return idsIn(r[2:], int(r[1]>>countShift))
		}
	}
}

// idsIn are n ids that begin with the first word.
func idsIn(words []uint64, n int) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(words[:(n+1)/2]))), n)
}

// bytesIn are n bytes that begin with the first word.
func bytesIn(words []uint64, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words[:(n+7)/8]))), n)
}

// putShort keeps the ids of a piece of up to 15 bytes that is not there.
func (c *pieceCache) putShort(lo, hi, h uint64, ids []uint32) {
	r := c.add(h, 2+(len(ids)+1)/2)
	r[0], r[1] = lo, hi|uint64(len(ids))<<countShift
	copy(idsIn(r[2:], len(ids)), ids)
}

// long returns the ids of a piece of 16 to 256 bytes, nil when it is not there. h is the
// hash of its bytes.
func (c *pieceCache) long(piece []byte, h uint64) []uint32 {
	mask := c.mask()
	for i := h & mask; ; i = (i + 1) & mask {
		s := *c.slot(i)
		if s == 0 {
			return nil
		}
		if uint64(s>>placeBits) != h>>(64-8) {
			continue
		}
		r := c.record(s&(1<<placeBits-1) - 1)
		if keyLen, numIDs := longLengths(r[1]); r[0] == h && keyLen == len(piece) && string(bytesIn(r[2:], keyLen)) == string(piece) {
			return idsIn(r[2+(keyLen+7)/8:], numIDs)
		}
	}
}

// longLengths unpacks the second word of a long record; of a short one it gives a length
// that no long piece has.
func longLengths(word uint64) (keyLen, numIDs int) {
	return int(word &^ (0xffff << 16)), int(word >> 16 & 0xffff)
}

// putLong keeps the ids of a piece of 16 to 256 bytes that is not there.
func (c *pieceCache) putLong(piece []byte, h uint64, ids []uint32) {
	keyWords := (len(piece) + 7) / 8
	r := c.add(h, 2+keyWords+(len(ids)+1)/2)
	r[0], r[1] = h, uint64(len(piece))|uint64(len(ids))<<16
	copy(bytesIn(r[2:], len(piece)), piece)
	copy(idsIn(r[2+keyWords:], len(ids)), ids)
}

// hashAndSize are of the record that begins with two words.
func hashAndSize(first, second uint64) (h uint64, words int) {
	if second>>sizeShift == 0 {
		keyLen, numIDs := longLengths(second)
		return first, 2 + (keyLen+7)/8 + (numIDs+1)/2
	}
	return mix(first, second&(1<<countShift-1)), 2 + int(second>>countShift+1)/2
}

// add makes room for a record of some words and puts it into the index.
func (c *pieceCache) add(h uint64, words int) []uint64 {
	if 4*(c.used+1) > 3*pageSlots*len(c.pages) {
		if len(c.pages) < c.maxPages {
			c.grow()
		} else {
			c.wipe()
		}
	}
	if c.filled == 0 || cap(c.blocks[c.filled-1])-len(c.blocks[c.filled-1]) < words {
		if c.filled == c.maxBlocks {
			c.wipe()
		}
		if c.filled == len(c.blocks) {
			c.blocks = append(c.blocks, make([]uint64, 0, 1<<c.shift))
		}
		c.blocks[c.filled] = c.blocks[c.filled][:0]
		c.filled++
	}
	b := &c.blocks[c.filled-1]
	at := len(*b)
	*b = (*b)[:at+words]
	c.index(h, uint32(c.filled-1)<<c.shift|uint32(at))
	c.used++
	return (*b)[at:]
}

// index puts the place of a record into the first free slot for its hash.
func (c *pieceCache) index(h uint64, place uint32) {
	mask := c.mask()
	i := h & mask
	for *c.slot(i) != 0 {
		i = (i + 1) & mask
	}
	*c.slot(i) = uint32(h>>(64-8))<<placeBits | (place + 1)
}

// grow doubles the index. The records lie in the order in which they came, so it goes
// through memory once and from one end to the other.
func (c *pieceCache) grow() {
	if len(c.pages) == 1 {
		// There is more to come, so all of this table will be used. It has hardly anything
		// yet, and a page of fresh memory that is read first is faulted in twice.
		clear(c.recent)
	}
	c.clearIndex()
	for range len(c.pages) {
		c.pages = append(c.pages, new([pageSlots]uint32))
	}
	for k, b := range c.blocks[:c.filled] {
		for at := 0; at < len(b); {
			h, words := hashAndSize(b[at], b[at+1])
			c.index(h, uint32(k)<<c.shift|uint32(at))
			at += words
		}
	}
}

// wipe empties the cache, but keeps its memory.
func (c *pieceCache) wipe() {
	c.clearIndex()
	clear(c.recent)
	c.used, c.filled = 0, 0
	c.wipes++
}
