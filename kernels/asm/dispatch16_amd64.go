//go:build !purego

package asm

// fastPairs tells whether VDPBF16PS beats two fused multiply-adds, which have the
// same bits. Measured: on Zen 4 it makes twice as many operations a second, on
// Emerald Rapids half as many. Nothing but the maker tells the two apart.
var fastPairs = best.fastPairs

// fused16 tells whether this processor runs the functions with Pairs in their names.
var fused16 = vector
