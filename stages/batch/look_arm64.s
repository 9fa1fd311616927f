//go:build !purego

#include "textflag.h"

// func largest16(top *[4]uint32, words *int32, n int, add int32)
TEXT ·largest16(SB), NOSPLIT, $0-28
	MOVD top+0(FP), R0
	MOVD words+8(FP), R1
	MOVD n+16(FP), R2
	MOVW add+24(FP), R3
	VDUP R3, V16.S4
	VEOR V4.B16, V4.B16, V4.B16
	VEOR V5.B16, V5.B16, V5.B16
loop:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	VADD   V16.S4, V0.S4, V0.S4
	VADD   V16.S4, V1.S4, V1.S4
	VADD   V16.S4, V2.S4, V2.S4
	VADD   V16.S4, V3.S4, V3.S4
	VUMAX  V0.S4, V4.S4, V4.S4
	VUMAX  V1.S4, V5.S4, V5.S4
	VUMAX  V2.S4, V4.S4, V4.S4
	VUMAX  V3.S4, V5.S4, V5.S4
	SUBS   $16, R2
	BGT    loop
	VUMAX  V5.S4, V4.S4, V4.S4
	VST1   [V4.S4], (R0)
	RET
