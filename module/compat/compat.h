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
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/sizes.h>

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

/* One page, pinned for a moment; under mmap_lock. */
static inline long phxfs_pin_one(unsigned long addr, unsigned int flags, struct page **page)
{
#ifdef PHXFS_HAVE_PIN_WITHOUT_VMAS
	return pin_user_pages(addr, 1, flags, page);
#else
	return pin_user_pages(addr, 1, flags, page, NULL);
#endif
}

/*
 * How pages get behind a VMA.
 *
 * PHXFS_MAPS_BY_PFN: kernels that can map a struct page's frame without taking a reference
 * for the mapping (device memory of this kind is pinned through its page map), and 2 MiB of
 * a compound page at once. A huge entry without PFN_MAP is a plain one to page pinning and
 * pinned as a whole; with PFN_MAP each 4 KiB of it would be looked up by itself.
 *
 * PHXFS_MAPS_FOLIOS: kernels that map device memory as any folio. A VMA with huge entries
 * must not be VM_MIXEDMAP there (its zap would forget the references), so that small pages go
 * into it by faults as well; one without takes vm_insert_pages().
 *
 * Else vm_insert_pages() and small pages. In both of these each mapping is a reference.
 */
#if defined(PHXFS_HAVE_PFN_T) && !defined(PHXFS_HAVE_INSERT_FOLIO_PMD) && \
	defined(CONFIG_TRANSPARENT_HUGEPAGE) && defined(CONFIG_ARCH_HAS_PTE_DEVMAP)
#include <linux/huge_mm.h>
#include <linux/pfn_t.h>

#define PHXFS_MAPS_BY_PFN 1
#define PHXFS_CAN_HUGE (PMD_SIZE == SZ_2M) /* not with base pages of 16 or 64 KiB */

/* References that user mappings hold on a page. */
static inline int phxfs_page_maps(const struct page *page)
{
	return 0;
}

static inline vm_fault_t phxfs_insert_pfn(struct vm_area_struct *vma, unsigned long addr, u64 phys)
{
	return vmf_insert_mixed(vma, addr, phys_to_pfn_t(phys, PFN_DEV | PFN_MAP));
}

#if defined(PHXFS_HAVE_PMD_SPECIAL) && defined(CONFIG_X86_64)
/*
 * Newer kernels mark the entry special, "has no struct page", which ours has: pinning would
 * have to take mmap_lock each time. The mark is the kernel's own, no TLB knows it.
 */
static inline void phxfs_unmark_huge(struct vm_fault *vmf, u64 phys)
{
	spinlock_t *ptl = pmd_lock(vmf->vma->vm_mm, vmf->pmd);
	pmd_t pmd = *vmf->pmd;

	if (pmd_leaf(pmd) && pmd_special(pmd) && pmd_pfn(pmd) == PHYS_PFN(phys))
		set_pmd(vmf->pmd, pmd_clear_flags(pmd, _PAGE_SPECIAL));
	spin_unlock(ptl);
}
#else
static inline void phxfs_unmark_huge(struct vm_fault *vmf, u64 phys)
{
}
#endif

/* Only while *vmf->pmd is none, and of a compound page of that size. */
static inline vm_fault_t phxfs_insert_huge(struct vm_fault *vmf, u64 phys)
{
	/* a write that met an entry it may not write through would fault for ever */
	vm_fault_t ret = vmf_insert_pfn_pmd(vmf, phys_to_pfn_t(phys, PFN_DEV),
					    vmf->flags & FAULT_FLAG_WRITE);

	phxfs_unmark_huge(vmf, phys);
	return ret;
}

static inline void phxfs_compound_pagemap(struct dev_pagemap *pgmap)
{
	pgmap->vmemmap_shift = HPAGE_PMD_ORDER;
}
#elif defined(PHXFS_HAVE_INSERT_FOLIO_PMD) && !defined(PHXFS_HAVE_PFN_T) && \
	defined(CONFIG_TRANSPARENT_HUGEPAGE)
#include <linux/huge_mm.h>

#define PHXFS_MAPS_FOLIOS 1
#define PHXFS_CAN_HUGE (PMD_SIZE == SZ_2M)

/* References that user mappings hold on a page; on all of a compound one. */
static inline int phxfs_page_maps(const struct page *page)
{
	return folio_mapcount(page_folio(page));
}

static inline vm_fault_t phxfs_insert_small(struct vm_fault *vmf, u64 phys)
{
	return vmf_insert_page_mkwrite(vmf, pfn_to_page(PHYS_PFN(phys)),
				       vmf->flags & FAULT_FLAG_WRITE);
}

/* Only while *vmf->pmd is none, and of a compound page of that size. */
static inline vm_fault_t phxfs_insert_huge(struct vm_fault *vmf, u64 phys)
{
	return vmf_insert_folio_pmd(vmf, page_folio(pfn_to_page(PHYS_PFN(phys))),
				    vmf->flags & FAULT_FLAG_WRITE);
}

static inline void phxfs_compound_pagemap(struct dev_pagemap *pgmap)
{
	pgmap->vmemmap_shift = HPAGE_PMD_ORDER;
}
#else
#define PHXFS_CAN_HUGE 0

static inline int phxfs_page_maps(const struct page *page)
{
	return atomic_read(&page->_mapcount) + 1;
}

static inline void phxfs_compound_pagemap(struct dev_pagemap *pgmap)
{
}
#endif

#endif /* PHXFS_COMPAT_H */
