package num

import "math"

// F16 is an IEEE binary16: one bit of sign, five of exponent, ten of fraction.
type F16 uint16

// Float32 returns the value of h, exactly; NaN keeps its payload.
func (h F16) Float32() float32 {
	sign, exp, frac := uint32(h)>>15<<31, uint32(h)>>10&0x1f, uint32(h)&0x3ff
	switch exp {
	case 0: // zero, or a multiple of 2^-24
		x := float32(frac) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(x))
	case 0x1f:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}
