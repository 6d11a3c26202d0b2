// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "phx_config.h"
#include "phx_job.h"
#include "io_engine/io_pool.h"

/*
 * Bytes of a slice. Through chunks: a chunk, but small enough that every
 * worker finds a few in the pool.
 */
static size_t slice_size(const struct phx_xfer *x)
{
	size_t size = PHX_CHUNK_MAX, share;

	if (x->path == PHXFS_PATH_DIRECT)
		return size;
	share = phx_staging_size() / (4 * (size_t)phx_config.workers);
	while (size > PHX_CHUNK_MIN && size > share)
		size /= 2;
	return size;
}

static bool appends(struct phx_xfer *x)
{
	return x->write && (phx_xfer_flags(x) & O_APPEND);
}

/* Slices of @x from byte @at on. */
static size_t count_slices(struct phx_xfer *x, size_t at)
{
	size_t size = slice_size(x), head;

	if (appends(x) || x->len - at <= size / 2)
		return 1;
	head = (size_t)(x->off + (off_t)at) & (size - 1);
	return (head + (x->len - at) + size - 1) / size;
}

static struct phx_slice *cut(struct phx_job *job, struct phx_slice *slice, struct phx_xfer *x,
			     size_t at, size_t count)
{
	size_t size = slice_size(x);

	for (size_t i = 0; i < count; i++, slice++) {
		size_t head = (size_t)(x->off + (off_t)at) & (size - 1);
		size_t len = i + 1 == count ? x->len - at : size - head;

		slice->job = job;
		slice->x = x;
		slice->at = at;
		slice->len = len;
		at += len;
	}
	return slice;
}

/*
 * An O_APPEND write is asked for its descriptor's flags by every transfer; a
 * batch that writes one file needs to ask once.
 */
static void share_flags(struct phx_xfer *xfers, const ssize_t *results, int count)
{
	struct phx_xfer *last = NULL;

	for (int i = 0; i < count; i++) {
		if (results[i] < 0 || !xfers[i].write)
			continue;
		if (last && last->fd == xfers[i].fd)
			xfers[i].flags = last->flags;
		else
			phx_xfer_flags(&xfers[i]);
		last = &xfers[i];
	}
}

int phx_job_init(struct phx_job *job, struct phx_xfer *xfers, ssize_t *results, int count,
		 void (*done)(struct phx_job *job))
{
	struct phx_slice *free_end, *ordered_end;
	size_t slices = 0, ordered = 0;

	memset(job, 0, sizeof(*job));
	job->xfers = xfers;
	job->results = results;
	job->count = count;
	job->done = done;
	share_flags(xfers, results, count);
	for (int i = 0; i < count; i++) {
		if (results[i] >= 0) {
			slices += count_slices(&xfers[i], 0);
			ordered += appends(&xfers[i]);
		}
	}
	job->slices = calloc(slices ? slices : 1, sizeof(*job->slices));
	if (!job->slices)
		return -ENOMEM;
	job->slice_count = slices;
	job->ordered = slices - ordered;
	atomic_init(&job->left, slices);
	free_end = job->slices;
	ordered_end = job->slices + job->ordered;
	for (int i = 0; i < count; i++) {
		if (results[i] < 0)
			continue;
		if (appends(&xfers[i]))
			ordered_end = cut(job, ordered_end, &xfers[i], 0, 1);
		else
			free_end = cut(job, free_end, &xfers[i], 0, count_slices(&xfers[i], 0));
	}
	return 0;
}

int phx_job_init_rest(struct phx_job *job, struct phx_xfer *x, ssize_t *result, size_t at,
		      void (*done)(struct phx_job *job))
{
	size_t slices = count_slices(x, at);

	memset(job, 0, sizeof(*job));
	job->xfers = x;
	job->results = result;
	job->count = 1;
	job->done = done;
	job->slices = calloc(slices, sizeof(*job->slices));
	if (!job->slices)
		return -ENOMEM;
	job->slice_count = slices;
	job->ordered = appends(x) ? 0 : slices;
	atomic_init(&job->left, slices);
	cut(job, job->slices, x, at, slices);
	return 0;
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
		if (s->moved < s->len) {
			gap = true;
			if (*result == 0 && s->err)
				*result = s->err;
		}
	}
}

void phx_slice_finish(struct phx_slice *slice)
{
	struct phx_job *job = slice->job;

	/* acq_rel: the last finisher sees what all the others wrote. */
	if (atomic_fetch_sub_explicit(&job->left, 1, memory_order_acq_rel) != 1)
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

ssize_t phx_job_run_one(struct phx_xfer *x)
{
	ssize_t result = 0;
	struct one one;
	int err;

	err = phx_job_init(&one.job, x, &result, 1, one_done);
	if (err)
		return err;
	sem_init(&one.finished, 0, 0);
	phx_pool_submit(&one.job);
	phx_pool_help(&one.job);
	while (sem_wait(&one.finished))
		;
	sem_destroy(&one.finished);
	phx_job_free(&one.job);
	return result;
}
