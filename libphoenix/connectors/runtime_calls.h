/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runtime with CUDA's functions and numbers under a vendor's own prefix, made to look
 * like the driver that the NVIDIA connector calls. Included once by each vendor's
 * <vendor>_runtime.c, which adds what differs: the functions declared first.
 *
 * A runtime has a current device where the driver has a stack of contexts: a "context"
 * here is the device's number, and what was current is put back.
 */
#ifndef RUNTIME_CALLS_H
#define RUNTIME_CALLS_H

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>

#include "devconnector.h"
#include "nvidia_driver.h"

#define RUNTIME_MAX_DEPTH 4
#define RUNTIME_INVALID_VALUE 1

static int device_name(char *name, int len, int device);
static int device_memory(size_t *bytes, int device);
static int mem_alloc(uintptr_t *addr, size_t len);
static int mem_free(uintptr_t addr);
static int mem_range(uintptr_t *base, size_t *len, uintptr_t addr);
static int pointer_attributes(unsigned int n, int *attributes, void **out, uintptr_t addr);

enum { HOST_TO_DEVICE = 1, DEVICE_TO_HOST, DEVICE_TO_DEVICE };

static struct {
	const char *(*error_name)(int result);
	const char *(*error_string)(int result);
	int (*device_count)(int *count);
	int (*device_bdf)(char *bdf, int len, int device);
	int (*get_device)(int *device);
	int (*set_device)(int device);
	int (*malloc)(void **p, size_t len);
	int (*free)(void *p);
	int (*pointer)(void *out, const void *p);
	int (*peek_error)(void);
	int (*last_error)(void);
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

struct runtime_symbol {
	const char *name; /* behind the vendor's prefix */
	void **slot;
	int optional;
};

static const struct runtime_symbol runtime_symbols[] = {
	{ "GetErrorName", (void **)&rt.error_name, 0 },
	{ "GetErrorString", (void **)&rt.error_string, 0 },
	{ "GetDeviceCount", (void **)&rt.device_count, 0 },
	{ "DeviceGetPCIBusId", (void **)&rt.device_bdf, 0 },
	{ "GetDevice", (void **)&rt.get_device, 0 },
	{ "SetDevice", (void **)&rt.set_device, 0 },
	{ "Malloc", (void **)&rt.malloc, 0 },
	{ "Free", (void **)&rt.free, 0 },
	{ "PointerGetAttributes", (void **)&rt.pointer, 0 },
	{ "PeekAtLastError", (void **)&rt.peek_error, 0 },
	{ "GetLastError", (void **)&rt.last_error, 0 },
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
	{ 0 },
};

/* ------------------------------------------------------------- the driver's calls */

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

/* Asked only whether streams write words for us: events do. */
static int device_attribute(int *value, int attribute, int device)
{
	*value = 0;
	return 0;
}

static _Thread_local int previous[RUNTIME_MAX_DEPTH];
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

	if (depth == RUNTIME_MAX_DEPTH)
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

/*
 * Asking about memory that is not the runtime's is no error of the program's, which may
 * look for one in this thread later.
 */
static int pointer_query(void *out, uintptr_t addr)
{
	int before = rt.peek_error(), result = rt.pointer(out, (const void *)addr);

	if (result && !before)
		rt.last_error();
	return result;
}

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

static int no_stream_word(struct cu_stream *stream, uintptr_t word, uint64_t value,
			  unsigned int flags)
{
	return CU_NOT_SUPPORTED;
}

/*
 * The symbols of the table by the first of the two prefixes that has them; @other may
 * be NULL. -ENOSYS with the reason in @text.
 */
static int runtime_resolve(void *library, const char *file, const struct runtime_symbol *s,
			   const char *prefix, const char *other, char *text, size_t size)
{
	char name[64];

	for (; s->name; s++) {
		snprintf(name, sizeof(name), "%s%s", prefix, s->name);
		*s->slot = dlsym(library, name);
		if (!*s->slot && other) {
			snprintf(name, sizeof(name), "%s%s", other, s->name);
			*s->slot = dlsym(library, name);
		}
		if (!*s->slot && !s->optional) {
			snprintf(text, size, "%s lacks %s%s%s%s%s: is it such a runtime?", file,
				 prefix, s->name, other ? " and " : "", other ? other : "",
				 other ? s->name : "");
			return -ENOSYS;
		}
	}
	return 0;
}

/* The whole table; a vendor that has more than this puts it in. */
static void runtime_fill(struct nvidia_driver *driver)
{
	*driver = (struct nvidia_driver){
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
		.wait_value = no_stream_word,
		.write_value = no_stream_word,
	};
}

struct nvidia_driver nvidia_driver;

/* The connector names the driver's call: "cuMemAlloc". */
int nvidia_fail(int result, const char *call)
{
	return devconn_fail(nvidia_errno(result), "%s: %s (%s)",
			    call[0] == 'c' && call[1] == 'u' ? call + 2 : call,
			    rt.error_name(result), rt.error_string(result));
}

#endif
