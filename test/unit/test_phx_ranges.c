// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include <pthread.h>

#include "phx_ranges.h"

enum { MANY = 4000 };

#define PAGE ((size_t)1 << PHX_RANGE_SHIFT)

static struct phx_range nodes[MANY];

static void empty_holds_nothing(void **state)
{
	static struct phx_ranges t;

	assert_null(phx_ranges_find(&t, 0));
	assert_null(phx_ranges_find(&t, UINTPTR_MAX));
	assert_null(phx_ranges_overlap(&t, 0, SIZE_MAX & ~(PAGE - 1)));
}

static void borders_belong_to_the_range_or_not(void **state)
{
	static struct phx_ranges t;
	struct phx_range *r = &nodes[0];

	assert_int_equal(phx_ranges_insert(&t, r, 10 * PAGE, 3 * PAGE), 0);
	assert_null(phx_ranges_find(&t, 10 * PAGE - 1));
	assert_ptr_equal(phx_ranges_find(&t, 10 * PAGE), r);
	assert_ptr_equal(phx_ranges_find(&t, 13 * PAGE - 1), r);
	assert_null(phx_ranges_find(&t, 13 * PAGE));
	assert_null(phx_ranges_overlap(&t, 9 * PAGE, PAGE));
	assert_ptr_equal(phx_ranges_overlap(&t, 9 * PAGE, 2 * PAGE), r);
	assert_ptr_equal(phx_ranges_overlap(&t, 11 * PAGE, PAGE), r);
	assert_ptr_equal(phx_ranges_overlap(&t, 12 * PAGE, 5 * PAGE), r);
	assert_null(phx_ranges_overlap(&t, 13 * PAGE, 5 * PAGE));
	assert_ptr_equal(phx_ranges_overlap(&t, 0, (size_t)1 << 40), r);
	phx_ranges_remove(&t, r);
	assert_null(phx_ranges_find(&t, 11 * PAGE));
}

/* Sizes and places that take slots of every level, or straddle them. */
static void ranges_of_every_size_and_place(void **state)
{
	static const size_t lens[] = { PAGE, 255 * PAGE, 256 * PAGE, 257 * PAGE, 65536 * PAGE,
				       65536 * PAGE + PAGE, (size_t)3 << 40 };
	static const uintptr_t bases[] = { PAGE, 255 * PAGE, 256 * PAGE, (uintptr_t)1 << 32,
					   ((uintptr_t)1 << 32) - PAGE, ((uintptr_t)1 << 47) - PAGE,
					   ((uintptr_t)1 << 48) - PAGE, (uintptr_t)1 << 48,
					   ((uintptr_t)1 << 56) + PAGE };
	static struct phx_ranges t;

	for (size_t i = 0; i < 7 * 9; i++) {
		uintptr_t base = bases[i % 9];
		size_t len = lens[i / 9];

		assert_int_equal(phx_ranges_insert(&t, &nodes[0], base, len), 0);
		assert_null(phx_ranges_find(&t, base - 1));
		assert_null(phx_ranges_find(&t, base + len));
		for (uintptr_t at = base; at < base + len; at += len / 16 < PAGE ? PAGE : len / 16)
			assert_ptr_equal(phx_ranges_find(&t, at), &nodes[0]);
		assert_ptr_equal(phx_ranges_find(&t, base + len - 1), &nodes[0]);
		assert_ptr_equal(phx_ranges_overlap(&t, base - PAGE, 2 * PAGE), &nodes[0]);
		assert_ptr_equal(phx_ranges_overlap(&t, base + len - PAGE, 2 * PAGE), &nodes[0]);
		assert_null(phx_ranges_overlap(&t, base + len, PAGE));
		phx_ranges_remove(&t, &nodes[0]);
		assert_null(phx_ranges_find(&t, base));
		assert_null(phx_ranges_find(&t, base + len - 1));
		assert_null(phx_ranges_overlap(&t, base - PAGE, len + 2 * PAGE));
	}
}

static void overlap_finds_the_lowest(void **state)
{
	static struct phx_ranges t;

	for (size_t i = 0; i < 10; i++)
		assert_int_equal(phx_ranges_insert(&t, &nodes[i], 1000 * PAGE * (10 - i),
						   500 * PAGE), 0);
	assert_ptr_equal(phx_ranges_overlap(&t, 0, (size_t)1 << 40), &nodes[9]);
	assert_ptr_equal(phx_ranges_overlap(&t, 2600 * PAGE, 10000 * PAGE), &nodes[7]);
}

static void check_all(struct phx_ranges *t, const size_t *place, const bool *in, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uintptr_t base = (1 + place[i]) * PAGE;
		struct phx_range *want = in[i] ? &nodes[i] : NULL;

		assert_ptr_equal(phx_ranges_find(t, base), want);
		assert_ptr_equal(phx_ranges_find(t, base + PAGE - 1), want);
		assert_ptr_equal(phx_ranges_overlap(t, base, PAGE), want);
	}
}

static void thousands_in_any_order(void **state)
{
	static struct phx_ranges t;
	static size_t place[MANY];
	static bool in[MANY];
	unsigned int seed = 1;

	for (size_t order = 0; order < 3; order++) {
		for (size_t i = 0; i < MANY; i++)
			place[i] = order == 1 ? MANY - 1 - i : i;
		for (size_t i = MANY - 1; order == 2 && i > 0; i--) {
			size_t j = (size_t)rand_r(&seed) % (i + 1), x = place[i];

			place[i] = place[j];
			place[j] = x;
		}
		for (size_t i = 0; i < MANY; i++) {
			assert_int_equal(phx_ranges_insert(&t, &nodes[i], (1 + place[i]) * PAGE,
							   PAGE), 0);
			in[i] = true;
		}
		check_all(&t, place, in, MANY);
		for (size_t i = 0; i < MANY; i += 2) {
			phx_ranges_remove(&t, &nodes[i]);
			in[i] = false;
		}
		check_all(&t, place, in, MANY);
		for (size_t i = 1; i < MANY; i += 2) {
			phx_ranges_remove(&t, &nodes[i]);
			in[i] = false;
		}
		check_all(&t, place, in, MANY);
	}
}

struct racer {
	struct phx_ranges tree;
	atomic_bool stop;
	atomic_long misses;
};

/* Node 0 stays for ever: no reader may ever miss it. */
static void *look(void *arg)
{
	struct racer *r = arg;

	while (!atomic_load(&r->stop))
		if (phx_ranges_find(&r->tree, PAGE + 100) != &nodes[0])
			atomic_fetch_add(&r->misses, 1);
	return NULL;
}

static void readers_without_a_lock_never_miss(void **state)
{
	static struct racer r;
	pthread_t t[2];

	assert_int_equal(phx_ranges_insert(&r.tree, &nodes[0], PAGE, PAGE), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&t[i], NULL, look, &r), 0);
	for (int round = 0; round < 100; round++) {
		for (size_t i = 1; i < 100; i++)
			assert_int_equal(phx_ranges_insert(&r.tree, &nodes[i],
							   i % 2 ? (1 + i) * PAGE : i * 300 * PAGE,
							   i % 2 ? PAGE : 290 * PAGE), 0);
		for (size_t i = 1; i < 100; i++)
			phx_ranges_remove(&r.tree, &nodes[i]);
	}
	atomic_store(&r.stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(atomic_load(&r.misses), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_holds_nothing),
		cmocka_unit_test(borders_belong_to_the_range_or_not),
		cmocka_unit_test(ranges_of_every_size_and_place),
		cmocka_unit_test(overlap_finds_the_lowest),
		cmocka_unit_test(thousands_in_any_order),
		cmocka_unit_test(readers_without_a_lock_never_miss),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
