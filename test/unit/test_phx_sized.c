// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include "phx_sized.h"

struct v2 {
	uint32_t size;
	uint32_t a, b;
	uint32_t later;
};

static const struct v2 ours = { .a = 1, .b = 2, .later = 3 };

static void too_small_is_refused(void **state)
{
	struct v2 out = { .size = 8 };

	assert_int_equal(phx_check_size(NULL, 12, "step"), -EINVAL);
	assert_int_equal(phx_check_size(&out, PHX_SIZE_UPTO(struct v2, b), "step"), -EINVAL);
	out.size = 12;
	assert_int_equal(phx_check_size(&out, PHX_SIZE_UPTO(struct v2, b), "step"), 0);
}

static void an_older_caller_gets_its_part(void **state)
{
	struct v2 out = { .size = 12, .later = 99 };

	phx_fill(&out, &ours, sizeof(ours));
	assert_int_equal(out.size, 12);
	assert_int_equal(out.b, 2);
	assert_int_equal(out.later, 99);
}

static void a_newer_caller_gets_zeroes_behind(void **state)
{
	struct {
		struct v2 v;
		uint32_t newest, guard;
	} out = { .v.size = sizeof(struct v2) + 4, .newest = 99, .guard = 99 };

	phx_fill(&out, &ours, sizeof(ours));
	assert_int_equal(out.v.size, sizeof(struct v2)); /* what was filled */
	assert_int_equal(out.v.later, 3);
	assert_int_equal(out.newest, 0);
	assert_int_equal(out.guard, 99);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(too_small_is_refused),
		cmocka_unit_test(an_older_caller_gets_its_part),
		cmocka_unit_test(a_newer_caller_gets_zeroes_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
