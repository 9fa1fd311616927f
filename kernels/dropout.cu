// Counterparts of dropout.go and maskrows.go: a thread an element, each with its own bits.
#include "random.cuh"

// prefix is num.KeyPrefix of the op, perRow the elements of one row of the batch.
extern "C" __global__ void dropout(float *y, const float *x, const float *add, const int *draw, i64 prefix, i64 site, i64 row, i64 perRow,
	i64 bound, float scale, i64 n) {
	u64 key = keyWord(keyWord(u64(prefix), drawKey(draw)), u64(site));
	u64 from = (drawRow(draw) + u64(row)) * u64(perRow);
	for each(i, n) {
		u64 e = from + u64(i);
		uint32_t bits = randomBlock(key, e / 8).w[e % 8 / 2] >> (16 * (e % 2)) & 0xffff;
		float v = bits >= uint32_t(bound) ? mulRN(x[i], scale) : 0;
		y[i] = add != nullptr ? v + add[i] : v;
	}
}
KERNEL(dropout)

// twice is where row r stands in an output that has every row of a part of m rows twice.
__device__ __forceinline__ i64 twice(i64 r, i64 m) { return r / m * 2 * m + r % m; }

extern "C" __global__ void repeat_rows(int *out, const int *in, i64 m, i64 b, i64 t) {
	for each(k, b * t) {
		i64 first = twice(k / t, m);
		out[first * t + k % t] = out[(first + m) * t + k % t] = in[k];
	}
}
KERNEL(repeat_rows)

// shares and lost are num.KeyPrefix of the two streams; from and by are the bits of the
// least share and of how much more there may be.
extern "C" __global__ void mask_rows(int *out, const int *tokens, const int *draw, i64 shares, i64 lost, i64 fromBits, i64 byBits,
	i64 id, i64 vocab, i64 row, i64 m, i64 b, i64 t) {
	union { i64 bits; double v; } from = {fromBits}, by = {byBits};
	u64 key = drawKey(draw), shareKey = keyWord(u64(shares), key), tokenKey = keyWord(u64(lost), key), start = drawRow(draw) + u64(row);
	for each(k, b * t) {
		i64 r = k / t, p = k % t, first = twice(r, m);
		u64 g = start + u64(r);
		double u = (double(random64(shareKey, g) >> 12) + 0.5) * (1.0 / (1LL << 52));
		u64 bound = u64((from.v + mulRN(by.v, u)) * 4294967296.0);
		u64 w = random64(tokenKey, g * u64(t) + u64(p));
		int token = tokens[k];
		out[first * t + p] = token;
		if (w >> 32 < bound) token = id >= 0 ? int(id) : int(u64(uint32_t(w)) * u64(uint32_t(vocab)) >> 32);
		out[(first + m) * t + p] = token;
	}
}
KERNEL(mask_rows)
