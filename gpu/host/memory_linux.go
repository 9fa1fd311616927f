package host

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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

// TotalMemory is the memory this process may use: the cgroup limit if there
// is one, else what the machine has; 0 when unknown.
func TotalMemory() int64 {
	var total int64
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		total = int64(si.Totalram) * int64(si.Unit)
	}
	if b, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && (total == 0 || n < total) {
			total = n
		}
	}
	return total
}
