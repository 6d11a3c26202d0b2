/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The region, shared by the two files that know its insides: phxfs-mem.c owns its states and
 * its end, phxfs-map.c the way from EMPTY to LIVE.
 */
#ifndef PHXFS_REGION_H
#define PHXFS_REGION_H

#include "phxfs.h"

enum region_state { REGION_EMPTY, REGION_MAPPING, REGION_LIVE, REGION_DEAD, REGION_ZOMBIE };

struct phxfs_region {
	struct kref ref;
	struct phxfs_dev *dev;		/* held by the file while mapped, by the pin after */
	u64 length;
	pgoff_t pgoff;			/* place in the file's mapping, unique on the device */
	int slot;
	atomic_t vmas;
	atomic_t callbacks;		/* reclaims under way */
	struct work_struct reclaim_work;	/* for a callback that may not sleep */

	struct rw_semaphore lock;
	enum region_state state;
	bool pinned;			/* the pin's references are held */
	bool finishing;			/* somebody is letting go of the pin */
	bool in_map;			/* a MAP call is at work */
	bool huge;			/* 2 MiB pages where it lies so; changes with nothing in */
	bool revoked;			/* MAP must not succeed */
	bool reclaimed;			/* the vendor took the pages back */
	bool poisoned;			/* ... while transfers were under way */
	struct address_space *mapping;	/* NULL once the last VMA is closed */
	u64 vaddr;			/* device address */
	struct phxfs_page_table *pt;
	u64 page_size;
	u64 features;
	struct phxfs_span **spans;
	u32 n_spans;
	atomic64_t *account;		/* the counter that holds our bytes, or NULL */

	struct phxfs_extents extents;
	struct phxfs_drain drain;
	struct list_head dev_node;	/* protected by: dev->region_lock */
	bool revoking;			/* protected by: dev->region_lock */
	struct list_head zombie_node;	/* protected by: zombie_lock */
};

/* phxfs-mem.c */
void phxfs_region_free_cb(void *data);
int phxfs_region_begin(struct phxfs_region *r, u64 vaddr);
void phxfs_region_live(struct phxfs_region *r);
void phxfs_region_end_map(struct phxfs_region *r, int err);
void phxfs_region_zap(struct phxfs_region *r);
void phxfs_region_put(struct phxfs_region *r);
int phxfs_region_check_args(const struct phxfs_file *pf, const struct phxfs_ioctl_map *arg);
bool phxfs_region_is_mapped(const struct phxfs_region *r, const struct vm_area_struct *vma);
void phxfs_region_set_ops(const struct phxfs_region *r, struct vm_area_struct *vma);
struct phxfs_region *phxfs_region_find(struct phxfs_file *pf, u64 addr, u64 length);

/* phxfs-map.c */
vm_fault_t phxfs_region_fault(struct vm_fault *vmf);

#endif /* PHXFS_REGION_H */
