//go:build (amd64 || arm64) && !purego

package store

import "unsafe"

// prefetchLines asks the processor to bring consecutive lines of 64 bytes near, at least
// one. It is a hint: any address is allowed, nothing is read as far as the program can
// tell, and it returns at once. The lines go to the second-level cache: the first has too
// few places for a row under way.
//
//go:noescape
func prefetchLines(p unsafe.Pointer, lines int)
