// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pinned device memory for other kernel modules (phxfs-p2p.h).
 *
 * An export is created by register and freed by deregister; the table of handles owns it.
 * It holds the vendor's pin, its backend's module and its device. There are no struct pages
 * and no drain here: the client knows when its DMA is over, and is told (revoke) when it has
 * to be.
 *
 * Its death comes from two sides, which the export's lock orders: the vendor's callback sets
 * reclaimed, after which the pin must only be freed, and deregister takes the pin (pt) to
 * put it. The callback is counted, and deregister frees nothing while one runs.
 *
 * Locks, outermost first: exports_lock (table, lifetime of exports), export->lock (state).
 */
#include <linux/iommu.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "phxfs-inject.h"
#include "phxfs-p2p.h"
#include "phxfs.h"

struct export {
	u64 handle;
	u64 vaddr;
	u64 length;
	const struct phxfs_p2p_ops *ops;	/* its module is held */
	struct phxfs_dev *dev;			/* held */
	u64 *ioaddrs;
	u32 n;
	atomic_t callbacks;		/* under way */
	struct task_struct *reclaimer;	/* runs revoke; compared only */
	bool leaving;			/* protected by: exports_lock; its device goes */

	spinlock_t lock;		/* protects the rest */
	struct phxfs_page_table *pt;
	bool dead;			/* the addresses must not be used */
	bool telling;			/* revoke is at work */
	bool reclaimed;			/* the vendor took the pin back */
	void (*revoke)(void *arg);
	void *revoke_arg;
};

static DEFINE_MUTEX(exports_lock);
static DEFINE_XARRAY_ALLOC1(exports);	/* protected by: exports_lock */
static u32 generation;			/* protected by: exports_lock */
static DECLARE_WAIT_QUEUE_HEAD(callback_wq);

/*
 * Tell the client once. Whoever comes second waits until the client has stopped: the vendor
 * gives the memory to somebody else when its callback returns.
 */
static void export_kill(struct export *e, bool reclaimed)
{
	void (*fn)(void *arg);
	unsigned long flags;
	bool wait;
	void *arg;

	spin_lock_irqsave(&e->lock, flags);
	e->reclaimed |= reclaimed;
	wait = e->telling && READ_ONCE(e->reclaimer) != current;
	fn = e->dead ? NULL : e->revoke;
	arg = e->revoke_arg;
	e->dead = true;
	if (fn) {
		WRITE_ONCE(e->reclaimer, current);
		e->telling = true;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	if (fn) {
		fn(arg);
		WRITE_ONCE(e->reclaimer, NULL);
		WRITE_ONCE(e->telling, false);
		wake_up_all(&callback_wq);
	} else if (wait && !in_atomic() && !irqs_disabled()) {
		wait_event_timeout(callback_wq, !READ_ONCE(e->telling),
				   msecs_to_jiffies(phxfs_drain_ms));
	}
}

/* The export may be freed with this. */
static void export_leave_callback(struct export *e)
{
	if (atomic_dec_and_test(&e->callbacks))
		wake_up_all(&callback_wq);
}

static void export_free_cb(void *data)
{
	struct export *e = data;

	atomic_inc(&e->callbacks);
	export_kill(e, true);
	export_leave_callback(e);
}

/* Give the pin back, by whichever way is still right. */
static void export_unpin(struct export *e)
{
	struct phxfs_page_table *pt;
	bool reclaimed;

	spin_lock_irq(&e->lock);
	e->dead = true;
	pt = e->pt;
	e->pt = NULL;
	reclaimed = e->reclaimed;
	spin_unlock_irq(&e->lock);
	if (pt && reclaimed)
		e->ops->free_page_table(pt);
	else if (pt)
		phxfs_unpin(e->ops, e->vaddr, pt);
}

static void export_free(struct export *e)
{
	if (e->ops) {
		export_unpin(e);
		wait_event(callback_wq, !atomic_read(&e->callbacks));
		module_put(e->ops->owner);
	}
	if (e->dev)
		put_device(&e->dev->device);
	kvfree(e->ioaddrs);
	kfree(e);
}

/* The first backend that pins the memory. */
static int export_pin(struct export *e)
{
	const struct phxfs_p2p_ops *ops;
	int err = -ENODEV;
	unsigned int i;

	for (i = 0; (ops = phxfs_backend_get(i)); i++) {
		u64 most = phxfs_largest_window(ops);
		struct phxfs_page_table *pt = NULL;

		e->ops = ops;
		if (e->length <= most)
			err = phxfs_pin(ops, e->vaddr, e->length, &pt, export_free_cb, e);
		else if (most)
			err = -EINVAL;
		else
			err = -ENODEV;
		if (!err) {
			spin_lock_irq(&e->lock);
			e->pt = pt;
			spin_unlock_irq(&e->lock);
			return pt->flags & PHXFS_PT_RECLAIMED ? -EFAULT : 0;
		}
		e->ops = NULL;
		module_put(ops->owner);
	}
	return err;
}

/* A peer may be handed CPU physical addresses only if nothing on the way translates. */
static int check_passthrough(const struct phxfs_dev *dev)
{
	struct iommu_domain *domain = iommu_get_domain_for_dev(&dev->pdev->dev);

	if (domain && domain->type != IOMMU_DOMAIN_IDENTITY) {
		dev_err(&dev->device,
			"%s: an IOMMU translates its addresses: boot with iommu=pt to export "
			"them\n",
			dev->bdf);
		return -EOPNOTSUPP;
	}
	if (pci_bus_address(dev->pdev, dev->bar) != dev->base) {
		dev_err(&dev->device, "%s: bus addresses differ from CPU addresses\n", dev->bdf);
		return -EOPNOTSUPP;
	}
	return 0;
}

static int fill_ioaddrs(struct export *e, const u64 *phys, u64 page_size)
{
	struct phxfs_extents x;
	u32 i;
	int err;

	err = phxfs_extents_get(e->dev, e->vaddr, e->length, page_size, phys, &x);
	if (err)
		return err;
	e->n = e->length / PHXFS_P2P_PAGE_SIZE;
	e->ioaddrs = phxfs_inject() ? NULL : kvmalloc_array(e->n, sizeof(u64), GFP_KERNEL);
	if (!e->ioaddrs)
		err = -ENOMEM;
	for (i = 0; i < e->n && !err; i++) {
		u64 run;

		e->ioaddrs[i] = phxfs_extents_phys(&x, (u64)i * PHXFS_P2P_PAGE_SIZE, &run);
		if (run < PHXFS_P2P_PAGE_SIZE)
			err = -EINVAL;
	}
	phxfs_extents_free(&x);
	return err;
}

static int export_locate(struct export *e)
{
	u64 page_size = e->pt->page_size ?: e->ops->page_size, *phys, n;
	int err;

	if (!is_power_of_2(page_size) || page_size < PAGE_SIZE)
		return -EIO;
	n = DIV_ROUND_UP_ULL((e->vaddr & (page_size - 1)) + e->length, page_size);
	if (n > PHXFS_MAX_PAGES)
		return -EINVAL;
	if (e->ops->get_n_pages(e->pt) != n)
		return -EIO;
	phys = phxfs_inject() ? NULL : kvmalloc_array(n, sizeof(*phys), GFP_KERNEL);
	if (!phys)
		return -ENOMEM;
	err = e->ops->get_phys_addrs(e->pt, phys, n);
	if (err)
		goto out_free;
	e->dev = phxfs_device_by_address(e->ops, phys[0]);
	err = !e->dev ? -ENXIO : check_passthrough(e->dev);
	if (!err)
		err = fill_ioaddrs(e, phys, page_size);
out_free:
	kvfree(phys);
	return err;
}

static int export_publish(struct export *e)
{
	u32 id;
	int err;

	mutex_lock(&exports_lock);
	if (READ_ONCE(e->dead))
		err = -EFAULT;
	else if (READ_ONCE(e->dev->gone))
		err = -ENODEV;
	else
		err = phxfs_inject() ? -ENOMEM :
		      xa_alloc(&exports, &id, e, xa_limit_31b, GFP_KERNEL);
	if (!err) {
		generation++;
		e->handle = (u64)generation << 32 | id;
	}
	mutex_unlock(&exports_lock);
	return err;
}

int phxfs_p2p_register(u64 gpu_vaddr, u64 length, u64 *handle, const u64 **ioaddrs, u32 *n)
{
	struct export *e;
	int err;

	if (!gpu_vaddr || !length || gpu_vaddr + length < gpu_vaddr ||
	    !IS_ALIGNED(gpu_vaddr | length, PHXFS_P2P_PAGE_SIZE))
		return -EINVAL;
	e = phxfs_inject() ? NULL : kzalloc(sizeof(*e), GFP_KERNEL);
	if (!e)
		return -ENOMEM;
	e->vaddr = gpu_vaddr;
	e->length = length;
	spin_lock_init(&e->lock);
	err = export_pin(e);
	if (!err)
		err = export_locate(e);
	if (!err)
		err = export_publish(e);
	if (err) {
		export_free(e);
		return err;
	}
	*handle = e->handle;
	*ioaddrs = e->ioaddrs;
	*n = e->n;
	return 0;
}
EXPORT_SYMBOL(phxfs_p2p_register);

static struct export *export_find(u64 handle)
{
	struct export *e = xa_load(&exports, (u32)handle);

	lockdep_assert_held(&exports_lock);
	return e && e->handle == handle ? e : NULL;
}

int phxfs_p2p_on_revoke(u64 handle, void (*fn)(void *arg), void *arg)
{
	struct export *e;
	int err = -EINVAL;

	mutex_lock(&exports_lock);
	e = export_find(handle);
	if (e) {
		spin_lock_irq(&e->lock);
		err = e->dead ? -ESTALE : 0;
		if (!err) {
			e->revoke = fn;
			e->revoke_arg = arg;
		}
		spin_unlock_irq(&e->lock);
	}
	mutex_unlock(&exports_lock);
	return err;
}
EXPORT_SYMBOL(phxfs_p2p_on_revoke);

bool phxfs_p2p_valid(u64 handle)
{
	struct export *e;
	bool valid;

	mutex_lock(&exports_lock);
	e = export_find(handle);
	valid = e && !READ_ONCE(e->dead);
	mutex_unlock(&exports_lock);
	return valid;
}
EXPORT_SYMBOL(phxfs_p2p_valid);

int phxfs_p2p_deregister(u64 handle)
{
	struct export *e;
	bool stale;

	mutex_lock(&exports_lock);
	e = export_find(handle);
	if (e && READ_ONCE(e->reclaimer) == current) {
		mutex_unlock(&exports_lock);
		return -EDEADLK;
	}
	if (e)
		xa_erase(&exports, (u32)handle);
	mutex_unlock(&exports_lock);
	if (!e)
		return -EINVAL;
	stale = READ_ONCE(e->dead);
	export_free(e);
	return stale ? -ESTALE : 0;
}
EXPORT_SYMBOL(phxfs_p2p_deregister);

/* The next export of a device that goes, counted as if in a callback; NULL: no more. */
static struct export *leaving_export(struct phxfs_dev *dev)
{
	struct export *e, *found = NULL;
	unsigned long i;

	mutex_lock(&exports_lock);
	xa_for_each(&exports, i, e) {
		if (e->dev != dev || e->leaving)
			continue;
		e->leaving = true;
		atomic_inc(&e->callbacks);
		found = e;
		break;
	}
	mutex_unlock(&exports_lock);
	return found;
}

/* The device goes away. A client that asked to be told stops now; others we cannot stop. */
void phxfs_exports_revoke(struct phxfs_dev *dev)
{
	struct export *e;

	while ((e = leaving_export(dev))) {
		export_kill(e, false);
		if (READ_ONCE(e->revoke))
			export_unpin(e);
		else
			dev_err(&dev->device,
				"%s: the device is going away while another module uses "
				"%#llx+%#llx of it\n",
				dev->bdf, e->vaddr, e->length);
		export_leave_callback(e);
	}
}
