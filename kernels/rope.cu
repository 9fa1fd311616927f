// Counterpart of rope.go: a thread a pair.
#include "device.cuh"

extern "C" __global__ void rope(Values qkv, const float *cosine, const float *sine, const int *seg, float sign,
	i64 rows, i64 t, i64 heads, i64 width, i64 stride) {
	i64 half = width / 2;
	for each(e, rows * heads * half) {
		i64 i = e % half, h = e / half % heads, n = e / half / heads, p = n % t;
		if (seg != nullptr) p -= seg[n];
		float c = cosine[p * half + i], s = sign * sine[p * half + i];
		i64 at = n * stride + h * width + i;
		float u = qkv.load(at), v = qkv.load(at + half);
		qkv.store(at, u * c - v * s);
		qkv.store(at + half, v * c + u * s);
	}
}
KERNEL(rope)
