package store

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
)

// Pack appends ids to dst as a store with a vocabulary of vocab entries holds them:
// little-endian words of DTypeFor(vocab). It is an error when an id is outside the
// vocabulary.
func Pack(dst []byte, ids []uint32, vocab int) ([]byte, error) {
	at, size := len(dst), DTypeFor(vocab).Size()
	dst = grown(dst, size*len(ids))[:at+size*len(ids)]
	var top uint32 // the largest id, found in the same pass
	if to := dst[at:]; size == U16.Size() {
		top = narrow(to, ids)
	} else {
		for i, id := range ids {
			binary.LittleEndian.PutUint32(to[4*i:], id)
			top = max(top, id)
		}
	}
	if len(ids) > 0 && int64(top) >= int64(vocab) {
		return dst[:at], fmt.Errorf("id %d at token %d is outside the vocabulary of %d", top, slices.Index(ids, top), vocab)
	}
	return dst, nil
}

// grown is slices.Grow that at least doubles: what append adds to large slices is a
// quarter, which touches several times the memory in the end.
func grown(b []byte, n int) []byte {
	if n <= cap(b)-len(b) {
		return b
	}
	return slices.Grow(b, max(n, 2*cap(b)-len(b)))
}

// Unpack goes through the ids that Pack made packed of.
func Unpack(packed []byte, vocab int) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if DTypeFor(vocab) == U16 {
			for ; len(packed) >= 2; packed = packed[2:] {
				if !yield(uint32(binary.LittleEndian.Uint16(packed))) {
					return
				}
			}
			return
		}
		for ; len(packed) >= 4; packed = packed[4:] {
			if !yield(binary.LittleEndian.Uint32(packed)) {
				return
			}
		}
	}
}
