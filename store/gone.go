package store

import (
	"fmt"
	"runtime/debug"
	"unsafe"
)

// GoneError says that a mapped byte could not be read: somebody cut the file while it
// was open, or the disk failed.
type GoneError struct {
	Shard  string
	Offset int64 // of the byte in the file
	Size   int64 // of the file now; -1 when it cannot be told
	Want   int64 // by the manifest
}

func (e *GoneError) Error() string {
	if e.Size >= 0 && e.Size < e.Want {
		return fmt.Sprintf("%s: byte %d is gone: the file was cut from %d to %d bytes while it was open; put the whole file back, or prepare the store again",
			e.Shard, e.Offset, e.Want, e.Size)
	}
	return fmt.Sprintf("%s: byte %d cannot be read, though the file has its %d bytes: the disk or the file system below failed; see the system's log, then run data verify",
		e.Shard, e.Offset, e.Want)
}

// Faults makes an access to memory that is gone a panic of this goroutine, where it
// would end the process otherwise, and returns what Catch puts back. It costs a few
// nanoseconds.
func Faults() (before bool) { return debug.SetPanicOnFault(true) }

// Catch turns a fault in a mapped file of s into a *GoneError in *err, for whoever
// calls Copy and its kind, or looks at a view:
//
//	defer s.Catch(store.Faults(), &err)
//
// Other panics go on. What was being written to is then undefined.
func (s *Store) Catch(before bool, err *error) {
	debug.SetPanicOnFault(before)
	r := recover()
	if r == nil {
		return
	}
	if f, ok := r.(interface{ Addr() uintptr }); ok {
		if gone := s.gone(f.Addr()); gone != nil {
			*err = gone
			return
		}
	}
	panic(r)
}

// gone is the error for a fault at an address, nil when no shard is mapped there.
func (s *Store) gone(addr uintptr) *GoneError {
	for i, m := range s.shards {
		at := addr - uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
		if at < uintptr(len(m.data)) { // an address below wraps around
			return s.goneAt(i, int64(at))
		}
	}
	return nil
}

func (s *Store) goneAt(shard int, offset int64) *GoneError {
	sh := &s.m.Shards[shard]
	return &GoneError{Shard: sh.File, Offset: offset, Size: s.shards[shard].size(), Want: sh.Bytes}
}

// Mapped tells whether reading can fault at all, so that a reader of a resident store
// can leave Catch away.
func (s *Store) Mapped() bool {
	for _, m := range s.shards {
		if m.mapped() {
			return true
		}
	}
	return false
}

// Intact looks at the size of every mapped file and returns a *GoneError for one that
// was cut. The bytes between a cut and the next page boundary read as zeros without a
// fault, so what was computed from a store is to be trusted only if the store is
// intact afterwards. It costs one system call a shard.
func (s *Store) Intact() error {
	for i := range s.shards {
		if n := s.shards[i].size(); n >= 0 && n < s.m.Shards[i].Bytes {
			return fmt.Errorf("store %s: %w", s.dir, s.goneAt(i, n))
		}
	}
	return nil
}

// WillNeed asks the system to fetch ids [from, to) of a document from disk while the
// caller does something else. It does nothing unless the store was opened with
// OpenOptions.ReadAhead. The range must exist.
func (s *Store) WillNeed(doc, from, to int) {
	if !s.ahead || to <= from {
		return
	}
	loc, size := s.entries[doc].loc, uint64(s.dtype.Size())
	at := loc&locMask + uint64(from)*size
	s.shards[loc>>locShift].willNeed(at, uint64(to-from)*size)
}

// ReadsAhead tells whether WillNeed does anything.
func (s *Store) ReadsAhead() bool { return s.ahead }
