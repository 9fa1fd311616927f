//go:build !unix

package store

import (
	"fmt"
	"io"
	"os"
	"unsafe"
)

// mapping is the bytes of one file. Without mmap they are read into memory, whether
// OpenOptions.Resident is set or not.
type mapping struct{ data []byte }

// newMapping reads size bytes of f. It owns f when it succeeds.
func newMapping(f *os.File, size int64, _ bool) (*mapping, error) {
	if int64(int(size)) != size {
		return nil, fmt.Errorf("%d bytes do not fit the address space", size)
	}
	// Words, so that ids are aligned; they hold no pointers, so the collector
	// does not scan them.
	words := make([]uint64, (size+7)/8)
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)[:size]
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), data); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return &mapping{data}, nil
}

// mapped is false: the bytes are a copy.
func (m *mapping) mapped() bool { return false }

// size is not asked: nothing is mapped.
func (m *mapping) size() int64 { return -1 }

func (m *mapping) close() error { m.data = nil; return nil }
