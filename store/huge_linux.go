package store

import "syscall"

// adviseHuge asks for huge pages: a random gather over gigabytes otherwise misses
// the TLB on nearly every document. A kernel without them loses nothing.
func adviseHuge(b []byte) {
	const madvHugepage = 14
	_ = syscall.Madvise(b, madvHugepage) // advice; a refusal changes speed only
}
