package shards

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// held is the content of a text file that was read whole when it was found.
type held struct {
	text []byte // the bytes of the file; nobody writes to them
	sum  [sha256.Size]byte
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

// holdArena is the size of the blocks from which small files get their memory.
const holdArena = 1 << 20

// hold reads the rest of a text file behind head, its first bytes, when there is room
// for it. The content is what the file held at that time: whoever fingerprints and
// reads the input later sees the same bytes, whatever is written to the file meanwhile.
func (in *Input) hold(at *folders, f io.Reader, head []byte, o Options) error {
	n := in.Size
	// An empty file may be one whose size is not known beforehand. One over MaxDoc is
	// not kept either, since reading it ends in a fault.
	if n < int64(max(len(head), 1)) || n > o.MaxDoc || !at.room.take(n) {
		return nil
	}
	var text []byte
	switch {
	case n > holdArena/4:
		text = make([]byte, n)
	default:
		if int64(len(at.arena)) < n {
			at.arena = make([]byte, holdArena)
		}
		text, at.arena = at.arena[:n:n], at.arena[n:]
	}
	from := copy(text, head)
	more, err := io.ReadFull(f, text[from:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("shards: %s: %w; check that the file is readable", in.Path, err)
	}
	text = text[:from+more] // shorter when the file was cut since its size was asked for
	in.Size = int64(len(text))
	in.held = &held{text, sha256.Sum256(text)}
	return nil
}
