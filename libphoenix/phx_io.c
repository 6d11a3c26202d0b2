// SPDX-License-Identifier: Apache-2.0
/*
 * Single transfers, and the exact transfer of a part, on which all others
 * stand.
 *
 * A direct part is first simply tried: when the kernel takes it, that is one
 * system call and nothing was asked about the descriptor. Only an -EINVAL
 * makes us look closer: on an O_DIRECT descriptor the request was unaligned,
 * and is then cut at multiples of the alignment:
 *
 *        head            middle (direct)             tail
 *    |....#####|###############################|######.....|   file blocks
 *
 * The edges of a read come through a chunk; those of a write go through a
 * second, buffered descriptor of the same file, so that a neighbour's bytes
 * are never written back. When the kernel refuses the middle too (the buffer
 * is not aligned like the file offset), everything goes through chunks.
 *
 * The end of a file needs care: it looks like a short transfer, and the rest
 * cannot be asked for on an O_DIRECT descriptor. Whether it is the end is read
 * off the file's size, never assumed.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "phx_config.h"
#include "phx_error.h"
#include "phx_init.h"
#include "phx_job.h"
#include "phx_path.h"
#include "phx_staging.h"
#include "phx_stats.h"
#include "phx_xfer.h"

/* Chunked transfers longer than this call the worker pool for help. */
#define HELP_THRESHOLD (2 * PHX_CHUNK_MAX)

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
 * Asking costs a system call, so small reads, whose copy into the BAR is quick
 * enough, are not asked about.
 */
static __attribute__((noinline)) void avoid_page_cache(struct phx_xfer *x)
{
	if (x->path == PHXFS_PATH_DIRECT && phx_config.path == PHX_PATH_AUTO &&
	    (x->write || x->len >= PHX_CHUNK_MIN) && !(phx_xfer_flags(x) & O_DIRECT))
		x->path = PHXFS_PATH_BOUNCE;
}

/*
 * PHX_PATH=direct refuses an unaligned O_DIRECT write before it begins: the
 * kernel checks one extent after the other, and may have written the first
 * ones when it finds fault with the last. A read may find out on the way.
 */
static __attribute__((noinline)) bool refuses(struct phx_xfer *x)
{
	struct phx_file file = phx_file(x->fd, x->device_id);
	size_t block;

	if (!x->write || !(phx_file_flags(&file) & O_DIRECT))
		return false;
	block = phx_file_block(&file);
	return (((size_t)x->off | x->len) & (block - 1)) != 0;
}

static inline char *io_address(struct phx_region *region, uintptr_t addr)
{
	uintptr_t base;

	if (!region->io_addr)
		return NULL;
	base = atomic_load_explicit(&region->range.base, memory_order_relaxed);
	return (char *)(region->io_addr + (addr - base));
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

	if ((buf_offset | f_offset) < 0 || nbytes > (size_t)LLONG_MAX - (size_t)f_offset ||
	    addr < (uintptr_t)buf || addr + nbytes < addr)
		return fail_range(write, buf, buf_offset, nbytes, f_offset);

	x->fd = fd;
	x->write = write;
	x->flags = -1;
	x->region = NULL;
	x->addr = (char *)addr;
	x->len = nbytes;
	x->off = f_offset;
	x->uncounted = 0;
	atomic_init(&x->chunked, 0);
	if (device_id < 0) {
		x->device_id = -1;
		x->dev = NULL;
		x->io = (char *)addr;
		x->path = phx_path_host;
	} else {
		x->device_id = device_id;
		x->dev = phx_device_find(device_id);
		if (near && near->dev == x->dev &&
		    phx_region_contains(near->region, addr, nbytes)) {
			x->io = io_address(near->region, addr);
		} else {
			if (x->dev)
				x->region = phx_region_get(x->dev, addr, nbytes);
			if (!x->region)
				return fail_buffer(write, device_id, addr, nbytes);
			x->io = io_address(x->region, addr);
		}
		x->path = x->dev->path;
		if (__builtin_expect(x->dev->mode == PHXFS_MODE_FULL, 0))
			avoid_page_cache(x);
	}
	if (x->path < 0) {
		if (x->region)
			phx_region_put(x->dev, x->region);
		return phx_fail(-EOPNOTSUPP, op_name(write), "unset PHX_PATH, or load phxfs.ko",
				"PHX_PATH=direct, and device %d: %s", device_id, x->dev->reason);
	}
	if (__builtin_expect(phx_config.path == PHX_PATH_DIRECT, 0) && refuses(x)) {
		if (x->region)
			phx_region_put(x->dev, x->region);
		return phx_xfer_fail(-EOPNOTSUPP, write, fd, nbytes, f_offset);
	}
	x->start_ns = phx_stats_start();
	return 0;
}

int phx_xfer_start(struct phx_xfer *x, bool write, int fd, int device_id, const void *buf,
		   off_t buf_offset, size_t nbytes, off_t f_offset)
{
	return start(x, write, fd, device_id, buf, buf_offset, nbytes, f_offset, NULL);
}

int phx_xfer_start_req(struct phx_xfer *x, bool write, const phxfs_io_req_t *r,
		       const struct phx_xfer *near)
{
	return start(x, write, r->fd, r->device_id, r->buf, r->buf_offset, r->nbytes, r->f_offset,
		     near);
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
	phx_stats_ops(x->device_id, x->write, path_taken(x, result), 1, x->uncounted, result < 0);
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

	if (result < 0) {
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
	if (bytes)
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

int phx_xfer_fail(int err, bool write, int fd, size_t len, off_t off)
{
	const char *cure = NULL;

	if (err == -EOPNOTSUPP)
		cure = "PHX_PATH=direct: align requests and buffers to the file system's block";
	else if (err == -EINVAL)
		cure = "check the descriptor and the offsets; phx check PATH tests the file system";
	else if (err == -EBADF)
		cure = write ? "open the file for writing" : "open the file for reading";
	return phx_fail(err, op_name(write), cure, "%zu bytes at offset %lld of descriptor %d", len,
			(long long)off, fd);
}

/* --------------------------------------------------------- through chunks */

static size_t below(off_t off, size_t align)
{
	return (size_t)off & (align - 1);
}

static size_t round_up(size_t n, size_t align)
{
	return (n + align - 1) & ~(align - 1);
}

/* Bytes that took another path than x->path. */
static void count_aside(struct phx_xfer *x, int path, size_t bytes)
{
	if (x->path != PHXFS_PATH_DIRECT) {
		phx_xfer_count(x, bytes);
		return;
	}
	if (!bytes)
		return;
	phx_stats_bytes(x->device_id, x->write, path, bytes);
	if (path == PHXFS_PATH_EDGE)
		phx_stats_ops(x->device_id, x->write, path, 1, 0, false);
	else
		atomic_fetch_add_explicit(&x->chunked, bytes, memory_order_relaxed);
}

/*
 * Fill @to, bytes @off .. @off + @len of the file. On an O_DIRECT descriptor
 * the blocks around them are read; @to lies below(@off, align) bytes into a
 * chunk that has room for them.
 */
static int read_window(struct phx_file *file, char *to, size_t len, off_t off, size_t *moved)
{
	bool direct = phx_file_flags(file) & O_DIRECT;
	size_t align = file->align ? file->align : PHX_FILE_ALIGN;
	size_t head = direct ? below(off, align) : 0, got, more;
	size_t window = direct ? round_up(head + len, align) : len;
	int err;

	err = phx_file_read(file, false, to - head, window, off - (off_t)head, &got);
	*moved = got > head ? got - head : 0;
	if (*moved > len)
		*moved = len;
	if (*moved == len)
		return 0;
	if (err != -EINVAL || !direct)
		return err;
	/* Short, and the rest is unaligned: the end of the file, or a slow disk's whim. */
	if (got && phx_file_at_end(file, off - (off_t)head + (off_t)got))
		return 0;
	if (!got && phx_file_align(file) > align)
		return -EINVAL; /* the caller starts again with what it needs */
	err = phx_file_reopen(file);
	if (err)
		return err;
	err = phx_file_read(file, true, to + *moved, len - *moved, off + (off_t)*moved, &more);
	*moved += more;
	return err;
}

/* As much of @at, @len as one chunk holds. */
static int read_chunk(struct phx_xfer *x, struct phx_file *file, size_t at, size_t len,
		      size_t *part, size_t *moved)
{
	off_t off = x->off + (off_t)at;
	struct phx_chunk chunk;
	size_t align, head;
	int err, copied;

	*moved = 0;
again:
	align = file->align ? file->align : PHX_FILE_ALIGN;
	head = below(off, align);
	err = phx_chunk_get(x->dev, x->path, head + len + align, true, &chunk);
	if (err)
		return err;
	*part = chunk.size - head < len ? chunk.size - head : len;
	err = read_window(file, chunk.io + head, *part, off, moved);
	if (err == -EINVAL && !*moved && file->align > align) {
		phx_chunk_put(&chunk);
		goto again;
	}
	if (*moved) {
		copied = phx_chunk_to_device(x->dev, &chunk, head, x->addr + at, *moved);
		if (copied) {
			*moved = 0;
			err = copied;
		}
	}
	phx_chunk_put(&chunk);
	return err;
}

/*
 * Write @len bytes at @from, which is aligned as @off is (or the descriptor is
 * not O_DIRECT). -EINVAL: the kernel refuses even aligned blocks of it.
 */
static int write_aligned(struct phx_file *file, const char *from, size_t len, off_t off,
			 size_t *moved)
{
	size_t done = 0, n = 0, align = phx_file_align(file);
	bool append = phx_file_flags(file) & O_APPEND;
	int err = 0;

	while (done < len && !err) {
		off_t at = off + (off_t)done;
		size_t head = below(at, align), left = len - done, step;

		if (!append && !head && left >= align) {
			step = left - left % align;
			err = phx_file_write(file, false, from + done, step, at, &n);
			if (err == -EINVAL && n)
				err = 0; /* short: go on behind it, buffered to the next block */
		} else {
			step = append || left < align - head ? left : align - head;
			err = phx_file_reopen(file);
			n = 0;
			if (!err)
				err = phx_file_write(file, true, from + done, step, at, &n);
		}
		done += n;
		if (!n)
			break;
	}
	*moved = done;
	return err;
}

static int write_chunk(struct phx_xfer *x, struct phx_file *file, size_t at, size_t len,
		       size_t *part, size_t *moved)
{
	off_t off = x->off + (off_t)at;
	bool direct = phx_file_flags(file) & O_DIRECT;
	size_t align = direct ? phx_file_align(file) : PHX_FILE_ALIGN;
	size_t head = below(off, align);
	struct phx_chunk chunk;
	size_t more = 0;
	int err;

	*moved = 0;
	err = phx_chunk_get(x->dev, x->path, head + len, true, &chunk);
	if (err)
		return err;
	/* Only the last chunk of a part may end off the blocks. */
	*part = chunk.size - head < len ? chunk.size - head : len;
	err = phx_chunk_from_device(x->dev, &chunk, head, x->addr + at, *part);
	if (!err && direct)
		err = write_aligned(file, chunk.io + head, *part, off, moved);
	else if (!err)
		err = phx_file_write(file, false, chunk.io + head, *part, off, moved);
	if (err == -EINVAL && direct) { /* O_DIRECT in name only */
		err = phx_file_reopen(file);
		if (!err)
			err = phx_file_write(file, true, chunk.io + head + *moved, *part - *moved,
					     off + (off_t)*moved, &more);
		*moved += more;
	}
	phx_chunk_put(&chunk);
	return err;
}

static int through_chunks(struct phx_xfer *x, struct phx_file *file, size_t at, size_t len,
			  size_t *moved)
{
	size_t done = 0, part = 0, n = 0;
	int err = 0;

	while (done < len && !err) {
		err = x->write ? write_chunk(x, file, at + done, len - done, &part, &n) :
				 read_chunk(x, file, at + done, len - done, &part, &n);
		done += n;
		if (!err && n < part)
			break; /* the end of the file */
	}
	*moved = done;
	return err;
}

/* ----------------------------------------------------------------- direct */

static int read_unaligned(struct phx_xfer *x, struct phx_file *file, size_t at, size_t len,
			  size_t *moved)
{
	size_t done = 0, n = 0, align = phx_file_align(file);
	bool refused = false;
	int err = 0;

	while (done < len) {
		size_t head = below(x->off + (off_t)(at + done), align), left = len - done, step;

		if (!refused && !head && left >= align) {
			step = left - left % align;
			err = phx_file_read(file, false, x->io + at + done, step,
					    x->off + (off_t)(at + done), &n);
			phx_xfer_count(x, n);
			refused = err == -EINVAL && !n;
			if (err == -EINVAL)
				err = 0;
			else if (!err && n < step)
				step = 0; /* the end of the file */
		} else {
			step = refused || left < align - head ? left : align - head;
			err = through_chunks(x, file, at + done, step, &n);
			count_aside(x, refused ? PHXFS_PATH_BOUNCE : PHXFS_PATH_EDGE, n);
			if (n < step && !err) {
				done += n;
				break;
			}
		}
		done += n;
		if (err || !step)
			break;
	}
	*moved = done;
	return err;
}

static int write_unaligned(struct phx_xfer *x, struct phx_file *file, size_t at, size_t len,
			   size_t *moved)
{
	size_t n = 0, aside, head = below(x->off + (off_t)at, phx_file_align(file));
	int err;

	err = write_aligned(file, x->io + at, len, x->off + (off_t)at, moved);
	/* What went through the buffered descriptor: the edges, or all with O_APPEND. */
	aside = *moved;
	if (!(phx_file_flags(file) & O_APPEND)) {
		size_t first = head ? file->align - head : 0;

		if (first > *moved)
			first = *moved;
		aside = first + (*moved - first) % file->align;
	}
	count_aside(x, aside == *moved && aside > file->align ? PHXFS_PATH_BOUNCE : PHXFS_PATH_EDGE,
		    aside);
	phx_xfer_count(x, *moved - aside);
	if (err != -EINVAL)
		return err;
	err = through_chunks(x, file, at + *moved, len - *moved, &n);
	count_aside(x, PHXFS_PATH_BOUNCE, n);
	*moved += n;
	return err;
}

static int direct_part(struct phx_xfer *x, struct phx_file *file, size_t at, size_t len,
		       size_t *moved)
{
	off_t off = x->off + (off_t)at;
	size_t n = 0;
	int err;

	err = x->write ? phx_file_write(file, false, x->io + at, len, off, moved) :
			 phx_file_read(file, false, x->io + at, len, off, moved);
	phx_xfer_count(x, *moved);
	if (err != -EINVAL || !(phx_file_flags(file) & O_DIRECT))
		return err;
	if (!x->write && *moved && phx_file_at_end(file, off + (off_t)*moved))
		return 0;
	if (phx_config.path == PHX_PATH_DIRECT)
		return -EOPNOTSUPP;
	at += *moved;
	len -= *moved;
	err = x->write ? write_unaligned(x, file, at, len, &n) :
			 read_unaligned(x, file, at, len, &n);
	*moved += n;
	return err;
}

int phx_xfer_part(struct phx_xfer *x, size_t at, size_t len, size_t *moved)
{
	struct phx_file file = phx_file(x->fd, x->device_id);
	int err;

	file.flags = x->flags;
	if (x->path == PHXFS_PATH_DIRECT || !len) {
		err = direct_part(x, &file, at, len, moved);
	} else {
		err = through_chunks(x, &file, at, len, moved);
		phx_xfer_count(x, *moved);
	}
	phx_file_close(&file);
	return err;
}

/* ------------------------------------------------------------ whole calls */

static __attribute__((noinline)) ssize_t run_slow(struct phx_xfer *x, size_t done)
{
	size_t moved = 0;
	ssize_t result;
	int err;

	if (x->path != PHXFS_PATH_DIRECT && x->len > HELP_THRESHOLD &&
	    !(x->write && (phx_xfer_flags(x) & O_APPEND)))
		result = phx_job_run_one(x);
	else {
		err = phx_xfer_part(x, done, x->len - done, &moved);
		result = phx_xfer_result(done + moved, err);
	}
	if (result < 0)
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

	if (x->path != PHXFS_PATH_DIRECT || x->len > PHXFS_IO_CHUNK)
		return run_slow(x, 0);
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
	err = start(&x, write, fd, device_id, buf, buf_offset, (size_t)nbyte, f_offset, NULL);
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
