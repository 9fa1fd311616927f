//go:build !linux

package tokenize

// newEntries returns n zeroed entries. Huge pages are asked for on Linux only.
func newEntries(n int) []cacheEntry { return make([]cacheEntry, n) }
