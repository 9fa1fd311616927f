// Package asm holds the innermost loops of the CPU kernels: short functions over
// slices of float32, in generated assembly where the processor allows it and in
// plain Go elsewhere.
//
// It knows nothing of tensors, threads or models. Callers split the work; a call
// should stay below about 50 microseconds (some 100,000 elements), because the
// garbage collector cannot stop a goroutine inside assembly.
//
// # Kernel sets
//
// [Kernels] names the set in use:
//
//	purego      plain Go: without the extensions below, on other architectures
//	            and under the build tag purego
//	avx2        the assembly of avx2_amd64.s, on amd64 with AVX2 and FMA
//	avx512      the same, with wider tiles for matrix products ([BestTiles])
//	avx512bf16  the same, where the processor multiplies pairs of bfloat16, which
//	            [BestTiles16] uses where it is the fastest way
//	neon        the assembly of neon_arm64.s, on arm64, where every processor has
//	            its instructions
//
// All have the same meaning, described at each function, and each is a pure
// function of its arguments: a reduction visits its lanes in an order that depends
// on the length only. All give the same bits, so that a run may move from any set to
// any other: neon and plain Go walk through lanes in eights, as avx2 does, and round
// at the same steps, plain Go by multiply-adds that it fuses itself. (Only which NaN
// comes out of a NaN, its sign and payload, is left to the processor.)
//
// With AVX-512 the float32 tile is 12x32 instead of 6x16, about twice as fast where
// the processor has two units of that width. The tile of neon is 12x8; its speed has
// not been measured.
//
// # Arguments
//
// Slices that are walked together must have equal lengths; anything else panics,
// since assembly would read past the end. Any length works, 0 included. A
// destination may be the same slice as a source, element for element, unless the
// function says otherwise; slices that overlap with a shift give undefined
// values. Nothing is kept after the call, nothing is allocated. Reads and writes
// never leave the slices.
//
// # Regenerating
//
// The generators are modules of their own, _gen for amd64 and _neon_gen for arm64,
// so that the product does not depend on them. From the root of the repository:
//
//	go generate ./kernels/asm                   # writes avx2_amd64.*, neon_arm64.* and the digests
//	go run -C kernels/asm/_gen . -check ..      # fails when they are not what it would write
//	go run -C kernels/asm/_neon_gen . -check ..
//
// The first check needs the generator's module; without it, tests compare digests.
package asm

//go:generate go run -C _gen . -write ..
//go:generate go run -C _neon_gen . -write ..
