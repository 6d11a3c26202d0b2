// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxsim-huawei: Huawei's hal_kernel_p2p_*() functions over phxsim.
 *
 * Pages are 2 MiB where the memory lies so, else 4 KiB. The table stays the client's after
 * its callback and has to be put once then: "tables" counts those that wait for it. A put in
 * the callback, or a second one, is a WARNING. version= is the table's.
 */
#include "fake.h"

#define MIB_2	0x200000ull
#define KIB_4	4096ull

static uint version = 1;
module_param(version, uint, 0644);
static atomic_t tables = ATOMIC_INIT(0);
module_param_named(tables, tables.counter, int, 0444);

struct page_info {
	u64 pa;
	u64 reserved[4];
};

struct table {
	u32 version;
	u64 page_size;
	struct page_info *pages;
	u64 page_num;
	u64 reserved[4];
};

struct hw_pin {
	struct fake_pin pin;
	struct table table;
	void (*free_cb)(void *data);
	void *data;
};

int hal_kernel_p2p_get_pages(u64 va, u64 len, void (*free_cb)(void *data), void *data,
			     struct table **out);
int hal_kernel_p2p_put_pages(struct table *t);

static struct hw_pin *to_hw(struct fake_pin *pin)
{
	return container_of(pin, struct hw_pin, pin);
}

static void hw_tell(struct fake_pin *pin)
{
	struct hw_pin *p = to_hw(pin);

	p->free_cb(p->data);
}

static void hw_free(struct fake_pin *pin)
{
	struct hw_pin *p = to_hw(pin);

	kvfree(p->table.pages);
	memset(&p->table, 0x6b, sizeof(p->table));
	kfree(p);
	atomic_dec(&tables);
}

static bool lies_in_2mib(const struct fake_pin *pin)
{
	u32 i;

	if ((pin->va | pin->len) & (MIB_2 - 1) || pin->page_size != 65536)
		return false;
	for (i = 0; i < pin->n; i++)
		if (pin->addr[i] - i % 32 * 65536 != pin->addr[i - i % 32] ||
		    (i % 32 == 0 && pin->addr[i] & (MIB_2 - 1)))
			return false;
	return pin->n % 32 == 0;
}

static int fill(struct hw_pin *p)
{
	const struct fake_pin *pin = &p->pin;
	struct table *t = &p->table;
	u64 per, i;

	t->version = version;
	t->page_size = lies_in_2mib(pin) ? MIB_2 : KIB_4;
	/* a fault of phxsim's */
	if (pin->page_size != 65536)
		t->page_size = pin->page_size;
	t->page_num = t->page_size == MIB_2 ? pin->n / 32 :
		      t->page_size == KIB_4 ? (u64)pin->n * 16 : pin->n;
	t->pages = kvcalloc(t->page_num, sizeof(*t->pages), GFP_KERNEL);
	if (!t->pages)
		return -ENOMEM;
	per = t->page_size == KIB_4 ? 16 : 1;
	for (i = 0; i < t->page_num; i++) {
		u64 at = t->page_size == MIB_2 ? pin->addr[i * 32] : pin->addr[i / per];

		t->pages[i].pa = at ? at + i % per * KIB_4 : 0;
	}
	return 0;
}

int hal_kernel_p2p_get_pages(u64 va, u64 len, void (*free_cb)(void *data), void *data,
			     struct table **out)
{
	struct hw_pin *p;
	bool silent;
	int ret;

	if (!free_cb || !len || (va | len) & (KIB_4 - 1))
		return -EINVAL;
	p = kzalloc(sizeof(*p), GFP_KERNEL);
	if (!p)
		return -ENOMEM;
	atomic_inc(&tables);
	p->free_cb = free_cb;
	p->data = data;
	p->pin.tell = hw_tell;
	p->pin.free = hw_free;
	ret = fake_pin(&p->pin, va, len);
	if (ret < 0)
		return ret;
	silent = !ret && !p->pin.sim;
	ret = ret ? fill(p) : 0;
	if (ret) {
		fake_unpin(&p->pin);
		fake_forget(&p->pin);
	} else if (!silent) {
		*out = &p->table;
	}
	fake_put(&p->pin);
	return ret;
}
EXPORT_SYMBOL_GPL(hal_kernel_p2p_get_pages);

static bool is_table(struct fake_pin *pin, const void *table)
{
	return &to_hw(pin)->table == table;
}

int hal_kernel_p2p_put_pages(struct table *t)
{
	struct fake_pin *pin = fake_find(is_table, t);
	int err = 0;

	if (WARN_ON(!pin))
		return -EINVAL;
	if (WARN_ON(READ_ONCE(pin->in_callback) == current)) {
		fake_put(pin);
		return -EBUSY;
	}
	/* a callback under way is not waited for, as in newer drivers */
	if (!READ_ONCE(pin->reclaimed))
		err = fake_unpin(pin);
	if (!err)
		WARN_ON(!fake_forget(pin));
	fake_put(pin);
	return err;
}
EXPORT_SYMBOL_GPL(hal_kernel_p2p_put_pages);

static int hw_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	return fake_probe(pdev, 0x19e5, 0xd802, 0x120000);
}

static struct pci_driver hw_driver = {
	.name		= "devdrv_device_driver",
	.id_table	= fake_no_ids,
	.probe		= hw_probe,
	.remove		= fake_remove,
};
module_pci_driver(hw_driver);

MODULE_DESCRIPTION("Huawei's driver for other modules, over the software accelerator");
MODULE_LICENSE("GPL");
