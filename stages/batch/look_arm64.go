//go:build arm64 && !purego

package batch

import (
	"hash/crc32"
	"unsafe"
)

// largest16 takes n words, a multiple of 16 and not zero, and writes to top the largest
// of every fourth word.
//
//go:noescape
func largest16(top *[4]uint32, words *int32, n int, add int32)

// look is lookPlain; hash/crc32 has the instructions for its part of it.
func look(crc uint32, words []int32, add int32) (sum, top uint32) {
	return crc32.Update(crc, castagnoli, bytesOf(words)), largest(words, add)
}

func largest(words []int32, add int32) (top uint32) {
	if n := len(words) &^ 15; n > 0 {
		var four [4]uint32
		largest16(&four, unsafe.SliceData(words), n, add)
		top, words = max(four[0], four[1], four[2], four[3]), words[n:]
	}
	return max(top, largestPlain(words, add))
}
