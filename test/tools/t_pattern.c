// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "bench.h"

#define LENGTH 10000u

static unsigned char whole[LENGTH], part[LENGTH];

/* A file written with one block size is verified with another. */
static void cuts_do_not_change_it(void **state)
{
	static const size_t cuts[] = { 1, 3, 7, 8, 511, 512, 4096 };
	size_t i, at, n;

	pattern_fill(whole, LENGTH, 5, 1000);
	for (i = 0; i < sizeof(cuts) / sizeof(*cuts); i++) {
		memset(part, 0, LENGTH);
		for (at = 0; at < LENGTH; at += n) {
			n = LENGTH - at < cuts[i] ? LENGTH - at : cuts[i];
			pattern_fill(part + at, n, 5, 1000 + at);
			assert_true(pattern_check(part + at, n, 5, 1000 + at) == n);
		}
		assert_memory_equal(whole, part, LENGTH);
	}
}

static void one_changed_bit_is_found_where_it_is(void **state)
{
	size_t at;

	pattern_fill(whole, LENGTH, 5, 1003);
	for (at = 0; at < LENGTH; at += 97) {
		whole[at] ^= 0x10;
		assert_true(pattern_check(whole, LENGTH, 5, 1003) == at);
		whole[at] ^= 0x10;
	}
}

static void another_seed_or_place_differs(void **state)
{
	pattern_fill(whole, LENGTH, 5, 0);
	assert_true(pattern_check(whole, 4096, 6, 0) < 8);
	assert_true(pattern_check(whole, 4096, 5, 4096) < 8);
	assert_true(pattern_check(whole + 4096, 4096, 5, 4096) == 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cuts_do_not_change_it),
		cmocka_unit_test(one_changed_bit_is_found_where_it_is),
		cmocka_unit_test(another_seed_or_place_differs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
