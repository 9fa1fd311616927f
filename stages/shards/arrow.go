package shards

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"unsafe"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/memory"
	"github.com/klauspost/compress/zstd"
)

// arrowReader reads an Arrow IPC file or stream in the order of its bytes,
// batch by batch. The guard in this file and in flat.go checks metadata,
// buffers, offsets, indices and views of the text column before the Arrow
// library is given arrays over them; other columns are stepped over unread, so
// they may be of any type and size. Batches are never joined: 32-bit offsets
// cannot overflow.
type arrowReader struct {
	r    *run
	kind Kind
	src  *bufio.Reader
	off  int64 // bytes consumed
	meta []byte
	slab []byte // text buffers of the batch being read

	v4     bool
	fields []arrowField
	text   *arrowField
	at     layout // what lies before the text column
	dict   array.StringLike
	batch  int   // record batches met
	row    int64 // rows met
	blocks []arrowBlock
}

// arrow reads an Arrow file or stream.
func (r *run) arrow(src io.Reader, k Kind) error {
	a := &arrowReader{r: r, kind: k, src: bufio.NewReaderSize(src, 256<<10)}
	if k == KindArrowFile {
		magic, err := a.take(len(magicArrow))
		if err != nil {
			return a.stop(err)
		}
		if string(magic) != magicArrow {
			return a.damaged(fmt.Errorf("the file does not begin with %q", magicArrow[:6]))
		}
	}
	for {
		start := a.off
		m, err := a.message()
		if err == io.EOF {
			if a.kind == KindArrowFile {
				return a.stop(a.footer())
			}
			return nil
		}
		if err == nil {
			err = a.dispatch(m, start)
		}
		if err != nil {
			return a.stop(err)
		}
	}
}

// place is where the reader stands.
func (a *arrowReader) place() place {
	return place{hasGroup: true, groupName: "record batch", group: a.batch, byte: a.off, hasByte: true}
}

// stop turns a fault of the stream into the error of the shard, or into nil if
// the policy is to keep what came before a cut. Errors of records pass.
func (a *arrowReader) stop(err error) error {
	var e *Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	var damage *arrowDamage
	if errors.As(err, &damage) {
		return a.damaged(damage.err)
	}
	var sent *sendError
	if errors.As(err, &sent) {
		return sent.err
	}
	return a.r.brokenStream(a.place(), err)
}

func (a *arrowReader) damaged(err error) error {
	return &Error{Path: a.r.in.Path, Place: a.place().String(), Reason: damaged, Err: err, Fix: fixDamaged}
}

// unusable is a shard that is sound but not what we read.
func (a *arrowReader) unusable(detail, fix string) error {
	return &Error{Path: a.r.in.Path, Reason: Schema, Detail: detail, Fix: fix}
}

// arrowDamage marks a fault found by the guard.
type arrowDamage struct{ err error }

func (e *arrowDamage) Error() string { return e.err.Error() }

func damage(format string, args ...any) error { return &arrowDamage{fmt.Errorf(format, args...)} }

// sendError marks an error of the link, which is not about the shard.
type sendError struct{ err error }

func (e *sendError) Error() string { return e.err.Error() }

// take returns the next n bytes, which stay valid until the next take.
func (a *arrowReader) take(n int) ([]byte, error) {
	a.meta = a.meta[:0]
	buf, err := readUpTo(a.meta, io.LimitReader(a.src, int64(n)), int64(n))
	a.meta = buf
	a.off += int64(len(buf))
	if err == nil && len(buf) < n {
		err = io.ErrUnexpectedEOF
	}
	return buf, err
}

// skip steps over n bytes.
func (a *arrowReader) skip(n int64) error {
	m, err := io.CopyN(io.Discard, a.src, n)
	a.off += m
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// message reads the metadata of the next message; io.EOF is the end mark.
func (a *arrowReader) message() (arrowMessage, error) {
	head, err := a.take(4)
	if err != nil {
		return arrowMessage{}, err
	}
	if binary.LittleEndian.Uint32(head) != 0xffffffff {
		return arrowMessage{}, damage("no message starts here (files from before Arrow 0.15 are not read)")
	}
	if head, err = a.take(4); err != nil {
		return arrowMessage{}, err
	}
	n := binary.LittleEndian.Uint32(head)
	if n == 0 {
		return arrowMessage{}, io.EOF
	}
	if n > maxArrowMeta {
		return arrowMessage{}, damage("metadata of %d bytes, more than %d", n, maxArrowMeta)
	}
	b, err := a.take(int(n))
	if err != nil {
		return arrowMessage{}, err
	}
	m, err := parseMessage(b)
	if err != nil {
		return m, &arrowDamage{err}
	}
	return m, nil
}

// dispatch handles a message whose metadata began at start.
func (a *arrowReader) dispatch(m arrowMessage, start int64) error {
	if (a.fields == nil) != (m.kind == arrowMsgSchema) {
		return damage("the schema must come first and once")
	}
	if m.kind == arrowMsgSchema {
		a.v4 = m.v4
		return a.schema(m.fields)
	}
	if m.kind == arrowMsgDict {
		return a.dictionary(m)
	}
	a.blocks = append(a.blocks, arrowBlock{start, a.off - start, m.body})
	return a.record(m)
}

// schema finds the text column.
func (a *arrowReader) schema(fields []arrowField) error {
	want := a.r.o.Field
	var names []string
	for i := range fields {
		f := &fields[i]
		names = append(names, f.name)
		if f.name != want {
			if a.text == nil {
				l := f.layout(a.v4)
				a.at = layout{a.at.nodes + l.nodes, a.at.bufs + l.bufs, a.at.views + l.views}
			}
			continue
		}
		if a.text != nil {
			return a.unusable(fmt.Sprintf("two columns are called %q", want), "rename one")
		}
		a.text = f
	}
	if a.text == nil {
		return a.unusable(fmt.Sprintf("no column %q among %q; %s", want, shortList(names), hint(nearest(want, names))), "set data.field to the text column")
	}
	switch a.text.typ {
	case arrowUtf8, arrowLargeUtf8:
	case arrowUtf8View:
		if a.text.dict {
			return a.unusable(fmt.Sprintf("column %q is %s", want, a.text), "cast it to string")
		}
	default:
		return a.unusable(fmt.Sprintf("column %q is %s; string, large_string, string_view and dictionaries of string are read", want, a.text), "cast it, or set data.field to another column")
	}
	if a.text.dict {
		switch a.text.idxBits {
		case 8, 16, 32, 64:
		default:
			return damage("dictionary indices of %d bits", a.text.idxBits)
		}
	}
	if a.fields = fields; a.fields == nil {
		a.fields = []arrowField{}
	}
	return nil
}

// dictionary keeps the values of the text column and steps over others.
func (a *arrowReader) dictionary(m arrowMessage) error {
	if !a.text.dict || a.text.dictID != m.dictID {
		return a.skip(m.body)
	}
	if m.delta {
		return a.unusable(fmt.Sprintf("the dictionary of column %q grows in delta messages, which are not read", a.r.o.Field), "write it with one dictionary, or cast the column to string")
	}
	values := arrowField{name: a.text.name, typ: a.text.typ}
	b := m.batch
	if len(b.nodes) != 1 || len(b.bufs) != 3 || b.nodes[0].off != b.rows {
		return damage("a dictionary of %d nodes and %d buffers", len(b.nodes), len(b.bufs))
	}
	var own []byte // it outlives the batch
	bufs, err := a.body(m, b.bufs, &own)
	if err != nil {
		return err
	}
	arr, err := stringArray(&values, b.nodes[0], bufs)
	if err != nil {
		return err
	}
	a.dict = arr
	return nil
}

// record reads the text column of a record batch and sends its rows.
func (a *arrowReader) record(m arrowMessage) error {
	b := m.batch
	node, bufs, err := a.locate(b)
	if err != nil {
		return err
	}
	if node.off != b.rows {
		return damage("column %q has %d rows, its batch %d", a.r.o.Field, node.off, b.rows)
	}
	raw, err := a.body(m, bufs, &a.slab)
	if err != nil {
		return err
	}
	if a.text.dict {
		err = a.indexed(node, raw)
	} else {
		var arr array.StringLike
		if arr, err = stringArray(a.text, node, raw); err == nil {
			err = a.rows(int(b.rows), arr.IsNull, arr.Value)
		}
	}
	if err != nil {
		return err
	}
	a.batch++
	return nil
}

// locate finds node and buffers of the text column. The batch must hold exactly
// what its schema says, or columns would be taken for each other.
func (a *arrowReader) locate(b *arrowBatch) (extent, []extent, error) {
	var all layout
	for i := range a.fields {
		l := a.fields[i].layout(a.v4)
		all = layout{all.nodes + l.nodes, all.bufs + l.bufs, all.views + l.views}
	}
	total, before := int64(all.bufs), int64(a.at.bufs)
	for i, v := range b.variadic {
		total += v
		if i < a.at.views {
			before += v
		}
	}
	if len(b.nodes) != all.nodes || int64(len(b.bufs)) != total || len(b.variadic) != all.views {
		return extent{}, nil, damage("a batch of %d columns and %d buffers where the schema asks for %d and %d", len(b.nodes), len(b.bufs), all.nodes, total)
	}
	n := int64(a.text.layout(a.v4).bufs)
	if a.text.typ == arrowUtf8View {
		n += b.variadic[a.at.views]
	}
	return b.nodes[a.at.nodes], b.bufs[before : before+n], nil
}

// body reads the given buffers of a message and steps over the rest of it. The
// buffers lie in slab, which is reused and grows with the bytes that arrive, not
// with what the metadata claims.
func (a *arrowReader) body(m arrowMessage, bufs []extent, slab *[]byte) ([][]byte, error) {
	lo, hi := m.body, int64(0)
	for _, e := range bufs {
		if e.n > 0 {
			lo, hi = min(lo, e.off), max(hi, e.off+e.n)
		}
	}
	if hi <= lo {
		lo, hi = 0, 0
	}
	limit := a.r.o.MaxBatch
	if hi-lo > limit {
		return nil, a.tooBig(hi - lo)
	}
	if err := a.skip(lo); err != nil {
		return nil, err
	}
	got, err := readUpTo((*slab)[:0], io.LimitReader(a.src, hi-lo), hi-lo)
	a.off += int64(len(got))
	*slab = got
	if err == nil && int64(len(got)) < hi-lo {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = a.skip(m.body - hi)
	}
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(bufs))
	for i, e := range bufs {
		if e.n > 0 {
			out[i] = got[e.off-lo : e.off-lo+e.n]
		}
	}
	if m.batch.codec >= 0 {
		return out, a.inflate(m.batch.codec, out)
	}
	return out, nil
}

func (a *arrowReader) tooBig(n int64) error {
	return &Error{Path: a.r.in.Path, Place: a.place().String(), Reason: TooLong,
		Detail: fmt.Sprintf("the text of one batch takes %d bytes, more than %d", n, a.r.o.MaxBatch),
		Fix:    "write smaller record batches or raise data.max_batch"}
}

// inflate replaces compressed buffers by plain ones. Each begins with its plain
// length, -1 meaning that it is stored as it is.
func (a *arrowReader) inflate(codec int, bufs [][]byte) error {
	left := a.r.o.MaxBatch
	for i, b := range bufs {
		if len(b) == 0 {
			continue
		}
		if len(b) < 8 {
			return damage("a compressed buffer of %d bytes", len(b))
		}
		n := int64(binary.LittleEndian.Uint64(b))
		if n == -1 {
			bufs[i] = bytes.Clone(b[8:]) // aligned again
			continue
		}
		if n < 0 {
			return damage("a compressed buffer of plain length %d", n)
		}
		if left -= n; left < 0 {
			return a.tooBig(a.r.o.MaxBatch - left)
		}
		if codec == 0 {
			plain, err := inflateLZ4(b[8:], n)
			if err != nil {
				return err
			}
			bufs[i] = plain
			continue
		}
		z, err := zstd.NewReader(bytes.NewReader(b[8:]), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return damage("zstd buffer: %v", err)
		}
		plain, err := readUpTo(nil, z, n+1)
		z.Close()
		if err != nil {
			return damage("zstd buffer: %v", err)
		}
		if int64(len(plain)) != n {
			return damage("a zstd buffer holds other than its %d bytes", n)
		}
		bufs[i] = plain
	}
	return nil
}

// indexed sends the rows of a dictionary column.
func (a *arrowReader) indexed(node extent, bufs [][]byte) error {
	if err := checkValidity(node, bufs[0]); err != nil {
		return err
	}
	values := int64(0) // no dictionary is needed where every row is null
	if a.dict != nil {
		values = int64(a.dict.Len())
	}
	n, size := node.off, int64(a.text.idxBits/8)
	if int64(len(bufs[1])) < n*size {
		return damage("%d bytes of indices for %d rows", len(bufs[1]), n)
	}
	idx := func(i int) uint64 { return index(bufs[1], i, a.text.idxBits, a.text.idxSign) }
	null := func(i int) bool { return len(bufs[0]) > 0 && bufs[0][i/8]>>(i%8)&1 == 0 }
	for i := range int(n) {
		if !null(i) && idx(i) >= uint64(values) {
			return damage("row %d has index %d of a dictionary of %d", i, int64(idx(i)), values)
		}
	}
	return a.rows(int(n), func(i int) bool { return null(i) || a.dict.IsNull(int(idx(i))) },
		func(i int) string { return a.dict.Value(int(idx(i))) })
}

// index reads dictionary index i; a negative one becomes too large for any
// dictionary.
func index(b []byte, i, bits int, signed bool) uint64 {
	switch bits {
	case 8:
		if signed {
			return uint64(int64(int8(b[i])))
		}
		return uint64(b[i])
	case 16:
		v := binary.LittleEndian.Uint16(b[2*i:])
		if signed {
			return uint64(int64(int16(v)))
		}
		return uint64(v)
	case 32:
		v := binary.LittleEndian.Uint32(b[4*i:])
		if signed {
			return uint64(int64(int32(v)))
		}
		return uint64(v)
	}
	return binary.LittleEndian.Uint64(b[8*i:])
}

// rows sends n rows as documents.
func (a *arrowReader) rows(n int, null func(int) bool, value func(int) string) error {
	for i := range n {
		at := place{hasGroup: true, groupName: "record batch", group: a.batch, row: a.row, hasRow: true}
		var err error
		if null(i) {
			err = a.r.reject(at, Empty, a.r.o.Empty, fmt.Sprintf("column %q is null", a.r.o.Field), nil, fixEmpty)
		} else {
			s := value(i)
			// The bytes are only read, so the string may be looked at in place.
			err = a.r.document(at, a.row, unsafe.Slice(unsafe.StringData(s), len(s)))
		}
		if err != nil {
			return &sendError{err}
		}
		a.row++
	}
	return nil
}

// stringArray checks the buffers of a string column and wraps them in an array
// of the Arrow library. Nothing is copied. The library checks little by itself
// and panics on what it does check, so all is checked here first, and a panic
// that happens all the same becomes an error.
func stringArray(f *arrowField, node extent, bufs [][]byte) (arr array.StringLike, err error) {
	if err := checkValidity(node, bufs[0]); err != nil {
		return nil, err
	}
	var dt arrow.DataType
	switch f.typ {
	case arrowUtf8:
		dt = arrow.BinaryTypes.String
		err = checkOffsets32(bufs[1], node.off, int64(len(bufs[2])))
	case arrowLargeUtf8:
		dt = arrow.BinaryTypes.LargeString
		err = checkOffsets64(bufs[1], node.off, int64(len(bufs[2])))
	case arrowUtf8View:
		dt = arrow.BinaryTypes.StringView
		err = checkViews(bufs[1], node.off, bufs[2:])
	default:
		err = damage("type %s is not a string", f)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			arr, err = nil, damage("the Arrow reader refused it: %v", p)
		}
	}()
	wrapped := make([]*memory.Buffer, len(bufs))
	for i, b := range bufs {
		if b != nil || i > 0 {
			wrapped[i] = memory.NewBufferBytes(b)
		}
	}
	data := array.NewData(dt, int(node.off), wrapped, nil, int(node.n), 0)
	switch f.typ {
	case arrowUtf8:
		return array.NewStringData(data), nil
	case arrowLargeUtf8:
		return array.NewLargeStringData(data), nil
	}
	return array.NewStringViewData(data), nil
}

// footer checks the tail of a file against the batches that were read.
func (a *arrowReader) footer() error {
	start := a.off
	tail, err := readUpTo(nil, a.src, maxArrowMeta+11)
	a.off += int64(len(tail))
	if err != nil {
		return err
	}
	const end = 4 + 6 // length and magic
	if len(tail) > maxArrowMeta+end {
		return damage("a footer of more than %d bytes", maxArrowMeta)
	}
	if len(tail) < end || !bytes.HasSuffix(tail, []byte(magicArrow[:6])) {
		return io.ErrUnexpectedEOF
	}
	n := int64(binary.LittleEndian.Uint32(tail[len(tail)-end:]))
	if n > int64(len(tail)-end) {
		return damage("a footer of %d bytes in a tail of %d", n, len(tail))
	}
	blocks, err := parseFooter(tail[int64(len(tail)-end)-n : len(tail)-end])
	if err != nil {
		return &arrowDamage{fmt.Errorf("footer: %w", err)}
	}
	if !slices.Equal(blocks, a.blocks) {
		return damage("the footer lists %d record batches that are not the %d before byte %d", len(blocks), len(a.blocks), start)
	}
	return nil
}
