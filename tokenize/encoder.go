package tokenize

import (
	"encoding/binary"
	"slices"
	"unsafe"
)

// Encoder encodes texts with one tokenizer. It owns a cache of pieces and scratch
// memory, so it is not safe for concurrent use: every worker has its own. The ids
// do not depend on what was encoded before, nor on the size of the cache.
type Encoder struct {
	t       *Tokenizer
	g       merger
	split   splitter
	cache   pieceCache
	dropped int64

	whole     bool // whole-piece lookup
	reachable bool // every token comes out of merging its bytes
}

// NewEncoder returns an encoder whose cache takes at most about cacheBytes; 0 means
// 64 MiB, and less than 128 KiB counts as that. A full cache is emptied, not grown. It
// starts small, so a large budget costs nothing until it is used.
func (t *Tokenizer) NewEncoder(cacheBytes int) *Encoder {
	return newEncoder(t, cacheBytes, haveMasks())
}

func newEncoder(t *Tokenizer, cacheBytes int, masks bool) *Encoder {
	return &Encoder{
		t: t, split: newSplitter(t.fam, masks), cache: newPieceCache(t, cacheBytes),
		whole: t.wholePiece, reachable: t.analysis().allSelf,
	}
}

// Append appends the ids of text to dst and returns it. The text is taken as plain
// text: content of special tokens in it is encoded like any other characters and
// never yields a special id. Added tokens that are not special are ordinary
// vocabulary and are found. The text is only read, and dst belongs to the caller
// again afterwards. With room in dst and once the cache has seen the pieces nothing
// is allocated. Room means cap(dst)-len(dst) >= len(text)+4.
func (e *Encoder) Append(dst []uint32, text []byte) []uint32 {
	if !e.t.anyAdded {
		return e.appendPlain(dst, text)
	}
	return e.appendPass(dst, text, 0, false)
}

// AppendSpecial is Append, but the contents of special tokens in text become their
// ids. Use it only on text that may contain control tokens, never on data from
// outside.
func (e *Encoder) AppendSpecial(dst []uint32, text []byte) []uint32 {
	return e.appendPass(dst, text, 0, true)
}

// Dropped is the number of bytes left out so far because no token covers them; it
// stays zero unless Tokenizer.MissingBytes is not.
func (e *Encoder) Dropped() int64 { return e.dropped }

// appendPass cuts out the added tokens of one pass and hands the rest to the next.
func (e *Encoder) appendPass(dst []uint32, text []byte, pass int, special bool) []uint32 {
	if pass == len(e.t.matchers) {
		return e.appendPlain(dst, text)
	}
	m := e.t.matchers[pass]
	if m == nil {
		return e.appendPass(dst, text, pass+1, special)
	}
	for taken, resume := 0, 0; ; {
		k := m.next(text, taken, resume, special)
		if taken < k.start {
			dst = e.appendPass(dst, text[taken:k.start], pass+1, special)
		}
		if k.token == nil {
			return dst
		}
		dst = append(dst, k.token.ID)
		taken, resume = max(taken, k.end), k.resume
	}
}

// appendPlain encodes text without added tokens.
func (e *Encoder) appendPlain(dst []uint32, text []byte) []uint32 {
	for len(text) > 0 {
		n, ends := e.split.next(text)
		if ends == nil {
			dst = e.merge(dst, text[:n])
		} else {
			dst = e.appendWindow(dst, ends, n)
		}
		text = text[n:]
	}
	return dst
}

// appendWindow encodes the pieces at the start of the window. This is the hot loop:
// nearly all pieces are short, are in the cache, and have at most four ids.
//
// It goes around bounds checks, which cost a tenth of the speed here. What makes that
// sound: every end is at most n and the window is readable windowPad bytes further;
// a piece of n bytes has at most n ids, so at most n+3 places after len(dst) are
// written, and room is made for n+4; table indexes are masked by a power of two.
func (e *Encoder) appendWindow(dst []uint32, ends []uint32, n int) []uint32 {
	const most = len(cacheEntry{}.ids)
	if cap(dst)-len(dst) < n+most {
		dst = slices.Grow(dst, n+most)
	}
	win := unsafe.Pointer(unsafe.SliceData(e.split.win))
	out := unsafe.Pointer(unsafe.SliceData(dst))
	slots, mask := e.cache.table()
	at := len(dst)
	start := uint32(0)
	for _, end := range ends {
		size := end - start
		if size > maxKey {
			at = len(e.appendLong(dst[:at], e.split.win[start:end]))
			slots, mask = e.cache.table()
			start = end
			continue
		}
		piece := unsafe.Add(win, start)
		keep := &keyMasks[size]
		lo := binary.LittleEndian.Uint64((*[8]byte)(piece)[:]) & keep.lo
		hi := binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(piece, 8))[:])&keep.hi | uint64(size)<<56
		entry := (*cacheEntry)(unsafe.Add(slots, (mix(lo, hi)&mask)*entryBytes))
		if count := entry.ids[0] >> idBits; entry.lo == lo && entry.hi == hi && count <= uint32(most) {
			// All four are stored whatever the number; the next piece overwrites.
			to := (*[most]uint32)(unsafe.Add(out, at*4))
			*to = entry.ids
			to[0] &= idMask
			at += int(count)
		} else {
			at = len(e.appendShort(dst[:at], e.split.win[start:end], lo, hi))
			slots, mask = e.cache.table()
		}
		start = end
	}
	return dst[:at]
}

// appendShort finishes a short piece that is not at its first place in the cache.
func (e *Encoder) appendShort(dst []uint32, piece []byte, lo, hi uint64) []uint32 {
	k := e.cache.slot(lo, hi)
	if k.hi != 0 {
		count := k.ids[0] >> idBits
		if count == spilled {
			return append(dst, e.cache.ids.get(k.ids[1], k.ids[2])...)
		}
		for _, id := range k.ids[:count] {
			dst = append(dst, id&idMask)
		}
		return dst
	}
	from := len(dst)
	before := e.dropped
	dst = e.merge(dst, piece)
	if e.dropped == before { // a cached piece would not be counted again
		e.cache.put(e.t, k, lo, hi, dst[from:])
	}
	return dst
}

// appendLong encodes a piece of 16 bytes or more.
func (e *Encoder) appendLong(dst []uint32, piece []byte) []uint32 {
	if len(piece) > maxLongKey {
		return e.merge(dst, piece)
	}
	h := hashBytes(piece)
	if k := e.cache.longSlot(h, piece); k.keyLen != 0 {
		return append(dst, e.cache.ids.get(k.ids, k.numIDs)...)
	}
	from := len(dst)
	before := e.dropped
	dst = e.merge(dst, piece)
	if e.dropped == before {
		e.cache.putLong(e.t, h, piece, dst[from:])
	}
	return dst
}

// merge encodes one piece without the cache.
func (e *Encoder) merge(dst []uint32, piece []byte) []uint32 {
	// A short token that merging produces needs no looking up.
	if e.whole && (len(piece) > maxKey || !e.reachable) {
		if id, ok := e.t.find(piece); ok {
			return append(dst, id)
		}
	}
	if len(piece) >= minBacktrack {
		if b := e.t.backtracks(); b != nil {
			dst, _ = e.g.appendBacktrack(dst, b, piece)
			return dst
		}
	}
	dst, dropped := e.g.append(dst, e.t.table, piece, e.t.missing > 0)
	e.dropped += int64(dropped)
	return dst
}
