package store

import (
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// inMemory counts the pages of a mapping that are in the page cache.
func inMemory(t *testing.T, b []byte) int {
	t.Helper()
	page := os.Getpagesize()
	vec := make([]byte, (len(b)+page-1)/page)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&vec[0])))
	if errno != 0 {
		t.Skipf("mincore: %v", errno)
	}
	n := 0
	for _, v := range vec {
		n += int(v & 1)
	}
	return n
}

// evict takes a file out of the page cache and returns how many pages stayed, which
// the system may still have in other hands.
func evict(t *testing.T, path string, mapping []byte) int {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // dirty pages stay
		t.Fatal(err)
	}
	if err := unix.Madvise(mapping, unix.MADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Skipf("fadvise: %v", err)
	}
	return inMemory(t, mapping)
}

// TestReadAhead empties the page cache of a store. WillNeed then brings the pages of a
// document and hardly others, before anybody reads them; without ReadAhead it does
// nothing.
func TestReadAhead(t *testing.T) {
	dir, shard := bigStore(t, 2000) // 12 MB
	const doc = 1234
	for _, ahead := range []bool{true, false} {
		s, err := Open(dir, OpenOptions{ReadAhead: ahead})
		if err != nil {
			t.Fatal(err)
		}
		if s.ReadsAhead() != ahead {
			t.Fatalf("ReadsAhead() = %t", s.ReadsAhead())
		}
		data := s.shards[0].data
		left := evict(t, shard, data)
		loc := s.entries[doc].loc & locMask
		of := data[loc&^uint64(os.Getpagesize()-1):][:3000*2]
		if left > 20 || inMemory(t, of) > 0 {
			t.Skipf("this file system keeps %d pages that it is asked to drop", left)
		}
		s.WillNeed(doc, 0, 3000)
		for end := time.Now().Add(10 * time.Second); ahead && inMemory(t, of) < 2 && time.Now().Before(end); {
			runtime.Gosched() // the disk needs a while
		}
		n, here := inMemory(t, data)-left, inMemory(t, of)
		switch {
		case ahead && here < 2:
			t.Errorf("%d pages of the document are there, %d in all", here, n)
		case ahead && n > 8: // a fault in a plain mapping brings 32
			t.Errorf("%d pages were fetched for one document of 2", n)
		case !ahead && n != 0:
			t.Errorf("%d pages were fetched without ReadAhead", n)
		}
		if err := s.Close(); err != nil { // or its pages stay
			t.Fatal(err)
		}
	}
}
