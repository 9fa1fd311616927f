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

// The set that vector stands for: its name, the floats in a vector, its tile.
const (
	vectorName  = "avx2"
	vectorLanes = 8
	vectorTile  = avx2Tile6x16
)

// The functions of other sets, which this build never calls.

const unreachable = "asm: kernel of another set called"

func packRows8Vec(int, *float32, *float32, int)           { panic(unreachable) }
func packCols8Vec(int, int, *float32, *float32, int, int) { panic(unreachable) }
