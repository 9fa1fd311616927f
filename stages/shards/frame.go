package shards

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The answers of the Parquet child: a byte for the kind, the length of the body
// as a little-endian 32-bit number, the body. In order: one start, then for each
// row group one group and its values, then one end; or at any point a schema or
// fault frame, after which nothing follows.
const (
	frameStart  = 'S' // row groups u32, rows i64, 1 if the limits hold
	frameGroup  = 'G' // rows i64
	frameValues = 'V' // rows u32, then for each a size i32 and that many bytes
	frameEnd    = 'Z'
	frameSchema = 'C' // detail, newline, fix: a sound file that is not for us
	frameFault  = 'E' // what is wrong with the file
)

// Sizes of values that carry no bytes.
const (
	sizeNull    = -1
	sizeTooLong = -2 // over MaxDoc
)

// frameTarget is the body at which the child sends a values frame.
const frameTarget = 512 << 10

// readFrame reads one frame with a body of at most limit bytes into buf.
func readFrame(r io.Reader, buf []byte, limit int64) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, buf, err
	}
	n := int64(binary.LittleEndian.Uint32(head[1:]))
	if n > limit {
		return 0, buf, fmt.Errorf("the Parquet reader sent a frame of %d bytes, more than %d", n, limit)
	}
	body, err = readUpTo(buf[:0], io.LimitReader(r, n), n)
	if err == nil && int64(len(body)) < n {
		err = io.ErrUnexpectedEOF
	}
	return head[0], body, err
}

// writeFrame writes one frame.
func writeFrame(w io.Writer, kind byte, body []byte) error {
	head := [5]byte{kind}
	binary.LittleEndian.PutUint32(head[1:], uint32(len(body)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

var errShort = errors.New("the Parquet reader sent a frame that is too short or too long")

// cursor reads numbers from a frame; the first fault sticks.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) bytes(n int64) []byte {
	if c.err != nil || n < 0 || n > int64(len(c.b)) {
		c.err = errShort
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) u8() byte {
	if b := c.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) i32() int32 { return int32(c.u32()) }

func (c *cursor) i64() int64 {
	if b := c.bytes(8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// done reports a fault, or bytes left over.
func (c *cursor) done() error {
	if c.err == nil && len(c.b) > 0 {
		return errShort
	}
	return c.err
}
