package shards

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
)

// Digest is a fingerprint of what the inputs hold, in hexadecimal: SHA-256 over
// the relative name, kind, compression, size and SHA-256 of the content of every
// input that is read, in the order of inputs, since that is the order of
// documents. It reads all bytes once and does not depend on where the files lie
// or on times. Pipes have no digest: their bytes can be had only once.
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
	h := sha256.New()
	size, err := io.CopyBuffer(struct{ io.Writer }{h}, &ctxReader{ctx, f}, at.buf)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, fmt.Errorf("shards: %s: %w", in.Path, err)
	}
	return binary.LittleEndian.AppendUint64(h.Sum(nil), uint64(size)), nil
}
