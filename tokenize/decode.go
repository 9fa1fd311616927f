package tokenize

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrUnknownID is wrapped by the error of Decode for an id without a token.
var ErrUnknownID = errors.New("id is not in the vocabulary")

// Decode appends the bytes of ids to dst; special and added tokens give their
// content. The result need not be UTF-8: the ids may begin or end inside a
// character. On an unknown id it returns dst as it was and an error that wraps
// ErrUnknownID and names the position.
func (t *Tokenizer) Decode(dst []byte, ids []uint32) ([]byte, error) {
	out := dst
	for i, id := range ids {
		if int64(id) >= int64(t.VocabSize()) || t.offsets[id] == t.offsets[id+1] {
			return dst, fmt.Errorf("tokenize: position %d: id %d: %w (of size %d)", i, id, ErrUnknownID, t.VocabSize())
		}
		out = append(out, t.bytesOf(id)...)
	}
	return out, nil
}

// Decoder decodes a stream of ids and holds back the bytes of an incomplete
// character until the ids that complete it arrive. It is not safe for concurrent use.
type Decoder struct {
	t    *Tokenizer
	held []byte // a proper prefix of the encoding of some character
}

// NewDecoder returns a decoder at the start of a stream.
func (t *Tokenizer) NewDecoder() *Decoder { return &Decoder{t: t} }

// Append appends to dst what can be said after one more id: everything but a
// trailing prefix of a character. Bytes that cannot become UTF-8 are passed on as
// they are. On an unknown id dst and the state are unchanged.
func (d *Decoder) Append(dst []byte, id uint32) ([]byte, error) {
	b, ok := d.t.TokenBytes(id)
	if !ok {
		return dst, fmt.Errorf("tokenize: id %d: %w (of size %d)", id, ErrUnknownID, d.t.VocabSize())
	}
	start := len(dst)
	dst = append(dst, d.held...)
	dst = append(dst, b...)
	n := len(dst) - incompleteTail(dst[start:])
	d.held = append(d.held[:0], dst[n:]...)
	return dst[:n], nil
}

// Flush appends what is held back at the end of the stream, which is not UTF-8,
// and begins a new stream.
func (d *Decoder) Flush(dst []byte) []byte {
	dst = append(dst, d.held...)
	d.held = d.held[:0]
	return dst
}

// incompleteTail is the length of the suffix of b that more bytes could complete
// to a character.
func incompleteTail(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
