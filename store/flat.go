package store

import (
	"encoding/binary"
	"errors"
)

// This file is the part of FlatBuffers that Arrow's metadata needs: a builder
// and a reader that trusts no offset. Both follow the FlatBuffers binary format
// (flatbuffers.dev, "FlatBuffer Internals").

// flatBuilder builds back to front, as FlatBuffers are built: b holds the bytes
// in reverse, so the "address" of an object is its distance from the end.
type flatBuilder struct {
	b      []byte
	fields []int // addresses of the fields of the open table, 0 when absent
	start  int   // len(b) when the table was opened
}

// align pads so that after extra further bytes the length is a multiple of size.
func (f *flatBuilder) align(size, extra int) {
	for (len(f.b)+extra)%size != 0 {
		f.b = append(f.b, 0)
	}
}

// put writes the low size bytes of v, aligned to their own size.
func (f *flatBuilder) put(v uint64, size int) {
	f.align(size, 0)
	for i := size - 1; i >= 0; i-- {
		f.b = append(f.b, byte(v>>(8*i)))
	}
}

// ref writes an offset to the object at address to.
func (f *flatBuilder) ref(to int) {
	f.align(4, 0)
	f.put(uint64(len(f.b)+4-to), 4)
}

// str writes a string and returns its address.
func (f *flatBuilder) str(s string) int {
	f.align(4, len(s)+1)
	f.b = append(f.b, 0)
	for i := len(s) - 1; i >= 0; i-- {
		f.b = append(f.b, s[i])
	}
	f.put(uint64(len(s)), 4)
	return len(f.b)
}

// refs writes a vector of offsets and returns its address.
func (f *flatBuilder) refs(to ...int) int {
	f.align(4, 4*len(to))
	for i := len(to) - 1; i >= 0; i-- {
		f.ref(to[i])
	}
	f.put(uint64(len(to)), 4)
	return len(f.b)
}

// structs writes a vector of structs made of 64-bit words and returns its
// address. words holds all of them, one struct after the other.
func (f *flatBuilder) structs(n int, words []uint64) int {
	f.align(4, 8*len(words))
	f.align(8, 8*len(words))
	for i := len(words) - 1; i >= 0; i-- {
		f.put(words[i], 8)
	}
	f.put(uint64(n), 4)
	return len(f.b)
}

// open starts a table of n fields; its fields are set, then close ends it.
func (f *flatBuilder) open(n int) {
	f.fields = make([]int, n)
	f.start = len(f.b)
}

// scalar sets field i of the open table.
func (f *flatBuilder) scalar(i int, v uint64, size int) {
	f.put(v, size)
	f.fields[i] = len(f.b)
}

// object sets field i of the open table to an object made before.
func (f *flatBuilder) object(i, to int) {
	f.ref(to)
	f.fields[i] = len(f.b)
}

// close ends the table and returns its address.
func (f *flatBuilder) close() int {
	f.put(0, 4) // offset to the vtable, known below
	table := len(f.b)
	n := len(f.fields)
	for n > 0 && f.fields[n-1] == 0 {
		n--
	}
	for i := n - 1; i >= 0; i-- {
		v := 0
		if f.fields[i] != 0 {
			v = table - f.fields[i]
		}
		f.put(uint64(v), 2)
	}
	f.put(uint64(table-f.start), 2)
	f.put(uint64(2*n+4), 2)
	back := uint32(len(f.b) - table)
	for i := range 4 {
		f.b[table-1-i] = byte(back >> (8 * i))
	}
	return table
}

// finish returns the buffer with the table at address root as its root; its
// length is a multiple of 8.
func (f *flatBuilder) finish(root int) []byte {
	f.align(8, 4)
	f.ref(root)
	out := make([]byte, len(f.b))
	for i, c := range f.b {
		out[len(out)-1-i] = c
	}
	return out
}

// errFlat is what every broken reference gives; the caller says where.
var errFlat = errors.New("broken metadata: an offset points outside or a value is impossible")

// flatReader reads untrusted FlatBuffers. The first broken reference sticks in
// err, and from then on everything reads as zero.
type flatReader struct {
	b   []byte
	err error
}

// flatTable is the position of a table; 0 is "absent".
type flatTable int

func (f *flatReader) fail() { f.err = errFlat }

// bytes returns n bytes at pos, or zeroed ones when they are not there.
func (f *flatReader) bytes(pos, n int) []byte {
	if f.err != nil || pos < 0 || n < 0 || pos > len(f.b) || n > len(f.b)-pos {
		f.fail()
		return make([]byte, min(max(n, 0), 8))
	}
	return f.b[pos : pos+n]
}

func (f *flatReader) u32(pos int) int { return int(binary.LittleEndian.Uint32(f.bytes(pos, 4))) }

func (f *flatReader) i64(pos int) int64 {
	return int64(binary.LittleEndian.Uint64(f.bytes(pos, 8)))
}

// follow returns the place that the offset at pos points to.
func (f *flatReader) follow(pos int) int {
	if to := pos + f.u32(pos); f.err == nil && to > pos && to < len(f.b) {
		return to
	}
	f.fail()
	return 0
}

func (f *flatReader) root() flatTable { return flatTable(f.follow(0)) }

// field returns the place of field i of t, or 0 when it is absent.
func (f *flatReader) field(t flatTable, i, size int) int {
	if t == 0 || f.err != nil {
		return 0
	}
	vt := int(t) - int(int32(f.u32(int(t))))
	length := int(binary.LittleEndian.Uint16(f.bytes(vt, 2)))
	at := 4 + 2*i
	if at+2 > length {
		return 0
	}
	off := int(binary.LittleEndian.Uint16(f.bytes(vt+at, 2)))
	if off == 0 {
		return 0
	}
	f.bytes(int(t)+off, size)
	return int(t) + off
}

// number returns an integer field of 1, 2, 4 or 8 bytes, or def.
func (f *flatReader) number(t flatTable, i, size int, def int64) int64 {
	pos := f.field(t, i, size)
	if pos == 0 {
		return def
	}
	var buf [8]byte
	copy(buf[:], f.bytes(pos, size))
	return int64(binary.LittleEndian.Uint64(buf[:]))
}

// table returns a table field, 0 when absent.
func (f *flatReader) table(t flatTable, i int) flatTable {
	if pos := f.field(t, i, 4); pos != 0 {
		return flatTable(f.follow(pos))
	}
	return 0
}

// vector returns the place of the first element and the count.
func (f *flatReader) vector(t flatTable, i, elemSize int) (pos, n int) {
	if pos = f.field(t, i, 4); pos == 0 {
		return 0, 0
	}
	pos = f.follow(pos)
	n = f.u32(pos)
	if f.err != nil || n > (len(f.b)-pos)/elemSize {
		f.fail()
		return 0, 0
	}
	f.bytes(pos+4, n*elemSize)
	return pos + 4, n
}

func (f *flatReader) str(t flatTable, i int) string {
	pos, n := f.vector(t, i, 1)
	if n == 0 || f.err != nil {
		return ""
	}
	return string(f.b[pos : pos+n])
}
