// SPDX-License-Identifier: Apache-2.0
/*
 * How a worker moves a slice.
 *
 *   direct          file <-> buffer, in the engine
 *   chunk, read     file -> chunk in the engine, chunk -> buffer by the device
 *   chunk, write    buffer -> chunk by the device, chunk -> file in the engine
 *   anything else   phx_xfer_part(), at once: unaligned writes, O_APPEND,
 *                   and whatever the engine could not finish
 *
 * Copies are queued on the device where it can, so that they run beside the file
 * side of other slices: those slices stand in "copying" until their events say
 * that they are done. At most COPIES do: that keeps a device busy.
 *
 * Whoever waits for a chunk must hold none. While slices in flight hold some, a
 * slice that finds none free is "stalled", and so is what goes by hand, where
 * the wait lies deep inside: those in flight will give theirs back.
 */
#include <errno.h>
#include <fcntl.h>

#include "io_worker.h"
#include "../phx_error.h"
#include "../phx_file.h"
#include "../phx_staging.h"

#define COPIES 2
#define IN_FLIGHT 3 /* slices of a caller that runs them itself, besides the newest */
#define CACHE_LINE 64
#define NAP_NS 10000
#define NAPS 20

/* Not worth starting: the batch is abandoned, or the transfer ends before it. */
static inline bool is_void(struct phx_slice *slice)
{
	return atomic_load_explicit(&slice->job->cancelled, memory_order_relaxed) ||
	       slice->at > atomic_load_explicit(&slice->x->stop_at, memory_order_relaxed);
}

/* The transfer's result ends in this slice: those behind it need not start. */
static void note_end(struct phx_slice *slice)
{
	size_t stop_at = atomic_load_explicit(&slice->x->stop_at, memory_order_relaxed);

	while (slice->at < stop_at &&
	       !atomic_compare_exchange_weak(&slice->x->stop_at, &stop_at, slice->at))
		;
}

/*
 * Out of this processor's own cache, where it keeps them: a hint, and no
 * instruction where the processor does not know it.
 */
static void let_out(const struct phx_slice *slice)
{
#ifdef __x86_64__
	const char *from = slice->x->io + slice->at;

	for (size_t i = 0; i < slice->moved; i += CACHE_LINE)
		__asm__ volatile("cldemote (%0)" : : "r"(from + i) : "memory");
#endif
}

void phx_worker_run_slice(struct phx_slice *slice)
{
	size_t moved = 0;

	if (slice->job->call) {
		slice->job->call(slice->job);
	} else if (is_void(slice)) {
		slice->err = -ECANCELED;
	} else {
		slice->err = phx_xfer_part(slice->x, slice->at + slice->moved,
					   slice->len - slice->moved, &moved);
		slice->moved += moved;
		if (slice->job->let_out)
			let_out(slice);
		if (slice->moved < slice->len)
			note_end(slice);
	}
	phx_job_finish(slice->job, 1);
}

static void stall(struct phx_worker *worker, struct phx_slice *slice)
{
	slice->io.next = NULL;
	*(worker->stalled ? worker->stalled_tail : &worker->stalled) = slice;
	worker->stalled_tail = (struct phx_slice **)&slice->io.next;
}

/* As phx_worker_run_slice(), now or once the worker holds no chunk. */
static void run_by_hand(struct phx_worker *worker, struct phx_slice *slice)
{
	slice->by_hand = true;
	slice->ready = false;
	if (worker->chunks)
		stall(worker, slice);
	else
		phx_worker_run_slice(slice);
}

static bool through_chunk(const struct phx_slice *slice)
{
	return slice->x->path != PHXFS_PATH_DIRECT;
}

static size_t below_cut(size_t n)
{
	return n & (phx_file_page - 1);
}

static size_t head_of(struct phx_slice *slice)
{
	off_t off = slice->x->off + (off_t)slice->at;

	return phx_xfer_flags(slice->x) & O_DIRECT ? below_cut((size_t)off) : 0;
}

/* Whether the engine can move the slice's file side in one aligned operation. */
static inline bool fits_engine(struct phx_slice *slice)
{
	int flags;

	if (slice->by_hand)
		return false;
	if (!slice->x->write)
		return slice->len;
	flags = phx_xfer_flags(slice->x);
	if (!slice->len || flags & O_APPEND)
		return false;
	if (!through_chunk(slice))
		return !phx_xfer_must_cut(slice->x, slice->at, slice->len);
	return !(flags & O_DIRECT) || (!head_of(slice) && !below_cut(slice->len));
}

/* The engine is full, short of memory, or not made for this file: by hand. */
static __attribute__((noinline, cold)) void refused(struct phx_worker *worker,
						    struct phx_slice *slice)
{
	if (through_chunk(slice))
		phx_chunk_put(&slice->chunk);
	run_by_hand(worker, slice);
}

static inline void hand_over(struct phx_worker *worker, struct phx_slice *slice)
{
	if (__builtin_expect(worker->ops->start(worker->engine, &slice->io), 0)) {
		refused(worker, slice);
		return;
	}
	worker->in_flight++;
}

static void start_io(struct phx_worker *worker, struct phx_slice *slice)
{
	unsigned int before = worker->in_flight;

	slice->io.fd = slice->x->fd;
	slice->io.write = slice->x->write;
	slice->io.device_id = slice->x->device_id;
	hand_over(worker, slice);
	if (worker->in_flight != before)
		worker->chunks += through_chunk(slice);
}

static inline void start_direct(struct phx_worker *worker, struct phx_slice *slice)
{
	slice->io.addr = slice->x->io + slice->at;
	slice->io.len = slice->len;
	slice->io.off = slice->x->off + (off_t)slice->at;
	start_io(worker, slice);
}

static void push_copying(struct phx_worker *worker, struct phx_slice *slice)
{
	slice->io.next = NULL;
	*(worker->copying ? worker->copying_tail : &worker->copying) = slice;
	worker->copying_tail = (struct phx_slice **)&slice->io.next;
	worker->copies++;
	if (worker->copies > COPIES)
		phx_worker_harvest(worker, true);
}

/* The buffer's bytes are in the chunk: on to the file. */
static void start_file_write(struct phx_worker *worker, struct phx_slice *slice)
{
	slice->io.addr = slice->chunk.io;
	slice->io.len = slice->len;
	slice->io.off = slice->x->off + (off_t)slice->at;
	start_io(worker, slice);
}

/* Buffer -> chunk; a write that fits the engine begins on a block. */
static void start_write(struct phx_worker *worker, struct phx_slice *slice)
{
	int err = phx_xfer_to_chunk_async(slice->x, slice->at, &slice->chunk, 0, slice->len);
	size_t done;

	if (!err) {
		worker->chunks++;
		push_copying(worker, slice);
		return;
	}
	if (err == -EOPNOTSUPP)
		err = phx_xfer_to_chunk(slice->x, slice->at, &slice->chunk, 0, slice->len, &done);
	if (!err) {
		start_file_write(worker, slice);
		return;
	}
	phx_chunk_put(&slice->chunk);
	run_by_hand(worker, slice);
}

/* False: no chunk yet. */
static bool start_chunked(struct phx_worker *worker, struct phx_slice *slice)
{
	size_t head = head_of(slice), window;
	int err;

	window = head + slice->len;
	if (phx_xfer_flags(slice->x) & O_DIRECT && below_cut(window))
		window += phx_file_page - below_cut(window);
	err = phx_chunk_get(slice->x->dev, slice->x->path, window, worker->chunks == 0,
			    &slice->chunk);
	if (err == -EAGAIN)
		return false;
	if (!err && slice->chunk.size < window) { /* a smaller one: piece by piece */
		phx_chunk_put(&slice->chunk);
		err = -EMSGSIZE;
	}
	if (err) {
		run_by_hand(worker, slice);
		return true;
	}
	if (slice->x->write) {
		start_write(worker, slice);
		return true;
	}
	slice->io.addr = slice->chunk.io;
	slice->io.len = window;
	slice->io.off = slice->x->off + (off_t)slice->at - (off_t)head;
	start_io(worker, slice);
	return true;
}

static __attribute__((noinline)) void start_other(struct phx_worker *worker,
						  struct phx_slice *slice)
{
	if (slice->job->call || is_void(slice))
		phx_worker_run_slice(slice);
	else if (!fits_engine(slice))
		run_by_hand(worker, slice);
	else if (!through_chunk(slice))
		start_direct(worker, slice);
	else if (!start_chunked(worker, slice))
		stall(worker, slice);
}

void phx_worker_start(struct phx_worker *worker, struct phx_slice *slice)
{
	/* Mostly: a small direct read, filled in when it was cut. */
	if (slice->ready && !atomic_load_explicit(&slice->job->cancelled, memory_order_relaxed))
		hand_over(worker, slice);
	else
		start_other(worker, slice);
}

void phx_worker_resume(struct phx_worker *worker)
{
	struct phx_slice *slice = worker->stalled, *next;

	worker->stalled = NULL; /* what has to wait on comes back into the list */
	for (; slice; slice = next) {
		next = (struct phx_slice *)slice->io.next;
		phx_worker_start(worker, slice);
	}
}

/* moved and err are set. False: it is gone on with by hand. */
static inline __attribute__((always_inline)) bool conclude(struct phx_worker *worker,
							   struct phx_slice *slice)
{
	if (slice->len == slice->x->len)
		slice->x->uncounted = slice->moved; /* the only slice: nobody else writes it */
	else
		phx_xfer_count(slice->x, slice->moved);
	if (slice->moved == slice->len)
		return true;
	if (phx_io_mendable(slice->err)) {
		run_by_hand(worker, slice);
		return false;
	}
	note_end(slice);
	return true;
}

/*
 * The engine has moved a slice between file and chunk. True: moved and err are
 * set; false: the copy to the buffer is queued.
 */
static bool leave_chunk(struct phx_worker *worker, struct phx_slice *slice)
{
	size_t head = head_of(slice), moved = slice->io.moved;
	int err;

	slice->err = slice->io.err;
	if (!slice->x->write)
		moved = moved > head ? moved - head : 0;
	slice->moved = moved < slice->len ? moved : slice->len;
	if (!slice->x->write && slice->moved) {
		err = phx_xfer_from_chunk_async(slice->x, slice->at, &slice->chunk, head,
						slice->moved);
		if (!err) {
			push_copying(worker, slice);
			return false;
		}
		if (err == -EOPNOTSUPP)
			err = phx_xfer_from_chunk(slice->x, slice->at, &slice->chunk, head,
						  slice->moved, &slice->moved);
		else
			slice->moved = 0;
		slice->err = err ? err : slice->err;
	}
	worker->chunks--;
	phx_chunk_put(&slice->chunk);
	return true;
}

/* False: not finished, or finished by hand already. */
static bool settle(struct phx_worker *worker, struct phx_slice *slice)
{
	worker->in_flight--;
	if (through_chunk(slice)) {
		if (!leave_chunk(worker, slice))
			return false;
	} else {
		slice->moved = slice->io.moved;
		slice->err = slice->io.err;
		if (__builtin_expect(slice->job->let_out, 0))
			let_out(slice);
	}
	return conclude(worker, slice);
}

/* The copy of @slice is done, with @err. */
static void copied(struct phx_worker *worker, struct phx_slice *slice, int err)
{
	worker->chunks--;
	if (slice->x->write && !err) {
		start_file_write(worker, slice);
		return;
	}
	phx_chunk_put(&slice->chunk);
	if (err) {
		slice->moved = 0;
		/* Not to be taken for the kernel's opinion of the file. */
		slice->err = phx_io_mendable(err) ? -EIO : err;
	}
	if (conclude(worker, slice))
		phx_job_finish(slice->job, 1);
}

/* As phx_xfer_copied(); who is in no hurry leaves the processor meanwhile. */
static int copied_by_now(struct phx_slice *slice, bool wait)
{
	size_t n = slice->x->write ? slice->len : slice->moved;
	struct timespec nap = { 0, NAP_NS };

	for (int i = 0; wait && slice->job->patient && i < NAPS; i++) {
		int err = phx_xfer_copied(slice->x, &slice->chunk, n, false);

		if (err != -EBUSY)
			return err;
		nanosleep(&nap, NULL);
	}
	return phx_xfer_copied(slice->x, &slice->chunk, n, wait);
}

void phx_worker_harvest(struct phx_worker *worker, bool wait)
{
	while (worker->copying) {
		struct phx_slice *slice = worker->copying;
		int err = copied_by_now(slice, wait);

		if (err == -EBUSY)
			return;
		wait = false;
		worker->copying = (struct phx_slice *)slice->io.next;
		worker->copies--;
		copied(worker, slice, err);
	}
}

/* What is under way, one step on; may wait, for the file before the device. */
static void step(struct phx_worker *worker)
{
	phx_worker_reap(worker);
	if (worker->in_flight)
		worker->ops->wait(worker->engine, NULL);
	else if (worker->copies)
		phx_worker_harvest(worker, true);
	phx_worker_reap(worker);
	phx_worker_resume(worker);
}

void phx_worker_run_claim(struct phx_worker *worker, struct phx_claim claimed)
{
	while (claimed.count--) {
		phx_worker_start(worker, claimed.first++);
		worker->ops->flush(worker->engine);
		phx_worker_reap(worker);
		while (worker->stalled || worker->in_flight > IN_FLIGHT)
			step(worker);
	}
}

void phx_worker_drain(struct phx_worker *worker)
{
	while (worker->copies || worker->in_flight || worker->stalled)
		step(worker);
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
		if (slice->job != job) {
			if (settled)
				phx_job_finish(job, settled);
			job = slice->job;
			settled = 0;
		}
		settled += settle(worker, slice);
	}
	if (settled)
		phx_job_finish(job, settled);
}
