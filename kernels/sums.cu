// Counterparts of sums.go: one block, whose threads take every so many elements in
// float64, and a tree.
#include "device.cuh"

extern "C" __global__ void sum_loss(float *out, const float *x, i64 n) {
	double s = 0;
	for (i64 i = threadIdx.x; i < n; i += blockDim.x) s += x[i];
	s = sumBlock(s);
	if (threadIdx.x == 0) *out = float(s);
}
KERNEL(sum_loss)

extern "C" __global__ void sum_squares(float *out, const float *x, i64 n) {
	double s = 0;
	for (i64 i = threadIdx.x; i < n; i += blockDim.x) s += double(x[i]) * double(x[i]);
	s = sumBlock(s);
	if (threadIdx.x == 0) *out = float(s);
}
KERNEL(sum_squares)
