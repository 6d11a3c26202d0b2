// SPDX-License-Identifier: Apache-2.0
/*
 * Scattered transfers: one range of a file, several buffers.
 *
 * When every buffer goes direct, preadv(2) or pwritev(2) moves them, up to
 * IOV_MAX at a time. Where it stops (the end of the file, an error, an
 * unaligned O_DIRECT request) the buffers are gone on with one by one, by the
 * exact transfer.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "phx_error.h"
#include "phx_init.h"
#include "phx_stats.h"
#include "phx_xfer.h"

#define GROUP 64 /* buffers handed to the kernel at once; held on the stack */

struct vec {
	bool write;
	int fd;
	int count;
	struct phx_xfer *xfers;
	off_t off;
	size_t total;
};

static int resolve(struct vec *v, int device_id, const struct phxfs_iov *iov, off_t f_offset)
{
	int i, err = 0;

	for (i = 0; i < v->count; i++) {
		if (iov[i].nbytes > SSIZE_MAX - v->total) {
			err = phx_fail(-EINVAL, v->write ? "writev" : "readv", NULL,
				       "the lengths of %d buffers wrap", v->count);
			break;
		}
		err = phx_xfer_start(&v->xfers[i], v->write, v->fd, device_id, iov[i].buf, 0,
				     iov[i].nbytes, f_offset + (off_t)v->total);
		if (err)
			break;
		v->total += iov[i].nbytes;
	}
	if (err) {
		while (i-- > 0)
			phx_xfer_drop(&v->xfers[i]);
	}
	return err;
}

/* As phx_xfer_must_cut(), for @sum bytes of which the first are @x's. */
static bool vec_cuts(struct phx_xfer *x, size_t sum)
{
	return ((size_t)x->off | sum) & (phx_file_page - 1) && phx_xfer_cuts(x, sum);
}

/* The kernel's way, for buffers @first on; bytes, -errno, or 0: not to be tried. */
static ssize_t move_group(struct vec *v, int first, int n)
{
	struct iovec iov[GROUP];
	off_t off = v->xfers[first].off;
	size_t sum = 0;

	for (int i = 0; i < n; i++) {
		struct phx_xfer *x = &v->xfers[first + i];

		if (x->path != PHXFS_PATH_DIRECT || x->len > PHXFS_IO_CHUNK - sum) {
			n = i;
			break;
		}
		iov[i] = (struct iovec){ x->io, x->len };
		sum += x->len;
	}
	if (!n || (v->write && vec_cuts(&v->xfers[first], sum)))
		return 0;
	return v->write ? pwritev(v->fd, iov, n, off) : preadv(v->fd, iov, n, off);
}

static ssize_t run(struct vec *v)
{
	size_t done = 0;

	if (!v->total) { /* the kernel judges the descriptor */
		char none;
		ssize_t n = v->write ? pwrite(v->fd, &none, 0, v->off) :
				       pread(v->fd, &none, 0, v->off);

		return n < 0 ? -errno : 0;
	}
	for (int i = 0; i < v->count;) {
		int n = v->count - i < GROUP ? v->count - i : GROUP, err;
		size_t moved;
		ssize_t got;

		got = n > 1 ? move_group(v, i, n) : 0;
		if (got > 0)
			done += (size_t)got;
		/* Whole buffers that are done; then the one it stopped in. */
		while (got > 0 && i < v->count && (size_t)got >= v->xfers[i].len) {
			phx_xfer_count(&v->xfers[i], v->xfers[i].len);
			got -= (ssize_t)v->xfers[i++].len;
		}
		if (i == v->count)
			break;
		if (got > 0)
			phx_xfer_count(&v->xfers[i], (size_t)got);
		else
			got = 0;
		err = phx_xfer_part(&v->xfers[i], (size_t)got, v->xfers[i].len - (size_t)got,
				    &moved);
		done += moved;
		if (err || (size_t)got + moved < v->xfers[i].len)
			return phx_xfer_result(done, err);
		i++;
	}
	return (ssize_t)done;
}

static ssize_t transfer(bool write, int fd, int device_id, const struct phxfs_iov *iov, int n,
			off_t f_offset)
{
	struct vec v = { .write = write, .fd = fd, .count = n, .off = f_offset };
	unsigned int mark;
	ssize_t result;
	int err;

	phx_init();
	if (n < 0 || (n && !iov) || f_offset < 0)
		return phx_fail(-EINVAL, write ? "writev" : "readv", NULL,
				"%d buffers at file offset %lld", n, (long long)f_offset);
	v.xfers = calloc(n ? (size_t)n : 1, sizeof(*v.xfers));
	if (!v.xfers)
		return phx_fail(-ENOMEM, write ? "writev" : "readv", NULL, "%d buffers", n);
	err = resolve(&v, device_id, iov, f_offset);
	if (err) {
		free(v.xfers);
		return err;
	}
	mark = phx_error_mark();
	result = run(&v);
	/* One transfer to the counters: the first buffer's. */
	for (int i = 1; i < n; i++) {
		atomic_fetch_add(&v.xfers[0].chunked, atomic_load(&v.xfers[i].chunked));
		phx_xfer_drop(&v.xfers[i]);
	}
	if (n)
		phx_xfer_end(&v.xfers[0], result);
	free(v.xfers);
	if (result < 0 && !phx_error_since(mark, (int)result))
		phx_xfer_fail((int)result, write, fd, v.total, f_offset);
	return result;
}

ssize_t phxfs_readv(int fd, int device_id, const struct phxfs_iov *iov, int n, off_t f_offset)
{
	return transfer(false, fd, device_id, iov, n, f_offset);
}

ssize_t phxfs_writev(int fd, int device_id, const struct phxfs_iov *iov, int n, off_t f_offset)
{
	return transfer(true, fd, device_id, iov, n, f_offset);
}
