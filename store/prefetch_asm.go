//go:build (amd64 || arm64) && !purego

package store

import "unsafe"

// Prefetch asks the processor to bring the cache line at p near. It is a hint: any
// address is allowed, nothing is read as far as the program can tell, and it
// returns at once. Readers that know which place comes next use it to overlap the
// cache misses of a random gather.
//
//go:noescape
func Prefetch(p unsafe.Pointer)

// prefetchLines is Prefetch for consecutive lines of 64 bytes, at least one. They go to
// the second-level cache: the first has too few places for a row under way.
//
//go:noescape
func prefetchLines(p unsafe.Pointer, lines int)
