// SPDX-License-Identifier: GPL-2.0-only
/*
 * MAP: a region's way from EMPTY to LIVE (phxfs-mem.c has the states), and page faults.
 *
 * Pin by the vendor, check and merge what it reports, get struct pages, and put them behind
 * the VMA. The region is LIVE before the last step, since huge pages go in by page faults;
 * but UNMAP is refused until MAP has ended (in_map). Until then nothing of it can be used by
 * a transfer, so that a failure just undoes; a failure in it ends like an UNMAP.
 *
 * A region that lies well gets 2 MiB pages: fast to map, and pinned as a whole. That needs
 * compound struct pages, and a VMA congruent with the memory, which get_unmapped_area sees
 * to. Everything else gets small pages.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "phxfs-inject.h"
#include "phxfs-region.h"
#include "phxfs-trace.h"

static u64 region_offset(const struct phxfs_region *r, const struct vm_area_struct *vma,
			 unsigned long addr)
{
	return (((addr - vma->vm_start) >> PAGE_SHIFT) + vma->vm_pgoff - r->pgoff) << PAGE_SHIFT;
}

/*
 * May the 2 MiB around @addr be one entry? It must lie in the VMA, and be one compound page
 * at a congruent address.
 */
static bool is_huge_block(const struct phxfs_region *r, const struct vm_area_struct *vma,
			  unsigned long addr)
{
	unsigned long block = ALIGN_DOWN(addr, PHXFS_SPAN_ALIGN);
	u64 run, phys;

	if (!r->huge || block < vma->vm_start || vma->vm_end - block < PHXFS_SPAN_ALIGN)
		return false;
	phys = phxfs_extents_phys(&r->extents, region_offset(r, vma, block), &run);
	return IS_ALIGNED(phys, PHXFS_SPAN_ALIGN) && run >= PHXFS_SPAN_ALIGN;
}

#if defined(PHXFS_MAPS_BY_PFN) || defined(PHXFS_MAPS_FOLIOS)
/* Under region->lock, LIVE. False: the page around the fault is a small one. */
static bool insert_huge(struct phxfs_region *r, struct vm_fault *vmf, vm_fault_t *ret)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long block = ALIGN_DOWN(vmf->address, PHXFS_SPAN_ALIGN);
	pmd_t pmd = READ_ONCE(*vmf->pmd);

	/* another thread was faster: below a leaf there is no table to insert into */
	if (!pmd_none(pmd) && pmd_leaf(pmd))
		*ret = VM_FAULT_NOPAGE;
	else if (pmd_none(pmd) && is_huge_block(r, vma, vmf->address))
		*ret = phxfs_insert_huge(vmf, phxfs_extents_phys(&r->extents,
								 region_offset(r, vma, block),
								 NULL));
	else
		return false;
	return true;
}
#endif

#ifdef PHXFS_MAPS_BY_PFN
static vm_fault_t insert_fault(struct phxfs_region *r, struct vm_fault *vmf)
{
	unsigned long addr = vmf->address & PAGE_MASK;
	vm_fault_t ret;

	if (insert_huge(r, vmf, &ret))
		return ret;
	return phxfs_insert_pfn(vmf->vma, addr,
				phxfs_extents_phys(&r->extents,
						   region_offset(r, vmf->vma, addr), NULL));
}

static int insert_batch(struct phxfs_region *r, struct vm_area_struct *vma, u64 offset,
			unsigned long n)
{
	u64 phys = phxfs_extents_phys(&r->extents, offset, NULL);
	unsigned long i;

	for (i = 0; i < n; i++) {
		vm_fault_t ret = phxfs_insert_pfn(vma, vma->vm_start + offset + i * PAGE_SIZE,
						  phys + i * PAGE_SIZE);

		if (ret & VM_FAULT_OOM)
			return -ENOMEM;
		if (ret & VM_FAULT_ERROR)
			return -EFAULT;
	}
	return 0;
}
#else
static vm_fault_t insert_page(struct vm_area_struct *vma, unsigned long addr, u64 phys)
{
	int err = vm_insert_page(vma, addr, pfn_to_page(PHYS_PFN(phys)));

	if (!err || err == -EBUSY)
		return VM_FAULT_NOPAGE;
	return err == -ENOMEM ? VM_FAULT_OOM : VM_FAULT_SIGBUS;
}

static vm_fault_t insert_fault(struct phxfs_region *r, struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	unsigned long addr = vmf->address & PAGE_MASK;
	u64 phys = phxfs_extents_phys(&r->extents, region_offset(r, vma, addr), NULL);
	vm_fault_t ret;

	down_read(&r->dev->insert_sem);
#ifdef PHXFS_MAPS_FOLIOS
	if (vma->vm_flags & VM_MIXEDMAP)
		ret = insert_page(vma, addr, phys);
	else if (!insert_huge(r, vmf, &ret))
		ret = phxfs_insert_small(vmf, phys);
#else
	ret = insert_page(vma, addr, phys);
#endif
	up_read(&r->dev->insert_sem);
	return ret;
}

static int insert_batch(struct phxfs_region *r, struct vm_area_struct *vma, u64 offset,
			unsigned long n)
{
	u64 phys = phxfs_extents_phys(&r->extents, offset, NULL);
	unsigned long i, at = 0, left;
	struct page **pages;
	int err;

	pages = phxfs_inject() ? NULL : kmalloc_array(n, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		pages[i] = pfn_to_page(PHYS_PFN(phys) + i);
	do {
		left = n - at;
		down_read(&r->dev->insert_sem);
		err = vm_insert_pages(vma, vma->vm_start + offset + at * PAGE_SIZE, pages + at,
				      &left);
		up_read(&r->dev->insert_sem);
		/* a fault of another thread put the next one in: it is the same page */
		at = n - left + 1;
	} while (err == -EBUSY && at < n);
	kfree(pages);
	return err == -EBUSY ? 0 : err;
}
#endif

/* MAP inserts every page; this brings back what madvise() dropped, and inserts the huge. */
vm_fault_t phxfs_region_fault(struct vm_fault *vmf)
{
	struct phxfs_region *r = vmf->vma->vm_private_data;
	vm_fault_t ret = VM_FAULT_SIGBUS;

	down_read(&r->lock);
	if (r->state == REGION_LIVE)
		ret = insert_fault(r, vmf);
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
	if (r->dev->huge && !(pt->flags & PHXFS_PT_PERSISTENT))
		dev_warn_once(&r->dev->device,
			      "%s: %s grants pins that it can take back, and may have to wait for "
			      "transfers into their neighbours: load phxfs with phxfs_huge=N\n",
			      r->dev->bdf, ops->name);
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

		cond_resched();
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
		if (err)
			break;
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

/*
 * One step of populate(): small pages up to the end of a piece or of 2 MiB. How many bytes
 * it is; @by_fault: they go in by a fault, not yet.
 */
static long insert_step(struct phxfs_region *r, struct vm_area_struct *vma, u64 offset,
			bool *by_fault)
{
	unsigned long addr = vma->vm_start + offset;
	u64 run, n = 0;
	int err = 0;

	if (phxfs_inject())
		return -ENOMEM;
	*by_fault = true;
	down_read(&r->lock);
	if (r->state != REGION_LIVE) {
		err = -EFAULT;
	} else if (is_huge_block(r, vma, addr)) {
		n = PHXFS_SPAN_ALIGN;
	} else if (!(vma->vm_flags & VM_MIXEDMAP)) {
		n = PAGE_SIZE;
	} else {
		*by_fault = false;
		phxfs_extents_phys(&r->extents, offset, &run);
		n = min3(run, r->length - offset, ALIGN(addr + 1, PHXFS_SPAN_ALIGN) - addr);
		err = insert_batch(r, vma, offset, n >> PAGE_SHIFT);
	}
	up_read(&r->lock);
	return err ?: n;
}

static struct vm_area_struct *whole_vma(struct phxfs_region *r, struct mm_struct *mm, u64 addr)
{
	struct vm_area_struct *vma = find_vma(mm, addr);

	if (!vma || vma->vm_start != addr || vma->vm_end - addr != r->length ||
	    !phxfs_region_is_mapped(r, vma))
		return NULL;
	return vma;
}

/*
 * Is there a huge entry? Under mmap_lock, of an address in a VMA. Where the VMA had small
 * pages before, their empty table stays, and what a fault puts in is a small page again.
 */
static bool maps_huge(struct mm_struct *mm, unsigned long addr)
{
	pgd_t *pgd = pgd_offset(mm, addr);
	p4d_t *p4d = pgd_none(*pgd) ? NULL : p4d_offset(pgd, addr);
	pud_t *pud = !p4d || p4d_none(*p4d) ? NULL : pud_offset(p4d, addr);
	pmd_t pmd;

	if (!pud || pud_none(*pud))
		return false;
	pmd = READ_ONCE(*pmd_offset(pud, addr));
	return !pmd_none(pmd) && pmd_leaf(pmd);
}

static int fault_in(struct mm_struct *mm, struct vm_area_struct *vma, unsigned long addr,
		    bool *unlocked)
{
	/* as transfers will want it, so that they need not come back for it */
	return fixup_user_fault(mm, addr, vma->vm_flags & VM_WRITE ? FAULT_FLAG_WRITE : 0,
				unlocked);
}

/* Insert every page. Under mmap_lock, which a fault may drop and take again. */
static int populate(struct phxfs_region *r, struct mm_struct *mm, u64 addr)
{
	struct vm_area_struct *vma = NULL;
	u64 offset = 0;

	while (offset < r->length) {
		bool unlocked = false, by_fault;
		long n;
		int err;

		if (!vma)
			vma = whole_vma(r, mm, addr);
		if (!vma)
			return -EFAULT;
		n = insert_step(r, vma, offset, &by_fault);
		if (n < 0)
			return n;
		if (by_fault) {
			err = fault_in(mm, vma, addr + offset, &unlocked);
			if (err)
				return err;
			/* the VMA may be another one: look again */
			if (unlocked)
				n = 0;
			else if (!maps_huge(mm, addr + offset))
				n = PAGE_SIZE;
		}
		if (unlocked)
			vma = NULL;
		offset += n;
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

/* The first address of a 2 MiB page; 0: there is none. */
static unsigned long first_huge(const struct phxfs_region *r, const struct vm_area_struct *vma)
{
	unsigned long at = ALIGN(vma->vm_start, PHXFS_SPAN_ALIGN);

	while (r->huge && at < vma->vm_end && !is_huge_block(r, vma, at))
		at += PHXFS_SPAN_ALIGN;
	return r->huge && at < vma->vm_end ? at : 0;
}

/* Nothing is behind the VMA yet: choose what goes there (compat.h). */
static void choose_pages(struct phxfs_region *r, struct vm_area_struct *vma)
{
	r->huge = r->dev->huge && !READ_ONCE(r->dev->huge_refused);
#ifdef PHXFS_MAPS_FOLIOS
	if (first_huge(r, vma))
		vm_flags_clear(vma, VM_MIXEDMAP);
	else
		vm_flags_set(vma, VM_MIXEDMAP);
#endif
}

/* MAPPING -> LIVE, if the VMA is still there; then the pages. */
static int go_live(struct phxfs_region *r, u64 addr)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	int err = -EFAULT;

	if (mmap_write_lock_killable(mm))
		return -EINTR;
	vma = whole_vma(r, mm, addr);
	if (!vma) {
		mmap_write_unlock(mm);
		return -EFAULT;
	}
	phxfs_region_set_ops(r, vma);
	down_write(&r->lock);
	err = r->revoked ? revoked_errno(r) : 0;
	if (!err) {
		choose_pages(r, vma);
		phxfs_region_live(r);
	}
	up_write(&r->lock);
	mmap_write_downgrade(mm);
	if (!err)
		err = populate(r, mm, addr);
	mmap_read_unlock(mm);
	return err;
}

/* Does this kernel pin that mapping, a huge one? 1: yes, 0: no, -EAGAIN: not learned. */
static int ask_pin(struct mm_struct *mm, const struct vm_area_struct *vma, unsigned long at)
{
	unsigned int flags = vma->vm_flags & VM_WRITE ? FOLL_WRITE : 0;
	struct page *page;
	long got;

	if (!(vma->vm_flags & (VM_READ | VM_WRITE)) || !maps_huge(mm, at))
		return -EAGAIN;
	got = phxfs_inject() ? -EFAULT : phxfs_pin_one(at, flags, &page);
	if (got == 1)
		unpin_user_page(page);
	/* taken back meanwhile, or not this kernel's last word */
	if (!maps_huge(mm, at) || got == -EINTR || got == -ENOMEM || got == -EAGAIN)
		return -EAGAIN;
	return got == 1;
}

/* Nothing but small pages from here on, on this device and for this region. */
static int use_small_pages(struct phxfs_region *r, u64 addr)
{
	struct phxfs_dev *dev = r->dev;
	bool live;
	int err;

	down_write(&r->lock);
	live = r->state == REGION_LIVE;
	if (live) {
		WRITE_ONCE(dev->huge_refused, true);
		r->huge = false;
		phxfs_region_zap(r);
	}
	up_write(&r->lock);
	if (!live)
		return -EFAULT;
	dev_warn(&dev->device, "%s: this kernel does not pin 2 MiB mappings: using small ones\n",
		 dev->bdf);
	mmap_read_lock(current->mm);
	err = populate(r, current->mm, addr);
	mmap_read_unlock(current->mm);
	return err;
}

/* Asked until a kernel has answered, for each device. If it does not pin them, small pages. */
static int prove_huge(struct phxfs_region *r, u64 addr)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	unsigned long at = 0;
	int answer;

	if (!r->dev->huge || READ_ONCE(r->dev->huge_proven))
		return 0;
	mmap_read_lock(mm);
	vma = whole_vma(r, mm, addr);
	down_read(&r->lock);
	if (vma && r->state == REGION_LIVE)
		at = first_huge(r, vma);
	up_read(&r->lock);
	answer = at ? ask_pin(mm, vma, at) : -EAGAIN;
	mmap_read_unlock(mm);
	if (answer > 0)
		WRITE_ONCE(r->dev->huge_proven, true);
	/* while this was asked another region may have had the answer */
	if (!answer || (at && READ_ONCE(r->dev->huge_refused)))
		return use_small_pages(r, addr);
	return 0;
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
	return go_live(r, addr) ?: prove_huge(r, addr);
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
	phxfs_region_end_map(r, err);
	trace_phxfs_map(pf->dev->idx, arg->n_vaddr, arg->n_size, err);
out_put:
	phxfs_region_put(r);
	return err;
}
