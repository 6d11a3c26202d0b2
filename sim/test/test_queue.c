// SPDX-License-Identifier: Apache-2.0
/* libphxsim: queues. */
#include "sim_test.h"

#include <stdatomic.h>
#include <time.h>

static void work_runs_in_order(void **state)
{
	enum { ROUNDS = 64 };
	struct phxsim_queue *q;
	char *a = sim_alloc(0, PAGE, 0), *b = sim_alloc(0, PAGE, 0);
	uint32_t host[ROUNDS], back[ROUNDS];
	int i;

	assert_int_equal(phxsim_queue_create(0, &q), 0);
	for (i = 0; i < ROUNDS; i++) {
		host[i] = i;
		back[i] = -1;
		assert_int_equal(phxsim_memcpy_htod_async(q, a, &host[i], 4), 0);
		assert_int_equal(phxsim_memcpy_dtod_async(q, b, a, 4), 0);
		assert_int_equal(phxsim_memcpy_dtoh_async(q, &back[i], b, 4), 0);
	}
	assert_int_equal(phxsim_queue_sync(q), 0);
	assert_int_equal(phxsim_queue_query(q), 0);
	assert_memory_equal(host, back, sizeof(host));
	assert_int_equal(phxsim_queue_destroy(q), 0);
	assert_int_equal(phxsim_mem_free(a), 0);
	assert_int_equal(phxsim_mem_free(b), 0);
}

static void an_error_waits_for_sync_and_stops_nothing(void **state)
{
	struct phxsim_queue *q;
	char *a = sim_alloc(0, PAGE, 0), byte = 3, back = 0;

	assert_int_equal(phxsim_queue_create(0, &q), 0);
	assert_int_equal(phxsim_memcpy_htod_async(q, a + PAGE, &byte, 1), 0);
	assert_int_equal(phxsim_memcpy_htod_async(q, a, &byte, 1), 0);
	assert_int_equal(phxsim_memcpy_dtoh_async(q, &back, a, 1), 0);
	assert_int_equal(phxsim_queue_sync(q), -EFAULT);
	assert_int_equal(back, 3);
	assert_int_equal(phxsim_queue_sync(q), 0);
	assert_int_equal(phxsim_memcpy_htod_async(q, a + PAGE, &byte, 1), 0);
	assert_int_equal(phxsim_queue_destroy(q), -EFAULT);
	assert_int_equal(phxsim_mem_free(a), 0);
}

static void note(void *arg)
{
	atomic_fetch_add((atomic_int *)arg, 1);
}

static void queues_meet_at_words(void **state)
{
	_Alignas(4) uint32_t word = 0xfffffffe, done = 0;
	struct phxsim_queue *one, *two;
	atomic_int calls = 0;

	assert_int_equal(phxsim_queue_create(0, &one), 0);
	assert_int_equal(phxsim_queue_create(0, &two), 0);
	/* across the wrap of the counter */
	assert_int_equal(phxsim_queue_wait(two, &word, 1), 0);
	assert_int_equal(phxsim_queue_call(two, note, &calls), 0);
	assert_int_equal(phxsim_queue_signal(two, &done, 1), 0);
	usleep(20000);
	assert_int_equal(atomic_load(&calls), 0);
	assert_int_equal(phxsim_queue_query(two), -EBUSY);
	assert_int_equal(phxsim_queue_signal(one, &word, 0xffffffff), 0);
	assert_int_equal(phxsim_queue_sync(one), 0);
	usleep(20000);
	assert_int_equal(atomic_load(&calls), 0);
	assert_int_equal(phxsim_queue_signal(one, &word, 1), 0);
	assert_int_equal(phxsim_queue_wait(one, &done, 1), 0);
	assert_int_equal(phxsim_queue_sync(one), 0);
	assert_int_equal(atomic_load(&calls), 1);
	assert_int_equal(phxsim_queue_destroy(one), 0);
	assert_int_equal(phxsim_queue_destroy(two), 0);
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void queues_run_beside_each_other(void **state)
{
	struct phxsim_queue *q[4];
	char *a = sim_alloc(0, PAGE, 0), byte = 0;
	double start;
	int i;

	for (i = 0; i < 4; i++)
		assert_int_equal(phxsim_queue_create(0, &q[i]), 0);
	assert_int_equal(phxsim_fault(0, PHXSIM_FAULT_COPY_DELAY, 0, 4, 500), 0);
	start = seconds();
	for (i = 0; i < 4; i++)
		assert_int_equal(phxsim_memcpy_htod_async(q[i], a + i, &byte, 1), 0);
	/* submitting does not wait */
	assert_true(seconds() - start < 0.4);
	for (i = 0; i < 4; i++)
		assert_int_equal(phxsim_queue_destroy(q[i]), 0);
	assert_true(seconds() - start >= 0.5);
	assert_true(seconds() - start < 1.5);
	assert_int_equal(phxsim_mem_free(a), 0);
}

static void a_queue_needs_a_device(void **state)
{
	struct phxsim_queue *q;

	assert_int_equal(phxsim_queue_create(-1, &q), -ENODEV);
	assert_int_equal(phxsim_queue_create(1000, &q), -ENODEV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_runs_in_order),
		cmocka_unit_test(an_error_waits_for_sync_and_stops_nothing),
		cmocka_unit_test(queues_meet_at_words),
		cmocka_unit_test(queues_run_beside_each_other),
		cmocka_unit_test(a_queue_needs_a_device),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
