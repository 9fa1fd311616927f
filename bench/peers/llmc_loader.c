/* Peer for bench loader: llm.c's DataLoader, compiled from a copy of llm.c that is
 * not kept here (install.sh llmc). It answers as peer_rows.py does.
 *
 *	loader STREAM DIR B T W
 *
 * llm.c shuffles whole batches: the rows of a batch stay together. Each batch pays
 * one copy of inputs and last targets into a ring of four page-aligned buffers. */
#include <time.h>
#include <unistd.h>
#include "llmc/dataloader.h"

static double clock_of(clockid_t c) {
	struct timespec t;
	clock_gettime(c, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double number_of(const char *line, const char *key) {
	char mark[64];
	snprintf(mark, sizeof mark, "\"%s\":", key);
	const char *p = strstr(line, mark);
	return p ? atof(p + strlen(mark)) : 0;
}

static size_t B, T, W;
static int *ring[4];
static volatile long seen;

/* put copies a batch as rows of T+1 ids and reads a word of every cache line. */
static int *put(DataLoader *l, int k) {
	int *buf = ring[k % 4];
	for (size_t b = 0; b < B; b++) {
		memcpy(buf + b * (T + 1), l->inputs + b * T, T * sizeof(int));
		buf[b * (T + 1) + T] = l->targets[b * T + T - 1];
	}
	long s = 0;
	for (size_t i = 0; i < B * (T + 1); i += 16) s += buf[i];
	seen += s;
	return buf;
}

static void open_epoch(DataLoader *l, const char *data, int shuffle, int epoch) {
	dataloader_init(l, data, B, T, 0, 1, shuffle);
	for (int e = 0; shuffle && e < epoch; e++) dataloader_reset(l); /* as many shuffles later */
}

static void deliver(const char *data, const char *q, int shuffle) {
	double limit = number_of(q, "limit"), pace = number_of(q, "pace");
	size_t n = 0, cap = 1 << 20, found = 0;
	double *waits = malloc(cap * sizeof *waits);
	double began = clock_of(CLOCK_MONOTONIC), start = 0, cpu = 0, first = 0, now;
	DataLoader l;
	open_epoch(&l, data, shuffle, (int)number_of(q, "epoch"));
	for (int k = 0;; k++) {
		double t0 = clock_of(CLOCK_MONOTONIC);
		dataloader_next_batch(&l);
		put(&l, k);
		now = clock_of(CLOCK_MONOTONIC);
		if (k == 0) {
			first = now - began;
			start = now;
			cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID);
		} else if (n < cap) {
			waits[n++] = now - t0;
			found += now - t0 <= 0.05 * pace;
		}
		if (now - start >= limit || n == cap) break;
		if (pace > 0) {
			struct timespec t = {(time_t)pace, (long)((pace - (time_t)pace) * 1e9)};
			nanosleep(&t, NULL);
		}
	}
	cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	dataloader_free(&l);
	qsort(waits, n, sizeof *waits, by_value);
	size_t m = n ? n : 1;
	if (!n) waits[0] = 0;
	printf("{\"tokens\":%zu,\"wall_s\":%.9f,\"cpu_s\":%.9f,\"first_s\":%.9f,\"p50_s\":%.9f,\"p99_s\":%.9f,\"max_s\":%.9f,\"found\":%.6f}\n",
	       n * B * T, now - start, cpu, first, waits[m / 2], waits[m * 99 / 100], waits[m - 1], (double)found / m);
	free(waits);
}

static void dump(const char *data, const char *q, int shuffle) {
	char path[4096];
	const char *p = strstr(q, "\"dump\":\"");
	size_t n = strcspn(p + 8, "\"");
	if (n >= sizeof path) {
		printf("{\"error\":\"the path is too long\"}\n");
		return;
	}
	memcpy(path, p + 8, n);
	path[n] = 0;
	FILE *f = fopen(path, "wb");
	if (!f) {
		printf("{\"error\":\"the dump does not open\"}\n");
		return;
	}
	DataLoader l;
	open_epoch(&l, data, shuffle, (int)number_of(q, "epoch"));
	size_t batches = l.shard_num_samples;
	for (size_t k = 0; k < batches; k++) {
		dataloader_next_batch(&l);
		fwrite(put(&l, (int)k), sizeof(int), B * (T + 1), f);
	}
	dataloader_free(&l);
	if (fclose(f) != 0) printf("{\"error\":\"the dump could not be written\"}\n");
	else printf("{\"rows\":%zu}\n", batches * B);
}

int main(int argc, char **argv) {
	static char data[4096], q[8192];
	if (argc != 6) {
		fprintf(stderr, "usage: loader STREAM DIR B T W\n");
		return 2;
	}
	B = atol(argv[3]), T = atol(argv[4]), W = atol(argv[5]);
	size_t n = W * T + 1;
	snprintf(data, sizeof data, "%s/shard.bin", argv[2]);
	uint16_t *ids = malloc(n * sizeof *ids);
	FILE *in = fopen(argv[1], "rb"), *out = fopen(data, "wb");
	int header[HEADER_SIZE] = {20240520, 1, (int)n};
	int ok = ids && in && out && n <= 2147483647 && fread(ids, sizeof *ids, n, in) == n &&
	         fwrite(header, sizeof(int), HEADER_SIZE, out) == HEADER_SIZE && fwrite(ids, sizeof *ids, n, out) == n && fclose(out) == 0;
	for (int i = 0; i < 4; i++) ok = posix_memalign((void **)&ring[i], 4096, B * (T + 1) * sizeof(int)) == 0 && ok;
	free(ids);
	if (!ok) {
		printf("{\"error\":\"the corpus could not be copied into llm.c's format\"}\n");
		return 1;
	}
	printf("{\"versions\":{\"llm.c\":\"compiled copy\"},\"settings\":[\"fread\"],\"modes\":[\"fixed\",\"reshuffle\"]}\n");
	fflush(stdout);
	while (fgets(q, sizeof q, stdin)) {
		int shuffle = strstr(q, "\"mode\":\"reshuffle\"") != NULL;
		if (strstr(q, "\"dump\":")) dump(data, q, shuffle);
		else deliver(data, q, shuffle);
		fflush(stdout);
	}
	return 0;
}
