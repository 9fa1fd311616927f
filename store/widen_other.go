//go:build !amd64 || purego

package store

func widen(dst []int32, src []uint16) { widenPlain(dst, src) }

func widenPair(tokens, targets []int32, src []uint16, next Hint) Hint {
	widenPairPlain(tokens, targets, src)
	return next
}

func narrow(dst []byte, ids []uint32) uint32 { return narrowPlain(dst, ids) }
