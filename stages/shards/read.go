package shards

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"
)

// input reads one input to its end.
func (r *run) input() error {
	if r.in.Size < 0 {
		return r.pipe()
	}
	if r.in.held != nil && r.in.held.text != nil {
		return r.take(place{}, 0, trimBOM(r.in.held.text), false, r.in.held)
	}
	f, err := r.at.open(r.in)
	if err != nil {
		return err
	}
	defer f.Close()
	first := r.in.seen == nil
	if err := r.in.note(f); err != nil {
		return err
	}
	err = r.file(f)
	if cause := context.Cause(r.ctx); cause != nil {
		return cause
	}
	// A change on the way explains whatever else is wrong with the file. Nothing was
	// promised of a file that is read for the first time.
	if !first {
		if changed := r.in.unchanged(f); changed != nil {
			return changed
		}
	}
	return err
}

// file reads an open file to its end.
func (r *run) file(f *os.File) error {
	if r.in.Kind == KindParquet && r.in.Compression == compNone {
		return r.parquet(f)
	}
	plain, err := decompress(&ctxReader{r.ctx, f}, r.in.Compression)
	if err != nil {
		return r.brokenStream(place{}, err)
	}
	defer plain.Close()
	return r.kind(r.in.Kind, plain)
}

// kind hands the plain bytes of the input to its reader.
func (r *run) kind(k Kind, plain io.Reader) error {
	switch k {
	case KindText:
		return r.text(plain)
	case KindJSONL:
		return r.jsonl(plain)
	case KindArrowFile, KindArrowStream:
		return r.arrow(plain, k)
	case KindParquet:
		return r.spooled(plain)
	}
	return fmt.Errorf("shards: %s: no reader for kind %q", r.in.Path, k)
}

// text reads a whole file as one document.
func (r *run) text(src io.Reader) error {
	if n := r.in.Size; 0 < n && n <= r.o.MaxDoc && r.in.Compression == compNone {
		// In one piece into memory of the block, which most often is all.
		buf, err := readUpTo(r.space(int(n)+1), src, n+1)
		if err != nil {
			return r.brokenStream(place{}, err)
		}
		if int64(len(buf)) == n {
			return r.take(place{}, 0, trimBOM(r.carved(buf)), false, r.in.hashed(buf))
		}
		src = io.MultiReader(bytes.NewReader(bytes.Clone(buf)), src) // it is not as large as it was
	}
	buf, err := readUpTo(r.scratch[:0], src, r.o.MaxDoc+int64(len(bom))+1)
	r.scratch = buf
	if err != nil {
		return r.brokenStream(place{}, err)
	}
	return r.document(place{}, 0, trimBOM(buf))
}

// hashed is what is known of a file that holds text. The hash is taken once: a file that
// was read before is the same.
func (in *Input) hashed(text []byte) *held {
	if in.held == nil {
		in.held = &held{sum: sha256.Sum256(text), utf8: utf8.Valid(text)}
	}
	return &held{text, in.held.sum, in.held.utf8}
}

// readUpTo appends what src holds to dst, at most limit bytes.
func readUpTo(dst []byte, src io.Reader, limit int64) ([]byte, error) {
	for int64(len(dst)) < limit {
		if len(dst) == cap(dst) {
			grown := make([]byte, len(dst), max(64<<10, 2*cap(dst)))
			copy(grown, dst)
			dst = grown
		}
		room := dst[len(dst):min(int64(cap(dst)), limit)]
		n, err := src.Read(room)
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// pipe reads standard input or a named pipe: its kind shows in its first bytes,
// a JSON object means JSON lines, anything else is text.
func (r *run) pipe() error {
	var src io.Reader = r.s.stdin
	if !r.in.stdin || src == nil {
		f, err := r.at.open(r.in)
		if err != nil {
			return err
		}
		if !r.in.stdin {
			defer f.Close()
		}
		src = f
	}
	raw := bufio.NewReaderSize(&ctxReader{r.ctx, src}, 64<<10)
	head, err := raw.Peek(sniffBytes)
	if err != nil && err != io.EOF {
		return r.brokenStream(place{}, err)
	}
	in := *r.in // the compression found is part of messages; the caller's Input stays as it is
	in.Compression = sniffComp(head)
	r.in = &in
	plain, err := decompress(raw, in.Compression)
	if err != nil {
		return r.brokenStream(place{}, err)
	}
	defer plain.Close()
	b := bufio.NewReaderSize(plain, 64<<10)
	head, err = b.Peek(sniffBytes)
	if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
		return r.brokenStream(place{}, err)
	}
	k := r.o.Kind
	if k == "" {
		k = sniffKind(head)
	}
	if k == kindUnknown {
		k = KindText
		if bytes.HasPrefix(bytes.TrimLeft(trimBOM(head), " \t\r\n"), []byte("{")) {
			k = KindJSONL
		} else if i := bytes.IndexByte(head, 0); i >= 0 {
			return &Error{Path: in.Path, Reason: BinaryFile, Detail: fmt.Sprintf("NUL byte at offset %d", i), Fix: "pipe text, JSONL, Arrow or Parquet, or set data.kind: text"}
		}
	}
	return r.kind(k, b)
}

// maxSpool is the largest Parquet file that may come out of a pipe or a
// compressed file: its reader needs to seek, so it is written to disk first.
const maxSpool = 16 << 30

// spooled copies a stream that must be seekable into a temporary file, which is
// removed before it returns.
func (r *run) spooled(plain io.Reader) error {
	f, err := os.CreateTemp("", "refrain-shard-*")
	if err != nil {
		return fmt.Errorf("shards: %s: a Parquet file that is compressed or piped needs room for a temporary copy: %w", r.in.Path, err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	n, err := io.Copy(f, io.LimitReader(plain, maxSpool+1))
	var pe *os.PathError
	switch {
	case errors.As(err, &pe) && pe.Path == f.Name():
		return fmt.Errorf("shards: %s: writing a temporary copy: %w; free some space or decompress the file by hand", r.in.Path, err)
	case err != nil:
		return r.brokenStream(place{byte: n, hasByte: true}, err)
	case n > maxSpool:
		return &Error{Path: r.in.Path, Reason: TooLong, Detail: fmt.Sprintf("over %d bytes once decompressed", int64(maxSpool)), Fix: "decompress it by hand"}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("shards: %w", err)
	}
	return r.parquet(f)
}

// ctxReader ends a long read soon after its context does.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
