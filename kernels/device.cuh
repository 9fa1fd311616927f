// What every kernel begins with: one source for nvcc and, with REFRAIN_EMU, for g++
// and the simulated driver (gpu/cuda/sim).
#pragma once

#ifdef REFRAIN_EMU
#include "../gpu/cuda/sim/emu.hpp"
#else
#include <stdint.h>
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(128) unsigned char refrain_shared[]; type *name = (type *)refrain_shared
#define KERNEL(f)
#endif

typedef long long i64;

// each visits the elements below n that belong to this thread, a grid apart.
#define each(i, n) (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < (n); i += i64(gridDim.x) * blockDim.x)

// bfloat16 is the upper half of a float.
__device__ __forceinline__ float fromBF16(uint16_t h) {
	union { uint32_t u; float f; } v = {uint32_t(h) << 16};
	return v.f;
}

// toBF16 rounds to nearest, ties to even; a NaN stays one.
__device__ __forceinline__ uint16_t toBF16(float f) {
	union { float f; uint32_t u; } v = {f};
	if ((v.u & 0x7fffffff) > 0x7f800000) return uint16_t(v.u >> 16 | 0x40);
	return uint16_t((v.u + 0x7fff + (v.u >> 16 & 1)) >> 16);
}
