// SPDX-License-Identifier: Apache-2.0
/*
 * The exact transfer of a part, by one thread: what pread(2) or pwrite(2) on a
 * buffered descriptor would do, for any alignment, on every path.
 *
 * A direct part is first simply tried: when the kernel takes it, that is one
 * system call and nothing was asked about the descriptor (unless PHX_POLL_KB is
 * set). Only an -EINVAL makes us look closer: on an O_DIRECT descriptor the
 * request was unaligned, and is then cut at multiples of the alignment. A write
 * that is not of whole pages is cut without being tried (phx_xfer_must_cut()):
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
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "phx_config.h"
#include "phx_error.h"
#include "phx_staging.h"
#include "phx_stats.h"
#include "phx_xfer.h"
#include "io_engine/io_poll.h"

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
	if (!bytes)
		return;
	if (x->path != PHXFS_PATH_DIRECT) {
		phx_xfer_count(x, bytes);
		return;
	}
	phx_stats_bytes(x->device_id, x->write, path, bytes);
	if (path == PHXFS_PATH_EDGE)
		phx_stats_ops(x->device_id, x->write, path, 1, 0, false);
	else
		atomic_fetch_add_explicit(&x->chunked, bytes, memory_order_relaxed);
}

/* ----------------------------------------------------------------- copies */

/*
 * memcpy() for memory of the user's that may not be there: a system call says
 * -EFAULT where the processor would kill us. Where a sandbox forbids the call
 * the processor it is.
 */
static int copy_host(char *user, char *chunk, size_t n, bool to_user, size_t *done)
{
	struct iovec local = { chunk, n }, remote = { user, n };
	ssize_t got;

	got = to_user ? process_vm_writev(getpid(), &local, 1, &remote, 1, 0) :
			process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
	if (got >= 0 || errno == EFAULT) {
		*done = got > 0 ? (size_t)got : 0;
		return *done == n ? 0 : -EFAULT;
	}
	memcpy(to_user ? user : chunk, to_user ? chunk : user, n);
	*done = n;
	return 0;
}

static int copy(struct phx_xfer *x, size_t at, struct phx_chunk *chunk, size_t in_chunk, size_t n,
		bool to_buffer, size_t *done)
{
	const struct devconn_ops *ops = x->dev ? x->dev->ops : NULL;
	char *io = chunk->io + in_chunk, *dev = chunk->device + in_chunk;
	int id = x->device_id, err;

	*done = 0;
	if (!x->dev || x->dev->mode == PHXFS_MODE_HOST)
		err = copy_host(x->addr + at, io, n, to_buffer, done);
	else if (ops == &bare_connector) /* only the mapping reaches the memory */
		err = x->io ? copy_host(x->io + at, io, n, to_buffer, done) : -EOPNOTSUPP;
	else if (phx_chunk_on_device(chunk))
		err = to_buffer ? ops->memcpy_dtod(id, x->addr + at, dev, n) :
				  ops->memcpy_dtod(id, dev, x->addr + at, n);
	else
		err = to_buffer ? ops->memcpy_htod(id, x->addr + at, dev, n) :
				  ops->memcpy_dtoh(id, dev, x->addr + at, n);
	if (!err)
		*done = n;
	if (*done)
		phx_stats_copied(id, *done);
	return !err ? 0 :
		      phx_fail(err, "device copy", "is the buffer still allocated and mapped?",
			       "%zu bytes at %p of device %d", n, (void *)(x->addr + at), id);
}

int phx_xfer_from_chunk(struct phx_xfer *x, size_t at, struct phx_chunk *chunk, size_t in_chunk,
			size_t n, size_t *done)
{
	return copy(x, at, chunk, in_chunk, n, true, done);
}

int phx_xfer_to_chunk(struct phx_xfer *x, size_t at, struct phx_chunk *chunk, size_t in_chunk,
		      size_t n, size_t *done)
{
	return copy(x, at, chunk, in_chunk, n, false, done);
}

/* Each thread queues its copies on one slot; the slots go round. */
static int copy_slot(void)
{
	static _Thread_local int slot = -1;
	static atomic_uint next;

	if (slot < 0)
		slot = (int)(atomic_fetch_add(&next, 1) % DEVCONN_SLOTS);
	return slot;
}

static int queue_copy(struct phx_xfer *x, size_t at, struct phx_chunk *chunk, size_t in_chunk,
		      size_t n, bool to_buffer)
{
	char *dev = chunk->device + in_chunk, *buffer = x->addr + at;
	int id = x->device_id, slot = copy_slot(), err;
	const struct devconn_ops *ops;

	if (!x->dev || x->dev->mode == PHXFS_MODE_HOST)
		return -EOPNOTSUPP;
	ops = x->dev->ops;
	if (phx_chunk_on_device(chunk))
		err = to_buffer ? ops->memcpy_dtod_async(id, slot, buffer, dev, n) :
				  ops->memcpy_dtod_async(id, slot, dev, buffer, n);
	else
		err = to_buffer ? ops->memcpy_htod_async(id, slot, buffer, dev, n) :
				  ops->memcpy_dtoh_async(id, slot, dev, buffer, n);
	if (err)
		return err;
	err = ops->event_record(id, slot, chunk->event);
	/* The copy is under way all the same: it must be over before we return. */
	if (err)
		ops->queue_sync(id, slot);
	return err;
}

int phx_xfer_from_chunk_async(struct phx_xfer *x, size_t at, struct phx_chunk *chunk,
			      size_t in_chunk, size_t n)
{
	return queue_copy(x, at, chunk, in_chunk, n, true);
}

int phx_xfer_to_chunk_async(struct phx_xfer *x, size_t at, struct phx_chunk *chunk,
			    size_t in_chunk, size_t n)
{
	return queue_copy(x, at, chunk, in_chunk, n, false);
}

int phx_xfer_copied(struct phx_xfer *x, struct phx_chunk *chunk, size_t n, bool wait)
{
	const struct devconn_ops *ops = x->dev->ops;
	int err = wait ? ops->event_wait(x->device_id, *chunk->event) :
			 ops->event_done(x->device_id, *chunk->event);

	if (!err)
		phx_stats_copied(x->device_id, n);
	return err;
}

/* --------------------------------------------------------- through chunks */

/*
 * Fill @to, bytes @off .. @off + @len of the file. On an O_DIRECT descriptor
 * the blocks around them are read; @to lies below(@off, align) bytes into a
 * chunk that has room for them.
 */
static int read_window(struct phx_file *file, char *to, size_t len, off_t off, size_t *moved)
{
	bool direct = phx_file_flags(file) & O_DIRECT;
	size_t align = phx_file_cut(file);
	size_t head = direct ? below(off, align) : 0, got, more;
	size_t window = direct ? round_up(head + len, align) : len;
	int err;

	err = phx_poll_read(file, to - head, window, off - (off_t)head, &got);
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
	align = phx_file_cut(file);
	head = below(off, align);
	err = phx_chunk_get(x->dev, x->path, head + len + align, true, &chunk);
	if (err)
		return err;
	*part = chunk.size - head < len ? chunk.size - head : len;
	err = read_window(file, chunk.io + head, *part, off, moved);
	if (err == -EINVAL && !*moved && phx_file_cut(file) > align) {
		phx_chunk_put(&chunk);
		goto again;
	}
	if (*moved) {
		copied = phx_xfer_from_chunk(x, at, &chunk, head, *moved, moved);
		err = copied ? copied : err;
	}
	phx_chunk_put(&chunk);
	return err;
}

/*
 * Write @len bytes at @from, aligned as @off is, on an O_DIRECT descriptor:
 * whole blocks direct, the edges (with O_APPEND everything) buffered. Counts
 * for @x unless that is NULL. -EINVAL: the kernel refuses even whole blocks.
 */
static int write_aligned(struct phx_xfer *x, struct phx_file *file, const char *from, size_t len,
			 off_t off, size_t *moved)
{
	bool append = phx_file_flags(file) & O_APPEND;
	size_t n = 0, align = phx_file_align(file);
	int err = 0;

	for (*moved = 0; *moved < len && !err; *moved += n) {
		off_t at = off + (off_t)*moved;
		size_t head = below(at, align), left = len - *moved, step;

		n = 0;
		if (!append && !head && left >= align) {
			step = left - left % align;
			err = phx_poll_write(file, from + *moved, step, at, &n);
			if (err == -EINVAL && n)
				err = 0; /* short: go on behind it, buffered to the next block */
			if (x)
				phx_xfer_count(x, n);
		} else {
			step = append || left < align - head ? left : align - head;
			err = phx_file_reopen(file);
			if (!err)
				err = phx_file_write(file, true, from + *moved, step, at, &n);
			if (x)
				count_aside(x, append ? PHXFS_PATH_BOUNCE : PHXFS_PATH_EDGE, n);
		}
		if (!n)
			break;
	}
	return err;
}

/* The bytes of a chunk into the file, whatever the descriptor. */
static int write_out(struct phx_file *file, const char *from, size_t len, off_t off, size_t *moved)
{
	size_t more = 0;
	int err;

	if (!(phx_file_flags(file) & O_DIRECT))
		return phx_file_write(file, false, from, len, off, moved);
	err = write_aligned(NULL, file, from, len, off, moved);
	if (err != -EINVAL)
		return err;
	/* O_DIRECT in name only. */
	err = phx_file_reopen(file);
	if (!err)
		err = phx_file_write(file, true, from + *moved, len - *moved, off + (off_t)*moved,
				     &more);
	*moved += more;
	return err;
}

static int write_chunk(struct phx_xfer *x, struct phx_file *file, size_t at, size_t len,
		       size_t *part, size_t *moved)
{
	off_t off = x->off + (off_t)at;
	size_t align = phx_file_flags(file) & O_DIRECT ? phx_file_align(file) : phx_file_cut(file);
	size_t head = below(off, align);
	struct phx_chunk chunk;
	int err, copied;
	size_t there;

	*moved = 0;
	err = phx_chunk_get(x->dev, x->path, head + len, true, &chunk);
	if (err)
		return err;
	/* Only the last chunk of a part may end off the blocks. */
	*part = chunk.size - head < len ? chunk.size - head : len;
	/* What lies before a hole in the buffer is written, as pwrite(2) would. */
	copied = phx_xfer_to_chunk(x, at, &chunk, head, *part, &there);
	if (there)
		err = write_out(file, chunk.io + head, there, off, moved);
	phx_chunk_put(&chunk);
	return err || *moved < there ? err : copied;
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
			err = phx_poll_read(file, x->io + at + done, step,
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
			if (!err && n < step)
				step = 0;
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
	bool slow = x->dev && x->dev->mode == PHXFS_MODE_FULL; /* for the CPU to read */
	size_t n = 0;
	int err = -EINVAL;

	*moved = 0;
	if (!slow || !(phx_file_flags(file) & O_APPEND))
		err = write_aligned(x, file, x->io + at, len, x->off + (off_t)at, moved);
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

	if (phx_xfer_must_cut(x, at, len))
		return write_unaligned(x, file, at, len, moved);
	err = x->write ? phx_poll_write(file, x->io + at, len, off, moved) :
			 phx_poll_read(file, x->io + at, len, off, moved);
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
	file.poll = x->poll;
	if (x->path == PHXFS_PATH_DIRECT || !len) {
		err = direct_part(x, &file, at, len, moved);
	} else {
		err = through_chunks(x, &file, at, len, moved);
		phx_xfer_count(x, *moved);
	}
	phx_file_close(&file);
	return err;
}
