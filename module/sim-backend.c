// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxfs-sim.ko: the backend for the software accelerator, phxsim.ko.
 *
 * phxsim frees its page table when a pin is reclaimed, possibly before its get_pages has
 * returned to us. So the addresses are copied at once, under a lock that the callback takes
 * too, and nothing looks at phxsim's table after that. It may call back in atomic context:
 * unlike phxfs-pin.h's, the lock is one that spins.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "phxfs-pin.h"
#include "phxfs-symbols.h"

#define SIM_PAGE_SIZE		65536
#define SIM_P2P_VERSION		0x00010000u	/* same major, at least this minor */

/* What phxsim exports; its own header is not needed to build this. */
struct phxsim_page_table {
	u32 version;
	u32 page_size;
	u32 entries;
	u32 flags;
	u64 *addr;
};

int phxsim_p2p_get_pages(u64 va, u64 len, struct phxsim_page_table **pt,
			 void (*free_cb)(void *data), void *data);
int phxsim_p2p_put_pages(u64 va, struct phxsim_page_table *pt);
int phxsim_p2p_get_pages_persistent(u64 va, u64 len, struct phxsim_page_table **pt, u32 flags);
int phxsim_p2p_put_pages_persistent(u64 va, struct phxsim_page_table *pt);

static typeof(&phxsim_p2p_get_pages) get_pages;
static typeof(&phxsim_p2p_put_pages) put_pages;
static typeof(&phxsim_p2p_get_pages_persistent) get_pages_persistent;
static typeof(&phxsim_p2p_put_pages_persistent) put_pages_persistent;

static const struct phxfs_symbol sim_symbols[] = {
	PHXFS_SYMBOL(phxsim_p2p_get_pages, get_pages),
	PHXFS_SYMBOL(phxsim_p2p_put_pages, put_pages),
	PHXFS_SYMBOL(phxsim_p2p_get_pages_persistent, get_pages_persistent),
	PHXFS_SYMBOL(phxsim_p2p_put_pages_persistent, put_pages_persistent),
};

static bool persistent = true;
module_param(persistent, bool, 0644);
MODULE_PARM_DESC(persistent, "use pins that cannot be taken back where the driver grants them "
			     "(default); N: only revocable ones");

struct sim_pin {
	struct phxfs_page_table pt;
	spinlock_t lock;
	bool reclaimed;			/* protected by: lock; table is dead */
	bool orphan;			/* protected by: lock; given up, but phxsim knows it */
	struct phxsim_page_table *table;
	void (*free_cb)(void *data);
	void *data;
	int error;			/* what is wrong with phxsim's table */
	u32 n;
	u64 addr[];
};

static struct sim_pin *to_pin(struct phxfs_page_table *pt)
{
	return container_of(pt, struct sim_pin, pt);
}

static void sim_free_cb(void *data)
{
	struct sim_pin *pin = data;
	unsigned long flags;
	bool orphan;

	/* a table that is being copied is waited for */
	spin_lock_irqsave(&pin->lock, flags);
	pin->reclaimed = true;
	orphan = pin->orphan;
	spin_unlock_irqrestore(&pin->lock, flags);
	if (!orphan)
		pin->free_cb(pin->data);
}

/*
 * Under pin->lock, and only if the table is still there. A table that cannot be used is
 * reported when it is read, since unpinning is not get_pages' to do.
 */
static int sim_copy_table(struct sim_pin *pin, u64 max)
{
	const struct phxsim_page_table *t = pin->table;

	if (!t) {
		pr_err("phxsim reports success and no page table\n");
		return -EIO;
	}
	if (t->version >> 16 != SIM_P2P_VERSION >> 16 ||
	    (t->version & 0xffff) < (SIM_P2P_VERSION & 0xffff)) {
		pr_err("page table of version %#x, this module knows %#x\n", t->version,
		       SIM_P2P_VERSION);
		return -EOPNOTSUPP;
	}
	if (t->entries > max) {
		pr_err("page table of %u pages, for %llu\n", t->entries, max);
		return -EIO;
	}
	pin->pt.page_size = t->page_size;
	pin->n = t->entries;
	memcpy(pin->addr, t->addr, t->entries * sizeof(u64));
	return 0;
}

static int sim_try_unpin(u64 vaddr, struct sim_pin *pin)
{
	if (!pin->table)
		return 0;
	if (pin->pt.flags & PHXFS_PT_PERSISTENT)
		return put_pages_persistent(vaddr, pin->table);
	return put_pages(vaddr, pin->table);
}

/*
 * A driver that will not let go of a pin may still call back for it: then the pin, and this
 * module, stay for good.
 */
static void sim_unpin(u64 vaddr, struct sim_pin *pin)
{
	int err, tries = 0;

	while ((err = sim_try_unpin(vaddr, pin)) && tries++ < PHXFS_UNPIN_RETRIES)
		msleep(PHXFS_UNPIN_RETRY_MS);
	if (!err || pin->pt.flags & PHXFS_PT_PERSISTENT) {
		kvfree(pin);
	} else {
		spin_lock_irq(&pin->lock);
		pin->orphan = true;
		spin_unlock_irq(&pin->lock);
		__module_get(THIS_MODULE);
	}
	if (err)
		pr_err("unpinning %#llx failed: %d; phxsim keeps it pinned\n", vaddr, err);
}

static int sim_get_pages(u64 vaddr, u64 length, struct phxfs_page_table **pt,
			 void (*free_cb)(void *), void *data)
{
	u64 max = DIV_ROUND_UP_ULL(length, SIM_PAGE_SIZE);
	struct sim_pin *pin;
	int err = -EOPNOTSUPP;

	pin = kvzalloc(struct_size(pin, addr, max), GFP_KERNEL);
	if (!pin)
		return -ENOMEM;
	spin_lock_init(&pin->lock);
	pin->free_cb = free_cb;
	pin->data = data;

	if (READ_ONCE(persistent)) {
		err = get_pages_persistent(vaddr, length, &pin->table, 0);
		if (!err)
			pin->pt.flags |= PHXFS_PT_PERSISTENT;
	}
	if (err == -EOPNOTSUPP)
		err = get_pages(vaddr, length, &pin->table, sim_free_cb, pin);
	if (err) {
		kvfree(pin);
		return err;
	}

	spin_lock_irq(&pin->lock);
	pin->n = max;
	if (pin->reclaimed)
		pin->pt.flags |= PHXFS_PT_RECLAIMED;
	else
		pin->error = sim_copy_table(pin, max);
	spin_unlock_irq(&pin->lock);
	*pt = &pin->pt;
	return 0;
}

static void sim_put_pages(u64 vaddr, struct phxfs_page_table *pt)
{
	sim_unpin(vaddr, to_pin(pt));
}

static u32 sim_get_n_pages(struct phxfs_page_table *pt)
{
	return to_pin(pt)->n;
}

static int sim_get_phys_addrs(struct phxfs_page_table *pt, u64 *addrs, u32 n)
{
	struct sim_pin *pin = to_pin(pt);

	if (pin->error)
		return pin->error;
	return n == pin->n ? phxfs_copy_addrs(addrs, pin->addr, n) : -EINVAL;
}

static void sim_free_page_table(struct phxfs_page_table *pt)
{
	kvfree(to_pin(pt));
}

static struct phxfs_p2p_ops sim_ops;

/* Holding its symbols keeps phxsim loaded; no link to it is needed to build. */
static int sim_init(void)
{
	int err = phxfs_symbols_get(sim_symbols, ARRAY_SIZE(sim_symbols), "phxsim.ko");

	if (!err && persistent)
		sim_ops.flags |= PHXFS_P2P_PERSISTENT;
	return err;
}

static void sim_exit(void)
{
	phxfs_symbols_put(sim_symbols, ARRAY_SIZE(sim_symbols));
}

static const struct pci_device_id sim_ids[] = {
	{ PCI_DEVICE(0x1af4, 0x1110) },	/* QEMU's ivshmem */
	{}
};

/* The flags are sim_init()'s. */
static struct phxfs_p2p_ops sim_ops = {
	.abi		= PHXFS_P2P_ABI,
	.name		= "sim",
	.owner		= THIS_MODULE,
	.ids		= sim_ids,
	.driver		= "phxsim",
	.page_size	= SIM_PAGE_SIZE,
	.init		= sim_init,
	.exit		= sim_exit,
	.get_pages	= sim_get_pages,
	.put_pages	= sim_put_pages,
	.get_n_pages	= sim_get_n_pages,
	.get_phys_addrs	= sim_get_phys_addrs,
	.free_page_table = sim_free_page_table,
};

static int __init sim_backend_init(void)
{
	return phxfs_p2p_register_backend(&sim_ops);
}

static void __exit sim_backend_exit(void)
{
	phxfs_p2p_unregister_backend(&sim_ops);
}

module_init(sim_backend_init);
module_exit(sim_backend_exit);

MODULE_DESCRIPTION("phxfs backend for the software accelerator");
MODULE_LICENSE("GPL");
