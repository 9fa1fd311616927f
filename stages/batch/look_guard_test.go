//go:build linux

package batch

import (
	"syscall"
	"testing"
	"unsafe"
)

// TestLookStaysInside runs look on words that end where an unreadable page begins, and
// on words that begin where one ends, at every length up to several blocks.
func TestLookStaysInside(t *testing.T) {
	page := syscall.Getpagesize()
	mem, err := syscall.Mmap(-1, 0, 3*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mem)
	for _, guard := range [][]byte{mem[:page], mem[2*page:]} {
		if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	words := unsafe.Slice((*int32)(unsafe.Pointer(&mem[page])), page/4)
	for i := range words {
		words[i] = int32(i * 40503)
	}
	for n := range min(600, len(words)) {
		for _, w := range [][]int32{words[:n:n], words[len(words)-n:]} {
			sum, top := slow(9, w, 1)
			if s, m := look(9, w, 1); s != sum || m != top || largest(w, 1) != top {
				t.Fatalf("%d words: %08x and %d, want %08x and %d", n, s, m, sum, top)
			}
		}
	}
}
