// SPDX-License-Identifier: Apache-2.0
/*
 * Transfers in the order of a device's stream.
 *
 *   the stream:  ... earlier work | call run() | later work ...
 *
 * run() is called when the stream has got there, and the stream goes on when
 * it returns. It reads the arguments, which earlier work may have written, hands
 * the transfer to the worker pool and sleeps until it is over: the thread that
 * the runtime calls it in must make no call of the runtime's, and workers do.
 * Whatever happens to the transfer, run() returns, so that a failure never
 * stalls the stream.
 *
 * While a stream is held, copies that the program has queued behind may stand
 * in the device's copy engines and keep ours out. The connector takes care of
 * that (stream_held) for so many streams at once as it says; more wait for one
 * of them before they are enqueued.
 *
 * Lock: held_lock protects the streams held.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "phx_device.h"
#include "phx_error.h"
#include "phx_init.h"
#include "phx_job.h"
#include "phx_sized.h"
#include "phx_stream.h"
#include "phx_xfer.h"
#include "io_engine/io_pool.h"

struct op {
	struct phx_job job;     /* must be first */
	struct phx_xfer x;
	ssize_t result;
	int started;            /* what start() returned in a worker */
	sem_t finished;
	struct phxfs_stream_io io;
	struct phx_device *dev; /* whose stream it is; NULL: nobody's */
	bool held;              /* counts among the streams held */
};

/* Streams with transfers enqueued and not over. */
struct held {
	void *stream;
	int ops; /* 0: the place is free */
};

static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t held_changed = PTHREAD_COND_INITIALIZER;
static struct held held[PHX_MAX_DEVICES][DEVCONN_HELD_STREAMS]; /* protected by: held_lock */

/* ---------------------------------------------------------- streams held */

/* The place of @stream, or a free one, or NULL; with the lock held. */
static struct held *find_held(const struct phx_device *dev, const void *stream)
{
	struct held *places = held[dev->id], *found = NULL;

	for (int i = 0; i < dev->ops->held_streams; i++) {
		if (places[i].ops && places[i].stream == stream)
			return &places[i];
		if (!places[i].ops)
			found = &places[i];
	}
	return found;
}

static int enter_stream(const struct phx_device *dev, void *stream)
{
	int err = dev->ops->stream_held(dev->id, 1);
	struct held *place;

	if (err)
		return err;
	pthread_mutex_lock(&held_lock);
	while (!(place = find_held(dev, stream)))
		pthread_cond_wait(&held_changed, &held_lock);
	place->stream = stream;
	place->ops++;
	pthread_mutex_unlock(&held_lock);
	return 0;
}

static void leave_stream(const struct phx_device *dev, void *stream)
{
	struct held *place;

	dev->ops->stream_held(dev->id, -1);
	pthread_mutex_lock(&held_lock);
	place = find_held(dev, stream);
	if (--place->ops == 0)
		pthread_cond_broadcast(&held_changed);
	pthread_mutex_unlock(&held_lock);
}

/* ----------------------------------------------------------- an operation */

static void job_done(struct phx_job *job)
{
	sem_post(&((struct op *)job)->finished);
}

/* By the pool's workers alone. */
static int run_job(struct op *op)
{
	int err;

	sem_init(&op->finished, 0, 0);
	err = phx_pool_submit(&op->job);
	while (!err && sem_wait(&op->finished))
		; /* EINTR */
	sem_destroy(&op->finished);
	return err ? -EAGAIN : 0;
}

static ssize_t move(struct op *op)
{
	int err = phx_job_init_rest(&op->job, &op->x, &op->result, 0, job_done);

	if (err)
		return err;
	err = run_job(op);
	phx_job_free(&op->job);
	return err ? err : op->result;
}

static int start(struct op *op)
{
	const struct phxfs_stream_io *io = &op->io;

	return phx_xfer_start(&op->x, io->op == PHXFS_OP_WRITE, io->fd, io->device_id, io->buf,
			      *io->buf_offset, *io->nbytes, *io->f_offset);
}

static void start_in_worker(struct phx_job *job)
{
	struct op *op = (struct op *)job;

	op->started = start(op);
}

/* Whose memory a buffer is only the runtime knows, if it is in no registration. */
static int start_anywhere(struct op *op)
{
	struct phx_slice slice;
	int err;

	phx_job_init_call(&op->job, &op->result, &slice, start_in_worker, job_done);
	err = run_job(op);
	return err ? err : op->started;
}

/* In the stream's turn. */
static void run(void *arg)
{
	struct op *op = arg;
	ssize_t result = op->io.device_id == PHXFS_DEVICE_ANY ? start_anywhere(op) : start(op);

	if (!result) {
		result = move(op);
		phx_xfer_end(&op->x, result);
	}
	op->io.done(op->io.arg, result);
	if (op->held)
		leave_stream(op->dev, op->io.stream);
	free(op);
}

/* HOST devices have no streams: its turn is now. */
static void run_now(struct op *op)
{
	ssize_t result = start(op);

	if (!result) {
		result = phx_xfer_run(&op->x);
		phx_xfer_end(&op->x, result);
	}
	op->io.done(op->io.arg, result);
	free(op);
}

static const char *name_of(int op)
{
	return op == PHXFS_OP_WRITE ? "write_stream" : "read_stream";
}

/* Takes @op over. */
static int enqueue(struct op *op)
{
	struct phx_device *dev = op->dev;
	void *stream = op->io.stream;
	bool holds = op->held;
	int err;

	if (!dev || dev->mode == PHXFS_MODE_HOST) {
		run_now(op);
		return 0;
	}
	err = phx_pool_ready(); /* run() could not do without */
	if (!err && !dev->ops->held_streams)
		err = -EOPNOTSUPP;
	if (!err && holds)
		err = enter_stream(dev, stream);
	if (err)
		goto err_free;
	err = dev->ops->launch_host_func(stream, run, op);
	if (err)
		goto err_leave;
	return 0;

err_leave:
	if (holds)
		leave_stream(dev, stream);
err_free:
	free(op);
	return err;
}

/* The device with a registration that @buf lies in. */
static struct phx_device *device_of(const void *buf)
{
	struct phx_device *dev;

	for (int id = 0; (dev = phx_device_next(id)); id = dev->id + 1) {
		struct phx_region *region = phx_region_get(dev, (uintptr_t)buf, 1);

		if (region) {
			phx_region_put(dev, region);
			return dev;
		}
	}
	return NULL;
}

/* A device with streams, or NULL. */
static struct phx_device *device_with_streams(void)
{
	struct phx_device *dev;

	for (int id = 0; (dev = phx_device_next(id)); id = dev->id + 1) {
		if (dev->ops->held_streams)
			return dev;
	}
	return NULL;
}

/* Whose stream is meant, and whether copies have to get past what it holds. */
static void find_device(struct op *op)
{
	const struct phxfs_stream_io *io = &op->io;
	struct devconn_pointer at;

	if (io->device_id >= 0)
		op->dev = phx_device_find(io->device_id);
	else if (io->device_id == PHXFS_DEVICE_ANY)
		op->dev = device_of(io->buf);
	if (!op->dev && io->device_id == PHXFS_DEVICE_ANY)
		op->dev = phx_device_of_memory(io->buf, 1, &at);
	op->held = op->dev && op->dev->mode != PHXFS_MODE_HOST;
	if (!op->held && io->device_id < 0) {
		struct phx_device *dev = device_with_streams();

		op->dev = dev ? dev : op->dev;
	}
}

static int transfer(const struct phxfs_stream_io *io)
{
	struct op *op = calloc(1, sizeof(*op));
	int err;

	if (!op)
		return phx_fail(-ENOMEM, name_of(io->op), NULL, "one transfer");
	op->io = *io;
	find_device(op);
	if (!op->dev && io->device_id >= 0) {
		free(op);
		return phx_device_missing(io->device_id, name_of(io->op));
	}
	err = enqueue(op);
	return err ? phx_fail(err, name_of(io->op),
			      err == -EOPNOTSUPP ? "use a stream that is not being captured" : NULL,
			      "stream %p%s", io->stream, devconn_detail(err)) :
		     0;
}

static int fail_null(int op)
{
	return phx_fail(-EINVAL, name_of(op), "pass a buffer and all the pointers",
			"a NULL argument");
}

int phxfs_io_stream(const struct phxfs_stream_io *io)
{
	struct phxfs_stream_io copy;
	int err = phx_check_size(io, sizeof(copy), "io_stream");

	if (err)
		return err;
	copy = *io;
	if (copy.op != PHXFS_OP_READ && copy.op != PHXFS_OP_WRITE)
		return phx_fail(-EINVAL, "io_stream", NULL, "op %d", copy.op);
	if (!copy.buf || !copy.nbytes || !copy.buf_offset || !copy.f_offset || !copy.done)
		return fail_null(copy.op);
	phx_init();
	return transfer(&copy);
}

static void store(void *arg, ssize_t result)
{
	/* whoever polls for it sees the bytes too */
	__atomic_store_n((ssize_t *)arg, result, __ATOMIC_RELEASE);
}

static int in_region(int op, int fd, void *buf, size_t *nbytes, off_t *buf_offset,
		     off_t *f_offset, ssize_t *bytes_done, void *stream)
{
	struct phxfs_stream_io io = { .op = op, .fd = fd, .buf = buf, .stream = stream,
				      .nbytes = nbytes, .buf_offset = buf_offset,
				      .f_offset = f_offset, .done = store, .arg = bytes_done };
	struct phx_device *dev;

	if (!buf || !nbytes || !buf_offset || !f_offset || !bytes_done)
		return fail_null(op);
	phx_init();
	dev = device_of(buf);
	if (!dev)
		return phx_fail(-EFAULT, name_of(op), "register the buffer with phxfs_regmem()",
				"%p is in no registration", buf);
	io.device_id = dev->id;
	return transfer(&io);
}

int phxfs_read_stream(int fd, void *buf, size_t *nbytes, off_t *buf_offset, off_t *f_offset,
		      ssize_t *bytes_done, void *stream)
{
	return in_region(PHXFS_OP_READ, fd, buf, nbytes, buf_offset, f_offset, bytes_done, stream);
}

int phxfs_write_stream(int fd, void *buf, size_t *nbytes, off_t *buf_offset, off_t *f_offset,
		       ssize_t *bytes_done, void *stream)
{
	return in_region(PHXFS_OP_WRITE, fd, buf, nbytes, buf_offset, f_offset, bytes_done,
			 stream);
}

/* The parent's streams are not the child's. */
void phx_stream_fork_child(void)
{
	pthread_mutex_init(&held_lock, NULL);
	pthread_cond_init(&held_changed, NULL);
	memset(held, 0, sizeof(held));
}
