package tokenize

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// pieceCache maps pieces to their ids. It has two tables: pieces of up to 15 bytes
// sit in 32-byte entries with up to four ids, two entries a cache line; pieces of 16
// to 256 bytes sit in an arena. Longer ones are not worth keeping. When it has grown
// to its budget it is emptied and starts again from the vocabulary.
type pieceCache struct {
	slots []cacheEntry
	used  int
	spill []uint32 // ids of short pieces with more than four

	long     []longEntry
	longUsed int
	keys     []byte
	ids      []uint32

	maxSlots int
	maxLong  int // bytes of long, keys, ids and spill together
	wipes    int64
}

type cacheEntry struct {
	lo, hi uint64    // the piece, and its length in the top byte; hi is 0 in a free entry
	ids    [4]uint32 // the top byte of the first is their number, or spilled
}

const (
	entryBytes = 32
	idBits     = 24
	idMask     = 1<<idBits - 1
	spilled    = 0xff // then ids[1] and ids[2] are offset and number in spill
	maxKey     = 15
	maxLongKey = 256
	minSlots   = 1 << 10
	minBudget  = 128 << 10
	minLong    = 1 << 8
	// Room for a table of minLong entries and what they hold, whatever the budget.
	minLongBytes = 64 << 10
	defaultSize  = 64 << 20
)

type longEntry struct {
	hash   uint64
	key    uint32 // offset in keys
	keyLen uint32 // 0 in a free entry
	ids    uint32 // offset in ids
	numIDs uint32
}

const longEntryBytes = 24

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
	hi = binary.LittleEndian.Uint64(b[8:])&m.hi | uint64(n)<<56
	return lo, hi
}

// newPieceCache sizes the tables for a budget in bytes and puts in the seeds.
func newPieceCache(t *Tokenizer, budget int) pieceCache {
	if budget <= 0 {
		budget = defaultSize
	}
	budget = max(budget, minBudget)
	c := pieceCache{maxLong: max(budget/4, minLongBytes)}
	c.maxSlots = 1 << (bits.Len(uint(budget/4*3/entryBytes)) - 1)
	size := minSlots
	for size < c.maxSlots && size < 4*len(t.analysis().seeds) {
		size *= 2
	}
	c.slots = newEntries(size)
	c.long = make([]longEntry, minLong)
	c.seed(t)
	return c
}

// seed puts in the tokens that stand for a piece of their bytes, as far as they fill
// at most a quarter of the largest table.
func (c *pieceCache) seed(t *Tokenizer) {
	var buf [16]byte
	for _, id := range t.analysis().seeds {
		b := t.bytesOf(id)
		if len(b) > maxKey {
			continue
		}
		if 4*c.used >= c.maxSlots {
			return
		}
		copy(buf[:], b)
		lo, hi := pieceKey(buf[:], len(b))
		*c.slot(lo, hi) = cacheEntry{lo: lo, hi: hi, ids: [4]uint32{id | 1<<idBits}}
		c.used++
		c.growSlots()
	}
}

// table is the short table for reading at masked indexes.
func (c *pieceCache) table() (first unsafe.Pointer, mask uint64) {
	return unsafe.Pointer(unsafe.SliceData(c.slots)), uint64(len(c.slots) - 1)
}

// slot finds the entry of a key, or the free one where it belongs.
func (c *pieceCache) slot(lo, hi uint64) *cacheEntry {
	mask := uint64(len(c.slots) - 1)
	for i := mix(lo, hi) & mask; ; i = (i + 1) & mask {
		if e := &c.slots[i]; e.hi == 0 || e.lo == lo && e.hi == hi {
			return e
		}
	}
}

// put stores the ids of a short piece in e, the free entry that slot gave.
func (c *pieceCache) put(t *Tokenizer, e *cacheEntry, lo, hi uint64, ids []uint32) {
	if 2*(c.used+1) > len(c.slots) && len(c.slots) >= c.maxSlots || c.longBytes() > c.maxLong {
		c.wipe(t)
		if e = c.slot(lo, hi); e.hi != 0 {
			return // a seed is back
		}
	}
	e.lo, e.hi = lo, hi
	if len(ids) > 0 && len(ids) <= len(e.ids) {
		copy(e.ids[:], ids)
		e.ids[0] |= uint32(len(ids)) << idBits
	} else {
		e.ids = [4]uint32{spilled << idBits, uint32(len(c.spill)), uint32(len(ids))}
		c.spill = append(c.spill, ids...)
	}
	c.used++
	c.growSlots()
}

// growSlots keeps the short table at most half full, up to its largest size.
func (c *pieceCache) growSlots() {
	if 2*c.used <= len(c.slots) || len(c.slots) >= c.maxSlots {
		return
	}
	old := c.slots
	c.slots = newEntries(2 * len(old))
	for i := range old {
		if old[i].hi != 0 {
			*c.slot(old[i].lo, old[i].hi) = old[i]
		}
	}
}

// longSlot finds the entry of a long piece, or the free one where it belongs.
func (c *pieceCache) longSlot(h uint64, piece []byte) *longEntry {
	mask := uint64(len(c.long) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		e := &c.long[i]
		if e.keyLen == 0 || e.hash == h && int(e.keyLen) == len(piece) && string(c.keys[e.key:e.key+e.keyLen]) == string(piece) {
			return e
		}
	}
}

// putLong stores the ids of a piece of 16 to 256 bytes.
func (c *pieceCache) putLong(t *Tokenizer, h uint64, piece []byte, ids []uint32) {
	if c.longBytes()+len(piece)+4*len(ids) > c.maxLong {
		if c.longUsed == 0 && len(c.spill) == 0 {
			return // the budget is too small to keep anything
		}
		c.wipe(t)
	}
	*c.longSlot(h, piece) = longEntry{h, uint32(len(c.keys)), uint32(len(piece)), uint32(len(c.ids)), uint32(len(ids))}
	c.keys = append(c.keys, piece...)
	c.ids = append(c.ids, ids...)
	if c.longUsed++; 2*c.longUsed > len(c.long) {
		old := c.long
		c.long = make([]longEntry, 2*len(old))
		mask := uint64(len(c.long) - 1)
		for _, e := range old {
			if e.keyLen != 0 {
				i := e.hash & mask
				for c.long[i].keyLen != 0 {
					i = (i + 1) & mask
				}
				c.long[i] = e
			}
		}
	}
}

func (c *pieceCache) longBytes() int {
	return len(c.long)*longEntryBytes + cap(c.keys) + 4*cap(c.ids) + 4*cap(c.spill)
}

// wipe empties the cache to what it was when new.
func (c *pieceCache) wipe(t *Tokenizer) {
	clear(c.slots)
	c.used = 0
	c.spill, c.keys, c.ids = nil, nil, nil
	c.long = make([]longEntry, minLong)
	c.longUsed = 0
	c.wipes++
	c.seed(t)
}
