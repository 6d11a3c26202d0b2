// SPDX-License-Identifier: Apache-2.0
/*
 * HOST devices: device memory is anonymous memory of this process, a copy is
 * memcpy(). It makes every machine a machine with a device, and it is the
 * model of what a connector must do.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devconnector.h"
#include "../phx_config.h"

#define DEVICE_PAGE 65536UL
#define HUGE_PAGE (2UL << 20)

static int init(char *text, size_t size)
{
	snprintf(text, size, "host memory stands in for device memory");
	return 0;
}

static int device_count(void)
{
	return (int)phx_config.host_devices;
}

static int device_describe(int ordinal, struct devconn_device *out)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	*out = (struct devconn_device){ 0 };
	snprintf(out->name, sizeof(out->name), "host memory %d", ordinal);
	out->memory_bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
	return 0;
}

/* HOST devices are numbered from 0 and are there only by themselves. */
static int find_device(int ordinal)
{
	return ordinal < device_count() ? ordinal : -1;
}

/* Map @len bytes at a multiple of @align by mapping more and cutting the ends. */
static int map_aligned(size_t len, size_t align, void **addr)
{
	uintptr_t start, base;
	void *map;

	if (len > SIZE_MAX - align)
		return -ENOMEM;
	map = mmap(NULL, len + align, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return -ENOMEM;
	start = (uintptr_t)map;
	base = (start + align - 1) & ~(align - 1);
	if (base > start)
		munmap(map, base - start);
	if (start + align > base)
		munmap((void *)(base + len), start + align - base);
	if (align >= HUGE_PAGE)
		madvise((void *)base, len, MADV_HUGEPAGE);
	*addr = (void *)base;
	return 0;
}

static int mem_alloc(int device, size_t len, void **addr)
{
	return map_aligned(len, len >= HUGE_PAGE ? HUGE_PAGE : DEVICE_PAGE, addr);
}

static int mem_free(int device, void *addr, size_t len)
{
	return munmap(addr, len) ? -errno : 0;
}

/* HOST memory looks like any other; the core knows what it handed out. */
static int pointer_device(const void *addr, struct devconn_pointer *out)
{
	return -ENOENT;
}

static int copy(int device, void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
	return 0;
}

static int copy_async(int device, int slot, void *dst, const void *src, size_t n)
{
	return copy(device, dst, src, n);
}

static int queue_sync(int device, int slot)
{
	return 0;
}

/* Copies are done when they return: there is nothing to mark. */
static int event_record(int device, int slot, void **event)
{
	return 0;
}

static int event_done(int device, void *event)
{
	return 0;
}

const struct devconn_ops host_connector = {
	.abi = DEVCONN_ABI,
	.name = "host",
	.page_size = DEVICE_PAGE,
	.init = init,
	.device_count = device_count,
	.device_describe = device_describe,
	.find_device = find_device,
	.mem_alloc = mem_alloc,
	.mem_free = mem_free,
	.pointer_device = pointer_device,
	.host_alloc = mem_alloc,
	.host_free = mem_free,
	.export_dmabuf = devconn_no_export,
	.memcpy_dtod = copy,
	.memcpy_htod = copy,
	.memcpy_dtoh = copy,
	.memcpy_dtod_async = copy_async,
	.memcpy_htod_async = copy_async,
	.memcpy_dtoh_async = copy_async,
	.queue_sync = queue_sync,
	.event_record = event_record,
	.event_done = event_done,
	.event_wait = event_done,
	.event_free = devconn_no_event_free,
	.launch_host_func = devconn_no_launch_host_func,
	.stream_held = devconn_no_stream_held,
	.stream_wait = devconn_no_stream_word,
	.stream_signal = devconn_no_stream_word,
	.range_push = devconn_no_range_push,
	.range_pop = devconn_no_range_pop,
};
