// SPDX-License-Identifier: Apache-2.0
/*
 * Device memory: registering, allocating, copying.
 *
 * The slow part of a registration, the mapping, runs without the device's
 * lock: the region stands in the tree as PENDING meanwhile, and whoever wants
 * the same addresses waits for it. The states are drawn in phx_region.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "phx_device.h"
#include "phx_error.h"
#include "phx_init.h"
#include "phx_kernel.h"
#include "phx_sized.h"
#include "phx_stats.h"

#define PAGE_MASK (PHXFS_DEVICE_PAGE - 1)

static uintptr_t base_of(struct phx_region *r)
{
	return atomic_load_explicit(&r->range.base, memory_order_relaxed);
}

static size_t len_of(struct phx_region *r)
{
	return atomic_load_explicit(&r->range.len, memory_order_relaxed);
}

/* ---------------------------------------------------------------- mapping */

/* Another device whose phxfs_mem_alloc() made the memory at @addr, or NULL. */
static struct phx_device *other_owner(struct phx_device *dev, uintptr_t addr)
{
	struct phx_device *other;

	for (int id = 0; (other = phx_device_next(id)); id = other->id + 1) {
		if (other != dev && phx_ranges_find(&other->allocations, addr))
			return other;
	}
	return NULL;
}

/* HOST: the buffer is its own mapping; msync() tells whether it is all there. */
static int map_host(struct phx_device *dev, struct phx_region *r, uintptr_t addr, size_t len)
{
	struct phx_device *owner = other_owner(dev, addr);

	if (owner)
		return phx_fail(-EFAULT, "regmem", "register it on the device that owns it",
				"%#zx is memory of device %d, not %d", (size_t)addr, owner->id,
				dev->id);
	if (msync((void *)addr, len, MS_ASYNC))
		return phx_fail(errno == ENOMEM ? -EFAULT : -errno, "regmem",
				"allocate it with phxfs_mem_alloc() or mmap()",
				"%#zx bytes at %#zx are not all mapped", len, (size_t)addr);
	r->io_addr = addr;
	r->target = addr;
	return 0;
}

/* Is the range memory of @dev, as far as its vendor's runtime can tell? */
static bool owned(struct phx_device *dev, uintptr_t addr, size_t len)
{
	struct devconn_pointer at = { .len = len };

	return !dev->ops->pointer_device((void *)addr, &at) && at.device == dev->id &&
	       addr + len <= at.base + at.len;
}

static int not_owned(struct phx_device *dev, uintptr_t addr, size_t len)
{
	return phx_fail(-EFAULT, "regmem",
			"allocate it on this device, and register no more than that",
			"%#zx bytes at %#zx on device %d", len, (size_t)addr, dev->id);
}

/*
 * STAGING, BOUNCE: storage never touches the buffer. The user gets addresses
 * that fault, so that using them for plain I/O fails instead of corrupting.
 */
static int map_reserved(struct phx_device *dev, struct phx_region *r, uintptr_t addr, size_t len)
{
	void *reserved;

	if (!owned(dev, addr, len))
		return not_owned(dev, addr, len);
	reserved = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (reserved == MAP_FAILED)
		return phx_fail(-errno, "regmem", NULL, "reserving %#zx bytes of addresses", len);
	r->io_addr = 0;
	r->target = (uintptr_t)reserved;
	return 0;
}

/*
 * FULL: the module pins the buffer and maps it for CPU and storage. It is asked first, for
 * the runtime of a device may know less than its driver.
 */
static int map_full(struct phx_device *dev, struct phx_region *r, uintptr_t addr, size_t len)
{
	void *mapping;
	int err;

	err = phx_kernel_map(dev->kernel_fd, dev->id, (void *)addr, len, &mapping);
	if ((err == -EINVAL || err == -ENXIO) && dev->ops != &bare_connector &&
	    !owned(dev, addr, len))
		return not_owned(dev, addr, len);
	if (err)
		return err;
	r->io_addr = (uintptr_t)mapping;
	r->target = (uintptr_t)mapping;
	return 0;
}

static int map_region(struct phx_device *dev, struct phx_region *r, uintptr_t addr, size_t len)
{
	switch (dev->mode) {
	case PHXFS_MODE_HOST:
		return map_host(dev, r, addr, len);
	case PHXFS_MODE_FULL:
		return map_full(dev, r, addr, len);
	default:
		return map_reserved(dev, r, addr, len);
	}
}

static void unmap_region(struct phx_device *dev, struct phx_region *r)
{
	switch (dev->mode) {
	case PHXFS_MODE_HOST:
		break;
	case PHXFS_MODE_FULL:
		phx_kernel_unmap(dev->kernel_fd, dev->id, (void *)base_of(r), len_of(r),
				 (void *)r->target);
		break;
	default:
		munmap((void *)r->target, len_of(r));
	}
}

/* ------------------------------------------------------------ registering */

static int check_range(const char *step, const void *addr, size_t len)
{
	uintptr_t base = (uintptr_t)addr;

	if (!base || !len || (base & PAGE_MASK) || (len & PAGE_MASK))
		return phx_fail(-EINVAL, step, "both must be non-zero multiples of 64 KiB",
				"%#zx bytes at %p", len, addr);
	if (base + len < base)
		return phx_fail(-EINVAL, step, NULL, "%#zx bytes at %p wrap around", len, addr);
	return 0;
}

/* Regions and registered bytes, for phxfs_stats(); with the lock held. */
static void gauge(struct phx_device *dev, struct phx_region *r, bool more)
{
	struct phx_gauges *g = &phx_stats->gauges[dev->id + 1];
	uint64_t len = len_of(r);

	atomic_fetch_add_explicit(&g->registrations, more ? 1U : -1U, memory_order_relaxed);
	atomic_fetch_add_explicit(&g->registered_bytes, more ? len : -len, memory_order_relaxed);
}

static int not_open(struct phx_device *dev, const char *step)
{
	return phx_fail(-ENODEV, step, "call phxfs_open() first", "device %d is not open", dev->id);
}

/*
 * Find the exact live registration, waiting for one that is coming or going.
 * 0 with *out NULL: the range is free.
 */
static int find_exact(struct phx_device *dev, uintptr_t base, size_t len, struct phx_region **out)
{
	struct phx_region *r;

	*out = NULL;
	for (;;) {
		if (dev->state != PHX_DEVICE_OPEN)
			return not_open(dev, "regmem");
		r = (struct phx_region *)phx_ranges_overlap(&dev->regions, base, len);
		if (!r)
			return 0;
		if (r->state == PHX_REGION_LIVE)
			break;
		pthread_cond_wait(&dev->changed, &dev->lock);
	}
	if (base_of(r) != base || len_of(r) != len)
		return phx_fail(-EINVAL, "regmem", "deregister that first, or use it as it is",
				"%#zx bytes at %#zx overlap the registration of %#zx bytes at %#zx",
				len, (size_t)base, len_of(r), (size_t)base_of(r));
	*out = r;
	return 0;
}

/*
 * FULL: which allocation the addresses are of now. 0: not known, or of no importance, for
 * the other modes pin nothing and go by address.
 */
static uint64_t buffer_id(struct phx_device *dev, uintptr_t base, size_t len)
{
	struct devconn_pointer at = { .len = len };

	if (dev->mode != PHXFS_MODE_FULL || dev->ops->pointer_device((void *)base, &at))
		return 0;
	return at.buffer_id;
}

static void drop_region(struct phx_device *dev, struct phx_region *r)
{
	phx_ranges_remove(&dev->regions, &r->range);
	phx_region_free(dev, r);
	pthread_cond_broadcast(&dev->changed);
}

static int add_region(struct phx_device *dev, uintptr_t base, size_t len, struct phx_region **out)
{
	struct phx_region *r = phx_region_alloc(dev);
	uint64_t id = buffer_id(dev, base, len); /* before the mapping: rather too old */
	int err;

	if (r && phx_ranges_insert(&dev->regions, &r->range, base, len)) {
		phx_region_free(dev, r);
		r = NULL;
	}
	if (!r)
		return phx_fail(-ENOMEM, "regmem", NULL, "device %d", dev->id);
	r->state = PHX_REGION_PENDING;

	pthread_mutex_unlock(&dev->lock);
	err = map_region(dev, r, base, len);
	pthread_mutex_lock(&dev->lock);

	if (err) {
		drop_region(dev, r);
		return err;
	}
	r->state = PHX_REGION_LIVE;
	r->users = 0;
	r->buffer_id = id;
	gauge(dev, r, true);
	atomic_store_explicit(&r->refs, PHX_REGION_LIVE_BIT, memory_order_release);
	pthread_cond_broadcast(&dev->changed);
	*out = r;
	return 0;
}

/* Take a live region away; the lock is dropped while it drains and is unmapped. */
static void remove_region(struct phx_device *dev, struct phx_region *r)
{
	phx_region_drain(dev, r);
	pthread_mutex_unlock(&dev->lock);
	unmap_region(dev, r);
	pthread_mutex_lock(&dev->lock);
	gauge(dev, r, false);
	drop_region(dev, r);
}

/*
 * The memory was freed under its registration and the addresses allocated anew: the
 * mapping still leads to the old pages, which its pin keeps. Replace it by one of what
 * is there now, for those who registered before as well.
 */
static int renew_if_stale(struct phx_device *dev, uintptr_t base, size_t len,
			  struct phx_region **r)
{
	uint64_t now = buffer_id(dev, base, len);
	unsigned int users = (*r)->users;
	int err;

	if (!now || !(*r)->buffer_id || now == (*r)->buffer_id)
		return 0;
	remove_region(dev, *r);
	err = find_exact(dev, base, len, r);
	if (!err && !*r)
		err = add_region(dev, base, len, r);
	if (!err)
		(*r)->users += users;
	return err;
}

int phxfs_regmem(int device_id, const void *addr, size_t len, void **target_addr)
{
	struct phx_region *r = NULL;
	struct phx_device *dev;
	int err;

	phx_init();
	dev = phx_device_find(device_id);
	if (!dev)
		return phx_device_missing(device_id, "regmem");
	err = check_range("regmem", addr, len);
	if (err)
		return err;

	pthread_mutex_lock(&dev->lock);
	/* In a forked child an open device has no node yet. */
	err = dev->state == PHX_DEVICE_OPEN ? phx_device_open_node(dev) : 0;
	if (!err)
		err = find_exact(dev, (uintptr_t)addr, len, &r);
	if (!err && r)
		err = renew_if_stale(dev, (uintptr_t)addr, len, &r);
	else if (!err)
		err = add_region(dev, (uintptr_t)addr, len, &r);
	if (!err) {
		r->users++;
		if (target_addr)
			*target_addr = (void *)r->target;
	}
	pthread_mutex_unlock(&dev->lock);
	return err;
}

int phxfs_deregmem(int device_id, const void *addr, size_t len)
{
	struct phx_device *dev;
	struct phx_region *r;
	int err;

	phx_init();
	dev = phx_device_find(device_id);
	if (!dev)
		return phx_device_missing(device_id, "deregmem");
	err = check_range("deregmem", addr, len);
	if (err)
		return err;

	pthread_mutex_lock(&dev->lock);
	r = (struct phx_region *)phx_ranges_overlap(&dev->regions, (uintptr_t)addr, len);
	if (dev->state != PHX_DEVICE_OPEN)
		err = not_open(dev, "deregmem");
	else if (!r || r->state != PHX_REGION_LIVE || base_of(r) != (uintptr_t)addr ||
		 len_of(r) != len)
		err = phx_fail(-EINVAL, "deregmem",
			       "pass the address and length of its phxfs_regmem()",
			       "%#zx bytes at %p are not a registration of device %d", len, addr,
			       device_id);
	else if (--r->users == 0)
		remove_region(dev, r);
	pthread_mutex_unlock(&dev->lock);
	return err;
}

void phx_mem_remove_all(struct phx_device *dev)
{
	struct phx_region *r;
	uintptr_t from = 0;

	/* Upwards, so that what has been emptied is not searched again. */
	for (;;) {
		r = (struct phx_region *)phx_ranges_overlap(&dev->regions, from,
							    UINTPTR_MAX - from);
		if (!r && !from)
			return;
		if (!r) {
			from = 0;
			continue;
		}
		from = base_of(r);
		if (r->state == PHX_REGION_LIVE)
			remove_region(dev, r);
		else /* another thread is registering or deregistering it */
			pthread_cond_wait(&dev->changed, &dev->lock);
	}
}

/* True: @r cannot live on in the child. */
static bool lost_by_fork(struct phx_device *dev, struct phx_region *r)
{
	return dev->mode != PHXFS_MODE_HOST || r->state != PHX_REGION_LIVE ||
	       dev->state == PHX_DEVICE_DRAINING;
}

void phx_mem_fork_child(struct phx_device *dev)
{
	uintptr_t next = 0;
	struct phx_region *r;

	while ((r = (struct phx_region *)phx_ranges_overlap(&dev->regions, next,
							    UINTPTR_MAX - next))) {
		next = base_of(r) + len_of(r);
		phx_region_forget_holders(r);
		if (lost_by_fork(dev, r)) {
			atomic_store_explicit(&r->refs, 0, memory_order_relaxed);
			if (r->state != PHX_REGION_PENDING)
				gauge(dev, r, false);
			/* The module's mappings are not inherited; reserved ones are. */
			if (r->state == PHX_REGION_LIVE && dev->mode != PHXFS_MODE_HOST &&
			    dev->mode != PHXFS_MODE_FULL)
				unmap_region(dev, r);
			drop_region(dev, r);
		}
	}
}

/* --------------------------------------------------- allocating, copying */

int phxfs_mem_alloc(int device_id, size_t len, void **addr)
{
	struct phx_device *dev;
	struct phx_region *r;
	void *memory;
	int err;

	phx_init();
	dev = phx_device_find(device_id);
	if (!dev)
		return phx_device_missing(device_id, "mem_alloc");
	if (!len || !addr)
		return phx_fail(-EINVAL, "mem_alloc", NULL, "%#zx bytes to %p", len, (void *)addr);
	if (len > SIZE_MAX - PAGE_MASK)
		return phx_fail(-ENOMEM, "mem_alloc", NULL, "%#zx bytes", len);
	len = (len + PAGE_MASK) & ~PAGE_MASK;

	err = dev->ops->mem_alloc(device_id, len, &memory);
	if (err)
		return phx_fail(err, "mem_alloc", NULL, "%#zx bytes on device %d%s", len, device_id,
				devconn_detail(err));
	pthread_mutex_lock(&dev->lock);
	r = phx_region_alloc(dev);
	if (r && phx_ranges_insert(&dev->allocations, &r->range, (uintptr_t)memory, len)) {
		phx_region_free(dev, r);
		r = NULL;
	}
	pthread_mutex_unlock(&dev->lock);
	if (!r) {
		dev->ops->mem_free(device_id, memory, len);
		return phx_fail(-ENOMEM, "mem_alloc", NULL, "device %d", device_id);
	}
	*addr = memory;
	return 0;
}

int phxfs_mem_free(int device_id, void *addr)
{
	struct phx_device *dev;
	struct phx_region *r;
	size_t len = 0;
	int err = 0;

	phx_init();
	dev = phx_device_find(device_id);
	if (!dev)
		return phx_device_missing(device_id, "mem_free");
	if (!addr)
		return 0;

	pthread_mutex_lock(&dev->lock);
	r = (struct phx_region *)phx_ranges_find(&dev->allocations, (uintptr_t)addr);
	if (!r || base_of(r) != (uintptr_t)addr) {
		err = phx_fail(-EINVAL, "mem_free", "pass what phxfs_mem_alloc() returned, once",
			       "%p on device %d", addr, device_id);
	} else if (phx_ranges_overlap(&dev->regions, (uintptr_t)addr, len_of(r))) {
		err = phx_fail(-EBUSY, "mem_free", "deregister it first",
			       "%p on device %d is registered", addr, device_id);
	} else {
		/* Out first: once freed, the addresses may be another thread's. */
		len = len_of(r);
		phx_ranges_remove(&dev->allocations, &r->range);
	}
	pthread_mutex_unlock(&dev->lock);
	if (err)
		return err;

	err = dev->ops->mem_free(device_id, addr, len);
	if (err)
		phx_fail(err, "mem_free", NULL, "%p on device %d%s", addr, device_id,
			 devconn_detail(err));
	pthread_mutex_lock(&dev->lock);
	/* Its nodes are there, so putting it back needs no memory. */
	if (!err || phx_ranges_insert(&dev->allocations, &r->range, (uintptr_t)addr, len))
		phx_region_free(dev, r);
	pthread_mutex_unlock(&dev->lock);
	return err;
}

struct phx_device *phx_device_of_memory(const void *addr, size_t len, struct devconn_pointer *at)
{
	const struct devconn_ops *asked = NULL;
	struct phx_device *dev;

	for (int id = 0; (dev = phx_device_next(id)); id = dev->id + 1) {
		if (dev->ops == asked) /* it answers for all of its vendor's */
			continue;
		asked = dev->ops;
		*at = (struct devconn_pointer){ .len = len };
		if (!asked->pointer_device(addr, at))
			return phx_device_find(at->device);
	}
	return NULL;
}

/* Of phxfs_mem_alloc(): also on HOST devices, whose connector knows no memory. */
static bool find_allocation(const void *addr, struct phxfs_pointer_info *out)
{
	struct phx_device *dev;

	for (int id = 0; (dev = phx_device_next(id)); id = dev->id + 1) {
		struct phx_range *r = phx_ranges_find(&dev->allocations, (uintptr_t)addr);

		if (r) {
			out->device = dev->id;
			out->base = atomic_load(&r->base);
			out->length = atomic_load(&r->len);
			return true;
		}
	}
	return false;
}

int phxfs_pointer_info(const void *addr, size_t len, struct phxfs_pointer_info *info)
{
	struct phxfs_pointer_info out = { .size = sizeof(out) };
	int err = phx_check_size(info, sizeof(out), "pointer_info");
	struct devconn_pointer at;
	struct phx_device *dev;

	if (err)
		return err;
	phx_init();
	dev = phx_device_of_memory(addr, len, &at);
	if (dev) {
		out.device = dev->id;
		out.base = at.base;
		out.length = at.len;
		out.buffer_id = at.buffer_id;
	} else if (!find_allocation(addr, &out)) {
		return phx_fail(-ENOENT, "pointer_info", NULL, "%p is plain host memory", addr);
	}
	phx_fill(info, &out, sizeof(out));
	return 0;
}

int phxfs_pointer_device(const void *addr)
{
	struct devconn_pointer at = { 0 };
	struct phx_device *dev;

	phx_init();
	for (int id = 0; (dev = phx_device_next(id)); id = dev->id + 1) {
		struct phx_region *r;

		if (phx_ranges_find(&dev->allocations, (uintptr_t)addr))
			return dev->id;
		r = phx_region_get(dev, (uintptr_t)addr, 1);
		if (r) {
			phx_region_put(dev, r);
			return dev->id;
		}
		if (!dev->ops->pointer_device(addr, &at))
			return at.device;
	}
	return phx_fail(-ENOENT, "pointer_device", NULL, "%p is plain host memory", addr);
}

int phxfs_export_dmabuf(int device_id, const void *addr, size_t len, int *fd, uint64_t *offset)
{
	struct phx_device *dev;
	uint64_t at;
	int err, got = -1;

	phx_init();
	dev = phx_device_find(device_id);
	if (!dev)
		return phx_device_missing(device_id, "export_dmabuf");
	if (!addr || !len || !fd || !offset || len > UINTPTR_MAX - (uintptr_t)addr)
		return phx_fail(-EINVAL, "export_dmabuf", NULL, "%zu bytes at %p", len, addr);
	err = dev->ops->export_dmabuf(device_id, addr, len, &got, &at);
	if (err)
		return phx_fail(err, "export_dmabuf", NULL, "%zu bytes at %p of device %d%s", len,
				addr, device_id, devconn_detail(err));
	*fd = got;
	*offset = at;
	return 0;
}

static int copy(int device_id, void *dst, const void *src, size_t n, const char *step, bool to)
{
	struct phx_device *dev;
	int err;

	phx_init();
	dev = phx_device_find(device_id);
	if (!dev)
		return phx_device_missing(device_id, step);
	if (!dst || !src)
		return phx_fail(-EINVAL, step, NULL, "%zu bytes from %p to %p", n, src, dst);
	if (!n)
		return 0;
	err = to ? dev->ops->memcpy_htod(device_id, dst, src, n) :
		   dev->ops->memcpy_dtoh(device_id, dst, src, n);
	return err ? phx_fail(err, step, NULL, "%zu bytes on device %d%s", n, device_id,
			      devconn_detail(err))
		   : 0;
}

int phxfs_memcpy_to(int device_id, void *dev_dst, const void *host_src, size_t n)
{
	return copy(device_id, dev_dst, host_src, n, "memcpy_to", true);
}

int phxfs_memcpy_from(int device_id, void *host_dst, const void *dev_src, size_t n)
{
	return copy(device_id, host_dst, dev_src, n, "memcpy_from", false);
}
