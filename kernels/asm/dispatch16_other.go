//go:build !amd64 || purego

package asm

// Products of bfloat16 have no assembly here: other processors flush subnormals
// before rounding, which would give other bits.
const (
	fastPairs = false
	fused16   = false
)

func tilePairsVec(int, *float32, *float32, *float32, int, int)    { panic(unreachable) }
func tilePairs512Vec(int, *float32, *float32, *float32, int, int) { panic(unreachable) }

func packRows12F512Vec(int, *uint32, *float32, int)            { panic(unreachable) }
func packRows12H512Vec(int, *uint32, *uint16, int)             { panic(unreachable) }
func packRows32F512Vec(int, *uint32, *float32, int)            { panic(unreachable) }
func packRows32H512Vec(int, *uint32, *uint16, int)             { panic(unreachable) }
func packCols12F512Vec(int, int, *uint32, *float32, int)       { panic(unreachable) }
func packCols32PartF512Vec(int, int, *uint32, *float32, int)   { panic(unreachable) }
func packCols12H512Vec(int, int, *uint32, *uint16, int)        { panic(unreachable) }
func packCols32PartH512Vec(int, int, *uint32, *uint16, int)    { panic(unreachable) }
func packCols32F512Vec(int, int, *uint32, *float32, int, int)  { panic(unreachable) }
func packCols32H512Vec(int, int, *uint32, *uint16, int, int)   { panic(unreachable) }
func packCols48F512Vec(int, int, *uint32, *float32, int, int)  { panic(unreachable) }
func packCols48H512Vec(int, int, *uint32, *uint16, int, int)   { panic(unreachable) }
func widenRows12F512Vec(int, *uint32, *float32, int)           { panic(unreachable) }
func widenRows12H512Vec(int, *uint32, *uint16, int)            { panic(unreachable) }
func widenRows32F512Vec(int, *uint32, *float32, int)           { panic(unreachable) }
func widenRows32H512Vec(int, *uint32, *uint16, int)            { panic(unreachable) }
func widenCols12F512Vec(int, int, *uint32, *float32, int)      { panic(unreachable) }
func widenCols32PartF512Vec(int, int, *uint32, *float32, int)  { panic(unreachable) }
func widenCols12H512Vec(int, int, *uint32, *uint16, int)       { panic(unreachable) }
func widenCols32PartH512Vec(int, int, *uint32, *uint16, int)   { panic(unreachable) }
func widenCols32F512Vec(int, int, *uint32, *float32, int, int) { panic(unreachable) }
func widenCols32H512Vec(int, int, *uint32, *uint16, int, int)  { panic(unreachable) }
func widenCols48F512Vec(int, int, *uint32, *float32, int, int) { panic(unreachable) }
func widenCols48H512Vec(int, int, *uint32, *uint16, int, int)  { panic(unreachable) }
