// Random bits as internal/num makes them: keys, Philox4x32-10, and what is drawn from it.
#pragma once
#include "device.cuh"

typedef unsigned long long u64;

// mulRN is a*b rounded, which no sum behind it takes in.
__device__ __forceinline__ float mulRN(float a, float b) {
#ifdef REFRAIN_EMU
	return a * b;
#else
	return __fmul_rn(a, b);
#endif
}

__device__ __forceinline__ double mulRN(double a, double b) {
#ifdef REFRAIN_EMU
	return a * b;
#else
	return __dmul_rn(a, b);
#endif
}

__device__ __forceinline__ u64 mixBits(u64 x) {
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

// keyWord takes the next word into a key (num.Key), which begins with num.KeyPrefix.
__device__ __forceinline__ u64 keyWord(u64 h, u64 w) {
	const u64 gamma = 0x9e3779b97f4a7c15ULL;
	return mixBits((h << 27 | h >> 37) * gamma ^ mixBits(w + gamma));
}

// Block is 128 random bits.
struct Block {
	uint32_t w[4];
};

// randomBlock is block b of the stream of a key (num.Stream.Block).
__device__ __forceinline__ Block randomBlock(u64 key, u64 b) {
	uint32_t c0 = uint32_t(b), c1 = uint32_t(b >> 32), c2 = 0, c3 = 0, k0 = uint32_t(key), k1 = uint32_t(key >> 32);
	for (int i = 0; i < 10; i++) {
		u64 p0 = u64(c0) * 0xd2511f53u, p1 = u64(c2) * 0xcd9e8d57u;
		c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
		c1 = uint32_t(p1);
		c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
		c3 = uint32_t(p0);
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	return {{c0, c1, c2, c3}};
}

// random64 are the bits of counter i (num.Stream.Uint64).
__device__ __forceinline__ u64 random64(u64 key, u64 i) {
	Block b = randomBlock(key, i / 2);
	return i & 1 ? u64(b.w[3]) << 32 | b.w[2] : u64(b.w[1]) << 32 | b.w[0];
}

// drawKey and drawRow take the argument Draw of an op apart (kernels.DrawWords).
__device__ __forceinline__ u64 drawKey(const int *draw) { return u64(uint32_t(draw[0])) | u64(uint32_t(draw[1])) << 32; }
__device__ __forceinline__ u64 drawRow(const int *draw) { return uint32_t(draw[2]); }
