// Counterparts of adamw.go. The clip factor and the decision to halt stay on the GPU.
#include "device.cuh"

// guard runs on one thread.
extern "C" __global__ void guard(float *scale, int *halt, const float *sumsq, const float *loss, float most) {
	double norm = sqrt(double(*sumsq));
	if (*halt != 0 || norm - norm != 0 || *loss - *loss != 0) {
		*scale = 0;
		*halt = 1;
		return;
	}
	*scale = most > 0 && norm > double(most) ? float(double(most) / norm) : 1;
}
KERNEL(guard)

// hyper: lr, beta1, beta2, eps, 1/(1-beta1^t), 1/(1-beta2^t), 1-beta1, 1-beta2.
extern "C" __global__ void adamw(float *p, const float *g, float *m, float *v, const float *hyper, const float *scale, const int *halt,
	const float *factor, float decay, float multiplier, i64 n) {
	if (*halt != 0) return;
	double lr = double(hyper[0]) * double(multiplier), wd = double(decay) * (factor != nullptr ? double(*factor) : 1);
	float keep = float(1 - lr * wd), step = float(lr * double(hyper[4])), root = float(sqrt(double(hyper[5])));
	float b1 = hyper[1], b2 = hyper[2], eps = hyper[3], c1 = hyper[6], c2 = hyper[7], s = *scale;
	for each(i, n) {
		float x = g[i] * s;
		m[i] = b1 * m[i] + c1 * x;
		v[i] = b2 * v[i] + c2 * x * x;
		p[i] = p[i] * keep - step * m[i] / (sqrtf(v[i]) * root + eps);
	}
}
KERNEL(adamw)
