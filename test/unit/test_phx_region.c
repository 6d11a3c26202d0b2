// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "phx_device.h"
#include "phx_init.h"
#include "phx_region.h"

static struct phx_device *dev;
static char *memory;

static int start(void **state)
{
	setenv("PHX_CONNECTOR", "host", 1);
	phx_init();
	dev = phx_device_find(0);
	if (!dev || phxfs_open(0) || phxfs_mem_alloc(0, 4 * PHXFS_DEVICE_PAGE, (void **)&memory))
		return -1;
	return 0;
}

static uintptr_t at(size_t offset)
{
	return (uintptr_t)memory + offset;
}

static void get_wants_the_whole_range_inside(void **state)
{
	struct phx_region *r;

	assert_null(phx_region_get(dev, at(0), 1));
	assert_int_equal(phxfs_regmem(0, memory, 2 * PHXFS_DEVICE_PAGE, NULL), 0);
	r = phx_region_get(dev, at(0), 2 * PHXFS_DEVICE_PAGE);
	assert_non_null(r);
	assert_ptr_equal(phx_region_get(dev, at(2 * PHXFS_DEVICE_PAGE - 1), 1), r);
	assert_null(phx_region_get(dev, at(1), 2 * PHXFS_DEVICE_PAGE));
	assert_null(phx_region_get(dev, at(2 * PHXFS_DEVICE_PAGE), 1));
	assert_null(phx_region_get(dev, at(0) - 1, 2));
	assert_null(phx_region_get(dev, at(5), SIZE_MAX - 2));
	phx_region_put(dev, r);
	phx_region_put(dev, r);
	assert_int_equal(phxfs_deregmem(0, memory, 2 * PHXFS_DEVICE_PAGE), 0);
	assert_null(phx_region_get(dev, at(0), 1));
}

static atomic_int gone;

static void *deregister(void *arg)
{
	assert_int_equal(phxfs_deregmem(0, memory, PHXFS_DEVICE_PAGE), 0);
	atomic_store(&gone, 1);
	return NULL;
}

static void a_holder_keeps_it_and_no_new_one_comes(void **state)
{
	struct timespec ms = { 0, 30000000 };
	struct phx_region *r;
	pthread_t t;

	assert_int_equal(phxfs_regmem(0, memory, PHXFS_DEVICE_PAGE, NULL), 0);
	r = phx_region_get(dev, at(0), 1);
	assert_non_null(r);
	assert_int_equal(pthread_create(&t, NULL, deregister, NULL), 0);
	nanosleep(&ms, NULL);
	assert_int_equal(atomic_load(&gone), 0);
	assert_null(phx_region_get(dev, at(0), 1));
	phx_region_put(dev, r);
	pthread_join(t, NULL);
	assert_int_equal(atomic_load(&gone), 1);
}

/* A node is used again, for another range: a stale look at it finds nothing wrong. */
static void memory_of_regions_is_used_again(void **state)
{
	pthread_mutex_lock(&dev->lock);
	for (int i = 0; i < 1000; i++) {
		struct phx_region *a = phx_region_alloc(dev), *b;

		assert_non_null(a);
		phx_region_free(dev, a);
		b = phx_region_alloc(dev);
		assert_ptr_equal(a, b);
		assert_int_equal(b->state, PHX_REGION_FREE);
		phx_region_free(dev, b);
	}
	pthread_mutex_unlock(&dev->lock);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(get_wants_the_whole_range_inside),
		cmocka_unit_test(a_holder_keeps_it_and_no_new_one_comes),
		cmocka_unit_test(memory_of_regions_is_used_again),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
