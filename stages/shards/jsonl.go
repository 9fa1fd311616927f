package shards

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// lineReader cuts a stream into lines of at most max bytes. Its buffer grows
// with the lines it meets, never beyond max.
type lineReader struct {
	br   *bufio.Reader
	max  int64
	buf  []byte
	off  int64 // bytes consumed
	line int64 // lines returned, so the number of the last one
}

// rawLine is one line without its end. The bytes are valid until the next call.
type rawLine struct {
	text  []byte
	num   int64 // from 1
	start int64 // byte offset in the decompressed stream
	ended bool  // a newline followed
	long  bool  // over max; text is then its first part
}

// next returns the next line. At the end of input it returns io.EOF; any other
// error comes with the part of the line read before it. With drain set, the rest
// of an overlong line is read and dropped.
func (l *lineReader) next(drain bool) (rawLine, error) {
	out := rawLine{num: l.line + 1, start: l.off}
	l.buf = l.buf[:0]
	for {
		part, err := l.br.ReadSlice('\n')
		l.off += int64(len(part))
		if err == nil {
			part = part[:len(part)-1]
			out.ended = true
		}
		if !out.long {
			room := l.max + 1 - int64(len(l.buf)) // one more for the CR of CRLF
			if int64(len(part)) > room {
				out.long = true
				part = part[:room]
			}
			l.buf = append(l.buf, part...)
		}
		if out.long && !drain {
			err = nil
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err == io.EOF && (len(l.buf) > 0 || out.long) {
			err = nil
		}
		if err == nil {
			l.line++
		}
		out.text = l.buf
		if n := len(out.text); out.ended && n > 0 && out.text[n-1] == '\r' {
			out.text = out.text[:n-1]
		}
		if int64(len(out.text)) > l.max {
			out.long = true
		}
		return out, err
	}
}

// jsonl reads JSON lines: one document a line.
func (r *run) jsonl(src io.Reader) error {
	lines := &lineReader{br: bufio.NewReaderSize(src, 256<<10), max: r.o.MaxLine}
	doc := &jsonReader{field: r.o.Field, mend: r.o.InvalidUTF8 == Replace}
	met := false
	for {
		if err := context.Cause(r.ctx); err != nil {
			return err
		}
		l, err := lines.next(r.o.TooLong == Skip)
		if err == io.EOF {
			if !met {
				return r.reject(place{}, Empty, r.o.Empty, "the file holds no lines", nil, "remove it or set data.empty: skip")
			}
			return nil
		}
		at := place{line: l.num, byte: l.start, hasByte: true}
		if err != nil {
			return r.brokenStream(at, err)
		}
		met = true
		if err := r.jsonLine(doc, l, at); err != nil {
			return err
		}
	}
}

func (r *run) jsonLine(doc *jsonReader, l rawLine, at place) error {
	if l.long {
		return r.reject(at, TooLong, r.o.TooLong, fmt.Sprintf("the line is longer than %d bytes", r.o.MaxLine), nil,
			"raise data.max_line or set data.too_long: skip")
	}
	text := l.text
	if l.num == 1 {
		text = bytes.TrimPrefix(text, []byte(bom))
	}
	if len(bytes.TrimLeft(text, " \t\r")) == 0 {
		r.rep.BlankLines++
		return nil
	}
	mended := false
	if !utf8.Valid(text) {
		bad := invalidAt(text, false)
		if r.o.InvalidUTF8 != Replace {
			if !l.ended && invalidAt(text, true) < 0 {
				return r.reject(at, Truncated, r.o.Truncated, "the input ends inside a character", nil, fixTruncated)
			}
			return r.reject(at, InvalidUTF8, r.o.InvalidUTF8, fmt.Sprintf("byte 0x%02x at byte %d of the line is not UTF-8", text[bad], bad), nil, fixUTF8)
		}
		text = toValid(nil, text)
		mended = true
	}
	value, isNull, err := doc.find(text)
	if err != nil {
		var je *jsonError
		if !errors.As(err, &je) {
			return err
		}
		switch {
		case je.class == faultEnd && !l.ended:
			return r.reject(at, Truncated, r.o.Truncated, "the last line has no end and is not a whole JSON value", nil, fixTruncated)
		case je.class == faultUnicode:
			return r.reject(at, InvalidUTF8, r.o.InvalidUTF8, je.Error(), nil, fixUTF8)
		}
		return r.reject(at, BadLine, r.o.BadLine, je.Error(), nil, "mend the line or set data.bad_line: skip")
	}
	if isNull {
		return r.reject(at, Empty, r.o.Empty, fmt.Sprintf("field %q is null", r.o.Field), nil, fixEmpty)
	}
	return r.take(at, l.num, value, mended || doc.mended, nil)
}
