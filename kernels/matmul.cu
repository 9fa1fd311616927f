// The plain product, the definition that faster ones are held to: a thread an element,
// one chain of fused multiply-adds over rising k.
#include "device.cuh"

// Factor is a matrix with any strides. With round its floats are rounded to bfloat16
// before they are multiplied.
struct Factor {
	Values v;
	i64 major, minor, round;

	__device__ __forceinline__ float at(i64 i, i64 k) const {
		float x = v.load(i * major + k * minor);
		return round ? fromBF16(toBF16(x)) : x;
	}
};

// product sets c [m,n] to a [m,k] times b [k,n] (b is given as [n,k]), plus add where
// there is one, which may be c. Terms whose k is masked, with a mask below 0, are left out.
extern "C" __global__ void product(Values c, const float *add, Factor a, Factor b, const int *mask, i64 m, i64 n, i64 k) {
	for each(e, m * n) {
		i64 i = e / n, j = e % n;
		float s = 0;
		for (i64 l = 0; l < k; l++) {
			if (mask != nullptr && mask[l] < 0) continue;
			s = fmaf(a.at(i, l), b.at(j, l), s);
		}
		c.store(e, add != nullptr ? add[e] + s : s);
	}
}
KERNEL(product)
