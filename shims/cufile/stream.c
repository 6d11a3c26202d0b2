// SPDX-License-Identifier: Apache-2.0
/*
 * Transfers in the order of a stream. What a stream was registered for is all
 * that is kept of it: which arguments no longer change once a call was made.
 */
#include <pthread.h>
#include <search.h>
#include <stdlib.h>

#include "cufile.h"

#define KNOWN_FLAGS 0xfU

struct stream {
	struct CUstream_st *stream;
	unsigned int flags;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static void *streams; /* of tsearch(3); protected by: lock */

static int compare(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t)((const struct stream *)a)->stream;
	uintptr_t y = (uintptr_t)((const struct stream *)b)->stream;

	return (x > y) - (x < y);
}

static unsigned int flags_of(struct CUstream_st *stream)
{
	struct stream wanted = { .stream = stream }, **found;
	unsigned int flags;

	pthread_rwlock_rdlock(&lock);
	found = tfind(&wanted, &streams, compare);
	flags = found ? (*found)->flags : 0;
	pthread_rwlock_unlock(&lock);
	return flags;
}

CUfileError_t cuFileStreamRegister(struct CUstream_st *stream, unsigned int flags)
{
	struct stream *new, **found;
	int number = CU_FILE_SUCCESS;

	if (flags & ~KNOWN_FLAGS)
		return cf_result(CU_FILE_INVALID_VALUE);
	cf_driver_use();
	new = malloc(sizeof(*new));
	if (!new)
		return cf_result(CU_FILE_NOMEM_ERROR);
	*new = (struct stream){ stream, flags };
	pthread_rwlock_wrlock(&lock);
	found = tsearch(new, &streams, compare);
	if (!found)
		number = CU_FILE_NOMEM_ERROR;
	else if (*found != new)
		number = CU_FILE_INVALID_VALUE;
	pthread_rwlock_unlock(&lock);
	if (number)
		free(new);
	return cf_result(number);
}

CUfileError_t cuFileStreamDeregister(struct CUstream_st *stream)
{
	struct stream wanted = { .stream = stream }, **found, *old;

	pthread_rwlock_wrlock(&lock);
	found = tfind(&wanted, &streams, compare);
	old = found ? *found : NULL;
	if (old)
		tdelete(old, &streams, compare);
	pthread_rwlock_unlock(&lock);
	free(old);
	return cf_result(old ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE);
}

/* --------------------------------------------------------------- transfers */

/* Who creates: the call. Who frees: its end, in the stream; or the call, where it failed. */
struct async {
	struct cf_file *file; /* a reference */
	bool write;
	size_t size;          /* copies of what does not change */
	off_t file_offset, buf_offset;
	ssize_t *bytes;       /* the program's */
	uint64_t start;
};

/* Bytes, a CU_FILE_ number where one says more, or -1: a system error. */
static ssize_t word_for(ssize_t result)
{
	switch (result) {
	case -EFAULT: return -CU_FILE_INVALID_MAPPING_RANGE;
	case -EINVAL: return -CU_FILE_INVALID_VALUE;
	case -EOPNOTSUPP: return -CU_FILE_IO_NOT_SUPPORTED;
	case -ENOMEM: return -CU_FILE_NOMEM_ERROR;
	default: return result < 0 ? -1 : result;
	}
}

static void done(void *arg, ssize_t result)
{
	struct async *a = arg;

	cf_count_io(a->write ? CF_WRITE : CF_READ, result, result > 0 ? (size_t)result : 0,
		    a->start);
	*a->bytes = word_for(result);
	cf_file_put(a->file);
	free(a);
}

static int submit(struct async *a, void *base, const size_t *size, const off_t *file_offset,
		  const off_t *buf_offset, struct CUstream_st *stream)
{
	unsigned int flags = flags_of(stream);
	struct phxfs_stream_io io = { .size = sizeof(io),
				      .op = a->write ? PHXFS_OP_WRITE : PHXFS_OP_READ,
				      .fd = a->file->fd, .device_id = PHXFS_DEVICE_ANY,
				      .buf = base, .stream = stream, .nbytes = size,
				      .buf_offset = buf_offset, .f_offset = file_offset,
				      .done = done, .arg = a };
	int err;

	if (flags & CU_FILE_STREAM_FIXED_FILE_SIZE) {
		a->size = *size;
		io.nbytes = &a->size;
	}
	if (flags & CU_FILE_STREAM_FIXED_FILE_OFFSET) {
		a->file_offset = *file_offset;
		io.f_offset = &a->file_offset;
	}
	if (flags & CU_FILE_STREAM_FIXED_BUF_OFFSET) {
		a->buf_offset = *buf_offset;
		io.buf_offset = &a->buf_offset;
	}
	err = phxfs_io_stream(&io);
	return err == -EOPNOTSUPP ? CU_FILE_ASYNC_NOT_SUPPORTED : cf_number(err);
}

static CUfileError_t transfer(bool write, CUfileHandle_t fh, void *base, size_t *size,
			      off_t *file_offset, off_t *buf_offset, ssize_t *bytes,
			      struct CUstream_st *stream)
{
	struct cf_file *file;
	struct async *a;
	int number;

	if (!fh || !base || !size || !file_offset || !buf_offset || !bytes)
		return cf_result(CU_FILE_INVALID_VALUE);
	cf_driver_use();
	file = cf_file_get(fh);
	if (!file)
		return cf_result(CU_FILE_HANDLE_NOT_REGISTERED);
	number = cf_file_refuses(file, write);
	if (number == EIO)
		number = CU_FILE_INVALID_FILE_OPEN_FLAG;
	a = number ? NULL : calloc(1, sizeof(*a));
	if (!a) {
		cf_file_put(file);
		return cf_result(number ? number : CU_FILE_NOMEM_ERROR);
	}
	*a = (struct async){ .file = file, .write = write, .bytes = bytes,
			     .start = cf_stats_start() };
	number = submit(a, base, size, file_offset, buf_offset, stream);
	if (number) {
		cf_file_put(file);
		free(a);
	}
	return cf_result(number);
}

CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *bufPtr_base, size_t *size_p,
			      off_t *file_offset_p, off_t *bufPtr_offset_p, ssize_t *bytes_read_p,
			      struct CUstream_st *stream)
{
	return transfer(false, fh, bufPtr_base, size_p, file_offset_p, bufPtr_offset_p,
			bytes_read_p, stream);
}

CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *bufPtr_base, size_t *size_p,
			       off_t *file_offset_p, off_t *bufPtr_offset_p,
			       ssize_t *bytes_written_p, struct CUstream_st *stream)
{
	return transfer(true, fh, bufPtr_base, size_p, file_offset_p, bufPtr_offset_p,
			bytes_written_p, stream);
}
