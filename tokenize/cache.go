package tokenize

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// pieceCache maps pieces to their ids. It has two tables: pieces of up to 15 bytes
// sit in 32-byte entries with up to four ids, two entries a cache line; pieces of 16
// to 256 bytes sit in an arena. Longer ones are not worth keeping. When it has grown
// to its budget it is emptied and starts again from the vocabulary, in the memory that
// it has.
type pieceCache struct {
	slots []cacheEntry
	used  int

	long     []longEntry
	longUsed int
	keys     arena[byte]
	ids      arena[uint32] // of long pieces, and of short ones with more than four

	maxSlots int
	maxLong  int // bytes of long, keys and ids together
	wipes    int64
}

// arena holds slices one after another in blocks of one size, so that growing copies
// nothing and leaves nothing behind. An offset is the number of the block and the place
// in it.
type arena[T any] struct {
	blocks [][]T
	used   int // blocks in use; the others are kept
}

const (
	arenaBytes = 8 << 10
	arenaBits  = 13 // any place in a block of bytes
)

// missing is how many blocks add has to make for n elements.
func (a *arena[T]) missing(n int) int {
	if n == 0 || a.used < len(a.blocks) || a.used > 0 && cap(a.blocks[a.used-1])-len(a.blocks[a.used-1]) >= n {
		return 0
	}
	return 1
}

// empty keeps the blocks that were in use for what comes.
func (a *arena[T]) empty() {
	clear(a.blocks[a.used:])
	a.blocks = a.blocks[:a.used]
	a.used = 0
}

// add copies v, which is shorter than a block, and returns its offset.
func (a *arena[T]) add(v []T) uint32 {
	if a.used == 0 || cap(a.blocks[a.used-1])-len(a.blocks[a.used-1]) < len(v) {
		if a.used == len(a.blocks) {
			var one T
			a.blocks = append(a.blocks, make([]T, 0, arenaBytes/int(unsafe.Sizeof(one))))
		}
		a.blocks[a.used] = a.blocks[a.used][:0]
		a.used++
	}
	b := &a.blocks[a.used-1]
	at := uint32(a.used-1)<<arenaBits | uint32(len(*b))
	*b = append(*b, v...)
	return at
}

// get is what stands at an offset.
func (a *arena[T]) get(at, n uint32) []T {
	from := at & (1<<arenaBits - 1)
	return a.blocks[at>>arenaBits][from : from+n]
}

type cacheEntry struct {
	lo, hi uint64    // the piece, and its length in the top byte; hi is 0 in a free entry
	ids    [4]uint32 // the top byte of the first is their number, or spilled
}

const (
	entryBytes = 32
	idBits     = 24
	idMask     = 1<<idBits - 1
	spilled    = 0xff // then ids[1] and ids[2] are offset and number in the arena
	maxKey     = 15
	maxLongKey = 256
	minSlots   = 1 << 10
	minBudget  = 128 << 10
	minLong    = 1 << 8
	// Room for a table of minLong entries and what they hold, whatever the budget.
	minLongBytes = 64 << 10
	maxLongBytes = 1 << 30 // what offsets reach
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
	c := pieceCache{maxLong: min(max(budget/4, minLongBytes), maxLongBytes)}
	c.maxSlots = 1 << (bits.Len(uint(budget/4*3/entryBytes)) - 1)
	size := minSlots
	for size < c.maxSlots && size < 4*len(t.analysis().seeds) {
		size *= 2
	}
	c.long = make([]longEntry, minLong)
	if ready := t.seeded(); len(ready.slots) == size && 4*ready.used <= c.maxSlots {
		c.slots, c.used = newEntries(size), ready.used
		copy(c.slots, ready.slots)
		return c
	}
	c.slots = newEntries(size)
	c.seed(t)
	return c
}

// seedTable is a short table with all seeds, which new encoders copy.
func (t *Tokenizer) seedTable() *pieceCache {
	size := minSlots
	for size < 4*len(t.analysis().seeds) {
		size *= 2
	}
	c := pieceCache{slots: make([]cacheEntry, size), maxSlots: size}
	c.seed(t)
	return &c
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
	inArena := 0
	if len(ids) > len(e.ids) {
		inArena = len(ids)
	}
	if 2*(c.used+1) > len(c.slots) && len(c.slots) >= c.maxSlots || !c.hasRoom(0, inArena) {
		c.makeRoom(t, 0, inArena)
		if e = c.slot(lo, hi); e.hi != 0 {
			return // a seed is back
		}
	}
	e.lo, e.hi = lo, hi
	if len(ids) > 0 && len(ids) <= len(e.ids) {
		copy(e.ids[:], ids)
		e.ids[0] |= uint32(len(ids)) << idBits
	} else {
		e.ids = [4]uint32{spilled << idBits, c.ids.add(ids), uint32(len(ids))}
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
		if e.keyLen == 0 || e.hash == h && int(e.keyLen) == len(piece) && string(c.keys.get(e.key, e.keyLen)) == string(piece) {
			return e
		}
	}
}

// putLong stores the ids of a piece of 16 to 256 bytes.
func (c *pieceCache) putLong(t *Tokenizer, h uint64, piece []byte, ids []uint32) {
	if 2*(c.longUsed+1) > len(c.long) && !c.growLong() || !c.hasRoom(len(piece), len(ids)) {
		c.makeRoom(t, len(piece), len(ids))
	}
	*c.longSlot(h, piece) = longEntry{h, c.keys.add(piece), uint32(len(piece)), c.ids.add(ids), uint32(len(ids))}
	c.longUsed++
}

// growLong doubles the long table. It may take half of what there is for long pieces,
// else there would be a large table of few pieces.
func (c *pieceCache) growLong() bool {
	more := len(c.long) * longEntryBytes
	if 2*more > c.maxLong/2 || c.longBytes()+more > c.maxLong {
		return false
	}
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
	return true
}

func (c *pieceCache) longBytes() int {
	return len(c.long)*longEntryBytes + arenaBytes*(len(c.keys.blocks)+len(c.ids.blocks))
}

// hasRoom says whether a key and ids fit into the budget.
func (c *pieceCache) hasRoom(keyLen, numIDs int) bool {
	blocks := c.keys.missing(keyLen) + c.ids.missing(numIDs)
	return blocks == 0 || c.longBytes()+blocks*arenaBytes <= c.maxLong
}

// makeRoom empties the cache so that a key and ids fit.
func (c *pieceCache) makeRoom(t *Tokenizer, keyLen, numIDs int) {
	c.wipe(t)
	if !c.hasRoom(keyLen, numIDs) { // all blocks are of the other kind
		c.keys.blocks, c.ids.blocks = nil, nil
	}
}

// wipe empties the cache to what it was when new, but keeps the memory in use.
func (c *pieceCache) wipe(t *Tokenizer) {
	clear(c.slots)
	c.used = 0
	c.keys.empty()
	c.ids.empty()
	clear(c.long)
	c.longUsed = 0
	c.wipes++
	c.seed(t)
}
