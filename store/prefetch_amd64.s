//go:build !purego

#include "textflag.h"

// func prefetchLines(p unsafe.Pointer, lines int)
TEXT ·prefetchLines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ lines+8(FP), CX
loop:
	PREFETCHT1 (AX)
	ADDQ $64, AX
	DECQ CX
	JG   loop
	RET
