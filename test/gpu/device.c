// SPDX-License-Identifier: Apache-2.0
/*
 * The library on a GPU: every kind of memory, threads, kernels, failures and
 * ends of processes. Runs on the fake driver too, but for the kernels.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"

#define CASE(fn, ...) { .name = #fn, .run = fn, ##__VA_ARGS__ }

static char *registered(int id, size_t len)
{
	void *p;

	EQ(phxfs_mem_alloc(id, len, &p), 0);
	EQ(phxfs_regmem(id, p, len, NULL), 0);
	return p;
}

/* @len bytes at @p are the pattern @seed from @offset on. */
static void check_pattern(const char *p, size_t len, uint64_t seed, uint64_t offset)
{
	char *got = malloc(2 * MIB), *want = got + MIB;

	CHECK(got);
	for (size_t at = 0; at < len; at += MIB) {
		size_t n = len - at < MIB ? len - at : MIB;

		memory_get(got, p + at, n);
		gpu_pattern(want, n, seed, offset + at);
		CHECK(!memcmp(got, want, n));
	}
	free(got);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ----------------------------------------------------------------- memory */

static void the_device_is_described(void)
{
	struct phxfs_device_info info = { .size = sizeof(info) };
	int id = memory_device();

	EQ(phxfs_device_info(id, &info), 0);
	EQ(strlen(info.bdf), 12);
	if (!strcmp(info.vendor, "nvidia"))
		CHECK(strstr(info.name, "NVIDIA") && info.memory_bytes >= GIB);
	EQ(phxfs_find_device_bdf(info.bdf), id);
	printf("%s at %s, mode %d: ", info.name, info.bdf, info.mode);
}

/* Reads, writes and refuses beyond its end, with memory of every allocator. */
static void memory_of_every_kind(void)
{
	int id = memory_device(), fd = gpu_file(8 * MIB, 4, O_DIRECT), copy = gpu_file(0, 0, 0);

	for (enum memory_kind kind = 0; kind < MEMORY_KINDS; kind++) {
		char *p;

		gpu_context("memory: %s", memory_names[kind]);
		if (!memory_alloc(kind, 8 * MIB, &p)) {
			printf("(no %s) ", memory_names[kind]);
			continue;
		}
		EQ(phxfs_pointer_device(p + 12345), id);
		EQ(phxfs_regmem(id, p, 256 * MIB, NULL), -EFAULT);
		EQ(phxfs_regmem(id, p, 8 * MIB, NULL), 0);
		EQ(phxfs_read(fd, id, p, 0, 8 * MIB, 0), 8 * MIB);
		check_pattern(p, 8 * MIB, 4, 0);
		EQ(phxfs_read(fd, id, p + 5, 6, 3 * MIB + 1, 12345), 3 * MIB + 1);
		check_pattern(p + 11, 3 * MIB + 1, 4, 12345);
		check_pattern(p, 11, 4, 0);
		EQ(phxfs_write(copy, id, p, 11, 3 * MIB + 1, 77), 3 * MIB + 1);
		EQ(phxfs_read(copy, id, p, 0, 3 * MIB + 1, 77), 3 * MIB + 1);
		check_pattern(p, 3 * MIB + 1, 4, 12345);
		EQ(phxfs_deregmem(id, p, 8 * MIB), 0);
		memory_free(kind, p);
	}
	close(fd);
	close(copy);
}

/* A hole in a reserved range is no memory, also between two pieces. */
static void holes_are_refused(void)
{
	int id = memory_device(), fd, device;
	uintptr_t base;
	size_t size;
	char *p;

	EQ(cu.device_get(&device, 0), 0);
	EQ(driver_map_pieces(device, 5, 3, &size, &base), 0);
	p = (char *)base;
	fd = gpu_file(3 * size, 6, 0);
	EQ(phxfs_regmem(id, p, 5 * size, NULL), -EFAULT);
	EQ(phxfs_regmem(id, p + 3 * size, PAGE, NULL), -EFAULT);
	EQ(phxfs_regmem(id, p + 2 * size, 2 * size, NULL), -EFAULT);
	EQ(phxfs_regmem(id, p + 4 * size, size, NULL), 0);
	EQ(phxfs_regmem(id, p, 3 * size, NULL), 0);
	EQ(phxfs_read(fd, id, p, 0, (ssize_t)(3 * size), 0), 3 * size);
	check_pattern(p, 3 * size, 6, 0);
	close(fd);
}

static void host_memory_is_no_device_memory(void)
{
	int id = memory_device();
	void *pinned;

	EQ(cu.host_alloc(&pinned, 2 * MIB, DRIVER_HOST_PORTABLE), 0);
	EQ(phxfs_pointer_device(pinned), -ENOENT);
	EQ(phxfs_pointer_device(&pinned), -ENOENT);
	EQ(phxfs_regmem(id, pinned, MIB, NULL), -EFAULT);
}

/* All that is free, as one registration; its first and last bytes. */
static void all_free_memory_registers(void)
{
	int id = memory_device(), fd = gpu_file(4 * MIB, 5, O_DIRECT);
	size_t available, total, len;
	uintptr_t base;
	double start;
	char *p, *last;

	/* What the library needs is taken first. */
	p = registered(id, MIB);
	EQ(phxfs_read(fd, id, p, 0, MIB, 0), MIB);
	EQ(cu.mem_info(&available, &total), 0);
	for (len = available & ~(2 * MIB - 1); cu.mem_alloc(&base, len); len -= 64 * MIB)
		CHECK(len > available / 2);
	p = (char *)((base + PAGE - 1) & ~(PAGE - 1));
	len = (len - (size_t)(p - (char *)base)) & ~(PAGE - 1);
	start = now();
	EQ(phxfs_regmem(id, p, len, NULL), 0);
	printf("%.1f GiB registered in %.3f ms: ", (double)len / (double)GIB,
	       (now() - start) * 1e3);
	last = p + len - 4 * MIB;
	EQ(phxfs_read(fd, id, p, (off_t)(len - 4 * MIB), 4 * MIB, 0), 4 * MIB);
	check_pattern(last, 4 * MIB, 5, 0);
	EQ(phxfs_read(fd, id, p, 0, 4 * MIB, 0), 4 * MIB);
	check_pattern(p, 4 * MIB, 5, 0);
	EQ(phxfs_read(fd, id, p, (off_t)(len - 4 * MIB), 4 * MIB + 1, 0), -EFAULT);
	EQ(phxfs_deregmem(id, p, len), 0);
	EQ(cu.mem_free(base), 0);
	close(fd);
}

/* --------------------------------------------------------------- contexts */

static void memory_of_another_context(void)
{
	int id = memory_device(), fd = gpu_file(4 * MIB, 8, O_DIRECT), device;
	static void *other; /* stays: an exit with it is common */
	void *current;
	uintptr_t base;
	char *p;

	memory_need_contexts();
	if (!cu.context_create)
		gpu_skip("no contexts of its own");
	EQ(cu.device_get(&device, 0), 0);
	EQ(cu.context_create(&other, 0, device), 0);
	EQ(cu.mem_alloc(&base, 4 * MIB + PAGE), 0);
	p = (char *)((base + PAGE - 1) & ~(PAGE - 1));
	EQ(phxfs_regmem(id, p, 4 * MIB, NULL), 0);
	EQ(phxfs_read(fd, id, p, 0, 4 * MIB, 0), 4 * MIB);
	EQ(cu.context_current(&current), 0);
	CHECK(current == other);
	memory_thread();
	check_pattern(p, 4 * MIB, 8, 0);
	EQ(phxfs_deregmem(id, p, 4 * MIB), 0);
	close(fd);
}

struct recording {
	int id, fd;
	char *p;
};

static void transfer(void *arg)
{
	struct recording *r = arg;

	EQ(phxfs_read(r->fd, r->id, r->p, 0, 4 * MIB, 0), 4 * MIB);
	EQ(phxfs_write(r->fd, r->id, r->p, 0, MIB, 0), MIB);
}

/* A graph that one thread records is not spoilt by transfers, its own or others'. */
static void transfers_beside_a_graph(void)
{
	struct recording r = { memory_device(), gpu_file(4 * MIB, 1, 0), NULL };
	void *stream, *graph = NULL;

	r.p = registered(r.id, 4 * MIB);
	EQ(cu.stream_create(&stream, DRIVER_STREAM_NON_BLOCKING), 0);
	EQ(cu.begin_capture(stream, DRIVER_CAPTURE_GLOBAL), 0);
	gpu_in_thread(transfer, &r);
	transfer(&r);
	EQ(phxfs_deregmem(r.id, r.p, 4 * MIB), 0);
	EQ(cu.end_capture(stream, &graph), 0);
	close(r.fd);
}

/* ---------------------------------------------------------------- kernels */

/* What was read is what a kernel sees; what a kernel wrote is what is written. */
static void kernels_see_and_are_seen(void)
{
	int id = memory_device(), fd = gpu_file(8 * MIB, 3, O_DIRECT), copy = gpu_file(0, 0, 0);
	char *p = registered(id, 8 * MIB);
	uint64_t sum, want = 0, words[1024];
	void *stream;

	EQ(cu.stream_create(&stream, DRIVER_STREAM_NON_BLOCKING), 0);
	if (!kernel_count(p, 8 * MIB, 5, stream))
		gpu_skip("no kernels");
	EQ(cu.stream_sync(stream), 0);
	EQ(phxfs_read(fd, id, p, 0, 8 * MIB, 0), 8 * MIB);
	CHECK(kernel_sum(p, 8 * MIB, stream, &sum));
	for (size_t at = 0; at < 8 * MIB; at += sizeof(words)) {
		gpu_pattern(words, sizeof(words), 3, at);
		for (size_t i = 0; i < 1024; i++)
			want += words[i];
	}
	CHECK(sum == want);
	for (uint64_t round = 0; round < 50; round++) {
		kernel_count(p, 8 * MIB, round, stream);
		EQ(cu.stream_sync(stream), 0);
		EQ(phxfs_write(copy, id, p, 0, 8 * MIB, 0), 8 * MIB);
		EQ(pread(copy, words, sizeof(words), 8 * MIB - sizeof(words)), sizeof(words));
		for (uint64_t i = 0; i < 1024; i++)
			EQ(words[i], round + MIB - 1024 + i);
	}
	close(fd);
	close(copy);
}

/* ---------------------------------------------------------------- threads */

#define THREADS 16

struct worker {
	int id, index;
	int fd;
	pthread_t thread;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t seed = (uint64_t)w->index + 1;
	char *p;

	memory_thread();
	p = registered(w->id, 2 * MIB);
	for (int i = 0; i < 60; i++) {
		size_t len = 1 + gpu_below(&seed, i % 8 ? 70000 : 2 * MIB);
		size_t off = gpu_below(&seed, 16 * MIB - len);

		EQ(phxfs_read(w->fd, w->id, p, 0, (ssize_t)len, (off_t)off), len);
		check_pattern(p, len, 2, off);
		if (i % 10)
			continue;
		EQ(phxfs_deregmem(w->id, p, 2 * MIB), 0);
		EQ(phxfs_regmem(w->id, p, 2 * MIB, NULL), 0);
	}
	EQ(phxfs_deregmem(w->id, p, 2 * MIB), 0);
	EQ(phxfs_mem_free(w->id, p), 0);
	return NULL;
}

static void many_threads(void)
{
	int id = memory_device(), fd = gpu_file(16 * MIB, 2, O_DIRECT);
	struct worker w[THREADS];

	for (int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){ .id = id, .index = i, .fd = fd };
		CHECK(!pthread_create(&w[i].thread, NULL, work, &w[i]));
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
	close(fd);
}

/* More batches than one at a time, all apart in one buffer. */
static void batches_in_flight(void)
{
	int id = memory_device(), fd = gpu_file(32 * MIB, 2, O_DIRECT);
	static phxfs_io_req_t reqs[8][64];
	phxfs_batch_t *handles[8];
	char *p = registered(id, 32 * MIB);

	for (size_t b = 0; b < 8; b++) {
		for (size_t i = 0; i < 64; i++)
			reqs[b][i] = (phxfs_io_req_t){
				.fd = fd,
				.device_id = id,
				.buf = p,
				.buf_offset = (off_t)((b * 64 + i) * PAGE),
				.nbytes = PAGE,
				.f_offset = (off_t)((b * 64 + i) * PAGE),
			};
		handles[b] = phxfs_batch_submit_read(reqs[b], 64);
		CHECK(handles[b]);
	}
	for (size_t b = 0; b < 8; b++)
		EQ(phxfs_batch_wait(handles[b]), 0);
	check_pattern(p, 32 * MIB, 2, 0);
	close(fd);
}

/* --------------------------------------------------------------- failures */

static void failures_are_errors(void)
{
	int id = memory_device(), fd = gpu_file(MIB, 2, O_DIRECT), full, closed = dup(fd);
	char *p = registered(id, 4 * MIB);

	close(closed);
	EQ(phxfs_read(closed, id, p, 0, 4096, 0), -EBADF);
	EQ(phxfs_read(fd, id, p, 0, -1, 0), -EINVAL);
	EQ(phxfs_read(fd, id, p, 0, 4 * MIB, 0), MIB);
	EQ(phxfs_read(fd, id, p, 0, 4096, 9 * MIB), 0);
	EQ(phxfs_read(fd, id, p + 4 * MIB, 0, 1, 0), -EFAULT);
	full = open("/dev/full", O_RDWR);
	if (full >= 0) {
		EQ(phxfs_write(full, id, p, 0, 2 * MIB, 0), -ENOSPC);
		close(full);
	}
	EQ(phxfs_deregmem(id, p, 4 * MIB), 0);
	EQ(phxfs_read(fd, id, p, 0, 4096, 0), -EFAULT);
	EQ(phxfs_write(fd, id, p, 0, 4096, 0), -EFAULT);
	EQ(phxfs_mem_free(id, p), 0);
	EQ(phxfs_mem_free(id, p), -EINVAL);
	close(fd);
}

/* Memory that its owner freed beneath a registration: an error, no crash. */
static void freed_beneath_a_registration(void)
{
	int id = memory_device(), fd = gpu_file(4 * MIB, 2, O_DIRECT);
	uintptr_t base;
	char *p;

	EQ(cu.mem_alloc(&base, 64 * MIB), 0);
	p = (char *)((base + PAGE - 1) & ~(PAGE - 1));
	EQ(phxfs_regmem(id, p, 4 * MIB, NULL), 0);
	EQ(phxfs_read(fd, id, p, 0, 4 * MIB, 0), 4 * MIB);
	EQ(cu.mem_free(base), 0);
	CHECK(phxfs_read(fd, id, p, 0, 4 * MIB, 0) < 0);
	printf("(%s) ", phxfs_last_error());
	EQ(phxfs_deregmem(id, p, 4 * MIB), 0);
	close(fd);
}

static void too_much_memory(void)
{
	int id = memory_device();
	void *p = &p;

	EQ(phxfs_mem_alloc(id, 1UL << 44, &p), -ENOMEM);
	HAS(phxfs_last_error(), "out of memory");
	CHECK(p == &p);
}

/* ------------------------------------------------------ ends of processes */

static struct recording parent;

static void child(void)
{
	char host[4096], want[4096];

	EQ(phxfs_read(parent.fd, parent.id, parent.p, 0, MIB, 0), -EFAULT);
	EQ(phxfs_read(parent.fd, -1, host, 0, sizeof(host), 0), sizeof(host));
	gpu_pattern(want, sizeof(want), 2, 0);
	CHECK(!memcmp(host, want, sizeof(host)));
	EQ(phxfs_close(parent.id), 0);
}

static void fork_with_buffers(void)
{
	parent = (struct recording){ memory_device(), gpu_file(4 * MIB, 2, 0), NULL };
	parent.p = registered(parent.id, 4 * MIB);
	EQ(phxfs_read(parent.fd, parent.id, parent.p, 0, 4 * MIB, 0), 4 * MIB);
	EQ(gpu_in_child(child), 0);
	EQ(phxfs_read(parent.fd, parent.id, parent.p, 0, 4 * MIB, 0), 4 * MIB);
	check_pattern(parent.p, 4 * MIB, 2, 0);
}

static void *read_on(void *arg)
{
	struct recording *r = arg;

	while (phxfs_read(r->fd, r->id, r->p, 0, 4 * MIB, 0) >= 0)
		;
	return NULL;
}

/* exit() while another thread transfers and everything is open. */
static void exit_in_the_middle(void)
{
	static struct recording r;
	pthread_t thread;

	r = (struct recording){ memory_device(), gpu_file(4 * MIB, 2, 0), NULL };
	r.p = registered(r.id, 4 * MIB);
	EQ(phxfs_read(r.fd, r.id, r.p, 0, 4 * MIB, 0), 4 * MIB);
	CHECK(!pthread_create(&thread, NULL, read_on, &r));
	CHECK(!pthread_detach(thread));
	usleep(20000);
	/* leaving the case exits */
}

static void let_go(void)
{
	if (phxfs_deregmem(parent.id, parent.p, 4 * MIB) || phxfs_mem_free(parent.id, parent.p) ||
	    phxfs_close(parent.id))
		_exit(9);
}

/* A program's own atexit() handler comes after the driver's. */
static void let_go_after_the_driver(void)
{
	atexit(let_go);
	parent = (struct recording){ memory_device(), gpu_file(4 * MIB, 2, 0), NULL };
	parent.p = registered(parent.id, 4 * MIB);
	EQ(phxfs_read(parent.fd, parent.id, parent.p, 0, 4 * MIB, 0), 4 * MIB);
}

static const struct gpu_case cases[] = {
	CASE(the_device_is_described),
	CASE(memory_of_every_kind),
	CASE(holes_are_refused),
	CASE(host_memory_is_no_device_memory),
	CASE(all_free_memory_registers),
	CASE(memory_of_another_context),
	CASE(transfers_beside_a_graph),
	CASE(kernels_see_and_are_seen),
	CASE(many_threads),
	CASE(batches_in_flight),
	CASE(failures_are_errors),
	CASE(freed_beneath_a_registration),
	CASE(too_much_memory),
	CASE(fork_with_buffers),
	CASE(exit_in_the_middle),
	CASE(let_go_after_the_driver),
};

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
