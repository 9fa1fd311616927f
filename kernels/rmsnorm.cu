// Counterparts of rmsnorm.go, plain: a block a row, and a thread a column for the weight.
#include "device.cuh"

extern "C" __global__ void rmsnorm(Values out, float *rstd, const float *x, const float *w, float eps, i64 d) {
	i64 row = blockIdx.x;
	x += row * d;
	float s = 0;
	for (i64 i = threadIdx.x; i < d; i += blockDim.x) s = fmaf(x[i], x[i], s);
	float r = 1 / sqrtf(sumBlock(s) / d + eps);
	if (threadIdx.x == 0) rstd[row] = r;
	for (i64 i = threadIdx.x; i < d; i += blockDim.x) out.store(row * d + i, x[i] * r * w[i]);
}
KERNEL(rmsnorm)

// rmsnorm_dx: dx (+)= r*w*dy - x * r^3/D * sum(dy*w*x).
extern "C" __global__ void rmsnorm_dx(float *dx, Values dy, const float *x, const float *w, const float *rstd, i64 accumulate, i64 d) {
	i64 row = i64(blockIdx.x) * d;
	float c = 0, r = rstd[blockIdx.x];
	for (i64 i = threadIdx.x; i < d; i += blockDim.x) c = fmaf(dy.load(row + i) * w[i], x[row + i], c);
	c = sumBlock(c) * r * r * r / d;
	for (i64 i = threadIdx.x; i < d; i += blockDim.x) {
		float g = r * w[i] * dy.load(row + i) - x[row + i] * c;
		dx[row + i] = accumulate ? dx[row + i] + g : g;
	}
}
KERNEL(rmsnorm_dx)

// rmsnorm_part sums dy*x*r over the rows of a partial, whose borders depend on n alone.
extern "C" __global__ void rmsnorm_part(float *part, Values dy, const float *x, const float *rstd, i64 n, i64 d, i64 partials) {
	for each(k, partials * d) {
		i64 p = k / d, i = k % d;
		float s = 0;
		for (i64 row = p * n / partials; row < (p + 1) * n / partials; row++) s = fmaf(dy.load(row * d + i) * rstd[row], x[row * d + i], s);
		part[k] = s;
	}
}
KERNEL(rmsnorm_part)

// rmsnorm_dw adds the partials in order.
extern "C" __global__ void rmsnorm_dw(float *dw, const float *part, i64 accumulate, i64 d, i64 partials) {
	for each(i, d) {
		float s = accumulate ? dw[i] : 0;
		for (i64 p = 0; p < partials; p++) s += part[p * d + i];
		dw[i] = s;
	}
}
KERNEL(rmsnorm_dw)
