/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices of this machine: found once, at the library's start, and never
 * taken away. Opened, registered on and closed as phoenix.h says.
 */
#ifndef PHX_DEVICE_H
#define PHX_DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "phoenix.h"
#include "phx_ranges.h"
#include "phx_region.h"
#include "connectors/devconnector.h"

#define PHX_MAX_DEVICES 64

enum phx_device_state { PHX_DEVICE_CLOSED, PHX_DEVICE_OPEN, PHX_DEVICE_DRAINING };

struct phx_device {
	/* Constant after phx_device_init(): */
	int id;
	int ordinal;                    /* the vendor's number */
	int mode;                       /* enum phxfs_mode */
	int path;                       /* enum phxfs_path of its transfers; -1: none allowed */
	const struct devconn_ops *ops;
	struct devconn_device about;
	char reason[160];               /* why no better mode */

	/*
	 * lock: everything below. regions is searched without it. Order: a
	 * device's lock before a chunk pool's; never two devices' locks,
	 * except by fork(), in the order of their ids.
	 */
	pthread_mutex_t lock;
	pthread_cond_t changed;         /* state, a region's state, or a last put */
	enum phx_device_state state;
	unsigned int clients;
	int kernel_fd;                  /* of /dev/phxfs_devN (FULL, STAGING); -1: not open */
	struct phx_ranges regions;      /* struct phx_region */
	struct phx_ranges allocations;  /* struct phx_region, of phxfs_mem_alloc() */
	struct phx_region *free_regions;
};

/*
 * Hold the live region of @dev that contains @addr .. @addr + @len, or NULL.
 * Takes no lock.
 */
static inline __attribute__((always_inline)) struct phx_region *
phx_region_get(struct phx_device *dev, uintptr_t addr, size_t len)
{
	struct phx_region *region = (struct phx_region *)phx_ranges_find(&dev->regions, addr);

	if (!region || !phx_region_hold(region))
		return NULL;
	if (__builtin_expect(phx_region_contains(region, addr, len), 1))
		return region;
	return phx_region_get_again(dev, region, addr, len);
}

void phx_device_init(void);

/* Written by phx_device_init() only. */
extern struct phx_device *phx_devices[PHX_MAX_DEVICES];

/* The device, or NULL. */
static inline struct phx_device *phx_device_find(int device_id)
{
	return (unsigned int)device_id < PHX_MAX_DEVICES ? phx_devices[device_id] : NULL;
}

/* Record and return -ENODEV for a number that phx_device_find() does not know. */
int phx_device_missing(int device_id, const char *step);
/* The next device with an id of at least @device_id, or NULL. */
struct phx_device *phx_device_next(int device_id);

/*
 * The accelerator whose memory @len bytes at @addr begin in, or NULL: host memory.
 * @at: OUT, as far as there is a device: the allocation.
 */
struct phx_device *phx_device_of_memory(const void *addr, size_t len, struct devconn_pointer *at);

/*
 * Ranges on the time line of a profiler of the first accelerator's vendor, around
 * waits that are for no device in particular.
 */
void phx_range_push(const char *name);
void phx_range_pop(void);

/* Open the device's node if it has one and it is not open; with the lock held. */
int phx_device_open_node(struct phx_device *dev);

/* Remove and unmap every region; called by the last close, with the lock held. */
void phx_mem_remove_all(struct phx_device *dev);
/* In a forked child: keep what lives in memory, forget what lives in the kernel. */
void phx_mem_fork_child(struct phx_device *dev);

void phx_device_fork_prepare(void);
void phx_device_fork_parent(void);
void phx_device_fork_child(void);

#endif
