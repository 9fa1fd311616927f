// Counterparts of elementwise.go. A thread takes every so many elements; bytes moved
// are the floor.
#include "device.cuh"

extern "C" __global__ void fill(float *x, float value, i64 n) {
	for each(i, n) x[i] = value;
}
KERNEL(fill)

extern "C" __global__ void copy(float *__restrict__ dst, const float *__restrict__ src, i64 n) {
	for each(i, n) dst[i] = src[i];
}
KERNEL(copy)

extern "C" __global__ void cast(uint16_t *__restrict__ dst, const float *__restrict__ src, i64 n) {
	for each(i, n) dst[i] = toBF16(src[i]);
}
KERNEL(cast)

extern "C" __global__ void add_to(float *__restrict__ dst, const float *__restrict__ src, i64 n) {
	for each(i, n) dst[i] += src[i];
}
KERNEL(add_to)
