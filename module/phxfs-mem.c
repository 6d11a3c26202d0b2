// SPDX-License-Identifier: GPL-2.0-only
/*
 * Regions: the one place where mmap, MAP, UNMAP, munmap, close, exit, forced reclaim, unbind
 * and unload meet.
 *
 * A region is created by mmap and belongs to the VMAs that mmap made (one, more if it is
 * split). MAP lets it hold a pin: device memory, its extents, spans, and a reference on the
 * device, the backend's module and this module. Every way a pin can end is one path:
 * retire() until region_try_finish() has let go of all of it.
 *
 *            MAP              ok                    UNMAP, last VMA closed
 *   EMPTY ---------> MAPPING -----> LIVE ---------------------------------> ZOMBIE
 *     ^                 |             |                                       ^ |
 *     |                 |             | taken back, device gone               | |
 *     |                 |             v                 UNMAP, close          | |
 *     |                 |           DEAD -------------------------------------' |
 *     |                 | failed      | idle: the pin ends, the state stays;    |
 *     |                 v             | then UNMAP -> EMPTY                     |
 *     '-------------- ZOMBIE          '-----------------------------.           |
 *     '-----------------------------------------------------------------<-------'
 *                                                   idle: the pin ends
 *
 *   LIVE    a page fault inserts pages, transfers may pin them. MAP is not over yet while
 *           in_map is set: it fills the VMA, and UNMAP is refused until it has.
 *   DEAD    mapped, but zapped: SIGBUS, -EFAULT. The user has not unregistered yet.
 *   ZOMBIE  unregistered, zapped; transfers under way keep the pin until every page was idle
 *
 * Who holds a region: its VMAs together one reference (dropped by the last close), its pin
 * one, the zombie list one. A running callback needs none: the pin does not end before
 * `callbacks` is back to zero.
 *
 * Forced reclaim (region_reclaim, from the backend's free_cb) runs under the vendor's locks.
 * It takes region->lock, which nobody holds while calling the vendor or waiting for
 * mmap_lock, then drains within a bound. While MAPPING it only leaves a mark (revoked), and
 * MAP undoes its work. `reclaimed` says that the pin must not be put any more.
 *
 * Locks, outermost first
 *   mmap_lock
 *   region->lock        state and everything else in the region without a note of its own
 *   dev->region_lock    the device's list of pins, dev->gone
 *   region->drain.lock  the drain's cursor, and the extents against a drain that reads them
 *   dev->insert_sem     see phxfs-drain.c
 *   dev->zombie_lock    the device's zombie list
 * Vendor calls that may block, span changes and copies to user space hold none of them; around
 * the vendor's calls stands the backend's pin_sem (phxfs-backend.c), which no callback takes.
 */
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "phxfs-inject.h"
#include "phxfs-region.h"
#include "phxfs-trace.h"

/* Mappings are this many pages apart in the file, so that a zap meets one region only. */
#define SLOT_PAGES_SHIFT	31
#define MAX_SLOT		((1 << 20) - 1)
#define UNMAP_PATIENCE_US	2000

static DECLARE_WAIT_QUEUE_HEAD(callback_wq);

static void region_free(struct kref *ref)
{
	struct phxfs_region *r = container_of(ref, struct phxfs_region, ref);

	kfree(r);
}

void phxfs_region_put(struct phxfs_region *r)
{
	kref_put(&r->ref, region_free);
}

static void region_account(struct phxfs_region *r, atomic64_t *counter)
{
	lockdep_assert_held_write(&r->lock);
	if (r->account)
		atomic64_sub(r->length, r->account);
	if (counter)
		atomic64_add(r->length, counter);
	r->account = counter;
}

/* --- the end of a pin ---------------------------------------------------------------- */

void phxfs_region_zap(struct phxfs_region *r)
{
	lockdep_assert_held_write(&r->lock);
	if (r->mapping)
		unmap_mapping_range(r->mapping, (loff_t)r->pgoff << PAGE_SHIFT, r->length, 1);
}

/* Leave LIVE or MAPPING: no new transfer can start when this returns. */
static void region_stop(struct phxfs_region *r, enum region_state next)
{
	lockdep_assert_held_write(&r->lock);
	if (r->state == REGION_LIVE)
		atomic64_dec(&r->dev->count.regions);
	r->state = next;
	phxfs_region_zap(r);
	phxfs_drain_start(&r->drain);
	region_account(r, &r->dev->count.zombie);
}

static void zombie_list(struct phxfs_region *r)
{
	lockdep_assert_held(&r->dev->zombie_lock);
	if (list_empty(&r->zombie_node)) {
		kref_get(&r->ref);
		list_add_tail(&r->zombie_node, &r->dev->zombies);
	}
}

/*
 * The caller holds the device, by the pin or by a descriptor. Queued work holds it too: a
 * region that it ends may have been the last to do so.
 */
static void zombie_add(struct phxfs_region *r)
{
	struct phxfs_dev *dev = r->dev;

	spin_lock(&dev->zombie_lock);
	zombie_list(r);
	spin_unlock(&dev->zombie_lock);
	get_device(&dev->device);
	if (mod_delayed_work(phxfs_wq, &dev->zombie_work, 0))
		put_device(&dev->device); /* it was queued already, and holds it */
}

static void device_unlink(struct phxfs_region *r)
{
	struct phxfs_dev *dev = r->dev;

	mutex_lock(&dev->region_lock);
	list_del_init(&r->dev_node);
	if (list_empty(&dev->regions))
		wake_up_all(&dev->drained);
	mutex_unlock(&dev->region_lock);
}

/* Drop what phxfs_region_begin() took. The device and the modules may go with this. */
static void pin_end(struct phxfs_region *r)
{
	struct phxfs_dev *dev = r->dev;
	struct module *owner = dev->ops->owner;

	phxfs_region_put(r);
	put_device(&dev->device);
	module_put(owner);
	module_put(THIS_MODULE);
}

static void release_pin(struct phxfs_region *r, struct phxfs_page_table *pt, bool reclaimed)
{
	const struct phxfs_p2p_ops *ops = r->dev->ops;

	if (pt && reclaimed)
		ops->free_page_table(pt);
	else if (pt)
		phxfs_unpin(ops, r->vaddr, pt);
	/* a callback that met put_pages half-way still looks at the extents */
	wait_event(callback_wq, !atomic_read(&r->callbacks));
}

/*
 * Let go of the pin if no transfer is under way. True if there is nothing more to do: the
 * pin is gone, or the region is not ending.
 */
static bool region_try_finish(struct phxfs_region *r)
{
	struct phxfs_page_table *pt;
	bool reclaimed;

	phxfs_drain_poll(r->dev, &r->drain, &r->extents);
	down_write(&r->lock);
	if (!r->pinned || (r->state != REGION_ZOMBIE && r->state != REGION_DEAD)) {
		up_write(&r->lock);
		return true;
	}
	/* not what the poll said: the region may have been live then, and retired since */
	if (!phxfs_drain_done(&r->drain, &r->extents) || r->finishing ||
	    atomic_read(&r->callbacks)) {
		up_write(&r->lock);
		return false;
	}
	r->finishing = true;
	pt = r->pt;
	r->pt = NULL;
	reclaimed = r->reclaimed;
	up_write(&r->lock);

	release_pin(r, pt, reclaimed);
	phxfs_put_spans(r->dev, r->spans, r->n_spans);
	trace_phxfs_drain(r->dev->idx, r->vaddr, r->length);

	down_write(&r->lock);
	mutex_lock(&r->drain.lock);
	phxfs_extents_free(&r->extents);
	mutex_unlock(&r->drain.lock);
	region_account(r, NULL);
	r->spans = NULL;
	r->n_spans = 0;
	r->finishing = false;
	r->poisoned = false;
	r->pinned = false;
	device_unlink(r);
	if (r->state == REGION_ZOMBIE)
		r->state = REGION_EMPTY;
	up_write(&r->lock);
	pin_end(r);
	return true;
}

/*
 * The region is ZOMBIE. Most often its pages are idle at once, and the memory is unpinned
 * when the caller returns; else the worker does it.
 */
static void retire(struct phxfs_region *r)
{
	unsigned int waited;

	for (waited = 0; waited < UNMAP_PATIENCE_US; waited += 100) {
		if (region_try_finish(r))
			return;
		usleep_range(100, 120);
	}
	zombie_add(r);
}

/* One for each device: a vendor's driver that hangs holds up nobody else's memory. */
static void zombie_work_fn(struct work_struct *work)
{
	struct phxfs_dev *dev = container_of(to_delayed_work(work), struct phxfs_dev, zombie_work);
	struct phxfs_region *r;
	bool left = false;
	LIST_HEAD(batch);

	spin_lock(&dev->zombie_lock);
	list_splice_init(&dev->zombies, &batch);
	while ((r = list_first_entry_or_null(&batch, struct phxfs_region, zombie_node))) {
		/* off the list first: it may be retired anew while we look at it */
		list_del_init(&r->zombie_node);
		spin_unlock(&dev->zombie_lock);
		if (!region_try_finish(r)) {
			spin_lock(&dev->zombie_lock);
			zombie_list(r);
			spin_unlock(&dev->zombie_lock);
			left = true;
		}
		phxfs_region_put(r);
		spin_lock(&dev->zombie_lock);
	}
	spin_unlock(&dev->zombie_lock);

	dev->zombie_delay_ms = left ? min(dev->zombie_delay_ms * 2 + 1, 100U) : 0;
	/* this run's reference is the next one's, or there is one in the queue already */
	if (!left || !queue_delayed_work(phxfs_wq, &dev->zombie_work,
					 msecs_to_jiffies(dev->zombie_delay_ms)))
		put_device(&dev->device);
}

void phxfs_regions_init(struct phxfs_dev *dev)
{
	mutex_init(&dev->region_lock);
	INIT_LIST_HEAD(&dev->regions);
	init_waitqueue_head(&dev->drained);
	spin_lock_init(&dev->zombie_lock);
	INIT_LIST_HEAD(&dev->zombies);
	INIT_DELAYED_WORK(&dev->zombie_work, zombie_work_fn);
}

/* --- forced reclaim ------------------------------------------------------------------ */

static bool drain_within(struct phxfs_region *r, unsigned int ms)
{
	unsigned long end = jiffies + msecs_to_jiffies(ms);

	while (!phxfs_drain_poll(r->dev, &r->drain, &r->extents)) {
		if (time_after(jiffies, end))
			return false;
		usleep_range(200, 400);
	}
	return true;
}

static void report_reclaim(struct phxfs_region *r, enum region_state was, bool drained)
{
	struct phxfs_dev *dev = r->dev;

	trace_phxfs_reclaim(dev->idx, r->vaddr, r->length, drained);
	atomic64_inc(&dev->count.reclaims);
	if (!drained) {
		atomic64_inc(&dev->count.reclaim_timeouts);
		dev_err(&dev->device,
			"%s: the driver takes back %#llx+%#llx while transfers into it are still "
			"under way after %u ms: they may overwrite whatever the memory is used for "
			"next\n",
			dev->bdf, r->vaddr, r->length, phxfs_drain_ms);
	} else if (was == REGION_LIVE) {
		dev_warn_ratelimited(&dev->device,
				     "%s: the driver took back %#llx+%#llx, which was registered\n",
				     dev->bdf, r->vaddr, r->length);
	}
}

/* The memory goes away when this returns. The caller has counted itself in callbacks. */
static void region_reclaim(struct phxfs_region *r)
{
	struct phxfs_page_table *pt = NULL;
	enum region_state was;
	bool drained = true;

	down_write(&r->lock);
	was = r->state;
	r->reclaimed = true;
	r->revoked = true;
	if (was == REGION_LIVE)
		region_stop(r, REGION_DEAD);
	up_write(&r->lock);

	if (was != REGION_MAPPING) {
		drained = drain_within(r, phxfs_drain_ms);
		down_write(&r->lock);
		pt = r->pt;
		r->pt = NULL;
		r->poisoned = !drained;
		up_write(&r->lock);
	}
	report_reclaim(r, was, drained);
	if (pt && !drained)
		pt->flags |= PHXFS_PT_UNDRAINED;
	if (pt)
		r->dev->ops->free_page_table(pt);
	if (was != REGION_MAPPING)
		zombie_add(r);
	/* from here on the pin may end under us */
	if (atomic_dec_and_test(&r->callbacks))
		wake_up_all(&callback_wq);
}

static void reclaim_work_fn(struct work_struct *work)
{
	region_reclaim(container_of(work, struct phxfs_region, reclaim_work));
}

/* free_cb of every pin made here */
void phxfs_region_free_cb(void *data)
{
	struct phxfs_region *r = data;

	atomic_inc(&r->callbacks);
	if ((r->dev->ops->flags & PHXFS_P2P_ATOMIC_CB) || in_atomic() || irqs_disabled()) {
		dev_err_ratelimited(&r->dev->device,
				    "%s: %#llx+%#llx is taken back in atomic context: "
				    "transfers under way cannot be waited for\n",
				    r->dev->bdf, r->vaddr, r->length);
		queue_work(phxfs_wq, &r->reclaim_work);
		return;
	}
	region_reclaim(r);
}

/* The device goes away: end every region, and wait for their transfers within the bound. */
void phxfs_regions_revoke(struct phxfs_dev *dev)
{
	struct phxfs_region *r, *found;

	do {
		found = NULL;
		mutex_lock(&dev->region_lock);
		list_for_each_entry(r, &dev->regions, dev_node) {
			if (r->revoking)
				continue;
			r->revoking = true;
			kref_get(&r->ref);
			found = r;
			break;
		}
		mutex_unlock(&dev->region_lock);
		if (!found)
			break;
		down_write(&found->lock);
		found->revoked = true;
		if (found->state == REGION_LIVE)
			region_stop(found, REGION_DEAD);
		up_write(&found->lock);
		zombie_add(found);
		phxfs_region_put(found);
	} while (found);

	if (!wait_event_timeout(dev->drained, list_empty_careful(&dev->regions),
				msecs_to_jiffies(phxfs_drain_ms)))
		dev_err(&dev->device,
			"%s: the device is going away while transfers into it are still under way "
			"after %u ms\n",
			dev->bdf, phxfs_drain_ms);
}

/* --- VMAs ---------------------------------------------------------------------------- */

static void region_vma_open(struct vm_area_struct *vma)
{
	struct phxfs_region *r = vma->vm_private_data;

	atomic_inc(&r->vmas);
}

/* The pages of the VMA are unmapped already, and its file is still open. */
static void region_vma_close(struct vm_area_struct *vma)
{
	struct phxfs_region *r = vma->vm_private_data;
	bool ending;

	if (!atomic_dec_and_test(&r->vmas))
		return;
	down_write(&r->lock);
	r->mapping = NULL;
	r->revoked = true;
	ending = r->state == REGION_LIVE || r->state == REGION_DEAD;
	if (ending)
		atomic64_inc(&r->dev->count.unmaps);
	if (r->state == REGION_LIVE)
		region_stop(r, REGION_ZOMBIE);
	else if (r->state == REGION_DEAD)
		r->state = r->pinned ? REGION_ZOMBIE : REGION_EMPTY;
	up_write(&r->lock);
	ida_free(&r->dev->slots, r->slot);
	/* never finish here: the vendor must not be called under mmap_lock */
	if (ending)
		zombie_add(r);
	phxfs_region_put(r);
}

/*
 * Persistent pins. Neither page_mkwrite nor pfn_mkwrite: with one of them the kernel refuses
 * long-term pins of a shared mapping.
 */
static const struct vm_operations_struct region_vm_ops = {
	.open	= region_vma_open,
	.close	= region_vma_close,
	.fault	= phxfs_region_fault,
};

static vm_fault_t region_pfn_mkwrite(struct vm_fault *vmf)
{
	return 0;
}

/*
 * Pins that the vendor can take back: a long-term pin would outlive them. MAP puts this
 * table in after mmap has computed vm_page_prot, so that pages still go in writable.
 */
static const struct vm_operations_struct region_revocable_vm_ops = {
	.open		= region_vma_open,
	.close		= region_vma_close,
	.fault		= phxfs_region_fault,
	.pfn_mkwrite	= region_pfn_mkwrite,
};

static bool vma_is_ours(const struct vm_area_struct *vma)
{
	return vma->vm_ops == &region_vm_ops || vma->vm_ops == &region_revocable_vm_ops;
}

bool phxfs_region_is_mapped(const struct phxfs_region *r, const struct vm_area_struct *vma)
{
	return vma_is_ours(vma) && vma->vm_private_data == r;
}

/* Under mmap_lock for writing. A fault that does not take it finds the same handler in both. */
void phxfs_region_set_ops(const struct phxfs_region *r, struct vm_area_struct *vma)
{
	mmap_assert_write_locked(vma->vm_mm);
	WRITE_ONCE(vma->vm_ops, r->features & PHXFS_F_LONGTERM ? &region_vm_ops :
								 &region_revocable_vm_ops);
}

int phxfs_region_mmap(struct phxfs_file *pf, struct file *file, struct vm_area_struct *vma)
{
	struct phxfs_dev *dev = pf->dev;
	u64 length = vma->vm_end - vma->vm_start;
	struct phxfs_region *r;
	int slot;

	if (pf->mm != vma->vm_mm)
		return -EPERM;
	if (!(vma->vm_flags & VM_SHARED) || (vma->vm_flags & VM_EXEC) || vma->vm_pgoff ||
	    !IS_ALIGNED(length, PHXFS_REG_ALIGN) || length >> PAGE_SHIFT >> SLOT_PAGES_SHIFT)
		return -EINVAL;
	if (READ_ONCE(dev->gone))
		return -ENODEV;

	r = phxfs_inject() ? NULL : kzalloc(sizeof(*r), GFP_KERNEL);
	if (!r)
		return -ENOMEM;
	slot = phxfs_inject() ? -ENOMEM : ida_alloc_max(&dev->slots, MAX_SLOT, GFP_KERNEL);
	if (slot < 0) {
		kfree(r);
		return slot == -ENOSPC ? -ENOMEM : slot;
	}
	kref_init(&r->ref);
	r->dev = dev;
	r->length = length;
	r->slot = slot;
	r->pgoff = (pgoff_t)slot << SLOT_PAGES_SHIFT;	/* a multiple of 2 MiB: huge pages */
	r->mapping = file->f_mapping;
	atomic_set(&r->vmas, 1);
	init_rwsem(&r->lock);
	mutex_init(&r->drain.lock);
	INIT_WORK(&r->reclaim_work, reclaim_work_fn);
	INIT_LIST_HEAD(&r->dev_node);
	INIT_LIST_HEAD(&r->zombie_node);

	vma->vm_pgoff = r->pgoff;
	vm_flags_set(vma, VM_MIXEDMAP | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	vm_flags_clear(vma, VM_MAYEXEC);
	vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	vma->vm_private_data = r;
	vma->vm_ops = &region_vm_ops;
	return 0;
}

/* The region mapped at @addr through this descriptor, with a reference. */
struct phxfs_region *phxfs_region_find(struct phxfs_file *pf, u64 addr, u64 length)
{
	struct phxfs_region *r = ERR_PTR(-EFAULT);
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;

	if (mm != pf->mm)
		return ERR_PTR(-EPERM);
	mmap_read_lock(mm);
	vma = find_vma(mm, addr);
	if (vma && vma->vm_start <= addr && vma_is_ours(vma) &&
	    vma->vm_file->private_data == pf) {
		r = vma->vm_private_data;
		if (length && (vma->vm_start != addr || vma->vm_end - addr != length ||
			       r->length != length))
			r = ERR_PTR(-EINVAL);
		else
			kref_get(&r->ref);
	}
	mmap_read_unlock(mm);
	return r;
}

/* --- what MAP needs of the states ---------------------------------------------------- */

int phxfs_region_check_args(const struct phxfs_file *pf, const struct phxfs_ioctl_map *arg)
{
	if (arg->dev_id != pf->dev->idx || arg->c_size != arg->n_size || !arg->n_vaddr ||
	    !arg->n_size || !IS_ALIGNED(arg->n_vaddr | arg->n_size, PHXFS_REG_ALIGN) ||
	    arg->n_vaddr + arg->n_size < arg->n_vaddr)
		return -EINVAL;
	return 0;
}

/* EMPTY -> MAPPING, and the references that a pin holds. Exactly one caller wins. */
int phxfs_region_begin(struct phxfs_region *r, u64 vaddr)
{
	struct phxfs_dev *dev = r->dev;
	int err = 0;

	down_write(&r->lock);
	switch (r->state) {
	case REGION_EMPTY:
		break;
	case REGION_LIVE:
	case REGION_DEAD:
		err = -EEXIST;
		break;
	default:
		err = -EBUSY;
	}
	if (r->in_map)
		err = -EBUSY;
	if (err)
		goto out_unlock;
	mutex_lock(&dev->region_lock);
	if (dev->gone)
		err = -ENODEV;
	else
		list_add_tail(&r->dev_node, &dev->regions);
	r->revoking = false;
	mutex_unlock(&dev->region_lock);
	if (err)
		goto out_unlock;
	/* the open descriptor holds all of these: they cannot fail */
	__module_get(THIS_MODULE);
	__module_get(dev->ops->owner);
	get_device(&dev->device);
	kref_get(&r->ref);
	r->state = REGION_MAPPING;
	r->in_map = true;
	r->pinned = true;
	r->revoked = !r->mapping;
	r->reclaimed = false;
	r->poisoned = false;
	r->vaddr = vaddr;
out_unlock:
	up_write(&r->lock);
	return err;
}

/* MAPPING -> LIVE: page faults may insert pages. */
void phxfs_region_live(struct phxfs_region *r)
{
	lockdep_assert_held_write(&r->lock);
	r->state = REGION_LIVE;
	region_account(r, &r->dev->count.pinned);
	atomic64_inc(&r->dev->count.regions);
}

/*
 * MAP has ended. If it failed, some pages may be in, and pinned by a transfer already; or a
 * reclaim, or the last munmap, may have ended the region in its stead.
 */
void phxfs_region_end_map(struct phxfs_region *r, int err)
{
	bool ending = false;

	down_write(&r->lock);
	if (err && (r->state == REGION_MAPPING || r->state == REGION_LIVE)) {
		ending = true;
		region_stop(r, REGION_ZOMBIE);
	} else if (err && r->state == REGION_DEAD) {
		/* not stopped again: its pages may have been let go of already */
		ending = r->pinned;
		r->state = ending ? REGION_ZOMBIE : REGION_EMPTY;
	}
	up_write(&r->lock);
	if (ending)
		retire(r);
	down_write(&r->lock);
	r->in_map = false;
	up_write(&r->lock);
	if (!err)
		atomic64_inc(&r->dev->count.maps);
}

/* --- UNMAP, REGION ------------------------------------------------------------------- */

static int unmap_check(const struct phxfs_region *r, const struct phxfs_ioctl_map *arg)
{
	if (r->in_map)
		return -EBUSY;
	switch (r->state) {
	case REGION_EMPTY:
	case REGION_ZOMBIE:
		return -ENOENT;
	default:
		return arg->n_vaddr == r->vaddr && arg->n_size == r->length ? 0 : -EINVAL;
	}
}

int phxfs_region_unmap(struct phxfs_file *pf, const struct phxfs_ioctl_map *arg)
{
	struct phxfs_region *r;
	bool pinned = false;
	int err = phxfs_region_check_args(pf, arg);

	if (err)
		return err;
	r = phxfs_region_find(pf, arg->c_vaddr, arg->c_size);
	if (IS_ERR(r))
		return PTR_ERR(r);
	down_write(&r->lock);
	err = unmap_check(r, arg);
	if (!err) {
		atomic64_inc(&r->dev->count.unmaps);
		pinned = r->pinned;
		if (r->state == REGION_LIVE)
			region_stop(r, REGION_ZOMBIE);
		else
			r->state = pinned ? REGION_ZOMBIE : REGION_EMPTY;
	}
	up_write(&r->lock);
	if (!err && pinned)
		retire(r);
	trace_phxfs_unmap(pf->dev->idx, arg->n_vaddr, arg->n_size, err);
	phxfs_region_put(r);
	return err;
}

int phxfs_region_query(struct phxfs_file *pf, struct phxfs_ioctl_region *arg)
{
	static const u32 names[] = {
		[REGION_EMPTY] = PHXFS_REGION_EMPTY, [REGION_MAPPING] = PHXFS_REGION_MAPPING,
		[REGION_LIVE] = PHXFS_REGION_LIVE, [REGION_DEAD] = PHXFS_REGION_RECLAIMED,
		[REGION_ZOMBIE] = PHXFS_REGION_DRAINING,
	};
	struct phxfs_region *r = phxfs_region_find(pf, arg->c_vaddr, 0);

	if (IS_ERR(r))
		return PTR_ERR(r);
	down_read(&r->lock);
	arg->state = r->in_map ? PHXFS_REGION_MAPPING : names[r->state];
	arg->n_vaddr = r->state == REGION_EMPTY ? 0 : r->vaddr;
	arg->n_size = r->state == REGION_EMPTY ? 0 : r->length;
	arg->pieces = r->state == REGION_LIVE ? r->extents.n : 0;
	arg->features = r->state == REGION_LIVE ? r->features : 0;
	arg->page_size = r->state == REGION_LIVE ? r->page_size : 0;
	up_read(&r->lock);
	phxfs_region_put(r);
	return 0;
}
