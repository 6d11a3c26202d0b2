// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxfs-amd.ko: the backend for AMD's driver, amdgpu of ROCm (the mainline kernel's has no
 * such interface), and its peer-direct table of functions.
 *
 * The driver keeps what is pinned until it is put, past the end of the process, and never
 * calls back: pins are persistent. It answers with DMA addresses for a device that we name,
 * the GPU's own: behind a translating IOMMU these are no addresses in the BAR, which the
 * core notices and refuses.
 *
 * The table has no version. Older ones want no device; which one it is stands in the
 * driver's header when this is built (PHXFS_AMD_NO_DMA_DEVICE).
 */
#include <linux/errno.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "phxfs-pin.h"
#include "phxfs-sg.h"
#include "phxfs-symbols.h"

#define AMD_DRIVER	"amdgpu"

struct amd_p2p_info {
	u64 va;
	u64 size;
	struct pid *pid;
	struct sg_table *pages;
	void *priv;
};

struct amd_interface {
	int (*get_pages)(u64 addr, u64 len, struct pid *pid,
#ifndef PHXFS_AMD_NO_DMA_DEVICE
			 struct device *dma_device,
#endif
			 struct amd_p2p_info **info, void (*free_cb)(void *data), void *data);
	int (*put_pages)(struct amd_p2p_info **info);
	int (*is_gpu_address)(u64 addr, struct pid *pid);
	int (*get_page_size)(u64 addr, u64 len, struct pid *pid, unsigned long *size);
};

struct amd_pin {
	struct phxfs_pin pin;
	struct amd_p2p_info *info;
	struct pci_dev *dma_device;	/* held: the driver unmaps from it */
};

/* The driver's. */
int amdkfd_query_rdma_interface(const struct amd_interface **table);

static typeof(&amdkfd_query_rdma_interface) query;
static const struct amd_interface *amd;

static const struct phxfs_symbol amd_symbols[] = {
	PHXFS_SYMBOL(amdkfd_query_rdma_interface, query),
};

static const struct pci_device_id amd_ids[] = {
	{ PCI_DEVICE(0x1002, PCI_ANY_ID), .class = 0x1200 << 8, .class_mask = ~0 },
	{ PCI_DEVICE(0x1002, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_OTHER << 8,
	  .class_mask = ~0 },
	{ PCI_DEVICE(0x1002, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_VGA << 8, .class_mask = ~0 },
	{}
};

static struct amd_pin *to_amd(struct phxfs_pin *pin)
{
	return container_of(pin, struct amd_pin, pin);
}

static struct amd_pin *pt_to_amd(struct phxfs_page_table *pt)
{
	return to_amd(container_of(pt, struct phxfs_pin, pt));
}

static void amd_pin_free(struct amd_pin *p)
{
	phxfs_pin_clear(&p->pin);
	pci_dev_put(p->dma_device);
	kfree(p);
}

static int amd_measure(struct phxfs_pin *pin)
{
	struct amd_p2p_info *info = to_amd(pin)->info;

	if (!info->pages || !info->pages->sgl || !info->pages->nents) {
		pr_err_ratelimited("the driver reports success and no pages\n");
		return -EIO;
	}
	return phxfs_sg_measure(pin, info->pages, 0, SZ_2M);
}

static int amd_copy(struct phxfs_pin *pin)
{
	return phxfs_sg_copy(pin, to_amd(pin)->info->pages, 0);
}

static const struct phxfs_table_ops amd_table_ops = {
	.measure	= amd_measure,
	.copy		= amd_copy,
};

/*
 * A GPU of the driver's, for it to name addresses for; all are alike in that. Drivers are
 * only compared: another one than ours may be on its way out.
 */
static struct pci_dev *find_gpu(void)
{
	const struct device_driver *driver = driver_find(AMD_DRIVER, &pci_bus_type);
	struct pci_dev *pdev = NULL;

	if (!driver)
		return NULL;
	for_each_pci_dev(pdev) {
		if (READ_ONCE(pdev->dev.driver) == driver && pci_match_id(amd_ids, pdev))
			break;
	}
	return pdev;
}

/* Stored by the driver, never called. */
static void amd_free_cb(void *data)
{
	struct amd_pin *p = data;

	pr_err("the driver takes %#llx back, which it never did before: not supported\n",
	       p->pin.vaddr);
}

static int amd_pin(struct amd_pin *p)
{
	int err;

	p->dma_device = find_gpu();
	if (!p->dma_device)
		return -ENODEV;
	err = amd->get_pages(p->pin.vaddr, p->pin.length, NULL,
#ifndef PHXFS_AMD_NO_DMA_DEVICE
			     &p->dma_device->dev,
#endif
			     &p->info, amd_free_cb, p);
	/* some releases say so of memory that is not theirs */
	if (!err && !p->info)
		err = -EINVAL;
	return err;
}

static int amd_get_pages(u64 vaddr, u64 length, struct phxfs_page_table **pt,
			 void (*free_cb)(void *), void *data)
{
	struct amd_pin *p = kzalloc(sizeof(*p), GFP_KERNEL);
	int err;

	if (!p)
		return -ENOMEM;
	phxfs_pin_init(&p->pin, vaddr, length, PAGE_SIZE, free_cb, data);
	p->pin.pt.flags = PHXFS_PT_PERSISTENT;
	err = amd_pin(p);
	if (err) {
		amd_pin_free(p);
		return err;
	}
	phxfs_pin_read(&p->pin, &amd_table_ops);
	*pt = &p->pin.pt;
	return 0;
}

static void amd_put_pages(u64 vaddr, struct phxfs_page_table *pt)
{
	struct amd_pin *p = pt_to_amd(pt);
	int err, tries = 0;

	while ((err = amd->put_pages(&p->info)) && tries++ < PHXFS_UNPIN_RETRIES)
		msleep(PHXFS_UNPIN_RETRY_MS);
	if (err)
		phxfs_pin_orphan(&p->pin, "amd", err);
	else
		amd_pin_free(p);
}

static u32 amd_get_n_pages(struct phxfs_page_table *pt)
{
	return pt_to_amd(pt)->pin.n;
}

static int amd_get_phys_addrs(struct phxfs_page_table *pt, u64 *addrs, u32 n)
{
	return phxfs_pin_addrs(&pt_to_amd(pt)->pin, addrs, n);
}

/* After a callback only, and there is none. */
static void amd_free_page_table(struct phxfs_page_table *pt)
{
	amd_pin_free(pt_to_amd(pt));
}

static void amd_exit(void)
{
	amd = NULL;
	phxfs_symbols_put(amd_symbols, ARRAY_SIZE(amd_symbols));
}

static int amd_init(void)
{
	int err = phxfs_symbols_get(amd_symbols, ARRAY_SIZE(amd_symbols), "ROCm's amdgpu.ko");

	if (err)
		return err;
	err = query(&amd);
	if (!err && (!amd || !amd->get_pages || !amd->put_pages))
		err = -EOPNOTSUPP;
	if (err) {
		pr_err("amdgpu.ko gives no interface for peers: %d\n", err);
		amd_exit();
	}
	return err;
}

static const struct phxfs_p2p_ops amd_ops = {
	.abi		= PHXFS_P2P_ABI,
	.flags		= PHXFS_P2P_PERSISTENT,
	.name		= "amd",
	.owner		= THIS_MODULE,
	.ids		= amd_ids,
	.driver		= AMD_DRIVER,
	.page_size	= PAGE_SIZE,
	.init		= amd_init,
	.exit		= amd_exit,
	.get_pages	= amd_get_pages,
	.put_pages	= amd_put_pages,
	.get_n_pages	= amd_get_n_pages,
	.get_phys_addrs	= amd_get_phys_addrs,
	.free_page_table = amd_free_page_table,
};

static int __init amd_backend_init(void)
{
	return phxfs_p2p_register_backend(&amd_ops);
}

static void __exit amd_backend_exit(void)
{
	phxfs_p2p_unregister_backend(&amd_ops);
}

module_init(amd_backend_init);
module_exit(amd_backend_exit);

MODULE_DESCRIPTION("phxfs backend for AMD GPUs");
MODULE_LICENSE("GPL");
