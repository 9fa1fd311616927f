//go:build cuda && cudaheaders

#include "native.h"

#include <string.h>

// The driver's calls, by their exported names. Handles are opaque here, and codes ints.
int cuGetErrorName(int code, const char **name);
int cuGetErrorString(int code, const char **text);
int cuMemHostAlloc(void **at, size_t bytes, unsigned flags);
int cuMemHostGetDevicePointer_v2(unsigned long long *device, void *at, unsigned flags);
int cuMemFreeHost(void *at);
int cuDeviceGetPCIBusId(char *id, int size, int device);

const char *refrain_cuda_error_name(int code) {
	const char *s = NULL;
	return cuGetErrorName(code, &s) == 0 ? s : NULL;
}

const char *refrain_cuda_error_text(int code) {
	const char *s = NULL;
	return cuGetErrorString(code, &s) == 0 ? s : NULL;
}

int refrain_cuda_host_alloc(void **at, unsigned long long *device, size_t bytes) {
	enum { PORTABLE = 1, DEVICEMAP = 2 };
	int code = cuMemHostAlloc(at, bytes, PORTABLE | DEVICEMAP);
	if (code != 0) {
		return code;
	}
	code = cuMemHostGetDevicePointer_v2(device, *at, 0);
	if (code != 0) {
		cuMemFreeHost(*at);
		return code;
	}
	memset(*at, 0, bytes);
	return 0;
}

int refrain_cuda_pci_id(char *id, int size, int device) { return cuDeviceGetPCIBusId(id, size, device); }

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, void *stream, void **parameters, void **extra);
int cuFuncSetAttribute(void *function, int attribute, int value);
int cuFuncGetParamInfo(void *function, size_t i, size_t *offset, size_t *size);

int refrain_cuda_launch_all(const refrain_cuda_launch *k, int n, void *stream) {
	for (int i = 0; i < n; i++) {
		int code = cuLaunchKernel(k[i].function, k[i].grid[0], k[i].grid[1], k[i].grid[2],
			k[i].block[0], k[i].block[1], k[i].block[2], k[i].shared, stream, k[i].parameters, NULL);
		if (code != 0) {
			return code;
		}
	}
	return 0;
}

int refrain_cuda_set_shared(void *function, int bytes) {
	enum { MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
	return cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

int refrain_cuda_parameter(void *function, size_t i, size_t *size) {
	size_t offset;
	return cuFuncGetParamInfo(function, i, &offset, size);
}
