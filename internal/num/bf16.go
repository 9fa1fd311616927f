package num

import "math"

// BF16 is a bfloat16: the upper half of an IEEE binary32.
type BF16 uint16

// ToBF16 rounds x to the nearest bfloat16, ties to even. Values too large for
// bfloat16 become infinities; a NaN stays a NaN, with its quiet bit set and its
// sign and upper payload bits kept.
func ToBF16(x float32) BF16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return BF16(b>>16 | 0x40)
	}
	// Adding 0x7fff plus the lowest kept bit carries exactly when the dropped
	// half is above a tie, or is a tie below an odd value. A carry out of the
	// mantissa raises the exponent, which is the correct next value.
	return BF16((b + 0x7fff + b>>16&1) >> 16)
}

// Float32 returns the value of h, which is exact.
func (h BF16) Float32() float32 { return math.Float32frombits(uint32(h) << 16) }
