//go:build cuda && cudaheaders

// The driver is opened when the process starts, by cu's own initialisation, and
// never closed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "native.h"
#include "symbols.h"

// NOT_FOUND is what a call returns that the driver does not export.
enum { NO_DEVICE = 100, NOT_FOUND = 500 };

void *refrain_cuda_slots[REFRAIN_CUDA_SYMBOLS];
static const char *const names[REFRAIN_CUDA_SYMBOLS] = {REFRAIN_CUDA_NAMES};
static void *library;
static const char *path = "libcuda.so.1";
static char problem[512];
static int init_result = NO_DEVICE;

static int lacking(void) { return NOT_FOUND; }

// cuInit takes the place of the driver's for cu, whose initialisation ends the process
// when it fails: it always succeeds, and the true result is kept.
int cuInit(unsigned flags) {
	const char *chosen = getenv("REFRAIN_CUDA_DRIVER");
	if (chosen != NULL && *chosen != 0) {
		path = chosen;
	}
	void *lib = library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (lib == NULL) {
		snprintf(problem, sizeof problem, "%s", dlerror());
		return 0;
	}
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
	if (init == NULL) {
		snprintf(problem, sizeof problem, "%s exports no cuInit", path);
		return 0;
	}
	for (int i = 0; i < REFRAIN_CUDA_SYMBOLS; i++) {
		void *at = dlsym(lib, names[i]);
		refrain_cuda_slots[i] = at != NULL ? at : (void *)lacking;
	}
	init_result = init(flags);
	return 0;
}

const char *refrain_cuda_load_problem(void) { return problem; }

int refrain_cuda_init_result(void) { return init_result; }

const char *refrain_cuda_path(void) { return path; }

int refrain_cuda_simulated(void) { return library != NULL && dlsym(library, "refrain_sim_configure") != NULL; }

int refrain_cuda_simulate(const char *settings) {
	int (*configure)(const char *) = library != NULL ? (int (*)(const char *))dlsym(library, "refrain_sim_configure") : NULL;
	return configure != NULL ? configure(settings) : -1;
}
