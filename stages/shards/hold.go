package shards

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"unicode/utf8"
)

// held is the content of a text file that was read whole when it was found.
type held struct {
	text []byte // the bytes of the file; nobody writes to them
	sum  [sha256.Size]byte
	utf8 bool // it is valid
}

// room is how many bytes may still be held, by all goroutines together. A nil one is
// none.
type room struct{ left atomic.Int64 }

// take reserves n bytes, or none.
func (r *room) take(n int64) bool {
	if r == nil || n > r.left.Load() {
		return false
	}
	if r.left.Add(-n) < 0 {
		r.left.Add(n)
		return false
	}
	return true
}

// holdHead is how much of a file that may be held is read at once: all of most.
const holdHead = 64 << 10

// hold reads the rest of a text file behind start, its first bytes, when there is room
// for it. The content is what the file held at that time: whoever fingerprints and
// reads the input later sees the same bytes, whatever is written to the file meanwhile.
func (in *Input) hold(at *folders, f io.Reader, start []byte, o Options) error {
	n := in.Size
	// An empty file may be one whose size is not known beforehand. One over MaxDoc is
	// not kept either, since reading it ends in a fault.
	if n < int64(max(len(start), 1)) || n > o.MaxDoc || !at.room.take(n) {
		return nil
	}
	text := start
	if n > int64(len(start)) {
		text = make([]byte, n)
		from := copy(text, start)
		more, err := io.ReadFull(f, text[from:])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("shards: %s: %w; check that the file is readable", in.Path, err)
		}
		text = text[:from+more] // shorter when the file was cut since its size was asked for
	} else {
		text = bytes.Clone(start)
	}
	in.Size = int64(len(text))
	in.held = &held{text, sha256.Sum256(text), utf8.Valid(text)}
	return nil
}
