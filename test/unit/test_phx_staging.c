// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "phx_config.h"
#include "phx_init.h"
#include "phx_staging.h"

enum { POOL_MB = 2, UNITS = POOL_MB * 16 };

static int start(void **state)
{
	setenv("PHX_CONNECTOR", "host", 1);
	setenv("PHX_STAGING_SIZE_MB", "2", 1);
	phx_init();
	return 0;
}

static int get(size_t want, bool wait, struct phx_chunk *chunk)
{
	return phx_chunk_get(NULL, PHXFS_PATH_BOUNCE, want, wait, chunk);
}

static void sizes_are_powers_of_two_within_bounds(void **state)
{
	static const struct {
		size_t want, got;
	} tries[] = { { 1, 65536 },	   { 65536, 65536 },   { 65537, 131072 },
		      { 200000, 262144 }, { 1 << 20, 1 << 20 }, { 2 << 20, 2 << 20 } };
	struct phx_chunk c;

	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		assert_int_equal(get(tries[i].want, false, &c), 0);
		assert_int_equal(c.size, tries[i].got);
		assert_int_equal((uintptr_t)c.io % 4096, 0);
		memset(c.io, 1, c.size);
		phx_chunk_put(&c);
	}
}

static void a_large_wish_gets_what_there_is(void **state)
{
	struct phx_chunk c, small;

	assert_int_equal(get(64UL << 20, false, &c), 0);
	assert_int_equal(c.size, POOL_MB << 20);
	assert_int_equal(get(1, false, &small), -EAGAIN);
	phx_chunk_put(&c);
	assert_int_equal(get(1, false, &small), 0);
	assert_int_equal(get(64UL << 20, false, &c), 0);
	assert_int_equal(c.size, 1 << 20);
	phx_chunk_put(&c);
	phx_chunk_put(&small);
}

static void chunks_never_overlap(void **state)
{
	struct phx_chunk c[UNITS];

	for (int i = 0; i < UNITS; i++) {
		assert_int_equal(get(65536, false, &c[i]), 0);
		memset(c[i].io, i, 65536);
	}
	assert_int_equal(get(1, false, &(struct phx_chunk){ 0 }), -EAGAIN);
	for (int i = 0; i < UNITS; i++)
		for (size_t at = 0; at < 65536; at += 4095)
			assert_int_equal(c[i].io[at], i);
	/* every second one back: no run of two is free */
	for (int i = 0; i < UNITS; i += 2)
		phx_chunk_put(&c[i]);
	assert_int_equal(get(131072, false, &c[0]), 0);
	assert_int_equal(c[0].size, 65536);
	phx_chunk_put(&c[0]);
	for (int i = 1; i < UNITS; i += 2)
		phx_chunk_put(&c[i]);
	/* and they have grown together again */
	assert_int_equal(get(2 << 20, false, &c[0]), 0);
	assert_int_equal(c[0].size, 2 << 20);
	phx_chunk_put(&c[0]);
}

struct waiter {
	size_t want;
	int place;
	pthread_t thread;
};

static atomic_int served;

static void *wait_for_chunk(void *arg)
{
	struct waiter *w = arg;
	struct phx_chunk c;

	assert_int_equal(get(w->want, true, &c), 0);
	w->place = atomic_fetch_add(&served, 1);
	phx_chunk_put(&c);
	return NULL;
}

static void waiters_are_served_in_order(void **state)
{
	struct timespec ms = { 0, 20000000 };
	struct waiter w[4] = {
		{ .want = 2 << 20 }, { .want = 1 }, { .want = 1 << 20 }, { .want = 1 }
	};
	struct phx_chunk all, other;

	assert_int_equal(get(2 << 20, false, &all), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_create(&w[i].thread, NULL, wait_for_chunk, &w[i]), 0);
		nanosleep(&ms, NULL);
	}
	/* a newcomer does not overtake them, though it could be served */
	assert_int_equal(get(1, false, &other), -EAGAIN);
	phx_chunk_put(&all);
	for (int i = 0; i < 4; i++)
		pthread_join(w[i].thread, NULL);
	assert_int_equal(w[0].place, 0);
	assert_int_equal(get(1, false, &other), 0);
	phx_chunk_put(&other);
}

static void pools_are_apart(void **state)
{
	struct phx_device *dev = phx_device_find(0);
	struct phx_chunk all, mine;

	assert_non_null(dev);
	assert_int_equal(get(2 << 20, false, &all), 0);
	assert_int_equal(phx_chunk_get(dev, PHXFS_PATH_BOUNCE, 2 << 20, false, &mine), 0);
	assert_int_equal(mine.size, 2 << 20);
	phx_chunk_put(&mine);
	phx_chunk_put(&all);
	assert_int_equal(phx_staging_size(dev, PHXFS_PATH_BOUNCE), 2 << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_powers_of_two_within_bounds),
		cmocka_unit_test(a_large_wish_gets_what_there_is),
		cmocka_unit_test(chunks_never_overlap),
		cmocka_unit_test(waiters_are_served_in_order),
		cmocka_unit_test(pools_are_apart),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
