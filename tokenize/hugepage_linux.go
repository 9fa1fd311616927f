package tokenize

import (
	"syscall"
	"unsafe"
)

const hugePageBytes = 2 << 20

// newEntries returns n zeroed entries, on huge pages where the kernel allows them:
// lookups are random, and a table of many small pages costs a miss of the address
// cache for most of them. The advice must come before the first touch, and fresh
// memory of this size has not been touched. It is only advice, so failure is ignored.
func newEntries(n int) []cacheEntry {
	s := make([]cacheEntry, n)
	if size := uintptr(n) * entryBytes; size >= 2*hugePageBytes {
		p := unsafe.Pointer(&s[0])
		skip := -uintptr(p) & (hugePageBytes - 1)
		whole := (size - skip) &^ (hugePageBytes - 1)
		_ = syscall.Madvise(unsafe.Slice((*byte)(unsafe.Add(p, skip)), whole), syscall.MADV_HUGEPAGE)
	}
	return s
}
