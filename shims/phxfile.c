// SPDX-License-Identifier: Apache-2.0
/*
 * The phxFile calls over libphoenix.
 *
 * Lock: lock protects the tree of buffers; not held while libphoenix registers
 * or waits for transfers.
 */
#include <errno.h>
#include <fcntl.h>
#include <phoenix.h>
#include <phxfile.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>

#include "pages.h"

_Static_assert(sizeof(off_t) == sizeof(int64_t) && sizeof(ssize_t) == sizeof(int64_t),
	       "offsets and counts are handed on by address");

struct buffer {
	uintptr_t base;
	size_t len;
	unsigned int users;
	struct pages pages;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *buffers;       /* of tsearch(3), by base */
static unsigned long opens;

static int compare(const void *a, const void *b)
{
	const struct buffer *x = a, *y = b;

	return (x->base > y->base) - (x->base < y->base);
}

static int any(const void *a, const void *b)
{
	return 0;
}

/* ----------------------------------------------------------------- buffers */

/* Counted among those there are, and @new not taken: 1; taken: 0; or -errno. */
static int add(struct buffer *new)
{
	struct buffer **node = tsearch(new, &buffers, compare);

	if (!node)
		return -ENOMEM;
	if (*node == new)
		return 0;
	if ((*node)->len != new->len)
		return -EEXIST;
	(*node)->users++;
	return 1;
}

int phxFileBufRegister(const void *addr, size_t len)
{
	struct buffer *buffer;
	int err;

	if (!addr || !len || (uintptr_t)addr + len < (uintptr_t)addr)
		return -EINVAL;
	buffer = malloc(sizeof(*buffer));
	if (!buffer)
		return -ENOMEM;
	*buffer = (struct buffer){ .base = (uintptr_t)addr, .len = len, .users = 1 };
	err = pages_register(addr, len, &buffer->pages);
	if (err) {
		free(buffer);
		return err;
	}
	pthread_mutex_lock(&lock);
	err = add(buffer);
	pthread_mutex_unlock(&lock);
	if (err) {
		pages_deregister(&buffer->pages); /* it was counted there too */
		free(buffer);
	}
	return err < 0 ? err : 0;
}

static void forget(struct buffer *buffer)
{
	pages_deregister(&buffer->pages);
	free(buffer);
}

int phxFileBufDeregister(const void *addr)
{
	struct buffer wanted = { .base = (uintptr_t)addr }, **node, *gone = NULL;

	pthread_mutex_lock(&lock);
	node = tfind(&wanted, &buffers, compare);
	if (node && --(*node)->users == 0) {
		gone = *node;
		tdelete(gone, &buffers, compare);
	}
	pthread_mutex_unlock(&lock);
	if (gone)
		forget(gone);
	return 0;
}

/* ------------------------------------------------------------------ driver */

int phxFileDriverOpen(void)
{
	pthread_mutex_lock(&lock);
	opens++;
	pthread_mutex_unlock(&lock);
	return 0;
}

/* Any buffer, out of the tree; with the lock held. */
static struct buffer *take_any(void)
{
	struct buffer **node = tfind(&lock, &buffers, any), *buffer = node ? *node : NULL;

	if (buffer)
		tdelete(buffer, &buffers, compare);
	return buffer;
}

int phxFileDriverClose(void)
{
	struct buffer *buffer;

	pthread_mutex_lock(&lock);
	if (opens)
		opens--;
	/* LMCache never opens: its first registration does, and its last owner closes */
	if (!opens) {
		while ((buffer = take_any())) {
			pthread_mutex_unlock(&lock);
			forget(buffer);
			pthread_mutex_lock(&lock);
		}
		pages_close();
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

/* -------------------------------------------------------- files and streams */

int phxFileHandleRegister(void **fh, int fd)
{
	if (!fh)
		return -EINVAL;
	if (fcntl(fd, F_GETFL) < 0)
		return -errno;
	*fh = (void *)((intptr_t)fd + 1); /* nothing is kept of a file; 0 would be NULL */
	return 0;
}

int phxFileHandleDeregister(void *fh)
{
	return 0;
}

int phxFileStreamRegister(void *stream)
{
	return 0;
}

int phxFileStreamDeregister(void *stream)
{
	return 0;
}

static void store(void *arg, ssize_t result)
{
	/* whoever polls for it sees the bytes too */
	__atomic_store_n((int64_t *)arg, (int64_t)result, __ATOMIC_RELEASE);
}

static int transfer(int op, void *fh, void *base, const size_t *n, const int64_t *file_off,
		    const int64_t *buf_off, int64_t *bytes, void *stream)
{
	struct phxfs_stream_io io = { .size = sizeof(io), .op = op,
				      .fd = (int)((intptr_t)fh - 1),
				      .device_id = PHXFS_DEVICE_ANY, .buf = base,
				      .stream = stream, .nbytes = n, .buf_offset = buf_off,
				      .f_offset = file_off, .done = store, .arg = bytes };

	if (!fh || !base || !n || !file_off || !buf_off || !bytes)
		return -EINVAL;
	return phxfs_io_stream(&io);
}

int phxFileReadAsync(void *fh, void *base, size_t *n, int64_t *file_off, int64_t *buf_off,
		     int64_t *bytes, void *stream)
{
	return transfer(PHXFS_OP_READ, fh, base, n, file_off, buf_off, bytes, stream);
}

int phxFileWriteAsync(void *fh, void *base, size_t *n, int64_t *file_off, int64_t *buf_off,
		      int64_t *bytes, void *stream)
{
	return transfer(PHXFS_OP_WRITE, fh, base, n, file_off, buf_off, bytes, stream);
}
