// Counterparts of swiglu.go: gate and up of a row lie side by side.
#include "device.cuh"

extern "C" __global__ void swiglu(Values a, Values gu, i64 n, i64 f) {
	for each(k, n * f) {
		i64 at = k / f * 2 * f + k % f;
		float g = gu.load(at), u = gu.load(at + f);
		a.store(k, g / (1 + expf(-g)) * u);
	}
}
KERNEL(swiglu)

extern "C" __global__ void swiglu_bwd(Values dgu, Values da, Values gu, i64 n, i64 f) {
	for each(k, n * f) {
		i64 at = k / f * 2 * f + k % f;
		float g = gu.load(at), u = gu.load(at + f), d = da.load(k), s = 1 / (1 + expf(-g));
		dgu.store(at, d * u * s * (1 + g * (1 - s)));
		dgu.store(at + f, d * g * s);
	}
}
KERNEL(swiglu_bwd)
