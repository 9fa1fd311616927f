// Counterpart of headloss.go: products are those of matmul.cu; between them a block a row
// turns logits into a loss and, where gradients are wanted, into the logits' gradient.
#include "device.cuh"

extern "C" __global__ void head_rows(float *logits, float *loss, const int *targets, const float *scale, i64 v) {
	float *z = logits + i64(blockIdx.x) * v;
	int target = targets[blockIdx.x];
	if (target < 0) { // the same for the whole block
		if (threadIdx.x == 0) loss[blockIdx.x] = 0;
		if (scale != nullptr) {
			for (i64 i = threadIdx.x; i < v; i += blockDim.x) z[i] = 0;
		}
		return;
	}
	float top = -INFINITY, sum = 0;
	for (i64 i = threadIdx.x; i < v; i += blockDim.x) top = fmaxf(top, z[i]);
	top = maxBlock(top);
	for (i64 i = threadIdx.x; i < v; i += blockDim.x) sum += expf(z[i] - top);
	sum = sumBlock(sum);
	// The target's logit is read before any thread writes a gradient over it.
	if (threadIdx.x == 0) loss[blockIdx.x] = top + logf(sum) - z[target];
	if (scale == nullptr) return;
	__syncthreads();
	for (i64 i = threadIdx.x; i < v; i += blockDim.x) z[i] = (expf(z[i] - top) / sum - (i == target)) * *scale;
}
KERNEL(head_rows)
