// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxfs-metax.ko: the backend for MetaX's driver and its metax_p2p_*() functions.
 *
 * Memory is acquired by address, which gives a handle, and then pinned, which gives a scatter
 * list. Addresses in it plus an offset are the CPU's. The driver can take pins back: its
 * callback blocks it until all transfers are over, and says -ETIMEDOUT if that takes too
 * long. After the callback neither handle nor list is touched: whose they are then is not
 * documented, and to free them twice is worse than to lose them. A callback that meets a put
 * under way lets it finish, for a moment: longer, should both want the same lock, is no help.
 * Nor is it documented whether a put waits for a callback: so it is taken not to.
 *
 * Whether its functions are found when this loads or have to be linked differs by release:
 * either way works, see backends.mk.
 */
#include <linux/errno.h>
#include <linux/kref.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "phxfs-callback.h"
#include "phxfs-pin.h"
#include "phxfs-sg.h"
#include "phxfs-symbols.h"

#define METAX_PAGE_SIZE	65536
#define PUT_PATIENCE_MS	100

struct metax_pin {
	struct phxfs_pin pin;
	struct phxfs_callback callback;
	struct kref ref;		/* the core's, and a callback's under way */
	bool undrained;			/* transfers go on after the callback */
	void *handle;
	struct sg_table *sgt;
};

/* The driver's. */
int metax_p2p_acquire_mem(u64 addr, size_t size, void **handle, int (*cb)(void *arg), void *arg);
int metax_p2p_get_mem(void *handle, struct sg_table **sgt);
int metax_p2p_put_mem(void *handle, struct sg_table *sgt);
u64 metax_p2p_get_bus_offset(void *handle);
u32 metax_p2p_get_page_size(void *handle);
void metax_p2p_release_mem(void *handle);

static typeof(&metax_p2p_acquire_mem) acquire_mem;
static typeof(&metax_p2p_get_mem) get_mem;
static typeof(&metax_p2p_put_mem) put_mem;
static typeof(&metax_p2p_get_bus_offset) get_bus_offset;
static typeof(&metax_p2p_get_page_size) get_page_size;
static typeof(&metax_p2p_release_mem) release_mem;

static const struct phxfs_symbol metax_symbols[] = {
	PHXFS_SYMBOL(metax_p2p_acquire_mem, acquire_mem),
	PHXFS_SYMBOL(metax_p2p_get_mem, get_mem),
	PHXFS_SYMBOL(metax_p2p_put_mem, put_mem),
	PHXFS_SYMBOL(metax_p2p_get_bus_offset, get_bus_offset),
	PHXFS_SYMBOL(metax_p2p_get_page_size, get_page_size),
	PHXFS_SYMBOL(metax_p2p_release_mem, release_mem),
};

static struct metax_pin *to_metax(struct phxfs_pin *pin)
{
	return container_of(pin, struct metax_pin, pin);
}

static struct metax_pin *pt_to_metax(struct phxfs_page_table *pt)
{
	return to_metax(container_of(pt, struct phxfs_pin, pt));
}

static void metax_pin_release(struct kref *ref)
{
	struct metax_pin *p = container_of(ref, struct metax_pin, ref);

	phxfs_callback_end(&p->callback);
	phxfs_pin_clear(&p->pin);
	kfree(p);
}

static void metax_pin_put(struct metax_pin *p)
{
	kref_put(&p->ref, metax_pin_release);
}

static int metax_measure(struct phxfs_pin *pin)
{
	struct metax_pin *p = to_metax(pin);
	u64 size = get_page_size(p->handle);

	if (!p->sgt || !p->sgt->sgl || !p->sgt->nents) {
		pr_err_ratelimited("the driver reports success and no pages\n");
		return -EIO;
	}
	if (!is_power_of_2(size) || size < PAGE_SIZE) {
		pr_err_ratelimited("the driver reports pages of %llu bytes\n", size);
		return -EOPNOTSUPP;
	}
	return phxfs_sg_measure(pin, p->sgt, get_bus_offset(p->handle), size);
}

static int metax_copy(struct phxfs_pin *pin)
{
	struct metax_pin *p = to_metax(pin);

	return phxfs_sg_copy(pin, p->sgt, get_bus_offset(p->handle));
}

static const struct phxfs_table_ops metax_table_ops = {
	.measure	= metax_measure,
	.copy		= metax_copy,
};

static int metax_free_cb(void *arg)
{
	struct phxfs_callback *callback = phxfs_callback_enter(arg, PUT_PATIENCE_MS);
	struct metax_pin *p;
	int ret;

	if (!callback)
		return 0;
	p = container_of(callback, struct metax_pin, callback);
	kref_get(&p->ref);
	phxfs_pin_reclaimed(&p->pin);
	ret = READ_ONCE(p->undrained) ? -ETIMEDOUT : 0;
	phxfs_callback_leave(callback);
	metax_pin_put(p);
	return ret;
}

static bool is_reclaimed(struct metax_pin *p)
{
	bool reclaimed;

	mutex_lock(&p->pin.lock);
	reclaimed = p->pin.reclaimed;
	mutex_unlock(&p->pin.lock);
	return reclaimed;
}

static int metax_pin(struct metax_pin *p)
{
	int err = acquire_mem(p->pin.vaddr, p->pin.length, &p->handle, metax_free_cb,
			      phxfs_callback_data(&p->callback));

	if (err)
		p->handle = NULL;
	if (!p->handle)
		return err ?: -EINVAL;
	/* taken back already: that is reported when the pin is read */
	return is_reclaimed(p) ? 0 : get_mem(p->handle, &p->sgt);
}

/* A pin that was acquired, and could not be pinned. */
static void metax_give_up(struct metax_pin *p)
{
	phxfs_callback_close(&p->callback);
	if (p->handle && !is_reclaimed(p))
		release_mem(p->handle);
	metax_pin_put(p);
}

static int metax_get_pages(u64 vaddr, u64 length, struct phxfs_page_table **pt,
			   void (*free_cb)(void *), void *data)
{
	struct metax_pin *p = kzalloc(sizeof(*p), GFP_KERNEL);
	int err;

	if (!p)
		return -ENOMEM;
	err = phxfs_callback_open(&p->callback);
	if (err) {
		kfree(p);
		return err;
	}
	kref_init(&p->ref);
	phxfs_pin_init(&p->pin, vaddr, length, METAX_PAGE_SIZE, free_cb, data);
	err = metax_pin(p);
	if (err) {
		metax_give_up(p);
		return err;
	}
	phxfs_pin_read(&p->pin, &metax_table_ops);
	*pt = &p->pin.pt;
	return 0;
}

static int metax_unpin(struct metax_pin *p)
{
	int err, tries = 0;

	while ((err = put_mem(p->handle, p->sgt)) && tries++ < PHXFS_UNPIN_RETRIES)
		msleep(PHXFS_UNPIN_RETRY_MS);
	if (!err)
		release_mem(p->handle);
	return err;
}

static void metax_put_pages(u64 vaddr, struct phxfs_page_table *pt)
{
	struct metax_pin *p = pt_to_metax(pt);
	int err;

	phxfs_callback_close(&p->callback);
	err = is_reclaimed(p) ? 0 : metax_unpin(p);
	if (err)
		phxfs_pin_orphan(&p->pin, "metax", err);
	metax_pin_put(p);
}

static u32 metax_get_n_pages(struct phxfs_page_table *pt)
{
	return pt_to_metax(pt)->pin.n;
}

static int metax_get_phys_addrs(struct phxfs_page_table *pt, u64 *addrs, u32 n)
{
	return phxfs_pin_addrs(&pt_to_metax(pt)->pin, addrs, n);
}

static void metax_free_page_table(struct phxfs_page_table *pt)
{
	struct metax_pin *p = pt_to_metax(pt);

	WRITE_ONCE(p->undrained, pt->flags & PHXFS_PT_UNDRAINED);
	metax_pin_put(p);
}

static int metax_init(void)
{
	return phxfs_symbols_get(metax_symbols, ARRAY_SIZE(metax_symbols), "metax.ko");
}

static void metax_exit(void)
{
	phxfs_symbols_put(metax_symbols, ARRAY_SIZE(metax_symbols));
}

static const struct pci_device_id metax_ids[] = {
	{ PCI_DEVICE(0x9999, PCI_ANY_ID), .class = PCI_CLASS_DISPLAY_OTHER << 8,
	  .class_mask = ~0 },
	{}
};

static const struct phxfs_p2p_ops metax_ops = {
	.abi		= PHXFS_P2P_ABI,
	.name		= "metax",
	.owner		= THIS_MODULE,
	.ids		= metax_ids,
	.page_size	= METAX_PAGE_SIZE,
	.init		= metax_init,
	.exit		= metax_exit,
	.get_pages	= metax_get_pages,
	.put_pages	= metax_put_pages,
	.get_n_pages	= metax_get_n_pages,
	.get_phys_addrs	= metax_get_phys_addrs,
	.free_page_table = metax_free_page_table,
};

static int __init metax_backend_init(void)
{
	return phxfs_p2p_register_backend(&metax_ops);
}

static void __exit metax_backend_exit(void)
{
	phxfs_p2p_unregister_backend(&metax_ops);
}

module_init(metax_backend_init);
module_exit(metax_backend_exit);

MODULE_DESCRIPTION("phxfs backend for MetaX GPUs");
MODULE_LICENSE("GPL");
