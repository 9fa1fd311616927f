package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
)

// vdpbf16ps returns the bytes of VDPBF16PS on registers of 512 bits: dst += x*y
// over pairs. Neither Go's assembler nor the generator library knows the
// instruction. Registers are numbers, 0 to 31; the encoding is
// EVEX.512.F3.0F38.W0 52 /r of Intel's manual, volume 2, with the bits of a register
// number scattered and, but for the low three, inverted:
//
//	62 | R X B R' 0 0 1 0 | W vvvv 1 p p | z L'L b V' a a a | 52 | 11 reg r/m
//
// where R'R extends reg (dst), V'vvvv is x, and XB extends r/m (y).
func vdpbf16ps(dst, x, y int) []byte {
	const (
		map0F38  = 2
		prefixF3 = 2
		bits512  = 2
	)
	not := func(n, bit int) byte { return byte(^n >> bit & 1) }
	return []byte{
		0x62,
		not(dst, 3)<<7 | not(y, 4)<<6 | not(y, 3)<<5 | not(dst, 4)<<4 | map0F38,
		byte(^x&15)<<3 | 1<<2 | prefixF3,
		bits512<<5 | not(x, 4)<<3,
		0x52,
		0xc0 | byte(dst&7)<<3 | byte(y&7),
	}
}

// gnu is the same instruction as GNU as writes it, sources reversed.
func gnu(dst, x, y int) string { return fmt.Sprintf("vdpbf16ps %%zmm%d, %%zmm%d, %%zmm%d", y, x, dst) }

// emitDot writes the bytes into the function under way. The comment is what the
// test of package asm assembles and compares.
func emitDot(dst, x, y int) {
	b := vdpbf16ps(dst, x, y)
	Comment(gnu(dst, x, y))
	raw := func(opcode string, op Op) {
		Instruction(&ir.Instruction{Opcode: opcode, Operands: []Op{op}})
	}
	raw("LONG", U32(uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16|uint32(b[3])<<24))
	raw("WORD", U16(uint16(b[4])|uint16(b[5])<<8))
}
