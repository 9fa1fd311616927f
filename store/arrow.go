package store

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// The Arrow columnar format 1.x, IPC file, as far as a store uses it: the field
// numbers and enum values below are those of format/Schema.fbs, Message.fbs and
// File.fbs of the Arrow specification.

const (
	magic      = "ARROW1" // at both ends of the file
	frameAlign = 64       // of every body and every buffer, so that any SIMD load of a mapped buffer is aligned
	continues  = 0xFFFFFFFF

	metadataV5 = 4

	headerSchema     = 1
	headerDictionary = 2
	headerRecords    = 3

	typeInt  = 2
	typeUtf8 = 5
	typeList = 12
)

// DType is the width of a token id on disk.
type DType uint8

// The two widths.
const (
	U16 DType = 2
	U32 DType = 4
)

// Size is the bytes of one token.
func (d DType) Size() int { return int(d) }

func (d DType) String() string {
	switch d {
	case U16:
		return "uint16"
	case U32:
		return "uint32"
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// dtypeFor is uint16 only while every id fits.
func dtypeFor(vocab int) DType {
	if vocab <= 1<<16 {
		return U16
	}
	return U32
}

func pad64(n int) int { return (n + frameAlign - 1) &^ (frameAlign - 1) }

// block is where a message lies in the file: Arrow's Block.
type block struct {
	offset   int64
	metadata int64 // prefix, metadata and padding
	body     int64
}

// buildInt writes an Int type.
func buildInt(f *flatBuilder, bits int, signed bool) int {
	f.open(2)
	f.scalar(0, uint64(bits), 4)
	if signed {
		f.scalar(1, 1, 1)
	}
	return f.close()
}

// buildField writes a Field; dict is 0 or the address of a DictionaryEncoding.
// Fields are declared nullable, as other programs declare theirs, though nothing is
// ever null: the types then compare equal there.
func buildField(f *flatBuilder, name string, typeCode, typ, dict int, children ...int) int {
	kids := f.refs(children...)
	label := f.str(name)
	f.open(7)
	f.object(0, label)
	f.scalar(1, 1, 1)
	f.scalar(2, uint64(typeCode), 1)
	f.object(3, typ)
	if dict != 0 {
		f.object(4, dict)
	}
	f.object(5, kids)
	return f.close()
}

// buildSchema writes the schema of a store:
//
//	tokens: list<item: uint16|uint32>, doc_id: uint64, source: dictionary<int32, utf8>
func buildSchema(f *flatBuilder, d DType) int {
	item := buildField(f, "item", typeInt, buildInt(f, 8*d.Size(), false), 0)
	f.open(0)
	list := f.close()
	tokens := buildField(f, "tokens", typeList, list, 0, item)
	docID := buildField(f, "doc_id", typeInt, buildInt(f, 64, false), 0)
	index := buildInt(f, 32, true)
	f.open(4)
	f.scalar(0, 0, 8)
	f.object(1, index)
	dict := f.close()
	f.open(0)
	utf := f.close()
	source := buildField(f, "source", typeUtf8, utf, dict)
	fields := f.refs(tokens, docID, source)
	f.open(4)
	f.object(1, fields)
	return f.close()
}

// buildMessage wraps a header that was just built.
func buildMessage(f *flatBuilder, kind, header int, body int64) []byte {
	f.open(5)
	f.scalar(3, uint64(body), 8)
	f.object(2, header)
	f.scalar(0, metadataV5, 2)
	f.scalar(1, uint64(kind), 1)
	return f.finish(f.close())
}

// buildRecords writes a RecordBatch header: rows, one node per field with its
// length, and the offset and length of each buffer in the body.
func buildRecords(f *flatBuilder, rows int, nodes []int, buffers [][2]int) int {
	words := make([]uint64, 0, 2*len(buffers))
	for _, b := range buffers {
		words = append(words, uint64(b[0]), uint64(b[1]))
	}
	bufs := f.structs(len(buffers), words)
	words = words[:0]
	for _, n := range nodes {
		words = append(words, uint64(n), 0) // null count 0
	}
	nods := f.structs(len(nodes), words)
	f.open(4)
	f.scalar(0, uint64(rows), 8)
	f.object(1, nods)
	f.object(2, bufs)
	return f.close()
}

// frame puts the length prefix before metadata and pads it so that a body
// written after it starts at a multiple of frameAlign, at being the offset of the
// frame in its file.
func frame(metadata []byte, at int64) []byte {
	size := pad64(int(at%frameAlign)+8+len(metadata)) - int(at%frameAlign)
	out := make([]byte, size)
	binary.LittleEndian.PutUint32(out, continues)
	binary.LittleEndian.PutUint32(out[4:], uint32(size-8))
	copy(out[8:], metadata)
	return out
}

func buildFooter(d DType, dicts, batches []block) []byte {
	f := &flatBuilder{}
	words := func(bs []block) []uint64 {
		out := make([]uint64, 0, 3*len(bs))
		for _, b := range bs {
			out = append(out, uint64(b.offset), uint64(b.metadata), uint64(b.body))
		}
		return out
	}
	recs := f.structs(len(batches), words(batches))
	dics := f.structs(len(dicts), words(dicts))
	schema := buildSchema(f, d)
	f.open(5)
	f.object(1, schema)
	f.object(2, dics)
	f.object(3, recs)
	f.scalar(0, metadataV5, 2)
	return f.finish(f.close())
}

// readFooter returns the places of the dictionary and record batches. The schema
// must be that of a store with ids of width d.
func readFooter(footer []byte, d DType, fileSize int64) (dict block, batches []block, err error) {
	f := &flatReader{b: footer}
	root := f.root()
	if err := checkSchema(f, f.table(root, 1), d); err != nil {
		return block{}, nil, err
	}
	read := func(field int) []block {
		pos, n := f.vector(root, field, 24)
		out := make([]block, n)
		for i := range out {
			at := pos + 24*i
			out[i] = block{f.i64(at), int64(f.u32(at + 8)), f.i64(at + 16)}
			b := out[i]
			if b.offset < 8 || b.offset%8 != 0 || b.metadata < 16 || b.body < 0 ||
				b.offset > fileSize || b.metadata > fileSize-b.offset || b.body > fileSize-b.offset-b.metadata {
				f.fail()
			}
		}
		return out
	}
	dicts := read(2)
	batches = read(3)
	if f.err == nil && len(dicts) != 1 {
		return block{}, nil, fmt.Errorf("%d dictionary batches, 1 expected", len(dicts))
	}
	if f.err != nil {
		return block{}, nil, f.err
	}
	return dicts[0], batches, nil
}

// checkSchema compares the schema, as far as it decides what the buffers mean.
func checkSchema(f *flatReader, schema flatTable, d DType) error {
	pos, n := f.vector(schema, 1, 4)
	if f.err != nil {
		return f.err
	}
	if n != 3 || f.number(schema, 0, 2, 0) != 0 {
		return fmt.Errorf("not the little-endian schema of a token store (%d columns)", n)
	}
	var col [3]flatTable
	for i := range col {
		col[i] = flatTable(f.follow(pos + 4*i))
	}
	isInt := func(t flatTable, bits, signed int64) bool {
		return f.number(t, 0, 4, 0) == bits && f.number(t, 1, 1, 0) == signed
	}
	itemPos, items := f.vector(col[0], 5, 4)
	item := flatTable(0)
	if items == 1 {
		item = flatTable(f.follow(itemPos))
	}
	ok := f.str(col[0], 0) == "tokens" && f.number(col[0], 2, 1, 0) == typeList && items == 1 &&
		f.number(item, 2, 1, 0) == typeInt && isInt(f.table(item, 3), int64(8*d.Size()), 0) &&
		f.str(col[1], 0) == "doc_id" && f.number(col[1], 2, 1, 0) == typeInt && isInt(f.table(col[1], 3), 64, 0) &&
		f.str(col[2], 0) == "source" && f.number(col[2], 2, 1, 0) == typeUtf8 && f.table(col[2], 4) != 0 &&
		isInt(f.table(f.table(col[2], 4), 1), 32, 1)
	if f.err != nil {
		return f.err
	}
	if !ok {
		return fmt.Errorf("the columns are not tokens: list<%v>, doc_id: uint64, source: dictionary<int32, utf8>", d)
	}
	return nil
}

// readRecords checks the message at the start of b, whose body is body bytes
// long, and returns its rows, the lengths of its nodes and its buffers as [offset,
// length] in the body, every one inside it and starting at a multiple of 8.
func readRecords(b []byte, kind int, body int64, nodes, buffers int) (rows int64, lens []int64, bufs [][2]int64, err error) {
	if len(b) < 16 || binary.LittleEndian.Uint32(b) != continues || int64(binary.LittleEndian.Uint32(b[4:])) != int64(len(b)-8) {
		return 0, nil, nil, fmt.Errorf("no message of %d bytes", len(b))
	}
	f := &flatReader{b: b[8:]}
	m := f.root()
	head := f.table(m, 2)
	if got := f.number(m, 1, 1, 0); f.err == nil && (got != int64(kind) || f.number(m, 3, 8, 0) != body) {
		return 0, nil, nil, fmt.Errorf("message of kind %d with a body of %d bytes, expected kind %d and %d", got, f.number(m, 3, 8, 0), kind, body)
	}
	if kind == headerDictionary {
		if f.number(head, 2, 1, 0) != 0 || f.number(head, 0, 8, 0) != 0 {
			return 0, nil, nil, fmt.Errorf("a delta or a foreign dictionary")
		}
		head = f.table(head, 1)
	}
	rows = f.number(head, 0, 8, 0)
	npos, n := f.vector(head, 1, 16)
	bpos, nb := f.vector(head, 2, 16)
	if f.err == nil && (n != nodes || nb != buffers || f.table(head, 3) != 0 || rows < 0) {
		return 0, nil, nil, fmt.Errorf("%d nodes, %d buffers, %d rows: not an uncompressed batch of a token store", n, nb, rows)
	}
	for i := range n {
		l := f.i64(npos + 16*i)
		if l < 0 || f.i64(npos+16*i+8) != 0 {
			f.fail()
		}
		lens = append(lens, l)
	}
	for i := range nb {
		off, size := f.i64(bpos+16*i), f.i64(bpos+16*i+8)
		if off < 0 || size < 0 || off%8 != 0 || off > body || size > body-off {
			f.fail()
		}
		bufs = append(bufs, [2]int64{off, size})
	}
	return rows, lens, bufs, f.err
}

// readStrings decodes a utf8 column of n values: int32 offsets and data.
func readStrings(offsets, data []byte, n int64) ([]string, error) {
	if n > int64(len(offsets))/4-1 {
		return nil, errFlat
	}
	out := make([]string, n)
	last := uint32(0)
	if binary.LittleEndian.Uint32(offsets) != 0 {
		return nil, errFlat
	}
	for i := range out {
		end := binary.LittleEndian.Uint32(offsets[4*i+4:])
		if end < last || int64(end) > int64(len(data)) || !utf8.Valid(data[last:end]) {
			return nil, errFlat
		}
		out[i] = string(data[last:end])
		last = end
	}
	return out, nil
}
