//go:build (!amd64 && !arm64) || purego

package store

import "unsafe"

// Prefetch is a hint that this build does not give.
func Prefetch(unsafe.Pointer) {}

func prefetchLines(unsafe.Pointer, int) {}
