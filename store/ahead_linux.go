package store

import "golang.org/x/sys/unix"

const canAhead = true

// willNeed asks for the pages that hold n bytes from at on. It is advice: where the
// system has no room to follow it, reading waits for the disk instead.
func (m *mapping) willNeed(at, n uint64) {
	page := uint64(unix.Getpagesize())
	from := at &^ (page - 1)
	_ = unix.Madvise(m.data[from:min(at+n, uint64(len(m.data)))], unix.MADV_WILLNEED)
}

// atRandom says that neighbours of what is read are not wanted.
func (m *mapping) atRandom() { _ = unix.Madvise(m.data, unix.MADV_RANDOM) }
