// Counterpart of soft.go: a block a row.
#include "device.cuh"

// softmaxBlock replaces z by softmax(scale*z) and returns its entropy.
__device__ inline float softmaxBlock(float *z, i64 n, float scale) {
	float top = -INFINITY, sum = 0, mean = 0;
	for (i64 i = threadIdx.x; i < n; i += blockDim.x) top = fmaxf(top, scale * z[i]);
	top = maxBlock(top);
	for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
		float x = scale * z[i] - top, e = expf(x);
		sum += e;
		mean += e * x;
	}
	sum = sumBlock(sum);
	mean = sumBlock(mean);
	__syncthreads();
	for (i64 i = threadIdx.x; i < n; i += blockDim.x) z[i] = expf(scale * z[i] - top) / sum;
	return logf(sum) - mean / sum;
}

extern "C" __global__ void soft_rows(float *logits, float *entropy, float scale, i64 v) {
	float h = softmaxBlock(logits + i64(blockIdx.x) * v, v, scale);
	if (threadIdx.x == 0) entropy[blockIdx.x] = h;
}
KERNEL(soft_rows)

// soft_top finds the k largest logits of a row one after the other: each time the largest
// of those that come after the one before, the lower id first among equals.
extern "C" __global__ void soft_top(const float *logits, int *ids, float *p, float *entropy, float scale, i64 v, i64 k) {
	const float *z = logits + i64(blockIdx.x) * v;
	ids += i64(blockIdx.x) * k;
	p += i64(blockIdx.x) * k;
	float last = INFINITY;
	i64 lastID = -1;
	for (i64 j = 0; j < k; j++) {
		float best = -INFINITY;
		i64 id = v - 1;
		for (i64 i = threadIdx.x; i < v; i += blockDim.x) {
			bool after = z[i] < last || (z[i] == last && i > lastID);
			if (after && z[i] > best) { // of equal ones a thread sees the lower id first
				best = z[i];
				id = i;
			}
		}
		float top = maxBlock(best);
		// An id is below 2^24, so a float holds it.
		id = i64(-maxBlock(best == top ? -float(id) : -float(v)));
		if (id >= v) id = v - 1;
		last = top;
		lastID = id;
		if (threadIdx.x == 0) {
			ids[j] = int(id);
			p[j] = top;
		}
	}
	__syncthreads();
	float h = softmaxBlock(p, k, scale);
	if (threadIdx.x == 0) entropy[blockIdx.x] = h;
}
KERNEL(soft_top)

// distill_rows is head_rows with the second term. The teacher is q, or k ids with p.
extern "C" __global__ void distill_rows(float *logits, float *loss, const int *targets, const float *scale, const float *q, const int *ids, const float *p, const float *entropy, float weight, float temp, i64 v, i64 k) {
	float *z = logits + i64(blockIdx.x) * v;
	int target = targets[blockIdx.x];
	if (target < 0) { // the same for the whole block
		if (threadIdx.x == 0) loss[blockIdx.x] = 0;
		if (scale != nullptr) {
			for (i64 i = threadIdx.x; i < v; i += blockDim.x) z[i] = 0;
		}
		return;
	}
	if (q != nullptr) q += i64(blockIdx.x) * v;
	else {
		ids += i64(blockIdx.x) * k;
		p += i64(blockIdx.x) * k;
	}
	float top = -INFINITY, sum = 0, warm = 0, mean = 0, rate = 1 / temp;
	for (i64 i = threadIdx.x; i < v; i += blockDim.x) top = fmaxf(top, z[i]);
	top = maxBlock(top);
	for (i64 i = threadIdx.x; i < v; i += blockDim.x) {
		sum += expf(z[i] - top);
		warm += expf(rate * (z[i] - top));
		if (q != nullptr) mean += q[i] * (z[i] - top);
	}
	if (q == nullptr) {
		for (i64 j = threadIdx.x; j < k; j += blockDim.x) mean += p[j] * (z[ids[j]] - top);
	}
	sum = sumBlock(sum);
	warm = sumBlock(warm);
	mean = sumBlock(mean);
	// The target's logit is read before any thread writes a gradient over it.
	if (threadIdx.x == 0) {
		float ce = top + logf(sum) - z[target], kl = logf(warm) - rate * mean - entropy[blockIdx.x];
		loss[blockIdx.x] = (1 - weight) * ce + weight * temp * temp * kl;
	}
	if (scale == nullptr) return;
	__syncthreads();
	float s = *scale;
	for (i64 i = threadIdx.x; i < v; i += blockDim.x) {
		float d = z[i] - top, g = (1 - weight) * (expf(d) / sum - (i == target)) + weight * temp * (expf(rate * d) / warm);
		if (q != nullptr) g -= weight * temp * q[i];
		z[i] = g * s;
	}
	if (q != nullptr) return;
	__syncthreads();
	for (i64 j = threadIdx.x; j < k; j += blockDim.x) z[ids[j]] -= weight * temp * p[j] * s;
}
KERNEL(distill_rows)
