package ckpt

import (
	"encoding/binary"
	"fmt"
	"math"
)

// checkFinite fails with ErrNonFinite when a tensor of floats holds NaN or an
// infinity, naming the first place. A number is finite when its exponent bits are
// not all ones.
func checkFinite(t *Tensor) error {
	at := -1
	switch t.DType {
	case "F32":
		at = firstNonFinite32(t.Data)
	case "F64":
		for i := 0; i+8 <= len(t.Data) && at < 0; i += 8 {
			if v := math.Float64frombits(binary.LittleEndian.Uint64(t.Data[i:])); v-v != 0 {
				at = i / 8
			}
		}
	case "BF16":
		at = firstNonFinite16(t.Data, 0x7f80)
	case "F16":
		at = firstNonFinite16(t.Data, 0x7c00)
	}
	if at < 0 {
		return nil
	}
	return fmt.Errorf("%w: %s element %d of shape %v", ErrNonFinite, t.Name, at, t.Shape)
}

// firstNonFinite32 returns the index of the first NaN or infinity, or -1. It looks
// at two numbers at a time: adding 1 to the exponent field of a number without its
// sign carries into the sign bit exactly when the field is all ones.
func firstNonFinite32(data []byte) int {
	const (
		magnitude = 0x7fffffff_7fffffff
		one       = 0x00800000_00800000
		sign      = 0x80000000_80000000
	)
	i := 0
	for ; i+8 <= len(data); i += 8 {
		if (binary.LittleEndian.Uint64(data[i:])&magnitude+one)&sign != 0 {
			break
		}
	}
	for ; i+4 <= len(data); i += 4 {
		if binary.LittleEndian.Uint32(data[i:])&0x7f800000 == 0x7f800000 {
			return i / 4
		}
	}
	return -1
}

func firstNonFinite16(data []byte, exponent uint16) int {
	for i := 0; i+2 <= len(data); i += 2 {
		if binary.LittleEndian.Uint16(data[i:])&exponent == exponent {
			return i / 2
		}
	}
	return -1
}
