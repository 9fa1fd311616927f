// Counterparts of attention.go, plain: a thread a row of scores. Nothing is shared between
// threads, so the bits depend on nothing but the values.
#include "device.cuh"

// Heads finds heads in fused rows: query heads, key heads, value heads.
struct Heads {
	i64 t, h, kv, c;
	__device__ __forceinline__ i64 stride() const { return (h + 2 * kv) * c; }
	__device__ __forceinline__ i64 key(i64 head) const { return h + head / (h / kv); }
};

__device__ inline float dotHeads(Values x, i64 at, Values y, i64 to, i64 c) {
	float s = 0;
	for (i64 i = 0; i < c; i++) s = fmaf(x.load(at + i), y.load(to + i), s);
	return s;
}

extern "C" __global__ void attn(Values o, float *lse, Values qkv, const int *seg, i64 b, Heads a) {
	float scale = 1 / sqrtf(float(a.c));
	for each(e, b * a.h * a.t) {
		i64 t = e % a.t, h = e / a.t % a.h, row = e / a.t / a.h * a.t;
		i64 q = (row + t) * a.stride() + h * a.c, k = a.key(h) * a.c, v = k + a.kv * a.c;
		float top = -INFINITY, sum = 0;
		for (i64 j = seg[row + t]; j <= t; j++) top = fmaxf(top, dotHeads(qkv, q, qkv, (row + j) * a.stride() + k, a.c) * scale);
		for (i64 j = seg[row + t]; j <= t; j++) sum += expf(dotHeads(qkv, q, qkv, (row + j) * a.stride() + k, a.c) * scale - top);
		float l = top + logf(sum);
		lse[e] = l;
		// Some elements at a time, so that the weights are not computed for each.
		const int some = 16;
		for (i64 from = 0; from < a.c; from += some) {
			float acc[some] = {};
			for (i64 j = seg[row + t]; j <= t; j++) {
				float p = expf(dotHeads(qkv, q, qkv, (row + j) * a.stride() + k, a.c) * scale - l);
				for (int i = 0; i < some && from + i < a.c; i++) acc[i] = fmaf(p, qkv.load((row + j) * a.stride() + v + from + i), acc[i]);
			}
			for (int i = 0; i < some && from + i < a.c; i++) o.store((row + t) * a.h * a.c + h * a.c + from + i, acc[i]);
		}
	}
}
KERNEL(attn)

// scoreGrad returns the weight of query row n and key row j under head h, and dS in ds.
__device__ inline float scoreGrad(Values dout, Values o, const float *lse, Values qkv, i64 batch, i64 t, i64 j, i64 h, Heads a, float scale, float *ds) {
	i64 n = batch * a.t + t, q = n * a.stride() + h * a.c, key = (batch * a.t + j) * a.stride() + a.key(h) * a.c;
	i64 out = n * a.h * a.c + h * a.c;
	float p = expf(dotHeads(qkv, q, qkv, key, a.c) * scale - lse[(batch * a.h + h) * a.t + t]);
	float d = dotHeads(dout, out, o, out, a.c);
	*ds = p * (dotHeads(dout, out, qkv, key + a.kv * a.c, a.c) - d) * scale;
	return p;
}

// attn_dq: a thread a query row and head.
extern "C" __global__ void attn_dq(Values dqkv, Values dout, Values o, const float *lse, Values qkv, const int *seg, i64 b, Heads a) {
	float scale = 1 / sqrtf(float(a.c));
	for each(e, b * a.h * a.t) {
		i64 t = e % a.t, h = e / a.t % a.h, batch = e / a.t / a.h, row = batch * a.t;
		const int some = 16;
		for (i64 from = 0; from < a.c; from += some) {
			float acc[some] = {}, ds;
			for (i64 j = seg[row + t]; j <= t; j++) {
				scoreGrad(dout, o, lse, qkv, batch, t, j, h, a, scale, &ds);
				for (int i = 0; i < some && from + i < a.c; i++) acc[i] = fmaf(ds, qkv.load((row + j) * a.stride() + a.key(h) * a.c + from + i), acc[i]);
			}
			for (int i = 0; i < some && from + i < a.c; i++) dqkv.store((row + t) * a.stride() + h * a.c + from + i, acc[i]);
		}
	}
}
KERNEL(attn_dq)

// attn_dkv: a thread a key row and key head, over the query heads that share it and the
// later rows of its document, in that order.
extern "C" __global__ void attn_dkv(Values dqkv, Values dout, Values o, const float *lse, Values qkv, const int *seg, i64 b, Heads a) {
	float scale = 1 / sqrtf(float(a.c));
	for each(e, b * a.kv * a.t) {
		i64 j = e % a.t, kv = e / a.t % a.kv, batch = e / a.t / a.kv, row = batch * a.t, group = a.h / a.kv;
		const int some = 16;
		for (i64 from = 0; from < a.c; from += some) {
			float dk[some] = {}, dv[some] = {}, ds;
			for (i64 h = kv * group; h < (kv + 1) * group; h++) {
				for (i64 t = j; t < a.t && seg[row + t] <= j; t++) {
					float p = scoreGrad(dout, o, lse, qkv, batch, t, j, h, a, scale, &ds);
					for (int i = 0; i < some && from + i < a.c; i++) {
						dk[i] = fmaf(ds, qkv.load((row + t) * a.stride() + h * a.c + from + i), dk[i]);
						dv[i] = fmaf(p, dout.load((row + t) * a.h * a.c + h * a.c + from + i), dv[i]);
					}
				}
			}
			i64 at = (row + j) * a.stride() + (a.h + kv) * a.c + from;
			for (int i = 0; i < some && from + i < a.c; i++) {
				dqkv.store(at + i, dk[i]);
				dqkv.store(at + a.kv * a.c + i, dv[i]);
			}
		}
	}
}
KERNEL(attn_dkv)
