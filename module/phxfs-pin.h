/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What vendor backends share whose driver takes pins back in process context: the pin, its
 * pages' addresses copied out of the driver's table, and the driver's callback.
 *
 * A driver may free its table when the callback returns, possibly before its pin call has
 * returned to us. So the addresses are copied at once, under a lock that the callback takes
 * too, and nothing looks at the table after that. A table that cannot be used is reported
 * when it is read, since unpinning is not get_pages' to do.
 */
#ifndef PHXFS_PIN_H
#define PHXFS_PIN_H

#include <linux/delay.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include "phxfs-backend.h"

#define PHXFS_UNPIN_RETRIES	5
#define PHXFS_UNPIN_RETRY_MS	20

struct phxfs_pin {
	struct phxfs_page_table pt;
	u64 vaddr;
	u64 length;
	u64 default_page_size;		/* of the ops */
	void (*free_cb)(void *data);
	void *data;
	struct mutex lock;
	bool reclaimed;			/* protected by: lock; the table is dead */
	bool orphan;			/* protected by: lock; given up, the driver knows it */
	int error;			/* what is wrong with the table */
	u32 n;
	u64 *addr;
};

/* How a vendor's table is read; both are called only while it is there. */
struct phxfs_table_ops {
	int (*measure)(struct phxfs_pin *pin);	/* sets n and pt.page_size */
	int (*copy)(struct phxfs_pin *pin);	/* fills addr[n]; 0 where there is none */
};

static inline void phxfs_pin_init(struct phxfs_pin *pin, u64 vaddr, u64 length, u64 page_size,
				  void (*free_cb)(void *data), void *data)
{
	mutex_init(&pin->lock);
	pin->vaddr = vaddr;
	pin->length = length;
	pin->default_page_size = page_size;
	pin->free_cb = free_cb;
	pin->data = data;
}

/* What is in the pin; the struct around it is its backend's. */
static inline void phxfs_pin_clear(struct phxfs_pin *pin)
{
	kvfree(pin->addr);
	pin->addr = NULL;
}

/* The driver's callback. The pin may be freed when this returns. */
static inline void phxfs_pin_reclaimed(struct phxfs_pin *pin)
{
	bool orphan;

	/* a table that is being copied is waited for */
	mutex_lock(&pin->lock);
	pin->reclaimed = true;
	orphan = pin->orphan;
	mutex_unlock(&pin->lock);
	if (!orphan)
		pin->free_cb(pin->data);
}

static inline u32 phxfs_pin_pages(const struct phxfs_pin *pin, u64 page_size)
{
	return DIV_ROUND_UP_ULL((pin->vaddr & (page_size - 1)) + pin->length, page_size);
}

/* One step of phxfs_pin_read(): true if the next makes sense. */
static inline bool phxfs_pin_step(struct phxfs_pin *pin, int (*step)(struct phxfs_pin *pin))
{
	bool on = false;

	mutex_lock(&pin->lock);
	if (pin->reclaimed) {
		pin->pt.flags |= PHXFS_PT_RECLAIMED;
	} else {
		pin->error = step(pin);
		on = !pin->error;
	}
	mutex_unlock(&pin->lock);
	return on;
}

/* Right after the driver has pinned. */
static inline void phxfs_pin_read(struct phxfs_pin *pin, const struct phxfs_table_ops *table)
{
	bool on = phxfs_pin_step(pin, table->measure);

	/* not under the lock: to find memory may need the driver */
	if (on)
		pin->addr = kvcalloc(pin->n, sizeof(u64), GFP_KERNEL);
	if (on && !pin->addr)
		pin->error = -ENOMEM;
	else if (on)
		phxfs_pin_step(pin, table->copy);
	if (pin->error) {
		/* a number of pages that gets the error read */
		pin->pt.page_size = 0;
		pin->n = phxfs_pin_pages(pin, pin->default_page_size);
	}
}

/* -ENOMEM: a page has none. */
static inline int phxfs_copy_addrs(u64 *to, const u64 *from, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++) {
		if (!from[i])
			return -ENOMEM;
		to[i] = from[i];
	}
	return 0;
}

static inline int phxfs_pin_addrs(const struct phxfs_pin *pin, u64 *addrs, u32 n)
{
	if (pin->error)
		return pin->error;
	return n == pin->n ? phxfs_copy_addrs(addrs, pin->addr, n) : -EINVAL;
}

/*
 * The driver will not let go of the pin, and may still call back for it: then it, and this
 * module, stay for good.
 */
static inline void phxfs_pin_orphan(struct phxfs_pin *pin, const char *vendor, int err)
{
	mutex_lock(&pin->lock);
	pin->orphan = true;
	mutex_unlock(&pin->lock);
	__module_get(THIS_MODULE);
	pr_err("unpinning %#llx failed: %d; the %s driver keeps it pinned\n", pin->vaddr, err,
	       vendor);
}

#endif /* PHXFS_PIN_H */
