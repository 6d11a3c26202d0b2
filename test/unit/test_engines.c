// SPDX-License-Identifier: Apache-2.0
/* io_uring.c and sync.c by the promises of io_engine.h. */
#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "io_engine.h"
#include "phx_init.h"

enum { SIZE = 100000 };

static int file = -1;
static char buf[2][SIZE];

static int start(void **state)
{
	setenv("PHX_CONNECTOR", "host", 1);
	phx_init();
	file = memfd_create("unit", MFD_CLOEXEC);
	for (int i = 0; i < SIZE; i++)
		buf[0][i] = (char)(i * 7 + i / 256);
	return file >= 0 && write(file, buf[0], SIZE) == SIZE ? 0 : -1;
}

typedef void (*engine_test)(const struct phx_engine_ops *ops, struct phx_engine *e, bool shared);

/* Runs a test on each engine, for one thread and shared. */
static void on_each(engine_test test, unsigned int depth)
{
	static const struct phx_engine_ops *const all[] = { &phx_engine_io_uring,
							     &phx_engine_sync };

	for (int i = 0; i < 4; i++) {
		const struct phx_engine_ops *ops = all[i / 2];
		enum phx_engine_use use = i % 2 ? PHX_ENGINE_SHARED : PHX_ENGINE_WORKER;
		struct phx_engine *e;

		if (ops->probe())
			continue; /* no io_uring here */
		memset(buf[1], 0x5a, SIZE);
		assert_int_equal(ops->create(depth, use, &e), 0);
		test(ops, e, i % 2);
		ops->destroy(e);
	}
	phx_test_completion = NULL;
}

static struct phx_io *finish_one(const struct phx_engine_ops *ops, struct phx_engine *e)
{
	struct phx_io *io;

	ops->flush(e);
	while (!(io = ops->reap(e))) {
		ops->flush(e);
		ops->wait(e, NULL);
	}
	assert_null(io->next);
	return io;
}

static struct phx_io request(size_t len, off_t off)
{
	return (struct phx_io){ .fd = file, .device_id = -1, .addr = buf[1], .len = len,
				.off = off };
}

static void read_it(const struct phx_engine_ops *ops, struct phx_engine *e, bool shared)
{
	struct phx_io io = request(5000, 1000);

	assert_null(ops->reap(e));
	assert_int_equal(ops->start(e, &io), 0);
	assert_ptr_equal(finish_one(ops, e), &io);
	assert_int_equal(io.err, 0);
	assert_int_equal(io.moved, 5000);
	assert_memory_equal(buf[1], buf[0] + 1000, 5000);
	assert_null(ops->reap(e));
}

static void reads_are_exact(void **state)
{
	on_each(read_it, 8);
}

static void meet_the_end(const struct phx_engine_ops *ops, struct phx_engine *e, bool shared)
{
	struct phx_io io = request(5000, SIZE - 100), bad = request(10, 0);

	assert_int_equal(ops->start(e, &io), 0);
	finish_one(ops, e);
	assert_int_equal(io.err, 0);
	assert_int_equal(io.moved, 100);
	bad.fd = -1;
	assert_int_equal(ops->start(e, &bad), 0);
	finish_one(ops, e);
	assert_int_equal(bad.err, -EBADF);
	assert_int_equal(bad.moved, 0);
}

static void the_end_is_no_error_and_an_error_is_one(void **state)
{
	on_each(meet_the_end, 8);
}

static int completions;

static int odd_results(const struct phx_io *io, int result)
{
	switch (completions++ % 4) {
	case 0:
		return -EINTR;
	case 1:
		return -EAGAIN;
	default:
		return result > 700 ? 700 : result;
	}
}

static void mend(const struct phx_engine_ops *ops, struct phx_engine *e, bool shared)
{
	struct phx_io io = request(5000, 3);

	completions = 0;
	phx_test_completion = odd_results;
	assert_int_equal(ops->start(e, &io), 0);
	finish_one(ops, e);
	phx_test_completion = NULL;
	assert_int_equal(io.err, 0);
	assert_int_equal(io.moved, 5000);
	assert_memory_equal(buf[1], buf[0] + 3, 5000);
}

static void short_interrupted_and_again_are_mended(void **state)
{
	on_each(mend, 8);
}

static int never(const struct phx_io *io, int result)
{
	return -EAGAIN;
}

static void give_up(const struct phx_engine_ops *ops, struct phx_engine *e, bool shared)
{
	struct phx_io io = request(100, 0);

	if (ops == &phx_engine_sync)
		return;
	phx_test_completion = never;
	assert_int_equal(ops->start(e, &io), 0);
	finish_one(ops, e);
	phx_test_completion = NULL;
	assert_int_equal(io.err, -EAGAIN);
	assert_int_equal(io.moved, 0);
}

static void endless_eagain_is_given_back(void **state)
{
	on_each(give_up, 8);
}

static void fill(const struct phx_engine_ops *ops, struct phx_engine *e, bool shared)
{
	struct phx_io ios[8], more = request(10, 0);
	int n = 0;

	if (ops == &phx_engine_sync)
		return; /* takes any number */
	for (int i = 0; i < 8; i++) {
		ios[i] = request(10, i * 10);
		assert_int_equal(ops->start(e, &ios[i]), 0);
	}
	assert_int_equal(ops->start(e, &more), -EAGAIN);
	ops->flush(e);
	while (n < 8) {
		struct phx_io *io = ops->reap(e);

		if (!io)
			ops->wait(e, NULL);
		for (; io; io = io->next)
			n++;
	}
	assert_int_equal(ops->start(e, &more), 0);
	finish_one(ops, e);
}

static void depth_is_kept(void **state)
{
	on_each(fill, 8);
}

static void wait_briefly(const struct phx_engine_ops *ops, struct phx_engine *e, bool shared)
{
	struct timespec t = { 0, 30000000 }, a, b;

	if (ops == &phx_engine_sync)
		return; /* has nothing to wait for */
	clock_gettime(CLOCK_MONOTONIC, &a);
	ops->arm(e);
	ops->wait(e, &t);
	clock_gettime(CLOCK_MONOTONIC, &b);
	assert_true((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec > 20000000L);
}

static void a_wait_ends_with_its_time(void **state)
{
	on_each(wait_briefly, 8);
}

struct sleeper {
	const struct phx_engine_ops *ops;
	struct phx_engine *e;
	atomic_int stage;
};

/* A worker's ring belongs to the thread that made it. */
static void *sleep_until_woken(void *arg)
{
	struct sleeper *s = arg;

	if (s->ops->create(8, PHX_ENGINE_WORKER, &s->e))
		return NULL;
	s->ops->arm(s->e);
	atomic_store(&s->stage, 1);
	s->ops->wait(s->e, NULL);
	atomic_store(&s->stage, 2);
	s->ops->reap(s->e);
	return NULL;
}

static void wake_ends_a_wait(void **state)
{
	struct sleeper s = { .ops = &phx_engine_io_uring };
	struct timespec ms = { 0, 20000000 };
	pthread_t t;

	if (s.ops->probe())
		skip();
	assert_int_equal(pthread_create(&t, NULL, sleep_until_woken, &s), 0);
	while (atomic_load(&s.stage) == 0)
		nanosleep(&ms, NULL);
	nanosleep(&ms, NULL);
	assert_int_equal(atomic_load(&s.stage), 1);
	s.ops->wake(s.e);
	pthread_join(t, NULL);
	assert_int_equal(atomic_load(&s.stage), 2);
	s.ops->destroy(s.e); /* no thread may be in wake() any more */
}

static void tell(const struct phx_engine_ops *ops, struct phx_engine *e, bool shared)
{
	struct phx_io io = request(100, 0);
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct pollfd p = { fd, POLLIN, 0 };

	if (ops == &phx_engine_sync) {
		assert_true(ops->notify(e, fd) < 0);
	} else if (shared) {
		assert_int_equal(ops->notify(e, fd), 0);
		assert_int_equal(ops->start(e, &io), 0);
		ops->flush(e);
		assert_int_equal(poll(&p, 1, 5000), 1);
		finish_one(ops, e);
	}
	close(fd);
}

static void completions_reach_an_eventfd(void **state)
{
	on_each(tell, 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_are_exact),
		cmocka_unit_test(the_end_is_no_error_and_an_error_is_one),
		cmocka_unit_test(short_interrupted_and_again_are_mended),
		cmocka_unit_test(endless_eagain_is_given_back),
		cmocka_unit_test(depth_is_kept),
		cmocka_unit_test(a_wait_ends_with_its_time),
		cmocka_unit_test(wake_ends_a_wait),
		cmocka_unit_test(completions_reach_an_eventfd),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
