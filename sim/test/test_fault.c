// SPDX-License-Identifier: Apache-2.0
/* phxsim: faults on demand. Each strikes as often as asked, then all is well. */
#include "sim_test.h"

#include <time.h>

static int always(unsigned int kind, uint64_t arg)
{
	return phxsim_fault(0, kind, 0, 1, arg);
}

static void a_fault_skips_then_strikes_then_ends(void **state)
{
	int expected[] = { 0, 0, -ENOMEM, -ENOMEM, -ENOMEM, 0 }, i, ret;
	void *p;

	assert_int_equal(phxsim_fault(0, PHXSIM_FAULT_ALLOC, 2, 3, ENOMEM), 0);
	for (i = 0; i < 6; i++) {
		ret = phxsim_mem_alloc(0, PAGE, 0, &p);
		assert_int_equal(ret, expected[i]);
		if (!ret)
			assert_int_equal(phxsim_mem_free(p), 0);
	}
	assert_int_equal(phxsim_fault(0, PHXSIM_FAULT_ALLOC, 0, PHXSIM_FAULT_FOREVER, EBUSY), 0);
	for (i = 0; i < 10; i++)
		assert_int_equal(phxsim_mem_alloc(0, PAGE, 0, &p), -EBUSY);
	assert_int_equal(phxsim_fault(0, PHXSIM_FAULT_ALLOC, 0, 0, 0), 0);
	p = sim_alloc(0, PAGE, 0);
	assert_int_equal(phxsim_mem_free(p), 0);
}

static void pin_faults(void **state)
{
	int fd = client_open();
	char *p = sim_alloc(0, 4 * PAGE, 0);
	struct phxsim_client_pin pin;

	assert_int_equal(always(PHXSIM_FAULT_PIN, EIO), 0);
	assert_int_equal(client_pin(fd, p, PAGE, 0, &pin), -EIO);
	assert_int_equal(always(PHXSIM_FAULT_PERSISTENT, ENOTSUP), 0);
	assert_int_equal(client_pin(fd, p, PAGE, 0, &pin), 0);
	assert_int_equal(client_unpin(fd, pin.handle), 0);
	assert_int_equal(client_pin(fd, p, PAGE, PHXSIM_CLIENT_PERSISTENT, &pin), -ENOTSUP);
	assert_int_equal(always(PHXSIM_FAULT_PIN_SILENT, 0), 0);
	assert_int_equal(client_pin(fd, p, PAGE, 0, &pin), -ENODATA);
	assert_int_equal(sim_sysfs(0, "pins"), 0);

	assert_int_equal(client_pin(fd, p, PAGE, 0, &pin), 0);
	assert_int_equal(always(PHXSIM_FAULT_PUT, EBUSY), 0);
	assert_int_equal(client_unpin(fd, pin.handle), -EBUSY);
	assert_int_equal(sim_sysfs(0, "pins"), 1);
	assert_int_equal(client_unpin(fd, pin.handle), 0);
	assert_int_equal(sim_sysfs(0, "pins"), 0);
	assert_int_equal(phxsim_mem_free(p), 0);
	close(fd);
}

static void a_table_can_be_wrong_in_every_field(void **state)
{
	int fd = client_open();
	char *p = sim_alloc(0, 4 * PAGE, 0);
	struct phxsim_client_pin good, pin;
	uint64_t total, phys;

	assert_int_equal(phxsim_device_memory(0, &total, NULL), 0);
	assert_int_equal(client_pin(fd, p, 4 * PAGE, 0, &good), 0);
	phys = client_state(fd, good.handle, 1).addr;

	assert_int_equal(always(PHXSIM_FAULT_PIN_OUTSIDE, 1), 0);
	assert_int_equal(client_pin(fd, p, 4 * PAGE, 0, &pin), 0);
	assert_true(client_state(fd, pin.handle, 1).addr >= phys - phys % total + total);
	assert_int_equal(client_state(fd, pin.handle, 0).addr, phys - PAGE);
	assert_int_equal(client_unpin(fd, pin.handle), 0);

	assert_int_equal(always(PHXSIM_FAULT_PIN_UNALIGNED, 1), 0);
	assert_int_equal(client_pin(fd, p, 4 * PAGE, 0, &pin), 0);
	assert_int_equal(client_state(fd, pin.handle, 1).addr, phys + 4096);
	assert_int_equal(client_unpin(fd, pin.handle), 0);

	assert_int_equal(always(PHXSIM_FAULT_PIN_NULL, 1), 0);
	assert_int_equal(client_pin(fd, p, 4 * PAGE, 0, &pin), 0);
	assert_int_equal(client_state(fd, pin.handle, 1).addr, 0);
	assert_int_equal(client_unpin(fd, pin.handle), 0);

	assert_int_equal(always(PHXSIM_FAULT_PIN_SHORT, 1), 0);
	assert_int_equal(always(PHXSIM_FAULT_PIN_VERSION, 0x20000), 0);
	assert_int_equal(always(PHXSIM_FAULT_PIN_PAGE_SIZE, 4096), 0);
	assert_int_equal(client_pin(fd, p, 4 * PAGE, 0, &pin), 0);
	assert_int_equal(pin.entries, 3);
	assert_int_equal(pin.version, 0x20000);
	assert_int_equal(pin.page_size, 4096);
	/* only the table lied: the accounts are right */
	assert_int_equal(sim_sysfs(0, "pinned_bytes"), 8 * PAGE);
	assert_int_equal(client_unpin(fd, pin.handle), 0);
	assert_int_equal(client_unpin(fd, good.handle), 0);
	assert_int_equal(sim_sysfs(0, "pinned_bytes"), 0);
	assert_int_equal(phxsim_mem_free(p), 0);
	close(fd);
}

static void a_callback_can_come_early_or_atomic(void **state)
{
	int fd = client_open();
	char *p = sim_alloc(0, PAGE, 0);
	struct phxsim_client_pin pin;

	assert_int_equal(always(PHXSIM_FAULT_PIN_RECLAIM, 0), 0);
	assert_int_equal(client_pin(fd, p, PAGE, 0, &pin), 0);
	assert_int_equal(client_state(fd, pin.handle, 0).reclaimed, 1);
	assert_int_equal(pin.entries, 0);
	assert_int_equal(client_unpin(fd, pin.handle), 0);

	assert_int_equal(client_pin(fd, p, PAGE, 0, &pin), 0);
	assert_int_equal(always(PHXSIM_FAULT_RECLAIM_ATOMIC, 0), 0);
	assert_int_equal(phxsim_mem_free(p), 0);
	assert_int_equal(client_state(fd, pin.handle, 0).reclaimed, 1);
	assert_int_equal(client_state(fd, pin.handle, 0).atomic, 1);
	close(fd);
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void delays_delay(void **state)
{
	int fd = client_open();
	char *p = sim_alloc(0, PAGE, 0), byte = 0;
	struct phxsim_client_pin pin;
	double start = seconds();

	assert_int_equal(always(PHXSIM_FAULT_PIN_DELAY, 200), 0);
	assert_int_equal(client_pin(fd, p, PAGE, 0, &pin), 0);
	assert_true(seconds() - start >= 0.2);
	start = seconds();
	assert_int_equal(always(PHXSIM_FAULT_COPY_DELAY, 200), 0);
	assert_int_equal(phxsim_memcpy_htod(p, &byte, 1), 0);
	assert_true(seconds() - start >= 0.2);
	start = seconds();
	assert_int_equal(always(PHXSIM_FAULT_RECLAIM_DELAY, 200), 0);
	assert_int_equal(phxsim_mem_free(p), 0);
	assert_true(seconds() - start >= 0.2);
	close(fd);
}

static void copies_fail_on_their_own_device_only(void **state)
{
	char *p = sim_alloc(0, PAGE, 0), *q, byte = 0;
	int count;

	assert_int_equal(phxsim_device_count(&count), 0);
	assert_int_equal(always(PHXSIM_FAULT_COPY, EIO), 0);
	if (count > 1) {
		q = sim_alloc(1, PAGE, 0);
		assert_int_equal(phxsim_memcpy_htod(q, &byte, 1), 0);
		assert_int_equal(phxsim_mem_free(q), 0);
	}
	assert_int_equal(phxsim_memcpy_htod(p, &byte, 1), -EIO);
	assert_int_equal(phxsim_memcpy_htod(p, &byte, 1), 0);
	assert_int_equal(phxsim_mem_free(p), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fault_skips_then_strikes_then_ends),
		cmocka_unit_test(pin_faults),
		cmocka_unit_test(a_table_can_be_wrong_in_every_field),
		cmocka_unit_test(a_callback_can_come_early_or_atomic),
		cmocka_unit_test(delays_delay),
		cmocka_unit_test(copies_fail_on_their_own_device_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
