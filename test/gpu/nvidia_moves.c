// SPDX-License-Identifier: Apache-2.0
/* The NVIDIA connector's copies, queues and ends, on a driver with the real one's rules. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvidia_fake.h"

/* -------------------------------------------------------------- transfers */

#define FILE_SIZE (5 * MIB)
#define GUARD 0xa5

/* Random transfers against memory that a CPU looks after. */
static void transfers_are_exact(void)
{
	static unsigned char file[FILE_SIZE + MIB], shadow[4 * MIB], got[4 * MIB];
	uint64_t seed = 12345;
	int direct = gpu_file(FILE_SIZE, 1, O_DIRECT), plain = gpu_file(FILE_SIZE, 1, 0), id;
	char *p;

	load();
	id = device(1);
	p = registered(id, sizeof(shadow));
	gpu_pattern(file, FILE_SIZE, 1, 0);
	memset(shadow, GUARD, sizeof(shadow));
	EQ(phxfs_memcpy_to(id, p, shadow, sizeof(shadow)), 0);
	for (int i = 0; i < 150; i++) {
		size_t len = gpu_below(&seed, i % 3 ? 40000 : 3 * MIB), at, want;
		off_t off = (off_t)gpu_below(&seed, FILE_SIZE);
		bool write = gpu_below(&seed, 3) == 0;
		int fd = i % 2 ? direct : plain;

		at = gpu_below(&seed, sizeof(shadow) - len);
		gpu_context("%d: %s %zu bytes at %zu, offset %lld", i, write ? "write" : "read",
			    len, at, (long long)off);
		if (write) {
			if (len > FILE_SIZE - (size_t)off)
				len = FILE_SIZE - (size_t)off;
			EQ(phxfs_write(direct, id, p, (off_t)at, (ssize_t)len, off), len);
			EQ(phxfs_write(plain, id, p, (off_t)at, (ssize_t)len, off), len);
			memcpy(file + off, shadow + at, len);
			continue;
		}
		want = len < FILE_SIZE - (size_t)off ? len : FILE_SIZE - (size_t)off;
		EQ(phxfs_read(fd, id, p, (off_t)at, (ssize_t)len, off), want);
		memcpy(shadow + at, file + off, want);
		EQ(phxfs_memcpy_from(id, got, p, sizeof(got)), 0);
		CHECK(!memcmp(got, shadow, sizeof(got)));
	}
	close(direct);
	close(plain);
}

static void batches_are_exact(void)
{
	static unsigned char file[FILE_SIZE], got[FILE_SIZE];
	phxfs_io_req_t reqs[80];
	int fd = gpu_file(FILE_SIZE, 9, O_DIRECT), id;
	size_t each = FILE_SIZE / 80;
	char *p;

	load();
	id = device(0);
	p = registered(id, FILE_SIZE);
	for (size_t i = 0; i < 80; i++)
		reqs[i] = (phxfs_io_req_t){ .fd = fd, .device_id = id, .buf = p,
					    .buf_offset = (off_t)(i * each), .nbytes = each,
					    .f_offset = (off_t)(i * each) };
	EQ(phxfs_read_batch(reqs, 80), 0);
	EQ(phxfs_memcpy_from(id, got, p, FILE_SIZE), 0);
	gpu_pattern(file, FILE_SIZE, 9, 0);
	CHECK(!memcmp(file, got, FILE_SIZE));
	close(fd);
}

/* A broken device fails transfers; it does not hang or crash them. */
static void failed_copies_are_reported(void)
{
	int fd = gpu_file(4 * MIB, 2, 0), id;
	char *p, word[8];

	load();
	id = device(0);
	p = registered(id, 4 * MIB);
	EQ(phxfs_read(fd, id, p, 0, MIB, 0), MIB);
	fake.fail("copy", 700, 1, false);
	EQ(phxfs_read(fd, id, p, 0, MIB, 0), -EIO);
	EQ(phxfs_read(fd, id, p, 0, 4 * MIB, 0), -EIO); /* the context stays broken */
	EQ(phxfs_write(fd, id, p, 0, MIB, 0), -EIO);
	EQ(phxfs_memcpy_from(id, word, p, sizeof(word)), -EIO);
	HAS(phxfs_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS");
	HAS(phxfs_last_error(), "an illegal memory access");
	EQ(phxfs_deregmem(id, p, 4 * MIB), 0);
	close(fd);
}

static void bad_address_is_efault(void)
{
	char word[8];
	void *p;

	load();
	p = alloc(0, PAGE);
	fake.fail("copies", 1, 1, false);
	EQ(phxfs_memcpy_from(0, word, p, sizeof(word)), -EFAULT);
	EQ(phxfs_memcpy_from(0, word, p, sizeof(word)), 0);
}

/* ------------------------------------------------------ queues and events */

static const struct devconn_ops *const ops = &nvidia_connector;

/* The fake's streams write words. */
static bool words(void)
{
	const char *text = getenv("FAKE_CUDA_WORDS");

	return !text || strcmp(text, "0");
}

static void queues_keep_their_order(void)
{
	char *host, *p, *q;
	void *event = NULL, *again;

	load();
	EQ(phxfs_device_count(), 2);
	p = alloc(0, MIB);
	q = alloc(0, MIB);
	EQ(ops->host_alloc(0, 2 * MIB, (void **)&host), 0);
	memset(host, 'x', MIB);
	for (int i = 0; i < 20; i++) {
		host[0] = (char)i;
		fake.hold(true);
		EQ(ops->memcpy_htod_async(0, i, p, host, MIB), 0);
		EQ(ops->memcpy_dtod_async(0, i, q, p, MIB), 0);
		EQ(ops->memcpy_dtoh_async(0, i, host + MIB, q, MIB), 0);
		again = event;
		EQ(ops->event_record(0, i, &event), 0);
		CHECK(!again || again == event);
		EQ(ops->event_done(0, event), -EBUSY);
		fake.hold(false);
		EQ(i % 2 ? ops->event_wait(0, event) : ops->queue_sync(0, i), 0);
		EQ(ops->event_done(0, event), 0);
		CHECK(!memcmp(host, host + MIB, MIB));
	}
	EQ(state(NULL, 0).events, 1); /* the driver's, behind so much */
	ops->event_free(0, event);
	EQ(state(NULL, 0).events, 0);
	EQ(state(NULL, 0).depth, 0);
	EQ(state(NULL, 0).streams, 20);
	EQ(ops->memcpy_htod_async(0, DEVCONN_SLOTS, p, host, 1), -EINVAL);
	EQ(ops->memcpy_htod_async(0, -1, p, host, 1), -EINVAL);
	EQ(ops->host_free(0, host, 2 * MIB), 0);
	EQ(state(NULL, 0).host_allocations, words() ? 1 : 0);
}

/* Behind large copies stand events, behind small ones numbers; neither overtakes. */
static void large_and_small_copies_mix(void)
{
	void *events[4] = { NULL };
	char *host, *p;

	load();
	EQ(phxfs_device_count(), 2);
	p = alloc(0, 4 * MIB);
	EQ(ops->host_alloc(0, 4 * MIB, (void **)&host), 0);
	for (int round = 0; round < 20; round++) {
		fake.hold(true);
		EQ(ops->memcpy_htod_async(0, 1, p, host, 4 * MIB), 0);
		EQ(ops->event_record(0, 1, &events[0]), 0);
		EQ(ops->event_record(0, 1, &events[1]), 0); /* the same copy again */
		EQ(ops->memcpy_htod_async(0, 1, p, host, 4096), 0);
		EQ(ops->event_record(0, 1, &events[2]), 0);
		EQ(ops->event_record(0, 1, &events[3]), 0);
		for (int i = 0; i < 4; i++)
			EQ(ops->event_done(0, events[i]), -EBUSY);
		fake.hold(false);
		for (int i = 0; i < 4; i++)
			EQ(ops->event_wait(0, events[(i + round) % 4]), 0);
	}
	EQ(state(NULL, 0).events, words() ? 1 : 4);
	for (int i = 0; i < 4; i++)
		ops->event_free(0, events[i]);
	EQ(state(NULL, 0).events, 0);
	EQ(ops->host_free(0, host, 4 * MIB), 0);
}

static void events_report_failed_copies(void)
{
	void *event = NULL;
	char *host, *p;

	load();
	EQ(phxfs_device_count(), 2);
	p = alloc(0, MIB);
	EQ(ops->host_alloc(0, MIB, (void **)&host), 0);
	EQ(ops->memcpy_htod_async(0, 1, p, host, MIB), 0);
	EQ(ops->event_record(0, 1, &event), 0);
	EQ(ops->event_wait(0, event), 0);
	fake.fail("copy", 700, 1, false);
	fake.hold(true);
	EQ(ops->memcpy_htod_async(0, 1, p, host, MIB), 0);
	EQ(ops->event_record(0, 1, &event), 0);
	EQ(ops->event_done(0, event), -EBUSY);
	fake.hold(false);
	EQ(ops->event_wait(0, event), -EIO);
	EQ(ops->event_done(0, event), words() ? -EBUSY : -EIO);
	EQ(ops->queue_sync(0, 1), -EIO);
	HAS(devconn_detail(-EIO), "CUDA_ERROR_ILLEGAL_ADDRESS");
	HAS(devconn_detail(-EIO), ": copying: ");
	EQ(strlen(devconn_detail(-EPERM)), 0);
	ops->event_free(0, event);
}

static _Atomic int seen;

static void note(void *arg)
{
	seen = *(int *)arg;
}

static void users_streams_wait_and_signal(void)
{
	int value = 41;
	void *mine, *stream, *graph;
	uint64_t *word;

	load();
	EQ(phxfs_device_count(), 2);
	EQ(cu.context_create(&mine, 0, 0), 0);
	EQ(cu.stream_create(&stream, 1), 0);
	EQ(ops->host_alloc(0, PAGE, (void **)&word), 0);
	word[0] = 0;
	word[1] = 0;
	EQ(ops->stream_wait(stream, &word[0], 3), 0);
	EQ(ops->stream_signal(stream, &word[1], 9), 0);
	EQ(ops->launch_host_func(stream, note, &value), 0);
	usleep(20000);
	EQ(__atomic_load_n(&word[1], __ATOMIC_ACQUIRE), 0);
	EQ(seen, 0);
	__atomic_store_n(&word[0], 4, __ATOMIC_RELEASE);
	EQ(cu.stream_sync(stream), 0);
	EQ(word[1], 9);
	EQ(seen, 41);
	EQ(cu.begin_capture(stream, DRIVER_CAPTURE_RELAXED), 0);
	EQ(ops->stream_wait(stream, &word[0], 3), -EOPNOTSUPP);
	EQ(ops->stream_signal(stream, &word[0], 3), -EOPNOTSUPP);
	EQ(ops->launch_host_func(stream, note, &value), -EOPNOTSUPP);
	HAS(devconn_detail(-EOPNOTSUPP), "captured");
	EQ(cu.end_capture(stream, &graph), 0);
	fake.fail("cuLaunchHostFunc", 900, 1, false);
	EQ(ops->launch_host_func(stream, note, &value), -EOPNOTSUPP);
	EQ(ops->launch_host_func(NULL, note, &value), -ENODEV);
	EQ(ops->stream_signal(stream, (uint64_t *)&value, 1), -EINVAL); /* not pinned */
}

static void transfers_are_exact_without_words(void)
{
	transfers_are_exact();
}

static void queues_keep_their_order_without_words(void)
{
	queues_keep_their_order();
}

static void events_report_failed_copies_without_words(void)
{
	events_report_failed_copies();
}

/* -------------------------------------------------------------- life, death */

static void driver_gone_before_the_library(void)
{
	int fd = gpu_file(MIB, 2, 0), id;
	void *p, *q;

	load();
	id = device(0);
	p = registered(id, MIB);
	q = alloc(id, MIB);
	EQ(phxfs_read(fd, id, p, 0, MIB, 0), MIB);
	fake.tear_down(true);
	EQ(phxfs_read(fd, id, p, 0, MIB, 0), -ENODEV);
	EQ(phxfs_mem_alloc(id, PAGE, &q), -ENODEV);
	HAS(phxfs_last_error(), "driver shutting down");
	EQ(phxfs_deregmem(id, p, MIB), 0);
	EQ(phxfs_mem_free(id, p), 0);
	EQ(phxfs_mem_free(id, q), 0);
	EQ(phxfs_close(id), 0);
}

static int exit_fd, exit_id;
static void *exit_buffer;

/* Registered before the driver's own, so it runs after the driver is gone. */
static void late(void)
{
	if (phxfs_read(exit_fd, exit_id, exit_buffer, 0, MIB, 0) != -ENODEV ||
	    phxfs_deregmem(exit_id, exit_buffer, MIB) || phxfs_mem_free(exit_id, exit_buffer) ||
	    phxfs_close(exit_id))
		_exit(9);
}

static void exit_with_everything_open(void)
{
	atexit(late);
	load();
	exit_fd = gpu_file(MIB, 2, 0);
	exit_id = device(0);
	exit_buffer = registered(exit_id, MIB);
	EQ(phxfs_read(exit_fd, exit_id, exit_buffer, 0, MIB, 0), MIB);
}

static int fork_fd, fork_id;
static void *fork_buffer;

static void in_child(void)
{
	char host[512], expected[512];
	void *p;

	EQ(phxfs_read(fork_fd, fork_id, fork_buffer, 0, MIB, 0), -EFAULT);
	EQ(phxfs_mem_alloc(fork_id, PAGE, &p), -ENODEV);
	HAS(phxfs_last_error(), "fork");
	EQ(phxfs_regmem(fork_id, fork_buffer, MIB, NULL), -EFAULT);
	EQ(phxfs_read(fork_fd, -1, host, 0, sizeof(host), 100), sizeof(host));
	gpu_pattern(expected, sizeof(expected), 2, 100);
	CHECK(!memcmp(host, expected, sizeof(host)));
	EQ(phxfs_close(fork_id), 0);
}

static void child_gets_errors_not_hangs(void)
{
	load();
	fork_fd = gpu_file(MIB, 2, 0);
	fork_id = device(0);
	fork_buffer = registered(fork_id, MIB);
	EQ(phxfs_read(fork_fd, fork_id, fork_buffer, 0, MIB, 0), MIB);
	EQ(gpu_in_child(in_child), 0);
	EQ(phxfs_read(fork_fd, fork_id, fork_buffer, 0, MIB, 0), MIB);
}

/* A virtual GPU's streams have no memory operations. */
static void streams_without_memory_operations(void)
{
	void *mine, *stream;
	uint64_t *word;
	int value = 1;

	load();
	EQ(phxfs_device_count(), 2);
	EQ(cu.context_create(&mine, 0, 0), 0);
	EQ(cu.stream_create(&stream, 1), 0);
	EQ(ops->host_alloc(0, PAGE, (void **)&word), 0);
	*word = 0;
	fake.fail("cuStreamWaitValue64_v2", 801, 1, true);
	EQ(ops->stream_wait(stream, word, 5), 0);
	EQ(ops->launch_host_func(stream, note, &value), 0);
	usleep(20000);
	EQ(seen, 0);
	__atomic_store_n(word, 5, __ATOMIC_RELEASE);
	EQ(cu.stream_sync(stream), 0);
	EQ(seen, 1);
}

struct crowd {
	int id, fd;
	pthread_barrier_t *start;
	char *p;
};

static void *one_of_many(void *arg)
{
	struct crowd *c = arg;
	char got[64 << 10], expected[64 << 10];

	gpu_pattern(expected, sizeof(expected), 2, 0);
	pthread_barrier_wait(c->start);
	for (int i = 0; i < 50; i++) {
		EQ(phxfs_read(c->fd, c->id, c->p, 0, sizeof(got), 0), sizeof(got));
		EQ(phxfs_memcpy_from(c->id, got, c->p, sizeof(got)), 0);
		CHECK(!memcmp(got, expected, sizeof(got)));
	}
	return NULL;
}

/* The first use by many at once makes one context and no more than the lanes. */
static void many_threads_start_at_once(void)
{
	int fd = gpu_file(MIB, 2, 0);
	pthread_barrier_t barrier;
	pthread_t threads[24];
	struct crowd c[24];

	load();
	pthread_barrier_init(&barrier, NULL, 24);
	EQ(device(0), 0);
	for (int i = 0; i < 24; i++) {
		c[i] = (struct crowd){ 0, fd, &barrier, registered(0, PAGE) };
		CHECK(!pthread_create(&threads[i], NULL, one_of_many, &c[i]));
	}
	for (int i = 0; i < 24; i++)
		pthread_join(threads[i], NULL);
	EQ(state(NULL, 0).retained, 1);
	CHECK(state(NULL, 0).streams <= 16 + DEVCONN_SLOTS);
}

static const struct gpu_case cases[] = {
	CASE(transfers_are_exact, .env = "FAKE_CUDA_DELAY_US=300"),
	CASE(batches_are_exact, .env = "FAKE_CUDA_DELAY_US=300 PHX_IO_WORKERS=4"),
	CASE(failed_copies_are_reported),
	CASE(bad_address_is_efault),
	CASE(queues_keep_their_order, .env = "FAKE_CUDA_DELAY_US=300"),
	CASE(large_and_small_copies_mix, .env = "FAKE_CUDA_DELAY_US=300"),
	CASE(events_report_failed_copies),
	CASE(users_streams_wait_and_signal),
	CASE(streams_without_memory_operations),
	CASE(transfers_are_exact_without_words, .env = "FAKE_CUDA_WORDS=0 FAKE_CUDA_DELAY_US=300"),
	CASE(queues_keep_their_order_without_words,
	     .env = "FAKE_CUDA_WORDS=0 FAKE_CUDA_DELAY_US=300"),
	CASE(events_report_failed_copies_without_words, .env = "FAKE_CUDA_WORDS=0"),
	CASE(driver_gone_before_the_library),
	CASE(exit_with_everything_open),
	CASE(child_gets_errors_not_hangs),
	CASE(many_threads_start_at_once),
};

int main(int argc, char **argv)
{
	return gpu_main(argc, argv, cases, sizeof(cases) / sizeof(cases[0]));
}
