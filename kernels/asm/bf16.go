package asm

import "math"

// ToBF16 sets dst[i] to the bfloat16 nearest to src[i], ties to even, as its
// bits. Values too large become infinities, subnormals are kept, a NaN stays a NaN
// with its quiet bit set and its sign and upper payload bits kept: the bits of
// num.ToBF16, on every processor. It panics when the lengths differ.
func ToBF16(dst []uint16, src []float32) {
	if len(src) != len(dst) {
		mismatch("ToBF16", len(dst), len(src))
	}
	done := 0
	if vector && len(dst) >= 16 {
		done = len(dst) &^ 15
		toBF16Vec(done, &dst[0], &src[0])
	}
	toBF16Generic(dst[done:], src[done:])
}

// FromBF16 sets dst[i] to the value of the bfloat16 with bits src[i], which is
// exact. It panics when the lengths differ.
func FromBF16(dst []float32, src []uint16) {
	if len(src) != len(dst) {
		mismatch("FromBF16", len(dst), len(src))
	}
	done := 0
	if vector && len(dst) >= 16 {
		done = len(dst) &^ 15
		fromBF16Vec(done, &dst[0], &src[0])
	}
	fromBF16Generic(dst[done:], src[done:])
}

func toBF16Generic(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		b := math.Float32bits(x)
		if b&0x7fffffff > 0x7f800000 {
			dst[i] = uint16(b>>16 | 0x40)
			continue
		}
		dst[i] = uint16((b + 0x7fff + b>>16&1) >> 16)
	}
}

func fromBF16Generic(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = math.Float32frombits(uint32(h) << 16)
	}
}
