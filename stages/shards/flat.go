package shards

import (
	"errors"
	"fmt"

	"refrain/internal/flatbuf"
)

// Bounds of Arrow metadata. A schema that needs more is refused.
const (
	maxArrowMeta   = 16 << 20 // bytes of one message's metadata, or of the footer
	maxArrowFields = 1024     // fields of a schema, nested ones included
	maxArrowDepth  = 8        // nesting of fields
	maxArrowName   = 4096     // bytes of a field's name
	maxArrowPairs  = 1024     // key-value pairs of one table
)

// metadata reads Arrow's tables from untrusted bytes.
type metadata struct{ *flatbuf.Reader }

func readMetadata(b []byte) metadata { return metadata{flatbuf.NewReader(b)} }

// name copies a field's name.
func (f metadata) name(t, id int) string {
	if _, n := f.Vector(t, id, 1); n > maxArrowName {
		f.Fail(fmt.Errorf("a field name of %d bytes, more than %d", n, maxArrowName))
	}
	return f.Str(t, id, maxArrowName)
}

// pairs checks a vector of key-value tables.
func (f metadata) pairs(t, id int) {
	p, n := f.Vector(t, id, 4)
	if n > maxArrowPairs {
		f.Fail(fmt.Errorf("%d metadata pairs, more than %d", n, maxArrowPairs))
		return
	}
	for i := range n {
		kv := f.Follow(p + 4*i)
		f.Vector(kv, 0, 1)
		f.Vector(kv, 1, 1)
		if f.Err() != nil {
			return
		}
	}
}

// The Arrow types, numbered as in Schema.fbs of the Arrow format.
const (
	arrowNull = 1 + iota
	arrowInt
	arrowFloat
	arrowBinary
	arrowUtf8
	arrowBool
	arrowDecimal
	arrowDate
	arrowTime
	arrowTimestamp
	arrowInterval
	arrowList
	arrowStruct
	arrowUnion
	arrowFixedBinary
	arrowFixedList
	arrowMap
	arrowDuration
	arrowLargeBinary
	arrowLargeUtf8
	arrowLargeList
	arrowRunEnd
	arrowBinaryView
	arrowUtf8View
	arrowListView
	arrowLargeListView
)

// arrowTypes names the types and says how many buffers a column of each has in
// a record batch, not counting children and the extra buffers of views.
var arrowTypes = [...]struct {
	name string
	bufs int
}{
	arrowNull: {"null", 0}, arrowInt: {"int", 2}, arrowFloat: {"float", 2}, arrowBinary: {"binary", 3},
	arrowUtf8: {"string", 3}, arrowBool: {"bool", 2}, arrowDecimal: {"decimal", 2}, arrowDate: {"date", 2},
	arrowTime: {"time", 2}, arrowTimestamp: {"timestamp", 2}, arrowInterval: {"interval", 2}, arrowList: {"list", 2},
	arrowStruct: {"struct", 1}, arrowUnion: {"union", 1}, arrowFixedBinary: {"fixed_size_binary", 2},
	arrowFixedList: {"fixed_size_list", 1}, arrowMap: {"map", 2}, arrowDuration: {"duration", 2},
	arrowLargeBinary: {"large_binary", 3}, arrowLargeUtf8: {"large_string", 3}, arrowLargeList: {"large_list", 2},
	arrowRunEnd: {"run_end_encoded", 0}, arrowBinaryView: {"binary_view", 2}, arrowUtf8View: {"string_view", 2},
	arrowListView: {"list_view", 3}, arrowLargeListView: {"large_list_view", 3},
}

// arrowField is one field of a schema, and the shape of its columns.
type arrowField struct {
	name     string
	typ      int
	dict     bool // the column holds indices into dictionary dictID
	dictID   int64
	idxBits  int
	idxSign  bool
	dense    bool // union mode
	children []arrowField
}

// String is the type as pyarrow writes it, near enough to recognise.
func (f *arrowField) String() string {
	s := arrowTypes[f.typ].name
	if len(f.children) > 0 {
		s += "<"
		for i := range f.children {
			if i > 0 {
				s += ", "
			}
			s += f.children[i].String()
		}
		s += ">"
	}
	if f.dict {
		s = "dictionary<" + s + ">"
	}
	return s
}

// layout is what a column takes of a record batch: field nodes, buffers, and
// counts of variadic buffers.
type layout struct{ nodes, bufs, views int }

// layout of a column of f. Format version 4 gave unions a validity buffer.
func (f *arrowField) layout(v4 bool) layout {
	if f.dict {
		return layout{nodes: 1, bufs: 2}
	}
	l := layout{nodes: 1, bufs: arrowTypes[f.typ].bufs}
	switch f.typ {
	case arrowUtf8View, arrowBinaryView:
		l.views = 1
	case arrowUnion:
		if f.dense {
			l.bufs++
		}
		if v4 {
			l.bufs++
		}
	}
	for i := range f.children {
		c := f.children[i].layout(v4)
		l.nodes += c.nodes
		l.bufs += c.bufs
		l.views += c.views
	}
	return l
}

// parseField reads a Field table; left counts the fields that may still follow.
func (f metadata) parseField(t, depth int, left *int) arrowField {
	*left--
	if depth > maxArrowDepth || *left < 0 {
		f.Fail(fmt.Errorf("a schema of more than %d fields or nested deeper than %d", maxArrowFields, maxArrowDepth))
		return arrowField{}
	}
	out := arrowField{name: f.name(t, 0), typ: int(f.Number(t, 2, 1))}
	if f.Err() == nil && (out.typ < arrowNull || out.typ > arrowLargeListView) {
		f.Fail(fmt.Errorf("field %q has unknown type number %d", clip([]byte(out.name)), out.typ))
	}
	if typ := f.Table(t, 3); typ != 0 && out.typ == arrowUnion {
		out.dense = f.Number(typ, 0, 2) == 1
	}
	if d := f.Table(t, 4); d != 0 {
		out.dict, out.dictID, out.idxBits, out.idxSign = true, f.Number(d, 0, 8), 32, true
		if x := f.Table(d, 1); x != 0 {
			out.idxBits, out.idxSign = int(f.Number(x, 0, 4)), f.Number(x, 1, 1) != 0
		}
	}
	p, n := f.Vector(t, 5, 4)
	for i := 0; i < n && f.Err() == nil; i++ {
		out.children = append(out.children, f.parseField(f.Follow(p+4*i), depth+1, left))
	}
	f.pairs(t, 6)
	return out
}

// parseSchema reads a Schema table.
func (f metadata) parseSchema(t int) []arrowField {
	if f.Number(t, 0, 2) != 0 {
		f.Fail(errors.New("big-endian data is not read"))
	}
	p, n := f.Vector(t, 1, 4)
	left := maxArrowFields
	var out []arrowField
	for i := 0; i < n && f.Err() == nil; i++ {
		out = append(out, f.parseField(f.Follow(p+4*i), 1, &left))
	}
	f.pairs(t, 2)
	return out
}

// extent is a range of a message body, or length and null count of a node.
type extent struct{ off, n int64 }

// arrowBatch is a RecordBatch table.
type arrowBatch struct {
	rows     int64
	nodes    []extent // off is the length, n the null count
	bufs     []extent
	codec    int // -1 none, 0 LZ4 frame, 1 zstd
	variadic []int64
}

// parseBatch reads a RecordBatch table whose body has size bytes; every buffer
// lies inside it, 8-byte aligned.
func (f metadata) parseBatch(t int, size int64) *arrowBatch {
	b := &arrowBatch{rows: f.Number(t, 0, 8), codec: -1}
	if b.rows < 0 || b.rows > 1<<31-1 {
		f.Fail(fmt.Errorf("a batch of %d rows", b.rows))
	}
	p, n := f.Vector(t, 1, 16)
	for i := range n {
		e := extent{f.I64(p + 16*i), f.I64(p + 16*i + 8)}
		if e.off < 0 || e.n < 0 || e.n > e.off {
			f.Fail(fmt.Errorf("column %d has length %d with %d nulls", i, e.off, e.n))
			return nil
		}
		b.nodes = append(b.nodes, e)
	}
	p, n = f.Vector(t, 2, 16)
	for i := range n {
		e := extent{f.I64(p + 16*i), f.I64(p + 16*i + 8)}
		if e.off < 0 || e.n < 0 || e.off > size || e.n > size-e.off || (e.off%8 != 0 && e.n > 0) {
			f.Fail(fmt.Errorf("buffer %d is [%d, +%d) of a body of %d bytes", i, e.off, e.n, size))
			return nil
		}
		b.bufs = append(b.bufs, e)
	}
	if c := f.Table(t, 3); c != 0 {
		b.codec = int(f.Number(c, 0, 1))
		if m := int(f.Number(c, 1, 1)); m != 0 || b.codec > 1 {
			f.Fail(fmt.Errorf("unknown compression codec %d method %d", b.codec, m))
		}
	}
	p, n = f.Vector(t, 4, 8)
	for i := range n {
		v := f.I64(p + 8*i)
		if v < 0 || v > int64(len(b.bufs)) {
			f.Fail(fmt.Errorf("a view column of %d buffers", v))
			return nil
		}
		b.variadic = append(b.variadic, v)
	}
	return b
}

// Message header types, as in Message.fbs.
const (
	arrowMsgSchema = 1
	arrowMsgDict   = 2
	arrowMsgBatch  = 3
)

// arrowMessage is the metadata of one encapsulated message.
type arrowMessage struct {
	kind   int
	body   int64
	v4     bool
	fields []arrowField // of a schema
	batch  *arrowBatch  // of a batch or a dictionary
	dictID int64
	delta  bool
}

// parseMessage reads the metadata of a message.
func parseMessage(b []byte) (arrowMessage, error) {
	f := readMetadata(b)
	t := f.Root()
	m := arrowMessage{kind: int(f.Number(t, 1, 1)), body: f.Number(t, 3, 8)}
	version := f.Number(t, 0, 2)
	m.v4 = version == 3
	head := f.Table(t, 2)
	f.pairs(t, 4)
	switch {
	case f.Err() != nil:
	case version != 3 && version != 4:
		f.Fail(fmt.Errorf("metadata version %d is not V4 or V5", version+1))
	case m.body < 0:
		f.Fail(fmt.Errorf("a body of %d bytes", m.body))
	case head == 0:
		f.Fail(errors.New("a message without a header"))
	case m.kind == arrowMsgSchema:
		m.fields = f.parseSchema(head)
		if m.body != 0 {
			f.Fail(fmt.Errorf("a schema with a body of %d bytes", m.body))
		}
	case m.kind == arrowMsgBatch:
		m.batch = f.parseBatch(head, m.body)
	case m.kind == arrowMsgDict:
		m.dictID, m.delta = f.Number(head, 0, 8), f.Number(head, 2, 1) != 0
		if data := f.Table(head, 1); data != 0 {
			m.batch = f.parseBatch(data, m.body)
		} else {
			f.Fail(errors.New("a dictionary without values"))
		}
	default:
		f.Fail(fmt.Errorf("message type %d is not a schema, dictionary or record batch", m.kind))
	}
	return m, f.Err()
}

// arrowBlock is one entry of a file's footer.
type arrowBlock struct{ off, meta, body int64 }

// parseFooter returns the record batches that a footer lists.
func parseFooter(b []byte) ([]arrowBlock, error) {
	f := readMetadata(b)
	t := f.Root()
	p, n := f.Vector(t, 3, 24)
	var out []arrowBlock
	for i := range n {
		q := p + 24*i
		out = append(out, arrowBlock{f.I64(q), int64(f.I32(q + 8)), f.I64(q + 16)})
	}
	return out, f.Err()
}
