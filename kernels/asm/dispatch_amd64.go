//go:build !purego

package asm

import "golang.org/x/sys/cpu"

// vector tells whether this processor runs the functions whose names end in Vec,
// wide whether it runs those that end in 512Vec too, and pairs16 whether it has
// the dot product of bfloat16 pairs for tile16Vec and peak16Vec.
var (
	vector  = cpu.X86.HasAVX2 && cpu.X86.HasFMA
	wide    = vector && cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW
	pairs16 = wide && cpu.X86.HasAVX512BF16
)
