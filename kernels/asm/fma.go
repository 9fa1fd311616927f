package asm

import "math"

// The plain Go kernels fuse multiplications with additions as the assembly does: the
// exact product is added and the sum rounded once. Go has no such operation for
// float32, and the one for float64 is of no use, since it rounds to 53 bits. But a
// product of two float32 is exact in float64, so that p+z there is the sum rounded to
// 53 bits, and rounding that to 24 gives what rounding once would, except where the
// first rounding ends in the middle between two float32 values: then it has hidden
// on which side of the middle the sum lies, and its error tells.

// fma returns x*y+z, rounded once to the nearest float32, ties to even.
func fma(x, y, z float32) float32 {
	p, c := float64(float64(x)*float64(y)), float64(z)
	s := p + c
	// A middle between normal float32 values has the lower 29 bits 1<<28; between
	// subnormal ones it has more zeros.
	if uint32(math.Float64bits(s))&(1<<28-1) == 0 {
		return roundSum(p, c, s)
	}
	return float32(s)
}

// roundSum returns p+c rounded once to float32, where s is the sum in float64. It
// rounds s to odd, which a second rounding to fewer bits cannot get wrong (Boldo and
// Melquiond, 2008): an inexact s becomes its neighbour with an odd mantissa.
func roundSum(p, c, s float64) float32 {
	v := s - p
	e := (p - (s - v)) + (c - v) // the error of the sum (Knuth), NaN where s is not finite
	b := math.Float64bits(s)
	switch {
	case e == 0 || e != e || b&1 == 1:
		return float32(s)
	case (e > 0) == (s > 0):
		return float32(math.Float64frombits(b + 1)) // away from zero
	}
	return float32(math.Float64frombits(b - 1))
}
