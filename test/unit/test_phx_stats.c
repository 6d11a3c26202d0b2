// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include "phx_init.h"
#include "phx_stats.h"

static void a_bucket_holds_what_it_says(void **state)
{
	uint64_t below = 0;

	assert_int_equal(phx_stats_bucket(0), 0);
	for (unsigned int b = 0; b < PHX_STATS_BUCKETS; b++) {
		uint64_t top = phx_stats_bucket_top(b);

		assert_int_equal(phx_stats_bucket(top), b);
		if (b) {
			assert_true(top > below);
			assert_int_equal(phx_stats_bucket(below + 1), b);
			/* at most a sixteenth wide */
			assert_true((top - below - 1) * 16 <= top);
		}
		below = top;
	}
	assert_true(below == UINT64_MAX);
	assert_int_equal(phx_stats_bucket(UINT64_MAX), PHX_STATS_BUCKETS - 1);
}

static void sums_are_over_all_shards(void **state)
{
	static struct phx_stats_memory memory;
	struct phxfs_stats out = { .size = sizeof(out) };

	for (int i = 0; i < PHX_STATS_SHARDS; i++) {
		struct phx_counters *c = &memory.counters[3][i];

		c->io[0][PHXFS_PATH_DIRECT].ops = 1;
		c->io[0][PHXFS_PATH_DIRECT].bytes = 1000;
		c->io[1][PHXFS_PATH_EDGE].errors = 2;
		c->copies = 3;
		c->copy_bytes = 30;
		c->retries = 4;
	}
	memory.gauges[3].present = 1;
	memory.gauges[3].registrations = 5;
	memory.gauges[3].registered_bytes = 50;
	assert_int_equal(phx_stats_sum(&memory, 3, &out), 0);
	assert_int_equal(out.read[PHXFS_PATH_DIRECT].ops, PHX_STATS_SHARDS);
	assert_int_equal(out.read[PHXFS_PATH_DIRECT].bytes, 1000 * PHX_STATS_SHARDS);
	assert_int_equal(out.write[PHXFS_PATH_EDGE].errors, 2 * PHX_STATS_SHARDS);
	assert_int_equal(out.copies, 3 * PHX_STATS_SHARDS);
	assert_int_equal(out.copy_bytes, 30 * PHX_STATS_SHARDS);
	assert_int_equal(out.retries, 4 * PHX_STATS_SHARDS);
	assert_int_equal(out.registrations, 5);
	assert_int_equal(out.registered_bytes, 50);
}

static void latencies_are_measured_only_while_watched(void **state)
{
	struct phx_histogram *h;

	phx_init();
	h = &phx_stats->latency[0];
	atomic_store(&phx_stats->watch_until_ns, 0);
	assert_int_equal(phx_stats_start(), 0);
	/* a viewer that has gone: its time is over */
	atomic_store(&phx_stats->watch_until_ns, 1);
	assert_int_equal(phx_stats_start(), 0);
	assert_int_equal(atomic_load(&phx_stats->watch_until_ns), 0);
	/* one that asks for a century is not believed */
	atomic_store(&phx_stats->watch_until_ns, UINT64_MAX);
	assert_int_equal(phx_stats_start(), 0);

	atomic_store(&h->count, 0);
	phx_stats_latency(false, 1);
	assert_int_equal(atomic_load(&h->count), 1);
	assert_true(atomic_load(&h->max_ns) > 0);
	assert_int_equal(atomic_load(&h->sum_ns), atomic_load(&h->max_ns));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_bucket_holds_what_it_says),
		cmocka_unit_test(sums_are_over_all_shards),
		cmocka_unit_test(latencies_are_measured_only_while_watched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
