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

// held is what is known of a text file that was read whole when it was found.
type held struct {
	text []byte // the bytes of the file, which nobody writes to; nil when they are to be read again
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

const (
	// holdHead is how much of a file that may be held is read at once: all of most.
	holdHead = 64 << 10
	// holdMost is the largest file whose text is kept. To read a larger one again takes
	// less time than the fresh memory that would keep it.
	holdMost = 16 << 10
	// knowMost is the largest file that is read when it is found: the memory for it stays
	// with each goroutine.
	knowMost = 4 << 20
)

// hold reads the rest of a text file behind start, its first bytes, and notes the hash,
// so that nobody need take it again. The text of a small file stays in memory while there
// is room for it. Such a file counts as it was then, whatever is written to it later; a
// larger one must stay the same.
func (in *Input) hold(at *folders, f lookedAt, start []byte, o Options) error {
	n := in.Size
	// An empty file may be one whose size is not known beforehand. One over MaxDoc is
	// not taken either, since reading it ends in a fault.
	if n < int64(max(len(start), 1)) || n > min(o.MaxDoc, knowMost) || at.room == nil {
		return nil
	}
	before, err := f.state()
	if err != nil {
		return fmt.Errorf("shards: %s: %w", in.Path, err)
	}
	text := start
	if n > int64(len(start)) {
		if at.whole == nil { // all at once: what is not written to is no memory yet
			at.whole = make([]byte, knowMost)
		}
		text = at.whole[:n]
		from := copy(text, start)
		more, err := io.ReadFull(f, text[from:])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("shards: %s: %w; check that the file is readable", in.Path, err)
		}
		text = text[:from+more] // shorter when the file was cut since its size was asked for
	}
	h := &held{sum: sha256.Sum256(text), utf8: utf8.Valid(text)}
	if n <= holdMost && at.room.take(n) {
		h.text = bytes.Clone(text)
	} else {
		after, err := f.state()
		if err != nil {
			return fmt.Errorf("shards: %s: %w", in.Path, err)
		}
		if after != before || after.size != int64(len(text)) {
			return nil // it is being written to; Digest will tell
		}
		in.digested = &after
	}
	in.Size, in.held = int64(len(text)), h
	return nil
}
