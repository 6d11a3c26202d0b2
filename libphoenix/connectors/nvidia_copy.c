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
 * While a user's stream is held, copies go to queues in a context of our own; see
 * make_own_context(). A slot then has two queues, and an event a place in both.
 *
 * Writing the word costs the copy engine some microseconds, though, which an event
 * of the driver's does not. So events stand behind large copies; for the time
 * that these take at least, nobody asks about them. Where streams cannot write
 * words (virtual GPUs) events do everything.
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
#define NS_PER_KIB 250   /* at 4 GB/s: others copy too */
#define PAUSE_NS 20000
#define PAUSES_PER_CHECK 50
#define LARGE (2UL << 20)       /* copies, for events */
#define LEAST_NS_PER_KIB 16     /* at 64 GB/s */
#define ASK_NS 4000             /* between two questions about an event */

struct nvidia_queue {
	struct cu_stream *stream;
	_Atomic uint64_t *word;  /* NULL: it has none, events are the driver's */
	bool own;                /* in our own context */
	_Atomic size_t bytes;    /* of the copies behind the last mark or event */
	atomic_bool unnumbered;  /* the last was an event: the number stands before it */
	pthread_mutex_t lock;
	uint64_t number;         /* the last one queued; protected by: lock */
};

/* A place in a queue, by number, or by the driver's event. */
struct place {
	struct nvidia_queue *queue; /* NULL: nothing to wait for */
	uint64_t number;
	size_t bytes;               /* right before it */
	struct cu_event *event;     /* made when first needed */
	bool by_event;              /* it counts, not the number */
	int64_t ask_ns;             /* not before */
};

/* In both queues of a slot. */
struct event {
	struct place places[2];
};

/* ----------------------------------------------------------------- queues */

/*
 * The context for copies while a user's stream is held. A context's streams
 * share its few channels to the copy engines, and a copy of the program's that
 * waits behind the held stream keeps those behind it in its channel waiting too:
 * ours, for which the stream waits.
 */
static int make_own_context(struct nvidia_card *card)
{
	int mode = CU_CAPTURE_MODE_RELAXED, result = 0;
	struct cu_context *context = NULL;

	nvidia_driver.capture_mode(&mode);
	pthread_mutex_lock(&card->lock);
	if (!card->own)
		result = nvidia_driver.context_create(&context, 0, card->handle);
	if (!card->own && !result) {
		card->own = context;
		nvidia_driver.context_pop(&context); /* it comes out current */
	}
	pthread_mutex_unlock(&card->lock);
	nvidia_driver.capture_mode(&mode);
	/* A runtime without contexts of a program's own: then all share one. */
	if (result == CU_NOT_SUPPORTED)
		return 0;
	return result ? nvidia_fail(result, "cuCtxCreate") : 0;
}

/* Make the context current that a copy should use now. */
static int enter_for_copy(int device, struct nvidia_visit *visit)
{
	struct nvidia_card *card = nvidia_card(device);

	if (card && atomic_load_explicit(&card->held, memory_order_relaxed))
		return nvidia_enter_own(device, visit);
	return nvidia_enter(device, visit);
}

/* Less by one: told in a callback of the driver's, where it must not be called. */
int nvidia_stream_held(int device, int change)
{
	struct nvidia_card *card = nvidia_card(device);
	int err = 0;

	if (!card)
		return devconn_fail(-ENODEV, "device %d is no " NVIDIA_VENDOR " GPU", device);
	if (change > 0 && !card->own)
		err = make_own_context(card);
	if (!err)
		atomic_fetch_add_explicit(&card->held, change, memory_order_relaxed);
	return err;
}

static bool has_words(const struct nvidia_card *card)
{
	int v1 = 0, v2 = 0;

	nvidia_driver.device_attribute(&v1, CU_DEVICE_STREAM_WORDS_V1, card->handle);
	nvidia_driver.device_attribute(&v2, CU_DEVICE_STREAM_WORDS, card->handle);
	return v1 || v2;
}

/* With the card's lock held. */
static int make_queue(const struct nvidia_visit *visit, int index, struct nvidia_queue **out)
{
	struct nvidia_queue *queue = calloc(1, sizeof(*queue));
	struct nvidia_card *card = visit->card;
	uint64_t **words = &card->words[visit->own];
	int result, err = 0;
	void *memory;

	if (!queue)
		return -ENOMEM;
	if (!*words && has_words(card)) {
		err = nvidia_pin(WORDS_BYTES, &memory);
		if (!err)
			*words = memory;
	}
	if (!err) {
		result = nvidia_driver.stream_create(&queue->stream, CU_STREAM_NON_BLOCKING);
		err = result ? nvidia_fail(result, "cuStreamCreate") : 0;
	}
	if (err) {
		free(queue);
		return err;
	}
	if (*words)
		queue->word = (_Atomic uint64_t *)*words + index * (LINE / sizeof(uint64_t));
	queue->own = visit->own;
	pthread_mutex_init(&queue->lock, NULL);
	*out = queue;
	return 0;
}

static int find_queue(const struct nvidia_visit *visit, int index, struct nvidia_queue **out)
{
	struct nvidia_card *card = visit->card;
	_Atomic(struct nvidia_queue *) *place = &card->queues[visit->own][index];
	struct nvidia_queue *queue;
	int err = 0;

	queue = atomic_load_explicit(place, memory_order_acquire);
	if (!queue) {
		pthread_mutex_lock(&card->lock);
		queue = atomic_load_explicit(place, memory_order_relaxed);
		if (!queue)
			err = make_queue(visit, index, &queue);
		if (!err)
			atomic_store_explicit(place, queue, memory_order_release);
		pthread_mutex_unlock(&card->lock);
	}
	*out = queue;
	return err;
}

static int slot_queue(const struct nvidia_visit *visit, int slot, struct nvidia_queue **out)
{
	if (slot < 0 || slot >= DEVCONN_SLOTS)
		return devconn_fail(-EINVAL, "queue %d", slot);
	return find_queue(visit, slot, out);
}

/* The calling thread's queue for complete copies; threads share them evenly. */
static int thread_queue(const struct nvidia_visit *visit, struct nvidia_queue **out)
{
	static _Thread_local unsigned int mine; /* 1 + index; 0: none yet */
	static atomic_uint next;

	if (!mine)
		mine = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) %
				   NVIDIA_LANES;
	return find_queue(visit, DEVCONN_SLOTS + (int)mine - 1, out);
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
	int err = enter_for_copy(device, &visit), result;

	if (err)
		return err;
	err = thread_queue(&visit, &queue);
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
	int err = enter_for_copy(device, &visit);

	if (err)
		return err;
	err = slot_queue(&visit, slot, &queue);
	if (!err)
		err = copied(start((uintptr_t)dst, (uintptr_t)src, n, queue->stream));
	/* Last: whoever takes the count may mark, behind the copy. */
	if (!err)
		atomic_fetch_add_explicit(&queue->bytes, n, memory_order_release);
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

/* The queues of a slot: in the device's context, and in our own. */
static struct nvidia_queue *queue_at(const struct nvidia_card *card, bool own, int slot)
{
	return atomic_load_explicit(&card->queues[own][slot], memory_order_acquire);
}

static int enter_queue(int device, const struct nvidia_queue *queue, struct nvidia_visit *visit)
{
	return queue->own ? nvidia_enter_own(device, visit) : nvidia_enter(device, visit);
}

static int sync_queue(int device, struct nvidia_queue *queue)
{
	struct nvidia_visit visit;
	int err = enter_queue(device, queue, &visit);

	if (err)
		return err;
	err = copied(nvidia_driver.stream_sync(queue->stream));
	nvidia_leave(&visit);
	return err;
}

/* The card of @device, if @slot is one of its slots; else NULL, with the error. */
static struct nvidia_card *card_with_slot(int device, int slot, int *err)
{
	struct nvidia_card *card = nvidia_card(device);

	if (slot < 0 || slot >= DEVCONN_SLOTS)
		*err = devconn_fail(-EINVAL, "queue %d", slot);
	else if (!card)
		*err = devconn_fail(-ENODEV, "device %d is no " NVIDIA_VENDOR " GPU", device);
	else
		return card;
	return NULL;
}

int nvidia_queue_sync(int device, int slot)
{
	int err = 0;
	struct nvidia_card *card = card_with_slot(device, slot, &err);

	for (int own = 0; own < 2 && !err; own++) {
		struct nvidia_queue *queue = queue_at(card, own, slot);

		if (queue)
			err = sync_queue(device, queue);
	}
	return err;
}

/* ----------------------------------------------------------------- events */

/* Without words. */
static int record_event(struct place *p)
{
	int result = 0;

	if (!p->event)
		result = nvidia_driver.event_create(&p->event, CU_EVENT_BLOCKING_SYNC |
									CU_EVENT_DISABLE_TIMING);
	if (result)
		return nvidia_fail(result, "cuEventCreate");
	result = nvidia_driver.event_record(p->event, p->queue->stream);
	return result ? nvidia_fail(result, "cuEventRecord") : 0;
}

/* A mark behind the copies that have none yet; else the last one stands for all. */
static int record_mark(struct place *p)
{
	bool unnumbered = atomic_exchange(&p->queue->unnumbered, false);

	if (p->bytes || unnumbered)
		return copied(mark(p->queue, &p->number));
	pthread_mutex_lock(&p->queue->lock);
	p->number = p->queue->number;
	pthread_mutex_unlock(&p->queue->lock);
	return 0;
}

static int record(int device, struct nvidia_queue *queue, struct place *p)
{
	struct nvidia_visit visit;
	int err;

	p->queue = queue;
	if (!queue)
		return 0;
	err = enter_queue(device, queue, &visit);
	if (err)
		return err;
	p->bytes = atomic_exchange_explicit(&queue->bytes, 0, memory_order_acquire);
	p->by_event = !queue->word || p->bytes >= LARGE;
	if (p->by_event) {
		err = record_event(p);
		atomic_store(&queue->unnumbered, true);
		p->ask_ns = now_ns() + (int64_t)(p->bytes >> 10) * LEAST_NS_PER_KIB;
	} else {
		err = record_mark(p);
	}
	nvidia_leave(&visit);
	return err;
}

int nvidia_event_record(int device, int slot, void **event)
{
	struct event *e = *event ? *event : calloc(1, sizeof(*e));
	int err = 0;
	struct nvidia_card *card = card_with_slot(device, slot, &err);

	if (!e)
		return -ENOMEM;
	*event = e;
	for (int own = 0; own < 2 && !err; own++)
		err = record(device, queue_at(card, own, slot), &e->places[own]);
	return err;
}

static int place_done(int device, struct place *p)
{
	struct nvidia_visit visit;
	int err, result;
	int64_t now;

	if (!p->queue)
		return 0;
	if (!p->by_event)
		return reached(p->queue, p->number) ? 0 : -EBUSY;
	now = now_ns();
	if (now < p->ask_ns)
		return -EBUSY;
	p->ask_ns = now + ASK_NS;
	err = enter_queue(device, p->queue, &visit);
	if (err)
		return err;
	result = nvidia_driver.event_query(p->event);
	nvidia_leave(&visit);
	if (result == CU_NOT_READY)
		return -EBUSY;
	p->ask_ns = 0;
	return copied(result);
}

int nvidia_event_done(int device, void *event)
{
	struct event *e = event;
	int err = place_done(device, &e->places[0]);

	return err ? err : place_done(device, &e->places[1]);
}

/* As spin(); -EBUSY: it takes longer. */
static int spin_on_event(int device, struct place *p)
{
	int64_t end = now_ns() + SPIN_NS + (int64_t)(p->bytes >> 10) * NS_PER_KIB;
	int err;

	do {
		err = place_done(device, p);
		for (int i = 0; i < 16 && err == -EBUSY; i++) {
#ifdef __x86_64__
			__builtin_ia32_pause();
#endif
		}
	} while (err == -EBUSY && now_ns() < end);
	return err;
}

static int place_wait(int device, struct place *p)
{
	struct nvidia_visit visit;
	int err;

	if (!p->queue || (!p->by_event && spin(p->queue, p->number, p->bytes)))
		return 0;
	err = p->by_event && p->queue->word ? spin_on_event(device, p) : -EBUSY;
	if (err != -EBUSY)
		return err;
	err = enter_queue(device, p->queue, &visit);
	if (err)
		return err;
	err = copied(p->by_event ? nvidia_driver.event_sync(p->event) :
				   wait_for(p->queue, p->number, 0));
	nvidia_leave(&visit);
	p->ask_ns = 0; /* it is over: place_done() must ask and not put off its answer */
	return err;
}

int nvidia_event_wait(int device, void *event)
{
	struct event *e = event;
	int first = place_wait(device, &e->places[0]), second = place_wait(device, &e->places[1]);

	return first ? first : second;
}

void nvidia_event_free(int device, void *event)
{
	struct nvidia_visit visit;
	struct event *e = event;

	for (int own = 0; e && own < 2; own++) {
		struct place *p = &e->places[own];

		if (p->event && !enter_queue(device, p->queue, &visit)) {
			nvidia_driver.event_destroy(p->event);
			nvidia_leave(&visit);
		}
	}
	free(e);
}
