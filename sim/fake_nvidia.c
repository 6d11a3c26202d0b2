// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxsim-nvidia: NVIDIA's nvidia_p2p_*() functions over phxsim.
 *
 * version= is the table's; persistent=N refuses persistent pins as MIG does. The table is
 * freed when the callback returns, and a put that comes later does nothing.
 * nvidia_p2p_free_page_table() is in phxsim-nvidia-rest: without that module a driver that
 * lacks one symbol is loaded.
 */
#include "fake.h"

#define VERSION_2	0x00020000u

static uint version = VERSION_2;
module_param(version, uint, 0644);
static uint flags;
module_param(flags, uint, 0644);
static bool persistent = true;
module_param(persistent, bool, 0644);
/* tables handed out and not dead yet */
static atomic_t tables = ATOMIC_INIT(0);
module_param_named(tables, tables.counter, int, 0444);

struct page_entry {
	u64 physical_address;
	u32 registers[6];
};

/* As older drivers lay it out, and with the field that version 2 adds. */
struct table {
	u32 version;
	u32 page_size;
	struct page_entry **pages;
	u32 entries;
	u8 *gpu_uuid;
	u32 flags;
};

struct nv_pin {
	struct fake_pin pin;
	struct table *table;
	void (*free_cb)(void *data);
	void *data;
};

int nvidia_p2p_get_pages(u64 token, u32 va_space, u64 va, u64 len, struct table **out,
			 void (*free_cb)(void *data), void *data);
int nvidia_p2p_put_pages(u64 token, u32 va_space, u64 va, struct table *t);
int nvidia_p2p_get_pages_persistent(u64 va, u64 len, struct table **out, u32 f);
int nvidia_p2p_put_pages_persistent(u64 va, struct table *t, u32 f);

static struct nv_pin *to_nv(struct fake_pin *pin)
{
	return container_of(pin, struct nv_pin, pin);
}

static void table_free(struct table *t)
{
	u32 i;

	if (!t)
		return;
	for (i = 0; i < t->entries; i++)
		kfree(t->pages[i]);
	kvfree(t->pages);
	/* who still looks at it finds nonsense */
	memset(t, 0x6b, offsetof(struct table, flags)); /* old ones end there */
	kfree(t);
	atomic_dec(&tables);
}

static u32 size_index(u64 bytes)
{
	return bytes == 4096 ? 0 : bytes == 65536 ? 1 : bytes == 131072 ? 2 : 7;
}

static struct table *table_make(const struct fake_pin *pin)
{
	static u8 uuid[16];
	struct table *t;
	u32 i;

	/* a driver whose table is older has nothing behind gpu_uuid */
	t = kzalloc(version < VERSION_2 ? offsetof(struct table, flags) : sizeof(*t), GFP_KERNEL);
	if (!t)
		return NULL;
	atomic_inc(&tables);
	t->version = version;
	t->page_size = size_index(pin->page_size);
	t->gpu_uuid = uuid;
	t->pages = kvcalloc(pin->n, sizeof(*t->pages), GFP_KERNEL);
	if (!t->pages)
		goto err_free;
	if (version >= VERSION_2)
		t->flags = flags;
	for (; t->entries < pin->n; t->entries++) {
		i = t->entries;
		if (!pin->addr[i])
			continue;
		t->pages[i] = kzalloc(sizeof(**t->pages), GFP_KERNEL);
		if (!t->pages[i])
			goto err_free;
		t->pages[i]->physical_address = pin->addr[i];
	}
	return t;

err_free:
	table_free(t);
	return NULL;
}

/* Under phxsim's lock, as under the real driver's. */
static void nv_tell(struct fake_pin *pin)
{
	struct nv_pin *p = to_nv(pin);

	p->free_cb(p->data);
	fake_forget(pin);
}

static void nv_free(struct fake_pin *pin)
{
	struct nv_pin *p = to_nv(pin);

	table_free(p->table);
	kfree(p);
}

static int get_pages(u64 va, u64 len, struct table **out, void (*free_cb)(void *data), void *data)
{
	struct nv_pin *p;
	int ret;

	if (!len || (va | len) & 65535)
		return -EINVAL;
	p = kzalloc(sizeof(*p), GFP_KERNEL);
	if (!p)
		return -ENOMEM;
	p->free_cb = free_cb;
	p->data = data;
	p->pin.tell = free_cb ? nv_tell : NULL;
	p->pin.free = nv_free;
	ret = fake_pin(&p->pin, va, len);
	if (ret < 0)
		return ret;
	if (ret) {
		p->table = table_make(&p->pin);
		ret = p->table ? 0 : -ENOMEM;
	}
	if (p->table)
		*out = p->table;
	if (ret) {
		fake_unpin(&p->pin);
		fake_forget(&p->pin);
	}
	fake_put(&p->pin);
	return ret;
}

static bool is_table(struct fake_pin *pin, const void *table)
{
	return to_nv(pin)->table == table;
}

static int put_pages(u64 va, struct table *t, bool may_reclaim)
{
	struct fake_pin *pin = fake_find(is_table, t);
	int err;

	/* taken back before: nothing to do */
	if (!pin)
		return 0;
	if (WARN_ON(pin->in_callback == current) || pin->va != va || !pin->tell == may_reclaim) {
		fake_put(pin);
		return -EINVAL;
	}
	err = fake_unpin(pin);
	if (!err)
		fake_forget(pin);
	fake_put(pin);
	return err;
}

int nvidia_p2p_get_pages(u64 token, u32 va_space, u64 va, u64 len, struct table **out,
			 void (*free_cb)(void *data), void *data)
{
	return token || va_space || !free_cb ? -EINVAL : get_pages(va, len, out, free_cb, data);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(u64 token, u32 va_space, u64 va, struct table *t)
{
	return put_pages(va, t, true);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages);

int nvidia_p2p_get_pages_persistent(u64 va, u64 len, struct table **out, u32 f)
{
	if (!persistent)
		return -524;	/* ENOTSUPP */
	return f > 1 ? -EINVAL : get_pages(va, len, out, NULL, NULL);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages_persistent);

int nvidia_p2p_put_pages_persistent(u64 va, struct table *t, u32 f)
{
	return f ? -EINVAL : put_pages(va, t, false);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages_persistent);

static int nv_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	return fake_probe(pdev, 0x10de, 0x2335, PCI_CLASS_DISPLAY_3D << 8);
}

static struct pci_driver nv_driver = {
	.name		= "nvidia",
	.id_table	= fake_no_ids,
	.probe		= nv_probe,
	.remove		= fake_remove,
};
module_pci_driver(nv_driver);

MODULE_DESCRIPTION("NVIDIA's driver for other modules, over the software accelerator");
MODULE_LICENSE("GPL");
