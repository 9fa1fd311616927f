package batch

import (
	"hash/crc32"
	"unsafe"
)

// castagnoli is the table of CRC-32C.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bytesOf views words as they lie in memory.
func bytesOf(words []int32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 4*len(words))
}

// lookPlain is the definition of look: it returns the CRC-32C of what crc is the
// checksum of, followed by the bytes of words, and the largest of words[i]+add as
// unsigned numbers, which is 0 for no words.
func lookPlain(crc uint32, words []int32, add int32) (sum, top uint32) {
	return crc32.Update(crc, castagnoli, bytesOf(words)), largestPlain(words, add)
}

// largestPlain takes four words at a time, which do not wait for each other.
func largestPlain(words []int32, add int32) uint32 {
	var a, b, c, d uint32
	for ; len(words) >= 4; words = words[4:] {
		w := (*[4]int32)(words)
		a, b, c, d = max(a, uint32(w[0]+add)), max(b, uint32(w[1]+add)), max(c, uint32(w[2]+add)), max(d, uint32(w[3]+add))
	}
	for _, w := range words {
		a = max(a, uint32(w+add))
	}
	return max(a, b, c, d)
}

// reversed is the polynomial of CRC-32C without its highest term, the coefficient of
// x^31 in bit 0. A CRC is a polynomial in the same order of bits.
const reversed = crc32.Castagnoli

// times multiplies two polynomials modulo that of CRC-32C.
func times(a, b uint32) (p uint32) {
	for i := 31; i >= 0; i-- {
		p ^= b & -(a >> i & 1)
		b = b>>1 ^ reversed&-(b&1)
	}
	return p
}

// power is x^n modulo the polynomial, for n of at least 0. With n = 8*len(q), the CRC
// of bytes p followed by q is times(power(n), crc(p)) ^ crc(q).
func power(n int64) uint32 {
	p, square := uint32(1)<<31, uint32(1)<<30
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			p = times(p, square)
		}
		square = times(square, square)
	}
	return p
}
