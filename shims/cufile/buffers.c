// SPDX-License-Identifier: Apache-2.0
/*
 * Buffers that were registered. The tree here answers cuFile's own questions: is
 * this base registered, and does a transfer stay within. What libphoenix holds of
 * a buffer is pages.h's.
 */
#include <pthread.h>
#include <search.h>
#include <stdlib.h>

#include "cufile.h"
#include "pages.h"

struct buffer {
	uintptr_t base;
	size_t len;
	struct pages pages;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static void *buffers; /* of tsearch(3), by base; protected by: lock */

static int compare(const void *a, const void *b)
{
	const struct buffer *x = a, *y = b;

	return (x->base > y->base) - (x->base < y->base);
}

static struct buffer *find(const void *base)
{
	struct buffer wanted = { .base = (uintptr_t)base };
	struct buffer **found = tfind(&wanted, &buffers, compare);

	return found ? *found : NULL;
}

bool cf_buffer_holds(const void *base, off_t offset, size_t size)
{
	struct buffer *buffer;
	bool holds;

	pthread_rwlock_rdlock(&lock);
	buffer = find(base);
	holds = !buffer || ((size_t)offset <= buffer->len && size <= buffer->len - (size_t)offset);
	pthread_rwlock_unlock(&lock);
	return holds;
}

static void forget(struct buffer *buffer)
{
	pages_deregister(&buffer->pages);
	free(buffer);
}

static int add(struct buffer *buffer)
{
	struct buffer **node;
	int number = CU_FILE_SUCCESS;

	pthread_rwlock_wrlock(&lock);
	node = tsearch(buffer, &buffers, compare);
	if (!node)
		number = CU_FILE_NOMEM_ERROR;
	else if (*node != buffer)
		number = CU_FILE_MEMORY_ALREADY_REGISTERED;
	pthread_rwlock_unlock(&lock);
	return number;
}

static struct buffer *take(const void *base)
{
	struct buffer *buffer;

	pthread_rwlock_wrlock(&lock);
	buffer = find(base);
	if (buffer)
		tdelete(buffer, &buffers, compare);
	pthread_rwlock_unlock(&lock);
	return buffer;
}

static int register_buffer(const void *base, size_t len)
{
	struct buffer *buffer;
	int number, err;

	if (!base || !len || (uintptr_t)base + len < (uintptr_t)base)
		return CU_FILE_INVALID_VALUE;
	number = cf_driver_use();
	if (number)
		return number;
	buffer = malloc(sizeof(*buffer));
	if (!buffer)
		return CU_FILE_NOMEM_ERROR;
	*buffer = (struct buffer){ .base = (uintptr_t)base, .len = len };
	err = pages_register(base, len, &buffer->pages);
	number = err == -ERANGE ? CU_FILE_CUDA_POINTER_RANGE_ERROR : cf_number(err);
	if (!number)
		number = add(buffer);
	if (number)
		forget(buffer);
	return number;
}

CUfileError_t cuFileBufRegister(const void *bufPtr_base, size_t length, int flags)
{
	return cf_count(CF_BUF_REGISTER, register_buffer(bufPtr_base, length));
}

static int deregister_buffer(const void *base)
{
	struct buffer *buffer;

	if (!cf_driver_is_open())
		return CU_FILE_DRIVER_CLOSING;
	buffer = base ? take(base) : NULL;
	if (!buffer)
		return base ? CU_FILE_MEMORY_NOT_REGISTERED : CU_FILE_INVALID_VALUE;
	forget(buffer);
	return CU_FILE_SUCCESS;
}

CUfileError_t cuFileBufDeregister(const void *bufPtr_base)
{
	return cf_count(CF_BUF_DEREGISTER, deregister_buffer(bufPtr_base));
}

static int any(const void *a, const void *b)
{
	return 0;
}

void cf_buffers_close(void)
{
	struct buffer **found, *buffer;

	do {
		pthread_rwlock_wrlock(&lock);
		found = tfind(&lock, &buffers, any);
		buffer = found ? *found : NULL;
		if (buffer)
			tdelete(buffer, &buffers, compare);
		pthread_rwlock_unlock(&lock);
		if (buffer)
			forget(buffer);
	} while (buffer);
}
