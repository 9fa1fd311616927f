package train

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
)

// Chain is a running hash over steps: any difference between two runs in the
// data, the loss or the norm of any step shows in every later value.
type Chain [16]byte

func (c Chain) String() string { return hex.EncodeToString(c[:]) }

// ParseChain reads the form written by String.
func ParseChain(s string) (Chain, error) {
	var c Chain
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(c) {
		return c, fmt.Errorf("chain %q is not %d hexadecimal bytes", s, len(c))
	}
	copy(c[:], b)
	return c, nil
}

// Next returns the value after r: SHA-256 of the last value, the step, the
// first window, the rows, the CRC of the batch, and the bits of loss and norm.
func (c Chain) Next(r *StepResult) Chain {
	var b [16 + 8*6]byte
	copy(b[:], c[:])
	for i, v := range [...]uint64{
		uint64(r.Step), uint64(r.Cursor.Window), uint64(r.Rows), uint64(r.CRC),
		math.Float64bits(r.Loss), math.Float64bits(r.Norm),
	} {
		binary.LittleEndian.PutUint64(b[16+8*i:], v)
	}
	h := sha256.Sum256(b[:])
	copy(c[:], h[:])
	return c
}

// Save is a snapshot to be written, with the chain as of its step.
type Save struct {
	Snapshot *Snapshot
	Window   int64 // first window not yet consumed
	Chain    Chain
	Last     bool // the run ends with it: done or stopped
}

// Drop releases the snapshot of a save that will not be written.
func (s *Save) Drop() { s.Snapshot.Release() }
