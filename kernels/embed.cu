// Counterparts of embed.go and segments.go. Ids were checked where batches are built.
#include "device.cuh"

extern "C" __global__ void embed(float *out, const int *tokens, const float *w, i64 n, i64 d) {
	for each(k, n * d) out[k] = w[i64(tokens[k / d]) * d + k % d];
}
KERNEL(embed)

// embed_bwd gives every row of the table a block, which looks for its token: the sum
// runs over rising n whatever the launch.
extern "C" __global__ void embed_bwd(float *dw, const float *dx, const int *tokens, i64 accumulate, i64 n, i64 v, i64 d) {
	for (i64 row = blockIdx.x; row < v; row += gridDim.x) {
		for (i64 i = threadIdx.x; i < d; i += blockDim.x) {
			float s = accumulate ? dw[row * d + i] : 0;
			for (i64 k = 0; k < n; k++) {
				if (tokens[k] == row) s += dx[k * d + i];
			}
			dw[row * d + i] = s;
		}
	}
}
KERNEL(embed_bwd)

extern "C" __global__ void segments(const uint8_t *starts, int *seg, i64 mask, i64 b, i64 t) {
	for each(row, b) {
		const uint8_t *bits = starts + row * ((t + 7) / 8);
		int first = 0;
		for (i64 p = 0; p < t; p++) {
			if (mask && (bits[p / 8] >> (p % 8) & 1)) first = int(p);
			seg[row * t + p] = first;
		}
	}
}
KERNEL(segments)
