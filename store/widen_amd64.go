//go:build amd64 && !purego

package store

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// vectors says whether this machine has the instructions of widen8, pair8 and narrow16.
var vectors = cpu.X86.HasAVX2

// widen8 sets dst[i] to src[i] for i below n, which is at least 8.
//
//go:noescape
func widen8(dst *int32, src *uint16, n int)

// pair8 sets tokens[i] to src[i] and targets[i] to src[i+1] for i below n, which is
// at least 8. It reads n+1 ids.
//
//go:noescape
func pair8(tokens, targets *int32, src *uint16, n int, ahead unsafe.Pointer, lines int)

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

// widenPair is widenPairPlain in one pass: the shifted ids are a second load of the
// same lines, which costs less than reading the tokens back. It asks for one line of
// next with every 32 ids and returns the rest of next: a burst would hold up the copy
// while the processor has no place for one more missing line.
func widenPair(tokens, targets []int32, src []uint16, next Hint) Hint {
	n := len(targets)
	if n < 8 || !vectors {
		widenPairPlain(tokens, targets, src)
		return next
	}
	tokens, src = tokens[:max(n, len(tokens))], src[:max(n+1, len(src))]
	pair8(unsafe.SliceData(tokens), unsafe.SliceData(targets), unsafe.SliceData(src), n, next.at, next.lines)
	if len(tokens) > n {
		tokens[n] = int32(src[n])
	}
	return next.after(n / 32)
}

// narrow is narrowPlain.
func narrow(dst []byte, ids []uint32) (top uint32) {
	if n := len(ids) &^ 15; n > 0 && vectors {
		top = narrow16(unsafe.SliceData(dst[:2*n]), unsafe.SliceData(ids), n)
		dst, ids = dst[2*n:], ids[n:]
	}
	return max(top, narrowPlain(dst, ids))
}
