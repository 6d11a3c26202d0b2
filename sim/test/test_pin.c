// SPDX-License-Identifier: Apache-2.0
/* phxsim: the pin API, through phxsim-client.ko. */
#include "sim_test.h"

#include <signal.h>

static uint64_t bar_phys(int dev)
{
	struct phxsim_info info;
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/phxsim%d", dev);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(ioctl(fd, PHXSIM_IOC_INFO, &info), 0);
	close(fd);
	return info.bar_phys;
}

static void assert_nothing_pinned(void)
{
	assert_int_equal(sim_sysfs(0, "pins"), 0);
	assert_int_equal(sim_sysfs(0, "persistent_pins"), 0);
	assert_int_equal(sim_sysfs(0, "pinned_bytes"), 0);
}

static void a_pin_gives_bar_addresses(void **state)
{
	int fd = client_open();
	char *p = sim_alloc(0, 4 * MIB, PHXSIM_MEM_FRAGMENTED);
	uint64_t at[64], phys = bar_phys(0);
	struct phxsim_client_pin pin;
	uint32_t i;

	assert_int_equal(phxsim_pointer_pages(p, at, 64), 0);
	assert_int_equal(client_pin(fd, p + PAGE, 4 * MIB - PAGE, 0, &pin), 0);
	assert_int_equal(pin.version, 0x10000);
	assert_int_equal(pin.page_size, PAGE);
	assert_int_equal(pin.entries, 63);
	for (i = 0; i < 63; i++)
		assert_int_equal(client_state(fd, pin.handle, i).addr, phys + at[i + 1]);
	assert_int_equal(sim_sysfs(0, "pinned_bytes"), 63 * PAGE);
	assert_int_equal(client_unpin(fd, pin.handle), 0);
	assert_nothing_pinned();
	assert_int_equal(phxsim_mem_free(p), 0);
	close(fd);
}

static int pin_is_refused(void *p)
{
	struct phxsim_client_pin pin;

	return client_pin(client_open(), p, PAGE, 0, &pin) == -EINVAL ? 0 : 1;
}

static void a_pin_refuses_what_is_not_the_callers(void **state)
{
	int fd = client_open();
	char *p = sim_alloc(0, 2 * PAGE, 0), *q = sim_alloc(0, PAGE, 0);
	struct phxsim_client_pin pin;

	assert_int_equal(client_pin(fd, p + 4096, PAGE, 0, &pin), -EINVAL);
	assert_int_equal(client_pin(fd, p, PAGE + 4096, 0, &pin), -EINVAL);
	assert_int_equal(client_pin(fd, p, 0, 0, &pin), -EINVAL);
	/* past the end, though another allocation begins there */
	assert_ptr_equal(p + 2 * PAGE, q);
	assert_int_equal(client_pin(fd, p, 3 * PAGE, 0, &pin), -EINVAL);
	assert_int_equal(client_pin(fd, p, -PAGE, 0, &pin), -EINVAL);
	assert_int_equal(client_pin(fd, &pin, PAGE, 0, &pin), -EINVAL);
	assert_int_equal(client_pin(fd, p, PAGE, 4, &pin), -EINVAL);
	assert_int_equal(in_child(pin_is_refused, p), 0);
	assert_nothing_pinned();
	assert_int_equal(phxsim_mem_free(p), 0);
	assert_int_equal(phxsim_mem_free(q), 0);
	close(fd);
}

static void free_reclaims_every_pin_once(void **state)
{
	int fd = client_open(), i;
	char *p = sim_alloc(0, HUGE, 0), *other = sim_alloc(0, PAGE, 0);
	long long before = sim_sysfs(0, "reclaims"), stale = sim_sysfs(0, "stale_puts");
	struct phxsim_client_pin pin[3], kept;

	for (i = 0; i < 3; i++)
		assert_int_equal(client_pin(fd, p + i * PAGE, HUGE - 3 * PAGE, 0, &pin[i]), 0);
	assert_int_equal(client_pin(fd, other, PAGE, 0, &kept), 0);
	assert_int_equal(phxsim_mem_free(p), 0);
	for (i = 0; i < 3; i++) {
		assert_int_equal(client_state(fd, pin[i].handle, 0).reclaimed, 1);
		assert_int_equal(client_state(fd, pin[i].handle, 0).atomic, 0);
		/* a late put is harmless, and noticed */
		assert_int_equal(client_unpin(fd, pin[i].handle), 0);
	}
	assert_int_equal(client_state(fd, kept.handle, 0).reclaimed, 0);
	assert_int_equal(sim_sysfs(0, "reclaims"), before + 3);
	assert_int_equal(sim_sysfs(0, "stale_puts"), stale + 3);
	assert_int_equal(client_unpin(fd, kept.handle), 0);
	assert_int_equal(phxsim_mem_free(other), 0);
	assert_nothing_pinned();
	close(fd);
}

static void reclaim_now_leaves_the_allocation(void **state)
{
	int fd = client_open();
	char *p = sim_alloc(0, PAGE, 0), *q = sim_alloc(0, PAGE, 0);
	struct phxsim_client_pin a, b;
	uint32_t n;

	assert_int_equal(client_pin(fd, p, PAGE, 0, &a), 0);
	assert_int_equal(client_pin(fd, q, PAGE, 0, &b), 0);
	assert_int_equal(phxsim_reclaim(0, 0, p, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(client_state(fd, a.handle, 0).reclaimed, 1);
	assert_int_equal(client_state(fd, b.handle, 0).reclaimed, 0);
	assert_int_equal(client_unpin(fd, a.handle), 0);
	assert_int_equal(client_pin(fd, p, PAGE, 0, &a), 0);
	assert_int_equal(phxsim_reclaim(0, 0, NULL, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(phxsim_reclaim(0, 1, NULL, &n), -ESRCH);
	assert_int_equal(phxsim_memset(p, 1, PAGE), 0);
	close(fd);
	assert_int_equal(phxsim_mem_free(p), 0);
	assert_int_equal(phxsim_mem_free(q), 0);
	assert_nothing_pinned();
}

static void a_persistent_pin_outlives_the_free(void **state)
{
	int fd = client_open();
	long long used = sim_sysfs(0, "used_bytes");
	char *p = sim_alloc(0, 3 * PAGE, 0), *q;
	struct phxsim_client_pin pin;
	uint64_t old[3], new[3];
	uint32_t n;

	assert_int_equal(phxsim_pointer_pages(p, old, 3), 0);
	assert_int_equal(client_pin(fd, p, 3 * PAGE, PHXSIM_CLIENT_PERSISTENT, &pin), 0);
	assert_int_equal(phxsim_reclaim(0, 0, p, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(phxsim_mem_free(p), 0);
	assert_int_equal(sim_sysfs(0, "used_bytes"), used + 3 * PAGE);
	/* the address comes back, over other pages */
	q = sim_alloc(0, 3 * PAGE, 0);
	assert_ptr_equal(p, q);
	assert_int_equal(phxsim_pointer_pages(q, new, 3), 0);
	assert_true(old[0] != new[0]);
	assert_int_equal(client_state(fd, pin.handle, 0).addr, bar_phys(0) + old[0]);
	assert_int_equal(client_unpin(fd, pin.handle), 0);
	assert_int_equal(phxsim_mem_free(q), 0);
	assert_int_equal(sim_sysfs(0, "used_bytes"), used);
	assert_nothing_pinned();
	close(fd);
}

struct shared {
	int fd;
	uint32_t flags;
};

static int pin_and_die(void *arg)
{
	struct shared *s = arg;
	struct phxsim_client_pin pin;
	void *p;

	if (phxsim_mem_alloc(0, PAGE, 0, &p) || client_pin(s->fd, p, PAGE, s->flags, &pin))
		return 1;
	if (pin.handle)		/* the parent looks at the first one */
		return 2;
	raise(SIGKILL);
	return 3;
}

static void death_reclaims(void **state)
{
	struct shared s = { .fd = client_open() };

	assert_int_equal(in_child(pin_and_die, &s), 128 + SIGKILL);
	assert_int_equal(client_state(s.fd, 0, 0).reclaimed, 1);
	assert_nothing_pinned();
	close(s.fd);
}

static void death_leaves_a_persistent_pin(void **state)
{
	struct shared s = { .fd = client_open(), .flags = PHXSIM_CLIENT_PERSISTENT };
	long long used = sim_sysfs(0, "used_bytes");

	assert_int_equal(in_child(pin_and_die, &s), 128 + SIGKILL);
	assert_int_equal(sim_sysfs(0, "persistent_pins"), 1);
	assert_int_equal(sim_sysfs(0, "used_bytes"), used + PAGE);
	close(s.fd);
	assert_int_equal(sim_sysfs(0, "used_bytes"), used);
	assert_nothing_pinned();
}

static void pins_are_released_with_the_clients_file(void **state)
{
	int fd = client_open(), i;
	char *p = sim_alloc(0, PAGE, 0);
	struct phxsim_client_pin pin;

	for (i = 0; i < 100; i++)
		assert_int_equal(client_pin(fd, p, PAGE, i % 2, &pin), 0);
	assert_int_equal(sim_sysfs(0, "pins"), 50);
	assert_int_equal(sim_sysfs(0, "persistent_pins"), 50);
	close(fd);
	assert_nothing_pinned();
	assert_int_equal(phxsim_mem_free(p), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pin_gives_bar_addresses),
		cmocka_unit_test(a_pin_refuses_what_is_not_the_callers),
		cmocka_unit_test(free_reclaims_every_pin_once),
		cmocka_unit_test(reclaim_now_leaves_the_allocation),
		cmocka_unit_test(a_persistent_pin_outlives_the_free),
		cmocka_unit_test(death_reclaims),
		cmocka_unit_test(death_leaves_a_persistent_pin),
		cmocka_unit_test(pins_are_released_with_the_clients_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
