package asm

import "math"

// flushed is the least magnitude that a sum keeps: an exact sum below it rounds,
// with 24 bits and an unbounded exponent, to less than the smallest normal number
// 2^-126. At the border itself, half a unit below, the tie goes to 2^-126.
const flushed = 0x1p-126 - 0x1p-151

// addProduct returns acc + x*y, rounded to float32 once and flushed to zero, for
// float32 x and y with at most 8 significant bits. The product is exact in float64.
// So is the sum whenever it comes near the middle between two float32 values: the
// product has 16 bits and acc 24, and for the sum to lie close to a middle without
// lying on it the two must be within 2^25 of each other, which takes fewer than 53
// bits. Hence rounding twice gives what rounding once would.
func addProduct(acc float32, x, y float64) float32 {
	sum := float64(acc) + float64(x*y)
	if math.Abs(sum) < flushed {
		return float32(math.Copysign(0, sum))
	}
	return float32(sum)
}

// halves returns the elements of a pair, subnormals as zeros.
func halves(pair uint32) (first, second float64) {
	lo, hi := pair<<16, pair&0xffff0000
	if lo&0x7f800000 == 0 {
		lo &= 0x80000000
	}
	if hi&0x7f800000 == 0 {
		hi &= 0x80000000
	}
	return float64(math.Float32frombits(lo)), float64(math.Float32frombits(hi))
}

// tile16Generic goes through the tile in blocks of 2 x 4, as tileGeneric does.
func tile16Generic(rows, cols, k2 int, a, b []uint32, c []float32, ldc int, accumulate bool) {
	for i := 0; i < rows; i += 2 {
		for j := 0; j < cols; j += 4 {
			block16Generic(rows, cols, k2, a[min(i, len(a)):], b[min(j, len(b)):], c[i*ldc+j:], ldc, accumulate)
		}
	}
}

func block16Generic(rows, cols, k2 int, a, b []uint32, c []float32, ldc int, accumulate bool) {
	var c00, c01, c02, c03, c10, c11, c12, c13 float32
	for p := range k2 {
		x, y := a[p*rows:p*rows+2], b[p*cols:p*cols+4]
		x0, u0 := halves(x[0])
		x1, u1 := halves(x[1])
		y0, v0 := halves(y[0])
		y1, v1 := halves(y[1])
		y2, v2 := halves(y[2])
		y3, v3 := halves(y[3])
		c00 = addProduct(addProduct(c00, u0, v0), x0, y0)
		c01 = addProduct(addProduct(c01, u0, v1), x0, y1)
		c02 = addProduct(addProduct(c02, u0, v2), x0, y2)
		c03 = addProduct(addProduct(c03, u0, v3), x0, y3)
		c10 = addProduct(addProduct(c10, u1, v0), x1, y0)
		c11 = addProduct(addProduct(c11, u1, v1), x1, y1)
		c12 = addProduct(addProduct(c12, u1, v2), x1, y2)
		c13 = addProduct(addProduct(c13, u1, v3), x1, y3)
	}
	top, bottom := c[:4], c[ldc:ldc+4]
	if accumulate {
		c00, c01, c02, c03 = c00+top[0], c01+top[1], c02+top[2], c03+top[3]
		c10, c11, c12, c13 = c10+bottom[0], c11+bottom[1], c12+bottom[2], c13+bottom[3]
	}
	top[0], top[1], top[2], top[3] = c00, c01, c02, c03
	bottom[0], bottom[1], bottom[2], bottom[3] = c10, c11, c12, c13
}
