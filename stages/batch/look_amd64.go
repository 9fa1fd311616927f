//go:build amd64 && !purego

package batch

import (
	"hash/crc32"
	"unsafe"

	"golang.org/x/sys/cpu"
)

var (
	// vectors says whether this machine has the instructions of largest8.
	vectors = cpu.X86.HasAVX2
	// folds says whether it has those of look64.
	folds = cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasSSE42
)

// largest8 is largestPlain for n words, at least 8.
//
//go:noescape
func largest8(words *int32, n int, add int32) uint32

// look64 is lookPlain for n words, a multiple of 64 and not zero, in one pass.
//
//go:noescape
func look64(crc uint32, words *int32, n int, add int32) (sum, top uint32)

// look is lookPlain.
func look(crc uint32, words []int32, add int32) (sum, top uint32) {
	if n := len(words) &^ 63; n > 0 && folds {
		crc, top = look64(crc, unsafe.SliceData(words), n, add)
		words = words[n:]
	}
	if len(words) == 0 {
		return crc, top
	}
	return crc32.Update(crc, castagnoli, bytesOf(words)), max(top, largest(words, add))
}

func largest(words []int32, add int32) uint32 {
	if len(words) < 8 || !vectors {
		return largestPlain(words, add)
	}
	return largest8(unsafe.SliceData(words), len(words), add)
}
