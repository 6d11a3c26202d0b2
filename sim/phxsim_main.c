// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxsim: a software accelerator on QEMU's ivshmem-plain device.
 *
 * Here: the PCI function, its char device and sysfs files, contexts, and the
 * deaths: of a file, of a process (its files close), of the device (unbind).
 */
#include <linux/bitmap.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "phxsim.h"

#define PHXSIM_BAR	2

DEFINE_MUTEX(phxsim_api);
LIST_HEAD(phxsim_contexts);
DEFINE_SRCU(phxsim_srcu);
static LIST_HEAD(phxsim_devices);

static unsigned int unbind_wait_ms = 10000;
module_param(unbind_wait_ms, uint, 0644);
MODULE_PARM_DESC(unbind_wait_ms, "how long an unbind waits for persistent pins");

static unsigned int split_mib;
module_param(split_mib, uint, 0444);
MODULE_PARM_DESC(split_mib, "map the BAR uncached from here on, write-combining below (0: all)");

static int layout_set(const char *val, const struct kernel_param *kp)
{
	return phxsim_set_layout(val);
}

static const struct kernel_param_ops layout_ops = { .set = layout_set };
module_param_cb(layout, &layout_ops, NULL, 0200);
MODULE_PARM_DESC(layout, "default layout: huge, fragmented, subspans, reversed, misaligned");

static void dev_release(struct kref *ref)
{
	struct phxsim_dev *dev = container_of(ref, struct phxsim_dev, ref);

	bitmap_free(dev->used);
	kfree(dev);
}

void phxsim_dev_put(struct phxsim_dev *dev)
{
	kref_put(&dev->ref, dev_release);
}

/* --- contexts ----------------------------------------------------------- */

struct phxsim_ctx *phxsim_ctx_find(struct pid *tgid)
{
	struct phxsim_ctx *ctx;

	lockdep_assert_held(&phxsim_api);
	list_for_each_entry(ctx, &phxsim_contexts, link)
		if (ctx->tgid == tgid)
			return ctx;
	return NULL;
}

static struct phxsim_ctx *ctx_get(void)
{
	struct phxsim_ctx *ctx;

	mutex_lock(&phxsim_api);
	ctx = phxsim_ctx_find(task_tgid(current));
	if (!ctx) {
		ctx = kzalloc(sizeof(*ctx), GFP_KERNEL);
		if (!ctx)
			goto out_unlock;
		ctx->tgid = get_pid(task_tgid(current));
		spin_lock_init(&ctx->lock);
		ctx->allocs = RB_ROOT;
		list_add_tail(&ctx->link, &phxsim_contexts);
	}
	ctx->files++;
out_unlock:
	mutex_unlock(&phxsim_api);
	return ctx;
}

static void ctx_put(struct phxsim_ctx *ctx)
{
	mutex_lock(&phxsim_api);
	if (!--ctx->files) {
		WARN_ON(!RB_EMPTY_ROOT(&ctx->allocs));
		list_del(&ctx->link);
		put_pid(ctx->tgid);
		kfree(ctx);
	}
	mutex_unlock(&phxsim_api);
}

/* --- the char device ---------------------------------------------------- */

static int sim_open(struct inode *inode, struct file *filp)
{
	struct phxsim_dev *dev = container_of(filp->private_data, struct phxsim_dev, misc);
	struct phxsim_file *file;

	file = kzalloc(sizeof(*file), GFP_KERNEL);
	if (!file)
		return -ENOMEM;
	file->ctx = ctx_get();
	if (!file->ctx) {
		kfree(file);
		return -ENOMEM;
	}
	/* the misc layer keeps an unregistering device from being opened */
	kref_get(&dev->ref);
	file->dev = dev;
	filp->private_data = file;
	return 0;
}

static int sim_release(struct inode *inode, struct file *filp)
{
	struct phxsim_file *file = filp->private_data;

	phxsim_free_all(file);
	ctx_put(file->ctx);
	phxsim_dev_put(file->dev);
	kfree(file);
	return 0;
}

static void sim_info(struct phxsim_dev *dev, struct phxsim_info *info)
{
	info->version = PHXSIM_ABI_VERSION;
	info->index = dev->index;
	info->page_size = PHXSIM_PAGE_SIZE;
	info->bar_phys = dev->phys;
	info->bar_size = dev->size;
	mutex_lock(&dev->pages_lock);
	info->free_bytes = (u64)dev->pages_free << PHXSIM_PAGE_SHIFT;
	mutex_unlock(&dev->pages_lock);
	strscpy(info->bdf, dev->bdf, sizeof(info->bdf));
}

union sim_args {
	struct phxsim_info info;
	struct phxsim_alloc_args alloc;
	struct phxsim_free_args free;
	struct phxsim_query query;
	struct phxsim_pages pages;
	struct phxsim_copy copy;
	struct phxsim_fill fill;
	struct phxsim_checksum checksum;
	struct phxsim_fault fault;
	struct phxsim_reclaim reclaim;
};

static long sim_call(struct phxsim_file *file, unsigned int cmd, union sim_args *u)
{
	switch (cmd) {
	case PHXSIM_IOC_INFO:
		sim_info(file->dev, &u->info);
		return 0;
	case PHXSIM_IOC_ALLOC:
		return phxsim_alloc(file, &u->alloc);
	case PHXSIM_IOC_FREE:
		return phxsim_free(file, u->free.va);
	case PHXSIM_IOC_QUERY:
		return phxsim_query(file, &u->query);
	case PHXSIM_IOC_PAGES:
		return phxsim_pages(file, &u->pages);
	case PHXSIM_IOC_COPY:
		return phxsim_copy(file, &u->copy);
	case PHXSIM_IOC_FILL:
		return phxsim_fill(file, &u->fill);
	case PHXSIM_IOC_CHECKSUM:
		return phxsim_checksum(file, &u->checksum);
	case PHXSIM_IOC_FAULT:
		return phxsim_fault_set(file->dev, &u->fault);
	case PHXSIM_IOC_RECLAIM:
		return phxsim_reclaim(file, &u->reclaim);
	default:
		return -ENOTTY;
	}
}

static long sim_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct phxsim_file *file = filp->private_data;
	void __user *uarg = (void __user *)arg;
	unsigned int size = _IOC_SIZE(cmd);
	union sim_args u;
	long ret;

	/* memory is the opener's: a forked child has none here */
	if (file->ctx->tgid != task_tgid(current))
		return -EPERM;
	if (_IOC_TYPE(cmd) != 'V' || size > sizeof(u))
		return -ENOTTY;
	if (READ_ONCE(file->dev->dead) && cmd != PHXSIM_IOC_FREE)
		return -ENODEV;

	memset(&u, 0, sizeof(u));
	if ((_IOC_DIR(cmd) & _IOC_WRITE) && copy_from_user(&u, uarg, size))
		return -EFAULT;
	ret = sim_call(file, cmd, &u);
	if (ret || !(_IOC_DIR(cmd) & _IOC_READ))
		return ret;
	if (!copy_to_user(uarg, &u, size))
		return 0;
	if (cmd == PHXSIM_IOC_ALLOC)
		phxsim_free(file, u.alloc.va);
	return -EFAULT;
}

static const struct file_operations sim_fops = {
	.owner		= THIS_MODULE,
	.open		= sim_open,
	.release	= sim_release,
	.unlocked_ioctl	= sim_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

/* --- sysfs: /sys/class/misc/phxsimN/ -------------------------------------- */

static struct phxsim_dev *sysfs_dev(struct device *d)
{
	/* misc_register made its miscdevice the device's data */
	return container_of((struct miscdevice *)dev_get_drvdata(d), struct phxsim_dev, misc);
}

#define SIM_ATTR(_name, _fmt, _value) \
	static ssize_t _name##_show(struct device *d, struct device_attribute *attr, \
				    char *buf) \
	{ \
		struct phxsim_dev *dev = sysfs_dev(d); \
		ssize_t n; \
\
		mutex_lock(&phxsim_api); \
		n = sysfs_emit(buf, _fmt "\n", _value); \
		mutex_unlock(&phxsim_api); \
		return n; \
	} \
	static DEVICE_ATTR_RO(_name)

SIM_ATTR(pci_bdf, "%s", dev->bdf);
SIM_ATTR(bar_size, "%llu", dev->size);
SIM_ATTR(used_bytes, "%llu",
	 (u64)(dev->pages - READ_ONCE(dev->pages_free)) << PHXSIM_PAGE_SHIFT);
SIM_ATTR(pins, "%llu", dev->pins);
SIM_ATTR(persistent_pins, "%llu", dev->persistent);
SIM_ATTR(pinned_bytes, "%llu", dev->pinned_pages << PHXSIM_PAGE_SHIFT);
SIM_ATTR(reclaims, "%llu", dev->reclaims);

/* of all devices: a put that finds nothing does not know whose it was */
static ssize_t stale_puts_show(struct device *d, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lld\n", (long long)atomic64_read(&phxsim_stale_puts));
}
static DEVICE_ATTR_RO(stale_puts);

static struct attribute *sim_attrs[] = {
	&dev_attr_pci_bdf.attr,
	&dev_attr_bar_size.attr,
	&dev_attr_used_bytes.attr,
	&dev_attr_pins.attr,
	&dev_attr_persistent_pins.attr,
	&dev_attr_pinned_bytes.attr,
	&dev_attr_reclaims.attr,
	&dev_attr_stale_puts.attr,
	NULL
};
ATTRIBUTE_GROUPS(sim);

/* --- the PCI function ------------------------------------------------------ */

static void sim_link(struct phxsim_dev *dev)
{
	struct phxsim_dev *other;
	u32 index = 0;

	mutex_lock(&phxsim_api);
again:
	list_for_each_entry(other, &phxsim_devices, link) {
		if (other->index == index) {
			index++;
			goto again;
		}
	}
	dev->index = index;
	list_add_tail(&dev->link, &phxsim_devices);
	mutex_unlock(&phxsim_api);
}

static void sim_unlink(struct phxsim_dev *dev)
{
	mutex_lock(&phxsim_api);
	list_del(&dev->link);
	mutex_unlock(&phxsim_api);
}

static struct phxsim_dev *dev_create(struct pci_dev *pdev)
{
	struct phxsim_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return NULL;
	kref_init(&dev->ref);
	mutex_init(&dev->pages_lock);
	spin_lock_init(&dev->fault_lock);
	init_waitqueue_head(&dev->unpinned);
	dev->pdev = pdev;
	dev->phys = pci_resource_start(pdev, PHXSIM_BAR);
	dev->size = pci_resource_len(pdev, PHXSIM_BAR);
	dev->pages = dev->size >> PHXSIM_PAGE_SHIFT;
	dev->pages_free = dev->pages;
	strscpy(dev->bdf, pci_name(pdev), sizeof(dev->bdf));
	dev->used = bitmap_zalloc(dev->pages, GFP_KERNEL);
	if (!dev->used) {
		kfree(dev);
		return NULL;
	}
	return dev;
}

/*
 * Drivers hold their BAR with the cache types they like, and nobody else can map a
 * range of mixed types: split_mib makes such a range.
 */
static int dev_map(struct phxsim_dev *dev)
{
	dev->split = min_t(u64, (u64)split_mib << 20, dev->size);
	if (!dev->split)
		dev->split = dev->size;
	dev->mem[0] = memremap(dev->phys, dev->split, MEMREMAP_WC);
	if (!dev->mem[0])
		return -ENOMEM;
	if (dev->split == dev->size)
		return 0;
	/* as memory, which it is: only x86 needs to run this */
	dev->mem[1] = (void __force *)ioremap(dev->phys + dev->split, dev->size - dev->split);
	if (!dev->mem[1]) {
		memunmap(dev->mem[0]);
		return -ENOMEM;
	}
	return 0;
}

static void dev_unmap(struct phxsim_dev *dev)
{
	if (dev->mem[1])
		iounmap((void __iomem __force *)dev->mem[1]);
	memunmap(dev->mem[0]);
}

int phxsim_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct phxsim_dev *dev;
	int ret;

	if (pci_resource_len(pdev, PHXSIM_BAR) < PHXSIM_HUGE_SIZE)
		return -ENODEV;		/* ivshmem-doorbell without memory, or too small */
	dev = dev_create(pdev);
	if (!dev)
		return -ENOMEM;
	ret = pci_enable_device_mem(pdev);
	if (ret)
		goto err_put_dev;
	ret = pci_request_region(pdev, PHXSIM_BAR, "phxsim");
	if (ret)
		goto err_disable;
	ret = dev_map(dev);
	if (ret)
		goto err_release_region;
	sim_link(dev);
	snprintf(dev->name, sizeof(dev->name), "phxsim%u", dev->index);
	dev->misc.minor = MISC_DYNAMIC_MINOR;
	dev->misc.name = dev->name;
	dev->misc.fops = &sim_fops;
	dev->misc.parent = &pdev->dev;
	dev->misc.groups = sim_groups;
	dev->misc.mode = 0666;
	ret = misc_register(&dev->misc);
	if (ret)
		goto err_unlink;
	pci_set_drvdata(pdev, dev);
	pci_info(pdev, "%s: %llu MiB at %pa\n", dev->name, dev->size >> 20, &dev->phys);
	return 0;

err_unlink:
	sim_unlink(dev);
	dev_unmap(dev);
err_release_region:
	pci_release_region(pdev, PHXSIM_BAR);
err_disable:
	pci_disable_device(pdev);
err_put_dev:
	phxsim_dev_put(dev);
	return ret;
}
EXPORT_SYMBOL_GPL(phxsim_probe);

void phxsim_remove(struct pci_dev *pdev)
{
	struct phxsim_dev *dev = pci_get_drvdata(pdev);

	misc_deregister(&dev->misc);
	mutex_lock(&phxsim_api);
	WRITE_ONCE(dev->dead, true);
	phxsim_reclaim_dev(dev);
	mutex_unlock(&phxsim_api);
	synchronize_srcu(&phxsim_srcu);
	if (!wait_event_timeout(dev->unpinned, !READ_ONCE(dev->persistent),
				msecs_to_jiffies(unbind_wait_ms)))
		pci_err(pdev, "%s: unbound with %llu persistent pins\n", dev->name,
			READ_ONCE(dev->persistent));
	sim_unlink(dev);
	dev_unmap(dev);
	pci_release_region(pdev, PHXSIM_BAR);
	pci_disable_device(pdev);
	phxsim_dev_put(dev);
}
EXPORT_SYMBOL_GPL(phxsim_remove);

static const struct pci_device_id sim_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{}
};
MODULE_DEVICE_TABLE(pci, sim_ids);

static struct pci_driver sim_driver = {
	.name		= "phxsim",
	.id_table	= sim_ids,
	.probe		= phxsim_probe,
	.remove		= phxsim_remove,
};
module_pci_driver(sim_driver);

MODULE_DESCRIPTION("Software accelerator on ivshmem-plain");
MODULE_LICENSE("GPL");
