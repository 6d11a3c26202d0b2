// SPDX-License-Identifier: Apache-2.0
/*
 * Single transfers: resolving a request, running it, counting it. What happens
 * when one system call does not do it stands in phx_exact.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "phx_config.h"
#include "phx_error.h"
#include "phx_init.h"
#include "phx_job.h"
#include "phx_path.h"
#include "phx_staging.h"
#include "phx_stats.h"
#include "phx_xfer.h"
#include "io_engine/io_poll.h"

/* Chunked transfers longer than this are cut, and may call workers for help. */
#define HELP_THRESHOLD (512UL << 10)
#define ASK_THRESHOLD (512UL << 10)

/* ------------------------------------------------------------- resolving */

static const char *op_name(bool write)
{
	return write ? "write" : "read";
}

static __attribute__((cold)) int fail_range(bool write, const void *buf, off_t buf_offset,
					    size_t nbytes, off_t f_offset)
{
	return phx_fail(-EINVAL, op_name(write), "sizes and offsets must not be negative or wrap",
			"%zu bytes at file offset %lld, buffer %p + %lld", nbytes,
			(long long)f_offset, buf, (long long)buf_offset);
}

static __attribute__((cold)) int fail_buffer(bool write, int device_id, uintptr_t addr, size_t len)
{
	struct phx_device *dev = phx_device_find(device_id);
	struct phx_region *part;

	if (!dev)
		return phx_fail(-EFAULT, op_name(write), "phx check lists the devices",
				"no device %d", device_id);
	part = phx_region_get(dev, addr, 1);
	if (!part)
		return phx_fail(-EFAULT, op_name(write), "register the buffer with phxfs_regmem()",
				"%#zx is in no registration of device %d", (size_t)addr, device_id);
	phx_fail(-EFAULT, op_name(write), "stay inside one registration",
		 "%zu bytes at %#zx pass the end of the registration of %#zx bytes at %#zx", len,
		 (size_t)addr, atomic_load(&part->range.len),
		 (size_t)atomic_load(&part->range.base));
	phx_region_put(dev, part);
	return -EFAULT;
}

/*
 * FULL: on a buffered descriptor the CPU would copy between page cache and
 * BAR, which it reads at tens of MB/s. Such requests go by the copy engine.
 * Asking costs a system call, so reads below ASK_THRESHOLD, whose copy into the
 * BAR (write-combining) is about as quick, are not asked about.
 */
static __attribute__((noinline)) void avoid_page_cache(struct phx_xfer *x)
{
	if (x->path == PHXFS_PATH_DIRECT && phx_config.path == PHX_PATH_AUTO &&
	    (x->write || x->len >= ASK_THRESHOLD) && !(phx_xfer_flags(x) & O_DIRECT))
		x->path = PHXFS_PATH_BOUNCE;
}

/*
 * The kernel checks the alignment of one extent after the other, and may have
 * written the first ones, or cleared parts of the buffer, when it finds fault
 * with the last.
 */
static bool unaligned(struct phx_xfer *x)
{
	struct phx_file file = phx_file(x->fd, x->device_id);
	size_t memory, block;

	if (!(phx_file_flags(&file) & O_DIRECT))
		return false;
	phx_file_demands(&file, &memory, &block);
	return (((size_t)x->off | x->len) & (block - 1)) || ((uintptr_t)x->io & (memory - 1));
}

/* No bytes: no buffer is needed, the kernel judges the descriptor. */
static __attribute__((noinline, cold)) int start_empty(struct phx_xfer *x)
{
	x->dev = NULL;
	x->io = x->addr;
	x->path = PHXFS_PATH_DIRECT;
	x->start_ns = 0;
	return 0;
}

static inline char *io_address(struct phx_region *region, uintptr_t addr)
{
	uintptr_t base;

	if (!region->io_addr)
		return NULL;
	base = atomic_load_explicit(&region->range.base, memory_order_relaxed);
	return (char *)(region->io_addr + (addr - base));
}

static void start_in_region(struct phx_xfer *x, struct phx_device *dev, struct phx_region *region)
{
	x->device_id = dev->id;
	x->dev = dev;
	x->region = region;
	x->io = io_address(region, (uintptr_t)x->addr);
	x->path = dev->path;
	if (dev->mode == PHXFS_MODE_FULL)
		avoid_page_cache(x);
}

/* PHXFS_DEVICE_ANY: a registration of any device, memory of a device, or of the host. */
static __attribute__((noinline)) int start_any(struct phx_xfer *x)
{
	uintptr_t addr = (uintptr_t)x->addr, end = addr + x->len;
	struct devconn_pointer at = { .device = -1 };
	struct phx_device *dev;

	if (!x->len) {
		x->device_id = -1;
		return start_empty(x);
	}
	for (int id = 0; (dev = phx_device_next(id)); id = dev->id + 1) {
		struct phx_region *region = phx_region_get(dev, addr, x->len);

		if (region) {
			start_in_region(x, dev, region);
			x->start_ns = phx_stats_start();
			return 0;
		}
	}
	dev = phx_device_of_memory(x->addr, x->len, &at);
	if (dev && end > at.base + at.len)
		return phx_fail(-EFAULT, op_name(x->write), "stay inside one allocation",
				"%zu bytes at %p pass the end of the allocation of %#zx bytes at "
				"%#zx", x->len, (void *)x->addr, at.len, (size_t)at.base);
	x->device_id = dev ? dev->id : -1;
	x->dev = dev;
	x->io = dev ? NULL : x->addr;
	if (!dev)
		x->path = phx_path_host;
	else
		x->path = phx_config.path == PHX_PATH_DIRECT ? -1 : PHXFS_PATH_BOUNCE;
	x->start_ns = phx_stats_start();
	return 0;
}

/*
 * Inline: this is what a small transfer costs. @near, when not NULL, holds a
 * region for longer than @x will run; a buffer in it needs no hold of its own.
 */
static inline __attribute__((always_inline)) int
start(struct phx_xfer *x, bool write, int fd, int device_id, const void *buf, off_t buf_offset,
      size_t nbytes, off_t f_offset, const struct phx_xfer *near)
{
	uintptr_t addr = (uintptr_t)buf + (size_t)buf_offset;

	/* A sum that wraps is negative: no file is longer than that. */
	if ((buf_offset | f_offset | (off_t)((size_t)f_offset + nbytes)) < 0 ||
	    addr < (uintptr_t)buf || addr + nbytes < addr)
		return fail_range(write, buf, buf_offset, nbytes, f_offset);

	x->fd = fd;
	x->write = write;
	x->part = false;
	x->poll = false;
	x->flags = -1;
	x->addr = (char *)addr;
	x->len = nbytes;
	x->off = f_offset;
	x->uncounted = 0;
	atomic_init(&x->chunked, 0);
	atomic_init(&x->stop_at, SIZE_MAX);
	if (device_id < 0) {
		x->region = NULL;
		if (device_id == PHXFS_DEVICE_ANY)
			return start_any(x);
		x->device_id = -1;
		x->dev = NULL;
		x->io = (char *)addr;
		x->path = phx_path_host;
	} else {
		bool same = near && near->device_id == device_id;
		struct phx_device *dev = same ? near->dev : phx_device_find(device_id);

		x->device_id = device_id;
		x->dev = dev;
		if (same && phx_region_contains(near->region, addr, nbytes)) {
			x->region = NULL;
			x->io = io_address(near->region, addr);
		} else {
			x->region = dev ? phx_region_get(dev, addr, nbytes) : NULL;
			if (!x->region)
				return nbytes ? fail_buffer(write, device_id, addr, nbytes) :
						start_empty(x);
			x->io = io_address(x->region, addr);
		}
		x->path = dev->path;
		if (__builtin_expect(dev->mode == PHXFS_MODE_FULL, 0))
			avoid_page_cache(x);
	}
	x->start_ns = phx_stats_start();
	return 0;
}

/* PHX_PATH=direct: refuse what cannot go direct, before it begins. */
static __attribute__((noinline, cold)) int enforce(struct phx_xfer *x)
{
	if (x->path < 0) {
		phx_xfer_drop(x);
		return phx_fail(-EOPNOTSUPP, op_name(x->write), "unset PHX_PATH, or load phxfs.ko",
				"PHX_PATH=direct, and device %d: %s", x->device_id,
				x->dev->reason[0] ? x->dev->reason : "no registration holds it");
	}
	if (unaligned(x)) {
		phx_xfer_drop(x);
		return phx_xfer_fail(-EOPNOTSUPP, x->write, x->fd, x->len, x->off);
	}
	return 0;
}

static inline __attribute__((always_inline)) int
start_checked(struct phx_xfer *x, bool write, int fd, int device_id, const void *buf,
	      off_t buf_offset, size_t nbytes, off_t f_offset, const struct phx_xfer *near)
{
	int err = start(x, write, fd, device_id, buf, buf_offset, nbytes, f_offset, near);

	if (__builtin_expect(phx_config.path == PHX_PATH_DIRECT, 0) && !err)
		err = enforce(x);
	return err;
}

int phx_xfer_start(struct phx_xfer *x, bool write, int fd, int device_id, const void *buf,
		   off_t buf_offset, size_t nbytes, off_t f_offset)
{
	return start_checked(x, write, fd, device_id, buf, buf_offset, nbytes, f_offset, NULL);
}

int phx_xfer_probe(struct phx_xfer *x, int fd, int device_id, const void *buf, size_t nbytes,
		   off_t f_offset)
{
	return start(x, false, fd, device_id, buf, 0, nbytes, f_offset, NULL);
}

int phx_xfer_start_req(struct phx_xfer *x, bool write, const phxfs_io_req_t *r,
		       const struct phx_xfer *near)
{
	return start_checked(x, write, r->fd, r->device_id, r->buf, r->buf_offset, r->nbytes,
			     r->f_offset, near);
}

/* The path that most of the bytes took. */
static inline int path_taken(struct phx_xfer *x, ssize_t result)
{
	size_t chunked = atomic_load_explicit(&x->chunked, memory_order_relaxed);

	return chunked && result > 0 && chunked > (size_t)result / 2 ? PHXFS_PATH_BOUNCE : x->path;
}

static inline void let_go(struct phx_xfer *x)
{
	if (x->start_ns)
		phx_stats_latency(x->write, x->start_ns);
	if (x->region)
		phx_region_put(x->dev, x->region);
}

void phx_xfer_drop(struct phx_xfer *x)
{
	if (x->region)
		phx_region_put(x->dev, x->region);
	x->region = NULL;
}

void phx_xfer_end(struct phx_xfer *x, ssize_t result)
{
	phx_stats_ops(x->device_id, x->write, path_taken(x, result), 1, 0, result < 0);
	phx_xfer_count(x, x->uncounted);
	let_go(x);
}

void phx_tally_flush(struct phx_tally *tally)
{
	if (tally->ops)
		phx_stats_ops(tally->device_id, tally->write, tally->path, tally->ops,
			      tally->bytes, false);
	tally->ops = 0;
	tally->bytes = 0;
}

void phx_xfer_end_tally(struct phx_xfer *x, ssize_t result, struct phx_tally *tally)
{
	int path = path_taken(x, result);

	if (result < 0 || path != x->path) {
		phx_xfer_end(x, result);
		return;
	}
	if (tally->device_id != x->device_id || tally->path != path || tally->write != x->write) {
		phx_tally_flush(tally);
		tally->device_id = x->device_id;
		tally->path = path;
		tally->write = x->write;
	}
	tally->ops++;
	tally->bytes += x->uncounted;
	let_go(x);
}

void phx_xfer_count(struct phx_xfer *x, size_t bytes)
{
	if (bytes && !x->part)
		phx_stats_bytes(x->device_id, x->write, x->path, bytes);
}

int phx_xfer_flags(struct phx_xfer *x)
{
	if (x->flags < 0) {
		struct phx_file file = phx_file(x->fd, x->device_id);

		x->flags = phx_file_flags(&file);
	}
	return x->flags;
}

bool phx_xfer_cuts(struct phx_xfer *x, size_t len)
{
	return len && x->path == PHXFS_PATH_DIRECT && phx_config.path != PHX_PATH_DIRECT &&
	       phx_xfer_flags(x) & O_DIRECT;
}

int phx_xfer_fail(int err, bool write, int fd, size_t len, off_t off)
{
	const char *cure = NULL;

	if (err == -EOPNOTSUPP)
		cure = "PHX_PATH=direct: align requests and buffers to the file system's block";
	else if (err == -EINVAL)
		cure = "check the descriptor and the offsets; phx check PATH tests the file system";
	else if (err == -EFAULT)
		cure = "register the buffer on that device, and keep it mapped";
	else if (err == -EBADF)
		cure = write ? "open the file for writing" : "open the file for reading";
	return phx_fail(err, op_name(write), cure, "%zu bytes at offset %lld of descriptor %d", len,
			(long long)off, fd);
}

/* ------------------------------------------------------------ whole calls */

static bool wants_help(struct phx_xfer *x)
{
	return x->path != PHXFS_PATH_DIRECT && x->len > HELP_THRESHOLD &&
	       !(x->write && (phx_xfer_flags(x) & O_APPEND));
}

static __attribute__((noinline)) ssize_t run_slow(struct phx_xfer *x, size_t done)
{
	unsigned int mark = phx_error_mark();
	ssize_t result = -ENOMEM;
	size_t moved = 0;
	int err;

	if (x->dev)
		x->dev->ops->range_push(x->write ? "phxfs_write" : "phxfs_read");
	if (wants_help(x))
		result = phx_job_run_one(x);
	if (result == -ENOMEM) {
		err = phx_xfer_part(x, done, x->len - done, &moved);
		result = phx_xfer_result(done + moved, err);
	}
	if (x->dev)
		x->dev->ops->range_pop();
	/* Unless a lower layer has told it better. */
	if (result < 0 && !phx_error_since(mark, (int)result))
		phx_xfer_fail((int)result, x->write, x->fd, x->len, x->off);
	return result;
}

/* The system call moved @n bytes, or failed: go on from there. */
static __attribute__((noinline)) ssize_t go_on(struct phx_xfer *x, ssize_t n)
{
	if (n >= 0 || errno == EINTR || errno == EAGAIN)
		phx_stats_add(&phx_stats_mine(x->device_id)->retries, 1);
	return run_slow(x, n > 0 ? (size_t)n : 0);
}

ssize_t phx_xfer_run(struct phx_xfer *x)
{
	ssize_t n;

	if (x->path != PHXFS_PATH_DIRECT || x->len > PHXFS_IO_CHUNK ||
	    phx_poll_size(x->len) || phx_xfer_must_cut(x, 0, x->len)) {
		x->poll = phx_poll_size(x->len);
		return run_slow(x, 0);
	}
	n = x->write ? pwrite(x->fd, x->io, x->len, x->off) : pread(x->fd, x->io, x->len, x->off);
	x->uncounted = n > 0 ? (size_t)n : 0;
	return n == (ssize_t)x->len ? n : go_on(x, n);
}

static inline ssize_t transfer(bool write, int fd, int device_id, void *buf, off_t buf_offset,
			       ssize_t nbyte, off_t f_offset)
{
	struct phx_xfer x;
	ssize_t result;
	int err;

	phx_init();
	if (nbyte < 0)
		return fail_range(write, buf, buf_offset, (size_t)nbyte, f_offset);
	err = start_checked(&x, write, fd, device_id, buf, buf_offset, (size_t)nbyte, f_offset,
			    NULL);
	if (err)
		return err;
	result = phx_xfer_run(&x);
	phx_xfer_end(&x, result);
	return result;
}

ssize_t phxfs_read(int fd, int device_id, void *buf, off_t buf_offset, ssize_t nbyte,
		   off_t f_offset)
{
	return transfer(false, fd, device_id, buf, buf_offset, nbyte, f_offset);
}

ssize_t phxfs_write(int fd, int device_id, void *buf, off_t buf_offset, ssize_t nbyte,
		    off_t f_offset)
{
	return transfer(true, fd, device_id, buf, buf_offset, nbyte, f_offset);
}
