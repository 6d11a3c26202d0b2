// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments that no honest program passes. Nothing may crash, hang, or touch
 * what it was not given; what pread(2) or pwrite(2) would say is said.
 */
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stress.h"

#define LEN 65536UL
#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const int numbers[] = { 0, 1, -1, 2, 63, 64, 65, INT_MAX, INT_MAX - 1, INT_MIN, 1 << 16 };
static const size_t sizes[] = { 0, 1, 4095, LEN, LEN - 1, 2 * LEN, INT_MAX, (size_t)1 << 32,
				(size_t)1 << 47, (size_t)1 << 62, (size_t)SSIZE_MAX,
				(size_t)SSIZE_MAX + 1, SIZE_MAX - LEN + 1, SIZE_MAX };

static void *address(int n)
{
	static const uintptr_t odd[] = { 0, 1, LEN, 0x7ffffff0000, (uintptr_t)1 << 47,
					 (uintptr_t)1 << 48, (uintptr_t)1 << 63,
					 UINTPTR_MAX - LEN + 1, UINTPTR_MAX };

	return (void *)odd[n];
}

enum { ADDRESSES = 9 };

static void device_calls(void)
{
	struct phxfs_stats stats = { .size = sizeof(stats) };
	struct phxfs_device_info info = { .size = sizeof(info) };
	struct phxfs_connector_info connector = { .size = sizeof(connector) };
	struct phxfs_latency latency = { .size = sizeof(latency) };
	phxfs_stats_view_t *view = NULL;
	void *out;

	EQ(phxfs_open(0), 0);
	EQ(phxfs_stats_view_open(getpid(), &view), 0);
	for (int i = 0; i < COUNT(numbers); i++) {
		int n = numbers[i], want = n == 0 ? 0 : -ENODEV;

		EQ(phxfs_device_info(n, &info), want);
		EQ(phxfs_stats(n, &stats), n <= 0 ? 0 : -ENODEV);
		EQ(phxfs_stats_view_read(view, n, &stats), n <= 0 ? 0 : -ENODEV);
		EQ(phxfs_stats_view_latency(view, n, &latency), n == 0 || n == 1 ? 0 : -EINVAL);
		CHECK(phxfs_connector_info(n, &connector) <= 0);
		EQ(phxfs_device_mode(n), n == 0 ? PHXFS_MODE_HOST : -ENODEV);
		EQ(phxfs_open(n), want);
		EQ(phxfs_close(n), want);
		CHECK(phxfs_find_device("host", n) <= 0);
		CHECK(phxfs_set_log(NULL, NULL, n) == (n >= 0 && n <= 4 ? 0 : -EINVAL));
		for (int s = 0; s < COUNT(sizes); s++) {
			out = &out;
			if (phxfs_mem_alloc(n, sizes[s], &out) == 0)
				EQ(phxfs_mem_free(n, out), 0);
			else
				CHECK(out == &out);
			for (int a = 0; a < ADDRESSES; a++) {
				/* A sanitizer's shadow may really lie there. */
				bool there = !phxfs_regmem(n, address(a), sizes[s], &out);

				EQ(!phxfs_deregmem(n, address(a), sizes[s]), there);
				CHECK(!there || stress_sanitized());
			}
		}
		for (int a = 1; a < ADDRESSES; a++) {
			EQ(phxfs_mem_free(n, address(a)), n ? -ENODEV : -EINVAL);
			EQ(phxfs_pointer_device(address(a)), -ENOENT);
		}
	}
	EQ(phxfs_mem_alloc(0, LEN, NULL), -EINVAL);
	EQ(phxfs_device_info(0, NULL), -EINVAL);
	EQ(phxfs_stats(0, NULL), -EINVAL);
	EQ(phxfs_stats_view_read(NULL, 0, &stats), -EINVAL);
	EQ(phxfs_find_device(NULL, 0), -EINVAL);
	EQ(phxfs_find_device_bdf(NULL), -EINVAL);
	phxfs_stats_view_close(view);
	EQ(phxfs_close(0), 0);
}

/* The host address @buf as pread(2) or pwrite(2) sees it. */
static ssize_t oracle(bool write, int fd, void *buf, size_t n, off_t off)
{
	ssize_t got = write ? pwrite(fd, buf, n, off) : pread(fd, buf, n, off);

	return got < 0 ? -errno : got;
}

static void one_transfer(bool write, int fd, void *buf, size_t n, off_t off, ssize_t want)
{
	phxfs_io_req_t r = { .fd = fd, .device_id = -1, .buf = buf, .nbytes = n, .f_offset = off };
	struct phxfs_iov iov = { buf, n };
	struct phxfs_completion done;
	phxfs_queue_t *q;

	if (n <= SSIZE_MAX)
		EQ(write ? phxfs_write(fd, -1, buf, 0, (ssize_t)n, off) :
			   phxfs_read(fd, -1, buf, 0, (ssize_t)n, off),
		   want);
	EQ(write ? phxfs_writev(fd, -1, &iov, 1, off) : phxfs_readv(fd, -1, &iov, 1, off), want);
	if (n > (size_t)1 << 40)
		return; /* a batch of that may be more than memory for its slices */
	CHECK((write ? phxfs_write_batch(&r, 1) : phxfs_read_batch(&r, 1)) >= 0);
	EQ(r.result, want);
	EQ(phxfs_queue_create(1, &q), 0);
	EQ(phxfs_queue_submit(q, write, &r, NULL, 1), 1);
	EQ(phxfs_queue_wait(q, &done, 1, 1, NULL), 1);
	EQ(done.result, want);
	EQ(phxfs_queue_destroy(q), 0);
}

/* Memory that is not there, or not to be written, or not to be read. */
static void bad_memory(int flags)
{
	int fd = stress_file(4 * LEN, O_RDWR | flags), plain = stress_file(4 * LEN, O_RDWR);
	char *map = mmap(NULL, 8 * LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *file;

	CHECK(map != MAP_FAILED);
	file = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, stress_file(4096, O_RDWR), 0);
	CHECK(file != MAP_FAILED);
	CHECK(!mprotect(map + 5 * LEN, LEN, PROT_READ));
	CHECK(!mprotect(map + 6 * LEN, LEN, PROT_NONE));
	for (size_t n = 0; n < 3; n++) {
		static const size_t lens[] = { 4096, 100, LEN };
		static const off_t offs[] = { 0, 7, 4096 };
		char *bad[] = { map + 6 * LEN, map + 5 * LEN, address(1), file + 4096, address(5),
				address(6) };

		for (int i = 0; i < COUNT(bad); i++) {
			size_t len = i == 3 && lens[n] > 8192 ? 8192 : lens[n];

			one_transfer(false, fd, bad[i], len, offs[n],
				     oracle(false, plain, bad[i], len, offs[n]));
			if (i != 1) /* may be read: would write other bytes */
				one_transfer(true, fd, bad[i], len, offs[n],
					     oracle(true, plain, bad[i], len, offs[n]));
		}
	}
}

static void bad_memory_buffered(void)
{
	bad_memory(0);
}

static void bad_memory_direct(void)
{
	bad_memory(O_DIRECT);
}

/*
 * Registered, and then unmapped behind the library's back. The place stays taken, or some
 * thread's new mapping could come to lie there, and be read into.
 */
static void unmapped_registration(void)
{
	int fd = stress_file(4 * LEN, O_RDWR);
	char *memory = stress_memory(LEN);
	phxfs_io_req_t r = { .fd = fd, .buf = memory, .nbytes = LEN };

	EQ(phxfs_read_batch(&r, 1), 0);
	CHECK(mmap(memory, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      memory);
	EQ(phxfs_read(fd, 0, memory, 0, LEN, 0), -EFAULT);
	EQ(phxfs_write(fd, 0, memory, 0, LEN, 0), -EFAULT);
	EQ(phxfs_read_batch(&r, 1), 1);
	EQ(r.result, -EFAULT);
	EQ(phxfs_write_batch(&r, 1), 1);
	EQ(r.result, -EFAULT);
	EQ(phxfs_deregmem(0, memory, LEN), 0);
	CHECK(!munmap(memory, LEN));
}

static void offsets_and_sizes(void)
{
	static const off_t offs[] = { 0, -1, LLONG_MIN, LLONG_MAX, LLONG_MAX - 4095,
				      4 * LEN - 1, 4 * LEN, 4 * LEN + 1, 1LL << 62 };
	int fd = stress_file(4 * LEN, O_RDONLY), direct = stress_file(4 * LEN, O_RDONLY | O_DIRECT);
	static char buf[8 * LEN] __attribute__((aligned(4096)));

	for (int o = 0; o < COUNT(offs); o++) {
		for (int s = 0; s < COUNT(sizes); s++) {
			size_t n = sizes[s] > sizeof(buf) ? sizeof(buf) : sizes[s];
			ssize_t want = oracle(false, fd, buf, n, offs[o]);

			one_transfer(false, fd, buf, n, offs[o], want);
			one_transfer(false, direct, buf, n, offs[o], want);
		}
	}
	/* More than there is memory: the file ends first, or the buffer does. */
	EQ(phxfs_read(fd, -1, buf, 0, (ssize_t)1 << 46, 0), 4 * LEN);
	EQ(phxfs_read(fd, -1, buf, LLONG_MAX, 1, 0) < 0, 1);
	EQ(phxfs_read(fd, -1, buf, -1, 1, 0), -EINVAL);
	EQ(phxfs_read(fd, -1, buf, 0, -1, 0), -EINVAL);
	EQ(phxfs_read(fd, -1, buf, 0, LONG_MIN, 0), -EINVAL);
	EQ(phxfs_readv(fd, -1, NULL, 1, 0), -EINVAL);
	EQ(phxfs_readv(fd, -1, NULL, -1, 0), -EINVAL);
	EQ(phxfs_readv(fd, -1, NULL, INT_MIN, 0), -EINVAL);
	EQ(phxfs_readv(fd, -1, NULL, 0, 0), 0);
	EQ(phxfs_read_batch(NULL, 1), -EINVAL);
	EQ(phxfs_read_batch(NULL, INT_MAX), -EINVAL);
	EQ(phxfs_read_batch(NULL, INT_MIN), 0);
}

static void queue_arguments(void)
{
	struct timespec bad = { 0, 1000000000 }, negative = { -1, 0 };
	struct phxfs_completion done;
	phxfs_io_req_t r = { .fd = -1 };
	phxfs_queue_t *q, *untouched = (phxfs_queue_t *)&r;

	EQ(phxfs_queue_create(0, &untouched), -EINVAL);
	EQ(phxfs_queue_create(32769, &untouched), -EINVAL);
	EQ(phxfs_queue_create(UINT_MAX, &untouched), -EINVAL);
	EQ(phxfs_queue_create(1, NULL), -EINVAL);
	CHECK(untouched == (phxfs_queue_t *)&r);
	EQ(phxfs_queue_create(32768, &q), 0);
	EQ(phxfs_queue_submit(NULL, 0, &r, NULL, 1), -EINVAL);
	EQ(phxfs_queue_submit(q, 2, &r, NULL, 1), -EINVAL);
	EQ(phxfs_queue_submit(q, INT_MIN, &r, NULL, 1), -EINVAL);
	EQ(phxfs_queue_submit(q, 0, NULL, NULL, 1), -EINVAL);
	EQ(phxfs_queue_submit(q, 0, &r, NULL, -1), -EINVAL);
	EQ(phxfs_queue_submit(q, 0, NULL, NULL, 0), 0);
	EQ(phxfs_queue_wait(NULL, &done, 0, 1, NULL), -EINVAL);
	EQ(phxfs_queue_wait(q, NULL, 0, 1, NULL), -EINVAL);
	EQ(phxfs_queue_wait(q, &done, -1, 1, NULL), -EINVAL);
	EQ(phxfs_queue_wait(q, &done, 0, 0, NULL), -EINVAL);
	EQ(phxfs_queue_wait(q, &done, 2, 1, NULL), -EINVAL);
	EQ(phxfs_queue_wait(q, &done, 0, INT_MIN, NULL), -EINVAL);
	EQ(phxfs_queue_wait(q, &done, 1, 1, &bad), -EINVAL);
	EQ(phxfs_queue_wait(q, &done, 1, 1, &negative), -EINVAL);
	EQ(phxfs_queue_wait(q, &done, 1, 1, NULL), 0);
	EQ(phxfs_queue_cancel(NULL, NULL), -EINVAL);
	EQ(phxfs_queue_cancel(q, NULL), -ENOENT);
	EQ(phxfs_queue_eventfd(NULL), -EINVAL);
	EQ(phxfs_queue_destroy(NULL), 0);
	EQ(phxfs_queue_destroy(q), 0);
	EQ(phxfs_batch_wait(NULL), -EINVAL);
	EQ(phxfs_batch_destroy(NULL), 0);
	CHECK(!phxfs_batch_submit_read(NULL, 1));
	EQ(errno, EINVAL);
	CHECK(!phxfs_batch_submit_write(NULL, INT_MAX));
	EQ(errno, EINVAL);
}

/* A thread with a table of descriptors of its own: its numbers are not the process's. */
static void *write_unshared(void *arg)
{
	static char buf[8192] __attribute__((aligned(4096)));
	int fd = *(int *)arg, own = stress_file(8192, O_RDWR | O_DIRECT);

	if (unshare(CLONE_FILES))
		stress_skip("unshare(CLONE_FILES): %s", strerror(errno));
	CHECK(dup3(own, fd, 0) == fd);
	memset(buf, 'x', sizeof(buf));
	EQ(phxfs_write(fd, -1, buf, 0, 5000, 1), 5000);
	EQ(fcntl(fd, F_SETFL, 0), 0);
	EQ(pread(fd, buf, 8192, 0), 8192);
	for (int i = 1; i <= 5000; i++)
		CHECK(buf[i] == 'x');
	return NULL;
}

static void unshared_descriptors(void)
{
	int fd = stress_file(8192, O_RDWR);
	unsigned char buf[8192];
	pthread_t thread;

	EQ(pthread_create(&thread, NULL, write_unshared, &fd), 0);
	EQ(pthread_join(thread, NULL), 0);
	EQ(pread(fd, buf, sizeof(buf), 0), sizeof(buf));
	for (size_t i = 0; i < sizeof(buf); i++)
		CHECK(buf[i] == stress_byte(i));
}

#define EVERYWHERE(fn)                                    \
	{ #fn, fn, NULL, 60 },                            \
	{ #fn "_sync", fn, "PHX_IO_ENGINE=sync", 60 },    \
	{ #fn "_bounce", fn, "PHX_PATH=bounce", 60 }

static const struct stress_case cases[] = {
	{ "device_calls", device_calls, NULL, 60 },
	{ "queue_arguments", queue_arguments, NULL, 60 },
	{ "queue_arguments_sync", queue_arguments, "PHX_IO_ENGINE=sync", 60 },
	EVERYWHERE(offsets_and_sizes),
	EVERYWHERE(bad_memory_buffered),
	EVERYWHERE(bad_memory_direct),
	EVERYWHERE(unmapped_registration),
	{ "unshared_descriptors", unshared_descriptors, NULL, 60 },
};

STRESS_MAIN(cases)
