package shards

import (
	"bytes"
	"crypto/sha256"
	"sync/atomic"
	"unicode/utf8"
)

// held is what is known of a text file that was read whole.
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

// holdMost is the largest file whose text is kept. To open and read a larger one again
// takes less time than the fresh memory that would keep it.
const holdMost = 16 << 10

// hold keeps the text of a small file, all of which is in start, while there is room for
// it. Such a file counts as it was then, whatever is written to it later.
func (in *Input) hold(at *folders, start []byte, o Options) {
	// An empty file may be one whose size is not known beforehand. One over MaxDoc is
	// not kept either, since reading it ends in a fault. One that grew or shrank since
	// its size was asked for is read when its turn comes.
	if n := int64(len(start)); n == 0 || n != in.Size || n > min(o.MaxDoc, holdMost) || !at.room.take(n) {
		return
	}
	in.held = &held{bytes.Clone(start), sha256.Sum256(start), utf8.Valid(start)}
}
