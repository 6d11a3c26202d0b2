// SPDX-License-Identifier: Apache-2.0
/* The connectors built in, and the bodies of the slots that one lacks. */
#include <errno.h>

#include "devconnector.h"

/* A new vendor: its file, and its line here. HOST is last: it always works. */
const struct devconn_ops *const devconn_list[] = {
	&host_connector,
	NULL,
};

int devconn_no_alloc(int device, size_t len, void **addr)
{
	return -EOPNOTSUPP;
}

int devconn_no_free(int device, void *addr, size_t len)
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

int devconn_no_launch_host_func(void *stream, void (*fn)(void *arg), void *arg)
{
	return -EOPNOTSUPP;
}

int devconn_no_stream_word(void *stream, uint64_t *word, uint64_t value)
{
	return -EOPNOTSUPP;
}

void devconn_no_range_push(const char *name)
{
}

void devconn_no_range_pop(void)
{
}
