// Fibers: the threads of a block, run one at a time.
#include "emu.hpp"

#include <cstdlib>
#include <sys/mman.h>
#include <vector>

namespace emu {

constinit thread_local Self self;

static std::vector<Kernel> &table() {
	static std::vector<Kernel> t;
	return t;
}

void add(const Kernel &k) { table().push_back(k); }

struct Fiber {
	void *sp; // null before its start
	dim3 thread;
	bool done;
};

static const size_t stackBytes = 64 << 10;

// Block is the machinery of a stream's thread, kept between blocks.
struct Block {
	std::vector<Fiber> fibers;
	std::vector<Warp> warps;
	char *stacks = nullptr;
	size_t stackCount = 0;
	std::vector<unsigned> unused; // stacks
	void *caller;
	unsigned n, current, alive, arrived, number, next;
	void (*call)(void **);
	void **values;

	~Block() {
		if (stacks != nullptr) munmap(stacks, stackCount * stackBytes);
	}
};
static thread_local Block block;

extern "C" void refrain_emu_switch(void **save, void *load);
#if defined(__x86_64__)
asm(R"(.text
.globl refrain_emu_switch
.type refrain_emu_switch, @function
refrain_emu_switch:
	pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
	ret
)");
static const int saved = 6;
#else
#error "the simulator switches fibers on x86-64 only"
#endif

static void load(unsigned i) {
	Block &b = block;
	b.current = i;
	self.thread = b.fibers[i].thread;
	self.lane = i & 31;
	self.warp = &b.warps[i >> 5];
}

static void entry();

// fresh makes a stack on which entry begins.
static void *fresh() {
	Block &b = block;
	unsigned s = b.unused.back();
	b.unused.pop_back();
	void **sp = (void **)(b.stacks + stackBytes * (s + 1));
	*--sp = nullptr; // as if entry had been called from here
	*--sp = (void *)entry;
	for (int i = 0; i < saved; i++) *--sp = nullptr;
	return sp;
}

// enter goes on with fiber i.
static void enter(unsigned i, void **save) {
	Block &b = block;
	load(i);
	void *sp = b.fibers[i].sp;
	if (sp == nullptr) {
		b.next = i + 1;
		sp = fresh();
	}
	refrain_emu_switch(save, sp);
}

// other is the next fiber in [from, to) after c that has not ended; c when there is none.
static unsigned other(unsigned c, unsigned from, unsigned to) {
	unsigned i = c;
	do {
		i = i + 1 == to ? from : i + 1;
	} while (i != c && block.fibers[i].done);
	return i;
}

static void yieldIn(unsigned from, unsigned to) {
	unsigned c = block.current, i = other(c, from, to);
	if (i != c) enter(i, &block.fibers[c].sp);
}

void yieldWarp() {
	unsigned from = block.current & ~31u;
	yieldIn(from, from + 32 < block.n ? from + 32 : block.n);
}

static void complete() {
	block.arrived = 0;
	block.number++;
}

void barrier() {
	Block &b = block;
	unsigned number = b.number;
	if (++b.arrived == b.alive) {
		complete();
		return;
	}
	while (b.number == number) yieldIn(0, b.n);
}

// leave takes the current fiber out of its block and its warp, whose operations others
// may be waiting in: a thread that has returned counts as arrived.
static void leave() {
	Block &b = block;
	b.fibers[b.current].done = true;
	b.alive--;
	if (b.alive > 0 && b.arrived == b.alive) complete();
	Warp &w = b.warps[b.current >> 5];
	w.lanes--;
	if (w.lanes > 0 && w.arrived == w.lanes) {
		w.arrived = 0;
		w.number++;
	}
}

// entry is the life of a stack: a fiber that ended without ever waiting leaves it to
// the next one that has not begun.
static void entry() {
	Block &b = block;
	for (;;) {
		b.call(b.values);
		leave();
		void *gone;
		if (b.alive == 0) refrain_emu_switch(&gone, b.caller);
		unsigned c = b.current, i = other(c, 0, b.n);
		if (b.fibers[i].sp == nullptr) {
			b.next = i + 1;
			load(i);
			continue;
		}
		load(i);
		refrain_emu_switch(&gone, b.fibers[i].sp);
	}
}

static void prepare(unsigned n) {
	Block &b = block;
	b.n = n;
	b.fibers.resize(n);
	b.warps.resize((n + 31) / 32);
	if (b.stackCount < n) {
		if (b.stacks != nullptr) munmap(b.stacks, b.stackCount * stackBytes);
		b.stacks = (char *)mmap(nullptr, n * stackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (b.stacks == MAP_FAILED) abort();
		b.stackCount = n;
	}
}

// canary lies behind the shared memory of a block.
static const unsigned char canary = 0x5C, poison = 0xFF;

// launch runs a kernel; it returns false when a block wrote past its shared memory.
static bool launch(void (*call)(void **), void **values, dim3 grid, dim3 size, size_t shared) {
	Block &b = block;
	unsigned n = size.x * size.y * size.z;
	prepare(n);
	b.call = call;
	b.values = values;
	self.blockSize = size;
	self.gridSize = grid;
	const size_t after = 128;
	size_t room = (shared + after - 1) / after * after + after;
	self.shared = (char *)aligned_alloc(after, room);
	bool inside = true;
	for (unsigned z = 0; z < grid.z; z++) {
		for (unsigned y = 0; y < grid.y; y++) {
			for (unsigned x = 0; x < grid.x; x++) {
				memset(self.shared, poison, shared);
				memset(self.shared + shared, canary, room - shared);
				self.block = dim3(x, y, z);
				b.unused.clear();
				for (unsigned i = 0; i < n; i++) {
					b.fibers[i] = {nullptr, dim3(i % size.x, i / size.x % size.y, i / (size.x * size.y)), false};
					b.unused.push_back(n - 1 - i);
				}
				for (unsigned i = 0; i < b.warps.size(); i++) {
					b.warps[i].arrived = b.warps[i].number = 0;
					b.warps[i].lanes = n - 32 * i < 32 ? n - 32 * i : 32;
				}
				b.alive = n;
				b.arrived = b.number = 0;
				enter(0, &b.caller);
				for (size_t i = shared; i < room; i++) inside = inside && (unsigned char)self.shared[i] == canary;
			}
		}
	}
	free(self.shared);
	return inside;
}

} // namespace emu

// What the driver finds in a library of kernels.
extern "C" __attribute__((visibility("default"))) const emu::Kernel *refrain_emu_find(const char *name) {
	for (const emu::Kernel &k : emu::table()) {
		if (strcmp(k.name, name) == 0) return &k;
	}
	return nullptr;
}

extern "C" __attribute__((visibility("default"))) bool refrain_emu_launch(const emu::Kernel *k, void **values, dim3 grid, dim3 size, size_t shared) {
	return emu::launch(k->call, values, grid, size, shared);
}
