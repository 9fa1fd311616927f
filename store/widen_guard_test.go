//go:build linux

package store

import (
	"syscall"
	"testing"
	"unsafe"
)

// TestWidenStaysInside reads ids that end where an unreadable page begins, and writes
// results that do.
func TestWidenStaysInside(t *testing.T) {
	const n = 130
	page := syscall.Getpagesize()
	ending := func(bytes int) unsafe.Pointer {
		mem, err := syscall.Mmap(-1, 0, 2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := syscall.Munmap(mem); err != nil {
				t.Error(err)
			}
		})
		if err := syscall.Mprotect(mem[page:], syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
		return unsafe.Pointer(&mem[page-bytes])
	}
	src := unsafe.Slice((*uint16)(ending(2*n)), n)
	for i := range src {
		src[i] = uint16(i*40503 + 1)
	}
	testPairs(t, src)
	tokens, targets := unsafe.Slice((*int32)(ending(4*n)), n), unsafe.Slice((*int32)(ending(4*n)), n)
	for m := 1; m < n; m++ {
		widenPair(tokens[n-m:], targets[n-m:], src[n-m-1:], &Ahead{})
		for i, id := range src[n-m-1 : n-1] {
			if tokens[n-m+i] != int32(id) || targets[n-m+i] != int32(src[n-m+i]) {
				t.Fatalf("%d pairs: pair %d is wrong", m, i)
			}
		}
		clear(tokens)
		widen(tokens[n-m:], src[n-m:])
		for i, id := range src[n-m:] {
			if tokens[n-m+i] != int32(id) {
				t.Fatalf("%d ids: id %d is wrong", m, i)
			}
		}
	}
}
