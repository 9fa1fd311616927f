// Settings, faults, devices and contexts.
#include "sim.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace sim {

Settings settings;
std::vector<std::unique_ptr<Device>> devices;
std::mutex global;

static std::atomic<long> calls{0};
static thread_local Context *attached = nullptr;

double seconds() {
	using namespace std::chrono;
	return duration<double>(steady_clock::now().time_since_epoch()).count();
}

// bytes reads a number with K, M or G behind it.
static size_t bytes(const std::string &s) {
	char *end;
	size_t n = strtoull(s.c_str(), &end, 10);
	switch (*end) {
	case 'K': return n << 10;
	case 'M': return n << 20;
	case 'G': return n << 30;
	}
	return n;
}

// configure applies words to settings; it returns the word that it does not know.
static std::string configure(const char *text, Settings &s) {
	std::istringstream in(text);
	for (std::string word; in >> word;) {
		size_t eq = word.find('=');
		std::string key = word.substr(0, eq), value = eq == std::string::npos ? "" : word.substr(eq + 1);
		int n = atoi(value.c_str());
		if (key == "devices") s.devices = n;
		else if (key == "memory") s.memory = bytes(value);
		else if (key == "version") s.version = n;
		else if (key == "arch") s.major = n / 10, s.minor = n % 10;
		else if (key == "seed") s.seed = n;
		else if (key == "delay") s.delay = n;
		else if (key == "strict") s.strict = n;
		else if (key == "init") s.initCode = n;
		else if (key == "corrupt-peer") s.corruptPeer = n;
		else if (key == "fault") s.faultCall = value;
		else if (key == "fault-at") s.faultAt = n;
		else if (key == "fault-code") s.faultCode = n;
		else if (key == "fault-later") s.faultLater = n;
		else if (key == "fault-hang") s.faultHang = n;
		else if (key == "lazy-stream") s.mode = Settings::LAZY_ONE, s.lazyStream = n;
		else if (word == "mode=eager") s.mode = Settings::EAGER;
		else if (word == "mode=random") s.mode = Settings::RANDOM;
		else if (word == "mode=lazy") s.mode = Settings::LAZY;
		else return word;
	}
	return "";
}

bool sticky(int code) { return code == ECC_UNCORRECTABLE || code == ILLEGAL_ADDRESS || code == LAUNCH_FAILED; }

int failing(Device *d, int code) {
	if (d != nullptr && sticky(code)) {
		int none = OK;
		d->failed.compare_exchange_strong(none, code);
	}
	return code;
}

Entered enter(const char *call) {
	std::lock_guard<std::mutex> lock(global);
	if (settings.faultAt <= 0 || (settings.faultCall != "*" && settings.faultCall != call) || ++calls != settings.faultAt) {
		return {OK, false, false};
	}
	if (settings.faultHang || settings.faultLater) {
		return {OK, settings.faultLater, settings.faultHang};
	}
	return {settings.faultCode, false, false};
}

Context *current() { return attached; }

} // namespace sim

using namespace sim;

// refrain_sim_configure makes the driver as if it had just been started with these
// settings. Nothing of it may be in use. It returns 1 for a word that it does not know.
SIM_EXPORT refrain_sim_configure(const char *text) {
	std::lock_guard<std::mutex> lock(global);
	Settings s;
	std::string unknown = configure(text, s);
	if (!unknown.empty()) {
		fprintf(stderr, "simulated driver: %s is no setting\n", unknown.c_str());
		return 1;
	}
	settings = s;
	calls = 0;
	devices.clear();
	for (int i = 0; i < s.devices; i++) {
		devices.push_back(std::make_unique<Device>());
		devices[i]->ordinal = i;
		devices[i]->primary = new Context{devices[i].get()};
		devices[i]->peers.assign(s.devices, false);
	}
	return 0;
}

SIM_EXPORT cuInit(unsigned flags) {
	const char *text = getenv("REFRAIN_SIM");
	if (flags != 0) return INVALID_VALUE;
	if (refrain_sim_configure(text ? text : "") != 0) return INVALID_VALUE;
	if (settings.initCode != OK) return settings.initCode;
	return settings.devices > 0 ? OK : NO_DEVICE;
}

SIM_EXPORT cuDriverGetVersion(int *version) {
	*version = settings.version;
	return OK;
}

static Device *device(int ordinal) { return ordinal < 0 || ordinal >= (int)devices.size() ? nullptr : devices[ordinal].get(); }

SIM_EXPORT cuDeviceGetCount(int *n) {
	SIM_ENTER((Device *)nullptr);
	*n = (int)devices.size();
	return OK;
}

SIM_EXPORT cuDeviceGet(int *d, int ordinal) {
	SIM_ENTER((Device *)nullptr);
	if (device(ordinal) == nullptr) return INVALID_DEVICE;
	*d = ordinal;
	return OK;
}

SIM_EXPORT cuDeviceGetName(char *name, int n, int d) {
	if (device(d) == nullptr) return INVALID_DEVICE;
	snprintf(name, n, "Simulated GPU");
	return OK;
}

SIM_EXPORT cuDeviceTotalMem_v2(size_t *n, int d) {
	if (device(d) == nullptr) return INVALID_DEVICE;
	*n = settings.memory;
	return OK;
}

SIM_EXPORT cuDeviceGetPCIBusId(char *id, int n, int d) {
	if (device(d) == nullptr) return INVALID_DEVICE;
	snprintf(id, n, "0000:%02x:00.0", 16 + d);
	return OK;
}

SIM_EXPORT cuDeviceGetAttribute(int *value, int attribute, int d) {
	if (device(d) == nullptr) return INVALID_DEVICE;
	switch (attribute) {
	case 1: *value = 1024; return OK;            // threads a block
	case 8: *value = 48 << 10; return OK;        // shared memory a block
	case 10: *value = 32; return OK;             // warp
	case 16: *value = 4; return OK;              // multiprocessors
	case 75: *value = settings.major; return OK; // compute capability
	case 76: *value = settings.minor; return OK;
	case 97: *value = 227 << 10; return OK;      // shared memory a block on request
	}
	*value = 0;
	return OK;
}

SIM_EXPORT cuDeviceCanAccessPeer(int *can, int d, int peer) {
	if (device(d) == nullptr || device(peer) == nullptr) return INVALID_DEVICE;
	*can = d != peer;
	return OK;
}

SIM_EXPORT cuDevicePrimaryCtxSetFlags_v2(int d, unsigned) { return device(d) == nullptr ? INVALID_DEVICE : OK; }

SIM_EXPORT cuDevicePrimaryCtxRetain(void **context, int d) {
	Device *dev = device(d);
	if (dev == nullptr) return INVALID_DEVICE;
	SIM_ENTER(dev);
	std::lock_guard<std::mutex> lock(global);
	dev->primary->holders++;
	*context = dev->primary;
	return OK;
}

// What the context still has stays: the simulator ends with the process.
SIM_EXPORT cuDevicePrimaryCtxRelease_v2(int d) {
	Device *dev = device(d);
	if (dev == nullptr) return INVALID_DEVICE;
	std::lock_guard<std::mutex> lock(global);
	if (dev->primary->holders == 0) return INVALID_CONTEXT;
	dev->primary->holders--;
	return OK;
}

SIM_EXPORT cuCtxSetCurrent(void *context) {
	attached = (Context *)context;
	return OK;
}

SIM_EXPORT cuCtxGetCurrent(void **context) {
	*context = attached;
	return OK;
}

SIM_EXPORT cuCtxGetDevice(int *d) {
	if (attached == nullptr) return INVALID_CONTEXT;
	*d = attached->device->ordinal;
	return OK;
}

SIM_EXPORT cuCtxSynchronize() {
	if (attached == nullptr) return INVALID_CONTEXT;
	Device *d = attached->device;
	SIM_ENTER(d);
	std::vector<Stream *> streams;
	{
		std::lock_guard<std::mutex> lock(d->m);
		streams = d->streams;
	}
	for (Stream *s : streams) s->drain();
	return d->failed;
}

SIM_EXPORT cuCtxEnablePeerAccess(void *peer, unsigned) {
	if (attached == nullptr || peer == nullptr) return INVALID_CONTEXT;
	Device *d = attached->device;
	std::lock_guard<std::mutex> lock(d->m);
	int to = ((Context *)peer)->device->ordinal;
	if (d->peers[to]) return PEER_ACCESS_ALREADY_ENABLED;
	d->peers[to] = true;
	return OK;
}

// Names of codes, those that the simulator returns.
struct Named {
	int code;
	const char *name, *text;
};
static const Named codes[] = {
	{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
	{INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
	{INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
	{NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
};

static int describe(int code, const char **out, const char *Named::*field) {
	for (const Named &n : codes) {
		if (n.code == code) {
			*out = n.*field;
			return OK;
		}
	}
	return INVALID_VALUE;
}

SIM_EXPORT cuGetErrorName(int code, const char **name) { return describe(code, name, &Named::name); }
SIM_EXPORT cuGetErrorString(int code, const char **text) { return describe(code, text, &Named::text); }
