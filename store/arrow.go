package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"refrain/internal/flatbuf"
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

	maxName = 16 // of a column; ours are shorter
)

// errFlat is what every impossible range gives; the caller says where.
var errFlat = errors.New("broken metadata: an offset points outside or a value is impossible")

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

// DTypeFor is the width of ids below vocab: uint16 only while every id fits.
func DTypeFor(vocab int) DType {
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
func buildInt(f *flatbuf.Builder, bits int, signed bool) int {
	f.Open(2)
	f.Scalar(0, uint64(bits), 4)
	if signed {
		f.Scalar(1, 1, 1)
	}
	return f.Close()
}

// buildField writes a Field; dict is 0 or the address of a DictionaryEncoding.
// Fields are declared nullable, as other programs declare theirs, though nothing is
// ever null: the types then compare equal there.
func buildField(f *flatbuf.Builder, name string, typeCode, typ, dict int, children ...int) int {
	kids := f.Refs(children...)
	label := f.Str(name)
	f.Open(7)
	f.Object(0, label)
	f.Scalar(1, 1, 1)
	f.Scalar(2, uint64(typeCode), 1)
	f.Object(3, typ)
	if dict != 0 {
		f.Object(4, dict)
	}
	f.Object(5, kids)
	return f.Close()
}

// buildSchema writes the schema of a store:
//
//	tokens: list<item: uint16|uint32>, doc_id: uint64, source: dictionary<int32, utf8>
func buildSchema(f *flatbuf.Builder, d DType) int {
	item := buildField(f, "item", typeInt, buildInt(f, 8*d.Size(), false), 0)
	f.Open(0)
	list := f.Close()
	tokens := buildField(f, "tokens", typeList, list, 0, item)
	docID := buildField(f, "doc_id", typeInt, buildInt(f, 64, false), 0)
	index := buildInt(f, 32, true)
	f.Open(4)
	f.Scalar(0, 0, 8)
	f.Object(1, index)
	dict := f.Close()
	f.Open(0)
	utf := f.Close()
	source := buildField(f, "source", typeUtf8, utf, dict)
	fields := f.Refs(tokens, docID, source)
	f.Open(4)
	f.Object(1, fields)
	return f.Close()
}

// buildMessage wraps a header that was just built.
func buildMessage(f *flatbuf.Builder, kind, header int, body int64) []byte {
	f.Open(5)
	f.Scalar(3, uint64(body), 8)
	f.Object(2, header)
	f.Scalar(0, metadataV5, 2)
	f.Scalar(1, uint64(kind), 1)
	return f.Finish(f.Close())
}

// buildRecords writes a RecordBatch header: rows, one node per field with its
// length, and the offset and length of each buffer in the body.
func buildRecords(f *flatbuf.Builder, rows int, nodes []int, buffers [][2]int) int {
	words := make([]uint64, 0, 2*len(buffers))
	for _, b := range buffers {
		words = append(words, uint64(b[0]), uint64(b[1]))
	}
	bufs := f.Structs(len(buffers), words)
	words = words[:0]
	for _, n := range nodes {
		words = append(words, uint64(n), 0) // null count 0
	}
	nods := f.Structs(len(nodes), words)
	f.Open(4)
	f.Scalar(0, uint64(rows), 8)
	f.Object(1, nods)
	f.Object(2, bufs)
	return f.Close()
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
	f := &flatbuf.Builder{}
	words := func(bs []block) []uint64 {
		out := make([]uint64, 0, 3*len(bs))
		for _, b := range bs {
			out = append(out, uint64(b.offset), uint64(b.metadata), uint64(b.body))
		}
		return out
	}
	recs := f.Structs(len(batches), words(batches))
	dics := f.Structs(len(dicts), words(dicts))
	schema := buildSchema(f, d)
	f.Open(5)
	f.Object(1, schema)
	f.Object(2, dics)
	f.Object(3, recs)
	f.Scalar(0, metadataV5, 2)
	return f.Finish(f.Close())
}

// readFooter returns the places of the dictionary and record batches. The schema
// must be that of a store with ids of width d.
func readFooter(footer []byte, d DType, fileSize int64) (dict block, batches []block, err error) {
	f := flatbuf.NewReader(footer)
	root := f.Root()
	if err := checkSchema(f, f.Table(root, 1), d); err != nil {
		return block{}, nil, err
	}
	read := func(field int) []block {
		pos, n := f.Vector(root, field, 24)
		out := make([]block, n)
		for i := range out {
			at := pos + 24*i
			out[i] = block{f.I64(at), int64(f.I32(at + 8)), f.I64(at + 16)}
			b := out[i]
			if b.offset < 8 || b.offset%8 != 0 || b.metadata < 16 || b.metadata%8 != 0 || b.body < 0 ||
				b.offset > fileSize || b.metadata > fileSize-b.offset || b.body > fileSize-b.offset-b.metadata {
				f.Fail(errFlat)
			}
		}
		return out
	}
	dicts := read(2)
	batches = read(3)
	if f.Err() == nil && len(dicts) != 1 {
		return block{}, nil, fmt.Errorf("%d dictionary batches, 1 expected", len(dicts))
	}
	if f.Err() != nil {
		return block{}, nil, f.Err()
	}
	return dicts[0], batches, nil
}

// checkSchema compares the schema, as far as it decides what the buffers mean.
func checkSchema(f *flatbuf.Reader, schema int, d DType) error {
	pos, n := f.Vector(schema, 1, 4)
	if f.Err() != nil {
		return f.Err()
	}
	if n != 3 || f.Number(schema, 0, 2) != 0 {
		return fmt.Errorf("not the little-endian schema of a token store (%d columns)", n)
	}
	var col [3]int
	for i := range col {
		col[i] = f.Follow(pos + 4*i)
	}
	isInt := func(t int, bits, signed int64) bool {
		return f.Number(t, 0, 4) == bits && f.Number(t, 1, 1) == signed
	}
	itemPos, items := f.Vector(col[0], 5, 4)
	item := 0
	if items == 1 {
		item = f.Follow(itemPos)
	}
	ok := f.Str(col[0], 0, maxName) == "tokens" && f.Number(col[0], 2, 1) == typeList && items == 1 &&
		f.Number(item, 2, 1) == typeInt && isInt(f.Table(item, 3), int64(8*d.Size()), 0) &&
		f.Str(col[1], 0, maxName) == "doc_id" && f.Number(col[1], 2, 1) == typeInt && isInt(f.Table(col[1], 3), 64, 0) &&
		f.Str(col[2], 0, maxName) == "source" && f.Number(col[2], 2, 1) == typeUtf8 && f.Table(col[2], 4) != 0 &&
		isInt(f.Table(f.Table(col[2], 4), 1), 32, 1)
	if f.Err() != nil {
		return f.Err()
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
	f := flatbuf.NewReader(b[8:])
	m := f.Root()
	head := f.Table(m, 2)
	if got := f.Number(m, 1, 1); f.Err() == nil && (got != int64(kind) || f.Number(m, 3, 8) != body) {
		return 0, nil, nil, fmt.Errorf("message of kind %d with a body of %d bytes, expected kind %d and %d", got, f.Number(m, 3, 8), kind, body)
	}
	if kind == headerDictionary {
		if f.Number(head, 2, 1) != 0 || f.Number(head, 0, 8) != 0 {
			return 0, nil, nil, fmt.Errorf("a delta or a foreign dictionary")
		}
		head = f.Table(head, 1)
	}
	rows = f.Number(head, 0, 8)
	npos, n := f.Vector(head, 1, 16)
	bpos, nb := f.Vector(head, 2, 16)
	if f.Err() == nil && (n != nodes || nb != buffers || f.Table(head, 3) != 0 || rows < 0) {
		return 0, nil, nil, fmt.Errorf("%d nodes, %d buffers, %d rows: not an uncompressed batch of a token store", n, nb, rows)
	}
	for i := range n {
		l := f.I64(npos + 16*i)
		if l < 0 || f.I64(npos+16*i+8) != 0 {
			f.Fail(errFlat)
		}
		lens = append(lens, l)
	}
	for i := range nb {
		off, size := f.I64(bpos+16*i), f.I64(bpos+16*i+8)
		if off < 0 || size < 0 || off%8 != 0 || off > body || size > body-off {
			f.Fail(errFlat)
		}
		bufs = append(bufs, [2]int64{off, size})
	}
	return rows, lens, bufs, f.Err()
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
