// SPDX-License-Identifier: Apache-2.0
/*
 * Copies, on queues of our own: streams that do not wait for the default
 * stream, since a copy must not wait for a user's stream that waits for it.
 *
 * How far a queue has come stands in memory. Behind its copies it writes a
 * number, which counts up, into its word; whoever waits looks there. Waiting
 * so costs no call of the driver's, whose locks many waiting threads would keep
 * busy against those who want to copy. A copy that fails stops its queue, so
 * the number never comes: a wait that takes long asks the driver now and then.
 *
 * Where streams cannot write words (virtual GPUs) an event of the driver's does
 * the same.
 *
 * Locks: card->lock, the making of queues; queue->lock keeps the numbers of a
 * queue in the order in which they are queued.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "nvidia_card.h"

#define LINE 64          /* bytes; a word has a cache line to itself */
#define WORDS_BYTES 65536UL
#define SPIN_NS 20000    /* looked at without a pause, besides what the bytes take */
#define NS_PER_KIB 50    /* at 20 GB/s */
#define PAUSE_NS 20000
#define PAUSES_PER_CHECK 50

struct nvidia_queue {
	struct cu_stream *stream;
	_Atomic uint64_t *word;  /* NULL: it has none, events are the driver's */
	_Atomic size_t bytes;    /* of the copies behind the last mark */
	pthread_mutex_t lock;
	uint64_t number;         /* the last one queued; protected by: lock */
};

/* A place in a queue, by number, or by the driver's event. */
struct event {
	struct nvidia_queue *queue;
	uint64_t number;
	size_t bytes; /* right before it */
	struct cu_event *event;
};

/* ----------------------------------------------------------------- queues */

/*
 * Streams share the device's channels, and one that is held holds what lies
 * behind it in the channel. Those of the highest priority have channels of
 * their own, so that a copy does not wait for a user's stream that waits for it.
 */
static int create_stream(struct cu_stream **out)
{
	int least, greatest = 0, result;

	nvidia_driver.priority_range(&least, &greatest);
	result = nvidia_driver.stream_create(out, CU_STREAM_NON_BLOCKING, greatest);
	return result ? nvidia_fail(result, "cuStreamCreateWithPriority") : 0;
}

static bool has_words(const struct nvidia_card *card)
{
	int v1 = 0, v2 = 0;

	nvidia_driver.device_attribute(&v1, CU_DEVICE_STREAM_WORDS_V1, card->handle);
	nvidia_driver.device_attribute(&v2, CU_DEVICE_STREAM_WORDS, card->handle);
	return v1 || v2;
}

/* With the card's lock held. */
static int make_queue(struct nvidia_card *card, int index, struct nvidia_queue **out)
{
	struct nvidia_queue *queue = calloc(1, sizeof(*queue));
	void *words;
	int err;

	if (!queue)
		return -ENOMEM;
	err = create_stream(&queue->stream);
	if (!err && !card->words && has_words(card)) {
		err = nvidia_pin(WORDS_BYTES, &words);
		if (!err)
			card->words = words;
	}
	if (err) { /* a stream without its queue stays until exit */
		free(queue);
		return err;
	}
	if (card->words)
		queue->word = (_Atomic uint64_t *)card->words + index * (LINE / sizeof(uint64_t));
	pthread_mutex_init(&queue->lock, NULL);
	*out = queue;
	return 0;
}

static int find_queue(struct nvidia_card *card, int index, struct nvidia_queue **out)
{
	struct nvidia_queue *queue;
	int err = 0;

	queue = atomic_load_explicit(&card->queues[index], memory_order_acquire);
	if (!queue) {
		pthread_mutex_lock(&card->lock);
		queue = atomic_load_explicit(&card->queues[index], memory_order_relaxed);
		if (!queue)
			err = make_queue(card, index, &queue);
		if (!err)
			atomic_store_explicit(&card->queues[index], queue, memory_order_release);
		pthread_mutex_unlock(&card->lock);
	}
	*out = queue;
	return err;
}

static int slot_queue(struct nvidia_card *card, int slot, struct nvidia_queue **out)
{
	if (slot < 0 || slot >= DEVCONN_SLOTS)
		return devconn_fail(-EINVAL, "queue %d", slot);
	return find_queue(card, slot, out);
}

/* The calling thread's queue for complete copies; threads share them evenly. */
static int own_queue(struct nvidia_card *card, struct nvidia_queue **out)
{
	static _Thread_local unsigned int mine; /* 1 + index; 0: none yet */
	static atomic_uint next;

	if (!mine)
		mine = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) %
				   NVIDIA_LANES;
	return find_queue(card, DEVCONN_SLOTS + (int)mine - 1, out);
}

/* ---------------------------------------------------------------- waiting */

static bool reached(const struct nvidia_queue *queue, uint64_t number)
{
	return (int64_t)(atomic_load_explicit(queue->word, memory_order_acquire) - number) >= 0;
}

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static bool spin(const struct nvidia_queue *queue, uint64_t number, size_t n)
{
	int64_t end = now_ns() + SPIN_NS + (int64_t)(n >> 10) * NS_PER_KIB;

	do {
		for (int i = 0; i < 64; i++) {
			if (reached(queue, number))
				return true;
#ifdef __x86_64__
			__builtin_ia32_pause();
#endif
		}
	} while (now_ns() < end);
	return false;
}

/* Wait for @number, behind about @n bytes; the driver's result. */
static int wait_for(struct nvidia_queue *queue, uint64_t number, size_t n)
{
	struct timespec pause = { 0, PAUSE_NS };
	int pauses = 0;

	if (spin(queue, number, n))
		return 0;
	while (!reached(queue, number)) {
		int result;

		nanosleep(&pause, NULL);
		if (++pauses % PAUSES_PER_CHECK)
			continue;
		result = nvidia_driver.stream_query(queue->stream);
		if (result != CU_NOT_READY)
			return result; /* failed; or done, the word will be there */
	}
	return 0;
}

/* Bad addresses are -EFAULT here: -EINVAL would speak of the request. */
static int copied(int result)
{
	int err = result ? nvidia_fail(result, "copying") : 0;

	return err == -EINVAL ? -EFAULT : err;
}

/* Mark the end of what is queued; the driver's result. */
static int mark(struct nvidia_queue *queue, uint64_t *number)
{
	int result;

	pthread_mutex_lock(&queue->lock);
	result = nvidia_driver.write_value(queue->stream, (uintptr_t)queue->word,
					   queue->number + 1, CU_WRITE_VALUE_DEFAULT);
	if (!result)
		*number = ++queue->number;
	pthread_mutex_unlock(&queue->lock);
	return result;
}

/* ----------------------------------------------------------------- copies */

/* The driver's copy in one of the directions. */
typedef int copy_fn(uintptr_t dst, uintptr_t src, size_t n, struct cu_stream *stream);

/* Wait for all that is queued now, @n bytes; the driver's result. */
static int finish(struct nvidia_queue *queue, size_t n)
{
	uint64_t number;

	/* Without a mark it must be over all the same. */
	if (!queue->word || mark(queue, &number))
		return nvidia_driver.stream_sync(queue->stream);
	return wait_for(queue, number, n);
}

static int copy(int device, copy_fn *start, void *dst, const void *src, size_t n)
{
	struct nvidia_queue *queue;
	struct nvidia_visit visit;
	int err = nvidia_enter(device, &visit), result;

	if (err)
		return err;
	err = own_queue(visit.card, &queue);
	if (!err) {
		result = start((uintptr_t)dst, (uintptr_t)src, n, queue->stream);
		if (!result)
			result = finish(queue, n);
		err = copied(result);
	}
	nvidia_leave(&visit);
	return err;
}

int nvidia_copy_dtod(int device, void *dst, const void *src, size_t n)
{
	return copy(device, nvidia_driver.copy_dtod, dst, src, n);
}

int nvidia_copy_htod(int device, void *dst, const void *src, size_t n)
{
	return copy(device, nvidia_driver.copy_htod, dst, src, n);
}

int nvidia_copy_dtoh(int device, void *dst, const void *src, size_t n)
{
	return copy(device, nvidia_driver.copy_dtoh, dst, src, n);
}

static int copy_async(int device, int slot, copy_fn *start, void *dst, const void *src, size_t n)
{
	struct nvidia_queue *queue;
	struct nvidia_visit visit;
	int err = nvidia_enter(device, &visit);

	if (err)
		return err;
	err = slot_queue(visit.card, slot, &queue);
	if (!err) {
		atomic_fetch_add_explicit(&queue->bytes, n, memory_order_relaxed);
		err = copied(start((uintptr_t)dst, (uintptr_t)src, n, queue->stream));
	}
	nvidia_leave(&visit);
	return err;
}

int nvidia_copy_dtod_async(int device, int slot, void *dst, const void *src, size_t n)
{
	return copy_async(device, slot, nvidia_driver.copy_dtod, dst, src, n);
}

int nvidia_copy_htod_async(int device, int slot, void *dst, const void *src, size_t n)
{
	return copy_async(device, slot, nvidia_driver.copy_htod, dst, src, n);
}

int nvidia_copy_dtoh_async(int device, int slot, void *dst, const void *src, size_t n)
{
	return copy_async(device, slot, nvidia_driver.copy_dtoh, dst, src, n);
}

int nvidia_queue_sync(int device, int slot)
{
	struct nvidia_queue *queue;
	struct nvidia_visit visit;
	int err = nvidia_enter(device, &visit);

	if (err)
		return err;
	err = slot_queue(visit.card, slot, &queue);
	if (!err)
		err = copied(nvidia_driver.stream_sync(queue->stream));
	nvidia_leave(&visit);
	return err;
}

/* ----------------------------------------------------------------- events */

/* Without words. */
static int record_event(struct event *e)
{
	int result = 0;

	if (!e->event)
		result = nvidia_driver.event_create(&e->event, CU_EVENT_BLOCKING_SYNC |
									CU_EVENT_DISABLE_TIMING);
	if (result)
		return nvidia_fail(result, "cuEventCreate");
	result = nvidia_driver.event_record(e->event, e->queue->stream);
	return result ? nvidia_fail(result, "cuEventRecord") : 0;
}

static int record(struct nvidia_queue *queue, void **event)
{
	struct event *e = *event ? *event : calloc(1, sizeof(*e));

	if (!e)
		return -ENOMEM;
	*event = e;
	e->queue = queue;
	e->bytes = atomic_exchange_explicit(&queue->bytes, 0, memory_order_relaxed);
	return queue->word ? copied(mark(queue, &e->number)) : record_event(e);
}

int nvidia_event_record(int device, int slot, void **event)
{
	struct nvidia_queue *queue;
	struct nvidia_visit visit;
	int err = nvidia_enter(device, &visit);

	if (err)
		return err;
	err = slot_queue(visit.card, slot, &queue);
	if (!err)
		err = record(queue, event);
	nvidia_leave(&visit);
	return err;
}

int nvidia_event_done(int device, void *event)
{
	struct nvidia_visit visit;
	struct event *e = event;
	int err, result;

	if (e->queue->word)
		return reached(e->queue, e->number) ? 0 : -EBUSY;
	err = nvidia_enter(device, &visit);
	if (err)
		return err;
	result = nvidia_driver.event_query(e->event);
	nvidia_leave(&visit);
	return result == CU_NOT_READY ? -EBUSY : copied(result);
}

int nvidia_event_wait(int device, void *event)
{
	struct nvidia_visit visit;
	struct event *e = event;
	int err;

	if (e->queue->word && spin(e->queue, e->number, e->bytes))
		return 0;
	err = nvidia_enter(device, &visit);
	if (err)
		return err;
	err = copied(e->queue->word ? wait_for(e->queue, e->number, 0) :
				      nvidia_driver.event_sync(e->event));
	nvidia_leave(&visit);
	return err;
}

void nvidia_event_free(int device, void *event)
{
	struct nvidia_visit visit;
	struct event *e = event;

	if (e && e->event && !nvidia_enter(device, &visit)) {
		nvidia_driver.event_destroy(e->event);
		nvidia_leave(&visit);
	}
	free(e);
}
