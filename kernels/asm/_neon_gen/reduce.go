package main

import (
	"bytes"
	"fmt"
	"math"
)

// writeTables writes the read-only data: eight words of ones followed by eight of
// zeros, so that loading 4*n bytes before the zeros gives a mask whose first n
// lanes are set, and the constants of exp.
func writeTables(w *bytes.Buffer) {
	table := func(name string, words []uint32) {
		w.WriteByte('\n')
		for i, v := range words {
			fmt.Fprintf(w, "DATA %s<>+%d(SB)/4, $0x%08x\n", name, 4*i, v)
		}
		fmt.Fprintf(w, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", name, 4*len(words))
	}
	mask := make([]uint32, 16)
	for i := range 8 {
		mask[i] = math.MaxUint32
	}
	table("neonmask", mask)
	var words []uint32
	for _, v := range expConstants() {
		words = append(words, math.Float32bits(v))
	}
	table("neonexp", words)
}

// zeros clears accumulators: low and high half of each unit, from V0 on.
func zeros(f *fn, units int) {
	for v := range 2 * units {
		f.zero(v)
	}
}

// sumUnits adds the units from V0 on pairwise into the first: see fold.
func sumUnits(f *fn, units int) {
	for n := units; n > 1; n /= 2 {
		for i := range n {
			f.addf(i, i+n, i) // n/2 units of two halves
		}
	}
}

// fold sums the eight lanes of lo and hi into the first of lo: halves, then pairs,
// then neighbours. The order is that of the AVX2 set.
func fold(f *fn, lo, hi int) {
	f.addf(lo, hi, lo)
	f.ext(8, lo, lo, hi)
	f.addf(lo, hi, lo)
	f.ext(4, lo, lo, hi)
	f.addf(lo, hi, lo)
}

// Reductions keep their accumulators in V0 to V7 and load from V16 on.

func dot() *fn {
	f := begin("dotVec", "returns the sum of a*b.", join(ints("n"), ptrs("a", "b"))...)
	zeros(f, 4)
	reduce(f, 0, []int{1, 2}, func(o *octet) {
		o.load(0, 16)
		o.load(1, 24)
		for v := range 2 * o.units {
			f.fma(16+v, 24+v, v)
		}
	})
	sumUnits(f, 4)
	fold(f, 0, 1)
	return f.returnFloat(0)
}

func dot3() *fn {
	f := begin("dot3Vec", "returns the sum of (a*b)*c.", join(ints("n"), ptrs("a", "b", "c"))...)
	zeros(f, 4)
	reduce(f, 0, []int{1, 2, 3}, func(o *octet) {
		o.load(0, 16)
		o.load(1, 24)
		o.load(2, 8)
		for v := range 2 * o.units {
			f.mulf(16+v, 24+v, 16+v)
			f.fma(16+v, 8+v, v)
		}
	})
	sumUnits(f, 4)
	fold(f, 0, 1)
	return f.returnFloat(0)
}

func sumSq() *fn {
	f := begin("sumSqVec", "returns the sum of x*x.", join(ints("n"), ptrs("x"))...)
	zeros(f, 4)
	reduce(f, 0, []int{1}, func(o *octet) {
		o.load(0, 16)
		for v := range 2 * o.units {
			f.fma(16+v, 16+v, v)
		}
	})
	sumUnits(f, 4)
	fold(f, 0, 1)
	return f.returnFloat(0)
}

// maximum selects by "greater", which a NaN never is. FMAXNM would do for quiet
// NaN only, and disagree with the other sets about zeros of both signs.
func maximum() *fn {
	f := begin("maxVec", "returns the largest x, or -Inf. NaN loses against everything.", join(ints("n"), ptrs("x"))...)
	const low, mask, picked, scratch = 31, 28, 8, 5
	f.op("MOVD", fmt.Sprintf("$0x%08x", math.Float32bits(float32(math.Inf(-1)))), gp(scratch))
	f.op("VDUP", gp(scratch), s4(low))
	for v := range 8 {
		f.move(low, v)
	}
	// pick sets y to x where x is greater.
	pick := func(x, y, t int) {
		f.greater(x, y, t)
		f.bitIf(t, x, y)
	}
	reduce(f, 0, []int{1}, func(o *octet) {
		o.load(0, 16)
		if o.rest {
			f.restMask(o.n, scratch, mask)
			f.bitElse(mask, low, 16)
			f.bitElse(mask+1, low, 17)
		}
		for v := range 2 * o.units {
			pick(16+v, v, picked+v)
		}
	})
	// The order decides which of two zeros is returned; it is that of the AVX2 set.
	for half := range 2 {
		pick(half, 4+half, picked)
		pick(2+half, 6+half, picked)
		pick(4+half, 6+half, picked)
	}
	pick(6, 7, picked)
	for _, bytes := range []int{8, 4} {
		f.ext(bytes, 7, 7, 6)
		pick(7, 6, picked)
		f.move(6, 7)
	}
	return f.returnFloat(7)
}
