// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxsim-metax: MetaX's metax_p2p_*() functions over phxsim, plain exports.
 *
 * offset= is what a DMA address differs from the CPU's by. The callback returns int, kept in
 * "last_reclaim". After it handle and list are the driver's: to use them is a WARNING. While
 * it is under way they may be put, which does not wait for it. The next "busy" puts fail.
 */
#include <linux/scatterlist.h>

#include "fake.h"

static ulong offset = 0x10000000ul;
module_param(offset, ulong, 0644);
static uint forced_size;	/* 0: what phxsim reports */
module_param_named(page_size, forced_size, uint, 0644);
static uint busy;
module_param(busy, uint, 0644);
static int last_reclaim = 1;
module_param(last_reclaim, int, 0644);
static atomic_t tables = ATOMIC_INIT(0);
module_param_named(tables, tables.counter, int, 0444);

struct mx_pin {
	struct fake_pin pin;
	struct sg_table *sgt;
	u64 offset;
	int (*cb)(void *arg);
	void *arg;
};

int metax_p2p_acquire_mem(u64 addr, size_t size, void **handle, int (*cb)(void *arg), void *arg);
int metax_p2p_get_mem(void *handle, struct sg_table **sgt);
int metax_p2p_put_mem(void *handle, struct sg_table *sgt);
u64 metax_p2p_get_bus_offset(void *handle);
u32 metax_p2p_get_page_size(void *handle);
void metax_p2p_release_mem(void *handle);

static struct mx_pin *to_mx(struct fake_pin *pin)
{
	return container_of(pin, struct mx_pin, pin);
}

static void sgt_free(struct mx_pin *p)
{
	if (p->sgt)
		sg_free_table(p->sgt);
	kfree(p->sgt);
	p->sgt = NULL;
}

static void mx_free(struct fake_pin *pin)
{
	struct mx_pin *p = to_mx(pin);

	sgt_free(p);
	kfree(p);
	atomic_dec(&tables);
}

static void mx_tell(struct fake_pin *pin)
{
	struct mx_pin *p = to_mx(pin);

	last_reclaim = p->cb(p->arg);
	fake_forget(pin);
}

int metax_p2p_acquire_mem(u64 addr, size_t size, void **handle, int (*cb)(void *arg), void *arg)
{
	struct mx_pin *p;
	int ret;

	if (!cb || !size || (addr | size) & (PAGE_SIZE - 1))
		return -EINVAL;
	p = kzalloc(sizeof(*p), GFP_KERNEL);
	if (!p)
		return -ENOMEM;
	atomic_inc(&tables);
	p->cb = cb;
	p->arg = arg;
	p->offset = offset;
	p->pin.tell = mx_tell;
	p->pin.free = mx_free;
	ret = fake_pin(&p->pin, addr, size);
	if (ret < 0)
		return ret;
	if (p->pin.sim)
		*handle = p;
	fake_put(&p->pin);
	return 0;
}
EXPORT_SYMBOL(metax_p2p_acquire_mem);

static bool is_pin(struct fake_pin *pin, const void *handle)
{
	return to_mx(pin) == handle;
}

/* The pin, with a reference; it has not been taken back. */
static struct mx_pin *find(void *handle)
{
	struct fake_pin *pin = fake_find(is_pin, handle);

	return WARN_ON(!pin) ? NULL : to_mx(pin);
}

static int fill(struct mx_pin *p, struct sg_table *sgt)
{
	struct scatterlist *sg;
	unsigned int i;

	if (sg_alloc_table(sgt, p->pin.n, GFP_KERNEL))
		return -ENOMEM;
	for_each_sg(sgt->sgl, sg, p->pin.n, i) {
		sg_dma_address(sg) = p->pin.addr[i] ? p->pin.addr[i] - p->offset : 0;
		sg_dma_len(sg) = 65536;
	}
	return 0;
}

int metax_p2p_get_mem(void *handle, struct sg_table **out)
{
	struct mx_pin *p = find(handle);
	struct sg_table *sgt;
	int err = -ENOMEM;

	if (!p)
		return -EINVAL;
	sgt = kzalloc(sizeof(*sgt), GFP_KERNEL);
	if (sgt)
		err = fill(p, sgt);
	if (err) {
		kfree(sgt);
	} else {
		p->sgt = sgt;
		*out = sgt;
	}
	fake_put(&p->pin);
	return err;
}
EXPORT_SYMBOL(metax_p2p_get_mem);

int metax_p2p_put_mem(void *handle, struct sg_table *sgt)
{
	struct mx_pin *p = find(handle);
	int err = 0;

	if (!p)
		return -EINVAL;
	if (WARN_ON(p->pin.in_callback == current) || (sgt && sgt != p->sgt)) {
		err = -EINVAL;
	} else if (busy) {
		busy--;
		err = -EBUSY;
	} else {
		sgt_free(p);
	}
	fake_put(&p->pin);
	return err;
}
EXPORT_SYMBOL(metax_p2p_put_mem);

u64 metax_p2p_get_bus_offset(void *handle)
{
	struct mx_pin *p = find(handle);
	u64 value = p ? p->offset : 0;

	if (p)
		fake_put(&p->pin);
	return value;
}
EXPORT_SYMBOL(metax_p2p_get_bus_offset);

u32 metax_p2p_get_page_size(void *handle)
{
	struct mx_pin *p = find(handle);
	u32 value = p ? p->pin.page_size : 0;

	if (p)
		fake_put(&p->pin);
	return forced_size ?: value;
}
EXPORT_SYMBOL(metax_p2p_get_page_size);

void metax_p2p_release_mem(void *handle)
{
	struct mx_pin *p = find(handle);

	if (!p)
		return;
	if (!READ_ONCE(p->pin.reclaimed))
		fake_unpin(&p->pin);
	fake_forget(&p->pin);
	fake_put(&p->pin);
}
EXPORT_SYMBOL(metax_p2p_release_mem);

static int mx_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	return fake_probe(pdev, 0x9999, 0x4001, PCI_CLASS_DISPLAY_OTHER << 8);
}

static struct pci_driver mx_driver = {
	.name		= "metax",
	.id_table	= fake_no_ids,
	.probe		= mx_probe,
	.remove		= fake_remove,
};
module_pci_driver(mx_driver);

MODULE_DESCRIPTION("MetaX's driver for other modules, over the software accelerator");
MODULE_LICENSE("GPL");
