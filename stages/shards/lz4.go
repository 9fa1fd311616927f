package shards

import (
	"encoding/binary"
	"math/bits"
)

// The LZ4 frame format (lz4_Frame_format.md, version 1.6) holds a descriptor and
// blocks of sequences: a token, literals, then a copy of earlier output. Arrow
// uses one frame for each buffer. It is decoded here in one piece, into a buffer
// whose size is known and checked, because that is less code than a streaming
// reader and its one caller has all bytes at hand.

const magicLZ4 = 0x184D2204

// inflateLZ4 decodes one frame that holds exactly n bytes.
func inflateLZ4(src []byte, n int64) ([]byte, error) {
	if n/255 > int64(len(src)) {
		return nil, damage("an LZ4 frame of %d bytes cannot hold %d", len(src), n)
	}
	if len(src) < 7 || binary.LittleEndian.Uint32(src) != magicLZ4 {
		return nil, damage("no LZ4 frame")
	}
	flags, limits := src[4], src[5]
	head := 6
	if flags&0x08 != 0 { // content size
		head += 8
	}
	if flags>>6 != 1 || flags&0x03 != 0 || limits&0x8f != 0 || limits>>4 < 4 || len(src) < head+1 {
		return nil, damage("LZ4 frame descriptor %02x %02x", flags, limits)
	}
	if byte(xxh32(src[4:head])>>8) != src[head] {
		return nil, damage("the descriptor of an LZ4 frame fails its checksum")
	}
	if flags&0x08 != 0 && binary.LittleEndian.Uint64(src[6:]) != uint64(n) {
		return nil, damage("an LZ4 frame of %d bytes where %d are announced", binary.LittleEndian.Uint64(src[6:]), n)
	}
	blockMax := 1 << (8 + 2*(limits>>4))
	dst := make([]byte, 0, n)
	src = src[head+1:]
	for {
		block, stored, rest, err := nextLZ4Block(src, flags&0x10 != 0, blockMax)
		if err != nil {
			return nil, err
		}
		src = rest
		if block == nil {
			break
		}
		start := len(dst)
		if stored {
			if len(block) > cap(dst)-len(dst) {
				return nil, damage("an LZ4 frame of more than %d bytes", n)
			}
			dst = append(dst, block...)
			continue
		}
		window := 0 // blocks may refer to earlier ones
		if flags&0x20 != 0 {
			window = start
		}
		end := min(cap(dst), start+blockMax)
		if dst, err = inflateLZ4Block(dst, block, window, end); err != nil {
			return nil, err
		}
	}
	if flags&0x04 != 0 {
		if len(src) < 4 || binary.LittleEndian.Uint32(src) != xxh32(dst) {
			return nil, damage("an LZ4 frame fails its checksum")
		}
		src = src[4:]
	}
	if int64(len(dst)) != n || len(src) != 0 {
		return nil, damage("an LZ4 frame holds %d bytes of %d, and %d follow it", len(dst), n, len(src))
	}
	return dst, nil
}

// nextLZ4Block cuts one block off src. A nil block is the end mark.
func nextLZ4Block(src []byte, sums bool, limit int) (block []byte, stored bool, rest []byte, err error) {
	if len(src) < 4 {
		return nil, false, nil, damage("an LZ4 frame ends without its end mark")
	}
	size := binary.LittleEndian.Uint32(src)
	src = src[4:]
	if size == 0 {
		return nil, false, src, nil
	}
	stored = size>>31 != 0
	n := int(size & 0x7fffffff)
	tail := 0
	if sums {
		tail = 4
	}
	if n == 0 || n > limit || n+tail > len(src) {
		return nil, false, nil, damage("an LZ4 block of %d bytes", n)
	}
	block = src[:n]
	if sums && binary.LittleEndian.Uint32(src[n:]) != xxh32(block) {
		return nil, false, nil, damage("an LZ4 block fails its checksum")
	}
	return block, stored, src[n+tail:], nil
}

// inflateLZ4Block appends a block to dst, up to length end, copying from no
// earlier than window.
func inflateLZ4Block(dst, src []byte, window, end int) ([]byte, error) {
	bad := func() ([]byte, error) { return nil, damage("an LZ4 block does not decode") }
	// more reads the bytes that extend a length of 15.
	more := func(n int) (int, bool) {
		if n < 15 {
			return n, true
		}
		for len(src) > 0 && n <= end {
			b := src[0]
			src = src[1:]
			n += int(b)
			if b != 255 {
				return n, true
			}
		}
		return 0, false
	}
	for len(src) > 0 {
		token := src[0]
		src = src[1:]
		lits, ok := more(int(token >> 4))
		if !ok || lits > len(src) || lits > end-len(dst) {
			return bad()
		}
		dst = append(dst, src[:lits]...)
		src = src[lits:]
		if len(src) == 0 {
			return dst, nil // the last sequence has literals only
		}
		if len(src) < 2 {
			return bad()
		}
		from := len(dst) - int(binary.LittleEndian.Uint16(src))
		src = src[2:]
		n, ok := more(int(token & 15))
		n += 4
		if !ok || from < window || from >= len(dst) || n > end-len(dst) {
			return bad()
		}
		for n > 0 { // the copy may overlap what it writes
			k := min(n, len(dst)-from)
			dst = append(dst, dst[from:from+k]...)
			n -= k
		}
	}
	return bad()
}

// Primes of XXH32.
const (
	xx1 uint32 = 2654435761
	xx2 uint32 = 2246822519
	xx3 uint32 = 3266489917
	xx4 uint32 = 668265263
	xx5 uint32 = 374761393
)

// xxh32 is the 32-bit xxHash with seed 0 (xxhash_spec.md), the checksum of LZ4.
func xxh32(b []byte) uint32 {
	n := uint32(len(b))
	h := xx5
	if len(b) >= 16 {
		one, two := xx1, xx2
		v := [4]uint32{one + two, two, 0, -one}
		for ; len(b) >= 16; b = b[16:] {
			for i := range v {
				v[i] = bits.RotateLeft32(v[i]+binary.LittleEndian.Uint32(b[4*i:])*xx2, 13) * xx1
			}
		}
		h = bits.RotateLeft32(v[0], 1) + bits.RotateLeft32(v[1], 7) + bits.RotateLeft32(v[2], 12) + bits.RotateLeft32(v[3], 18)
	}
	h += n
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*xx3, 17) * xx4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*xx5, 11) * xx1
	}
	h = (h ^ h>>15) * xx2
	h = (h ^ h>>13) * xx3
	return h ^ h>>16
}
