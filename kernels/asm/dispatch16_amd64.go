//go:build !purego

package asm

// fastPairs tells whether VDPBF16PS beats two fused multiply-adds, which have the
// same bits. Measured: on Zen 4 it makes twice as many operations a second, on
// Emerald Rapids half as many. Nothing but the maker tells the two apart.
var fastPairs = pairs16 && madeByAMD()

// fused16 tells whether this processor runs the functions with Pairs in their names.
var fused16 = vector

func madeByAMD() bool {
	b, d, c := vendor()
	var name []byte
	for _, w := range []uint32{b, d, c} {
		name = append(name, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
	}
	return string(name) == "AuthenticAMD"
}
