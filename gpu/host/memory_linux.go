package host

import "golang.org/x/sys/unix"

// hugePage is the size and alignment that transparent huge pages need.
const hugePage = 2 << 20

// block is memory outside the Go heap: the collector neither scans nor moves it.
type block struct {
	data []byte // what callers see: page-aligned, zeroed
	all  []byte // the whole mapping
}

// newBlock maps n zeroed bytes. From one huge page up it asks for huge pages,
// which is worth 5 to 15 % of a matrix product (docs/performance.md); a kernel
// that refuses them still gives the memory.
func newBlock(n int64) (block, error) {
	return mapBlock(n, func(m []byte) error { return unix.Madvise(m, unix.MADV_HUGEPAGE) })
}

func mapBlock(n int64, advise func([]byte) error) (block, error) {
	if n == 0 {
		return block{data: []byte{}}, nil
	}
	size := n
	if n >= hugePage {
		size = n + hugePage
	}
	all, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return block{}, err
	}
	off := 0
	if n >= hugePage {
		off = int(-addr(all) & (hugePage - 1))
		_ = advise(all) // refusal costs speed, not correctness
	}
	return block{data: all[off : off+int(n) : off+int(n)], all: all}, nil
}

func (b *block) free() error {
	all := b.all
	b.data, b.all = nil, nil
	if all == nil {
		return nil
	}
	return unix.Munmap(all)
}
