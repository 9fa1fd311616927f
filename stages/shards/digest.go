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
	var at folders
	defer at.close()
	buf := make([]byte, 256<<10)
	for i := range inputs {
		in := &inputs[i]
		if in.Skip != "" {
			continue
		}
		if in.Size < 0 {
			return "", fmt.Errorf("shards: %s: a pipe cannot be fingerprinted; save it to a file first", in.Path)
		}
		f, err := at.open(in)
		if err != nil {
			return "", err
		}
		h := sha256.New()
		size, err := io.CopyBuffer(struct{ io.Writer }{h}, &ctxReader{ctx, f}, buf)
		f.Close()
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return "", cause
			}
			return "", fmt.Errorf("shards: %s: %w", in.Path, err)
		}
		part([]byte(in.Rel))
		part([]byte(in.Kind))
		part([]byte(in.Compression))
		part(binary.LittleEndian.AppendUint64(h.Sum(nil), uint64(size)))
	}
	return hex.EncodeToString(total.Sum(nil)), nil
}
