//go:build !purego

#include "textflag.h"

// The first three functions write eight or sixteen ids at a time; what is left over is
// written by one more step that ends with the last id and overlaps the one before.

// These are PREFETCHW off(DI) and off(DX), which the assembler does not know and processors
// that lack it pass over. They ask for a line to write to, which lies in a further cache or
// with a core that has read it. Stores leave in order and wait for one such line after the
// other; these requests do not. Beyond the end of a row they name lines that are written
// next or not at all, and any address is allowed.
#define OWN_DI(off) BYTE $0x0f; BYTE $0x0d; BYTE $0x8f; LONG $off
#define OWN_DX(off) BYTE $0x0f; BYTE $0x0d; BYTE $0x8a; LONG $off

// func widen8(dst *int32, src *uint16, n int)
TEXT ·widen8(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	SUBQ $32, CX
	JLT  eights
loop:
	VPMOVZXWD (SI), Y0
	VPMOVZXWD 16(SI), Y1
	VPMOVZXWD 32(SI), Y2
	VPMOVZXWD 48(SI), Y3
	VMOVDQU   Y0, (DI)
	VMOVDQU   Y1, 32(DI)
	VMOVDQU   Y2, 64(DI)
	VMOVDQU   Y3, 96(DI)
	ADDQ      $64, SI
	ADDQ      $128, DI
	SUBQ      $32, CX
	JGE       loop
eights:
	ADDQ $24, CX // ids left, less 8
	JLT  rest
eight:
	VPMOVZXWD (SI), Y0
	VMOVDQU   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	SUBQ      $8, CX
	JGE       eight
rest:
	// CX is the number of ids left, less 8: -8 when none is.
	CMPQ CX, $-8
	JEQ  done
	VPMOVZXWD (SI)(CX*2), Y0
	VMOVDQU   Y0, (DI)(CX*4)
done:
	VZEROUPPER
	RET

// func pair8(tokens, targets *int32, src *uint16, n int, next *Ahead)
TEXT ·pair8(SB), NOSPLIT, $0-40
	MOVQ tokens+0(FP), DI
	MOVQ targets+8(FP), DX
	MOVQ src+16(FP), SI
	MOVQ n+24(FP), CX
	MOVQ next+32(FP), AX
	MOVQ 16(AX), R10 // once; a prefetch of address 0 does nothing
	MOVQ 24(AX), R11
	MOVQ 32(AX), R12
	MOVQ 40(AX), R13
	PREFETCHT0 (R10)
	PREFETCHT0 (R11)
	PREFETCHT0 (R12)
	PREFETCHT0 (R13)
	MOVQ 0(AX), R8 // ids
	MOVQ 8(AX), R9 // lines
	SHLQ $6, R9
	LEAQ -64(R8)(R9*1), R9 // the last line asked for; repeats of it cost nothing
	CMPQ R9, R8
	CMOVQLT SI, R8 // no lines: any address that is near
	CMOVQLT SI, R9
	SUBQ $32, CX
	JLT  eights
loop:
	PREFETCHT1 (R8)
	ADDQ       $64, R8
	CMPQ       R8, R9
	CMOVQGT    R9, R8
	VPMOVZXWD (SI), Y0
	VPMOVZXWD 16(SI), Y1
	VPMOVZXWD 32(SI), Y2
	VPMOVZXWD 48(SI), Y3
	VPMOVZXWD 2(SI), Y4
	VPMOVZXWD 18(SI), Y5
	VPMOVZXWD 34(SI), Y6
	VPMOVZXWD 50(SI), Y7
	OWN_DI(512)
	OWN_DI(576)
	OWN_DX(512)
	OWN_DX(576)
	VMOVDQU   Y0, (DI)
	VMOVDQU   Y1, 32(DI)
	VMOVDQU   Y2, 64(DI)
	VMOVDQU   Y3, 96(DI)
	VMOVDQU   Y4, (DX)
	VMOVDQU   Y5, 32(DX)
	VMOVDQU   Y6, 64(DX)
	VMOVDQU   Y7, 96(DX)
	ADDQ      $64, SI
	ADDQ      $128, DI
	ADDQ      $128, DX
	SUBQ      $32, CX
	JGE       loop
eights:
	ADDQ $24, CX
	JLT  rest
eight:
	VPMOVZXWD (SI), Y0
	VPMOVZXWD 2(SI), Y4
	VMOVDQU   Y0, (DI)
	VMOVDQU   Y4, (DX)
	ADDQ      $16, SI
	ADDQ      $32, DI
	ADDQ      $32, DX
	SUBQ      $8, CX
	JGE       eight
rest:
	CMPQ CX, $-8
	JEQ  done
	VPMOVZXWD (SI)(CX*2), Y0
	VPMOVZXWD 2(SI)(CX*2), Y4
	VMOVDQU   Y0, (DI)(CX*4)
	VMOVDQU   Y4, (DX)(CX*4)
done:
	VZEROUPPER
	RET

// func pair16(tokens, targets *int32, src *uint16, n int, next *Ahead)
TEXT ·pair16(SB), NOSPLIT, $0-40
	MOVQ tokens+0(FP), DI
	MOVQ targets+8(FP), DX
	MOVQ src+16(FP), SI
	MOVQ n+24(FP), CX
	MOVQ next+32(FP), AX
	MOVQ 16(AX), R10
	MOVQ 24(AX), R11
	MOVQ 32(AX), R12
	MOVQ 40(AX), R13
	PREFETCHT0 (R10)
	PREFETCHT0 (R11)
	PREFETCHT0 (R12)
	PREFETCHT0 (R13)
	MOVQ 0(AX), R8
	MOVQ 8(AX), R9
	SHLQ $6, R9
	LEAQ -64(R8)(R9*1), R9
	CMPQ R9, R8
	CMOVQLT SI, R8
	CMOVQLT SI, R9
	// The first sixteen, of which those that follow the first end of a line are written
	// again: from there on no store of tokens takes two lines, and none of targets that
	// begin at the same place of a line, as those of a row do.
	PREFETCHT1 (R8)
	ADDQ       $64, R8
	CMPQ       R8, R9
	CMOVQGT    R9, R8
	VPMOVZXWD (SI), Z0
	VPMOVZXWD 2(SI), Z2
	VMOVDQU32 Z0, (DI)
	VMOVDQU32 Z2, (DX)
	MOVQ DI, AX
	ANDQ $63, AX
	SUBQ $64, AX // minus the bytes up to the end of the line
	SUBQ AX, DI
	SUBQ AX, DX
	SARQ $1, AX
	SUBQ AX, SI
	SARQ $1, AX
	ADDQ AX, CX
	SUBQ $32, CX
	JLT  sixteen
loop:
	PREFETCHT1 (R8)
	ADDQ       $64, R8
	CMPQ       R8, R9
	CMOVQGT    R9, R8
	VPMOVZXWD (SI), Z0
	VPMOVZXWD 32(SI), Z1
	VPMOVZXWD 2(SI), Z2
	VPMOVZXWD 34(SI), Z3
	OWN_DI(512)
	OWN_DI(576)
	OWN_DX(512)
	OWN_DX(576)
	VMOVDQU32 Z0, (DI)
	VMOVDQU32 Z1, 64(DI)
	VMOVDQU32 Z2, (DX)
	VMOVDQU32 Z3, 64(DX)
	ADDQ      $64, SI
	ADDQ      $128, DI
	ADDQ      $128, DX
	SUBQ      $32, CX
	JGE       loop
sixteen:
	ADDQ $16, CX // pairs left, less 16
	JLT  rest
	VPMOVZXWD (SI), Z0
	VPMOVZXWD 2(SI), Z2
	VMOVDQU32 Z0, (DI)
	VMOVDQU32 Z2, (DX)
	ADDQ      $32, SI
	ADDQ      $64, DI
	ADDQ      $64, DX
	SUBQ      $16, CX
rest:
	CMPQ CX, $-16
	JEQ  done
	VPMOVZXWD (SI)(CX*2), Z0
	VPMOVZXWD 2(SI)(CX*2), Z2
	VMOVDQU32 Z0, (DI)(CX*4)
	VMOVDQU32 Z2, (DX)(CX*4)
done:
	VZEROUPPER
	RET

// func narrow16(dst *byte, ids *uint32, n int) uint32
TEXT ·narrow16(SB), NOSPLIT, $0-28
	MOVQ  dst+0(FP), DI
	MOVQ  ids+8(FP), SI
	MOVQ  n+16(FP), CX
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
loop:
	VMOVDQU   (SI), Y0
	VMOVDQU   32(SI), Y1
	VPMAXUD   Y0, Y4, Y4
	VPMAXUD   Y1, Y5, Y5
	VPACKUSDW Y1, Y0, Y2   // within each half of 128 bits
	VPERMQ    $0xD8, Y2, Y2
	VMOVDQU   Y2, (DI)
	ADDQ      $64, SI
	ADDQ      $32, DI
	SUBQ      $16, CX
	JG        loop
	VPMAXUD   Y5, Y4, Y4
	VEXTRACTI128 $1, Y4, X5
	VPMAXUD   X5, X4, X4
	VPSHUFD   $0x4E, X4, X5
	VPMAXUD   X5, X4, X4
	VPSHUFD   $0xB1, X4, X5
	VPMAXUD   X5, X4, X4
	VMOVD     X4, AX
	VZEROUPPER
	MOVL      AX, ret+24(FP)
	RET
