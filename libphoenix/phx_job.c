// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "phx_config.h"
#include "phx_fill.h"
#include "phx_job.h"
#include "io_engine/io_pool.h"

#define LEAST_SLICE (256UL << 10)   /* of a chunked request that is cut at all */
#define MOST_SLICE (2UL << 20)
#define MOST_SLICES (1UL << 18)     /* of a request */
#define PER_HAND (512UL << 10)      /* of a cached request, before one more thread pays */
#define FEW_CALLERS 2
#define LEAST_HANDS 3               /* of one of several callers, if more than its own */
#define SPINS 2000
#define GRAIN_DIRECT (4UL << 20)
#define GRAIN_CHUNKED (256UL << 10)
#define PIECES 8 /* of a request through chunks, unless its caller says another number */

/*
 * Bytes of a slice. Through chunks: a chunk, but small enough that every
 * worker finds a few in the pool, and that a request makes work for several. A
 * request that one thread moves is cut in two, so that a copy runs beside a read.
 */
static size_t slice_size(const struct phx_job *job, const struct phx_xfer *x)
{
	size_t size = PHX_CHUNK_MAX, share, each;

	if (x->path != PHXFS_PATH_DIRECT) {
		share = phx_staging_size(x->dev, x->path) / (4 * (size_t)phx_config.workers);
		each = x->len / (size_t)job->pieces;
		share = share < each ? share : each;
		share = share < MOST_SLICE ? share : MOST_SLICE;
		share = share > LEAST_SLICE ? share : LEAST_SLICE;
		while (size > share)
			size /= 2;
	}
	/* A length may be far beyond the file's; its slices must not need all memory. */
	while (x->len / size > MOST_SLICES)
		size *= 2;
	return size;
}

/*
 * Chunked slices are claimed a few at a time, since each means work of this
 * processor's; direct ones are work of the storage, and cost most in claims.
 */
static void set_grain(struct phx_job *job)
{
	job->grain = GRAIN_DIRECT;
	for (int i = 0; i < job->count; i++) {
		if (job->results[i] >= 0 && job->xfers[i].path != PHXFS_PATH_DIRECT) {
			job->grain = GRAIN_CHUNKED;
			return;
		}
	}
}

static bool appends(struct phx_xfer *x)
{
	return x->write && (phx_xfer_flags(x) & O_APPEND);
}

static __attribute__((noinline)) size_t count_many(const struct phx_job *job, struct phx_xfer *x,
						   size_t at)
{
	size_t size = slice_size(job, x), head;

	if (appends(x) || x->len - at <= size / 2)
		return 1;
	head = (size_t)(x->off + (off_t)at) & (size - 1);
	return (head + (x->len - at) + size - 1) / size;
}

/* Slices of @x from byte @at on. */
static inline size_t count_slices(const struct phx_job *job, struct phx_xfer *x, size_t at)
{
	return x->len - at <= PHX_CHUNK_MIN / 2 ? 1 : count_many(job, x, at);
}

static inline void set_slice(struct phx_slice *slice, struct phx_job *job, struct phx_xfer *x,
			     size_t at, size_t len)
{
	slice->job = job;
	slice->x = x;
	slice->at = at;
	slice->len = len;
	slice->moved = 0;
	slice->err = 0;
	slice->by_hand = false;
	slice->ready = false;
}

static struct phx_slice *cut(struct phx_job *job, struct phx_slice *slice, struct phx_xfer *x,
			     size_t at, size_t count)
{
	size_t size = slice_size(job, x);

	for (size_t i = 0; i < count; i++, slice++) {
		size_t head = (size_t)(x->off + (off_t)at) & (size - 1);
		size_t len = i + 1 == count ? x->len - at : size - head;

		set_slice(slice, job, x, at, len);
		at += len;
	}
	return slice;
}

/*
 * Ask for the descriptor's flags where they will matter, before several
 * threads may look at them. Neighbours with the same descriptor ask once.
 */
static inline void ask_flags(struct phx_xfer *x, struct phx_xfer **last)
{
	if (!x->write && x->path == PHXFS_PATH_DIRECT)
		return;
	if (*last && (*last)->fd == x->fd)
		x->flags = (*last)->flags;
	phx_xfer_flags(x);
	*last = x;
}

/* Count the slices of all transfers, and those that keep an order. */
static void count_all(struct phx_job *job)
{
	struct phx_xfer *last = NULL;
	size_t slices = 0, ordered = 0, most = 0, n;
	bool resolved = true;

	for (int i = 0; i < job->count; i++) {
		if (job->results[i] < 0) {
			resolved = false;
			continue;
		}
		ask_flags(&job->xfers[i], &last);
		ordered += appends(&job->xfers[i]);
		n = count_slices(job, &job->xfers[i], 0);
		most = n > most ? n : most;
		slices += n;
	}
	job->plain = resolved && most == 1 && !ordered;
	job->slice_count = slices;
	job->ordered = slices - ordered;
	atomic_init(&job->left, slices);
}

static int alloc_slices(struct phx_job *job)
{
	/* Not cleared: set_slice() sets what must be set. */
	job->slices = malloc((job->slice_count ? job->slice_count : 1) * sizeof(*job->slices));
	return job->slices ? 0 : -ENOMEM;
}

/* Fill in the engine's part of a direct slice. No bytes: not for the engine. */
static inline void set_io(struct phx_slice *slice)
{
	const struct phx_xfer *x = slice->x;

	slice->io.fd = x->fd;
	slice->io.write = x->write;
	slice->io.addr = x->io;
	slice->io.len = x->len;
	slice->io.off = x->off;
	slice->io.device_id = x->device_id;
	slice->ready = x->len != 0;
}

/*
 * The common batch in one pass: small direct reads, one slice each. False: it
 * is not that.
 */
static bool try_plain(struct phx_job *job)
{
	size_t count = (size_t)job->count;

	job->slices = count ? malloc(count * sizeof(*job->slices)) : NULL;
	if (!job->slices)
		return false;
	for (size_t i = 0; i < count; i++) {
		struct phx_xfer *x = &job->xfers[i];

		if (job->results[i] < 0 || x->write || x->path != PHXFS_PATH_DIRECT ||
		    x->len > PHX_CHUNK_MIN / 2) {
			phx_job_free(job);
			return false;
		}
		set_slice(&job->slices[i], job, x, 0, x->len);
		set_io(&job->slices[i]);
	}
	job->plain = true;
	job->grain = GRAIN_DIRECT;
	job->slice_count = count;
	job->ordered = count;
	atomic_init(&job->left, count);
	return true;
}

static void set_up(struct phx_job *job, struct phx_xfer *xfers, ssize_t *results, int count,
		   void (*done)(struct phx_job *job))
{
	memset(job, 0, sizeof(*job));
	job->xfers = xfers;
	job->results = results;
	job->count = count;
	job->pieces = PIECES;
	job->done = done;
}

static int make_slices(struct phx_job *job)
{
	struct phx_slice *free_end, *ordered_end;

	set_grain(job);
	count_all(job);
	if (alloc_slices(job))
		return -ENOMEM;
	free_end = job->slices;
	ordered_end = job->slices + job->ordered;
	for (int i = 0; i < job->count; i++) {
		struct phx_xfer *x = &job->xfers[i];

		if (job->results[i] < 0)
			continue;
		if (appends(x))
			set_slice(ordered_end++, job, x, 0, x->len);
		else if (x->len <= PHX_CHUNK_MIN / 2)
			set_slice(free_end++, job, x, 0, x->len);
		else
			free_end = cut(job, free_end, x, 0, count_slices(job, x, 0));
	}
	return 0;
}

int phx_job_init(struct phx_job *job, struct phx_xfer *xfers, ssize_t *results, int count,
		 void (*done)(struct phx_job *job))
{
	set_up(job, xfers, results, count, done);
	return try_plain(job) ? 0 : make_slices(job);
}

int phx_job_init_rest(struct phx_job *job, struct phx_xfer *x, ssize_t *result, size_t at,
		      void (*done)(struct phx_job *job))
{
	struct phx_xfer *last = NULL;

	set_up(job, x, result, 1, done);
	job->grain = x->path == PHXFS_PATH_DIRECT ? GRAIN_DIRECT : GRAIN_CHUNKED;
	ask_flags(x, &last);
	job->slice_count = count_slices(job, x, at);
	if (alloc_slices(job))
		return -ENOMEM;
	job->ordered = appends(x) ? 0 : job->slice_count;
	atomic_init(&job->left, job->slice_count);
	cut(job, job->slices, x, at, job->slice_count);
	return 0;
}

void phx_job_init_call(struct phx_job *job, ssize_t *result, struct phx_slice *slice,
		       void (*call)(struct phx_job *job), void (*done)(struct phx_job *job))
{
	*job = (struct phx_job){ .results = result, .slices = slice, .slice_count = 1,
				 .ordered = 1, .grain = GRAIN_DIRECT, .plain = true,
				 .call = call, .done = done };
	set_slice(slice, job, NULL, 0, 0);
	atomic_init(&job->left, 1);
}

void phx_job_init_pieces(struct phx_job *job, struct phx_xfer *x, ssize_t *result,
			 struct phx_slice *slices, size_t piece,
			 void (*done)(struct phx_job *job))
{
	size_t count = 0;

	*job = (struct phx_job){ .xfers = x, .results = result, .count = 1, .done = done,
				 .slices = slices, .grain = piece, .whole = true };
	for (size_t at = 0; at < x->len; at += piece) {
		size_t len = x->len - at < piece ? x->len - at : piece;

		set_slice(&slices[count++], job, x, at, len);
	}
	job->slice_count = count;
	job->ordered = count;
	atomic_init(&job->left, count);
}

void phx_job_free(struct phx_job *job)
{
	free(job->slices);
	job->slices = NULL;
}

/*
 * The result of a transfer is what it moved without a gap from its start: a
 * slice behind a short or failed one does not count.
 */
static void collect(struct phx_job *job)
{
	struct phx_xfer *x = NULL;
	bool gap = false;

	if (job->plain) {
		for (size_t i = 0; i < job->slice_count; i++) {
			struct phx_slice *s = &job->slices[i];

			job->results[i] = (ssize_t)(s->at + s->moved);
			if (!job->results[i] && s->err)
				job->results[i] = s->err;
		}
		return;
	}

	for (size_t i = 0; i < job->slice_count; i++) {
		struct phx_slice *s = &job->slices[i];
		ssize_t *result = &job->results[s->x - job->xfers];

		if (s->x != x) {
			x = s->x;
			gap = false;
			*result = (ssize_t)s->at;
		}
		if (gap)
			continue;
		*result += (ssize_t)s->moved;
		if (s->moved < s->len || s->err) {
			gap = true;
			if (*result == 0 && s->err)
				*result = s->err;
		}
	}
}

void phx_job_finish(struct phx_job *job, size_t slices)
{
	/* acq_rel: the last finisher sees what all the others wrote. */
	if (atomic_fetch_sub_explicit(&job->left, slices, memory_order_acq_rel) != slices)
		return;
	collect(job);
	phx_pool_finished(job);
	job->done(job);
}

struct one {
	struct phx_job job; /* must be first */
	sem_t finished;
};

static void one_done(struct phx_job *job)
{
	sem_post(&((struct one *)job)->finished);
}

/*
 * How many threads should move a request, when so many callers have one under way.
 * Direct I/O is work of the disk's, and buffered writes to one file exclude each
 * other in the kernel: the caller alone. Else all that there are, shared by the
 * callers, and half as many again, since some of these wait for their copies;
 * but none for little. A share of two is worse than none: the copies come too close
 * behind what the processors still hold (phx_fill.c), and many callers copy beside
 * each other's reads anyway.
 */
static int count_hands(struct phx_xfer *x, bool direct, int callers)
{
	size_t most = direct || x->write ? 1 : x->len / PER_HAND;
	int workers = (int)phx_config.workers, hands = workers;

	if (callers > 1)
		hands = 3 * workers / (2 * callers);
	if (callers > 1 && hands < LEAST_HANDS)
		hands = 1;
	if ((size_t)hands > most)
		hands = (int)most;
	return hands > 1 ? hands : 1;
}

/* Others are about as far as we are: look a little before sleeping. */
static void wait_for(struct one *one)
{
	for (int i = 0; i < SPINS; i++) {
		if (!sem_trywait(&one->finished))
			return;
		phx_relax();
	}
	while (sem_wait(&one->finished))
		;
}

static ssize_t run_slices(struct phx_xfer *x, bool direct, int hands, int callers)
{
	ssize_t result = 0;
	struct one one;
	int err;

	set_up(&one.job, x, &result, 1, one_done);
	one.job.helpers = hands - 1;
	one.job.patient = direct && callers > FEW_CALLERS;
	one.job.pieces = one.job.patient ? 1 : 2 * hands;
	err = make_slices(&one.job);
	if (err)
		return err;
	sem_init(&one.finished, 0, 0);
	if (one.job.helpers)
		phx_pool_submit(&one.job);
	phx_pool_help(&one.job, direct);
	wait_for(&one);
	sem_destroy(&one.finished);
	phx_job_free(&one.job);
	return result;
}

/* Out of the page cache into a device. */
static bool is_fill(struct phx_xfer *x)
{
	return !x->write && x->path == PHXFS_PATH_BOUNCE && x->dev &&
	       x->dev->mode != PHXFS_MODE_HOST && !(phx_xfer_flags(x) & O_DIRECT);
}

static atomic_int under_way; /* calls of phx_job_run_one() */

/* Those of the parent's other threads do not end here. */
void phx_job_fork_child(void)
{
	atomic_store(&under_way, 0);
}

ssize_t phx_job_run_one(struct phx_xfer *x)
{
	int callers = 1 + atomic_fetch_add(&under_way, 1);
	bool direct = phx_xfer_flags(x) & O_DIRECT;
	int hands = count_hands(x, direct, callers);
	ssize_t result;

	result = is_fill(x) ? phx_fill_run(x, hands) : run_slices(x, direct, hands, callers);
	atomic_fetch_sub(&under_way, 1);
	return result;
}
