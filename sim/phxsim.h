/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * phxsim, the software accelerator: what its files share.
 *
 * A device is a PCI function whose BAR 2 is the memory. A context is a process
 * with at least one open file; device addresses are unique in it. An allocation
 * is a range of device addresses over pages of one device. A pin hands the pages'
 * physical addresses to another kernel module.
 *
 * References: a device is held by its PCI binding, its open files and its
 * allocations; a context by its files; an allocation by its address (until it is
 * freed), by each pin, and by each copy under way. Its pages go back to the
 * device with the last reference.
 *
 * Locks, outermost first:
 *	phxsim_api	the driver's big lock: device list, contexts, pins, frees,
 *			free callbacks
 *	dev->pages_lock	the bitmap of pages
 *	ctx->lock	the context's tree of addresses
 *	dev->fault_lock	faults
 * The mapping of a BAR is read under phxsim_srcu; unbind waits for that.
 */
#ifndef PHXSIM_H
#define PHXSIM_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rbtree.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>

#include "phxsim-p2p.h"
#include "phxsim-uapi.h"

#define PHXSIM_PAGE_SHIFT	16
#define PHXSIM_HUGE_PAGES	(PHXSIM_HUGE_SIZE / PHXSIM_PAGE_SIZE)

struct phxsim_dev {
	struct kref ref;
	struct list_head link;		/* phxsim_devices, under phxsim_api */
	struct pci_dev *pdev;		/* valid until dead */
	struct miscdevice misc;
	char name[16];
	char bdf[16];
	u32 index;
	phys_addr_t phys;
	u64 size;
	void *mem[2];			/* below and above split; under phxsim_srcu and !dead */
	u64 split;			/* where the cache type changes; size: nowhere */
	bool dead;			/* set under phxsim_api */
	wait_queue_head_t unpinned;	/* persistent == 0 */

	struct mutex pages_lock;
	unsigned long *used;		/* one bit per page; under pages_lock */
	u32 pages, pages_free;		/* pages_free: under pages_lock */

	spinlock_t fault_lock;
	struct phxsim_fault fault[PHXSIM_FAULT_COUNT];	/* under fault_lock */

	/* under phxsim_api */
	u64 pins, persistent, pinned_pages, reclaims;
};

struct phxsim_ctx {
	struct list_head link;		/* phxsim_contexts, under phxsim_api */
	struct pid *tgid;
	u32 files;			/* under phxsim_api */
	spinlock_t lock;
	struct rb_root allocs;		/* by address; under lock */
};

struct phxsim_file {
	struct phxsim_dev *dev;
	struct phxsim_ctx *ctx;
};

struct phxsim_alloc {
	struct kref ref;
	struct phxsim_dev *dev;
	struct phxsim_file *owner;
	struct rb_node node;		/* ctx->allocs, under ctx->lock */
	struct list_head pins;		/* those with a callback; under phxsim_api */
	u64 va, size, id;		/* size as asked for */
	u32 layout, pages;
	u32 page[];			/* index in the BAR of each page */
};

extern struct mutex phxsim_api;
extern struct list_head phxsim_contexts;
extern struct srcu_struct phxsim_srcu;

/* phxsim_main.c */
int phxsim_probe(struct pci_dev *pdev, const struct pci_device_id *id);
void phxsim_remove(struct pci_dev *pdev);
void phxsim_dev_put(struct phxsim_dev *dev);
struct phxsim_ctx *phxsim_ctx_find(struct pid *tgid);

/* phxsim_mem.c */
int phxsim_alloc(struct phxsim_file *file, struct phxsim_alloc_args *args);
int phxsim_free(struct phxsim_file *file, u64 va);
void phxsim_free_all(struct phxsim_file *file);
void phxsim_alloc_put(struct phxsim_alloc *a);
struct phxsim_alloc *phxsim_alloc_find(struct phxsim_ctx *ctx, u64 va);
int phxsim_query(struct phxsim_file *file, struct phxsim_query *q);
int phxsim_pages(struct phxsim_file *file, const struct phxsim_pages *p);
int phxsim_set_layout(const char *name);

/* phxsim_copy.c */
int phxsim_copy(struct phxsim_file *file, const struct phxsim_copy *c);
int phxsim_fill(struct phxsim_file *file, const struct phxsim_fill *f);
int phxsim_checksum(struct phxsim_file *file, struct phxsim_checksum *c);

/* phxsim_pin.c */
extern atomic64_t phxsim_stale_puts;
u32 phxsim_reclaim_alloc(struct phxsim_alloc *a);
int phxsim_reclaim(struct phxsim_file *file, struct phxsim_reclaim *r);
void phxsim_reclaim_dev(struct phxsim_dev *dev);

/* phxsim_fault.c */
int phxsim_fault_set(struct phxsim_dev *dev, const struct phxsim_fault *f);
bool phxsim_fault_hit(struct phxsim_dev *dev, enum phxsim_fault_kind kind, u64 *arg);
int phxsim_fault_errno(struct phxsim_dev *dev, enum phxsim_fault_kind kind);
int phxsim_fault_delay(struct phxsim_dev *dev, enum phxsim_fault_kind kind);

#endif
