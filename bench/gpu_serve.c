// SPDX-License-Identifier: Apache-2.0
/* A contender's process: does points and says what they took. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "gpu.h"
#include "gpu/driver.h"

char *bench_device;
size_t bench_file_size;
static void *context;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double cpu_time(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* The peak of resident memory counts from here. */
static void reset_peak(void)
{
	int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, "5", 1) != 1)
		fprintf(stderr, "gpu: the peak of memory counts from the start\n");
	close(fd);
}

static long peak_kib(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[128];
	long kib = 0;

	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "VmHWM:", 6))
			kib = strtol(line + 6, NULL, 10);
	}
	if (f)
		fclose(f);
	return kib;
}

/* ------------------------------------------------------------------- CUDA */

const char *bench_start_cuda(void)
{
	const char *missing = driver_load();
	uintptr_t device;
	int number;

	if (missing)
		return missing;
	if (cu.device_get(&number, 0) || cu.primary_retain(&context, number) ||
	    cu.context_set(context) || cu.mem_alloc(&device, DEVICE_BUFFER))
		return "no CUDA context or memory";
	bench_device = (char *)device;
	return NULL;
}

const char *bench_enter_cuda(void)
{
	return cu.context_set(context) ? "cuCtxSetCurrent" : NULL;
}

double bench_copy_limit(bool to_host)
{
	size_t block = 256 * MIB;
	double start = now();
	void *pinned, *stream;

	if (cu.host_alloc(&pinned, block, DRIVER_HOST_PORTABLE) ||
	    cu.stream_create(&stream, DRIVER_STREAM_NON_BLOCKING))
		return 0;
	memset(pinned, 1, block);
	for (int i = 0; i < 20; i++) {
		uintptr_t host = (uintptr_t)pinned, device = (uintptr_t)bench_device;

		if (i == 4) {
			cu.stream_sync(stream);
			start = now();
		}
		if (cu.copy_async(to_host ? host : device, to_host ? device : host, block, stream))
			return 0;
	}
	if (cu.stream_sync(stream))
		return 0;
	start = now() - start;
	cu.host_free(pinned);
	return 16.0 * (double)block / start / 1e9;
}

/* ----------------------------------------------------------------- points */

static void *run_thread(void *arg)
{
	struct thread *t = arg;
	const struct point *p = t->point;
	size_t n = p->bytes / p->block;

	t->failed = t->contender->begin(t);
	for (size_t i = (size_t)t->index; i < n && !t->failed; i += (size_t)p->threads) {
		size_t at = i * p->block;

		if (t->contender->move(t, at % DEVICE_BUFFER, p->block,
				       (off_t)(((size_t)p->from + at) % bench_file_size)))
			t->failed = "a transfer failed";
		t->count++;
	}
	if (!t->failed && t->contender->end(t))
		t->failed = "the last copies failed";
	return NULL;
}

static void fail(struct result *r, const char *why)
{
	r->failed = true;
	snprintf(r->why, sizeof(r->why), "%s", why);
}

static void run_throughput(const struct contender *c, const struct point *p, struct result *r)
{
	static struct thread threads[MAX_THREADS];
	static pthread_t ids[MAX_THREADS];

	for (int i = 0; i < p->threads; i++) {
		struct thread *t = &threads[i];

		/* What a thread made it keeps for the next point. */
		t->contender = c;
		t->point = p;
		t->index = i;
		t->fd = bench_fds[p->direct];
		t->handle = p->direct;
		t->count = 0;
		t->failed = NULL;
		if (pthread_create(&ids[i], NULL, run_thread, t)) {
			fail(r, "no thread");
			return;
		}
	}
	for (int i = 0; i < p->threads; i++) {
		pthread_join(ids[i], NULL);
		if (threads[i].failed)
			fail(r, threads[i].failed);
		r->bytes += threads[i].count * p->block;
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Each from a place of its own, so that no cache below answers. */
static off_t scattered(size_t i, size_t block)
{
	return (off_t)(i * 7919 % (bench_file_size / block) * block);
}

static void run_one_by_one(const struct contender *c, const struct point *p, struct result *r)
{
	double *times = calloc(p->bytes, sizeof(*times));
	struct thread t = { .contender = c,
			    .point = p,
			    .fd = bench_fds[p->direct],
			    .handle = p->direct };
	const char *why = times ? c->begin(&t) : "no memory";
	uintptr_t buffer = 0;

	if (!why && p->what == REGISTER &&
	    (!c->registration || cu.mem_alloc(&buffer, p->buffer + 64 * KIB)))
		why = "cannot register";
	buffer = (buffer + 64 * KIB - 1) & ~(64 * KIB - 1);
	for (size_t i = 0; i < p->bytes && !why; i++) {
		double start = now();
		int err;

		if (p->what == REGISTER)
			err = c->registration(&t, (char *)buffer, p->buffer,
					      scattered(i, 64 * KIB));
		else
			err = c->move(&t, 0, p->block, scattered(i, p->block)) || c->end(&t);
		times[i] = now() - start;
		if (err)
			why = "a transfer failed";
	}
	if (why) {
		fail(r, why);
	} else {
		qsort(times, p->bytes, sizeof(*times), by_value);
		r->median = times[p->bytes / 2];
	}
	free(times);
}

static void run_point(const struct contender *c, const struct point *p, struct result *r)
{
	double start, cpu;

	memset(r, 0, sizeof(*r));
	reset_peak();
	cpu = cpu_time();
	start = now();
	if (p->what == THROUGHPUT)
		run_throughput(c, p, r);
	else if (p->what == LIMIT)
		r->median = bench_copy_limit(p->write);
	else
		run_one_by_one(c, p, r);
	r->seconds = now() - start;
	r->cpu = cpu_time() - cpu;
	r->rss_kib = peak_kib();
}

int bench_serve(const struct contender *c, int in, int out)
{
	struct result r = { 0 };
	const char *why = bench_start_cuda();
	struct point p;

	if (!why)
		why = c->start();
	if (why)
		fail(&r, why);
	/* The first answer is to no question: ready, or why not. */
	while (write(out, &r, sizeof(r)) == sizeof(r) && !why &&
	       read(in, &p, sizeof(p)) == sizeof(p))
		run_point(c, &p, &r);
	return 0;
}
