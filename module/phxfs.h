/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the files of phxfs.ko share. Each file's own head says what it owns.
 */
#ifndef PHXFS_H
#define PHXFS_H

#include <linux/atomic.h>
#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/idr.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rbtree.h>
#include <linux/rwsem.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "../include/uapi/phxfs.h"
#include "phxfs-backend.h"

#define PHXFS_MAX_DEVICES	256
#define PHXFS_REASON_LEN	128
/* what one allocation may hold: half a TiB, if a vendor lists it in 4 KiB pages */
#define PHXFS_MAX_PAGES		(INT_MAX / sizeof(struct phxfs_extent))

struct phxfs_counters {
	atomic64_t mapped;		/* bytes with struct pages */
	atomic64_t pinned;		/* bytes of live regions */
	atomic64_t zombie;		/* bytes still draining */
	atomic64_t regions;
	atomic64_t maps;
	atomic64_t unmaps;
	atomic64_t reclaims;
	atomic64_t reclaim_timeouts;
};

/*
 * One accelerator. Created by phxfs_devices_scan(), made unreachable by
 * phxfs_device_remove(), freed with the last reference to @device: the cdev, each open file
 * and each pinned region hold one.
 */
struct phxfs_dev {
	struct device device;
	struct cdev cdev;
	struct list_head node;		/* protected by: phxfs_backends_lock */
	struct pci_dev *pdev;		/* held */
	const struct phxfs_p2p_ops *ops;	/* valid while ops->owner is held, or !gone */
	u64 base;			/* the BAR window */
	u64 size;
	int bar;
	int idx;
	int map_mode;
	bool huge;			/* its struct pages are compound, of 2 MiB */
	bool huge_refused;		/* ... but this kernel does not pin such mappings */
	bool huge_proven;
	char bdf[32];
	char reason[PHXFS_REASON_LEN];	/* why nothing can be mapped; empty if it can */

	struct mutex span_lock;
	struct rb_root spans;		/* protected by: span_lock */
	struct list_head ghost_node;	/* see phxfs-span.c */
	bool left;			/* protected by: span_lock; no new spans */

	struct mutex region_lock;
	struct list_head regions;	/* protected by: region_lock; those that hold a pin */
	bool gone;			/* written under region_lock */
	wait_queue_head_t drained;	/* regions became empty */
	spinlock_t zombie_lock;
	struct list_head zombies;	/* protected by: zombie_lock; regions that drain */
	struct delayed_work zombie_work;
	unsigned int zombie_delay_ms;	/* the work's */
	struct rw_semaphore insert_sem;	/* see "idle pages" in phxfs-drain.c */
	struct ida slots;		/* file offsets of mappings */

	struct phxfs_counters count;
};

/* An open descriptor. Owned by struct file; the regions mapped through it hold the file. */
struct phxfs_file {
	struct phxfs_dev *dev;
	struct mm_struct *mm;		/* mmgrab'ed; compared, never entered */
};

/* A physically contiguous piece of a region. */
struct phxfs_extent {
	u64 phys;
	u64 offset;			/* in the region */
};

struct phxfs_extents {
	u32 n;
	u64 length;
	struct phxfs_extent *ext;
};

/* phxfs.c */
extern unsigned int phxfs_drain_ms;
extern struct workqueue_struct *phxfs_wq;
void phxfs_devices_scan(const struct phxfs_p2p_ops *ops);
void phxfs_devices_forget(const struct phxfs_p2p_ops *ops);
struct phxfs_dev *phxfs_device_by_address(const struct phxfs_p2p_ops *ops, u64 phys);
u64 phxfs_largest_window(const struct phxfs_p2p_ops *ops);

/* phxfs-sysfs.c */
const struct attribute_group **phxfs_device_groups(void);
void phxfs_device_check(struct phxfs_dev *dev);

/* phxfs-backend.c */
extern struct mutex phxfs_backends_lock;
const struct phxfs_p2p_ops *phxfs_backend_match(struct pci_dev *pdev);
const struct phxfs_p2p_ops *phxfs_backend_get(unsigned int n);
int phxfs_pin(const struct phxfs_p2p_ops *ops, u64 vaddr, u64 length,
	      struct phxfs_page_table **pt, void (*free_cb)(void *data), void *data);
void phxfs_unpin(const struct phxfs_p2p_ops *ops, u64 vaddr, struct phxfs_page_table *pt);

/* phxfs-span.c */
struct phxfs_span;
int phxfs_full_map(struct phxfs_dev *dev);
void phxfs_spans_leave(struct phxfs_dev *dev);
int phxfs_staging_ensure_span(struct phxfs_dev *dev, const struct phxfs_extents *x,
			      struct phxfs_span ***spans, u32 *n);
int phxfs_full_get_spans(struct phxfs_dev *dev, const struct phxfs_extents *x,
			 struct phxfs_span ***spans, u32 *n);
void phxfs_put_spans(struct phxfs_dev *dev, struct phxfs_span **spans, u32 n);

/* phxfs-extent.c */
int phxfs_extents_get(struct phxfs_dev *dev, u64 vaddr, u64 length, u64 page_size,
		      const u64 *phys, struct phxfs_extents *x);
void phxfs_extents_free(struct phxfs_extents *x);
u64 phxfs_extents_phys(const struct phxfs_extents *x, u64 offset, u64 *run);

/* phxfs-drain.c */
struct phxfs_drain {
	struct mutex lock;
	u64 done;			/* protected by: lock; bytes found idle so far */
};
void phxfs_drain_start(struct phxfs_drain *d);
bool phxfs_drain_done(struct phxfs_drain *d, const struct phxfs_extents *x);
bool phxfs_drain_poll(struct phxfs_dev *dev, struct phxfs_drain *d,
		      const struct phxfs_extents *x);

/* phxfs-mem.c */
int phxfs_region_mmap(struct phxfs_file *pf, struct file *file, struct vm_area_struct *vma);
int phxfs_region_map(struct phxfs_file *pf, const struct phxfs_ioctl_map *arg);
int phxfs_region_unmap(struct phxfs_file *pf, const struct phxfs_ioctl_map *arg);
int phxfs_region_query(struct phxfs_file *pf, struct phxfs_ioctl_region *arg);
void phxfs_regions_revoke(struct phxfs_dev *dev);
void phxfs_regions_init(struct phxfs_dev *dev);

/* phxfs-p2p-service.c */
void phxfs_exports_revoke(struct phxfs_dev *dev);

#endif /* PHXFS_H */
