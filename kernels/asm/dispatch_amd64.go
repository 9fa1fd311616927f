//go:build !purego

package asm

import "golang.org/x/sys/cpu"

// vectorName names the set of functions whose names end in Vec.
const vectorName = "avx2+fma"

// vector tells whether this processor runs that set.
var vector = cpu.X86.HasAVX2 && cpu.X86.HasFMA
