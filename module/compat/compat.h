/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kernel ages. Force-included into every file of the module, so that the rest is written for
 * the newest kernel. PHXFS_HAVE_* come from compile probes (compat/probe), never from a
 * version number.
 */
#ifndef PHXFS_COMPAT_H
#define PHXFS_COMPAT_H

#include <linux/device.h>
#include <linux/export.h>
#include <linux/mm.h>

#include "phxfs-features.h"

#ifndef PHXFS_HAVE_VM_FLAGS_SET
static inline void vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags &= ~flags;
}
#endif

static inline struct class *phxfs_class_create(const char *name)
{
#ifdef PHXFS_HAVE_CLASS_CREATE_NAME
	return class_create(name);
#else
	return class_create(THIS_MODULE, name);
#endif
}

/* User mappings of a small page; the kernel's own helper came and went. */
static inline int phxfs_page_maps(const struct page *page)
{
	return atomic_read(&page->_mapcount) + 1;
}

#endif /* PHXFS_COMPAT_H */
