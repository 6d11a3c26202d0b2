// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxfs.ko: direct transfers between files and accelerator memory.
 *
 * Here: module parameters, the accelerators (found when a backend registers or a driver
 * binds, gone when either ends), their char devices and the calls on them. Regions are in
 * phxfs-mem.c, struct pages in phxfs-span.c, vendors behind phxfs-backend.h.
 *
 * Nothing vendor-specific is known here, and loading never fails for want of a device.
 */
#include <linux/fs.h>
#include <linux/huge_mm.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "phxfs-inject.h"
#include "phxfs.h"

#define CREATE_TRACE_POINTS
#include "phxfs-trace.h"

static int phxfs_map_mode = PHXFS_MAP_MODE_STAGING;
module_param(phxfs_map_mode, int, 0444);
MODULE_PARM_DESC(phxfs_map_mode, "0: FULL, the whole BAR is mapped when a device is found; "
				 "1: STAGING (default), what is registered");

static char *gpus[PHXFS_MAX_DEVICES];
static int n_gpus;
module_param_array(gpus, charp, &n_gpus, 0444);
MODULE_PARM_DESC(gpus, "serve only these: [DOMAIN:]BUS:DEVICE.FUNCTION,...");

static bool phxfs_huge = true;
module_param(phxfs_huge, bool, 0444);
MODULE_PARM_DESC(phxfs_huge, "map with 2 MiB pages where memory lies so (default); N: never");

unsigned int phxfs_drain_ms = 5000;
module_param_named(drain_ms, phxfs_drain_ms, uint, 0644);
MODULE_PARM_DESC(drain_ms, "ms that a forced reclaim and an unbind wait for transfers (5000)");

atomic_t phxfs_inject_countdown = ATOMIC_INIT(0);
module_param_named(inject, phxfs_inject_countdown.counter, int, 0600);
MODULE_PARM_DESC(inject, "test aid: let the Nth step from now that can fail, fail");

#define PHXFS_STRUCT_MAX	4096
#define QUERY_FIRST		offsetofend(struct phxfs_ioctl_query, backend)
#define REGION_FIRST		offsetofend(struct phxfs_ioctl_region, page_size)

struct workqueue_struct *phxfs_wq;

static dev_t first_devt;
static struct class *phxfs_class;
static DEFINE_IDA(device_ids);
static LIST_HEAD(devices);	/* protected by: phxfs_backends_lock */

/* --- calls ---------------------------------------------------------------------------- */

static int phxfs_open(struct inode *inode, struct file *file)
{
	struct phxfs_dev *dev = container_of(inode->i_cdev, struct phxfs_dev, cdev);
	struct phxfs_file *pf;
	int err = 0;

	pf = phxfs_inject() ? NULL : kzalloc(sizeof(*pf), GFP_KERNEL);
	if (!pf)
		return -ENOMEM;
	/* ops may be looked at only while the device is not gone */
	mutex_lock(&dev->region_lock);
	if (dev->gone || !try_module_get(dev->ops->owner))
		err = -ENODEV;
	mutex_unlock(&dev->region_lock);
	if (err) {
		kfree(pf);
		return err;
	}
	get_device(&dev->device);
	pf->dev = dev;
	pf->mm = current->mm;
	mmgrab(pf->mm);
	file->private_data = pf;
	return nonseekable_open(inode, file);
}

/* The regions' VMAs hold the file: none is left. Their pins hold what they need. */
static int phxfs_release(struct inode *inode, struct file *file)
{
	struct phxfs_file *pf = file->private_data;
	struct module *owner = pf->dev->ops->owner;

	mmdrop(pf->mm);
	put_device(&pf->dev->device);
	module_put(owner);
	kfree(pf);
	return 0;
}

static int phxfs_mmap(struct file *file, struct vm_area_struct *vma)
{
	return phxfs_region_mmap(file->private_data, file, vma);
}

static long call_map(struct phxfs_file *pf, void __user *uarg, bool map)
{
	struct phxfs_ioctl_map arg;

	if (copy_from_user(&arg, uarg, sizeof(arg)))
		return -EFAULT;
	return map ? phxfs_region_map(pf, &arg) : phxfs_region_unmap(pf, &arg);
}

/*
 * Structs that grow: see the uapi header for the rules kept here. @first is the size that
 * the struct had in its first release.
 */
static int get_sized(void *arg, size_t first, size_t known, void __user *uarg, u32 *size)
{
	int err;

	if (get_user(*size, (u32 __user *)uarg))
		return -EFAULT;
	if (*size < first || *size > PHXFS_STRUCT_MAX)
		return -EINVAL;
	err = copy_struct_from_user(arg, known, uarg, *size);
	return err == -E2BIG ? -EINVAL : err;
}

static int put_sized(void *arg, size_t known, void __user *uarg, u32 size)
{
	*(u32 *)arg = known;
	if (copy_to_user(uarg, arg, min_t(size_t, size, known)) ||
	    (size > known && clear_user(uarg + known, size - known)))
		return -EFAULT;
	return 0;
}

static long call_query(struct phxfs_file *pf, void __user *uarg)
{
	struct phxfs_dev *dev = pf->dev;
	struct phxfs_ioctl_query q = { 0 };
	u32 size;
	int err = get_sized(&q, QUERY_FIRST, sizeof(q), uarg, &size);

	if (err)
		return err;
	if (q.flags)
		return -EINVAL;
	if (READ_ONCE(dev->gone))
		return -ENODEV;
	q = (struct phxfs_ioctl_query){
		.abi = PHXFS_ABI_VERSION,
		.map_mode = dev->map_mode,
		.dev_id = dev->idx,
		.bar = dev->bar,
		.features = dev->ops->flags & PHXFS_P2P_PERSISTENT ? PHXFS_F_LONGTERM :
								     PHXFS_F_RECLAIM,
		.page_size = dev->ops->page_size,
		.reg_align = PHXFS_REG_ALIGN,
		.span_align = dev->map_mode == PHXFS_MAP_MODE_STAGING ? PHXFS_SPAN_ALIGN : 0,
		.window_size = dev->size,
	};
	strscpy(q.pci_bdf, dev->bdf, sizeof(q.pci_bdf));
	strscpy(q.backend, dev->ops->name, sizeof(q.backend));
	return put_sized(&q, sizeof(q), uarg, size);
}

static long call_region(struct phxfs_file *pf, void __user *uarg)
{
	struct phxfs_ioctl_region arg;
	u32 size;
	int err = get_sized(&arg, REGION_FIRST, sizeof(arg), uarg, &size);

	if (!err && arg.flags)
		err = -EINVAL;
	if (!err)
		err = phxfs_region_query(pf, &arg);
	return err ?: put_sized(&arg, sizeof(arg), uarg, size);
}

static long phxfs_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct phxfs_file *pf = file->private_data;
	void __user *uarg = (void __user *)arg;

	switch (cmd) {
	case PHXFS_IOCTL_MAP:
	case PHXFS_IOCTL_UNMAP:
		return call_map(pf, uarg, cmd == PHXFS_IOCTL_MAP);
	}
	/* the size in the number is the caller's; the struct's own size field rules */
	if (_IOC_TYPE(cmd) != PHXFS_IOC_MAGIC || _IOC_DIR(cmd) != (_IOC_READ | _IOC_WRITE))
		return -ENOTTY;
	switch (_IOC_NR(cmd)) {
	case _IOC_NR(PHXFS_IOCTL_QUERY):
		return call_query(pf, uarg);
	case _IOC_NR(PHXFS_IOCTL_REGION):
		return call_region(pf, uarg);
	}
	return -ENOTTY;
}

static const struct file_operations phxfs_fops = {
	.owner		= THIS_MODULE,
	.open		= phxfs_open,
	.release	= phxfs_release,
	.mmap		= phxfs_mmap,
	.get_unmapped_area = thp_get_unmapped_area,	/* congruent with 2 MiB blocks */
	.unlocked_ioctl	= phxfs_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

/* --- devices -------------------------------------------------------------------------- */

static void device_release(struct device *d)
{
	struct phxfs_dev *dev = container_of(d, struct phxfs_dev, device);

	WARN_ON(!RB_EMPTY_ROOT(&dev->spans) || !list_empty(&dev->regions));
	ida_destroy(&dev->slots);
	pci_dev_put(dev->pdev);
	kfree(dev);
}

/* The memory window is the largest memory BAR. */
static void find_window(struct phxfs_dev *dev)
{
	struct pci_dev *pdev = dev->pdev;
	int bar;

	dev->bar = -1;
	for (bar = 0; bar < PCI_STD_NUM_BARS; bar++) {
		if (!(pci_resource_flags(pdev, bar) & IORESOURCE_MEM) ||
		    pci_resource_len(pdev, bar) <= dev->size)
			continue;
		dev->bar = bar;
		dev->base = pci_resource_start(pdev, bar);
		dev->size = pci_resource_len(pdev, bar);
	}
	if (dev->bar < 0)
		strscpy(dev->reason, "no memory BAR", sizeof(dev->reason));
}

static struct phxfs_dev *device_alloc(struct pci_dev *pdev, const struct phxfs_p2p_ops *ops)
{
	struct phxfs_dev *dev = phxfs_inject() ? NULL : kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return NULL;
	dev->pdev = pci_dev_get(pdev);
	dev->ops = ops;
	dev->map_mode = phxfs_map_mode;
	/*
	 * With compound pages the smallest thing that drains is 2 MiB. That is too coarse to
	 * keep a driver waiting for, which can take back 64 KiB of it.
	 */
	dev->huge = PHXFS_CAN_HUGE && phxfs_huge && ops->flags & PHXFS_P2P_PERSISTENT;
	dev->spans = RB_ROOT;
	INIT_LIST_HEAD(&dev->ghost_node);
	strscpy(dev->bdf, pci_name(pdev), sizeof(dev->bdf));
	mutex_init(&dev->span_lock);
	phxfs_regions_init(dev);
	init_rwsem(&dev->insert_sem);
	ida_init(&dev->slots);
	device_initialize(&dev->device);
	dev->device.class = phxfs_class;
	dev->device.parent = &pdev->dev;
	dev->device.groups = phxfs_device_groups();
	dev->device.release = device_release;
	return dev;
}

static void map_window(struct phxfs_dev *dev)
{
	int err;

	if (dev->map_mode != PHXFS_MAP_MODE_FULL || dev->reason[0])
		return;
	err = phxfs_full_map(dev);
	if (err == -ENOMEM)
		snprintf(dev->reason, sizeof(dev->reason),
			 "no host memory for struct pages: FULL needs %llu MiB of it",
			 (dev->size >> PAGE_SHIFT) * sizeof(struct page) >> 20);
	else if (err == -EBUSY)
		strscpy(dev->reason,
			"another driver holds the whole BAR with a conflicting cache type",
			sizeof(dev->reason));
	else if (err == -EADDRINUSE)
		strscpy(dev->reason, "transfers into its previous binding are still under way",
			sizeof(dev->reason));
	else if (err)
		snprintf(dev->reason, sizeof(dev->reason), "mapping the BAR failed: %d", err);
}

static void device_add_pdev(struct pci_dev *pdev, const struct phxfs_p2p_ops *ops)
{
	struct phxfs_dev *dev = device_alloc(pdev, ops);
	int err = -ENOMEM;

	if (!dev)
		goto err_report;
	if (!phxfs_inject())
		err = ida_alloc_max(&device_ids, PHXFS_MAX_DEVICES - 1, GFP_KERNEL);
	if (err < 0)
		goto err_put;
	dev->idx = err;
	dev->device.devt = first_devt + dev->idx;
	err = phxfs_inject() ? -ENOMEM :
	      dev_set_name(&dev->device, PHXFS_DEV_PREFIX "%d", dev->idx);
	if (err)
		goto err_free_id;
	find_window(dev);
	if (!dev->reason[0])
		phxfs_device_check(dev);
	map_window(dev);
	cdev_init(&dev->cdev, &phxfs_fops);
	dev->cdev.owner = THIS_MODULE;
	err = phxfs_inject() ? -ENOMEM : cdev_device_add(&dev->cdev, &dev->device);
	if (err)
		goto err_unmap;
	list_add_tail(&dev->node, &devices);
	dev_info(&dev->device, "%s: %s accelerator, BAR %d, %llu MiB, %s\n", dev->bdf, ops->name,
		 dev->bar, dev->size >> 20,
		 dev->map_mode == PHXFS_MAP_MODE_FULL ? "FULL" : "STAGING");
	if (dev->reason[0])
		dev_err(&dev->device, "%s: nothing can be mapped: %s\n", dev->bdf, dev->reason);
	return;

err_unmap:
	phxfs_spans_leave(dev);
err_free_id:
	ida_free(&device_ids, dev->idx);
err_put:
	put_device(&dev->device);
err_report:
	pr_err("%s: no device node: %d\n", pci_name(pdev), err);
}

/* Unreachable when this returns; freed when its last region and descriptor are. */
static void device_remove(struct phxfs_dev *dev)
{
	lockdep_assert_held(&phxfs_backends_lock);
	list_del(&dev->node);
	mutex_lock(&dev->region_lock);
	dev->gone = true;
	mutex_unlock(&dev->region_lock);
	cdev_device_del(&dev->cdev, &dev->device);
	phxfs_exports_revoke(dev);
	phxfs_regions_revoke(dev);
	phxfs_spans_leave(dev);
	ida_free(&device_ids, dev->idx);
	put_device(&dev->device);
}

static struct phxfs_dev *device_find(const struct pci_dev *pdev)
{
	struct phxfs_dev *dev;

	lockdep_assert_held(&phxfs_backends_lock);
	list_for_each_entry(dev, &devices, node)
		if (dev->pdev == pdev)
			return dev;
	return NULL;
}

static bool parse_bdf(const char *s, unsigned int *domain, unsigned int *bus, unsigned int *devfn)
{
	unsigned int slot, func;
	int n = 0;

	/* sscanf would take signs and prefixes */
	if (s[strspn(s, "0123456789abcdefABCDEF:.")])
		return false;
	if (sscanf(s, "%x:%x:%x.%x%n", domain, bus, &slot, &func, &n) < 4 || s[n]) {
		*domain = 0;
		n = 0;
		if (sscanf(s, "%x:%x.%x%n", bus, &slot, &func, &n) < 3 || s[n])
			return false;
	}
	*devfn = PCI_DEVFN(slot, func);
	return *bus < 256 && slot < 32 && func < 8;
}

static bool is_wanted(struct pci_dev *pdev)
{
	unsigned int domain, bus, devfn;
	int i;

	for (i = 0; i < n_gpus; i++)
		if (parse_bdf(gpus[i], &domain, &bus, &devfn) &&
		    domain == pci_domain_nr(pdev->bus) && bus == pdev->bus->number &&
		    devfn == pdev->devfn)
			return true;
	return !n_gpus;
}

static void device_consider(struct pci_dev *pdev, const struct phxfs_p2p_ops *only)
{
	const struct phxfs_p2p_ops *ops = phxfs_backend_match(pdev);

	if (!ops || (only && ops != only) || device_find(pdev))
		return;
	if (is_wanted(pdev))
		device_add_pdev(pdev, ops);
	else
		pr_info("%s: left alone, it is not in gpus=\n", pci_name(pdev));
}

static u64 bdf_key(const struct pci_dev *pdev)
{
	return (u64)pci_domain_nr(pdev->bus) << 16 | pdev->bus->number << 8 | pdev->devfn;
}

/* Called with phxfs_backends_lock held. In BDF order, so that numbers are predictable. */
void phxfs_devices_scan(const struct phxfs_p2p_ops *ops)
{
	struct pci_dev *pdev = NULL, *next;
	u64 from = 0;

	do {
		next = NULL;
		while ((pdev = pci_get_device(PCI_ANY_ID, PCI_ANY_ID, pdev))) {
			if (bdf_key(pdev) < from || (next && bdf_key(pdev) >= bdf_key(next)) ||
			    !pci_match_id(ops->ids, pdev))
				continue;
			pci_dev_put(next);
			next = pci_dev_get(pdev);
		}
		if (next) {
			device_consider(next, ops);
			from = bdf_key(next) + 1;
			pci_dev_put(next);
		}
	} while (next);
}

/* Called with phxfs_backends_lock held, by a backend that nobody uses any more. */
void phxfs_devices_forget(const struct phxfs_p2p_ops *ops)
{
	struct phxfs_dev *dev, *next;

	list_for_each_entry_safe(dev, next, &devices, node)
		if (dev->ops == ops)
			device_remove(dev);
}

/* The device of @ops whose window holds @phys, with a reference; or NULL. */
struct phxfs_dev *phxfs_device_by_address(const struct phxfs_p2p_ops *ops, u64 phys)
{
	struct phxfs_dev *dev, *found = NULL;

	mutex_lock(&phxfs_backends_lock);
	list_for_each_entry(dev, &devices, node) {
		if (dev->ops != ops || phys < dev->base || phys - dev->base >= dev->size)
			continue;
		get_device(&dev->device);
		found = dev;
		break;
	}
	mutex_unlock(&phxfs_backends_lock);
	return found;
}

/* No vendor need be asked for more than this. 0: it has no device. */
u64 phxfs_largest_window(const struct phxfs_p2p_ops *ops)
{
	struct phxfs_dev *dev;
	u64 size = 0;

	mutex_lock(&phxfs_backends_lock);
	list_for_each_entry(dev, &devices, node)
		if (dev->ops == ops)
			size = max(size, dev->size);
	mutex_unlock(&phxfs_backends_lock);
	return size;
}

/* A driver binds or goes. The notifier runs under the device's lock. */
static int bus_event(struct notifier_block *nb, unsigned long event, void *data)
{
	struct pci_dev *pdev = to_pci_dev(data);
	struct phxfs_dev *dev;

	mutex_lock(&phxfs_backends_lock);
	switch (event) {
	case BUS_NOTIFY_BOUND_DRIVER:
		device_consider(pdev, NULL);
		break;
	case BUS_NOTIFY_UNBIND_DRIVER:
	case BUS_NOTIFY_UNBOUND_DRIVER:
	case BUS_NOTIFY_DRIVER_NOT_BOUND:
		dev = device_find(pdev);
		if (dev) {
			dev_info(&dev->device, "%s: its driver goes: the device is removed\n",
				 dev->bdf);
			device_remove(dev);
		}
		break;
	}
	mutex_unlock(&phxfs_backends_lock);
	return NOTIFY_DONE;
}

static struct notifier_block bus_notifier = { .notifier_call = bus_event };

/* --- module --------------------------------------------------------------------------- */

static int check_parameters(void)
{
	unsigned int domain, bus, devfn;
	int i;

	if (phxfs_map_mode != PHXFS_MAP_MODE_FULL && phxfs_map_mode != PHXFS_MAP_MODE_STAGING) {
		pr_err("phxfs_map_mode=%d: 0 is FULL, 1 is STAGING\n", phxfs_map_mode);
		return -EINVAL;
	}
	for (i = 0; i < n_gpus; i++) {
		if (parse_bdf(gpus[i], &domain, &bus, &devfn))
			continue;
		pr_err("gpus=%s: not a PCI address, such as 0000:3b:00.0\n", gpus[i]);
		return -EINVAL;
	}
	return 0;
}

static int __init phxfs_init(void)
{
	int err = check_parameters();

	if (err)
		return err;
	phxfs_wq = phxfs_inject() ? NULL : alloc_workqueue("phxfs", WQ_UNBOUND, 0);
	if (!phxfs_wq)
		return -ENOMEM;
	err = phxfs_inject() ? -ENOMEM :
	      alloc_chrdev_region(&first_devt, 0, PHXFS_MAX_DEVICES, "phxfs");
	if (err)
		goto err_destroy_wq;
	phxfs_class = phxfs_inject() ? ERR_PTR(-ENOMEM) : phxfs_class_create(PHXFS_CLASS);
	if (IS_ERR(phxfs_class)) {
		err = PTR_ERR(phxfs_class);
		goto err_free_region;
	}
	err = phxfs_inject() ? -ENOMEM : bus_register_notifier(&pci_bus_type, &bus_notifier);
	if (err)
		goto err_destroy_class;
	return 0;

err_destroy_class:
	class_destroy(phxfs_class);
err_free_region:
	unregister_chrdev_region(first_devt, PHXFS_MAX_DEVICES);
err_destroy_wq:
	destroy_workqueue(phxfs_wq);
	return err;
}

/* No backend is left, so no device, descriptor or pin is either. */
static void __exit phxfs_exit(void)
{
	bus_unregister_notifier(&pci_bus_type, &bus_notifier);
	/* the tails of works, which may hold the last reference of a device */
	destroy_workqueue(phxfs_wq);
	class_destroy(phxfs_class);
	unregister_chrdev_region(first_devt, PHXFS_MAX_DEVICES);
	ida_destroy(&device_ids);
}

module_init(phxfs_init);
module_exit(phxfs_exit);

MODULE_DESCRIPTION("Direct transfers between files and accelerator memory");
MODULE_LICENSE("GPL");
MODULE_VERSION("1");
