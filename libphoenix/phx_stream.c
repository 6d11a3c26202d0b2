// SPDX-License-Identifier: Apache-2.0
/*
 * Transfers in the order of a device's stream.
 *
 *   the stream:  ... earlier work | call begin() | hold until *word >= number | later work ...
 *   a worker:                         transfer, then *word = number
 *
 * begin() runs when the stream has got there; it reads the arguments, which
 * earlier work may have written, and hands the transfer to the worker pool. It
 * makes no call of the vendor's and does not block. The hold is a memory
 * operation of the stream where the device has them; elsewhere it is a second
 * function, hold(), that sleeps. Whatever happens to the transfer, the word is
 * set, so that a failure never stalls the stream.
 *
 * A word belongs to one operation from its enqueueing until the stream is
 * seen to have passed: a number once reached stays reached, since numbers only
 * grow, so a word may be used again as soon as its transfer is over.
 *
 * Lock: words_lock protects the making and the free list of words.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "phx_device.h"
#include "phx_error.h"
#include "phx_init.h"
#include "phx_job.h"
#include "phx_stream.h"
#include "phx_xfer.h"
#include "io_engine/io_pool.h"

#define WORDS_BYTES 65536UL
#define WORDS (WORDS_BYTES / sizeof(uint64_t))

struct word {
	_Atomic uint64_t *at;   /* in memory that the device reaches */
	uint64_t number;        /* of the last operation that used it */
	struct word *next;      /* in the free list */
};

struct op {
	struct phx_job job;     /* must be first */
	struct phx_xfer x;
	ssize_t result;
	bool write;
	int fd;
	struct phx_device *dev;
	void *buf;
	const size_t *nbytes;
	const off_t *buf_offset, *f_offset;
	ssize_t *bytes_done;
	struct word *word;      /* NULL: hold() waits for finished */
	sem_t finished;
	_Atomic int users;      /* the transfer and hold(); the last one frees */
};

static pthread_mutex_t words_lock = PTHREAD_MUTEX_INITIALIZER;
static struct word *free_words[PHX_MAX_DEVICES]; /* protected by: words_lock */

/* ------------------------------------------------------------------ words */

/* A page of words for @dev, with the lock held. */
static int make_words(struct phx_device *dev)
{
	struct word *words = calloc(WORDS, sizeof(*words));
	void *memory;
	int err;

	if (!words)
		return -ENOMEM;
	err = dev->ops->host_alloc(dev->id, WORDS_BYTES, &memory);
	if (err) {
		free(words);
		return err;
	}
	for (size_t i = 0; i < WORDS; i++) {
		words[i].at = (_Atomic uint64_t *)memory + i;
		atomic_init(words[i].at, 0);
		words[i].next = i + 1 < WORDS ? &words[i + 1] : NULL;
	}
	free_words[dev->id] = words;
	return 0;
}

static int get_word(struct phx_device *dev, struct word **out)
{
	int err = 0;

	pthread_mutex_lock(&words_lock);
	if (!free_words[dev->id])
		err = make_words(dev);
	if (!err) {
		*out = free_words[dev->id];
		free_words[dev->id] = (*out)->next;
		(*out)->number++;
	}
	pthread_mutex_unlock(&words_lock);
	return err;
}

static void put_word(struct phx_device *dev, struct word *word)
{
	pthread_mutex_lock(&words_lock);
	word->next = free_words[dev->id];
	free_words[dev->id] = word;
	pthread_mutex_unlock(&words_lock);
}

/* ----------------------------------------------------------- an operation */

static void put_op(struct op *op)
{
	if (atomic_fetch_sub(&op->users, 1) != 1)
		return;
	sem_destroy(&op->finished);
	free(op);
}

/* The transfer is over: tell the user, then let the stream go on. */
static void finish(struct op *op, ssize_t result)
{
	*op->bytes_done = result;
	if (op->word) {
		/* Release: who passes the hold sees the bytes and their count. */
		atomic_store_explicit(op->word->at, op->word->number, memory_order_release);
		put_word(op->dev, op->word);
	}
	sem_post(&op->finished);
	put_op(op);
}

static void op_done(struct phx_job *job)
{
	struct op *op = (struct op *)job;

	phx_job_free(job);
	phx_xfer_end(&op->x, op->result);
	finish(op, op->result);
}

/* In the stream's turn. */
static void begin(void *arg)
{
	struct op *op = arg;
	int err;

	err = phx_xfer_start(&op->x, op->write, op->fd, op->dev->id, op->buf, *op->buf_offset,
			     *op->nbytes, *op->f_offset);
	if (err) {
		finish(op, err);
		return;
	}
	err = phx_job_init_rest(&op->job, &op->x, &op->result, 0, op_done);
	if (err) {
		phx_xfer_end(&op->x, err);
		finish(op, err);
		return;
	}
	if (phx_pool_submit(&op->job)) {
		phx_job_free(&op->job);
		phx_xfer_end(&op->x, -EAGAIN);
		finish(op, -EAGAIN);
	}
}

static void hold(void *arg)
{
	struct op *op = arg;

	while (sem_wait(&op->finished))
		; /* EINTR */
	put_op(op);
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

static const char *name_of(bool write)
{
	return write ? "write_stream" : "read_stream";
}

/*
 * Put begin() and the hold into the stream. Takes @op over: from the moment
 * that begin() is queued it may run, and @op be gone.
 */
static int enqueue(struct op *op, void *stream)
{
	const struct devconn_ops *ops = op->dev->ops;
	struct word *word = op->word;
	uint64_t number = word ? word->number : 0;
	int err;

	err = ops->launch_host_func(stream, begin, op);
	if (err) {
		if (word)
			put_word(op->dev, word);
		atomic_store(&op->users, 1);
		put_op(op);
		return err;
	}
	if (word)
		return ops->stream_wait(stream, (uint64_t *)word->at, number);
	err = ops->launch_host_func(stream, hold, op);
	if (err)
		put_op(op);
	return err;
}

/* Whether the stream can hold by itself. */
static bool has_memory_operations(struct phx_device *dev)
{
	return dev->ops->stream_wait != devconn_no_stream_word;
}

static ssize_t run_now(struct op *op)
{
	struct phx_xfer x;
	ssize_t result;
	int err;

	err = phx_xfer_start(&x, op->write, op->fd, op->dev->id, op->buf, *op->buf_offset,
			     *op->nbytes, *op->f_offset);
	if (err)
		return err;
	result = phx_xfer_run(&x);
	phx_xfer_end(&x, result);
	return result;
}

static int start_op(struct op *op, void *stream)
{
	bool words = has_memory_operations(op->dev);
	int err = 0;

	if (op->dev->mode == PHXFS_MODE_HOST) { /* no streams: its turn is now */
		*op->bytes_done = run_now(op);
		put_op(op);
		return 0;
	}
	err = phx_pool_ready(); /* begin() could not do without */
	if (!err && words)
		err = get_word(op->dev, &op->word);
	if (err) {
		put_op(op);
		return err;
	}
	atomic_store(&op->users, op->word ? 1 : 2);
	return enqueue(op, stream);
}

static int transfer(bool write, int fd, void *buf, size_t *nbytes, off_t *buf_offset,
		    off_t *f_offset, ssize_t *bytes_done, void *stream)
{
	struct phx_device *dev;
	struct op *op;
	int err;

	if (!buf || !nbytes || !buf_offset || !f_offset || !bytes_done)
		return phx_fail(-EINVAL, name_of(write), "pass a buffer and the five pointers",
				"a NULL argument");
	phx_init();
	dev = device_of(buf);
	if (!dev)
		return phx_fail(-EFAULT, name_of(write), "register the buffer with phxfs_regmem()",
				"%p is in no registration", buf);
	op = calloc(1, sizeof(*op));
	if (!op)
		return phx_fail(-ENOMEM, name_of(write), NULL, "device %d", dev->id);
	*op = (struct op){ .write = write, .fd = fd, .dev = dev, .buf = buf, .nbytes = nbytes,
			   .buf_offset = buf_offset, .f_offset = f_offset,
			   .bytes_done = bytes_done };
	atomic_init(&op->users, 1);
	sem_init(&op->finished, 0, 0);
	err = start_op(op, stream);
	if (err)
		phx_fail(err, name_of(write),
			 err == -EOPNOTSUPP ? "use a stream that is not being captured" : NULL,
			 "stream %p of device %d", stream, dev->id);
	return err;
}

int phxfs_read_stream(int fd, void *buf, size_t *nbytes, off_t *buf_offset, off_t *f_offset,
		      ssize_t *bytes_done, void *stream)
{
	return transfer(false, fd, buf, nbytes, buf_offset, f_offset, bytes_done, stream);
}

int phxfs_write_stream(int fd, void *buf, size_t *nbytes, off_t *buf_offset, off_t *f_offset,
		       ssize_t *bytes_done, void *stream)
{
	return transfer(true, fd, buf, nbytes, buf_offset, f_offset, bytes_done, stream);
}

/* The parent's words are in memory of a runtime that the child does not have. */
void phx_stream_fork_child(void)
{
	pthread_mutex_init(&words_lock, NULL);
	for (int i = 0; i < PHX_MAX_DEVICES; i++)
		free_words[i] = NULL;
}
