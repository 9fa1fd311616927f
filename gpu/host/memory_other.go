//go:build !linux

package host

import "fmt"

// maxBlock is more than any machine has, and less than make panics at.
const maxBlock = 1 << 40

// block is memory for a device. Without Linux's huge pages it comes from the
// Go heap, over-allocated so that it can start on a cache line.
type block struct{ data []byte }

func newBlock(n int64) (block, error) {
	if n > maxBlock {
		return block{}, fmt.Errorf("more than %d bytes", int64(maxBlock))
	}
	all := make([]byte, n+64)
	off := int64(-addr(all) & 63)
	return block{data: all[off : off+n : off+n]}, nil
}

func (b *block) free() error {
	b.data = nil
	return nil
}

// Limits are not asked for here.

// TotalMemory is unknown.
func TotalMemory() int64 { return 0 }

// MemoryLimits are unknown.
func MemoryLimits() []MemoryLimit { return nil }

// CPUQuota is unknown.
func CPUQuota() CPULimit { return CPULimit{} }
