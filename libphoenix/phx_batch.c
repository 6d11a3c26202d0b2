// SPDX-License-Identifier: Apache-2.0
/*
 * Batches: a job made of many requests, in the worker pool's FIFO.
 *
 * The handle owns the transfers and the job. The regions are let go when the
 * last slice has finished, not when the caller comes to wait, so that a
 * batch nobody waits for does not hold up a deregistration.
 */
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>

#include "phx_error.h"
#include "phx_init.h"
#include "phx_job.h"
#include "phx_xfer.h"
#include "io_engine/io_pool.h"

struct phxfs_batch {
	struct phx_job job;      /* must be first */
	sem_t finished;
	unsigned int generation; /* phx_fork_generation() of the submitter */
	bool write;
	int count;
	phxfs_io_req_t *reqs;    /* the caller's */
	struct phx_xfer *xfers;
	ssize_t *results;
};

static void end_transfers(struct phxfs_batch *batch)
{
	struct phx_tally tally = { 0 };

	for (int i = 0; i < batch->count; i++) {
		if (batch->xfers[i].fd >= 0)
			phx_xfer_end_tally(&batch->xfers[i], batch->results[i], &tally);
	}
	phx_tally_flush(&tally);
}

/* Of a batch that never began: nothing is counted. */
static void drop_transfers(struct phxfs_batch *batch)
{
	for (int i = 0; i < batch->count; i++) {
		if (batch->xfers[i].fd >= 0)
			phx_xfer_drop(&batch->xfers[i]);
	}
}

static void batch_done(struct phx_job *job)
{
	struct phxfs_batch *batch = (struct phxfs_batch *)job;

	end_transfers(batch);
	sem_post(&batch->finished); /* the waiter may free it at once */
}

static void free_batch(struct phxfs_batch *batch)
{
	phx_job_free(&batch->job);
	sem_destroy(&batch->finished);
	free(batch->xfers);
	free(batch->results);
	free(batch);
}

static struct phxfs_batch *new_batch(bool write, phxfs_io_req_t *reqs, int n)
{
	struct phxfs_batch *batch = calloc(1, sizeof(*batch));

	if (!batch)
		return NULL;
	sem_init(&batch->finished, 0, 0);
	batch->generation = phx_fork_generation();
	batch->write = write;
	batch->reqs = reqs;
	batch->count = n > 0 ? n : 0;
	if (batch->count) {
		batch->xfers = malloc((size_t)n * sizeof(*batch->xfers));
		batch->results = calloc((size_t)n, sizeof(*batch->results));
		if (!batch->xfers || !batch->results) {
			free_batch(batch);
			return NULL;
		}
	}
	return batch;
}

/*
 * Resolve every request. One that fails keeps its error as its result, and is
 * marked by a negative descriptor in its transfer: it holds nothing.
 */
static void resolve(struct phxfs_batch *batch)
{
	struct phx_xfer *near = NULL;

	for (int i = 0; i < batch->count; i++) {
		const phxfs_io_req_t *r = &batch->reqs[i];
		struct phx_xfer *x = &batch->xfers[i];
		int err = phx_xfer_start_req(x, batch->write, r, near);

		if (!err && r->fd < 0) {
			phx_xfer_end(x, -EBADF);
			err = phx_xfer_fail(-EBADF, batch->write, r->fd, r->nbytes, r->f_offset);
		}
		if (err) {
			x->fd = -1;
			batch->results[i] = err;
		} else if (x->region) {
			near = x;
		}
	}
}

/* 0, or -errno with nothing left behind. */
static int submit(bool write, phxfs_io_req_t *reqs, int n, bool wait, struct phxfs_batch **out)
{
	static const char *const names[] = { "read_batch", "write_batch" };
	struct phxfs_batch *batch;
	int err;

	phx_init();
	if (n > 0 && !reqs)
		return phx_fail(-EINVAL, names[write], NULL, "%d requests at NULL", n);
	batch = new_batch(write, reqs, n);
	if (!batch)
		return phx_fail(-ENOMEM, names[write], NULL, "%d requests", n);
	resolve(batch);
	err = phx_job_init(&batch->job, batch->xfers, batch->results, batch->count, batch_done);
	if (err) {
		phx_fail(err, names[write], NULL, "slices of %d requests", n);
		goto err_drop;
	}
	if (batch->job.slice_count)
		err = phx_pool_submit_batch(&batch->job, wait);
	else
		batch_done(&batch->job);
	if (err == -EBUSY) {
		phx_fail(err, names[write], "wait for one of them first", "%d batches are queued",
			 PHXFS_BATCH_FIFO);
		goto err_drop;
	}
	if (err) /* no worker can be had: this thread does it, now */
		phx_pool_run_here(&batch->job);
	*out = batch;
	return 0;

err_drop:
	drop_transfers(batch);
	free_batch(batch);
	return err;
}

/*
 * Copy the results back; the convention of phxfs_read_batch(). The first
 * failure becomes the last error, unless this thread has recorded it since
 * @mark, when it resolved the request.
 */
static int deliver(struct phxfs_batch *batch, unsigned int mark)
{
	bool told = false;
	int failed = 0;

	for (int i = 0; i < batch->count; i++) {
		phxfs_io_req_t *r = &batch->reqs[i];

		r->result = batch->results[i];
		if (r->result == (ssize_t)r->nbytes)
			continue;
		failed++;
		if (!told && r->result < 0 && !phx_error_since(mark, (int)r->result))
			phx_xfer_fail((int)r->result, batch->write, r->fd, r->nbytes, r->f_offset);
		told |= r->result < 0;
	}
	return failed;
}

static void wait_finished(struct phxfs_batch *batch)
{
	while (sem_wait(&batch->finished))
		; /* EINTR */
}

static int run_batch(bool write, phxfs_io_req_t *reqs, int n)
{
	unsigned int mark = phx_error_mark();
	struct phxfs_batch *batch;
	int err, failed;

	if (n <= 0)
		return 0;
	err = submit(write, reqs, n, true, &batch);
	if (err)
		return err;
	wait_finished(batch);
	failed = deliver(batch, mark);
	free_batch(batch);
	return failed;
}

int phxfs_read_batch(phxfs_io_req_t *reqs, int n)
{
	return run_batch(false, reqs, n);
}

int phxfs_write_batch(phxfs_io_req_t *reqs, int n)
{
	return run_batch(true, reqs, n);
}

static phxfs_batch_t *start_batch(bool write, phxfs_io_req_t *reqs, int n)
{
	struct phxfs_batch *batch;
	int err = submit(write, reqs, n, false, &batch);

	if (!err)
		return batch;
	errno = -err;
	return NULL;
}

phxfs_batch_t *phxfs_batch_submit_read(phxfs_io_req_t *reqs, int n)
{
	return start_batch(false, reqs, n);
}

phxfs_batch_t *phxfs_batch_submit_write(phxfs_io_req_t *reqs, int n)
{
	return start_batch(true, reqs, n);
}

/* True: the batch is the parent's; its memory here is a copy that is freed. */
static bool inherited(struct phxfs_batch *batch)
{
	if (batch->generation == phx_fork_generation())
		return false;
	free_batch(batch);
	return true;
}

int phxfs_batch_wait(phxfs_batch_t *handle)
{
	int failed;

	if (!handle)
		return phx_fail(-EINVAL, "batch_wait", NULL, "NULL handle");
	if (inherited(handle))
		return phx_fail(-ECHILD, "batch_wait", "submit it in this process",
				"a batch of the parent process");
	phx_range_push("phxfs_batch_wait");
	wait_finished(handle);
	phx_range_pop();
	failed = deliver(handle, phx_error_mark());
	free_batch(handle);
	return failed;
}

int phxfs_batch_destroy(phxfs_batch_t *handle)
{
	if (!handle)
		return 0;
	if (inherited(handle))
		return phx_fail(-ECHILD, "batch_destroy", NULL, "a batch of the parent process");
	if (handle->job.slice_count && phx_pool_take_back(&handle->job)) {
		drop_transfers(handle);
	} else {
		atomic_store_explicit(&handle->job.cancelled, true, memory_order_relaxed);
		wait_finished(handle);
	}
	free_batch(handle);
	return 0;
}
