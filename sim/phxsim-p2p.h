/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * phxsim, the software accelerator: what its driver exports to other kernel
 * modules. It has the shape of a real vendor's pin API, and its manners:
 *
 * - Addresses belong to the calling process. va and len must be multiples of
 *   64 KiB and lie inside one allocation, else -EINVAL.
 * - The addresses of the table are physical addresses inside the BAR.
 * - All calls may sleep and take the driver's lock.
 * - free_cb(data) says: these pages go away. It runs once, in process context,
 *   with the driver's lock held, so no call of this API may be made in it, nor
 *   waited for (one made in it gets -EDEADLK and a WARN). It must return only
 *   when nobody uses the pages. The driver then frees the page table itself.
 *   It may run before get_pages has returned.
 * - put_pages of a pin that was reclaimed returns 0 and does nothing (it is
 *   counted: sysfs "stale_puts"); the table may not be looked at by then.
 * - A persistent pin has no callback: the pages stay, past the allocation's free
 *   and the process's death, until put_pages_persistent.
 */
#ifndef PHXSIM_P2P_H
#define PHXSIM_P2P_H

#include <linux/types.h>

#define PHXSIM_P2P_VERSION	0x00010000u	/* same major and minor >=: compatible */

struct phxsim_page_table {
	u32 version;
	u32 page_size;		/* bytes */
	u32 entries;
	u32 flags;		/* 0 */
	u64 *addr;		/* physical address per page */
};

int phxsim_p2p_get_pages(u64 va, u64 len, struct phxsim_page_table **pt,
			 void (*free_cb)(void *data), void *data);
int phxsim_p2p_put_pages(u64 va, struct phxsim_page_table *pt);

int phxsim_p2p_get_pages_persistent(u64 va, u64 len, struct phxsim_page_table **pt, u32 flags);
int phxsim_p2p_put_pages_persistent(u64 va, struct phxsim_page_table *pt);

#endif
