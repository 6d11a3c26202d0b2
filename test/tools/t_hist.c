// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "hist.h"

static struct hist hist;

static int clear(void **state)
{
	memset(&hist, 0, sizeof(hist));
	return 0;
}

static void buckets_are_in_order_and_whole(void **state)
{
	unsigned int last = 0, index;
	uint64_t ns, step;

	for (ns = 0; ns < UINT64_C(1) << 43; ns += step) {
		index = hist_index(ns);
		assert_true(index < HIST_BUCKETS);
		assert_true(index == last || index == last + 1);
		last = index;
		/* no step may jump over a bucket */
		step = ns < HIST_SUB ? 1 : (UINT64_C(1) << (63 - __builtin_clzll(ns))) / HIST_SUB;
	}
	assert_int_equal(last, HIST_BUCKETS - 1);
	assert_int_equal(hist_index(UINT64_MAX), HIST_BUCKETS - 1);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* The oracle is the sorted list itself. */
static void quantiles_are_within_a_bucket_of_the_truth(void **state)
{
	static const double shares[] = { 0, 0.001, 0.5, 0.9, 0.99, 0.999, 1 };
	enum { N = 20000 };
	static uint64_t values[N];
	unsigned int i, seed = 7;
	uint64_t truth, got;
	size_t rank;

	for (i = 0; i < N; i++) {
		values[i] = (uint64_t)rand_r(&seed) >> (rand_r(&seed) % 30);
		hist_add(&hist, values[i]);
	}
	qsort(values, N, sizeof(*values), by_value);
	for (i = 0; i < sizeof(shares) / sizeof(*shares); i++) {
		rank = (size_t)(shares[i] * N);
		if ((double)rank < shares[i] * N || rank == 0)
			rank++;
		truth = values[rank - 1];
		got = hist_quantile(&hist, shares[i]);
		assert_true(got >= truth);
		assert_true((double)got <= (double)truth * (1 + 1.0 / HIST_SUB) + 1);
	}
	assert_true(hist_quantile(&hist, 1) == values[N - 1]);
	assert_true(hist.max == values[N - 1]);
}

static void an_empty_one_has_no_figures(void **state)
{
	assert_true(hist_quantile(&hist, 0.99) == 0);
	assert_true(hist_mean(&hist) == 0);
}

static void merging_is_adding(void **state)
{
	static struct hist other, both;
	uint64_t v;

	for (v = 1; v < 100000; v = v * 3 + 1) {
		hist_add(&hist, v);
		hist_add(&other, v * 2);
		hist_add(&both, v);
		hist_add(&both, v * 2);
	}
	hist_merge(&hist, &other);
	assert_memory_equal(&hist, &both, sizeof(hist));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(buckets_are_in_order_and_whole, clear),
		cmocka_unit_test_setup(quantiles_are_within_a_bucket_of_the_truth, clear),
		cmocka_unit_test_setup(an_empty_one_has_no_figures, clear),
		cmocka_unit_test_setup(merging_is_adding, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
