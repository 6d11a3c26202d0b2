// SPDX-License-Identifier: Apache-2.0
/*
 * libphxsim: queues. A queue is a list of operations and one thread that runs
 * them in order. queue->lock protects the list, the error and the flags; it is
 * not held while an operation runs.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "phxsim.h"

#define API	__attribute__((visibility("default")))

enum op_kind { OP_HTOD, OP_DTOH, OP_DTOD, OP_CALL, OP_WAIT, OP_SIGNAL };

struct op {
	struct op *next;
	enum op_kind kind;
	void *dst;
	const void *src;
	size_t n;
	void (*fn)(void *arg);
	uint32_t value;
};

struct phxsim_queue {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work;		/* an operation came, or stop */
	pthread_cond_t idle;		/* the list is empty and nothing runs */
	struct op *head, **tail;
	bool busy, stop;
	int error;			/* the first since the last sync */
};

static void wait_word(const uint32_t *word, uint32_t value)
{
	const _Atomic uint32_t *p = (const _Atomic uint32_t *)word;
	struct timespec pause = { .tv_nsec = 20000 };

	/* pairs with the release store of whoever signals */
	while ((int32_t)(atomic_load_explicit(p, memory_order_acquire) - value) < 0)
		nanosleep(&pause, NULL);
}

static int run(const struct op *op)
{
	switch (op->kind) {
	case OP_HTOD:
		return phxsim_memcpy_htod(op->dst, op->src, op->n);
	case OP_DTOH:
		return phxsim_memcpy_dtoh(op->dst, op->src, op->n);
	case OP_DTOD:
		return phxsim_memcpy_dtod(op->dst, op->src, op->n);
	case OP_CALL:
		op->fn(op->dst);
		return 0;
	case OP_WAIT:
		wait_word(op->src, op->value);
		return 0;
	case OP_SIGNAL:
		/* pairs with the acquire load of whoever waits */
		atomic_store_explicit((_Atomic uint32_t *)op->dst, op->value,
				      memory_order_release);
		return 0;
	}
	return -EINVAL;
}

static void *work(void *arg)
{
	struct phxsim_queue *q = arg;
	struct op *op;
	int ret;

	pthread_mutex_lock(&q->lock);
	for (;;) {
		while (!q->head && !q->stop)
			pthread_cond_wait(&q->work, &q->lock);
		op = q->head;
		if (!op)
			break;
		q->head = op->next;
		if (!q->head)
			q->tail = &q->head;
		q->busy = true;
		pthread_mutex_unlock(&q->lock);
		ret = run(op);
		free(op);
		pthread_mutex_lock(&q->lock);
		q->busy = false;
		if (ret && !q->error)
			q->error = ret;
		if (!q->head)
			pthread_cond_broadcast(&q->idle);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

API int phxsim_queue_create(int dev, struct phxsim_queue **out)
{
	struct phxsim_queue *q;
	int count, ret;

	ret = phxsim_device_count(&count);
	if (ret)
		return ret;
	if (dev < 0 || dev >= count)
		return -ENODEV;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->work, NULL);
	pthread_cond_init(&q->idle, NULL);
	q->tail = &q->head;
	ret = pthread_create(&q->thread, NULL, work, q);
	if (ret) {
		free(q);
		return -ret;
	}
	*out = q;
	return 0;
}

API int phxsim_queue_sync(struct phxsim_queue *q)
{
	int ret;

	pthread_mutex_lock(&q->lock);
	while (q->head || q->busy)
		pthread_cond_wait(&q->idle, &q->lock);
	ret = q->error;
	q->error = 0;
	pthread_mutex_unlock(&q->lock);
	return ret;
}

API int phxsim_queue_query(struct phxsim_queue *q)
{
	int ret;

	pthread_mutex_lock(&q->lock);
	ret = q->head || q->busy ? -EBUSY : 0;
	pthread_mutex_unlock(&q->lock);
	return ret;
}

API int phxsim_queue_destroy(struct phxsim_queue *q)
{
	int ret;

	pthread_mutex_lock(&q->lock);
	q->stop = true;
	pthread_cond_signal(&q->work);
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->thread, NULL);
	ret = q->error;
	pthread_cond_destroy(&q->idle);
	pthread_cond_destroy(&q->work);
	pthread_mutex_destroy(&q->lock);
	free(q);
	return ret;
}

static int submit(struct phxsim_queue *q, struct op from)
{
	struct op *op = malloc(sizeof(*op));

	if (!op)
		return -ENOMEM;
	*op = from;
	op->next = NULL;
	pthread_mutex_lock(&q->lock);
	*q->tail = op;
	q->tail = &op->next;
	pthread_cond_signal(&q->work);
	pthread_mutex_unlock(&q->lock);
	return 0;
}

API int phxsim_memcpy_htod_async(struct phxsim_queue *q, void *dst, const void *src, size_t n)
{
	return submit(q, (struct op){ .kind = OP_HTOD, .dst = dst, .src = src, .n = n });
}

API int phxsim_memcpy_dtoh_async(struct phxsim_queue *q, void *dst, const void *src, size_t n)
{
	return submit(q, (struct op){ .kind = OP_DTOH, .dst = dst, .src = src, .n = n });
}

API int phxsim_memcpy_dtod_async(struct phxsim_queue *q, void *dst, const void *src, size_t n)
{
	return submit(q, (struct op){ .kind = OP_DTOD, .dst = dst, .src = src, .n = n });
}

API int phxsim_queue_call(struct phxsim_queue *q, void (*fn)(void *arg), void *arg)
{
	return submit(q, (struct op){ .kind = OP_CALL, .fn = fn, .dst = arg });
}

API int phxsim_queue_wait(struct phxsim_queue *q, const uint32_t *word, uint32_t value)
{
	return submit(q, (struct op){ .kind = OP_WAIT, .src = word, .value = value });
}

API int phxsim_queue_signal(struct phxsim_queue *q, uint32_t *word, uint32_t value)
{
	return submit(q, (struct op){ .kind = OP_SIGNAL, .dst = word, .value = value });
}
