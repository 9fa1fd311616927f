//go:build !amd64 || purego

package store

func widen(dst []int32, src []uint16) { widenPlain(dst, src) }

const vectors, wide = false, false

func pair8(_, _ *int32, _ *uint16, _ int, _ *Ahead) { panic("store: no pair8 in this build") }

func pair16(_, _ *int32, _ *uint16, _ int, _ *Ahead) { panic("store: no pair16 in this build") }

func narrow(dst []byte, ids []uint32) uint32 { return narrowPlain(dst, ids) }
