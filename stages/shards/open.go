package shards

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Decompression limits. A window above maxWindow is refused before it is
// allocated; output may be any size up to freeOutput and must stay below
// maxRatio times the compressed bytes beyond that.
const (
	maxWindow  = 32 << 20
	freeOutput = 64 << 20
	maxRatio   = 200
	maxOutput  = 64 << 30
)

// Magic numbers at the start of a file.
const (
	magicGzip    = "\x1f\x8b"
	magicZstd    = "\x28\xb5\x2f\xfd"
	magicParquet = "PAR1"
	magicArrow   = "ARROW1\x00\x00"
	bom          = "\xef\xbb\xbf"
)

// foreign are formats met in the wild that are not read, by magic number.
var foreign = []struct{ magic, name, fix string }{
	{"PK\x03\x04", "a zip archive", "unpack it first"},
	{"BZh", "bzip2", "decompress it or recompress with zstd"},
	{"\xfd7zXZ\x00", "xz", "decompress it or recompress with zstd"},
	{"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it first"},
	{"\x04\x22\x4d\x18", "an LZ4 file", "decompress it or recompress with zstd"},
	{"PARE", "an encrypted Parquet file", "decrypt it first"},
	{"Obj\x01", "an Avro file", "convert it to Parquet"},
	{"ORC", "an ORC file", "convert it to Parquet"},
	{"FEA1", "a Feather version 1 file", "rewrite it as Arrow IPC"},
	{"\xff\xfe", "UTF-16 text", "convert it with iconv -f UTF-16 -t UTF-8"},
	{"\xfe\xff", "UTF-16 text", "convert it with iconv -f UTF-16 -t UTF-8"},
	{"%PDF", "a PDF document", "extract its text first"},
}

// declared is what a file name says about the file. The kind is empty for a
// name that says nothing.
func declared(name string) (Kind, string) {
	base := strings.ToLower(path.Base(filepath.ToSlash(name)))
	comp := compNone
	switch path.Ext(base) {
	case ".gz", ".gzip":
		comp = compGzip
	case ".zst", ".zstd":
		comp = compZstd
	}
	if comp != compNone {
		base = strings.TrimSuffix(base, path.Ext(base))
	}
	switch path.Ext(base) {
	case ".jsonl", ".ndjson":
		return KindJSONL, comp
	case ".parquet", ".pq":
		return KindParquet, comp
	case ".arrow", ".feather", ".ipc":
		return KindArrowFile, comp // or a stream: the magic number decides
	case ".arrows":
		return KindArrowStream, comp
	}
	return kindUnknown, comp
}

// sniffComp and sniffKind are what the first bytes say.
func sniffComp(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte(magicGzip)):
		return compGzip
	case bytes.HasPrefix(head, []byte(magicZstd)), isSkippable(head):
		return compZstd
	}
	return compNone
}

// isSkippable recognises a zstd skippable frame (magic 0x184D2A50 to 5F).
func isSkippable(head []byte) bool {
	return len(head) >= 4 && head[0]&0xf0 == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18
}

func sniffKind(head []byte) Kind {
	switch {
	case bytes.HasPrefix(head, []byte(magicParquet)):
		return KindParquet
	case bytes.HasPrefix(head, []byte(magicArrow)):
		return KindArrowFile
	case len(head) >= 8 && bytes.HasPrefix(head, []byte("\xff\xff\xff\xff")) && head[7] == 0:
		return KindArrowStream
	}
	return kindUnknown
}

// classify decides kind and compression of a regular file from its name and
// first bytes. Names that promise a format must keep it; other files met in a
// walk that are not text are marked with Skip.
func (in *Input) classify(at *folders, o Options) error {
	f, size, err := at.look(in)
	if err != nil {
		return err
	}
	defer f.Close()
	in.Size = size
	if at.head == nil {
		at.head = make([]byte, holdMost)
	}
	// A small file that may be held is read whole, with one call where it keeps its size.
	start := at.head[:sniffBytes]
	if at.room != nil && sniffBytes < size && size <= holdMost {
		start = at.head[:size]
	}
	if 0 < size && size <= int64(len(start)) {
		start = start[:size]
	}
	n, err := io.ReadFull(f, start)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return fmt.Errorf("shards: %s: %w; check that the file is readable", in.Path, err)
	}
	start = start[:n]
	raw := start[:min(n, sniffBytes)]
	wantKind, wantComp := declared(in.Path)
	if o.Kind != "" {
		wantKind = o.Kind
	}
	in.Compression = sniffComp(raw)
	if in.Compression == compNone {
		// An empty or foreign file under a compressed name keeps the compression
		// it claims, so that reading it reports the damage.
		in.Compression = wantComp
	}
	head, full := raw, len(raw) == sniffBytes
	var headErr error
	if in.Compression != compNone {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("shards: %w", err)
		}
		head, headErr = decodedHead(f, in.Compression)
		full = len(head) == sniffBytes
	}
	got := sniffKind(head)
	in.Kind = wantKind
	switch {
	case wantKind == KindArrowFile && got == KindArrowStream && o.Kind == "":
		in.Kind = KindArrowStream
	case wantKind == kindUnknown && got != kindUnknown:
		in.Kind = got
	case wantKind == kindUnknown:
		in.Kind = KindText
	}
	if in.Kind != KindText {
		return nil
	}
	if err := in.classifyText(o, head, full, headErr); err != nil || in.Skip != "" || in.Compression != compNone {
		return err
	}
	in.hold(at, start, o)
	return nil
}

// classifyText applies the rule for text: no NUL byte in the head, and UTF-8
// unless a policy for invalid UTF-8 was chosen. A named file that breaks it is
// an error here, a walked one is left out.
func (in *Input) classifyText(o Options, head []byte, full bool, headErr error) error {
	if o.Kind == KindText {
		return nil
	}
	var why Reason
	var detail string
	cut := errors.Is(headErr, io.ErrUnexpectedEOF)
	if i := bytes.IndexByte(head, 0); i >= 0 {
		why, detail = BinaryFile, fmt.Sprintf("NUL byte at offset %d", i)
	} else if headErr != nil && !cut {
		why, detail = BinaryFile, fmt.Sprintf("cannot be decompressed: %v", headErr)
	} else if at := invalidAt(head, full || cut); at >= 0 && o.InvalidUTF8 == "" && in.walked {
		why = NotUTF8File
	}
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.magic)) && (why != "" || invalidAt(head, full) >= 0) {
			why, detail = BinaryFile, fmt.Sprintf("this is %s, which is not read; %s", f.name, f.fix)
		}
	}
	switch {
	case why == "":
		return nil
	case in.walked:
		in.Skip = why
		return nil
	}
	return &Error{Path: in.Path, Reason: why, Detail: detail, Fix: "name text, JSONL, Arrow or Parquet files, or set data.kind: text to read it as text all the same"}
}

// invalidAt is the offset of the first byte that is not UTF-8, or -1. With cut
// set a rune that is merely incomplete at the end is no fault.
func invalidAt(b []byte, cut bool) int {
	if utf8.Valid(b) { // many times as fast as looking for the place
		return -1
	}
	for i := 0; i < len(b); {
		if b[i] < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			if cut && !utf8.FullRune(b[i:]) {
				return -1
			}
			return i
		}
		i += n
	}
	return -1
}

// decodedHead returns up to sniffBytes of decompressed data and the error that
// came before them, io.EOF excluded.
func decodedHead(r io.Reader, comp string) ([]byte, error) {
	d, err := decompress(r, comp)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	buf := make([]byte, sniffBytes)
	n := 0
	for n < len(buf) {
		m, err := d.Read(buf[n:])
		n += m
		if err == io.EOF {
			return buf[:n], nil
		}
		if err != nil {
			return buf[:n], err
		}
	}
	return buf, nil
}

// decompress returns the plain bytes of r. Its Close does not close r. Errors
// of Read are io.EOF, io.ErrUnexpectedEOF for input that ends too early,
// errTooLarge over the limits, or damage.
func decompress(r io.Reader, comp string) (io.ReadCloser, error) {
	if comp == compNone {
		return io.NopCloser(r), nil
	}
	in := &countReader{r: r}
	b := bufio.NewReaderSize(in, 64<<10)
	l := &limitReader{in: in}
	switch comp {
	case compGzip:
		z, err := gzip.NewReader(b)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // a gzip file is never empty
		}
		if err != nil {
			return nil, err
		}
		l.r, l.close = z, func() { z.Close() }
	case compZstd:
		if _, err := b.Peek(1); err == io.EOF {
			return nil, io.ErrUnexpectedEOF // a zstd file is never empty either
		}
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		l.r, l.close = z, z.Close
	default:
		return nil, fmt.Errorf("unknown compression %q", comp)
	}
	return l, nil
}

type countReader struct {
	r io.Reader
	n int64
}

func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// limitReader holds decompressed output to the limits above.
type limitReader struct {
	r     io.Reader
	in    *countReader
	out   int64
	close func()
}

func (l *limitReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	l.out += int64(n)
	if l.out > maxOutput || (l.out > freeOutput && l.out > maxRatio*l.in.n) {
		return 0, fmt.Errorf("%w: %d bytes out of %d (%d:1 and %d GiB are allowed)", errTooLarge, l.out, l.in.n, maxRatio, maxOutput>>30)
	}
	return n, err
}

func (l *limitReader) Close() error { l.close(); return nil }
