/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A registered buffer.
 *
 * Who creates: phxfs_regmem(). Who holds: each transfer, from phx_region_get()
 * to phx_region_put(). Who frees: the last phxfs_deregmem() or phxfs_close(),
 * once no transfer holds it. The memory of a region is never returned to the
 * system, only to its device's free list: a reader of the tree may still look
 * at it (phx_ranges.h).
 *
 *           regmem                   mapped                last deregmem, close
 *   FREE ------------> PENDING ------------------> LIVE ------------> DRAINING
 *     ^                   | mapping failed                                |
 *     +-------------------+-----------------------------------------------+
 *                                              no transfer left, unmapped
 *
 * PENDING and DRAINING regions keep their place in the tree of ranges, so that nobody
 * registers over them, but phx_region_get() refuses them.
 */
#ifndef PHX_REGION_H
#define PHX_REGION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "phx_ranges.h"

struct phx_device;

enum phx_region_state { PHX_REGION_FREE, PHX_REGION_PENDING, PHX_REGION_LIVE, PHX_REGION_DRAINING };

#define PHX_REGION_LIVE_BIT (1ULL << 63)

struct phx_region {
	struct phx_range range;      /* must be first */
	_Atomic uint64_t refs;       /* LIVE_BIT | transfers that hold it */
	/* Written before LIVE_BIT is set, constant while it is held: */
	uintptr_t io_addr;           /* where storage and CPU reach byte 0; 0: nowhere */
	uintptr_t target;            /* what phxfs_regmem() gave to the user */
	/* Protected by the device's lock: */
	enum phx_region_state state;
	unsigned int users;          /* phxfs_regmem() calls not yet undone */
	uint64_t buffer_id;          /* FULL: whose pages are pinned; 0: not known */
	struct phx_region *next;     /* in the free list */
};

/* False: it is not live. Pairs with the release in phxfs_regmem(). */
static inline bool phx_region_hold(struct phx_region *region)
{
	uint64_t refs = atomic_load_explicit(&region->refs, memory_order_relaxed);

	while (refs & PHX_REGION_LIVE_BIT) {
		if (atomic_compare_exchange_weak_explicit(&region->refs, &refs, refs + 1,
							  memory_order_acquire,
							  memory_order_relaxed))
			return true;
	}
	return false;
}

/* Of a region that is held. */
static inline bool phx_region_contains(struct phx_region *region, uintptr_t addr, size_t len)
{
	uintptr_t base = atomic_load_explicit(&region->range.base, memory_order_relaxed);
	size_t size = atomic_load_explicit(&region->range.len, memory_order_relaxed);

	return addr >= base && addr - base <= size && len <= size - (addr - base);
}

/*
 * @held does not contain the range: it is too short, or was reused while it was
 * looked up. Lets it go and looks again.
 */
struct phx_region *phx_region_get_again(struct phx_device *dev, struct phx_region *held,
					uintptr_t addr, size_t len) __attribute__((cold));
void phx_region_put(struct phx_device *dev, struct phx_region *region);

/* With the device's lock held: */
struct phx_region *phx_region_alloc(struct phx_device *dev);
void phx_region_free(struct phx_device *dev, struct phx_region *region);
/* Refuse new holders and wait for those there are; the lock is dropped meanwhile. */
void phx_region_drain(struct phx_device *dev, struct phx_region *region);
/* In a forked child: forget the holders that are other threads of the parent. */
void phx_region_forget_holders(struct phx_region *region);

#endif
