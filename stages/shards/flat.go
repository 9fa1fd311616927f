package shards

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Bounds of Arrow metadata. A schema that needs more is refused.
const (
	maxArrowMeta   = 16 << 20 // bytes of one message's metadata, or of the footer
	maxArrowFields = 1024     // fields of a schema, nested ones included
	maxArrowDepth  = 8        // nesting of fields
	maxArrowName   = 4096     // bytes of a field's name
	maxArrowPairs  = 1024     // key-value pairs of one table
)

var errFlat = errors.New("metadata points outside itself")

// flat reads flatbuffer tables from untrusted bytes. The first fault sticks:
// after it every accessor returns zero and every vector is empty, so a caller
// may read on and look at err once. Positions are absolute; 0 means absent.
type flat struct {
	b   []byte
	err error
}

func (f *flat) fail(err error) int {
	if f.err == nil {
		f.err = err
	}
	return 0
}

// has reports whether n bytes lie at p.
func (f *flat) has(p, n int) bool {
	if f.err != nil {
		return false
	}
	if p < 0 || n < 0 || p > len(f.b) || n > len(f.b)-p {
		f.fail(errFlat)
		return false
	}
	return true
}

func (f *flat) u8(p int) int {
	if !f.has(p, 1) {
		return 0
	}
	return int(f.b[p])
}

func (f *flat) u16(p int) int {
	if !f.has(p, 2) {
		return 0
	}
	return int(binary.LittleEndian.Uint16(f.b[p:]))
}

func (f *flat) i32(p int) int {
	if !f.has(p, 4) {
		return 0
	}
	return int(int32(binary.LittleEndian.Uint32(f.b[p:])))
}

func (f *flat) i64(p int) int64 {
	if !f.has(p, 8) {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(f.b[p:]))
}

// follow resolves the forward offset stored at p.
func (f *flat) follow(p int) int {
	off := f.i32(p)
	if f.err != nil {
		return 0
	}
	if off <= 0 || !f.has(p, off) || !f.has(p+off, 4) {
		return f.fail(errFlat)
	}
	return p + off
}

// field is the position of field id of a table, of which size bytes must be
// there, or 0 when the table leaves it at its default.
func (f *flat) field(table, id, size int) int {
	vt := table - f.i32(table)
	n := f.u16(vt)
	if f.err != nil {
		return 0
	}
	if n < 4 || n%2 != 0 || !f.has(vt, n) {
		return f.fail(errFlat)
	}
	if 4+2*id+2 > n {
		return 0
	}
	off := f.u16(vt + 4 + 2*id)
	if off == 0 || !f.has(table+off, size) {
		return 0
	}
	return table + off
}

// table is the position of a table field, or 0.
func (f *flat) table(t, id int) int {
	if p := f.field(t, id, 4); p != 0 {
		return f.follow(p)
	}
	return 0
}

// vector is the start and length of a vector of elements of size bytes.
func (f *flat) vector(t, id, size int) (start, n int) {
	v := f.table(t, id)
	if v == 0 {
		return 0, 0
	}
	n = f.i32(v)
	if n < 0 || n > (len(f.b)-v-4)/size {
		return 0, f.fail(errFlat)
	}
	return v + 4, n
}

// str copies a string, which is bounded because many tables may share one.
func (f *flat) str(t, id int) string {
	p, n := f.vector(t, id, 1)
	if p == 0 {
		return ""
	}
	if n > maxArrowName {
		f.fail(fmt.Errorf("a field name of %d bytes, more than %d", n, maxArrowName))
		return ""
	}
	return string(f.b[p : p+n])
}

func (f *flat) scalar8(t, id int) int {
	if p := f.field(t, id, 1); p != 0 {
		return f.u8(p)
	}
	return 0
}

func (f *flat) scalar16(t, id int) int {
	if p := f.field(t, id, 2); p != 0 {
		return f.u16(p)
	}
	return 0
}

func (f *flat) scalar32(t, id int) int {
	if p := f.field(t, id, 4); p != 0 {
		return f.i32(p)
	}
	return 0
}

func (f *flat) scalar64(t, id int) int64 {
	if p := f.field(t, id, 8); p != 0 {
		return f.i64(p)
	}
	return 0
}

// pairs checks a vector of key-value tables.
func (f *flat) pairs(t, id int) {
	p, n := f.vector(t, id, 4)
	if n > maxArrowPairs {
		f.fail(fmt.Errorf("%d metadata pairs, more than %d", n, maxArrowPairs))
		return
	}
	for i := range n {
		kv := f.follow(p + 4*i)
		f.vector(kv, 0, 1)
		f.vector(kv, 1, 1)
		if f.err != nil {
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
func (f *flat) parseField(t, depth int, left *int) arrowField {
	*left--
	if depth > maxArrowDepth || *left < 0 {
		f.fail(fmt.Errorf("a schema of more than %d fields or nested deeper than %d", maxArrowFields, maxArrowDepth))
		return arrowField{}
	}
	out := arrowField{name: f.str(t, 0), typ: f.scalar8(t, 2)}
	if f.err == nil && (out.typ < arrowNull || out.typ > arrowLargeListView) {
		f.fail(fmt.Errorf("field %q has unknown type number %d", clip([]byte(out.name)), out.typ))
	}
	if typ := f.table(t, 3); typ != 0 && out.typ == arrowUnion {
		out.dense = f.scalar16(typ, 0) == 1
	}
	if d := f.table(t, 4); d != 0 {
		out.dict, out.dictID, out.idxBits, out.idxSign = true, f.scalar64(d, 0), 32, true
		if x := f.table(d, 1); x != 0 {
			out.idxBits, out.idxSign = f.scalar32(x, 0), f.scalar8(x, 1) != 0
		}
	}
	p, n := f.vector(t, 5, 4)
	for i := 0; i < n && f.err == nil; i++ {
		out.children = append(out.children, f.parseField(f.follow(p+4*i), depth+1, left))
	}
	f.pairs(t, 6)
	return out
}

// parseSchema reads a Schema table.
func (f *flat) parseSchema(t int) []arrowField {
	if f.scalar16(t, 0) != 0 {
		f.fail(errors.New("big-endian data is not read"))
	}
	p, n := f.vector(t, 1, 4)
	left := maxArrowFields
	var out []arrowField
	for i := 0; i < n && f.err == nil; i++ {
		out = append(out, f.parseField(f.follow(p+4*i), 1, &left))
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
func (f *flat) parseBatch(t int, size int64) *arrowBatch {
	b := &arrowBatch{rows: f.scalar64(t, 0), codec: -1}
	if b.rows < 0 || b.rows > 1<<31-1 {
		f.fail(fmt.Errorf("a batch of %d rows", b.rows))
	}
	p, n := f.vector(t, 1, 16)
	for i := range n {
		e := extent{f.i64(p + 16*i), f.i64(p + 16*i + 8)}
		if e.off < 0 || e.n < 0 || e.n > e.off {
			f.fail(fmt.Errorf("column %d has length %d with %d nulls", i, e.off, e.n))
			return nil
		}
		b.nodes = append(b.nodes, e)
	}
	p, n = f.vector(t, 2, 16)
	for i := range n {
		e := extent{f.i64(p + 16*i), f.i64(p + 16*i + 8)}
		if e.off < 0 || e.n < 0 || e.off > size || e.n > size-e.off || (e.off%8 != 0 && e.n > 0) {
			f.fail(fmt.Errorf("buffer %d is [%d, +%d) of a body of %d bytes", i, e.off, e.n, size))
			return nil
		}
		b.bufs = append(b.bufs, e)
	}
	if c := f.table(t, 3); c != 0 {
		b.codec = f.scalar8(c, 0)
		if m := f.scalar8(c, 1); m != 0 || b.codec > 1 {
			f.fail(fmt.Errorf("unknown compression codec %d method %d", b.codec, m))
		}
	}
	p, n = f.vector(t, 4, 8)
	for i := range n {
		v := f.i64(p + 8*i)
		if v < 0 || v > int64(len(b.bufs)) {
			f.fail(fmt.Errorf("a view column of %d buffers", v))
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
	f := &flat{b: b}
	t := f.follow(0)
	m := arrowMessage{kind: f.scalar8(t, 1), body: f.scalar64(t, 3)}
	version := f.scalar16(t, 0)
	m.v4 = version == 3
	head := f.table(t, 2)
	f.pairs(t, 4)
	switch {
	case f.err != nil:
	case version != 3 && version != 4:
		f.fail(fmt.Errorf("metadata version %d is not V4 or V5", version+1))
	case m.body < 0:
		f.fail(fmt.Errorf("a body of %d bytes", m.body))
	case head == 0:
		f.fail(errors.New("a message without a header"))
	case m.kind == arrowMsgSchema:
		m.fields = f.parseSchema(head)
		if m.body != 0 {
			f.fail(fmt.Errorf("a schema with a body of %d bytes", m.body))
		}
	case m.kind == arrowMsgBatch:
		m.batch = f.parseBatch(head, m.body)
	case m.kind == arrowMsgDict:
		m.dictID, m.delta = f.scalar64(head, 0), f.scalar8(head, 2) != 0
		if data := f.table(head, 1); data != 0 {
			m.batch = f.parseBatch(data, m.body)
		} else {
			f.fail(errors.New("a dictionary without values"))
		}
	default:
		f.fail(fmt.Errorf("message type %d is not a schema, dictionary or record batch", m.kind))
	}
	return m, f.err
}

// arrowBlock is one entry of a file's footer.
type arrowBlock struct{ off, meta, body int64 }

// parseFooter returns the record batches that a footer lists.
func parseFooter(b []byte) ([]arrowBlock, error) {
	f := &flat{b: b}
	t := f.follow(0)
	p, n := f.vector(t, 3, 24)
	var out []arrowBlock
	for i := range n {
		q := p + 24*i
		out = append(out, arrowBlock{f.i64(q), int64(f.i32(q + 8)), f.i64(q + 16)})
	}
	return out, f.err
}
