// Images, kernels and launches.
#include "emu.hpp"
#include "sim.hpp"

#include <cstdio>
#include <dlfcn.h>

namespace sim {

// An image of the simulated driver is this word and the path of a library of kernels.
static const char magic[] = "refrain-sim ";

struct Module {
	const emu::Kernel *(*find)(const char *name);
	bool (*launch)(const emu::Kernel *k, void **values, dim3 grid, dim3 size, size_t shared);
};

struct Function {
	Module *module;
	const emu::Kernel *kernel;
	int shared = 48 << 10; // dynamic, at most
};

} // namespace sim

using namespace sim;

SIM_EXPORT cuModuleLoadData(void **module, const void *image) {
	Context *c = current();
	if (c == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(c->device);
	const char *text = (const char *)image;
	if (strncmp(text, magic, sizeof magic - 1) != 0) return INVALID_IMAGE;
	void *lib = dlopen(text + sizeof magic - 1, RTLD_NOW | RTLD_LOCAL);
	if (lib == nullptr) {
		fprintf(stderr, "simulated driver: %s\n", dlerror());
		return INVALID_IMAGE;
	}
	Module *m = new Module;
	*(void **)&m->find = dlsym(lib, "refrain_emu_find");
	*(void **)&m->launch = dlsym(lib, "refrain_emu_launch");
	if (m->find == nullptr || m->launch == nullptr) return INVALID_IMAGE;
	*module = m;
	return OK;
}

SIM_EXPORT cuModuleUnload(void *module) { return module == nullptr ? INVALID_HANDLE : OK; }

SIM_EXPORT cuModuleGetFunction(void **function, void *module, const char *name) {
	Module *m = (Module *)module;
	if (m == nullptr) return INVALID_HANDLE;
	const emu::Kernel *k = m->find(name);
	if (k == nullptr) return NOT_FOUND;
	*function = new Function{m, k};
	return OK;
}

SIM_EXPORT cuFuncGetParamInfo(void *function, size_t i, size_t *offset, size_t *size) {
	const emu::Kernel *k = ((Function *)function)->kernel;
	if (i >= k->parameters) return INVALID_VALUE;
	*offset = 0;
	for (size_t j = 0; j <= i; j++) {
		*offset = (*offset + k->sizes[j] - 1) / k->sizes[j] * k->sizes[j];
		if (j < i) *offset += k->sizes[j];
	}
	*size = k->sizes[i];
	return OK;
}

enum { MAX_THREADS_PER_BLOCK = 0, MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

SIM_EXPORT cuFuncSetAttribute(void *function, int attribute, int value) {
	if (attribute != MAX_DYNAMIC_SHARED_SIZE_BYTES) return INVALID_VALUE;
	if (value < 0 || value > 227 << 10) return INVALID_VALUE;
	((Function *)function)->shared = value;
	return OK;
}

SIM_EXPORT cuFuncGetAttribute(int *value, int attribute, void *function) {
	switch (attribute) {
	case MAX_THREADS_PER_BLOCK: *value = 1024; return OK;
	case MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = ((Function *)function)->shared; return OK;
	}
	*value = 0;
	return OK;
}

SIM_EXPORT cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, void *stream, void **parameters, void **extra) {
	Function *f = (Function *)function;
	Stream *s = streamOf(stream);
	if (f == nullptr) return INVALID_HANDLE;
	if (s == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(s->device);
	if (extra != nullptr) return NOT_SUPPORTED;
	uint64_t threads = uint64_t(bx) * by * bz;
	if (gx == 0 || gy == 0 || gz == 0 || gy > 65535 || gz > 65535 || threads == 0 || threads > 1024 || int(shared) > f->shared) {
		return INVALID_VALUE;
	}
	// The arguments are those of the call; what they point to is read when it runs.
	struct Arguments {
		std::vector<std::vector<char>> values;
		std::vector<void *> pointers;
	};
	auto a = std::make_shared<Arguments>();
	for (size_t i = 0; i < f->kernel->parameters; i++) {
		const char *v = (const char *)parameters[i];
		a->values.emplace_back(v, v + f->kernel->sizes[i]);
	}
	for (auto &v : a->values) a->pointers.push_back(v.data());
	submit(s, entered, [=] {
		if (!f->module->launch(f->kernel, a->pointers.data(), dim3(gx, gy, gz), dim3(bx, by, bz), shared)) {
			fprintf(stderr, "simulated driver: kernel %s wrote past its %u bytes of shared memory\n", f->kernel->name, shared);
			failing(s->device, ILLEGAL_ADDRESS);
		}
	});
	return OK;
}
