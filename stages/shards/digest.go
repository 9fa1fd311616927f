package shards

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"time"
)

// Digest is a fingerprint of what the inputs hold, in hexadecimal: SHA-256 over
// the relative name, kind, compression, size and SHA-256 of the content of every
// input that is read, in the order of inputs, since that is the order of
// documents. It reads all bytes once and does not depend on where the files lie
// or on times. Pipes have no digest: their bytes can be had only once.
//
// It notes in inputs the size and modification time of every file: a Source of
// these inputs stops when a file is no longer the one that was fingerprinted, since
// its documents would stand under the name of others. After a Source has read the inputs
// it is the other way round: Digest takes the hashes of plain texts that the Source
// noted, reads the other files, and fails when one is no longer what the Source read.
func Digest(ctx context.Context, inputs []Input) (string, error) {
	total := sha256.New()
	part := func(b []byte) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		total.Write(n[:])
		total.Write(b)
	}
	sums := make([][]byte, len(inputs)) // hash and size of each file
	err := eachInput(ctx, len(inputs), func(at *folders, i int) (err error) {
		sums[i], err = digestFile(ctx, at, &inputs[i])
		return err
	})
	if err != nil {
		return "", err
	}
	for i := range inputs {
		if in := &inputs[i]; in.Skip == "" {
			part([]byte(in.Rel))
			part([]byte(in.Kind))
			part([]byte(in.Compression))
			part(sums[i])
		}
	}
	return hex.EncodeToString(total.Sum(nil)), nil
}

// digestFile returns the SHA-256 of a file and its size as eight bytes, nil for an
// input that is left out.
func digestFile(ctx context.Context, at *folders, in *Input) ([]byte, error) {
	if in.Skip != "" {
		return nil, nil
	}
	if in.held != nil {
		return sizedSum(in.held.sum, in.Size), nil
	}
	if in.Size < 0 {
		return nil, fmt.Errorf("shards: %s: a pipe cannot be fingerprinted; save it to a file first", in.Path)
	}
	f, err := at.open(in)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if at.buf == nil {
		at.buf = make([]byte, 256<<10)
	}
	if err := in.note(f); err != nil {
		return nil, err
	}
	h := sha256.New()
	size, err := io.CopyBuffer(struct{ io.Writer }{h}, &ctxReader{ctx, f}, at.buf)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, fmt.Errorf("shards: %s: %w", in.Path, err)
	}
	if err := in.unchanged(f); err != nil {
		return nil, err
	}
	in.Size = size // which Discover may have seen smaller
	return sizedSum([sha256.Size]byte(h.Sum(nil)), size), nil
}

func sizedSum(sum [sha256.Size]byte, size int64) []byte {
	return binary.LittleEndian.AppendUint64(sum[:], uint64(size))
}

// state tells one content of a file from another, as far as that can be done
// without reading it.
type state struct {
	size int64
	at   int64 // when it was written to last, in nanoseconds since 1970
}

func stateOf(in *Input, f *os.File) (state, error) {
	info, err := f.Stat()
	if err != nil {
		return state{}, fmt.Errorf("shards: %s: %w", in.Path, err)
	}
	return state{info.Size(), info.ModTime().UnixNano()}, nil
}

// note remembers the state of the open file, or compares it with what is remembered.
func (in *Input) note(f *os.File) error {
	if in.seen != nil {
		return in.unchanged(f)
	}
	now, err := stateOf(in, f)
	if err != nil {
		return err
	}
	in.seen = &now
	return nil
}

// unchanged is an error when the open file is not as it was when it was first read.
func (in *Input) unchanged(f *os.File) error {
	now, err := stateOf(in, f)
	if err != nil {
		return err
	}
	was := *in.seen
	if now == was {
		return nil
	}
	detail := fmt.Sprintf("it was written to at %s", time.Unix(0, now.at).Format(time.RFC3339Nano))
	if now.size != was.size {
		detail = fmt.Sprintf("it had %d bytes and has %d", was.size, now.size)
	}
	return &Error{Path: in.Path, Reason: Changed, Detail: detail + " while it was being ingested", Fix: "wait until nothing writes to it, then start again"}
}
