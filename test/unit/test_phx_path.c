// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include "phoenix.h"
#include "phx_config.h"
#include "phx_path.h"

static void the_table_of_modes_and_wishes(void **state)
{
	enum { D = PHXFS_PATH_DIRECT, S = PHXFS_PATH_STAGING, B = PHXFS_PATH_BOUNCE };
	/* [wish][mode]; -1: refused */
	static const int want[4][4] = {
		[PHX_PATH_AUTO] = { [PHXFS_MODE_FULL] = D, [PHXFS_MODE_STAGING] = S,
				    [PHXFS_MODE_BOUNCE] = B, [PHXFS_MODE_HOST] = D },
		[PHX_PATH_DIRECT] = { [PHXFS_MODE_FULL] = D, [PHXFS_MODE_STAGING] = -1,
				      [PHXFS_MODE_BOUNCE] = -1, [PHXFS_MODE_HOST] = D },
		[PHX_PATH_STAGING] = { S, S, S, S },
		[PHX_PATH_BOUNCE] = { B, B, B, B },
	};

	for (int wish = 0; wish < 4; wish++) {
		phx_config.path = wish;
		for (int mode = 0; mode < 4; mode++)
			assert_int_equal(phx_path_choose(mode), want[wish][mode]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_of_modes_and_wishes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
