package asm

import (
	"math"
	"unsafe"
)

// The plain Go tile. To round a sum of float64 to 24 bits with conversions takes three
// times as long as what is summed; adding to its bits, as if they were an integer, is
// faster. So that subnormal numbers round where those of float32 do, everything is
// scaled by 2^-896: the smallest normal float32 becomes the smallest normal float64,
// and the bits of a float32, shifted left by 29, are those of its value, scaled.
// Only overflow goes unnoticed there, and has to be excluded beforehand.

const (
	spare   = 29               // bits by which the mantissa of float64 is longer
	middle  = 1 << (spare - 1) // in these bits: half way between float32 values
	surplus = 1<<spare - 1     // the mask of these bits
)

// scaled returns the bits of x*2^-896, for x that is finite.
func scaled(x float32) uint64 { return scaledBits(math.Float32bits(x)) }

func scaledBits(x uint32) uint64 {
	return uint64(int64(int32(x))<<spare) &^ (7 << 60) // of four copies of the sign, one stays
}

// unscaled undoes scaled.
func unscaled(b uint64) float32 {
	return math.Float32frombits(uint32(b>>spare)&^(1<<31) | uint32(b>>63)<<31)
}

const stripDepth = 64 // terms at a time

// strip is what the plain Go tile works on: widened factors and sums. The left factors
// and the sums are scaled.
type strip struct {
	a   [MR][stripDepth]float64
	b   [stripDepth][NR]float64
	sum [MR][NR]uint64 // the bits of float64
	// used tells for each row whether there was a left factor other than zero.
	used [MR]bool
	// large is set when there was a factor of 2^56 or more, an infinity or a NaN.
	large bool
}

// Where all factors are below 2^56, sums of as many products do not overflow.
const (
	largeFactor = (127 + 56) << 23    // as bits
	belowLarge  = 1<<31 - largeFactor // added to bits, reaches 1<<31 with them
	fewTerms    = 1 << 14
)

// tileGeneric computes a tile of MR x NR. Element (i, kk) of the left operand is
// a[i*stepRow+kk*stepCol].
func tileGeneric(k int, a []float32, stepRow, stepCol int, b, c []float32, ldc int, accumulate bool) {
	s := strip{large: k > fewTerms}
	for from := 0; from < k; from += stripDepth {
		n := min(stripDepth, k-from)
		s.loadA(n, a[from*stepCol:], stepRow, stepCol)
		s.loadB(n, b[from*NR:])
		for i := range s.sum {
			if !s.used[i] && !s.large {
				continue // a row that fills up the tile: its sums are +0
			}
			if s.large {
				addProductsExactly(s.a[i][:n], s.b[:n], &s.sum[i])
			} else {
				addProducts(s.a[i][:n], s.b[:n], &s.sum[i])
			}
		}
	}
	for i := range s.sum {
		row := c[i*ldc:][:NR]
		for j, v := range s.sum[i] {
			x := unscaled(v)
			if accumulate {
				x += row[j]
			}
			row[j] = x
		}
	}
}

// noTerms sets a tile to a sum of no terms.
func noTerms(rows, cols int, c []float32, ldc int, accumulate bool) {
	for i := range rows {
		row := c[i*ldc:][:cols]
		if !accumulate {
			clear(row)
			continue
		}
		for j := range row {
			row[j] += 0
		}
	}
}

// loadA widens and scales n terms of the left operand.
func (s *strip) loadA(n int, a []float32, stepRow, stepCol int) {
	for i := range s.a {
		any, over := loadRow(s.a[i][:n], a[i*stepRow:], stepCol)
		s.used[i] = s.used[i] || any != 0
		s.large = s.large || over != 0
	}
}

// loadRow widens and scales numbers that lie step apart. The results are 0 unless
// there is one that is not 0, or one that is large.
func loadRow(to []float64, from []float32, step int) (any, over uint32) {
	at := 0
	for kk := range to {
		x := math.Float32bits(from[at])
		at += step
		any |= x
		over |= x&^(1<<31) + belowLarge
		to[kk] = math.Float64frombits(scaledBits(x))
	}
	return any << 1, over >> 31
}

// loadB widens n terms of the right operand.
func (s *strip) loadB(n int, b []float32) {
	var over uint32
	for kk := range n {
		from, to := (*[NR]float32)(b[kk*NR:]), &s.b[kk]
		for j := range NR {
			over |= math.Float32bits(from[j])&^(1<<31) + belowLarge
			to[j] = float64(from[j])
		}
	}
	s.large = s.large || over>>31 != 0
}

// addProducts adds the products a[kk]*b[kk][j] to sum[j] in rising kk, each sum
// rounded to 24 bits.
//
// The sums go through memory, as integers in and as float64 out, which takes fewer
// steps than moving them between the two kinds of registers.
func addProducts(a []float64, b [][NR]float64, sum *[NR]uint64) {
	s := (*[NR]float64)(unsafe.Pointer(sum))
	b = b[:len(a)]
	for kk, x := range a {
		y := &b[kk]
		t0 := math.Float64bits(float64(x*y[0])+s[0]) + middle
		if uint32(t0)&surplus == 0 {
			t0 = roundMiddle(x, y[0], sum[0])
		}
		sum[0] = t0 &^ surplus
		t1 := math.Float64bits(float64(x*y[1])+s[1]) + middle
		if uint32(t1)&surplus == 0 {
			t1 = roundMiddle(x, y[1], sum[1])
		}
		sum[1] = t1 &^ surplus
		t2 := math.Float64bits(float64(x*y[2])+s[2]) + middle
		if uint32(t2)&surplus == 0 {
			t2 = roundMiddle(x, y[2], sum[2])
		}
		sum[2] = t2 &^ surplus
		t3 := math.Float64bits(float64(x*y[3])+s[3]) + middle
		if uint32(t3)&surplus == 0 {
			t3 = roundMiddle(x, y[3], sum[3])
		}
		sum[3] = t3 &^ surplus
		t4 := math.Float64bits(float64(x*y[4])+s[4]) + middle
		if uint32(t4)&surplus == 0 {
			t4 = roundMiddle(x, y[4], sum[4])
		}
		sum[4] = t4 &^ surplus
		t5 := math.Float64bits(float64(x*y[5])+s[5]) + middle
		if uint32(t5)&surplus == 0 {
			t5 = roundMiddle(x, y[5], sum[5])
		}
		sum[5] = t5 &^ surplus
		t6 := math.Float64bits(float64(x*y[6])+s[6]) + middle
		if uint32(t6)&surplus == 0 {
			t6 = roundMiddle(x, y[6], sum[6])
		}
		sum[6] = t6 &^ surplus
		t7 := math.Float64bits(float64(x*y[7])+s[7]) + middle
		if uint32(t7)&surplus == 0 {
			t7 = roundMiddle(x, y[7], sum[7])
		}
		sum[7] = t7 &^ surplus
		t8 := math.Float64bits(float64(x*y[8])+s[8]) + middle
		if uint32(t8)&surplus == 0 {
			t8 = roundMiddle(x, y[8], sum[8])
		}
		sum[8] = t8 &^ surplus
		t9 := math.Float64bits(float64(x*y[9])+s[9]) + middle
		if uint32(t9)&surplus == 0 {
			t9 = roundMiddle(x, y[9], sum[9])
		}
		sum[9] = t9 &^ surplus
		t10 := math.Float64bits(float64(x*y[10])+s[10]) + middle
		if uint32(t10)&surplus == 0 {
			t10 = roundMiddle(x, y[10], sum[10])
		}
		sum[10] = t10 &^ surplus
		t11 := math.Float64bits(float64(x*y[11])+s[11]) + middle
		if uint32(t11)&surplus == 0 {
			t11 = roundMiddle(x, y[11], sum[11])
		}
		sum[11] = t11 &^ surplus
		t12 := math.Float64bits(float64(x*y[12])+s[12]) + middle
		if uint32(t12)&surplus == 0 {
			t12 = roundMiddle(x, y[12], sum[12])
		}
		sum[12] = t12 &^ surplus
		t13 := math.Float64bits(float64(x*y[13])+s[13]) + middle
		if uint32(t13)&surplus == 0 {
			t13 = roundMiddle(x, y[13], sum[13])
		}
		sum[13] = t13 &^ surplus
		t14 := math.Float64bits(float64(x*y[14])+s[14]) + middle
		if uint32(t14)&surplus == 0 {
			t14 = roundMiddle(x, y[14], sum[14])
		}
		sum[14] = t14 &^ surplus
		t15 := math.Float64bits(float64(x*y[15])+s[15]) + middle
		if uint32(t15)&surplus == 0 {
			t15 = roundMiddle(x, y[15], sum[15])
		}
		sum[15] = t15 &^ surplus
	}
}

// roundMiddle returns the sum of a product for addProducts where its lower bits do not
// tell how to round it, since it lies in the middle between two of 24 bits.
//
//go:noinline
func roundMiddle(x, y float64, sum uint64) uint64 {
	return scaled(fma(unscaled(math.Float64bits(x)), float32(y), unscaled(sum)))
}

// addProductsExactly is addProducts for all that addProducts does not do: overflow,
// infinities and NaN, of which the bits in sum are those of scaled.
func addProductsExactly(a []float64, b [][NR]float64, sum *[NR]uint64) {
	for j := range sum {
		s := unscaled(sum[j])
		for kk, x := range a {
			s = fma(unscaled(math.Float64bits(x)), float32(b[kk][j]), s)
		}
		sum[j] = scaled(s)
	}
}

// packRowsGeneric packs columns [from, k) of rows rows of src.
func packRowsGeneric(dst, src []float32, lds, rows, from, k int) {
	for i := range rows {
		for kk, v := range src[i*lds+from : i*lds+k] {
			dst[(from+kk)*rows+i] = v
		}
	}
}

// packColsGeneric packs k rows of src into panels of cols columns, stride apart.
func packColsGeneric(dst, src []float32, lds, cols, panels, k, stride int) {
	for kk := range k {
		row := src[kk*lds : kk*lds+panels*cols]
		for q := range panels {
			copy(dst[q*stride+kk*cols:q*stride+(kk+1)*cols], row[q*cols:])
		}
	}
}

// fmaPeakGeneric adds products, 48 a round, of operands that are widened already.
func fmaPeakGeneric(n int) (flops int) {
	const depth = 48
	var a [depth]float64
	var b [depth][NR]float64
	var sum [NR]uint64
	for i := range a {
		a[i] = math.Float64frombits(scaled(0.999))
		for j := range b[i] {
			b[i][j] = 0.001
		}
	}
	for left := 3 * n; left > 0; left -= depth {
		d := min(left, depth)
		addProducts(a[:d], b[:d], &sum)
	}
	if sum[0] != sum[NR-1] {
		panic("asm: FMAPeak: chains differ")
	}
	return 3 * n * NR * 2
}
