package tokenize

import (
	"encoding/binary"
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
}

// NewEncoder returns an encoder whose cache takes at most cacheBytes; 0 means 64 MiB,
// less than 128 KiB counts as that, and no more than about 130 MiB are used. A full cache
// is emptied, not grown. It starts small, so a large budget costs nothing until it is
// used.
func (t *Tokenizer) NewEncoder(cacheBytes int) *Encoder {
	return newEncoder(t, cacheBytes, haveMasks())
}

func newEncoder(t *Tokenizer, cacheBytes int, masks bool) *Encoder {
	return &Encoder{t: t, split: newSplitter(t.fam, masks), cache: newPieceCache(cacheBytes)}
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
	from, whole := len(dst), len(text)
	for len(text) > 0 {
		n, ends := e.split.next(text)
		room := n + entryIDs
		if ends == nil {
			room = n / usualText // the merging makes more itself
		}
		if cap(dst)-len(dst) < room {
			dst = growTo(dst, max(room, idsToCome(len(dst)-from, whole-len(text), len(text))))
		}
		if ends == nil {
			dst = e.merge(dst, text[:n])
		} else {
			dst = e.appendWindow(dst, ends)
		}
		text = text[n:]
	}
	return dst
}

// usualText is about how many bytes of text an id stands for.
const usualText = 3

// idsToCome is how many ids a text may still have, with some to spare, that has had ids
// for done bytes and goes on for rest. Room for them is made at once: what grows step by
// step is touched over and over, and fresh memory costs more than the encoding of what it
// holds.
func idsToCome(ids, done, rest int) int {
	if done == 0 {
		return rest / usualText
	}
	return int(uint64(ids) * uint64(rest) / uint64(done) * 9 / 8)
}

// growTo is slices.Grow without clearing what is new.
func growTo(dst []uint32, room int) []uint32 {
	more := make([]uint32, len(dst), len(dst)+max(room, len(dst)/4))
	copy(more, dst)
	return more
}

// appendWindow encodes the pieces at the start of the window. This is the hot loop:
// nearly all pieces are short, came lately, and have at most four ids.
//
// It goes around bounds checks, which cost a tenth of the speed here. What makes that
// sound: no end lies beyond the n bytes of the window, which is readable windowPad bytes
// further; a piece of n bytes has at most n ids, so at most n+3 places after len(dst) are
// written, and the caller has made room for n+4; table indexes are masked by a power of
// two.
func (e *Encoder) appendWindow(dst, ends []uint32) []uint32 {
	win := unsafe.Pointer(unsafe.SliceData(e.split.win))
	out := unsafe.Pointer(unsafe.SliceData(dst))
	recent, mask := e.cache.table()
	at := len(dst)
	start := uint32(0)
	for _, end := range ends {
		size := end - start
		if size > maxKey {
			at = len(e.appendLong(dst[:at], e.split.win[start:end]))
			start = end
			continue
		}
		piece := unsafe.Add(win, start)
		keep := &keyMasks[size]
		lo := binary.LittleEndian.Uint64((*[8]byte)(piece)[:]) & keep.lo
		hi := binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(piece, 8))[:])&keep.hi | uint64(size)<<sizeShift
		entry := (*cacheEntry)(unsafe.Add(recent, (mix(lo, hi)&mask)*entryBytes))
		if entry.lo == lo && entry.hi == hi {
			// All four are stored whatever the number; the next piece overwrites.
			to := (*[entryIDs]uint32)(unsafe.Add(out, at*4))
			*to = entry.ids
			to[0] &= idMask
			at += int(entry.ids[0] >> idBits)
		} else {
			at = len(e.appendShort(dst[:at], e.split.win[start:end], lo, hi))
		}
		start = end
	}
	return dst[:at]
}

// appendShort encodes a piece of up to 15 bytes that is not among the recent ones.
func (e *Encoder) appendShort(dst []uint32, piece []byte, lo, hi uint64) []uint32 {
	h := mix(lo, hi)
	if ids := e.cache.short(lo, hi, h); ids != nil {
		e.cache.remember(lo, hi, h, ids, true)
		for _, id := range ids {
			dst = append(dst, id)
		}
		return dst
	}
	from := len(dst)
	before := e.dropped
	dst = e.merge(dst, piece)
	if e.dropped == before { // a cached piece would not be counted again
		e.cache.putShort(lo, hi, h, dst[from:])
		e.cache.remember(lo, hi, h, dst[from:], false)
	}
	return dst
}

// appendLong encodes a piece of 16 bytes or more.
func (e *Encoder) appendLong(dst []uint32, piece []byte) []uint32 {
	if len(piece) > maxLongKey {
		return e.merge(dst, piece)
	}
	h := hashBytes(piece)
	if ids := e.cache.long(piece, h); ids != nil {
		return append(dst, ids...)
	}
	from := len(dst)
	before := e.dropped
	dst = e.merge(dst, piece)
	if e.dropped == before {
		e.cache.putLong(piece, h, dst[from:])
	}
	return dst
}

// merge encodes one piece without the cache.
func (e *Encoder) merge(dst []uint32, piece []byte) []uint32 {
	if e.t.wholePiece {
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
