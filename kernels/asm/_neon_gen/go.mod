module refrain/kernels/asm/neongen

go 1.26
