// SPDX-License-Identifier: GPL-2.0-only
/*
 * The vendor backends that are registered. The list's lock is held over everything that
 * creates or removes devices, so that a backend never goes while its devices are being made.
 *
 * phxfs_backends_lock is the outermost lock of the module but for the PCI core's device
 * locks: bus notifications come under those.
 */
#include <linux/log2.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "phxfs-inject.h"
#include "phxfs.h"

struct backend {
	struct list_head node;
	const struct phxfs_p2p_ops *ops;
	/* held for reading in get_pages, for writing in put_pages: see phxfs_unpin() */
	struct rw_semaphore pin_sem;
};

static LIST_HEAD(backends);
DEFINE_MUTEX(phxfs_backends_lock);

/*
 * Each backend by the address of its operations. Who pins or unpins holds the backend's
 * module, and so finds it without phxfs_backends_lock.
 */
static DEFINE_XARRAY(backends_by_ops);

static bool ops_complete(const struct phxfs_p2p_ops *ops)
{
	return ops->name && ops->owner && ops->ids && ops->get_pages && ops->put_pages &&
	       ops->get_n_pages && ops->get_phys_addrs && ops->free_page_table &&
	       is_power_of_2(ops->page_size) && ops->page_size >= PAGE_SIZE;
}

static struct backend *backend_find(const char *name)
{
	struct backend *b;

	lockdep_assert_held(&phxfs_backends_lock);
	list_for_each_entry(b, &backends, node)
		if (!strcmp(b->ops->name, name))
			return b;
	return NULL;
}

int phxfs_p2p_register_backend(const struct phxfs_p2p_ops *ops)
{
	struct backend *b;
	int err;

	if (ops->abi != PHXFS_P2P_ABI) {
		pr_err("backend built for interface %u, this is %u: rebuild it\n",
		       ops->abi, PHXFS_P2P_ABI);
		return -EINVAL;
	}
	if (!ops_complete(ops)) {
		pr_err("backend %s: incomplete table of operations\n", ops->name ?: "?");
		return -EINVAL;
	}
	b = phxfs_inject() ? NULL : kzalloc(sizeof(*b), GFP_KERNEL);
	if (!b)
		return -ENOMEM;
	b->ops = ops;
	init_rwsem(&b->pin_sem);

	mutex_lock(&phxfs_backends_lock);
	err = backend_find(ops->name) ? -EEXIST : 0;
	if (!err)
		err = xa_insert(&backends_by_ops, (unsigned long)ops, b, GFP_KERNEL);
	if (err) {
		pr_err("P2P backend %s: cannot be registered: %d\n", ops->name, err);
		goto err_unlock;
	}
	if (ops->init)
		err = ops->init();
	if (err) {
		pr_err("P2P backend %s: init failed: %d\n", ops->name, err);
		goto err_erase;
	}
	list_add_tail(&b->node, &backends);
	pr_info("registered P2P backend: %s (page_size=%llu)\n", ops->name, ops->page_size);
	phxfs_devices_scan(ops);
	mutex_unlock(&phxfs_backends_lock);
	return 0;

err_erase:
	xa_erase(&backends_by_ops, (unsigned long)ops);
err_unlock:
	mutex_unlock(&phxfs_backends_lock);
	kfree(b);
	/* insmod takes -ENOSYS for a kernel that loads modules another way, and tries that */
	return err == -ENOSYS ? -ENODEV : err;
}
EXPORT_SYMBOL(phxfs_p2p_register_backend);

void phxfs_p2p_unregister_backend(const struct phxfs_p2p_ops *ops)
{
	struct backend *b;

	mutex_lock(&phxfs_backends_lock);
	b = backend_find(ops->name);
	if (b && b->ops == ops) {
		list_del(&b->node);
		phxfs_devices_forget(ops);
		if (ops->exit)
			ops->exit();
		xa_erase(&backends_by_ops, (unsigned long)ops);
		pr_info("unregistered P2P backend: %s\n", ops->name);
		kfree(b);
	}
	mutex_unlock(&phxfs_backends_lock);
}
EXPORT_SYMBOL(phxfs_p2p_unregister_backend);

/* The backend that serves @pdev as it is bound now, or NULL. */
const struct phxfs_p2p_ops *phxfs_backend_match(struct pci_dev *pdev)
{
	struct backend *b;

	lockdep_assert_held(&phxfs_backends_lock);
	list_for_each_entry(b, &backends, node) {
		const struct phxfs_p2p_ops *ops = b->ops;
		const struct device_driver *driver = READ_ONCE(pdev->dev.driver);

		if (driver && pci_match_id(ops->ids, pdev) &&
		    (!ops->driver || !strcmp(ops->driver, driver->name)))
			return ops;
	}
	return NULL;
}

int phxfs_pin(const struct phxfs_p2p_ops *ops, u64 vaddr, u64 length,
	      struct phxfs_page_table **pt, void (*free_cb)(void *data), void *data)
{
	struct backend *b = xa_load(&backends_by_ops, (unsigned long)ops);
	int err;

	down_read(&b->pin_sem);
	err = ops->get_pages(vaddr, length, pt, free_cb, data);
	up_read(&b->pin_sem);
	if (!err && !*pt) {
		pr_err_ratelimited("%s pinned nothing and called it success\n", ops->name);
		err = -EIO;
	}
	return err;
}

/*
 * A driver that is about to call free_cb for this pin frees its table when that returns,
 * while put_pages still waits for the driver's lock with the table's address in hand. It
 * must not find a newer pin of ours there: no pin is made meanwhile. Other vendors' drivers
 * know nothing of it, and one of them that hangs must not hold up this one.
 */
void phxfs_unpin(const struct phxfs_p2p_ops *ops, u64 vaddr, struct phxfs_page_table *pt)
{
	struct backend *b = xa_load(&backends_by_ops, (unsigned long)ops);

	down_write(&b->pin_sem);
	ops->put_pages(vaddr, pt);
	up_write(&b->pin_sem);
}

/* The @n-th backend, its module held; NULL past the last. */
const struct phxfs_p2p_ops *phxfs_backend_get(unsigned int n)
{
	const struct phxfs_p2p_ops *ops = NULL;
	struct backend *b;

	mutex_lock(&phxfs_backends_lock);
	list_for_each_entry(b, &backends, node) {
		/* one that is being unloaded counts as gone */
		if (!try_module_get(b->ops->owner))
			continue;
		if (!n--) {
			ops = b->ops;
			break;
		}
		module_put(b->ops->owner);
	}
	mutex_unlock(&phxfs_backends_lock);
	return ops;
}
