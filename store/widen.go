package store

import (
	"encoding/binary"
	"unsafe"
)

// widenPlain sets dst[i] to src[i]. It moves four ids with one load and two stores of
// 64 bits: about twice as fast as one id at a time, which the compiler does not
// vectorise. The byte order is that of the file, little-endian.
func widenPlain(dst []int32, src []uint16) {
	n := len(src)
	dst = dst[:n]
	i := 0
	for ; i+8 <= n; i += 8 {
		s := (*[2]uint64)(unsafe.Pointer(&src[i]))
		d := (*[4]uint64)(unsafe.Pointer(&dst[i]))
		x, y := s[0], s[1]
		d[0] = x&0xffff | x<<16&(0xffff<<32)
		d[1] = x>>32&0xffff | x>>16&(0xffff<<32)
		d[2] = y&0xffff | y<<16&(0xffff<<32)
		d[3] = y>>32&0xffff | y>>16&(0xffff<<32)
	}
	for ; i < n; i++ {
		dst[i] = int32(src[i])
	}
}

// widenPairPlain sets tokens[i] to src[i] and targets[i] to src[i+1]. There are as
// many targets as tokens, or one fewer, and then no id after the tokens.
func widenPairPlain(tokens, targets []int32, src []uint16) {
	n := len(tokens)
	widenPlain(tokens, src[:n])
	copy(targets, tokens[1:])
	if n == len(targets) {
		targets[n-1] = int32(src[n])
	}
}

// widenPair is widenPairPlain, which meanwhile asks for what next names.
func widenPair(tokens, targets []int32, src []uint16, next *Ahead) {
	n := len(targets)
	switch {
	case n >= 16 && wide:
		pair16(&tokens[0], &targets[0], &src[:n+1][0], n, next)
	case n >= 8 && vectors:
		pair8(&tokens[0], &targets[0], &src[:n+1][0], n, next)
	default:
		widenPairPlain(tokens, targets, src)
		return
	}
	next.passed(n / 32)
	if n < len(tokens) {
		tokens[n] = int32(src[n])
	}
}

// narrowPlain writes ids to dst as little-endian 16-bit words and returns the largest.
// When that is 2^16 or more, what it wrote is worthless.
func narrowPlain(dst []byte, ids []uint32) (top uint32) {
	dst = dst[:2*len(ids)]
	for i, id := range ids {
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(id))
		top = max(top, id)
	}
	return top
}
