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

// Values is an array of floats or, with half set, of bfloat16: what an op takes whose
// tensors may be stored as either. All threads of a launch take the same branch.
struct Values {
	void *at;
	i64 half;

	__device__ __forceinline__ float load(i64 i) const {
		return half ? fromBF16(((const uint16_t *)at)[i]) : ((const float *)at)[i];
	}
	__device__ __forceinline__ void store(i64 i, float v) const {
		if (half) ((uint16_t *)at)[i] = toBF16(v);
		else ((float *)at)[i] = v;
	}
};

// sumBlock adds v over the threads of a block, in a tree; all get the sum. The block's
// size is a power of two, and its shared memory has room for a T each.
template <class T> __device__ T sumBlock(T v) {
	DYNAMIC_SHARED(T, s);
	__syncthreads();
	s[threadIdx.x] = v;
	__syncthreads();
	for (unsigned n = blockDim.x / 2; n > 0; n /= 2) {
		if (threadIdx.x < n) s[threadIdx.x] += s[threadIdx.x + n];
		__syncthreads();
	}
	return s[0];
}

// maxBlock is the largest v of a block, likewise.
__device__ inline float maxBlock(float v) {
	DYNAMIC_SHARED(float, s);
	__syncthreads();
	s[threadIdx.x] = v;
	__syncthreads();
	for (unsigned n = blockDim.x / 2; n > 0; n /= 2) {
		if (threadIdx.x < n) s[threadIdx.x] = fmaxf(s[threadIdx.x], s[threadIdx.x + n]);
		__syncthreads();
	}
	return s[0];
}
