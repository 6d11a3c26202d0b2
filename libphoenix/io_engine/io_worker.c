// SPDX-License-Identifier: Apache-2.0
/*
 * How a worker moves a slice.
 *
 *   direct          file <-> buffer, in the engine
 *   chunk, read     file -> chunk in the engine, chunk -> buffer when reaped
 *   chunk, write    buffer -> chunk, chunk -> file in the engine
 *   anything else   phx_xfer_part(), at once: unaligned writes, O_APPEND,
 *                   and whatever the engine could not finish
 *
 * A slice that needs a chunk when none is free waits as "stalled" while others
 * are in flight, since these give their chunks back. With none in flight the
 * worker holds no chunk and may wait for one.
 */
#include <errno.h>
#include <fcntl.h>

#include "io_worker.h"
#include "../phx_file.h"
#include "../phx_staging.h"

void phx_worker_run_slice(struct phx_slice *slice)
{
	size_t moved = 0;

	if (atomic_load_explicit(&slice->job->cancelled, memory_order_relaxed)) {
		slice->err = -ECANCELED;
	} else {
		slice->err = phx_xfer_part(slice->x, slice->at + slice->moved,
					   slice->len - slice->moved, &moved);
		slice->moved += moved;
	}
	phx_job_finish(slice->job, 1);
}

static bool through_chunk(const struct phx_slice *slice)
{
	return slice->x->path != PHXFS_PATH_DIRECT;
}

static size_t head_of(struct phx_slice *slice)
{
	off_t off = slice->x->off + (off_t)slice->at;

	return phx_xfer_flags(slice->x) & O_DIRECT ? (size_t)off & (PHX_FILE_ALIGN - 1) : 0;
}

/* Whether the engine can move the slice's file side in one aligned operation. */
static inline bool fits_engine(struct phx_slice *slice)
{
	int flags;

	if (!slice->x->write)
		return slice->len;
	flags = phx_xfer_flags(slice->x);
	if (!slice->len || flags & O_APPEND)
		return false;
	return !through_chunk(slice) || !(flags & O_DIRECT) ||
	       (!head_of(slice) && !(slice->len & (PHX_FILE_ALIGN - 1)));
}

static inline void start_io(struct phx_worker *worker, struct phx_slice *slice)
{
	slice->io.fd = slice->x->fd;
	slice->io.write = slice->x->write;
	slice->io.device_id = slice->x->device_id;
	if (__builtin_expect(worker->ops->start(worker->engine, &slice->io), 0)) {
		/* Full, or no memory in the kernel: by hand. */
		if (through_chunk(slice))
			phx_chunk_put(&slice->chunk);
		phx_worker_run_slice(slice);
		return;
	}
	worker->in_flight++;
}

static inline void start_direct(struct phx_worker *worker, struct phx_slice *slice)
{
	slice->io.addr = slice->x->io + slice->at;
	slice->io.len = slice->len;
	slice->io.off = slice->x->off + (off_t)slice->at;
	start_io(worker, slice);
}

/* False: no chunk yet. */
static bool start_chunked(struct phx_worker *worker, struct phx_slice *slice)
{
	size_t head = head_of(slice), window;
	int err;

	window = head || phx_xfer_flags(slice->x) & O_DIRECT ?
			 (head + slice->len + PHX_FILE_ALIGN - 1) & ~(PHX_FILE_ALIGN - 1) :
			 slice->len;
	err = phx_chunk_get(slice->x->dev, slice->x->path, window, worker->in_flight == 0,
			    &slice->chunk);
	if (err == -EAGAIN)
		return false;
	if (!err && slice->chunk.size < window) { /* a smaller one: piece by piece */
		phx_chunk_put(&slice->chunk);
		err = -EMSGSIZE;
	}
	if (!err && slice->x->write) {
		err = phx_chunk_from_device(slice->x->dev, &slice->chunk, 0,
					    slice->x->addr + slice->at, slice->len);
		if (err)
			phx_chunk_put(&slice->chunk);
	}
	if (err) {
		phx_worker_run_slice(slice);
		return true;
	}
	slice->io.addr = slice->chunk.io;
	slice->io.len = window;
	slice->io.off = slice->x->off + (off_t)slice->at - (off_t)head;
	start_io(worker, slice);
	return true;
}

void phx_worker_start(struct phx_worker *worker, struct phx_slice *slice)
{
	if (atomic_load_explicit(&slice->job->cancelled, memory_order_relaxed) ||
	    !fits_engine(slice))
		phx_worker_run_slice(slice);
	else if (!through_chunk(slice))
		start_direct(worker, slice);
	else if (!start_chunked(worker, slice))
		worker->stalled = slice;
}

void phx_worker_resume(struct phx_worker *worker)
{
	struct phx_slice *slice = worker->stalled;

	if (!slice)
		return;
	worker->stalled = NULL;
	phx_worker_start(worker, slice);
}

/* What the engine moved through the chunk goes on to the buffer. */
static void finish_chunked(struct phx_slice *slice)
{
	size_t head = head_of(slice), moved = slice->io.moved;
	int err = slice->io.err;

	if (slice->x->write) {
		slice->moved = moved < slice->len ? moved : slice->len;
	} else {
		moved = moved > head ? moved - head : 0;
		moved = moved < slice->len ? moved : slice->len;
		if (moved) {
			int copied = phx_chunk_to_device(slice->x->dev, &slice->chunk, head,
							 slice->x->addr + slice->at, moved);

			if (copied) {
				moved = 0;
				err = copied;
			}
		}
		slice->moved = moved;
	}
	phx_chunk_put(&slice->chunk);
	slice->err = err;
}

/* Errors that the exact, synchronous transfer may get around. */
static bool mendable(int err)
{
	return err == -EINVAL || err == -EAGAIN || err == -EOPNOTSUPP;
}

/* False: it was not all moved, and has been gone on with and finished already. */
static bool settle(struct phx_slice *slice)
{
	if (through_chunk(slice)) {
		finish_chunked(slice);
	} else {
		slice->moved = slice->io.moved;
		slice->err = slice->io.err;
	}
	if (slice->len == slice->x->len)
		slice->x->uncounted = slice->moved; /* the only slice: nobody else writes it */
	else
		phx_xfer_count(slice->x, slice->moved);
	if (slice->moved == slice->len || !mendable(slice->err))
		return true;
	phx_worker_run_slice(slice);
	return false;
}

void phx_worker_reap(struct phx_worker *worker)
{
	struct phx_io *io = worker->ops->reap(worker->engine), *next;
	struct phx_job *job = NULL;
	size_t settled = 0;

	/* Neighbours are mostly of one job: it is told once. */
	for (; io; io = next) {
		struct phx_slice *slice = (struct phx_slice *)io;

		next = io->next;
		worker->in_flight--;
		if (slice->job != job) {
			if (settled)
				phx_job_finish(job, settled);
			job = slice->job;
			settled = 0;
		}
		settled += settle(slice);
	}
	if (settled)
		phx_job_finish(job, settled);
}
