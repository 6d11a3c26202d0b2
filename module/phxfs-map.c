// SPDX-License-Identifier: GPL-2.0-only
/*
 * MAP: a region's way from EMPTY to LIVE (phxfs-mem.c has the states), and page faults.
 *
 * Pin by the vendor, check and merge what it reports, get struct pages, put them behind the
 * VMA. Until the last step nothing of the region can be used by a transfer, so that every
 * failure before it just undoes; a failure in it ends like an UNMAP.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "phxfs-inject.h"
#include "phxfs-region.h"
#include "phxfs-trace.h"

#define INSERT_BATCH	512	/* pages inserted under one hold of insert_sem */

/* MAP inserts every page; this brings back what madvise() dropped. */
vm_fault_t phxfs_region_fault(struct vm_fault *vmf)
{
	struct phxfs_region *r = vmf->vma->vm_private_data;
	vm_fault_t ret = VM_FAULT_SIGBUS;
	struct page *page;
	int err;

	down_read(&r->lock);
	if (r->state == REGION_LIVE) {
		u64 offset = (u64)(vmf->pgoff - r->pgoff) << PAGE_SHIFT;

		page = pfn_to_page(PHYS_PFN(phxfs_extents_phys(&r->extents, offset, NULL)));
		down_read(&r->dev->insert_sem);
		err = vm_insert_page(vmf->vma, vmf->address & PAGE_MASK, page);
		up_read(&r->dev->insert_sem);
		if (!err || err == -EBUSY)
			ret = VM_FAULT_NOPAGE;
		else if (err == -ENOMEM)
			ret = VM_FAULT_OOM;
	}
	up_read(&r->lock);
	return ret;
}

static int revoked_errno(const struct phxfs_region *r)
{
	return READ_ONCE(r->dev->gone) ? -ENODEV : -EFAULT;
}

static bool page_size_sane(u64 size)
{
	return is_power_of_2(size) && size >= PAGE_SIZE && size <= SZ_1G;
}

static int pin_pages(struct phxfs_region *r, struct phxfs_page_table **out)
{
	const struct phxfs_p2p_ops *ops = r->dev->ops;
	struct phxfs_page_table *pt = NULL;
	int err;

	err = phxfs_pin(ops, r->vaddr, r->length, &pt, phxfs_region_free_cb, r);
	if (err)
		return err;
	down_write(&r->lock);
	r->pt = pt;
	r->page_size = pt->page_size ?: ops->page_size;
	r->features = pt->flags & PHXFS_PT_PERSISTENT ? PHXFS_F_LONGTERM : PHXFS_F_RECLAIM;
	if (r->revoked || (pt->flags & PHXFS_PT_RECLAIMED))
		err = revoked_errno(r);
	up_write(&r->lock);
	*out = pt;
	return err;
}

static int read_pages(struct phxfs_region *r, struct phxfs_page_table *pt, u64 *phys, u64 n)
{
	const struct phxfs_p2p_ops *ops = r->dev->ops;
	u32 got = ops->get_n_pages(pt);

	if (got != n) {
		dev_err_ratelimited(&r->dev->device,
				    "%s: %s pinned %u pages for %#llx+%#llx, not %llu\n",
				    r->dev->bdf, ops->name, got, r->vaddr, r->length, n);
		return -EIO;
	}
	return ops->get_phys_addrs(pt, phys, n);
}

/* Pin the memory, and learn where it lies. */
static int locate(struct phxfs_region *r, struct phxfs_extents *x)
{
	struct phxfs_page_table *pt;
	u64 *phys, n;
	int err;

	err = pin_pages(r, &pt);
	if (err)
		return err;
	if (!page_size_sane(r->page_size)) {
		dev_err_ratelimited(&r->dev->device, "%s: %s reports pages of %llu bytes\n",
				    r->dev->bdf, r->dev->ops->name, r->page_size);
		return -EIO;
	}
	n = DIV_ROUND_UP_ULL((r->vaddr & (r->page_size - 1)) + r->length, r->page_size);
	if (n > PHXFS_MAX_PAGES)
		return -EINVAL;
	phys = phxfs_inject() ? NULL : kvmalloc_array(n, sizeof(*phys), GFP_KERNEL);
	if (!phys)
		return -ENOMEM;
	err = read_pages(r, pt, phys, n);
	if (!err)
		err = phxfs_extents_get(r->dev, r->vaddr, r->length, r->page_size, phys, x);
	kvfree(phys);
	return err;
}

static bool extents_overlap(const struct phxfs_extents *a, const struct phxfs_extents *b)
{
	u64 at, run_a, run_b;

	for (at = 0; at < a->length; at += run_a) {
		u64 phys_a = phxfs_extents_phys(a, at, &run_a), off;

		for (off = 0; off < b->length; off += run_b) {
			u64 phys_b = phxfs_extents_phys(b, off, &run_b);

			if (phys_a < phys_b + run_b && phys_b < phys_a + run_a)
				return true;
		}
	}
	return false;
}

/* Memory that was taken back under a transfer stays unusable until the transfer ends. */
static int check_poison(struct phxfs_region *r, const struct phxfs_extents *x)
{
	struct phxfs_region *other;
	int err = 0;

	mutex_lock(&r->dev->region_lock);
	list_for_each_entry(other, &r->dev->regions, dev_node) {
		if (other == r || !READ_ONCE(other->poisoned))
			continue;
		mutex_lock(&other->drain.lock);
		if (extents_overlap(x, &other->extents))
			err = -EBUSY;
		mutex_unlock(&other->drain.lock);
	}
	mutex_unlock(&r->dev->region_lock);
	return err;
}

/* Give every page of @x a struct page; from then on the region owns @x. */
static int back_with_pages(struct phxfs_region *r, struct phxfs_extents *x)
{
	struct phxfs_span **spans;
	u32 n;
	int err;

	if (r->dev->map_mode == PHXFS_MAP_MODE_FULL)
		err = phxfs_full_get_spans(r->dev, x, &spans, &n);
	else
		err = phxfs_staging_ensure_span(r->dev, x, &spans, &n);
	if (err)
		return err;
	down_write(&r->lock);
	r->spans = spans;
	r->n_spans = n;
	mutex_lock(&r->drain.lock);
	r->extents = *x;
	mutex_unlock(&r->drain.lock);
	up_write(&r->lock);
	return 0;
}

static int insert_batch(struct phxfs_region *r, struct vm_area_struct *vma, u64 offset,
			struct page **pages)
{
	u64 run, phys = phxfs_extents_phys(&r->extents, offset, &run);
	unsigned long i, n = min_t(u64, run >> PAGE_SHIFT, INSERT_BATCH), left = n;
	int err;

	for (i = 0; i < n; i++)
		pages[i] = pfn_to_page(PHYS_PFN(phys) + i);
	down_read(&r->dev->insert_sem);
	err = vm_insert_pages(vma, vma->vm_start + offset, pages, &left);
	up_read(&r->dev->insert_sem);
	return err ?: n;
}

static int insert_all(struct phxfs_region *r, struct vm_area_struct *vma)
{
	struct page **pages;
	u64 offset = 0;
	int n = 0;

	pages = phxfs_inject() ? NULL : kmalloc_array(INSERT_BATCH, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	while (offset < r->length) {
		n = phxfs_inject() ? -ENOMEM : insert_batch(r, vma, offset, pages);
		if (n < 0)
			break;
		offset += (u64)n << PAGE_SHIFT;
		if (fatal_signal_pending(current)) {
			n = -EINTR;
			break;
		}
		cond_resched();
	}
	kfree(pages);
	return n < 0 ? n : 0;
}

/* Put the pages behind the VMA, if it is still there. */
static int insert_pages(struct phxfs_region *r, u64 addr)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	int err;

	if (mmap_write_lock_killable(mm))
		return -EINTR;
	vma = find_vma(mm, addr);
	if (!vma || vma->vm_start != addr || vma->vm_end - addr != r->length ||
	    !phxfs_region_is_mapped(r, vma)) {
		mmap_write_unlock(mm);
		return -EFAULT;
	}
	phxfs_region_set_ops(r, vma);
	mmap_write_downgrade(mm);

	down_write(&r->lock);
	err = r->revoked ? revoked_errno(r) : insert_all(r, vma);
	if (!err)
		phxfs_region_live(r);
	up_write(&r->lock);
	mmap_read_unlock(mm);
	return err;
}

static int establish(struct phxfs_region *r, u64 addr)
{
	struct phxfs_extents x = { 0 };
	int err;

	err = locate(r, &x);
	if (err)
		return err;
	err = check_poison(r, &x);
	if (!err)
		err = back_with_pages(r, &x);
	if (err) {
		phxfs_extents_free(&x);
		return err;
	}
	return insert_pages(r, addr);
}

int phxfs_region_map(struct phxfs_file *pf, const struct phxfs_ioctl_map *arg)
{
	struct phxfs_region *r;
	int err = phxfs_region_check_args(pf, arg);

	if (err)
		return err;
	r = phxfs_region_find(pf, arg->c_vaddr, arg->c_size);
	if (IS_ERR(r))
		return PTR_ERR(r);
	if (pf->dev->reason[0])
		err = -EOPNOTSUPP;
	else if (arg->n_size > pf->dev->size)
		err = -EINVAL;
	else
		err = phxfs_region_begin(r, arg->n_vaddr);
	if (err)
		goto out_put;
	err = establish(r, arg->c_vaddr);
	if (err)
		phxfs_region_abort(r);
	trace_phxfs_map(pf->dev->idx, arg->n_vaddr, arg->n_size, err);
out_put:
	phxfs_region_put(r);
	return err;
}
