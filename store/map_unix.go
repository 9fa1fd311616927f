//go:build unix

package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// mapping is the bytes of one file, outside the Go heap so that the collector
// never looks at them.
type mapping struct {
	data []byte
	f    *os.File // held open while mapped, so that the file cannot be replaced under the mapping; nil when resident
}

// newMapping maps size bytes of f, or reads them into anonymous memory. It owns f
// when it succeeds.
func newMapping(f *os.File, size int64, resident bool) (*mapping, error) {
	if int64(int(size)) != size {
		return nil, fmt.Errorf("%d bytes do not fit the address space", size)
	}
	if !resident {
		data, err := syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
		if errors.Is(err, syscall.ENOMEM) {
			return nil, fmt.Errorf("map %d bytes: %w: raise the limit on the address space (ulimit -v), or on the number of mappings (vm.max_map_count)", size, err)
		}
		if err != nil {
			return nil, fmt.Errorf("map %d bytes: %w", size, err)
		}
		return &mapping{data, f}, nil
	}
	data, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", size, err)
	}
	m := &mapping{data: data}
	adviseHuge(data)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), data); err != nil {
		return nil, errors.Join(fmt.Errorf("read: %w", err), m.close())
	}
	if err := f.Close(); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// mapped tells whether the bytes are the file's, as opposed to a copy.
func (m *mapping) mapped() bool { return m.f != nil }

// size is that of the file now; -1 when nothing is mapped or it cannot be told.
func (m *mapping) size() int64 {
	if m.f == nil {
		return -1
	}
	info, err := m.f.Stat()
	if err != nil {
		return -1
	}
	return info.Size()
}

func (m *mapping) close() error {
	if m.data == nil {
		return nil
	}
	err := syscall.Munmap(m.data)
	m.data = nil
	if m.f != nil {
		err = errors.Join(err, m.f.Close())
	}
	return err
}
