// Package flatbuf reads and writes the part of FlatBuffers that Arrow's metadata
// needs, after the description of the binary format ("FlatBuffer Internals" of the
// FlatBuffers documentation). Its Reader trusts no byte: it is what stands between
// hostile files and the rest of the program.
//
// The package knows no schema: tables are positions, fields are numbers.
package flatbuf

import (
	"encoding/binary"
	"errors"
)

// ErrOutside is the fault of an offset, a table or a vector that does not lie inside
// its buffer.
var ErrOutside = errors.New("metadata points outside itself")

// Reader reads tables from untrusted bytes. The first fault sticks: after it every
// accessor returns zero and every vector is empty, so a caller may read on and look
// at Err once. Positions are absolute; 0 means absent, and an absent table has no
// fields.
type Reader struct {
	b   []byte
	err error
}

// NewReader returns a reader of b, which must not change while it is used.
func NewReader(b []byte) *Reader { return &Reader{b: b} }

// Err returns the first fault.
func (f *Reader) Err() error { return f.err }

// Fail records a fault found by the caller, unless there was one before.
func (f *Reader) Fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// at returns n bytes at p, or nil and a fault.
func (f *Reader) at(p, n int) []byte {
	if f.err != nil {
		return nil
	}
	if p < 0 || n < 0 || p > len(f.b) || n > len(f.b)-p {
		f.err = ErrOutside
		return nil
	}
	return f.b[p : p+n]
}

func (f *Reader) u16(p int) int {
	if b := f.at(p, 2); b != nil {
		return int(binary.LittleEndian.Uint16(b))
	}
	return 0
}

// I32 returns the 32-bit integer at p.
func (f *Reader) I32(p int) int {
	if b := f.at(p, 4); b != nil {
		return int(int32(binary.LittleEndian.Uint32(b)))
	}
	return 0
}

// I64 returns the 64-bit integer at p.
func (f *Reader) I64(p int) int64 {
	if b := f.at(p, 8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// Root returns the root table of the buffer.
func (f *Reader) Root() int { return f.Follow(0) }

// Follow resolves the forward offset stored at p, to a place with at least the four
// bytes that every object begins with.
func (f *Reader) Follow(p int) int {
	off := f.I32(p)
	if f.err != nil {
		return 0
	}
	// off is a signed 32-bit number and p lies in the buffer, so the sum fits an int
	// unless ints have 32 bits, where it turns negative and is outside.
	if off <= 0 || f.at(p+off, 4) == nil {
		f.Fail(ErrOutside)
		return 0
	}
	return p + off
}

// Field returns the position of field id of a table, of which size bytes are there,
// or 0 when the table leaves it at its default.
func (f *Reader) Field(table, id, size int) int {
	if table == 0 {
		return 0
	}
	vt := table - f.I32(table)
	n := f.u16(vt)
	if f.err != nil {
		return 0
	}
	if n < 4 || n%2 != 0 || f.at(vt, n) == nil {
		f.Fail(ErrOutside)
		return 0
	}
	if 4+2*id+2 > n {
		return 0
	}
	off := f.u16(vt + 4 + 2*id)
	if off == 0 || f.at(table+off, size) == nil {
		return 0
	}
	return table + off
}

// Number returns a field of 1, 2, 4 or 8 bytes as an unsigned number, 0 when it is
// absent; one of 8 bytes may be negative.
func (f *Reader) Number(table, id, size int) int64 {
	p := f.Field(table, id, size)
	if p == 0 {
		return 0
	}
	var word [8]byte
	copy(word[:], f.at(p, size))
	return int64(binary.LittleEndian.Uint64(word[:]))
}

// Table returns the position of a table field, or 0.
func (f *Reader) Table(table, id int) int {
	if p := f.Field(table, id, 4); p != 0 {
		return f.Follow(p)
	}
	return 0
}

// Vector returns start and length of a vector of elements of size bytes, all of them
// inside the buffer.
func (f *Reader) Vector(table, id, size int) (start, n int) {
	v := f.Table(table, id)
	if v == 0 {
		return 0, 0
	}
	n = f.I32(v)
	if n < 0 || n > (len(f.b)-v-4)/size {
		f.Fail(ErrOutside)
		return 0, 0
	}
	return v + 4, n
}

// Str copies a string field of at most limit bytes. It is bounded because many
// tables may share one string: copies could take more than the buffer.
func (f *Reader) Str(table, id, limit int) string {
	p, n := f.Vector(table, id, 1)
	if n > limit {
		f.Fail(errors.New("a string is too long"))
		return ""
	}
	return string(f.at(p, n))
}
