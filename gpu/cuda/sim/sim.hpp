// The simulated CUDA driver: what its files share. It exports the calls that package
// cuda makes, with the driver's names and codes, and runs on host memory: a stream is
// a thread, a kernel is the same source compiled by g++ (see emu.hpp).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace sim {

// Codes of the driver, by its documentation.
enum Code {
	OK = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_IMAGE = 200,
	INVALID_CONTEXT = 201,
	ECC_UNCORRECTABLE = 214,
	INVALID_HANDLE = 400,
	NOT_FOUND = 500,
	NOT_READY = 600,
	ILLEGAL_ADDRESS = 700,
	LAUNCH_FAILED = 719,
	PEER_ACCESS_ALREADY_ENABLED = 704,
	NOT_PERMITTED = 800,
	NOT_SUPPORTED = 801,
	SYSTEM_DRIVER_MISMATCH = 803,
};

typedef unsigned long long Address;

// Settings come from the environment variable REFRAIN_SIM or from refrain_sim_configure:
// words such as "devices=4 memory=64M mode=lazy". See configure for all of them.
struct Settings {
	int devices = 2;
	size_t memory = size_t(1) << 30; // bytes a device
	int version = 13000;
	int major = 9, minor = 0; // compute capability
	enum Mode { EAGER, RANDOM, LAZY, LAZY_ONE } mode = EAGER;
	int lazyStream = -1; // LAZY_ONE: its number in order of creation
	unsigned seed = 1;   // RANDOM
	int delay = 300;     // RANDOM: microseconds at most before an operation
	bool strict = true;  // asynchronous copies from pageable memory are refused

	// Faults: at the n-th call, from 1, of a function, or of any call when it is "*".
	std::string faultCall;
	long faultAt = 0;
	int faultCode = LAUNCH_FAILED;
	bool faultLater = false;    // the device fails when the work runs, not the call
	bool faultHang = false;     // the work never ends
	bool corruptPeer = false;   // a copy between devices flips a bit
	int initCode = OK;
};

struct Context;
struct Device;
struct Stream;

// Event is a mark of a stream: its newest record.
struct Event {
	bool timed;
	std::mutex m;
	std::condition_variable passed;
	Stream *stream = nullptr;
	uint64_t position = 0;          // of the newest record in its stream
	uint64_t issued = 0, done = 0;  // generations
	double at = 0;                  // seconds, when the newest passed
};

// Stream runs work in order on a thread of its own.
struct Stream {
	Stream(Device *d, int number);
	uint64_t push(std::function<void()> work); // returns its position, from 1
	void demand(uint64_t position);            // lets a lazy stream run that far
	void drain();                              // demands everything and waits for it
	void end();
	bool idle();

	Device *device;
	int number;

private:
	void run();
	bool lazy() const;

	std::mutex m;
	std::condition_variable more, empty;
	std::deque<std::function<void()>> work;
	uint64_t pushed = 0, started = 0, wanted = 0;
	bool busy = false, stop = false;
	unsigned random;
	std::thread thread;
};

struct Device {
	int ordinal;
	std::mutex m;
	size_t used = 0;
	std::map<Address, size_t> allocations;
	std::vector<Stream *> streams;
	int made = 0;               // streams, ever
	Stream *standard = nullptr; // the default stream
	Context *primary = nullptr;
	std::vector<bool> peers;    // access that was enabled
	std::atomic<int> failed{OK};
};

struct Context {
	Device *device;
	int holders = 0;
};

extern Settings settings;
extern std::vector<std::unique_ptr<Device>> devices;
extern std::mutex global;

Context *current();                    // of the calling thread, or null
Stream *streamOf(void *handle);        // the default stream for null; null without a context
bool pinned(const void *p, size_t n);  // whether all of it is page-locked
Device *owner(Address p, size_t n);    // of an allocation that holds all of it, or null
double seconds();

// enter counts a call and returns the code with which it fails, OK mostly. later is set
// when the call succeeds and its work fails the device.
struct Entered {
	int code;
	bool later, hang;
};
Entered enter(const char *call);

// guard is how every call that works on a device begins: a fault on demand, then the
// device's own failure.
#define SIM_ENTER(device)                                       \
	sim::Entered entered = sim::enter(__func__);                \
	if (entered.code != sim::OK) return sim::failing(device, entered.code); \
	if ((device) != nullptr && (device)->failed) return (device)->failed

int failing(Device *d, int code);      // makes a code that is sticky the device's failure
bool sticky(int code);

// submit pushes work on a stream, which is skipped when the device has failed, and
// which fails it when that was asked for.
void submit(Stream *s, const Entered &e, std::function<void()> work);

} // namespace sim

#define SIM_EXPORT extern "C" __attribute__((visibility("default"))) int
