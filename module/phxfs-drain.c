// SPDX-License-Identifier: GPL-2.0-only
/*
 * Idle pages: when may device memory be given back?
 *
 * Taking a mapping away stops new transfers; those under way hold their pages by reference,
 * and nothing in the kernel waits for them. A page of ours idles at a count of 1; each pin
 * adds at least one. Compound pages are counted at their head, all 2 MiB together: then a
 * transfer into a neighbour keeps a small region from draining, until for once there is none.
 *
 * Where mappings hold references as well (see compat.h), references - mappings == 1 says the
 * same. Other regions may map the same page: two processes, a new registration while the old
 * one drains. The two numbers cannot be read at once. An unmap lowers the map count first
 * and the references later, an insertion raises references first: reading the map count on
 * both sides of the references, and finding it unchanged, is exact unless an unmap and an
 * insertion both fall in between. insert_sem keeps our insertions out of that window.
 *
 * Only pages seen idle after the zap are counted off (done), each once: a page that another
 * region keeps busy afterwards does not hold this one up.
 */
#include <linux/mm.h>
#include <linux/sched.h>

#include "phxfs.h"

#define SCAN_BATCH	1024	/* pages between two chances to reschedule */

static bool page_idle_shared(struct page *page, struct phxfs_dev *dev)
{
	int maps, refs;
	bool idle;

	down_write(&dev->insert_sem);
	maps = phxfs_page_maps(page);
	/* order the three reads; the writers are the kernel's fully ordered atomics */
	smp_rmb();
	refs = page_ref_count(page);
	smp_rmb();	/* as above */
	idle = refs - maps == 1 && maps == phxfs_page_maps(page);
	up_write(&dev->insert_sem);
	return idle;
}

static bool page_idle_now(struct page *head, struct phxfs_dev *dev)
{
	/* with one reference there is neither a mapping nor a pin */
	return page_ref_count(head) == 1 || page_idle_shared(head, dev);
}

void phxfs_drain_start(struct phxfs_drain *d)
{
	mutex_lock(&d->lock);
	d->done = 0;
	mutex_unlock(&d->lock);
}

/* Has every page been idle since phxfs_drain_start()? */
bool phxfs_drain_done(struct phxfs_drain *d, const struct phxfs_extents *x)
{
	bool done;

	mutex_lock(&d->lock);
	done = d->done >= x->length;
	mutex_unlock(&d->lock);
	return done;
}

/* Goes on where the last call met a busy page. True: the whole region has been idle. */
bool phxfs_drain_poll(struct phxfs_dev *dev, struct phxfs_drain *d,
		      const struct phxfs_extents *x)
{
	unsigned int scanned = 0;
	bool idle = true;

	mutex_lock(&d->lock);
	while (idle && d->done < x->length) {
		u64 run, phys = phxfs_extents_phys(x, d->done, &run);
		struct page *head = compound_head(pfn_to_page(PHYS_PFN(phys)));
		u64 rest = page_to_phys(head) + page_size(head) - phys;

		idle = page_idle_now(head, dev);
		if (idle)
			d->done += min(run, rest);
		if (++scanned % SCAN_BATCH == 0)
			cond_resched();
	}
	mutex_unlock(&d->lock);
	return idle;
}
