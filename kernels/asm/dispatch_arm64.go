//go:build !purego

package asm

// Every arm64 processor has NEON, so that nothing is left to ask the processor.
const (
	vectorName  = "neon"
	vectorRows  = false
	vectorLanes = 4
	vectorTile  = neonTile12x8
	vector      = true
	wide        = false
	pairs16     = false
)

// The functions of other sets, which this build never calls.

const unreachable = "asm: kernel of another set called"

func tile512Vec(int, *float32, *float32, *float32, int, int)                { panic(unreachable) }
func tileRows512Vec(int, *float32, int, *float32, *float32, int, int)       { panic(unreachable) }
func tileCols512Vec(int, *float32, int, *float32, *float32, int, int)       { panic(unreachable) }
func packRows6Vec(int, *float32, *float32, int)                             { panic(unreachable) }
func packCols6Vec(int, int, *float32, *float32, int, int)                   { panic(unreachable) }
func packRows16Vec(int, *float32, *float32, int)                            { panic(unreachable) }
func packCols16Vec(int, int, *float32, *float32, int, int)                  { panic(unreachable) }
func packRows32Vec(int, *float32, *float32, int)                            { panic(unreachable) }
func packCols32Vec(int, int, *float32, *float32, int, int)                  { panic(unreachable) }
func expSum512Vec(int, *float32, *float32, float32, float32) float32        { panic(unreachable) }
func swiglu512Vec(int, *float32, *float32, *float32)                        { panic(unreachable) }
func swigluBwd512Vec(int, *float32, *float32, *float32, *float32, *float32) { panic(unreachable) }
func fmaPeak512Vec(int, *float32)                                           { panic(unreachable) }
func tile16Vec(int, *uint32, *uint32, *float32, int, int)                   { panic(unreachable) }
func peak16Vec(int, *float32)                                               { panic(unreachable) }
func dotRowsVec(int, int, *float32, *float32, *float32)                     { panic(unreachable) }
func axpyRowsVec(int, int, *float32, *float32, *float32)                    { panic(unreachable) }
