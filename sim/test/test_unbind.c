// SPDX-License-Identifier: Apache-2.0
/* phxsim: the device goes away under its users, as hardware does, and comes back. */
#include "sim_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static char bdf[16];

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), ret;

	if (fd < 0)
		return -errno;
	ret = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

static int unbind(void)
{
	return write_file("/sys/bus/pci/drivers/phxsim/unbind", bdf);
}

static void rebind(void)
{
	assert_int_equal(write_file("/sys/bus/pci/drivers/phxsim/bind", bdf), 0);
	/* devtmpfs makes the node before bind returns */
	assert_int_equal(phxsim_device_reset(0), 0);
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

static void unbind_reclaims_and_ends_all_calls(void **state)
{
	char *p = sim_alloc(0, PAGE, 0), byte = 0;
	struct phxsim_client_pin pin, again;
	int fd = client_open();
	void *q;

	assert_int_equal(client_pin(fd, p, PAGE, 0, &pin), 0);
	assert_int_equal(unbind(), 0);
	assert_int_equal(client_state(fd, pin.handle, 0).reclaimed, 1);
	assert_int_equal(client_pin(fd, p, PAGE, 0, &again), -ENODEV);
	assert_int_equal(client_unpin(fd, pin.handle), 0);
	assert_int_equal(phxsim_memcpy_dtoh(&byte, p, 1), -ENODEV);
	assert_int_equal(phxsim_mem_alloc(0, PAGE, 0, &q), -ENODEV);
	rebind();
	assert_int_equal(sim_sysfs(0, "used_bytes"), 0);
	p = sim_alloc(0, PAGE, 0);
	assert_int_equal(phxsim_memset(p, 1, PAGE), 0);
	assert_int_equal(phxsim_mem_free(p), 0);
	close(fd);
}

struct late_put {
	int fd;
	uint32_t handle;
	double at;
};

static void *put_later(void *arg)
{
	struct late_put *l = arg;

	usleep(400000);
	l->at = seconds();
	client_unpin(l->fd, l->handle);
	return NULL;
}

static void unbind_waits_for_a_persistent_pin(void **state)
{
	struct late_put l = { .fd = client_open() };
	char *p = sim_alloc(0, PAGE, 0);
	struct phxsim_client_pin pin;
	pthread_t thread;

	assert_int_equal(client_pin(l.fd, p, PAGE, PHXSIM_CLIENT_PERSISTENT, &pin), 0);
	l.handle = pin.handle;
	assert_int_equal(pthread_create(&thread, NULL, put_later, &l), 0);
	assert_int_equal(unbind(), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(seconds() >= l.at && l.at > 0);
	rebind();
	close(l.fd);
}

static void unbind_does_not_wait_for_ever(void **state)
{
	static const char wait_ms[] = "/sys/module/phxsim/parameters/unbind_wait_ms";
	int fd = client_open();
	char *p = sim_alloc(0, PAGE, 0);
	struct phxsim_client_pin pin;
	double start;

	assert_int_equal(write_file(wait_ms, "300"), 0);
	assert_int_equal(client_pin(fd, p, PAGE, PHXSIM_CLIENT_PERSISTENT, &pin), 0);
	start = seconds();
	assert_int_equal(unbind(), 0);
	assert_true(seconds() - start >= 0.3);
	rebind();
	/* the old device's pin is still a pin, and put as one */
	assert_int_equal(sim_sysfs(0, "persistent_pins"), 0);
	assert_int_equal(client_unpin(fd, pin.handle), 0);
	assert_int_equal(write_file(wait_ms, "10000"), 0);
	close(fd);
}

struct copier {
	char *device;
	atomic_int started;
	int error;
};

static void *copy_until_it_fails(void *arg)
{
	struct copier *c = arg;
	char *host = malloc(MIB);

	while (!c->error) {
		c->error = phxsim_memcpy_htod(c->device, host, MIB);
		if (!c->error)
			c->error = phxsim_memcpy_dtoh(host, c->device, MIB);
		atomic_fetch_add(&c->started, 1);
	}
	free(host);
	return NULL;
}

static void unbind_during_copies(void **state)
{
	struct copier c[3] = { 0 };
	pthread_t thread[3];
	int i;

	for (i = 0; i < 3; i++) {
		c[i].device = sim_alloc(0, MIB, PHXSIM_MEM_FRAGMENTED);
		assert_int_equal(pthread_create(&thread[i], NULL, copy_until_it_fails, &c[i]), 0);
	}
	for (i = 0; i < 3; i++)
		while (atomic_load(&c[i].started) < 5)
			usleep(1000);
	assert_int_equal(unbind(), 0);
	for (i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(thread[i], NULL), 0);
		assert_int_equal(c[i].error, -ENODEV);
	}
	rebind();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(unbind_reclaims_and_ends_all_calls),
		cmocka_unit_test(unbind_waits_for_a_persistent_pin),
		cmocka_unit_test(unbind_does_not_wait_for_ever),
		cmocka_unit_test(unbind_during_copies),
	};

	if (phxsim_device_bdf(0, bdf, sizeof(bdf)))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
