//go:build amd64 && !purego

package store

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// vectors says whether this machine has the instructions of widen8, pair8 and narrow16.
var vectors = cpu.X86.HasAVX2

// wide says whether it has those of pair16.
var wide = cpu.X86.HasAVX512F && cpu.X86.HasAVX2

// widen8 sets dst[i] to src[i] for i below n, which is at least 8.
//
//go:noescape
func widen8(dst *int32, src *uint16, n int)

// pair8 is widenPairPlain in one pass, for n pairs, at least 8: the shifted ids are a
// second load of the same lines, which costs less than reading the tokens back. It asks
// for the single lines of next, and for one of its ids with every 32 it writes: a burst
// would hold up the copy while the processor has no place for one more missing line.
//
//go:noescape
func pair8(tokens, targets *int32, src *uint16, n int, next *Ahead)

// pair16 is pair8 for at least 16 pairs, with stores of whole lines of the cache.
//
//go:noescape
func pair16(tokens, targets *int32, src *uint16, n int, next *Ahead)

// narrow16 writes n ids, a multiple of 16 and not zero, and returns the largest.
//
//go:noescape
func narrow16(dst *byte, ids *uint32, n int) uint32

// widen sets dst[i] to src[i].
func widen(dst []int32, src []uint16) {
	n := len(src)
	if n < 8 || !vectors {
		widenPlain(dst, src)
		return
	}
	widen8(unsafe.SliceData(dst[:n]), unsafe.SliceData(src), n)
}

// narrow is narrowPlain.
func narrow(dst []byte, ids []uint32) (top uint32) {
	if n := len(ids) &^ 15; n > 0 && vectors {
		top = narrow16(unsafe.SliceData(dst[:2*n]), unsafe.SliceData(ids), n)
		dst, ids = dst[2*n:], ids[n:]
	}
	return max(top, narrowPlain(dst, ids))
}
