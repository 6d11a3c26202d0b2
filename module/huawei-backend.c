// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxfs-huawei.ko: the backend for Huawei's Ascend driver and its hal_kernel_p2p_*()
 * functions.
 *
 * The driver can take pins back. Its callback comes in process context, and must neither put
 * the pin nor wait for a put. But the table stays ours after it, and has to be put exactly
 * once then: a worker does that, when the callback is over. Newer drivers hold no lock around
 * the callback: their put does not wait for it. The page size, 4 KiB, 2 MiB or 1 GiB, is the
 * allocation's.
 */
#include <linux/errno.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/workqueue.h>

#include "phxfs-callback.h"
#include "phxfs-pin.h"
#include "phxfs-symbols.h"

#define HUAWEI_TABLE_VERSION	1u
#define PCI_VENDOR_HUAWEI	0x19e5

struct huawei_page {
	u64 pa;
	u64 reserved[4];
};

struct huawei_table {
	u32 version;
	u64 page_size;
	struct huawei_page *pages;
	u64 page_num;
	u64 reserved[4];
};

struct huawei_pin {
	struct phxfs_pin pin;
	struct phxfs_callback callback;
	struct huawei_table *table;
	struct work_struct put_work;
};

/* The driver's. */
int hal_kernel_p2p_get_pages(u64 va, u64 len, void (*free_cb)(void *data), void *data,
			     struct huawei_table **table);
int hal_kernel_p2p_put_pages(struct huawei_table *table);

static typeof(&hal_kernel_p2p_get_pages) get_pages;
static typeof(&hal_kernel_p2p_put_pages) put_pages;
static struct workqueue_struct *put_wq;

static const struct phxfs_symbol huawei_symbols[] = {
	PHXFS_SYMBOL(hal_kernel_p2p_get_pages, get_pages),
	PHXFS_SYMBOL(hal_kernel_p2p_put_pages, put_pages),
};

static struct huawei_pin *to_huawei(struct phxfs_pin *pin)
{
	return container_of(pin, struct huawei_pin, pin);
}

static struct huawei_pin *pt_to_huawei(struct phxfs_page_table *pt)
{
	return to_huawei(container_of(pt, struct phxfs_pin, pt));
}

static void huawei_pin_free(struct huawei_pin *p)
{
	phxfs_callback_end(&p->callback);
	phxfs_pin_clear(&p->pin);
	kfree(p);
}

static int huawei_measure(struct phxfs_pin *pin)
{
	const struct huawei_table *t = to_huawei(pin)->table;

	if (!t) {
		pr_err_ratelimited("the driver reports success and no page table\n");
		return -EIO;
	}
	if (t->version != HUAWEI_TABLE_VERSION) {
		pr_err_ratelimited("page table of version %u; this module knows %u\n", t->version,
				   HUAWEI_TABLE_VERSION);
		return -EOPNOTSUPP;
	}
	if (!t->pages || !t->page_num || t->page_num > U32_MAX)
		return -EIO;
	pin->pt.page_size = t->page_size;
	pin->n = t->page_num;
	return 0;
}

static int huawei_copy(struct phxfs_pin *pin)
{
	const struct huawei_table *t = to_huawei(pin)->table;
	u32 i;

	for (i = 0; i < pin->n; i++)
		pin->addr[i] = t->pages[i].pa;
	return 0;
}

static const struct phxfs_table_ops huawei_table_ops = {
	.measure	= huawei_measure,
	.copy		= huawei_copy,
};

static void huawei_free_cb(void *data)
{
	struct phxfs_callback *callback = phxfs_callback_enter(data, 0);

	if (!callback)
		return;
	phxfs_pin_reclaimed(&container_of(callback, struct huawei_pin, callback)->pin);
	phxfs_callback_leave(callback);
}

/* The one put that every table gets, with the pin. */
static void huawei_put(struct huawei_pin *p)
{
	int err = 0, tries = 0;

	phxfs_callback_close(&p->callback);
	while (p->table && (err = put_pages(p->table)) && tries++ < PHXFS_UNPIN_RETRIES)
		msleep(PHXFS_UNPIN_RETRY_MS);
	if (err)
		phxfs_pin_orphan(&p->pin, "huawei", err);
	huawei_pin_free(p);
}

static void put_work_fn(struct work_struct *work)
{
	huawei_put(container_of(work, struct huawei_pin, put_work));
}

static int huawei_get_pages(u64 vaddr, u64 length, struct phxfs_page_table **pt,
			    void (*free_cb)(void *), void *data)
{
	struct huawei_pin *p = kzalloc(sizeof(*p), GFP_KERNEL);
	int err;

	if (!p)
		return -ENOMEM;
	phxfs_pin_init(&p->pin, vaddr, length, PAGE_SIZE, free_cb, data);
	INIT_WORK(&p->put_work, put_work_fn);
	err = phxfs_callback_open(&p->callback);
	if (err) {
		kfree(p);
		return err;
	}
	err = get_pages(vaddr, length, huawei_free_cb, phxfs_callback_data(&p->callback),
			&p->table);
	if (err) {
		phxfs_callback_close(&p->callback);
		huawei_pin_free(p);
		return err;
	}
	phxfs_pin_read(&p->pin, &huawei_table_ops);
	*pt = &p->pin.pt;
	return 0;
}

static void huawei_put_pages(u64 vaddr, struct phxfs_page_table *pt)
{
	huawei_put(pt_to_huawei(pt));
}

static u32 huawei_get_n_pages(struct phxfs_page_table *pt)
{
	return pt_to_huawei(pt)->pin.n;
}

static int huawei_get_phys_addrs(struct phxfs_page_table *pt, u64 *addrs, u32 n)
{
	return phxfs_pin_addrs(&pt_to_huawei(pt)->pin, addrs, n);
}

/* In the callback, perhaps: the put has to wait until it is over. */
static void huawei_free_page_table(struct phxfs_page_table *pt)
{
	queue_work(put_wq, &pt_to_huawei(pt)->put_work);
}

static int huawei_init(void)
{
	int err;

	put_wq = alloc_workqueue("phxfs-huawei", WQ_UNBOUND, 0);
	if (!put_wq)
		return -ENOMEM;
	err = phxfs_symbols_get(huawei_symbols, ARRAY_SIZE(huawei_symbols), "Huawei's driver");
	if (err)
		destroy_workqueue(put_wq);
	return err;
}

/* Finishes the puts that are left. */
static void huawei_exit(void)
{
	destroy_workqueue(put_wq);
	phxfs_symbols_put(huawei_symbols, ARRAY_SIZE(huawei_symbols));
}

static const struct pci_device_id huawei_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_HUAWEI, 0xd100) },	/* Ascend 310 */
	{ PCI_DEVICE(PCI_VENDOR_HUAWEI, 0xd105) },
	{ PCI_DEVICE(PCI_VENDOR_HUAWEI, 0xd500) },	/* 310P */
	{ PCI_DEVICE(PCI_VENDOR_HUAWEI, 0xd501) },
	{ PCI_DEVICE(PCI_VENDOR_HUAWEI, 0xd801) },	/* 910 */
	{ PCI_DEVICE(PCI_VENDOR_HUAWEI, 0xd802) },	/* 910B */
	{ PCI_DEVICE(PCI_VENDOR_HUAWEI, 0xd803) },	/* A2, A3 */
	{ PCI_DEVICE(PCI_VENDOR_HUAWEI, 0xd804) },
	{ PCI_DEVICE(PCI_VENDOR_HUAWEI, 0xd806) },	/* 950 */
	{ PCI_DEVICE(PCI_VENDOR_HUAWEI, 0xd807) },	/* 960 */
	{ PCI_DEVICE(PCI_VENDOR_HUAWEI, 0xd808) },
	{}
};

static const struct phxfs_p2p_ops huawei_ops = {
	.abi		= PHXFS_P2P_ABI,
	.name		= "huawei",
	.owner		= THIS_MODULE,
	.ids		= huawei_ids,
	.page_size	= PAGE_SIZE,
	.init		= huawei_init,
	.exit		= huawei_exit,
	.get_pages	= huawei_get_pages,
	.put_pages	= huawei_put_pages,
	.get_n_pages	= huawei_get_n_pages,
	.get_phys_addrs	= huawei_get_phys_addrs,
	.free_page_table = huawei_free_page_table,
};

static int __init huawei_backend_init(void)
{
	return phxfs_p2p_register_backend(&huawei_ops);
}

static void __exit huawei_backend_exit(void)
{
	phxfs_p2p_unregister_backend(&huawei_ops);
}

module_init(huawei_backend_init);
module_exit(huawei_backend_exit);

MODULE_DESCRIPTION("phxfs backend for Huawei's Ascend NPUs");
MODULE_LICENSE("GPL");
