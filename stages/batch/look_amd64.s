//go:build !purego

#include "textflag.h"

// Constants of folding: a register of 128 bits holds 16 bytes of the message, and
// multiplying its halves by x^(d+32) and x^(d-32) moves it d bits on. Bits are in the
// reversed order of CRC-32C, and one place to the left, since the product of two
// reversed numbers comes out one place to the right. TestFoldConstants computes them.
DATA ·fold<>+0x00(SB)/8, $0x00000000dcb17aa4 // 2048: four registers of 512 bits
DATA ·fold<>+0x08(SB)/8, $0x00000000b9e02b86
DATA ·fold<>+0x10(SB)/8, $0x00000000740eef02 // 512: one
DATA ·fold<>+0x18(SB)/8, $0x000000009e4addf8
DATA ·fold<>+0x20(SB)/8, $0x000000001c291d04 // 384, 256 and 128: the quarters of one
DATA ·fold<>+0x28(SB)/8, $0x00000001d82c63da
DATA ·fold<>+0x30(SB)/8, $0x00000001384aa63a
DATA ·fold<>+0x38(SB)/8, $0x00000000ba4fc28e
DATA ·fold<>+0x40(SB)/8, $0x00000000f20c0dfe
DATA ·fold<>+0x48(SB)/8, $0x000000014cd00bd6
DATA ·fold<>+0x50(SB)/8, $0 // the last quarter is taken as it is
DATA ·fold<>+0x58(SB)/8, $0
GLOBL ·fold<>(SB), RODATA|NOPTR, $0x60

// FOLD moves acc on by the distance of k and adds next; t is overwritten.
#define FOLD(k, next, acc, t) \
	VPCLMULQDQ $0x00, k, acc, t     \
	VPCLMULQDQ $0x11, k, acc, acc   \
	VPTERNLOGD $0x96, t, next, acc

// func look64(crc uint32, words *int32, n int, add int32) (sum, top uint32)
TEXT ·look64(SB), NOSPLIT, $0-40
	MOVL  crc+0(FP), AX
	MOVQ  words+8(FP), SI
	MOVQ  n+16(FP), CX
	NOTL  AX
	MOVL  add+24(FP), DX
	VPBROADCASTD DX, Z31
	VBROADCASTI32X4 ·fold<>+0x00(SB), Z30
	VMOVDQU32 (SI), Z0
	VMOVDQU32 64(SI), Z1
	VMOVDQU32 128(SI), Z2
	VMOVDQU32 192(SI), Z3
	VPADDD  Z31, Z0, Z16
	VPADDD  Z31, Z1, Z17
	VPADDD  Z31, Z2, Z18
	VPADDD  Z31, Z3, Z19
	VMOVD   AX, X4
	VPXORD  Z4, Z0, Z0 // the CRC so far is added to the first bytes
	SUBQ    $64, CX
	JLE     fold
loop:
	ADDQ    $256, SI
	VMOVDQU32 (SI), Z8
	VMOVDQU32 64(SI), Z9
	VMOVDQU32 128(SI), Z10
	VMOVDQU32 192(SI), Z11
	FOLD(Z30, Z8, Z0, Z4)
	FOLD(Z30, Z9, Z1, Z5)
	FOLD(Z30, Z10, Z2, Z6)
	FOLD(Z30, Z11, Z3, Z7)
	VPADDD  Z31, Z8, Z8
	VPADDD  Z31, Z9, Z9
	VPADDD  Z31, Z10, Z10
	VPADDD  Z31, Z11, Z11
	VPMAXUD Z8, Z16, Z16
	VPMAXUD Z9, Z17, Z17
	VPMAXUD Z10, Z18, Z18
	VPMAXUD Z11, Z19, Z19
	SUBQ    $64, CX
	JGT     loop
fold:
	VBROADCASTI32X4 ·fold<>+0x10(SB), Z30
	FOLD(Z30, Z1, Z0, Z4)
	FOLD(Z30, Z2, Z0, Z4)
	FOLD(Z30, Z3, Z0, Z4)
	VMOVDQU32 ·fold<>+0x20(SB), Z30
	VPCLMULQDQ $0x00, Z30, Z0, Z4
	VPCLMULQDQ $0x11, Z30, Z0, Z5
	VEXTRACTI32X4 $3, Z0, X6
	VPXORD  Z5, Z4, Z4
	VEXTRACTI64X4 $1, Z4, Y5
	VPXOR   Y5, Y4, Y4
	VEXTRACTI128 $1, Y4, X5
	VPXOR   X5, X4, X4
	VPXOR   X6, X4, X4
	// What is left is 16 bytes with the CRC of the whole.
	VMOVQ   X4, AX
	VPEXTRQ $1, X4, DX
	XORL    BX, BX
	CRC32Q  AX, BX
	CRC32Q  DX, BX
	NOTL    BX
	MOVL    BX, sum+32(FP)

	VPMAXUD Z17, Z16, Z16
	VPMAXUD Z19, Z18, Z18
	VPMAXUD Z18, Z16, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPMAXUD Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0x4E, X0, X1
	VPMAXUD X1, X0, X0
	VPSHUFD $0xB1, X0, X1
	VPMAXUD X1, X0, X0
	VMOVD   X0, AX
	VZEROUPPER
	MOVL    AX, top+36(FP)
	RET

// func largest8(words *int32, n int, add int32) uint32
TEXT ·largest8(SB), NOSPLIT, $0-28
	MOVQ  words+0(FP), SI
	MOVQ  n+8(FP), CX
	MOVL  add+16(FP), DX
	VMOVD DX, X7
	VPBROADCASTD X7, Y7
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
	SUBQ  $16, CX
	JLT   eight
loop:
	VPADDD  (SI), Y7, Y0
	VPADDD  32(SI), Y7, Y1
	VPMAXUD Y0, Y4, Y4
	VPMAXUD Y1, Y5, Y5
	ADDQ    $64, SI
	SUBQ    $16, CX
	JGE     loop
eight:
	ADDQ $8, CX // words left, less 8
	JLT  rest
	VPADDD  (SI), Y7, Y0
	VPMAXUD Y0, Y4, Y4
	ADDQ    $32, SI
	SUBQ    $8, CX
rest:
	// The last eight words, of which some may have been looked at.
	VPADDD  (SI)(CX*4), Y7, Y0
	VPMAXUD Y0, Y4, Y4
	VPMAXUD Y5, Y4, Y4
	VEXTRACTI128 $1, Y4, X5
	VPMAXUD X5, X4, X4
	VPSHUFD $0x4E, X4, X5
	VPMAXUD X5, X4, X4
	VPSHUFD $0xB1, X4, X5
	VPMAXUD X5, X4, X4
	VMOVD   X4, AX
	VZEROUPPER
	MOVL    AX, ret+24(FP)
	RET
