// SPDX-License-Identifier: Apache-2.0
/*
 * Huawei's NPUs (Ascend), through AscendCL.
 *
 * Everything of ours happens in one context of our own for each device, made when a
 * buffer first needs it and kept: an NPU that no buffer uses gets none. A call makes it
 * current and then puts back what the caller had. A thread that had none keeps ours:
 * AscendCL cannot take one away; its next aclrtSetDevice() replaces it.
 * Copies and users' streams: huawei_copy.c.
 *
 * The runtime cannot tell the extent of an allocation: of those made here it is kept,
 * and other memory is looked at page by page, as far as a caller asks.
 *
 * A thread that records a graph, or any other thread while it does, may not make calls
 * such as allocating; calls made here are exempted, since none concerns a stream being
 * recorded.
 *
 * AscendCL does not survive fork(): in a child every call fails with -ENODEV.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "allocations.h"
#include "huawei_npu.h"
#include "../phx_init.h"

#define DEVICE_PAGE 65536UL
#define MAX_NPUS 64

static struct huawei_npu npus[MAX_NPUS];
static int npu_count;           /* written by init() only */
static unsigned int generation; /* the process that loaded the runtime */

/* ----------------------------------------------------------------- devices */

static int find_npus(char *text, size_t size)
{
	uint32_t count = 0;
	int result = acl.device_count(&count), err;

	if (result || !count) {
		snprintf(text, size, "AscendCL found, but no NPU is visible: "
				     "ASCEND_RT_VISIBLE_DEVICES, npu-smi info");
		return -ENODEV;
	}
	npu_count = count < MAX_NPUS ? (int)count : MAX_NPUS;
	for (int i = 0; i < npu_count; i++) {
		npus[i].ordinal = i;
		pthread_mutex_init(&npus[i].lock, NULL);
		err = huawei_bdf(i, npus[i].bdf, sizeof(npus[i].bdf));
		if (err) {
			snprintf(text, size, "NPU %d does not tell its PCI address%s", i,
				 devconn_detail(err));
			return err;
		}
		for (char *c = npus[i].bdf; *c; c++)
			*c = *c >= 'A' && *c <= 'F' ? (char)(*c - 'A' + 'a') : *c;
	}
	return 0;
}

static int init(char *text, size_t size)
{
	int err = huawei_runtime_load(text, size);

	if (!err)
		err = find_npus(text, size);
	generation = phx_fork_generation();
	return err;
}

static int device_count(void)
{
	return npu_count;
}

static int device_describe(int ordinal, struct devconn_device *out)
{
	const char *soc = acl.soc_name();

	*out = (struct devconn_device){ 0 };
	snprintf(out->name, sizeof(out->name), "%s", soc && *soc ? soc : "Ascend NPU");
	memcpy(out->bdf, npus[ordinal].bdf, sizeof(out->bdf));
	return 0;
}

static int find_device(int ordinal)
{
	return ordinal >= 0 && ordinal < npu_count ? devconn_find_bdf(npus[ordinal].bdf) : -1;
}

/* -------------------------------------------------- the context of a call */

static bool forked(void)
{
	return phx_fork_generation() != generation;
}

/* Made once; that it comes out current is what the caller wants. */
static int make_context(struct huawei_npu *npu, acl_context *out)
{
	int result = 0;

	pthread_mutex_lock(&npu->lock);
	*out = atomic_load_explicit(&npu->context, memory_order_relaxed);
	if (!*out)
		result = acl.context_create(out, npu->ordinal);
	if (!result)
		/* release: pairs with the acquire in huawei_enter() */
		atomic_store_explicit(&npu->context, *out, memory_order_release);
	pthread_mutex_unlock(&npu->lock);
	return result ? huawei_fail(result, "aclrtCreateContext") : 0;
}

/* What huawei_enter() has set out to do, undone. */
static void restore(struct huawei_visit *visit)
{
	if (visit->before)
		acl.context_set(visit->before);
}

int huawei_enter(int device, struct huawei_visit *visit)
{
	int ordinal, result, err;
	acl_context context;

	*visit = (struct huawei_visit){ 0 };
	if (forked())
		return devconn_fail(-ENODEV, "AscendCL does not survive fork()");
	ordinal = devconn_ordinal(device);
	if (ordinal < 0 || ordinal >= npu_count)
		return devconn_fail(-ENODEV, "device %d is no NPU", device);
	visit->npu = &npus[ordinal];
	/* fails where there is none */
	if (acl.context_get(&visit->before))
		visit->before = NULL;
	context = atomic_load_explicit(&visit->npu->context, memory_order_acquire);
	if (!context) {
		err = make_context(visit->npu, &context);
		if (err)
			return err;
	}
	result = acl.context_set(context);
	visit->gone = result == ACL_UNINITIALIZED;
	if (result) {
		restore(visit);
		return huawei_fail(result, "aclrtSetCurrentContext");
	}
	visit->capture_mode = ACL_CAPTURE_RELAXED;
	if (acl.capture_mode)
		acl.capture_mode(&visit->capture_mode);
	return 0;
}

void huawei_leave(struct huawei_visit *visit)
{
	if (acl.capture_mode)
		acl.capture_mode(&visit->capture_mode);
	restore(visit);
}

/* ------------------------------------------------------------------ memory */

static struct allocations allocations = ALLOCATIONS_INIT;

/* The runtime cuts small allocations anywhere: ask for more if it must be. */
static int alloc_aligned(size_t len, struct allocation *a)
{
	int result;
	void *p;

	a->len = len;
	result = acl.mem_alloc(&p, len, ACL_MALLOC_HUGE_FIRST);
	if (!result && (uintptr_t)p % DEVICE_PAGE) {
		acl.mem_free(p);
		a->len = len + DEVICE_PAGE;
		result = acl.mem_alloc(&p, a->len, ACL_MALLOC_HUGE_FIRST);
	}
	if (result)
		return huawei_fail(result, "aclrtMalloc");
	a->base = (uintptr_t)p;
	return 0;
}

static int mem_alloc(int device, size_t len, void **addr)
{
	struct allocation *a = malloc(sizeof(*a));
	struct huawei_visit visit;
	int err;

	if (!a)
		return -ENOMEM;
	err = huawei_enter(device, &visit);
	if (!err) {
		err = alloc_aligned(len, a);
		huawei_leave(&visit);
	}
	if (err) {
		free(a);
		return err;
	}
	*addr = (void *)((a->base + DEVICE_PAGE - 1) & ~(DEVICE_PAGE - 1));
	allocations_add(&allocations, a);
	return 0;
}

static int mem_free(int device, void *addr, size_t len)
{
	struct huawei_visit visit;
	struct allocation a;
	int err = huawei_enter(device, &visit), result;

	if (err)
		return visit.gone ? 0 : err;
	if (!allocations_take(&allocations, (uintptr_t)addr, &a))
		a.base = (uintptr_t)addr;
	result = acl.mem_free((void *)a.base);
	huawei_leave(&visit);
	return result ? huawei_fail(result, "aclrtFree") : 0;
}

/* The NPU that the memory at @addr is on, or -1. */
static int owner(uintptr_t addr)
{
	struct acl_pointer p = { 0 };

	if (acl.pointer((const void *)addr, &p) || p.type != ACL_LOCATION_DEVICE ||
	    p.device >= (uint32_t)npu_count)
		return -1;
	return (int)p.device;
}

static int pointer_device(const void *addr, struct devconn_pointer *out)
{
	uintptr_t at = (uintptr_t)addr, wanted = at + out->len;
	struct allocation a;
	int ordinal;

	if (forked())
		return -ENOENT;
	ordinal = owner(at);
	if (ordinal < 0)
		return -ENOENT;
	out->device = find_device(ordinal);
	if (allocations_find(&allocations, at, &a)) {
		out->base = a.base;
		out->len = a.len;
		out->buffer_id = a.id;
		return 0;
	}
	out->base = at & ~(DEVICE_PAGE - 1);
	out->len = DEVICE_PAGE;
	out->buffer_id = 0;
	while (out->base + out->len < wanted && owner(out->base + out->len) == ordinal)
		out->len += DEVICE_PAGE;
	return 0;
}

static int host_alloc(int device, size_t len, void **addr)
{
	struct huawei_visit visit;
	int err = huawei_enter(device, &visit), result;

	if (err)
		return err;
	result = acl.host_alloc(addr, len);
	huawei_leave(&visit);
	return result ? huawei_fail(result, "aclrtMallocHost") : 0;
}

static int host_free(int device, void *addr, size_t len)
{
	struct huawei_visit visit;
	int err = huawei_enter(device, &visit), result;

	if (err)
		return visit.gone ? 0 : err;
	result = acl.host_free(addr);
	huawei_leave(&visit);
	return result ? huawei_fail(result, "aclrtFreeHost") : 0;
}

const struct devconn_ops huawei_connector = {
	.abi = DEVCONN_ABI,
	.name = "huawei",
	.page_size = DEVICE_PAGE,
	.held_streams = 1, /* one thread of the runtime's runs the functions of streams */
	.init = init,
	.device_count = device_count,
	.device_describe = device_describe,
	.find_device = find_device,
	.mem_alloc = mem_alloc,
	.mem_free = mem_free,
	.pointer_device = pointer_device,
	.host_alloc = host_alloc,
	.host_free = host_free,
	.export_dmabuf = devconn_no_export,
	.memcpy_dtod = huawei_copy_dtod,
	.memcpy_htod = huawei_copy_htod,
	.memcpy_dtoh = huawei_copy_dtoh,
	.memcpy_dtod_async = huawei_copy_dtod_async,
	.memcpy_htod_async = huawei_copy_htod_async,
	.memcpy_dtoh_async = huawei_copy_dtoh_async,
	.queue_sync = huawei_queue_sync,
	.event_record = huawei_event_record,
	.event_done = huawei_event_done,
	.event_wait = huawei_event_wait,
	.event_free = huawei_event_free,
	.launch_host_func = huawei_launch_host_func,
	.stream_held = devconn_no_stream_held,
	.stream_wait = devconn_no_stream_word,
	.stream_signal = devconn_no_stream_word,
	.range_push = devconn_no_range_push,
	.range_pop = devconn_no_range_pop,
};
