//go:build (!amd64 && !arm64) || purego

package asm

// There is no assembly for this build: the constant removes every use of the
// functions below, which exist so that the same callers compile.
const (
	vectorName  = ""
	vectorRows  = false
	vectorLanes = 0
	vectorTile  = generic12x16
	vector      = false
	wide        = false
	pairs16     = false
)

const unreachable = "asm: vector kernel called in a build without one"

func tileVec(int, *float32, *float32, *float32, int, int)                   { panic(unreachable) }
func tile512Vec(int, *float32, *float32, *float32, int, int)                { panic(unreachable) }
func tileRowsVec(int, *float32, int, *float32, *float32, int, int)          { panic(unreachable) }
func tileColsVec(int, *float32, int, *float32, *float32, int, int)          { panic(unreachable) }
func tileRows512Vec(int, *float32, int, *float32, *float32, int, int)       { panic(unreachable) }
func tileCols512Vec(int, *float32, int, *float32, *float32, int, int)       { panic(unreachable) }
func packRows6Vec(int, *float32, *float32, int)                             { panic(unreachable) }
func packCols6Vec(int, int, *float32, *float32, int, int)                   { panic(unreachable) }
func packRows8Vec(int, *float32, *float32, int)                             { panic(unreachable) }
func packCols8Vec(int, int, *float32, *float32, int, int)                   { panic(unreachable) }
func packRows12Vec(int, *float32, *float32, int)                            { panic(unreachable) }
func packCols12Vec(int, int, *float32, *float32, int, int)                  { panic(unreachable) }
func packRows16Vec(int, *float32, *float32, int)                            { panic(unreachable) }
func packCols16Vec(int, int, *float32, *float32, int, int)                  { panic(unreachable) }
func packRows32Vec(int, *float32, *float32, int)                            { panic(unreachable) }
func packCols32Vec(int, int, *float32, *float32, int, int)                  { panic(unreachable) }
func fmaPeakVec(int, *float32)                                              { panic(unreachable) }
func expSum512Vec(int, *float32, *float32, float32, float32) float32        { panic(unreachable) }
func swiglu512Vec(int, *float32, *float32, *float32)                        { panic(unreachable) }
func swigluBwd512Vec(int, *float32, *float32, *float32, *float32, *float32) { panic(unreachable) }
func fmaPeak512Vec(int, *float32)                                           { panic(unreachable) }
func dotVec(int, *float32, *float32) float32                                { panic(unreachable) }
func dot3Vec(int, *float32, *float32, *float32) float32                     { panic(unreachable) }
func sumSqVec(int, *float32) float32                                        { panic(unreachable) }
func maxVec(int, *float32) float32                                          { panic(unreachable) }
func expSumVec(int, *float32, *float32, float32, float32) float32           { panic(unreachable) }
func scaleVec(int, *float32, float32)                                       { panic(unreachable) }
func scaleMulVec(int, *float32, *float32, *float32, float32)                { panic(unreachable) }
func addVec(int, *float32, *float32)                                        { panic(unreachable) }
func axpyVec(int, *float32, *float32, float32)                              { panic(unreachable) }
func ropeVec(int, *float32, *float32, *float32, *float32)                   { panic(unreachable) }
func ropeInvVec(int, *float32, *float32, *float32, *float32)                { panic(unreachable) }
func swigluVec(int, *float32, *float32, *float32)                           { panic(unreachable) }
func swigluBwdVec(int, *float32, *float32, *float32, *float32, *float32)    { panic(unreachable) }
func rmsBwdVec(int, *float32, *float32, *float32, *float32, *float32, float32, float32) {
	panic(unreachable)
}
func dSoftmaxVec(int, *float32, *float32, float32, float32)          { panic(unreachable) }
func adamWVec(int, *float32, *float32, *float32, *float32, *float32) { panic(unreachable) }
func toBF16Vec(int, *uint16, *float32)                               { panic(unreachable) }
func fromBF16Vec(int, *float32, *uint16)                             { panic(unreachable) }
func tile16Vec(int, *uint32, *uint32, *float32, int, int)            { panic(unreachable) }
func peak16Vec(int, *float32)                                        { panic(unreachable) }
func dotRowsVec(int, int, *float32, *float32, *float32)              { panic(unreachable) }
func axpyRowsVec(int, int, *float32, *float32, *float32)             { panic(unreachable) }
