/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For backends whose driver may call back for a pin while, or just after, it is put: a driver
 * that holds no lock around its callback has let go of the pin when its put returns, and may
 * have decided before that to call.
 *
 * So the driver is given a number, not the pin's address: a callback that comes too late
 * finds nothing. One that comes in time is waited for before the pin is put, and one that
 * meets a put leaves the pin alone: what is put has no transfers any more.
 */
#ifndef PHXFS_CALLBACK_H
#define PHXFS_CALLBACK_H

#include <linux/completion.h>
#include <linux/jiffies.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include "phxfs-pin.h"

struct phxfs_callback {
	u32 number;
	bool running;			/* protected by: phxfs_callbacks' lock, as the next */
	bool closed;			/* the pin is being put */
	struct completion over;
};

static DEFINE_XARRAY_ALLOC1(phxfs_callbacks);
static DECLARE_WAIT_QUEUE_HEAD(phxfs_callbacks_wq);
static u32 phxfs_callbacks_next;

/* Before the driver hears of the pin. */
static inline int phxfs_callback_open(struct phxfs_callback *cb)
{
	int err;

	init_completion(&cb->over);
	err = xa_alloc_cyclic(&phxfs_callbacks, &cb->number, cb, xa_limit_31b,
			      &phxfs_callbacks_next, GFP_KERNEL);
	return min(err, 0);
}

/* What the driver is to call back with. */
static inline void *phxfs_callback_data(const struct phxfs_callback *cb)
{
	return (void *)(unsigned long)cb->number;
}

/*
 * The driver calls back. NULL: there is nothing to do, the pin is gone or being put, which
 * has had @patience_ms to end.
 */
static inline struct phxfs_callback *phxfs_callback_enter(void *data, unsigned int patience_ms)
{
	unsigned long number = (unsigned long)data;
	struct phxfs_callback *cb;
	bool closed;

	xa_lock(&phxfs_callbacks);
	cb = xa_load(&phxfs_callbacks, number);
	closed = cb && cb->closed;
	if (cb && !closed)
		cb->running = true;
	xa_unlock(&phxfs_callbacks);
	if (!closed)
		return cb;
	wait_event_timeout(phxfs_callbacks_wq, !xa_load(&phxfs_callbacks, number),
			   msecs_to_jiffies(patience_ms));
	return NULL;
}

/* Unless something else keeps it, the pin may be freed with this. */
static inline void phxfs_callback_leave(struct phxfs_callback *cb)
{
	complete_all(&cb->over);
}

/* Before the pin is put: none is running when this returns, and none begins any more. */
static inline void phxfs_callback_close(struct phxfs_callback *cb)
{
	bool running;

	xa_lock(&phxfs_callbacks);
	cb->closed = true;
	running = cb->running;
	xa_unlock(&phxfs_callbacks);
	if (running)
		wait_for_completion(&cb->over);
}

/* After it has been put. */
static inline void phxfs_callback_end(struct phxfs_callback *cb)
{
	xa_erase(&phxfs_callbacks, cb->number);
	wake_up_all(&phxfs_callbacks_wq);
}

#endif /* PHXFS_CALLBACK_H */
