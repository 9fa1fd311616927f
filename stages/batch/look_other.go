//go:build (!amd64 && !arm64) || purego

package batch

func look(crc uint32, words []int32, add int32) (sum, top uint32) { return lookPlain(crc, words, add) }

func largest(words []int32, add int32) uint32 { return largestPlain(words, add) }
