//go:build !linux

package host

// block is memory for a device. Without Linux's huge pages it comes from the
// Go heap, over-allocated so that it can start on a cache line.
type block struct{ data []byte }

func newBlock(n int64) (block, error) {
	all := make([]byte, n+64)
	off := int64(-addr(all) & 63)
	return block{data: all[off : off+n : off+n]}, nil
}

func (b *block) free() error {
	b.data = nil
	return nil
}

// totalMemory is unknown here.
func totalMemory() int64 { return 0 }
