package shards

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"

	"github.com/apache/arrow/go/v15/arrow/memory"
	"github.com/apache/arrow/go/v15/parquet"
	"github.com/apache/arrow/go/v15/parquet/compress"
	"github.com/apache/arrow/go/v15/parquet/file"
	"github.com/apache/arrow/go/v15/parquet/schema"
)

// ChildArg is the first argument of a Parquet child. It looks like a flag so
// that a program which forgets to route it stops with an unknown flag instead
// of doing its own work.
const ChildArg = "--refrain-parquet-child"

// Exit statuses of a child.
const (
	childOK     = 0
	childFault  = 3 // the file is at fault, and a frame says how
	childBroken = 4 // the parent went away
	childUsage  = 64
)

// Bounds of a Parquet footer's contents.
const (
	maxParquetColumns = 4096
	maxParquetGroups  = 65536
)

// IsChild says whether a command line (os.Args) is that of a Parquet child.
func IsChild(args []string) bool { return len(args) > 1 && args[1] == ChildArg }

// ChildMain is the whole work of a Parquet child: it limits itself, decodes the
// text column of the file that is its standard input, and writes frames to
// stdout. args is os.Args. It returns the exit status. A main function, and the
// TestMain of tests that read Parquet, call it before anything else:
//
//	if shards.IsChild(os.Args) {
//		os.Exit(shards.ChildMain(os.Args, os.Stdin, os.Stdout))
//	}
func ChildMain(args []string, stdin *os.File, stdout io.Writer) int {
	if len(args) != 6 || !IsChild(args) {
		fmt.Fprintf(os.Stderr, "%s is for internal use\n", ChildArg)
		return childUsage
	}
	var nums [3]int64
	for i := range nums {
		n, err := strconv.ParseInt(args[3+i], 10, 64)
		if err != nil || n <= 0 {
			fmt.Fprintf(os.Stderr, "bad limit %q\n", args[3+i])
			return childUsage
		}
		nums[i] = n
	}
	debug.SetMemoryLimit(nums[1] / 4 * 3)
	limited, err := limitSelf(nums[1], nums[2])
	if err != nil {
		fmt.Fprintf(os.Stderr, "cannot limit the Parquet reader: %v\n", err)
		return childUsage
	}
	w := bufio.NewWriterSize(stdout, 64<<10)
	d := &decoder{field: args[2], maxDoc: nums[0], out: w, limited: limited}
	status := d.decode(stdin)
	if w.Flush() != nil {
		return childBroken
	}
	return status
}

// decoder is the inside of a child.
type decoder struct {
	field   string
	maxDoc  int64
	out     io.Writer
	limited bool

	frame []byte // values being gathered
	count uint32
}

// fault kinds of a decoder.
type (
	schemaFault struct{ detail, fix string }
	pipeFault   struct{ err error }
)

func (e *schemaFault) Error() string { return e.detail }
func (e *pipeFault) Error() string   { return e.err.Error() }

// send writes a frame; a failure means that the parent is gone.
func (d *decoder) send(kind byte, body []byte) error {
	if err := writeFrame(d.out, kind, body); err != nil {
		return &pipeFault{err}
	}
	return nil
}

// decode sends the whole file and returns the exit status.
func (d *decoder) decode(f *os.File) int {
	err := d.guarded(f)
	switch e := err.(type) {
	case nil:
		return childOK
	case *pipeFault:
		return childBroken
	case *schemaFault:
		err = d.send(frameSchema, []byte(e.detail+"\n"+e.fix))
	default:
		err = d.send(frameFault, []byte(err.Error()))
	}
	if err != nil {
		return childBroken
	}
	return childFault
}

// guarded turns a panic of the library into an error. A panic of a goroutine of
// its own, or a fatal error, ends the process; the parent notices.
func (d *decoder) guarded(f *os.File) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the Parquet library gave up: %v", p)
		}
	}()
	return d.file(f)
}

func (d *decoder) file(f *os.File) error {
	r, err := file.NewParquetReader(f, file.WithReadProps(parquet.NewReaderProperties(memory.NewGoAllocator())))
	if err != nil {
		return err
	}
	groups := r.NumRowGroups()
	if groups > maxParquetGroups {
		return fmt.Errorf("%d row groups, more than %d", groups, maxParquetGroups)
	}
	col, descr, err := d.column(r.MetaData().Schema)
	if err != nil {
		return err
	}
	head := binary.LittleEndian.AppendUint32(nil, uint32(groups))
	head = binary.LittleEndian.AppendUint64(head, uint64(r.NumRows()))
	if d.limited {
		head = append(head, 1)
	} else {
		head = append(head, 0)
	}
	if err := d.send(frameStart, head); err != nil {
		return err
	}
	for g := range groups {
		if err := d.group(r.RowGroup(g), col, descr); err != nil {
			return err
		}
	}
	return d.send(frameEnd, nil)
}

// column finds the text column among the leaves of the schema.
func (d *decoder) column(s *schema.Schema) (int, *schema.Column, error) {
	if s.NumColumns() > maxParquetColumns {
		return 0, nil, fmt.Errorf("%d columns, more than %d", s.NumColumns(), maxParquetColumns)
	}
	var tops []string
	root := s.Root()
	for i := range root.NumFields() {
		tops = append(tops, root.Field(i).Name())
	}
	found := -1
	for i := range s.NumColumns() {
		path := s.Column(i).ColumnPath()
		if len(path) == 0 || path[0] != d.field {
			continue
		}
		if len(path) > 1 {
			return 0, nil, &schemaFault{fmt.Sprintf("column %q is nested (it holds %s); a string column is needed", d.field, path.String()), "flatten it, or set data.field to another column"}
		}
		if found >= 0 {
			return 0, nil, &schemaFault{fmt.Sprintf("two columns are called %q", d.field), "rename one"}
		}
		found = i
	}
	if found < 0 {
		return 0, nil, &schemaFault{fmt.Sprintf("no column %q among %q; %s", d.field, shortList(tops), hint(nearest(d.field, tops))), "set data.field to the text column"}
	}
	c := s.Column(found)
	_, isString := c.LogicalType().(schema.StringLogicalType)
	if c.PhysicalType() != parquet.Types.ByteArray || !isString || c.MaxRepetitionLevel() != 0 || c.MaxDefinitionLevel() > 1 {
		return 0, nil, &schemaFault{fmt.Sprintf("column %q is %s (%s), not a string", d.field, c.PhysicalType(), c.LogicalType()), "cast it, or set data.field to another column"}
	}
	return found, c, nil
}

// group sends one row group.
func (d *decoder) group(rg *file.RowGroupReader, col int, descr *schema.Column) error {
	chunk, err := rg.MetaData().ColumnChunk(col)
	if err != nil {
		return err
	}
	switch c := chunk.Compression(); c {
	case compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Gzip, compress.Codecs.Brotli, compress.Codecs.Zstd:
	default:
		return &schemaFault{fmt.Sprintf("column %q is compressed with %s, which is not read", d.field, c), "write the file with zstd, snappy, gzip or no compression"}
	}
	if err := d.send(frameGroup, binary.LittleEndian.AppendUint64(nil, uint64(rg.NumRows()))); err != nil {
		return err
	}
	column, err := rg.Column(col)
	if err != nil {
		return err
	}
	r, ok := column.(*file.ByteArrayColumnChunkReader)
	if !ok {
		return fmt.Errorf("column %q is read as %T", d.field, column)
	}
	const batch = 256
	vals := make([]parquet.ByteArray, batch)
	defs := make([]int16, batch)
	optional := descr.MaxDefinitionLevel() > 0
	for left := rg.NumRows(); left > 0; {
		n, _, err := r.ReadBatch(min(left, batch), vals, defs, nil)
		if err != nil {
			return err
		}
		if n <= 0 {
			if err := r.Err(); err != nil {
				return err
			}
			return fmt.Errorf("the row group ends %d rows before its count", left)
		}
		next := 0
		for i := range n {
			if optional && defs[i] == 0 {
				err = d.value(nil, true)
			} else {
				err = d.value(vals[next], false)
				next++
			}
			if err != nil {
				return err
			}
		}
		// The values lie in the page, which the next batch may replace.
		left -= n
	}
	return d.flush()
}

// value appends one row to the frame. The bytes are copied.
func (d *decoder) value(b []byte, null bool) error {
	if len(d.frame) == 0 {
		d.frame = append(d.frame, 0, 0, 0, 0)
	}
	size := int64(len(b))
	switch {
	case null:
		size = sizeNull
	case size > d.maxDoc:
		size, b = sizeTooLong, nil
	}
	d.frame = binary.LittleEndian.AppendUint32(d.frame, uint32(int32(size)))
	d.frame = append(d.frame, b...)
	d.count++
	if len(d.frame) >= frameTarget {
		return d.flush()
	}
	return nil
}

func (d *decoder) flush() error {
	if d.count == 0 {
		return nil
	}
	binary.LittleEndian.PutUint32(d.frame, d.count)
	err := d.send(frameValues, d.frame)
	d.frame, d.count = d.frame[:0], 0
	return err
}
