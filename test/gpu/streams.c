// SPDX-License-Identifier: Apache-2.0
/*
 * Transfers in a stream's order, between kernels. On the fake driver, which
 * has no kernels, fills stand for them.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

#define CASE(fn, ...) { .name = #fn, .run = fn, ##__VA_ARGS__ }
#define LEN (4 * MIB)

struct arguments {
	size_t nbytes;
	off_t buf_offset, f_offset;
	ssize_t done;
};

static void *new_stream(void)
{
	void *stream;

	EQ(cu.stream_create(&stream, DRIVER_STREAM_NON_BLOCKING), 0);
	return stream;
}

static char *registered(int id, size_t len)
{
	void *p;

	EQ(phxfs_mem_alloc(id, len, &p), 0);
	EQ(phxfs_regmem(id, p, len, NULL), 0);
	return p;
}

static void all_bytes(const void *at, size_t len, int byte)
{
	const unsigned char *p = at;

	for (size_t i = 0; i < len; i++)
		EQ(p[i], byte);
}

static int read_in(int fd, char *p, struct arguments *a, void *stream)
{
	a->done = -EINPROGRESS;
	return phxfs_read_stream(fd, p, &a->nbytes, &a->buf_offset, &a->f_offset, &a->done,
				 stream);
}

static int write_in(int fd, char *p, struct arguments *a, void *stream)
{
	a->done = -EINPROGRESS;
	return phxfs_write_stream(fd, p, &a->nbytes, &a->buf_offset, &a->f_offset, &a->done,
				  stream);
}

/*
 * fill, write to a file, fill, write elsewhere, read the first back, copy away:
 * each step sees what the one before it left, for many rounds without a wait.
 */
static void between_fills(void)
{
	enum { ROUNDS = 12 };
	int id = memory_device(), fd = gpu_file(0, 0, O_RDWR | O_DIRECT);
	struct arguments first[ROUNDS], second[ROUNDS], back[ROUNDS];
	char *p = registered(id, LEN), *copies, *host;
	void *stream = new_stream();

	CHECK(!posix_memalign((void **)&host, 4096, LEN));
	EQ(phxfs_mem_alloc(id, ROUNDS * LEN, (void **)&copies), 0);
	for (size_t i = 0; i < ROUNDS; i++) {
		first[i] = (struct arguments){ LEN, 0, (off_t)(2 * i * LEN), 0 };
		second[i] = (struct arguments){ LEN, 0, (off_t)((2 * i + 1) * LEN), 0 };
		back[i] = first[i];
		EQ(cu.fill_async((uintptr_t)p, (unsigned char)(2 * i + 1), LEN, stream), 0);
		EQ(write_in(fd, p, &first[i], stream), 0);
		EQ(cu.fill_async((uintptr_t)p, (unsigned char)(2 * i + 2), LEN, stream), 0);
		EQ(write_in(fd, p, &second[i], stream), 0);
		EQ(read_in(fd, p, &back[i], stream), 0);
		EQ(cu.copy_async((uintptr_t)copies + i * LEN, (uintptr_t)p, LEN, stream), 0);
	}
	EQ(cu.stream_sync(stream), 0);
	for (size_t i = 0; i < ROUNDS; i++) {
		gpu_context("round %zu", i);
		EQ(first[i].done, LEN);
		EQ(second[i].done, LEN);
		EQ(back[i].done, LEN);
		memory_get(host, copies + i * LEN, LEN);
		all_bytes(host, LEN, (int)(2 * i + 1));
		EQ(pread(fd, host, LEN, (off_t)((2 * i + 1) * LEN)), LEN);
		all_bytes(host, LEN, (int)(2 * i + 2));
	}
	free(host);
	close(fd);
}

static void between_kernels(void)
{
	int id = memory_device(), fd = gpu_file(0, 0, 0);
	char *p = registered(id, LEN);
	void *stream = new_stream();
	struct arguments a[20];
	uint64_t words[512];

	if (!kernel_count(p, LEN, 0, stream))
		gpu_skip("no kernels");
	for (size_t i = 0; i < 20; i++) {
		a[i] = (struct arguments){ LEN, 0, (off_t)(i * LEN), 0 };
		CHECK(kernel_count(p, LEN, 1000 * i, stream));
		EQ(write_in(fd, p, &a[i], stream), 0);
		CHECK(kernel_count(p, LEN, 99, stream)); /* must not reach the file */
	}
	EQ(cu.stream_sync(stream), 0);
	for (size_t i = 0; i < 20; i++) {
		EQ(a[i].done, LEN);
		for (size_t at = 0; at < LEN; at += MIB) {
			EQ(pread(fd, words, sizeof(words), (off_t)(i * LEN + at)), sizeof(words));
			for (size_t w = 0; w < 512; w++)
				EQ(words[w], 1000 * i + at / 8 + w);
		}
	}
	close(fd);
}

/* The arguments count as they are when the stream gets there. */
static void arguments_are_read_late(void)
{
	int id = memory_device(), fd = gpu_file(LEN, 1, 0);
	struct arguments a = { 1, 1, 1, 0 };
	char *p = registered(id, LEN), got[5000], want[5000];
	void *stream = new_stream();
	uint64_t *word;

	EQ(cu.host_alloc((void **)&word, 65536, DRIVER_HOST_PORTABLE), 0);
	*word = 0;
	EQ(cu.wait_value(stream, (uintptr_t)word, 1, 0), 0);
	EQ(read_in(fd, p, &a, stream), 0);
	usleep(30000);
	EQ(a.done, -EINPROGRESS);
	a.nbytes = sizeof(got);
	a.buf_offset = 77;
	a.f_offset = 12345;
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	EQ(cu.stream_sync(stream), 0);
	EQ(a.done, sizeof(got));
	memory_get(got, p + 77, sizeof(got));
	gpu_pattern(want, sizeof(want), 1, 12345);
	CHECK(!memcmp(got, want, sizeof(got)));
	close(fd);
}

/* What fails says so and lets the stream go on. */
static void failures_do_not_stall(void)
{
	int id = memory_device(), fd = gpu_file(LEN, 1, 0), closed = 1000;
	struct arguments bad[4] = { { LEN + 1, 0, 0, 0 }, { 1, -1, 0, 0 }, { 1, 0, -1, 0 },
				    { 4096, 0, 0, 0 } };
	static const int errors[4] = { -EFAULT, -EINVAL, -EINVAL, -EBADF };
	struct arguments good = { LEN, 0, 0, 0 };
	char *p = registered(id, LEN);
	void *stream = new_stream();

	for (int i = 0; i < 4; i++)
		EQ(read_in(i == 3 ? closed : fd, p, &bad[i], stream), 0);
	EQ(read_in(fd, p, &good, stream), 0);
	EQ(cu.stream_sync(stream), 0);
	for (int i = 0; i < 4; i++)
		EQ(bad[i].done, errors[i]);
	EQ(good.done, LEN);
	EQ(read_in(fd, p + LEN, &good, stream), -EFAULT);
	close(fd);
}

struct end {
	_Atomic int count;
	_Atomic ssize_t result;
};

static void ended(void *arg, ssize_t result)
{
	struct end *e = arg;

	e->result = result;
	e->count++;
}

/* Device memory that nobody registered, and host memory, take their turn too. */
static void memory_of_any_kind(void)
{
	int id = memory_device(), fd = gpu_file(LEN, 1, O_DIRECT);
	char *p, *got = malloc(LEN), *want = malloc(LEN), *host = malloc(LEN);
	struct phxfs_path_info info = { .size = sizeof(info) };
	void *memory, *stream = new_stream();
	off_t zero = 0, at = 4097;
	struct end ends[3] = { 0 };
	size_t n = LEN - 8192;

	CHECK(got && want && host);
	EQ(phxfs_mem_alloc(id, LEN, &memory), 0);
	p = memory;
	for (int i = 0; i < 3; i++) {
		char *const buffers[] = { p, host, p + LEN - 4096 };
		struct phxfs_stream_io io = { .size = sizeof(io), .op = PHXFS_OP_READ, .fd = fd,
					      .device_id = PHXFS_DEVICE_ANY, .buf = buffers[i],
					      .stream = stream, .nbytes = &n, .buf_offset = &zero,
					      .f_offset = &at, .done = ended, .arg = &ends[i] };

		EQ(phxfs_io_stream(&io), 0);
	}
	EQ(cu.stream_sync(stream), 0);
	for (int i = 0; i < 3; i++) {
		EQ(ends[i].count, 1);
		EQ(ends[i].result, i == 2 ? -EFAULT : (ssize_t)n);
	}
	memory_get(got, p, n);
	gpu_pattern(want, n, 1, 4097);
	CHECK(!memcmp(got, want, n));
	CHECK(!memcmp(host, want, n));

	EQ(phxfs_read(fd, PHXFS_DEVICE_ANY, p, 100, 5000, 3), 5000);
	memory_get(got, p + 100, 5000);
	gpu_pattern(want, 5000, 1, 3);
	CHECK(!memcmp(got, want, 5000));
	EQ(phxfs_read(fd, PHXFS_DEVICE_ANY, p, LEN - 100, 101, 0), -EFAULT);
	EQ(phxfs_read(fd, id, p, 0, 100, 0), -EFAULT);
	EQ(phxfs_path_query(fd, PHXFS_DEVICE_ANY, p, 4096, 0, &info), 0);
	EQ(info.reason, PHXFS_REASON_UNREGISTERED);
	EQ(phxfs_mem_free(id, p), 0);
	close(fd);
	free(got);
	free(want);
	free(host);
}

struct user {
	int id, fd, index;
	pthread_t thread;
};

static void *use_stream(void *arg)
{
	struct user *u = arg;
	struct arguments a[30];
	char *p, *got = malloc(MIB), *want = malloc(MIB);
	void *stream;

	memory_thread();
	CHECK(got && want);
	p = registered(u->id, MIB);
	stream = new_stream();
	for (int i = 0; i < 30; i++) {
		a[i] = (struct arguments){ MIB, 0, (off_t)(i % 8 + u->index) * 4096, 0 };
		EQ(read_in(u->fd, p, &a[i], stream), 0);
	}
	EQ(cu.stream_sync(stream), 0);
	for (int i = 0; i < 30; i++)
		EQ(a[i].done, MIB);
	memory_get(got, p, MIB);
	gpu_pattern(want, MIB, 1, (uint64_t)a[29].f_offset);
	CHECK(!memcmp(got, want, MIB));
	free(got);
	free(want);
	return NULL;
}

static void many_streams(void)
{
	int id = memory_device(), fd = gpu_file(LEN, 1, O_DIRECT);
	struct user users[12];

	for (int i = 0; i < 12; i++) {
		users[i] = (struct user){ id, fd, i, 0 };
		CHECK(!pthread_create(&users[i].thread, NULL, use_stream, &users[i]));
	}
	for (int i = 0; i < 12; i++)
		pthread_join(users[i].thread, NULL);
	close(fd);
}

/* Work of the program's, queued behind a transfer, before it is over. */
static void queue_behind(char *p, char *pinned, void *stream)
{
	EQ(cu.copy_async((uintptr_t)p + MIB, (uintptr_t)pinned, 65536, stream), 0);
	EQ(cu.copy_async((uintptr_t)pinned + 65536, (uintptr_t)p, 4096, stream), 0);
	EQ(cu.fill_async((uintptr_t)p + MIB, 7, 65536, stream), 0);
}

/*
 * Copies that wait behind a held stream stand in the copy engines, where the
 * transfer that they wait for has to pass.
 */
static void *copies_behind(void *arg)
{
	struct user *u = arg;
	struct arguments a[10];
	char *p, *pinned, want[4096];
	void *stream;

	memory_thread();
	p = registered(u->id, 2 * MIB);
	EQ(cu.host_alloc((void **)&pinned, 2 * 65536, DRIVER_HOST_PORTABLE), 0);
	stream = new_stream();
	for (int i = 0; i < 10; i++) {
		a[i] = (struct arguments){ MIB, 0, (off_t)(i + u->index) * 4096, 0 };
		EQ(read_in(u->fd, p, &a[i], stream), 0);
		queue_behind(p, pinned, stream);
	}
	EQ(cu.stream_sync(stream), 0);
	for (int i = 0; i < 10; i++)
		EQ(a[i].done, MIB);
	gpu_pattern(want, sizeof(want), 1, (uint64_t)a[9].f_offset);
	CHECK(!memcmp(pinned + 65536, want, sizeof(want)));
	return NULL;
}

static void copies_behind_many_streams(void)
{
	int id = memory_device(), fd = gpu_file(LEN, 1, O_DIRECT);
	struct user users[12];

	memory_need_contexts();
	for (int i = 0; i < 12; i++) {
		users[i] = (struct user){ id, fd, i, 0 };
		CHECK(!pthread_create(&users[i].thread, NULL, copies_behind, &users[i]));
	}
	for (int i = 0; i < 12; i++)
		pthread_join(users[i].thread, NULL);
	close(fd);
}

/* One thread that fills many streams before it waits for any. */
static void one_thread_fills_many_streams(void)
{
	enum { STREAMS = 8 };
	int id = memory_device(), fd = gpu_file(LEN, 1, 0);
	struct arguments a[STREAMS][3];
	char *p[STREAMS], *pinned;
	void *streams[STREAMS];

	memory_need_contexts();
	EQ(cu.host_alloc((void **)&pinned, 2 * 65536, DRIVER_HOST_PORTABLE), 0);
	for (int i = 0; i < STREAMS; i++) {
		p[i] = registered(id, 2 * MIB);
		streams[i] = new_stream();
	}
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < STREAMS; i++) {
			a[i][round] = (struct arguments){ MIB, 0, i * 4096, 0 };
			EQ(read_in(fd, p[i], &a[i][round], streams[i]), 0);
			queue_behind(p[i], pinned, streams[i]);
		}
	}
	for (int i = 0; i < STREAMS; i++) {
		EQ(cu.stream_sync(streams[i]), 0);
		for (int round = 0; round < 3; round++)
			EQ(a[i][round].done, MIB);
	}
	close(fd);
}

/* A graph would replay the transfer: refused, and the graph is not spoilt. */
static void captured_streams_are_refused(void)
{
	int id = memory_device(), fd = gpu_file(LEN, 1, 0);
	struct arguments a = { LEN, 0, 0, 0 };
	void *stream = new_stream(), *graph;
	char *p = registered(id, LEN);

	EQ(cu.begin_capture(stream, DRIVER_CAPTURE_GLOBAL), 0);
	EQ(read_in(fd, p, &a, stream), -EOPNOTSUPP);
	HAS(phxfs_last_error(), "captured");
	EQ(cu.end_capture(stream, &graph), 0);
	EQ(read_in(fd, p, &a, stream), 0);
	EQ(cu.stream_sync(stream), 0);
	EQ(a.done, LEN);
	close(fd);
}

static const struct gpu_case cases[] = {
	CASE(between_fills),
	CASE(between_kernels),
	CASE(arguments_are_read_late),
	CASE(failures_do_not_stall),
	CASE(memory_of_any_kind),
	CASE(many_streams),
	CASE(copies_behind_many_streams),
	CASE(one_thread_fills_many_streams),
	CASE(captured_streams_are_refused),
};

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
