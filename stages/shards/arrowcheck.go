package shards

import (
	"encoding/binary"
	"math/bits"
)

// checkValidity compares a validity bitmap, least significant bit first, with
// the length and null count of its column. No bitmap means no nulls.
func checkValidity(node extent, bitmap []byte) error {
	n, nulls := node.off, node.n
	if len(bitmap) == 0 {
		if nulls != 0 {
			return damage("%d nulls without a validity bitmap", nulls)
		}
		return nil
	}
	if int64(len(bitmap)) < (n+7)/8 {
		return damage("a validity bitmap of %d bytes for %d rows", len(bitmap), n)
	}
	var set int64
	for _, b := range bitmap[:n/8] {
		set += int64(bits.OnesCount8(b))
	}
	if n%8 != 0 {
		set += int64(bits.OnesCount8(bitmap[n/8] & (1<<(n%8) - 1)))
	}
	if n-set != nulls {
		return damage("%d nulls in the bitmap, %d in the metadata", n-set, nulls)
	}
	return nil
}

// checkOffsets32 checks n+1 offsets into size bytes of data: in order, none
// outside. A column without rows may leave them out.
func checkOffsets32(b []byte, n, size int64) error {
	if n == 0 && len(b) == 0 {
		return nil
	}
	if int64(len(b))/4 < n+1 {
		return damage("%d bytes of offsets for %d rows", len(b), n)
	}
	prev := int64(0)
	for i := range n + 1 {
		o := int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		if o < prev || o > size {
			return damage("offset %d of row %d is not between %d and %d", o, i, prev, size)
		}
		prev = o
	}
	return nil
}

// checkOffsets64 is checkOffsets32 for large strings.
func checkOffsets64(b []byte, n, size int64) error {
	if n == 0 && len(b) == 0 {
		return nil
	}
	if int64(len(b))/8 < n+1 {
		return damage("%d bytes of offsets for %d rows", len(b), n)
	}
	prev := int64(0)
	for i := range n + 1 {
		o := int64(binary.LittleEndian.Uint64(b[8*i:]))
		if o < prev || o > size {
			return damage("offset %d of row %d is not between %d and %d", o, i, prev, size)
		}
		prev = o
	}
	return nil
}

// checkViews checks n views of 16 bytes: length; then the text itself if it has
// at most 12 bytes, or its first four bytes, buffer number and offset.
func checkViews(b []byte, n int64, data [][]byte) error {
	if int64(len(b))/16 < n {
		return damage("%d bytes of views for %d rows", len(b), n)
	}
	for i := range n {
		v := b[16*i : 16*i+16]
		size := int64(int32(binary.LittleEndian.Uint32(v)))
		if size < 0 {
			return damage("view of row %d has length %d", i, size)
		}
		if size <= 12 {
			continue
		}
		buf := int64(int32(binary.LittleEndian.Uint32(v[8:])))
		off := int64(int32(binary.LittleEndian.Uint32(v[12:])))
		if buf < 0 || buf >= int64(len(data)) || off < 0 || off > int64(len(data[buf])) || size > int64(len(data[buf]))-off {
			return damage("view of row %d is [%d, +%d) of buffer %d of %d", i, off, size, buf, len(data))
		}
		if string(v[4:8]) != string(data[buf][off:off+4]) {
			return damage("view of row %d does not begin like its text", i)
		}
	}
	return nil
}
