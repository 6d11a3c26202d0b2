// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxfs-testdev.ko: a second vendor, for tests. A PCI driver for whatever device is bound to
 * it by driver_override, and a backend that serves it beside the others: device address
 * TESTDEV_BASE + N is byte N of the largest BAR, always there, pinned for good.
 *
 * page_size= is the size of its device pages, per allocation if it is not the backend's
 * (64 KiB). conflict=1: at probe the driver maps parts of the BAR with different cache
 * types, as real ones do: its second 2 MiB write-combining, its fourth uncached, and both
 * within the sixth.
 */
#include <linux/io.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "../phxfs-backend.h"

#define TESTDEV_BASE	0x7e5700000000ull
#define BLOCK		0x200000ull
#define PAGE_SIZE_64K	65536

static ulong granule = PAGE_SIZE_64K;
module_param_named(page_size, granule, ulong, 0644);
static bool conflict;
module_param(conflict, bool, 0444);
static bool short_table;
module_param(short_table, bool, 0644);

static struct pci_dev *bound;		/* at most one */
static void __iomem *held[4];

struct testdev_pin {
	struct phxfs_page_table pt;
	u64 start;
	u32 n;
};

static int testdev_bar(struct pci_dev *pdev)
{
	int bar, best = 0;

	for (bar = 1; bar < PCI_STD_NUM_BARS; bar++)
		if (pci_resource_len(pdev, bar) > pci_resource_len(pdev, best))
			best = bar;
	return best;
}

static int testdev_get_pages(u64 vaddr, u64 length, struct phxfs_page_table **pt,
			     void (*free_cb)(void *), void *data)
{
	u64 size = READ_ONCE(granule), offset = vaddr - TESTDEV_BASE;
	int bar = bound ? testdev_bar(bound) : 0;
	struct testdev_pin *pin;

	if (!bound || vaddr < TESTDEV_BASE || offset >= pci_resource_len(bound, bar) ||
	    length > pci_resource_len(bound, bar) - offset)
		return -EINVAL;
	pin = kzalloc(sizeof(*pin), GFP_KERNEL);
	if (!pin)
		return -ENOMEM;
	pin->pt.flags = PHXFS_PT_PERSISTENT;
	pin->pt.page_size = size == PAGE_SIZE_64K ? 0 : size;
	pin->start = pci_resource_start(bound, bar) + round_down(offset, size);
	pin->n = DIV_ROUND_UP_ULL((offset & (size - 1)) + length, size) - short_table;
	*pt = &pin->pt;
	return 0;
}

static void testdev_put_pages(u64 vaddr, struct phxfs_page_table *pt)
{
	kfree(container_of(pt, struct testdev_pin, pt));
}

static u32 testdev_get_n_pages(struct phxfs_page_table *pt)
{
	return container_of(pt, struct testdev_pin, pt)->n;
}

static int testdev_get_phys_addrs(struct phxfs_page_table *pt, u64 *addrs, u32 n)
{
	struct testdev_pin *pin = container_of(pt, struct testdev_pin, pt);
	u64 size = pt->page_size ?: PAGE_SIZE_64K;
	u32 i;

	for (i = 0; i < n; i++)
		addrs[i] = pin->start + i * size;
	return 0;
}

static void testdev_free_page_table(struct phxfs_page_table *pt)
{
	kfree(container_of(pt, struct testdev_pin, pt));
}

static const struct pci_device_id any_device[] = {
	{ PCI_DEVICE(PCI_ANY_ID, PCI_ANY_ID) },
	{}
};

static const struct phxfs_p2p_ops testdev_ops = {
	.abi		= PHXFS_P2P_ABI,
	.name		= "testdev",
	.owner		= THIS_MODULE,
	.ids		= any_device,
	.driver		= "phxfs-testdev",
	.page_size	= PAGE_SIZE_64K,
	.get_pages	= testdev_get_pages,
	.put_pages	= testdev_put_pages,
	.get_n_pages	= testdev_get_n_pages,
	.get_phys_addrs	= testdev_get_phys_addrs,
	.free_page_table = testdev_free_page_table,
};

static int testdev_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	u64 start = pci_resource_start(pdev, testdev_bar(pdev));

	if (bound)
		return -EBUSY;
	if (conflict) {
		held[0] = ioremap_wc(start + BLOCK, BLOCK);
		held[1] = ioremap(start + 3 * BLOCK, BLOCK);
		held[2] = ioremap_wc(start + 5 * BLOCK, PAGE_SIZE);
		held[3] = ioremap(start + 5 * BLOCK + 2 * PAGE_SIZE, PAGE_SIZE);
	}
	bound = pdev;
	return 0;
}

static void testdev_remove(struct pci_dev *pdev)
{
	unsigned int i;

	bound = NULL;
	for (i = 0; i < ARRAY_SIZE(held); i++) {
		if (held[i])
			iounmap(held[i]);
		held[i] = NULL;
	}
}

/* No ids: only driver_override binds it. */
static const struct pci_device_id no_ids[] = { {} };

static struct pci_driver testdev_driver = {
	.name		= "phxfs-testdev",
	.id_table	= no_ids,
	.probe		= testdev_probe,
	.remove		= testdev_remove,
};

/* Each way in which a table can be wrong is refused. */
static int refused_tables(void)
{
	struct phxfs_p2p_ops ops = testdev_ops;

	ops.abi++;
	if (phxfs_p2p_register_backend(&ops) != -EINVAL)
		return -EPROTO;
	ops = testdev_ops;
	ops.get_n_pages = NULL;
	if (phxfs_p2p_register_backend(&ops) != -EINVAL)
		return -EPROTO;
	ops = testdev_ops;
	ops.page_size = 3000;
	if (phxfs_p2p_register_backend(&ops) != -EINVAL)
		return -EPROTO;
	return 0;
}

static int __init testdev_init(void)
{
	int err = refused_tables();

	if (!err)
		err = pci_register_driver(&testdev_driver);
	if (err)
		return err;
	err = phxfs_p2p_register_backend(&testdev_ops);
	if (err)
		goto err_unregister;
	/* a name is taken once */
	if (phxfs_p2p_register_backend(&testdev_ops) == -EEXIST)
		return 0;
	err = -EPROTO;
	phxfs_p2p_unregister_backend(&testdev_ops);
err_unregister:
	pci_unregister_driver(&testdev_driver);
	return err;
}

static void __exit testdev_exit(void)
{
	phxfs_p2p_unregister_backend(&testdev_ops);
	pci_unregister_driver(&testdev_driver);
}

module_init(testdev_init);
module_exit(testdev_exit);

MODULE_DESCRIPTION("A second vendor for tests of phxfs");
MODULE_LICENSE("GPL");
