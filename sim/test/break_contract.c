// SPDX-License-Identifier: Apache-2.0
/*
 * A client that puts its pin inside the free callback: the driver refuses with
 * EDEADLK and warns. Exits 0; whoever watches the kernel log must object.
 */
#include "sim_test.h"

static void a_put_in_the_callback_is_refused(void **state)
{
	int fd = client_open();
	char *p = sim_alloc(0, PAGE, 0);
	struct phxsim_client_pin pin;

	assert_int_equal(client_pin(fd, p, PAGE, PHXSIM_CLIENT_PUT_IN_CALLBACK, &pin), 0);
	assert_int_equal(phxsim_mem_free(p), 0);
	assert_int_equal(client_state(fd, pin.handle, 0).reclaimed, 1);
	assert_int_equal(client_state(fd, pin.handle, 0).put_error, -EDEADLK);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_put_in_the_callback_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
