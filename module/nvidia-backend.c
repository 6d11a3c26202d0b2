// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxfs-nvidia.ko: the backend for NVIDIA's driver and its nvidia_p2p_*() functions.
 *
 * Persistent pins (drivers from 535 on) where the driver grants them: nothing takes them
 * back. Else (MIG, virtual GPUs, older drivers) pins with a callback. It comes in process
 * context with the driver's lock held, which each of the driver's functions takes too: so
 * none is called in it but nvidia_p2p_free_page_table(), which older drivers want there. The
 * driver frees its table when it returns, and a put that then comes too late does nothing.
 *
 * The table's version changes with the driver: 1.2 up to 575, 2.0 from 580 on, with a field
 * more at its end.
 */
#include <linux/errno.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "phxfs-pin.h"
#include "phxfs-symbols.h"

#define NVIDIA_PAGE_SIZE	65536
#define VERSION_1		0x00010002u	/* same major, at least this minor */
#define VERSION_2		0x00020000u
#define TABLE_CPU_CACHEABLE	1u		/* coherent platforms: no BAR addresses */
#define DRIVER_ENOTSUPP		524		/* the kernel's own, not for users */

struct nvidia_page {
	u64 physical_address;
	u32 registers[6];
};

struct nvidia_table {
	u32 version;
	u32 page_size;			/* an index */
	struct nvidia_page **pages;
	u32 entries;
	u8 *gpu_uuid;
	u32 flags;			/* from version 2 on */
};

struct nvidia_pin {
	struct phxfs_pin pin;
	struct nvidia_table *table;
};

/* The driver's. */
int nvidia_p2p_get_pages(u64 token, u32 va_space, u64 va, u64 len, struct nvidia_table **table,
			 void (*free_cb)(void *data), void *data);
int nvidia_p2p_put_pages(u64 token, u32 va_space, u64 va, struct nvidia_table *table);
int nvidia_p2p_free_page_table(struct nvidia_table *table);
int nvidia_p2p_get_pages_persistent(u64 va, u64 len, struct nvidia_table **table, u32 flags);
int nvidia_p2p_put_pages_persistent(u64 va, struct nvidia_table *table, u32 flags);

static typeof(&nvidia_p2p_get_pages) get_pages;
static typeof(&nvidia_p2p_put_pages) put_pages;
static typeof(&nvidia_p2p_free_page_table) free_table;
static typeof(&nvidia_p2p_get_pages_persistent) get_pages_persistent;
static typeof(&nvidia_p2p_put_pages_persistent) put_pages_persistent;

static const struct phxfs_symbol nvidia_symbols[] = {
	PHXFS_SYMBOL(nvidia_p2p_get_pages, get_pages),
	PHXFS_SYMBOL(nvidia_p2p_put_pages, put_pages),
	PHXFS_SYMBOL(nvidia_p2p_free_page_table, free_table),
#ifndef PHXFS_LINKED
	PHXFS_SYMBOL_OPTIONAL(nvidia_p2p_get_pages_persistent, get_pages_persistent),
	PHXFS_SYMBOL_OPTIONAL(nvidia_p2p_put_pages_persistent, put_pages_persistent),
#elif defined(PHXFS_LINKED_PERSISTENT)
	PHXFS_SYMBOL(nvidia_p2p_get_pages_persistent, get_pages_persistent),
	PHXFS_SYMBOL(nvidia_p2p_put_pages_persistent, put_pages_persistent),
#endif
};

static bool persistent = true;
module_param(persistent, bool, 0644);
MODULE_PARM_DESC(persistent, "use pins that cannot be taken back where the driver grants them "
			     "(default); N: only revocable ones");

static struct nvidia_pin *to_nvidia(struct phxfs_pin *pin)
{
	return container_of(pin, struct nvidia_pin, pin);
}

static struct nvidia_pin *pt_to_nvidia(struct phxfs_page_table *pt)
{
	return to_nvidia(container_of(pt, struct phxfs_pin, pt));
}

static void nvidia_pin_free(struct nvidia_pin *p)
{
	phxfs_pin_clear(&p->pin);
	kfree(p);
}

static bool version_known(u32 version)
{
	return (version >> 16 == VERSION_1 >> 16 && version >= VERSION_1) ||
	       version >> 16 == VERSION_2 >> 16;
}

static int nvidia_measure(struct phxfs_pin *pin)
{
	static const u64 sizes[] = { 4096, 65536, 131072 };
	const struct nvidia_table *t = to_nvidia(pin)->table;

	if (!t) {
		pr_err_ratelimited("the driver reports success and no page table\n");
		return -EIO;
	}
	if (!version_known(t->version)) {
		pr_err_ratelimited("page table of version %#x; this module knows %#x and %#x\n",
				   t->version, VERSION_1, VERSION_2);
		return -EOPNOTSUPP;
	}
	if (t->page_size >= ARRAY_SIZE(sizes) || !t->pages) {
		pr_err_ratelimited("page table with pages of kind %u\n", t->page_size);
		return -EOPNOTSUPP;
	}
	if (t->version >= VERSION_2 && t->flags & TABLE_CPU_CACHEABLE) {
		pr_err_ratelimited("the memory is coherent with the CPU's: it is in no BAR\n");
		return -EOPNOTSUPP;
	}
	pin->pt.page_size = sizes[t->page_size];
	pin->n = t->entries;
	return t->entries ? 0 : -EIO;
}

static int nvidia_copy(struct phxfs_pin *pin)
{
	const struct nvidia_table *t = to_nvidia(pin)->table;
	u32 i;

	for (i = 0; i < pin->n; i++)
		pin->addr[i] = t->pages[i] ? t->pages[i]->physical_address : 0;
	return 0;
}

static const struct phxfs_table_ops nvidia_table_ops = {
	.measure	= nvidia_measure,
	.copy		= nvidia_copy,
};

static void nvidia_free_cb(void *data)
{
	struct nvidia_pin *p = data;
	struct nvidia_table *table = READ_ONCE(p->table);

	phxfs_pin_reclaimed(&p->pin);
	/* the pin may be gone; the table is there until this returns */
	if (table)
		free_table(table);
}

static int nvidia_pin(struct nvidia_pin *p)
{
	int err = -DRIVER_ENOTSUPP;

	if (READ_ONCE(persistent) && get_pages_persistent && put_pages_persistent) {
		err = get_pages_persistent(p->pin.vaddr, p->pin.length, &p->table, 0);
		if (!err)
			p->pin.pt.flags |= PHXFS_PT_PERSISTENT;
	}
	if (err == -DRIVER_ENOTSUPP || err == -EOPNOTSUPP)
		err = get_pages(0, 0, p->pin.vaddr, p->pin.length, &p->table, nvidia_free_cb, p);
	return err == -DRIVER_ENOTSUPP ? -EOPNOTSUPP : err;
}

static int nvidia_get_pages(u64 vaddr, u64 length, struct phxfs_page_table **pt,
			    void (*free_cb)(void *), void *data)
{
	struct nvidia_pin *p = kzalloc(sizeof(*p), GFP_KERNEL);
	int err;

	if (!p)
		return -ENOMEM;
	phxfs_pin_init(&p->pin, vaddr, length, NVIDIA_PAGE_SIZE, free_cb, data);
	err = nvidia_pin(p);
	if (err) {
		nvidia_pin_free(p);
		return err;
	}
	phxfs_pin_read(&p->pin, &nvidia_table_ops);
	*pt = &p->pin.pt;
	return 0;
}

static int nvidia_try_unpin(struct nvidia_pin *p)
{
	if (!p->table)
		return 0;
	if (p->pin.pt.flags & PHXFS_PT_PERSISTENT)
		return put_pages_persistent(p->pin.vaddr, p->table, 0);
	return put_pages(0, 0, p->pin.vaddr, p->table);
}

static void nvidia_put_pages(u64 vaddr, struct phxfs_page_table *pt)
{
	struct nvidia_pin *p = pt_to_nvidia(pt);
	int err, tries = 0;

	while ((err = nvidia_try_unpin(p)) && tries++ < PHXFS_UNPIN_RETRIES)
		msleep(PHXFS_UNPIN_RETRY_MS);
	if (err)
		phxfs_pin_orphan(&p->pin, "nvidia", err);
	else
		nvidia_pin_free(p);
}

static u32 nvidia_get_n_pages(struct phxfs_page_table *pt)
{
	return pt_to_nvidia(pt)->pin.n;
}

static int nvidia_get_phys_addrs(struct phxfs_page_table *pt, u64 *addrs, u32 n)
{
	return phxfs_pin_addrs(&pt_to_nvidia(pt)->pin, addrs, n);
}

static void nvidia_free_page_table(struct phxfs_page_table *pt)
{
	nvidia_pin_free(pt_to_nvidia(pt));
}

static struct phxfs_p2p_ops nvidia_ops;

static int nvidia_init(void)
{
	int err = phxfs_symbols_get(nvidia_symbols, ARRAY_SIZE(nvidia_symbols), "nvidia.ko");

	if (!err && persistent && get_pages_persistent && put_pages_persistent)
		nvidia_ops.flags |= PHXFS_P2P_PERSISTENT;
	return err;
}

static void nvidia_exit(void)
{
	phxfs_symbols_put(nvidia_symbols, ARRAY_SIZE(nvidia_symbols));
}

static const struct pci_device_id nvidia_ids[] = {
	{ PCI_DEVICE(0x10de, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_VGA << 8, .class_mask = ~0 },
	{ PCI_DEVICE(0x10de, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_3D << 8, .class_mask = ~0 },
	{}
};

/* The flags are nvidia_init()'s: drivers before 535 know no persistent pins. */
static struct phxfs_p2p_ops nvidia_ops = {
	.abi		= PHXFS_P2P_ABI,
	.name		= "nvidia",
	.owner		= THIS_MODULE,
	.ids		= nvidia_ids,
	.driver		= "nvidia",
	.page_size	= NVIDIA_PAGE_SIZE,
	.init		= nvidia_init,
	.exit		= nvidia_exit,
	.get_pages	= nvidia_get_pages,
	.put_pages	= nvidia_put_pages,
	.get_n_pages	= nvidia_get_n_pages,
	.get_phys_addrs	= nvidia_get_phys_addrs,
	.free_page_table = nvidia_free_page_table,
};

static int __init nvidia_backend_init(void)
{
	return phxfs_p2p_register_backend(&nvidia_ops);
}

static void __exit nvidia_backend_exit(void)
{
	phxfs_p2p_unregister_backend(&nvidia_ops);
}

module_init(nvidia_backend_init);
module_exit(nvidia_backend_exit);

MODULE_DESCRIPTION("phxfs backend for NVIDIA GPUs");
MODULE_LICENSE("GPL");
