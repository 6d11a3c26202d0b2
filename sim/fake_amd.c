// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxsim-amd: AMD's amdkfd_query_rdma_interface() over phxsim, a plain export as there.
 *
 * What is pinned stays until it is put; free_cb is kept and never called. Addresses are for
 * the device that the client names; iova=1 makes them an IOMMU's. silent=1: what cannot be
 * pinned is a success with the result untouched, as in some releases. old=1: the interface of
 * old releases, whose get_pages wants no device.
 */
#include <linux/pid.h>
#include <linux/scatterlist.h>

#include "fake.h"

static bool iova;
module_param(iova, bool, 0644);
static bool silent;
module_param(silent, bool, 0644);
static bool nothing;	/* the interface itself is refused */
module_param(nothing, bool, 0644);
static bool old;
module_param(old, bool, 0644);
static atomic_t tables = ATOMIC_INIT(0);
module_param_named(tables, tables.counter, int, 0444);

struct p2p_info {
	u64 va;
	u64 size;
	struct pid *pid;
	struct sg_table *pages;
	void *priv;
};

struct interface {
	int (*get_pages)(u64 addr, u64 len, struct pid *pid, struct device *dma_device,
			 struct p2p_info **info, void (*free_cb)(void *data), void *data);
	int (*put_pages)(struct p2p_info **info);
	int (*is_gpu_address)(u64 addr, struct pid *pid);
	int (*get_page_size)(u64 addr, u64 len, struct pid *pid, unsigned long *size);
};

struct amd_pin {
	struct fake_pin pin;
	struct p2p_info info;
	struct sg_table sgt;
};

int amdkfd_query_rdma_interface(const struct interface **out);

static struct amd_pin *to_amd(struct fake_pin *pin)
{
	return container_of(pin, struct amd_pin, pin);
}

static void amd_free(struct fake_pin *pin)
{
	struct amd_pin *p = to_amd(pin);

	sg_free_table(&p->sgt);
	memset(&p->info, 0x6b, sizeof(p->info));
	kfree(p);
	atomic_dec(&tables);
}

static u32 runs(const struct fake_pin *pin)
{
	u32 i, n = 0;

	for (i = 0; i < pin->n; i++)
		n += !i || pin->addr[i] != pin->addr[i - 1] + 65536;
	return n;
}

/* Only addresses and lengths for DMA; there are no pages. */
static int fill(struct amd_pin *p)
{
	const struct fake_pin *pin = &p->pin;
	struct scatterlist *sg;
	u32 i;

	if (sg_alloc_table(&p->sgt, runs(pin), GFP_KERNEL))
		return -ENOMEM;
	sg = p->sgt.sgl;
	for (i = 0; i < pin->n; i++) {
		if (i && pin->addr[i] == pin->addr[i - 1] + 65536) {
			sg_dma_len(sg) += 65536;
			continue;
		}
		if (i)
			sg = sg_next(sg);
		sg_dma_address(sg) = pin->addr[i] ? pin->addr[i] + (iova ? 1ull << 46 : 0) : 0;
		sg_dma_len(sg) = 65536;
	}
	p->info = (struct p2p_info){ .va = pin->va, .size = pin->len, .pages = &p->sgt };
	return 0;
}

static int get_pages_old(u64 addr, u64 len, struct pid *pid, struct p2p_info **info,
			 void (*free_cb)(void *data), void *data)
{
	struct amd_pin *p;
	int ret;

	if (WARN_ON(!free_cb) || (pid && pid != task_tgid(current)))
		return -EINVAL;
	p = kzalloc(sizeof(*p), GFP_KERNEL);
	if (!p)
		return -ENOMEM;
	atomic_inc(&tables);
	p->pin.free = amd_free;
	ret = fake_pin(&p->pin, addr, len);
	if (ret < 0)
		return silent ? 0 : ret;
	ret = ret ? fill(p) : 0;
	if (ret) {
		fake_unpin(&p->pin);
		fake_forget(&p->pin);
	} else if (p->pin.sim) {
		*info = &p->info;
	}
	fake_put(&p->pin);
	return ret;
}

static int get_pages(u64 addr, u64 len, struct pid *pid, struct device *dma_device,
		     struct p2p_info **info, void (*free_cb)(void *data), void *data)
{
	if (WARN_ON(!dma_device || !dev_is_pci(dma_device)))
		return -EINVAL;
	return get_pages_old(addr, len, pid, info, free_cb, data);
}

static bool is_info(struct fake_pin *pin, const void *info)
{
	return &to_amd(pin)->info == info;
}

static int put_pages(struct p2p_info **info)
{
	struct fake_pin *pin = fake_find(is_info, *info);
	int err;

	if (WARN_ON(!pin))
		return -EINVAL;
	err = fake_unpin(pin);
	if (!err) {
		fake_forget(pin);
		*info = NULL;
	}
	fake_put(pin);
	return err;
}

static int is_gpu_address(u64 addr, struct pid *pid)
{
	return addr >> 56 == 0x0d;
}

static int get_page_size(u64 addr, u64 len, struct pid *pid, unsigned long *size)
{
	*size = PAGE_SIZE;
	return 0;
}

static const struct interface interface = {
	.get_pages	= get_pages,
	.put_pages	= put_pages,
	.is_gpu_address	= is_gpu_address,
	.get_page_size	= get_page_size,
};

static const struct {
	typeof(get_pages_old) *get_pages;
	typeof(put_pages) *put_pages;
	typeof(is_gpu_address) *is_gpu_address;
	typeof(get_page_size) *get_page_size;
} old_interface = {
	.get_pages	= get_pages_old,
	.put_pages	= put_pages,
	.is_gpu_address	= is_gpu_address,
	.get_page_size	= get_page_size,
};

int amdkfd_query_rdma_interface(const struct interface **out)
{
	*out = nothing ? NULL : old ? (const void *)&old_interface : &interface;
	return 0;
}
EXPORT_SYMBOL(amdkfd_query_rdma_interface);

static int amd_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	return fake_probe(pdev, 0x1002, 0x74a1, 0x120000);
}

static struct pci_driver amd_driver = {
	.name		= "amdgpu",
	.id_table	= fake_no_ids,
	.probe		= amd_probe,
	.remove		= fake_remove,
};
module_pci_driver(amd_driver);

MODULE_DESCRIPTION("AMD's driver for other modules, over the software accelerator");
MODULE_LICENSE("GPL");
