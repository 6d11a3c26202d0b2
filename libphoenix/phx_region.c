// SPDX-License-Identifier: Apache-2.0
/*
 * Holding and draining regions.
 *
 * refs is one word so that "is it live" and "hold it" are one step. A getter
 * finds a node in the tree without a lock; by the time it takes its reference
 * the node may have been freed and reused for another range. So it takes the
 * reference first, and then looks whether the region is still the one it
 * wanted: while it is held and live its range cannot change.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "phx_device.h"
#include "phx_queue.h"
#include "phx_region.h"
#include "phx_time.h"

#define SLAB 64 /* regions allocated at once */

struct phx_region *phx_region_get_again(struct phx_device *dev, struct phx_region *held,
					uintptr_t addr, size_t len)
{
	bool too_short = phx_region_contains(held, addr, 1);

	phx_region_put(dev, held);
	return too_short ? NULL : phx_region_get(dev, addr, len);
}

void phx_region_put(struct phx_device *dev, struct phx_region *region)
{
	/* Release: what the transfer did comes before the unmapping. */
	if (atomic_fetch_sub_explicit(&region->refs, 1, memory_order_release) != 1)
		return;
	/* The last holder of a draining region. It may be gone by now: wake by device. */
	pthread_mutex_lock(&dev->lock);
	pthread_cond_broadcast(&dev->changed);
	pthread_mutex_unlock(&dev->lock);
}

/* A transfer in a queue's ring does not announce its end: @polled, come back soon. */
static void wait_changed(struct phx_device *dev, bool polled)
{
	struct timespec until;

	if (!polled) {
		pthread_cond_wait(&dev->changed, &dev->lock);
		return;
	}
	until = phx_timespec(phx_now_ns() + 1000000);
	pthread_cond_clockwait(&dev->changed, &dev->lock, CLOCK_MONOTONIC, &until);
}

void phx_region_drain(struct phx_device *dev, struct phx_region *region)
{
	region->state = PHX_REGION_DRAINING;
	atomic_fetch_and_explicit(&region->refs, ~PHX_REGION_LIVE_BIT, memory_order_acq_rel);
	while (atomic_load_explicit(&region->refs, memory_order_acquire)) {
		bool polled;

		pthread_mutex_unlock(&dev->lock);
		polled = phx_queues_reap();
		pthread_mutex_lock(&dev->lock);
		if (atomic_load_explicit(&region->refs, memory_order_acquire))
			wait_changed(dev, polled);
	}
}

struct phx_region *phx_region_alloc(struct phx_device *dev)
{
	struct phx_region *region = dev->free_regions;

	if (!region) {
		struct phx_region *slab = calloc(SLAB, sizeof(*slab));

		if (!slab)
			return NULL;
		for (int i = 0; i < SLAB - 1; i++)
			slab[i].next = &slab[i + 1];
		region = slab;
	}
	dev->free_regions = region->next;
	region->next = NULL;
	return region;
}

void phx_region_free(struct phx_device *dev, struct phx_region *region)
{
	region->state = PHX_REGION_FREE;
	region->users = 0;
	region->next = dev->free_regions;
	dev->free_regions = region;
}

void phx_region_forget_holders(struct phx_region *region)
{
	atomic_fetch_and_explicit(&region->refs, PHX_REGION_LIVE_BIT, memory_order_relaxed);
}
