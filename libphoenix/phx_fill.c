// SPDX-License-Identifier: Apache-2.0
/*
 * Large buffered reads into a device, through chunks of host memory.
 *
 * Copying out of the page cache is work for many processors; queueing copies on
 * a device is not: its runtime lets one thread in at a time, and the device
 * pays for each copy. So the workers only fill: each chunk is a job of plain
 * reads. The caller queues the copy of each chunk once it is full, in the order
 * of the file, and fills too while there is nothing to queue.
 *
 *     finished <= copied <= started        parts, in a ring
 *       free | copying | full or being filled | free
 *
 * A part that is full was reported twice: by its flag, which the caller looks
 * at, and by a token, of which it takes one for each part before it returns.
 */
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>

#include "phx_config.h"
#include "phx_fill.h"
#include "phx_job.h"
#include "phx_time.h"
#include "io_engine/io_pool.h"

#define PARTS 16
#define PIECES 16              /* of a chunk */
#define LEAST_CHUNK (1UL << 20)
#define LEAST_PIECE (64UL << 10)
#define MOST_PIECE (512UL << 10)
#define CHUNKS_PER_READ 4      /* at least, of several hands: copies run beside reads */
#define CACHED_PER_HAND (2UL << 20)
#define PIECES_PER_HAND 4
#define HANDS_TO_LET_OUT 3     /* letting out takes their time */
#define SPIN_NS 50000
#define COPIES_AHEAD 2         /* that keep the device busy while the caller fills */

struct fill;

struct part {
	struct phx_job job; /* must be first */
	struct fill *fill;
	struct phx_xfer x;  /* file -> chunk */
	struct phx_slice slices[PIECES];
	ssize_t result;     /* of the reads */
	struct phx_chunk chunk;
	size_t at, len;     /* of the whole read */
	size_t moved;       /* into the buffer */
	int err;
	bool queued;        /* the copy */
	atomic_bool full;   /* or failed: the reads are over */
};

struct fill {
	struct phx_xfer *x;
	size_t chunk, piece;
	int hands;
	bool let_out;
	size_t next;        /* where the next part begins */
	unsigned int started, copied, finished, tokens;
	bool stopped;       /* start nothing more */
	bool gap;           /* done is all that counts */
	size_t done;
	int err;
	sem_t token;
	struct part parts[PARTS];
};

static struct part *part_at(struct fill *f, unsigned int n)
{
	return &f->parts[n % PARTS];
}

static void part_full(struct phx_job *job)
{
	struct part *p = (struct part *)job;
	struct fill *f = p->fill;

	/* release: pairs with is_full(); @p may be used again from here on */
	atomic_store_explicit(&p->full, true, memory_order_release);
	sem_post(&f->token);
}

static bool is_full(struct part *p)
{
	return atomic_load_explicit(&p->full, memory_order_acquire);
}

/* What has not been read yet need not be. */
static void stop(struct fill *f)
{
	f->stopped = true;
	for (unsigned int n = f->copied; n != f->started; n++)
		atomic_store(&part_at(f, n)->job.cancelled, true);
}

/* The data ends in this place of the read, with @err or the end of the file. */
static void end(struct fill *f, int err)
{
	f->gap = true;
	f->err = err;
	stop(f);
}

/* Reads of @p into its chunk, for any worker. */
static void submit(struct fill *f, struct part *p)
{
	p->x = (struct phx_xfer){ .fd = f->x->fd, .device_id = f->x->device_id,
				  .path = PHXFS_PATH_DIRECT, .flags = f->x->flags,
				  .io = p->chunk.io, .addr = p->chunk.io, .len = p->len,
				  .off = f->x->off + (off_t)p->at, .part = true };
	atomic_init(&p->x.stop_at, SIZE_MAX);
	p->fill = f;
	p->result = 0;
	p->moved = 0;
	p->err = 0;
	p->queued = false;
	atomic_store_explicit(&p->full, false, memory_order_relaxed);
	phx_job_init_pieces(&p->job, &p->x, &p->result, p->slices, f->piece, part_full);
	p->job.let_out = f->let_out;
	/* Without helpers: for other callers that wait. */
	p->job.helpers = f->hands > 1 ? f->hands - 1 : -1;
	/* What cannot be queued the caller reads. */
	phx_pool_submit(&p->job);
}

/* False: all is under way, or there is no room. */
static bool start_part(struct fill *f)
{
	struct part *p = part_at(f, f->started);
	int err;

	if (f->stopped || f->next == f->x->len || f->started - f->finished == PARTS)
		return false;
	p->len = f->x->len - f->next < f->chunk ? f->x->len - f->next : f->chunk;
	err = phx_chunk_get(f->x->dev, f->x->path, p->len, f->started == f->finished, &p->chunk);
	if (err) {
		if (err != -EAGAIN)
			end(f, err);
		return false;
	}
	if (p->chunk.size < p->len)
		p->len = p->chunk.size;
	p->at = f->next;
	f->next += p->len;
	f->started++;
	submit(f, p);
	return true;
}

/* The oldest part that is full: on to the device. */
static void copy_part(struct fill *f)
{
	struct part *p = part_at(f, f->copied++);
	size_t n = p->result > 0 ? (size_t)p->result : 0;

	if (n < p->len)
		stop(f);
	if (f->gap || !n)
		return;
	p->err = phx_xfer_from_chunk_async(f->x, p->at, &p->chunk, 0, n);
	p->queued = !p->err;
	if (p->err == -EOPNOTSUPP)
		p->err = phx_xfer_from_chunk(f->x, p->at, &p->chunk, 0, n, &p->moved);
	if (p->err)
		stop(f);
}

/* False: the copy is not done yet (never with @wait). */
static bool finish_part(struct fill *f, bool wait)
{
	struct part *p = part_at(f, f->finished);

	if (p->queued) {
		p->err = phx_xfer_copied(f->x, &p->chunk, (size_t)p->result, wait);
		if (p->err == -EBUSY)
			return false;
		p->moved = p->err ? 0 : (size_t)p->result;
	}
	phx_chunk_put(&p->chunk);
	f->finished++;
	if (f->gap)
		return true;
	f->done += p->moved;
	if (p->moved < p->len)
		end(f, p->err ? p->err : p->result < 0 ? (int)p->result : 0);
	return true;
}

/* Fill a little; false: workers do it all. */
static bool help(struct fill *f)
{
	if (f->copied - f->finished < COPIES_AHEAD && f->next != f->x->len &&
	    f->hands > PIECES / 2)
		return false;
	for (unsigned int n = f->copied; n != f->started; n++) {
		if (phx_pool_help_once(&part_at(f, n)->job))
			return true;
	}
	return false;
}

/* The oldest part is being filled by others, and nothing else is to be done. */
static void wait_for_part(struct fill *f)
{
	struct part *p = part_at(f, f->copied);
	uint64_t until = phx_now_ns() + SPIN_NS;

	do {
		for (int i = 0; i < 32; i++) {
			if (is_full(p))
				return;
			phx_relax();
		}
		if (f->finished != f->copied && finish_part(f, false))
			return;
	} while (phx_now_ns() < until);
	if (f->finished != f->copied)
		finish_part(f, true);
	else if (!sem_wait(&f->token))
		f->tokens++;
}

/* Wait for the oldest copy; what other callers want read is read meanwhile. */
static void wait_for_copy(struct fill *f)
{
	while (!finish_part(f, false)) {
		if (!phx_pool_help_any()) {
			finish_part(f, true);
			return;
		}
	}
}

static void run(struct fill *f)
{
	for (;;) {
		if (start_part(f))
			continue;
		if (f->copied == f->started) {
			if (f->finished == f->copied)
				break;
			wait_for_copy(f);
		} else if (is_full(part_at(f, f->copied))) {
			copy_part(f);
		} else if (!help(f)) {
			wait_for_part(f);
		}
	}
	while (f->tokens != f->started)
		f->tokens += !sem_wait(&f->token);
}

static size_t power_below(size_t n)
{
	return 1UL << (63 - __builtin_clzl(n));
}

static size_t clamp(size_t n, size_t least, size_t most)
{
	return n < least ? least : n > most ? most : n;
}

static void set_sizes(struct fill *f)
{
	size_t pool = phx_staging_size(f->x->dev, f->x->path) / PARTS;

	f->chunk = power_below(f->x->len) / (f->hands > 1 ? CHUNKS_PER_READ : 1);
	f->chunk = clamp(f->chunk, LEAST_CHUNK, PHX_CHUNK_MAX);
	if (f->chunk > pool)
		f->chunk = clamp(power_below(pool), PHX_CHUNK_MIN, PHX_CHUNK_MAX);
	f->piece = clamp(power_below(f->chunk / (size_t)(PIECES_PER_HAND * f->hands)),
			 LEAST_PIECE, MOST_PIECE);
	while (f->chunk / f->piece > PIECES)
		f->piece *= 2;
}

ssize_t phx_fill_run(struct phx_xfer *x, int hands)
{
	struct fill *f = calloc(1, sizeof(*f));
	ssize_t result;

	if (!f)
		return -ENOMEM;
	f->x = x;
	f->hands = hands;
	/*
	 * A device reads what a processor's own cache holds at half the speed. A long
	 * read pushes it out of there by itself.
	 */
	f->let_out = hands >= HANDS_TO_LET_OUT && x->len / (size_t)hands <= CACHED_PER_HAND;
	set_sizes(f);
	sem_init(&f->token, 0, 0);
	run(f);
	sem_destroy(&f->token);
	result = phx_xfer_result(f->done, f->err);
	phx_xfer_count(x, f->done);
	free(f);
	return result;
}
