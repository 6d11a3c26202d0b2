// SPDX-License-Identifier: Apache-2.0
/* The connectors built in, and the bodies of the slots that one lacks. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "devconnector.h"
#include "../phx_error.h"

static _Thread_local char detail[192];
static _Thread_local int detail_err;

int devconn_fail(int err, const char *format, ...)
{
	char before[sizeof(detail)];
	va_list args;

	memcpy(before, detail, sizeof(before));
	va_start(args, format);
	vsnprintf(detail, sizeof(detail), format, args);
	va_end(args);
	detail_err = err;
	/* A device that has died fails every call in the same way: once is enough. */
	phx_log(strcmp(before, detail) ? PHXFS_LOG_WARN : PHXFS_LOG_DEBUG, "%s: %s", detail,
		phx_errno_name(err));
	return err;
}

const char *devconn_detail(int err)
{
	static _Thread_local char text[sizeof(detail) + 2];

	if (!detail_err || detail_err != err)
		return "";
	snprintf(text, sizeof(text), ": %s", detail);
	return text;
}

static int bare_init(char *text, size_t size)
{
	return 0;
}

static int bare_count(void)
{
	return 0;
}

static int bare_describe(int ordinal, struct devconn_device *out)
{
	return -ENODEV;
}

static int bare_find(int ordinal)
{
	return -1;
}

static int bare_pointer(const void *addr, struct devconn_pointer *out)
{
	return -ENOENT;
}

/* A new vendor: its file, and its line here. HOST is last: it always works. */
const struct devconn_ops *const devconn_list[] = {
	&nvidia_connector,
	&metax_connector,
	&amd_connector,
	&huawei_connector,
	&sim_connector,
	&host_connector,
	NULL,
};

/* A device that the module serves and no runtime here knows. */
const struct devconn_ops bare_connector = {
	.abi = DEVCONN_ABI,
	.name = "module",
	.page_size = 65536,
	.init = bare_init,
	.device_count = bare_count,
	.device_describe = bare_describe,
	.find_device = bare_find,
	.mem_alloc = devconn_no_alloc,
	.mem_free = devconn_no_free,
	.pointer_device = bare_pointer,
	.host_alloc = devconn_host_alloc,
	.host_free = devconn_host_free,
	.export_dmabuf = devconn_no_export,
	.memcpy_dtod = devconn_no_copy,
	.memcpy_htod = devconn_no_copy,
	.memcpy_dtoh = devconn_no_copy,
	.memcpy_dtod_async = devconn_no_copy_async,
	.memcpy_htod_async = devconn_no_copy_async,
	.memcpy_dtoh_async = devconn_no_copy_async,
	.queue_sync = devconn_no_queue_sync,
	.event_record = devconn_no_event_record,
	.event_done = devconn_no_event,
	.event_wait = devconn_no_event,
	.event_free = devconn_no_event_free,
	.launch_host_func = devconn_no_launch_host_func,
	.stream_held = devconn_no_stream_held,
	.stream_wait = devconn_no_stream_word,
	.stream_signal = devconn_no_stream_word,
	.range_push = devconn_no_range_push,
	.range_pop = devconn_no_range_pop,
};

int devconn_host_alloc(int device, size_t len, void **addr)
{
	return host_connector.host_alloc(device, len, addr);
}

int devconn_host_free(int device, void *addr, size_t len)
{
	return host_connector.host_free(device, addr, len);
}

int devconn_no_alloc(int device, size_t len, void **addr)
{
	return -EOPNOTSUPP;
}

int devconn_no_free(int device, void *addr, size_t len)
{
	return -EOPNOTSUPP;
}

int devconn_no_export(int device, const void *addr, size_t len, int *fd, uint64_t *offset)
{
	return -EOPNOTSUPP;
}

int devconn_no_copy(int device, void *dst, const void *src, size_t n)
{
	return -EOPNOTSUPP;
}

int devconn_no_copy_async(int device, int slot, void *dst, const void *src, size_t n)
{
	return -EOPNOTSUPP;
}

int devconn_no_queue_sync(int device, int slot)
{
	return -EOPNOTSUPP;
}

int devconn_no_event_record(int device, int slot, void **event)
{
	return -EOPNOTSUPP;
}

int devconn_no_event(int device, void *event)
{
	return -EOPNOTSUPP;
}

void devconn_no_event_free(int device, void *event)
{
}

int devconn_no_launch_host_func(void *stream, void (*fn)(void *arg), void *arg)
{
	return -EOPNOTSUPP;
}

int devconn_no_stream_word(void *stream, uint64_t *word, uint64_t value)
{
	return -EOPNOTSUPP;
}

int devconn_no_stream_held(int device, int change)
{
	return 0;
}

void devconn_no_range_push(const char *name)
{
}

void devconn_no_range_pop(void)
{
}
