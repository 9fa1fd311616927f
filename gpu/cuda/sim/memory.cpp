// Memory of devices, page-locked memory and copies.
#include "sim.hpp"

#include <sys/mman.h>

namespace sim {

static std::map<uintptr_t, size_t> locked; // page-locked ranges, under global

static const size_t page = 4096, alignment = 256;

bool pinned(const void *p, size_t n) {
	std::lock_guard<std::mutex> lock(global);
	auto it = locked.upper_bound((uintptr_t)p);
	if (it == locked.begin()) return false;
	--it;
	return (uintptr_t)p + n <= it->first + it->second;
}

Device *owner(Address p, size_t n) {
	for (auto &d : devices) {
		std::lock_guard<std::mutex> lock(d->m);
		auto it = d->allocations.upper_bound(p);
		if (it == d->allocations.begin()) continue;
		--it;
		if (p + n <= it->first + it->second) return d.get();
	}
	return nullptr;
}

// A block lies between pages that cannot be touched, as close to the second as its
// alignment allows. Its bytes are not zero before somebody writes them.
static void *guarded(size_t n) {
	size_t room = (n + alignment - 1) / alignment * alignment, body = (room + page - 1) / page * page;
	char *at = (char *)mmap(nullptr, body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED) return nullptr;
	if (mprotect(at + page, body, PROT_READ | PROT_WRITE) != 0) {
		munmap(at, body + 2 * page);
		return nullptr;
	}
	memset(at + page, 0xA5, body);
	return at + page + (body - room);
}

static void unguard(void *p, size_t n) {
	size_t room = (n + alignment - 1) / alignment * alignment, body = (room + page - 1) / page * page;
	munmap((char *)p - (body - room) - page, body + 2 * page);
}

} // namespace sim

using namespace sim;

SIM_EXPORT cuMemAlloc_v2(Address *p, size_t n) {
	Context *c = current();
	if (c == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(c->device);
	if (n == 0) return INVALID_VALUE;
	Device *d = c->device;
	std::lock_guard<std::mutex> lock(d->m);
	if (n > settings.memory - d->used) return OUT_OF_MEMORY;
	void *at = guarded(n);
	if (at == nullptr) return OUT_OF_MEMORY;
	*p = (Address)at;
	d->allocations[*p] = n;
	d->used += n;
	return OK;
}

SIM_EXPORT cuCtxSynchronize();

SIM_EXPORT cuMemFree_v2(Address p) {
	Context *c = current();
	if (c == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(c->device);
	cuCtxSynchronize();
	Device *d = c->device;
	std::lock_guard<std::mutex> lock(d->m);
	auto it = d->allocations.find(p);
	if (it == d->allocations.end()) return INVALID_VALUE;
	unguard((void *)p, it->second);
	d->used -= it->second;
	d->allocations.erase(it);
	return OK;
}

SIM_EXPORT cuMemGetInfo_v2(size_t *free, size_t *total) {
	Context *c = current();
	if (c == nullptr) return INVALID_CONTEXT;
	std::lock_guard<std::mutex> lock(c->device->m);
	*total = settings.memory;
	*free = settings.memory - c->device->used;
	return OK;
}

SIM_EXPORT cuMemHostAlloc(void **p, size_t n, unsigned) {
	Context *c = current();
	if (c == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(c->device);
	if (n == 0) return INVALID_VALUE;
	*p = guarded(n);
	if (*p == nullptr) return OUT_OF_MEMORY;
	std::lock_guard<std::mutex> lock(global);
	locked[(uintptr_t)*p] = n;
	return OK;
}

SIM_EXPORT cuMemHostGetDevicePointer_v2(Address *device, void *p, unsigned) {
	if (!pinned(p, 1)) return INVALID_VALUE;
	*device = (Address)p;
	return OK;
}

SIM_EXPORT cuMemFreeHost(void *p) {
	if (current() == nullptr) return INVALID_CONTEXT;
	std::lock_guard<std::mutex> lock(global);
	auto it = locked.find((uintptr_t)p);
	if (it == locked.end()) return INVALID_VALUE;
	unguard(p, it->second);
	locked.erase(it);
	return OK;
}

// copyTo enqueues a copy between a device and the host. A copy from pageable memory is
// taken when it is called and one to it is waited for, as the driver does; strict
// settings refuse both.
SIM_EXPORT cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t n, void *stream) {
	Stream *s = streamOf(stream);
	if (s == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(s->device);
	if (owner(to, n) == nullptr) return INVALID_VALUE;
	if (pinned(from, n)) {
		submit(s, entered, [=] { memcpy((void *)to, from, n); });
		return OK;
	}
	if (settings.strict) return INVALID_VALUE;
	auto taken = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + n);
	submit(s, entered, [=] { memcpy((void *)to, taken->data(), n); });
	return OK;
}

SIM_EXPORT cuMemcpyDtoHAsync_v2(void *to, Address from, size_t n, void *stream) {
	Stream *s = streamOf(stream);
	if (s == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(s->device);
	if (owner(from, n) == nullptr) return INVALID_VALUE;
	if (!pinned(to, n) && settings.strict) return INVALID_VALUE;
	submit(s, entered, [=] { memcpy(to, (void *)from, n); });
	if (!pinned(to, n)) s->drain();
	return s->device->failed;
}

SIM_EXPORT cuMemcpyDtoDAsync_v2(Address to, Address from, size_t n, void *stream) {
	Stream *s = streamOf(stream);
	if (s == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(s->device);
	if (owner(to, n) == nullptr || owner(from, n) == nullptr) return INVALID_VALUE;
	submit(s, entered, [=] { memmove((void *)to, (void *)from, n); });
	return OK;
}

SIM_EXPORT cuMemcpyPeerAsync(Address to, void *toContext, Address from, void *fromContext, size_t n, void *stream) {
	Stream *s = streamOf(stream);
	if (s == nullptr || toContext == nullptr || fromContext == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(s->device);
	Device *d = ((Context *)toContext)->device, *f = ((Context *)fromContext)->device;
	if (owner(to, n) != d || owner(from, n) != f) return INVALID_VALUE;
	bool corrupt = settings.corruptPeer && d != f;
	submit(s, entered, [=] {
		memmove((void *)to, (void *)from, n);
		if (corrupt) ((char *)to)[n / 2] ^= 4;
	});
	return OK;
}

template <class T> static int fill(Address to, T value, size_t n, void *stream, const Entered &entered) {
	Stream *s = streamOf(stream);
	if (owner(to, n * sizeof(T)) == nullptr) return INVALID_VALUE;
	submit(s, entered, [=] {
		for (size_t i = 0; i < n; i++) ((T *)to)[i] = value;
	});
	return OK;
}

#define SIM_FILL(name, type, waits, ...)                                       \
	SIM_EXPORT name(Address to, type value, size_t n __VA_OPT__(, ) __VA_ARGS__) { \
		void *stream = nullptr;                                                    \
		__VA_OPT__(stream = s;)                                                    \
		if (streamOf(stream) == nullptr) return INVALID_CONTEXT;                   \
		SIM_ENTER(streamOf(stream)->device);                                       \
		int code = fill(to, value, n, stream, entered);                            \
		if (code == OK && waits) streamOf(stream)->drain();                        \
		return code;                                                               \
	}

SIM_FILL(cuMemsetD8_v2, unsigned char, true)
SIM_FILL(cuMemsetD16_v2, unsigned short, true)
SIM_FILL(cuMemsetD32_v2, unsigned, true)
SIM_FILL(cuMemsetD8Async, unsigned char, false, void *s)
SIM_FILL(cuMemsetD16Async, unsigned short, false, void *s)
SIM_FILL(cuMemsetD32Async, unsigned, false, void *s)
