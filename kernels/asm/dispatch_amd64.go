//go:build !purego

package asm

// vector tells whether this processor runs the functions whose names end in Vec,
// wide whether it runs those that end in 512Vec too, and pairs16 whether it has
// the dot product of bfloat16 pairs for tile16Vec and peak16Vec.
var (
	best    = choose(detected())
	vector  = best.vector
	wide    = best.wide
	pairs16 = best.pairs16
)

// The set that vector stands for: its name, whether it has functions
// for rows of a matrix, the floats in a vector, its tile.
const (
	vectorName  = "avx2"
	vectorRows  = true
	vectorLanes = 8
	vectorTile  = avx2Tile6x16
)

// The functions of other sets, which this build never calls.

const unreachable = "asm: kernel of another set called"

func packRows8Vec(int, *float32, *float32, int)           { panic(unreachable) }
func packCols8Vec(int, int, *float32, *float32, int, int) { panic(unreachable) }
