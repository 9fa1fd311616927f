// Streams, events and the schedules that show what does not wait for what.
#include "sim.hpp"

#include <chrono>

namespace sim {

Stream::Stream(Device *d, int n) : device(d), number(n), random(settings.seed * 2654435761u + n) {
	thread = std::thread([this] { run(); });
}

// end waits for the work and ends the thread; the stream itself stays, since marks and
// waits may name it.
void Stream::end() {
	drain();
	{
		std::lock_guard<std::mutex> lock(m);
		stop = true;
	}
	more.notify_all();
	thread.join();
}

bool Stream::lazy() const {
	return settings.mode == Settings::LAZY || (settings.mode == Settings::LAZY_ONE && number == settings.lazyStream);
}

void Stream::run() {
	for (;;) {
		std::function<void()> f;
		{
			std::unique_lock<std::mutex> lock(m);
			more.wait(lock, [this] { return stop || (!work.empty() && (!lazy() || started < wanted)); });
			if (stop) return;
			started++;
			f = std::move(work.front());
			work.pop_front();
			busy = true;
		}
		if (settings.mode == Settings::RANDOM && settings.delay > 0) {
			random = random * 1664525u + 1013904223u;
			std::this_thread::sleep_for(std::chrono::microseconds((random >> 8) % settings.delay));
		}
		f();
		{
			std::lock_guard<std::mutex> lock(m);
			busy = false;
		}
		empty.notify_all();
	}
}

uint64_t Stream::push(std::function<void()> f) {
	uint64_t position;
	{
		std::lock_guard<std::mutex> lock(m);
		work.push_back(std::move(f));
		position = ++pushed;
	}
	more.notify_one();
	return position;
}

void Stream::demand(uint64_t position) {
	{
		std::lock_guard<std::mutex> lock(m);
		if (position > wanted) wanted = position;
	}
	more.notify_all();
}

void Stream::drain() {
	std::unique_lock<std::mutex> lock(m);
	wanted = pushed;
	more.notify_all();
	empty.wait(lock, [this] { return work.empty() && !busy; });
}

bool Stream::idle() {
	std::lock_guard<std::mutex> lock(m);
	return work.empty() && !busy;
}

static Stream *newStream(Device *d) {
	std::lock_guard<std::mutex> lock(d->m);
	Stream *s = new Stream(d, d->made++);
	d->streams.push_back(s);
	return s;
}

Stream *streamOf(void *handle) {
	if (handle != nullptr) return (Stream *)handle;
	Context *c = current();
	if (c == nullptr) return nullptr;
	std::lock_guard<std::mutex> lock(global);
	if (c->device->standard == nullptr) c->device->standard = newStream(c->device);
	return c->device->standard;
}

void submit(Stream *s, const Entered &e, std::function<void()> work) {
	s->push([s, e, work = std::move(work)] {
		if (e.hang) {
			for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
		}
		if (e.later) failing(s->device, settings.faultCode);
		if (!s->device->failed) work();
	});
}

} // namespace sim

using namespace sim;

SIM_EXPORT cuStreamCreate(void **stream, unsigned) {
	Context *c = current();
	if (c == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(c->device);
	*stream = newStream(c->device);
	return OK;
}

SIM_EXPORT cuStreamCreateWithPriority(void **stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }

SIM_EXPORT cuCtxGetStreamPriorityRange(int *least, int *greatest) {
	*least = 0;
	*greatest = -5;
	return OK;
}

SIM_EXPORT cuStreamDestroy_v2(void *stream) {
	Stream *s = (Stream *)stream;
	if (s == nullptr) return INVALID_HANDLE;
	SIM_ENTER(s->device);
	{
		std::lock_guard<std::mutex> lock(s->device->m);
		std::erase(s->device->streams, s);
	}
	s->end();
	return OK;
}

SIM_EXPORT cuStreamSynchronize(void *stream) {
	Stream *s = streamOf(stream);
	if (s == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(s->device);
	s->drain();
	return s->device->failed;
}

SIM_EXPORT cuStreamQuery(void *stream) {
	Stream *s = streamOf(stream);
	if (s == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(s->device);
	return s->idle() ? OK : NOT_READY;
}

SIM_EXPORT cuStreamWriteValue32_v2(void *stream, Address at, uint32_t value, unsigned) {
	Stream *s = streamOf(stream);
	if (s == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(s->device);
	if (!pinned((void *)at, 4) && owner(at, 4) == nullptr) return INVALID_VALUE;
	submit(s, entered, [=] { __atomic_store_n((uint32_t *)at, value, __ATOMIC_RELEASE); });
	return OK;
}

enum { DISABLE_TIMING = 2 };

SIM_EXPORT cuEventCreate(void **event, unsigned flags) {
	Context *c = current();
	if (c == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(c->device);
	Event *e = new Event;
	e->timed = !(flags & DISABLE_TIMING);
	*event = e;
	return OK;
}

// The memory stays: work that was enqueued may still name the event.
SIM_EXPORT cuEventDestroy_v2(void *event) { return event == nullptr ? INVALID_HANDLE : OK; }

SIM_EXPORT cuEventRecord(void *event, void *stream) {
	Event *e = (Event *)event;
	Stream *s = streamOf(stream);
	if (e == nullptr) return INVALID_HANDLE;
	if (s == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(s->device);
	std::lock_guard<std::mutex> lock(e->m);
	uint64_t generation = ++e->issued;
	e->stream = s;
	e->position = s->push([e, generation] {
		std::lock_guard<std::mutex> lock(e->m);
		if (generation > e->done) e->done = generation;
		e->at = seconds();
		e->passed.notify_all();
	});
	return OK;
}

SIM_EXPORT cuStreamWaitEvent(void *stream, void *event, unsigned) {
	Event *e = (Event *)event;
	Stream *s = streamOf(stream);
	if (e == nullptr) return INVALID_HANDLE;
	if (s == nullptr) return INVALID_CONTEXT;
	SIM_ENTER(s->device);
	Stream *from;
	uint64_t position, generation;
	{
		std::lock_guard<std::mutex> lock(e->m);
		from = e->stream, position = e->position, generation = e->issued;
	}
	if (from == nullptr) return OK; // never recorded
	s->push([=] {
		from->demand(position);
		std::unique_lock<std::mutex> lock(e->m);
		e->passed.wait(lock, [&] { return e->done >= generation; });
	});
	return OK;
}

// A query is a demand: the host that asks would go on asking. Events with timing are
// read for statistics, and asking for those must not change what runs.
SIM_EXPORT cuEventQuery(void *event) {
	Event *e = (Event *)event;
	if (e == nullptr) return INVALID_HANDLE;
	Stream *from;
	uint64_t position;
	bool done;
	{
		std::lock_guard<std::mutex> lock(e->m);
		from = e->stream, position = e->position, done = e->done >= e->issued;
	}
	SIM_ENTER(from == nullptr ? nullptr : from->device);
	if (done) return OK;
	if (!e->timed) from->demand(position);
	return NOT_READY;
}

SIM_EXPORT cuEventSynchronize(void *event) {
	Event *e = (Event *)event;
	if (e == nullptr) return INVALID_HANDLE;
	std::unique_lock<std::mutex> lock(e->m);
	Stream *from = e->stream;
	if (from == nullptr) return OK;
	SIM_ENTER(from->device);
	uint64_t generation = e->issued;
	from->demand(e->position);
	e->passed.wait(lock, [&] { return e->done >= generation; });
	return from->device->failed;
}

SIM_EXPORT cuEventElapsedTime(float *ms, void *start, void *end) {
	Event *a = (Event *)start, *b = (Event *)end;
	if (a == nullptr || b == nullptr || !a->timed || !b->timed) return INVALID_HANDLE;
	std::scoped_lock lock(a->m, b->m);
	if (a->done < a->issued || b->done < b->issued) return NOT_READY;
	*ms = (float)(1e3 * (b->at - a->at));
	return OK;
}
