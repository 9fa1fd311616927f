//go:build !purego

package asm

import "golang.org/x/sys/cpu"

// vectorName names the set of functions whose names end in Vec.
const vectorName = "avx2+fma"

// vector tells whether this processor runs that set, wide whether it runs the
// functions whose names end in 512Vec too.
var (
	vector = cpu.X86.HasAVX2 && cpu.X86.HasFMA
	wide   = vector && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW
)
