// SPDX-License-Identifier: Apache-2.0
/*
 * Transfers. libphoenix finds out whose memory the buffer is; here are cuFile's
 * own rules, and its words for what went wrong.
 */
#include <limits.h>
#include <stdlib.h>

#include "cufile.h"

_Static_assert(sizeof(CUfileIOVec_t) == sizeof(struct phxfs_iov) &&
	       offsetof(CUfileIOVec_t, base) == offsetof(struct phxfs_iov, buf) &&
	       offsetof(CUfileIOVec_t, len) == offsetof(struct phxfs_iov, nbytes),
	       "vectors are handed on as they are");

/* -1 and errno for a number, or for what libphoenix returned. */
static ssize_t fail(int number)
{
	errno = number;
	return -1;
}

static ssize_t result_of(ssize_t n)
{
	if (n >= 0)
		return n;
	return fail(n == -EFAULT ? EIO : (int)-n);
}

/* allow_compat_mode is false, and this buffer's bytes would be copied by the processor. */
static bool refused(const struct cf_file *file, const char *buf, size_t size, off_t offset)
{
	struct phxfs_path_info info = { .size = sizeof(info) };

	if (!atomic_load_explicit(&cf_strict, memory_order_relaxed) || !size ||
	    phxfs_pointer_device(buf) < 0)
		return false;
	return !phxfs_path_query(file->fd, PHXFS_DEVICE_ANY, buf, size, offset, &info) &&
	       info.path == PHXFS_PATH_BOUNCE;
}

/* 0, or what a transfer of these arguments fails with. */
static int check(const struct cf_file *file, bool write, const void *base, size_t size,
		 off_t file_offset, off_t buf_offset)
{
	int number = cf_file_refuses(file, write);

	if (number)
		return number;
	if (!cf_buffer_holds(base, buf_offset, size))
		return CU_FILE_INVALID_MAPPING_RANGE;
	if (refused(file, (const char *)base + buf_offset, size, file_offset))
		return CU_FILE_IO_NOT_SUPPORTED;
	return 0;
}

static ssize_t transfer(bool write, CUfileHandle_t fh, void *base, size_t size,
			off_t file_offset, off_t buf_offset)
{
	struct cf_file *file;
	ssize_t n = 0;
	int number;

	if (!fh || !base || size > SSIZE_MAX)
		return fail(EINVAL);
	if (file_offset < 0)
		return fail(CU_FILE_INVALID_VALUE);
	if (buf_offset < 0)
		return fail(CU_FILE_INTERNAL_ERROR);
	cf_driver_use();
	file = cf_file_get(fh);
	if (!file)
		return fail(CU_FILE_HANDLE_NOT_REGISTERED);
	number = check(file, write, base, size, file_offset, buf_offset);
	if (!number)
		n = write ? phxfs_write(file->fd, PHXFS_DEVICE_ANY, base, buf_offset,
					(ssize_t)size, file_offset) :
			    phxfs_read(file->fd, PHXFS_DEVICE_ANY, base, buf_offset,
				       (ssize_t)size, file_offset);
	cf_file_put(file);
	return number ? fail(number) : result_of(n);
}

ssize_t cuFileRead(CUfileHandle_t fh, void *bufPtr_base, size_t size, off_t file_offset,
		   off_t bufPtr_offset)
{
	uint64_t start = cf_stats_start();
	ssize_t n = transfer(false, fh, bufPtr_base, size, file_offset, bufPtr_offset);

	cf_count_io(CF_READ, n, size, start);
	return n;
}

ssize_t cuFileWrite(CUfileHandle_t fh, const void *bufPtr_base, size_t size, off_t file_offset,
		    off_t bufPtr_offset)
{
	uint64_t start = cf_stats_start();
	ssize_t n = transfer(true, fh, (void *)bufPtr_base, size, file_offset, bufPtr_offset);

	cf_count_io(CF_WRITE, n, size, start);
	return n;
}

/* ----------------------------------------------------------------- vectors */

static int check_all(const struct cf_file *file, bool write, const CUfileIOVec_t *iov, size_t n,
		     off_t file_offset)
{
	int number = 0;

	for (size_t i = 0; i < n && !number; i++) {
		if (!iov[i].base || iov[i].len > (size_t)(SSIZE_MAX - file_offset))
			return EINVAL;
		number = check(file, write, iov[i].base, iov[i].len, file_offset, 0);
		file_offset += (off_t)iov[i].len;
	}
	return number;
}

static ssize_t vector(bool write, CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t count,
		      off_t file_offset)
{
	const struct phxfs_iov *buffers = (const struct phxfs_iov *)iov;
	struct cf_file *file;
	ssize_t n = 0;
	int number;

	if (!fh || (count && !iov) || count > INT_MAX)
		return fail(EINVAL);
	if (file_offset < 0)
		return fail(CU_FILE_INVALID_VALUE);
	cf_driver_use();
	file = cf_file_get(fh);
	if (!file)
		return fail(CU_FILE_HANDLE_NOT_REGISTERED);
	number = check_all(file, write, iov, count, file_offset);
	if (!number)
		n = write ? phxfs_writev(file->fd, PHXFS_DEVICE_ANY, buffers, (int)count,
					 file_offset) :
			    phxfs_readv(file->fd, PHXFS_DEVICE_ANY, buffers, (int)count,
					file_offset);
	cf_file_put(file);
	return number ? fail(number) : result_of(n);
}

ssize_t cuFileReadv(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt,
		    off_t file_offset, unsigned int flags)
{
	uint64_t start = cf_stats_start();
	ssize_t n = flags ? fail(EINVAL) : vector(false, fh, iov, iovcnt, file_offset);

	cf_count_io(CF_READV, n, 0, start);
	return n;
}

ssize_t cuFileWritev(CUfileHandle_t fh, const CUfileIOVec_t *iov, size_t iovcnt,
		     off_t file_offset, unsigned int flags)
{
	uint64_t start = cf_stats_start();
	ssize_t n = flags ? fail(EINVAL) : vector(true, fh, iov, iovcnt, file_offset);

	cf_count_io(CF_WRITEV, n, 0, start);
	return n;
}
