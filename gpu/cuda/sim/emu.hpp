// What a kernel sees of CUDA when g++ compiles it for the simulated driver. A thread
// of a block is a fiber; all fibers of a block run on the stream's thread, one at a
// time, and change at barriers and at operations of a warp.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

struct dim3 {
	unsigned x, y, z;
	constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace emu {

struct Warp {
	unsigned long long slot[2][32]; // values of the operation, by the parity of its number
	unsigned arrived, number;
	unsigned lanes; // that exist and have not returned
};

// Self is the running thread.
struct Self {
	dim3 thread, block, blockSize, gridSize;
	unsigned lane = 0;
	Warp *warp = nullptr;
	char *shared = nullptr;
};
extern constinit thread_local Self self;

void barrier();       // of the block
void yieldWarp();     // runs another thread of the warp

// exchange gives v to the warp and returns what lane from gave. All lanes that have not
// returned take part.
template <class T> T exchange(T v, unsigned from) {
	static_assert(sizeof(T) <= 8, "a lane gives 8 bytes at most");
	Warp *w = self.warp;
	unsigned number = w->number;
	unsigned long long bits = 0;
	memcpy(&bits, &v, sizeof v);
	w->slot[number & 1][self.lane] = bits;
	if (++w->arrived == w->lanes) {
		w->arrived = 0;
		w->number = number + 1;
	} else {
		while (w->number == number) yieldWarp();
	}
	bits = w->slot[number & 1][from & 31];
	memcpy(&v, &bits, sizeof v);
	return v;
}

// Kernel is an entry of a library of kernels: its parameters' sizes and a call with
// pointers to their values.
struct Kernel {
	const char *name;
	size_t parameters;
	const size_t *sizes;
	void (*call)(void **values);
};

void add(const Kernel &k); // to the library's table

template <auto F> struct Caller;
template <class... A, void (*F)(A...)> struct Caller<F> {
	static constexpr size_t sizes[sizeof...(A) + 1] = {sizeof(A)..., 0};
	template <size_t... I> static void with(void **v, std::index_sequence<I...>) { F(*(A *)v[I]...); }
	static void call(void **v) { with(v, std::index_sequence_for<A...>{}); }
	static Kernel kernel(const char *name) { return {name, sizeof...(A), sizes, call}; }
};

} // namespace emu

#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define threadIdx (emu::self.thread)
#define blockIdx (emu::self.block)
#define blockDim (emu::self.blockSize)
#define gridDim (emu::self.gridSize)
#define __syncthreads() emu::barrier()

template <class T> inline T __shfl_sync(unsigned, T v, int lane) { return emu::exchange(v, lane); }
template <class T> inline T __shfl_xor_sync(unsigned, T v, int mask) { return emu::exchange(v, emu::self.lane ^ mask); }
template <class T> inline T __shfl_down_sync(unsigned, T v, int n) {
	unsigned from = emu::self.lane + n;
	return emu::exchange(v, from > 31 ? emu::self.lane : from);
}

// DYNAMIC_SHARED is the block's shared memory; there is no other.
#define DYNAMIC_SHARED(type, name) type *name = (type *)emu::self.shared

// KERNELS lists the entry points of a file.
#define EMU_CAT2(a, b) a##b
#define EMU_CAT(a, b) EMU_CAT2(a, b)
#define KERNEL(f) static const bool EMU_CAT(emu_registered_, f) = (emu::add(emu::Caller<f>::kernel(#f)), true);
