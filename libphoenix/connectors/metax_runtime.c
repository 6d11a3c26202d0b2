// SPDX-License-Identifier: Apache-2.0
/*
 * The driver's calls that the connector makes, by a runtime with CUDA's functions
 * and numbers: MetaX's, under its own names (mcMalloc) or CUDA's (cudaMalloc).
 * PHX_METAX_RUNTIME names its library.
 *
 * A runtime has a current device where the driver has a stack of contexts: a
 * "context" here is the device's number, and what was current is put back. It
 * cannot tell the extent of an allocation: of those made here it is kept, and
 * other memory is looked at page by page, as far as a caller asks.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metax_names.h"
#include "devconnector.h"
#include "nvidia_driver.h"

#define LIBRARY "libmcruntime.so"
#define DEVICE_PAGE 65536UL
#define MAX_DEPTH 4
#define INVALID_VALUE 1

enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST, DEVICE_TO_DEVICE };

/* What a pointer is, as the runtime says it. */
struct runtime_pointer {
	int type; /* 0: not known, 1: host, 2: device, 3: managed */
	int device;
	void *device_address, *host_address;
	long reserved[8]; /* from CUDA 13 on */
};

static struct {
	const char *(*error_name)(int result);
	const char *(*error_string)(int result);
	int (*device_count)(int *count);
	int (*device_bdf)(char *bdf, int len, int device);
	int (*get_device)(int *device);
	int (*set_device)(int device);
	int (*malloc)(void **p, size_t len);
	int (*free)(void *p);
	int (*pointer)(struct runtime_pointer *out, const void *p);
	int (*host_register)(void *p, size_t len, unsigned int flags);
	int (*host_unregister)(void *p);
	int (*copy)(void *dst, const void *src, size_t n, int kind, void *stream);
	int (*stream_create)(struct cu_stream **stream, unsigned int flags);
	int (*stream_sync)(struct cu_stream *stream);
	int (*stream_query)(struct cu_stream *stream);
	int (*event_create)(struct cu_event **event, unsigned int flags);
	int (*event_record)(struct cu_event *event, struct cu_stream *stream);
	int (*event_query)(struct cu_event *event);
	int (*event_sync)(struct cu_event *event);
	int (*event_destroy)(struct cu_event *event);
	int (*launch_host_func)(struct cu_stream *stream, void (*fn)(void *arg), void *arg);
	/* NULL where there are no graphs: */
	int (*is_capturing)(struct cu_stream *stream, int *status);
	int (*capture_mode)(int *mode);
} rt;

static const struct {
	const char *name; /* behind "mc" or "cuda" */
	void **slot;
	int optional;
} symbols[] = {
	{ "GetErrorName", (void **)&rt.error_name, 0 },
	{ "GetErrorString", (void **)&rt.error_string, 0 },
	{ "GetDeviceCount", (void **)&rt.device_count, 0 },
	{ "DeviceGetPCIBusId", (void **)&rt.device_bdf, 0 },
	{ "GetDevice", (void **)&rt.get_device, 0 },
	{ "SetDevice", (void **)&rt.set_device, 0 },
	{ "Malloc", (void **)&rt.malloc, 0 },
	{ "Free", (void **)&rt.free, 0 },
	{ "PointerGetAttributes", (void **)&rt.pointer, 0 },
	{ "HostRegister", (void **)&rt.host_register, 0 },
	{ "HostUnregister", (void **)&rt.host_unregister, 0 },
	{ "MemcpyAsync", (void **)&rt.copy, 0 },
	{ "StreamCreateWithFlags", (void **)&rt.stream_create, 0 },
	{ "StreamSynchronize", (void **)&rt.stream_sync, 0 },
	{ "StreamQuery", (void **)&rt.stream_query, 0 },
	{ "EventCreateWithFlags", (void **)&rt.event_create, 0 },
	{ "EventRecord", (void **)&rt.event_record, 0 },
	{ "EventQuery", (void **)&rt.event_query, 0 },
	{ "EventSynchronize", (void **)&rt.event_sync, 0 },
	{ "EventDestroy", (void **)&rt.event_destroy, 0 },
	{ "LaunchHostFunc", (void **)&rt.launch_host_func, 0 },
	{ "StreamIsCapturing", (void **)&rt.is_capturing, 1 },
	{ "ThreadExchangeStreamCaptureMode", (void **)&rt.capture_mode, 1 },
};

/* ----------------------------------------------------------------- devices */

static int error_name(int result, const char **name)
{
	*name = rt.error_name(result);
	return 0;
}

static int error_string(int result, const char **text)
{
	*text = rt.error_string(result);
	return 0;
}

static int device_get(int *device, int ordinal)
{
	*device = ordinal;
	return 0;
}

/* What tells them has a layout that changes with the runtime's version. */
static int device_name(char *name, int len, int device)
{
	snprintf(name, (size_t)len, "MetaX GPU");
	return 0;
}

static int device_memory(size_t *bytes, int device)
{
	*bytes = 0;
	return 0;
}

static int device_attribute(int *value, int attribute, int device)
{
	*value = 0;
	return 0;
}

/* ---------------------------------------------------------------- contexts */

static _Thread_local int previous[MAX_DEPTH];
static _Thread_local int depth;

static int context_retain(struct cu_context **context, int device)
{
	*context = (struct cu_context *)(uintptr_t)(device + 1);
	return 0;
}

static int context_create(struct cu_context **context, unsigned int flags, int device)
{
	return CU_NOT_SUPPORTED;
}

static int context_push(struct cu_context *context)
{
	int device = (int)(uintptr_t)context - 1, before = device, result;

	if (depth == MAX_DEPTH)
		return CU_INVALID_CONTEXT;
	result = rt.get_device(&before);
	if (!result && before != device)
		result = rt.set_device(device);
	if (!result)
		previous[depth++] = before != device ? before : -1;
	return result;
}

static int context_pop(struct cu_context **context)
{
	int before = previous[--depth];

	return before >= 0 ? rt.set_device(before) : 0;
}

static int no_capture_mode(int *mode)
{
	return 0;
}

static int never_capturing(struct cu_stream *stream, int *status)
{
	*status = 0;
	return 0;
}

/* ------------------------------------------------------------------ memory */

struct allocation {
	struct allocation *next;
	uintptr_t base;
	size_t len;
};

static pthread_mutex_t allocations_lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations; /* protected by: allocations_lock */

static int mem_alloc(uintptr_t *addr, size_t len)
{
	struct allocation *a = malloc(sizeof(*a));
	void *p;
	int result;

	if (!a)
		return CU_OUT_OF_MEMORY;
	result = rt.malloc(&p, len);
	if (result) {
		free(a);
		return result;
	}
	*addr = (uintptr_t)p;
	pthread_mutex_lock(&allocations_lock);
	*a = (struct allocation){ allocations, *addr, len };
	allocations = a;
	pthread_mutex_unlock(&allocations_lock);
	return 0;
}

/* Where the allocation with @addr is linked, or NULL; with the lock held. */
static struct allocation **find_allocation(uintptr_t addr)
{
	for (struct allocation **a = &allocations; *a; a = &(*a)->next) {
		if (addr - (*a)->base < (*a)->len)
			return a;
	}
	return NULL;
}

static int mem_free(uintptr_t addr)
{
	struct allocation **link, *a = NULL;

	pthread_mutex_lock(&allocations_lock);
	link = find_allocation(addr);
	if (link) {
		a = *link;
		*link = a->next;
	}
	pthread_mutex_unlock(&allocations_lock);
	free(a);
	return rt.free((void *)addr);
}

static int mem_range(uintptr_t *base, size_t *len, uintptr_t addr)
{
	struct allocation **link;
	int result = INVALID_VALUE;

	pthread_mutex_lock(&allocations_lock);
	link = find_allocation(addr);
	if (link) {
		*base = (*link)->base;
		*len = (*link)->len;
		result = 0;
	}
	pthread_mutex_unlock(&allocations_lock);
	return result;
}

/* The attributes that the connector asks for. */
static void answer(int attribute, const struct runtime_pointer *p, bool known, uintptr_t start,
		   size_t len, void *out)
{
	switch (attribute) {
	case CU_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)out = (unsigned int)(p->type == 3 ? 2 : p->type);
		break;
	case CU_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)out = p->type == 3;
		break;
	case CU_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)out = p->type ? p->device : -1;
		break;
	case CU_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)out = 0;
		break;
	case CU_ATTRIBUTE_RANGE_START:
		*(uintptr_t *)out = known ? start : 0;
		break;
	case CU_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)out = known ? len : SIZE_MAX;
		break;
	case CU_ATTRIBUTE_MAPPING_BASE:
		*(uintptr_t *)out = start;
		break;
	case CU_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)out = len;
		break;
	}
}

static int pointer_attributes(unsigned int n, int *attributes, void **out, uintptr_t addr)
{
	struct runtime_pointer p = { 0 };
	uintptr_t start;
	size_t len;
	bool known;
	int result = rt.pointer(&p, (const void *)addr);

	if (result)
		return result;
	known = !mem_range(&start, &len, addr);
	if (!known) {
		start = addr & ~(DEVICE_PAGE - 1);
		len = DEVICE_PAGE;
	}
	for (unsigned int i = 0; i < n; i++)
		answer(attributes[i], &p, known, start, len, out[i]);
	return 0;
}

/* ------------------------------------------------------ copies and streams */

static int copy_dtod(uintptr_t dst, uintptr_t src, size_t n, struct cu_stream *stream)
{
	return rt.copy((void *)dst, (void *)src, n, DEVICE_TO_DEVICE, stream);
}

static int copy_htod(uintptr_t dst, uintptr_t src, size_t n, struct cu_stream *stream)
{
	return rt.copy((void *)dst, (void *)src, n, HOST_TO_DEVICE, stream);
}

static int copy_dtoh(uintptr_t dst, uintptr_t src, size_t n, struct cu_stream *stream)
{
	return rt.copy((void *)dst, (void *)src, n, DEVICE_TO_HOST, stream);
}

static int stream_word(struct cu_stream *stream, uintptr_t word, uint64_t value,
		       unsigned int flags)
{
	return CU_NOT_SUPPORTED;
}

/* -------------------------------------------------------------------- load */

struct nvidia_driver nvidia_driver;

static void *find_symbol(void *library, const char *name)
{
	char whole[64];
	void *found;

	snprintf(whole, sizeof(whole), "mc%s", name);
	found = dlsym(library, whole);
	if (found)
		return found;
	snprintf(whole, sizeof(whole), "cuda%s", name);
	return dlsym(library, whole);
}

static int resolve(void *library, const char *file, char *text, size_t size)
{
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].slot = find_symbol(library, symbols[i].name);
		if (!*symbols[i].slot && !symbols[i].optional) {
			snprintf(text, size, "%s lacks mc%s and cuda%s: is it such a runtime?",
				 file, symbols[i].name, symbols[i].name);
			return -ENOSYS;
		}
	}
	return 0;
}

static void fill_table(void)
{
	nvidia_driver = (struct nvidia_driver){
		.error_name = error_name,
		.error_string = error_string,
		.device_count = rt.device_count,
		.device_get = device_get,
		.device_name = device_name,
		.device_memory = device_memory,
		.device_bdf = rt.device_bdf,
		.device_attribute = device_attribute,
		.context_retain = context_retain,
		.context_create = context_create,
		.context_push = context_push,
		.context_pop = context_pop,
		.capture_mode = rt.capture_mode ? rt.capture_mode : no_capture_mode,
		.mem_alloc = mem_alloc,
		.mem_free = mem_free,
		.mem_range = mem_range,
		.pointer_attributes = pointer_attributes,
		.host_register = rt.host_register,
		.host_unregister = rt.host_unregister,
		.copy_dtod = copy_dtod,
		.copy_htod = copy_htod,
		.copy_dtoh = copy_dtoh,
		.stream_create = rt.stream_create,
		.stream_sync = rt.stream_sync,
		.stream_query = rt.stream_query,
		.event_create = rt.event_create,
		.event_record = rt.event_record,
		.event_query = rt.event_query,
		.event_sync = rt.event_sync,
		.event_destroy = rt.event_destroy,
		.is_capturing = rt.is_capturing ? rt.is_capturing : never_capturing,
		.launch_host_func = rt.launch_host_func,
		.wait_value = stream_word,
		.write_value = stream_word,
	};
}

int nvidia_driver_load(char *text, size_t size)
{
	const char *file = secure_getenv("PHX_METAX_RUNTIME");
	void *library;
	int err;

	if (!file || !*file)
		file = LIBRARY;
	library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(text, size, "%s not found: install MetaX's runtime, or name it in "
			 "PHX_METAX_RUNTIME", file);
		return -ENOENT;
	}
	err = resolve(library, file, text, size);
	if (err) {
		dlclose(library);
		return err;
	}
	fill_table();
	snprintf(text, size, "%s", file);
	return 0;
}

int nvidia_fail(int result, const char *call)
{
	return devconn_fail(nvidia_errno(result), "%s: %s (%s)", call, rt.error_name(result),
			    rt.error_string(result));
}
