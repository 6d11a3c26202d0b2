// SPDX-License-Identifier: Apache-2.0
/*
 * The completion queue.
 *
 * A request that goes direct is put into the queue's own ring by the thread
 * that submits it: no other thread is involved, which is what makes a queue
 * as cheap as io_uring itself. Everything else (chunks, O_APPEND, remainders
 * that the ring could not do, and all of it where the engine is sync) becomes
 * a job of the worker pool, whose done() puts the request among the finished.
 *
 *   slot:  FREE -> RING ---------------------> FINISHED -> FREE
 *            |      | remainder                   ^
 *            +----> LANE -> JOB ------------------+
 *
 * Writes to O_APPEND descriptors pass through the lane, which lets one job run
 * at a time, so that they reach their file in the order of submission.
 *
 * Lock: queue->lock protects everything. It is held while the ring is filled
 * and reaped, never while waiting. A waiter sleeps in the ring's wait() or,
 * with the sync engine, on the condition. A completion that another thread
 * reaps does not end a wait() that begins only now: so whoever has finished or
 * reaped something looks whether that is enough for a sleeping waiter, and
 * wakes them. Order: queue->lock before the pool's lock and a device's.
 *
 * A request in the ring holds its buffer until it is reaped. Who drains a
 * buffer therefore reaps all queues itself, since the thread that waits in a
 * deregistration may be the one that would have come to take the completions.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "phx_error.h"
#include "phx_init.h"
#include "phx_job.h"
#include "phx_queue.h"
#include "phx_time.h"
#include "phx_xfer.h"
#include "io_engine/io_engine.h"
#include "io_engine/io_pool.h"

#define MAX_DEPTH 32768
#define LONGEST_WAIT 4000000000 /* seconds; more is no limit, and does not wrap */

enum slot_state { SLOT_FREE, SLOT_RING, SLOT_LANE, SLOT_JOB, SLOT_FINISHED };

struct slot {
	struct phx_io io;      /* must be first: the engine gives it back */
	struct phx_job job;
	struct phx_xfer x;
	phxfs_queue_t *queue;
	enum slot_state state;
	bool in_lane;          /* its job runs for the lane */
	bool tried;            /* by the ring: bytes may have moved, also where it failed */
	ssize_t result;
	void *user_data;
	uint64_t number;       /* order of submission */
	struct slot *next;     /* in the list of its state */
};

struct slot_list {
	struct slot *first, **tail;
};

/* A thread asleep in phxfs_queue_wait(). */
struct waiter {
	unsigned int min;
	struct waiter *next;
};

struct phxfs_queue {
	pthread_mutex_t lock;
	pthread_cond_t finished_some;
	unsigned int generation;
	const struct phx_engine_ops *ops;
	struct phx_engine *engine;
	bool ring;              /* the engine is asynchronous */
	unsigned int depth;
	unsigned int used;      /* slots not FREE */
	unsigned int jobs;      /* slots JOB or LANE */
	unsigned int finished;  /* slots FINISHED */
	struct waiter *waiters;
	uint64_t submitted;
	struct slot_list free_slots, done, lane;
	bool lane_busy;
	bool lane_looping;      /* a thread is in next_in_lane() */
	bool stuck;             /* the kernel did not take all that is in the ring */
	int eventfd;            /* -1: not asked for */
	phxfs_queue_t *prev, *next; /* among all queues with a ring: queues_lock */
	struct slot slots[];
};

/* Protects the list; before every other lock of the library. */
static pthread_mutex_t queues_lock = PTHREAD_MUTEX_INITIALIZER;
static phxfs_queue_t *queues;

/* ------------------------------------------------------------------ slots */

static void push(struct slot_list *list, struct slot *slot)
{
	slot->next = NULL;
	*list->tail = slot;
	list->tail = &slot->next;
}

static struct slot *pop(struct slot_list *list)
{
	struct slot *slot = list->first;

	if (slot) {
		list->first = slot->next;
		if (!list->first)
			list->tail = &list->first;
	}
	return slot;
}

static void take_out(struct slot_list *list, struct slot *slot)
{
	struct slot **at = &list->first;

	while (*at != slot)
		at = &(*at)->next;
	*at = slot->next;
	if (!slot->next)
		list->tail = at;
}

static void empty(struct slot_list *list)
{
	list->first = NULL;
	list->tail = &list->first;
}

/* What a wait for @min needs; never more than will ever be there. */
static unsigned int wanted(const phxfs_queue_t *q, unsigned int min)
{
	return min < q->used ? min : q->used;
}

static void signal_eventfd(phxfs_queue_t *q)
{
	static const uint64_t one = 1;

	if (q->eventfd >= 0 && write(q->eventfd, &one, sizeof(one)) < 0)
		return; /* full: it is readable, which is all that is asked */
}

/* Wake the sleepers where one of them has what it waits for. */
static void wake_ready(phxfs_queue_t *q)
{
	struct waiter *w = q->waiters;

	while (w && q->finished < wanted(q, w->min))
		w = w->next;
	if (!w)
		return;
	if (q->ring)
		q->ops->wake(q->engine);
	else
		pthread_cond_broadcast(&q->finished_some);
}

/* Something has finished otherwise than through the ring. */
static void announce(phxfs_queue_t *q)
{
	wake_ready(q);
	signal_eventfd(q);
}

/* The transfer is over (or never began, when it is not @held). */
static void finish(phxfs_queue_t *q, struct slot *slot, ssize_t result, bool held)
{
	if (held)
		phx_xfer_end(&slot->x, result);
	slot->result = result;
	slot->state = SLOT_FINISHED;
	q->finished++;
	push(&q->done, slot);
}

/* ------------------------------------------------------------------- jobs */

static void job_done(struct phx_job *job);

/*
 * Give the slot's transfer, from byte @at on, to the worker pool. True: there
 * is no worker or no memory for that, so this thread has done it; the lock was
 * dropped meanwhile.
 */
static bool start_job(phxfs_queue_t *q, struct slot *slot, size_t at)
{
	size_t moved = 0;
	int err;

	slot->state = SLOT_JOB;
	slot->result = 0;
	if (!phx_job_init_rest(&slot->job, &slot->x, &slot->result, at, job_done)) {
		if (!phx_pool_submit(&slot->job))
			return false;
		phx_job_free(&slot->job);
	}
	pthread_mutex_unlock(&q->lock);
	err = phx_xfer_part(&slot->x, at, slot->x.len - at, &moved);
	pthread_mutex_lock(&q->lock);
	q->jobs--;
	finish(q, slot, phx_xfer_result(at + moved, err), true);
	announce(q);
	return true;
}

static void next_in_lane(phxfs_queue_t *q)
{
	struct slot *slot;

	if (q->lane_looping)
		return; /* that thread goes on with the lane */
	q->lane_looping = true;
	do {
		slot = pop(&q->lane);
		q->lane_busy = slot != NULL;
		if (!slot)
			break;
		slot->in_lane = true;
	} while (start_job(q, slot, 0));
	q->lane_looping = false;
}

static void job_done(struct phx_job *job)
{
	struct slot *slot = (struct slot *)((char *)job - offsetof(struct slot, job));
	phxfs_queue_t *q = slot->queue;
	bool in_lane;

	pthread_mutex_lock(&q->lock);
	phx_job_free(job);
	in_lane = slot->in_lane;
	q->jobs--;
	finish(q, slot, slot->result, true);
	if (in_lane)
		next_in_lane(q);
	announce(q);
	pthread_mutex_unlock(&q->lock);
}

/* ------------------------------------------------------------------- ring */

static void ring_finished(phxfs_queue_t *q, struct slot *slot)
{
	struct phx_io *io = &slot->io;

	phx_xfer_count(&slot->x, io->moved);
	if (io->moved < io->len && phx_io_mendable(io->err)) {
		q->jobs++;
		start_job(q, slot, io->moved);
		return;
	}
	finish(q, slot, phx_xfer_result(io->moved, io->err), true);
}

static void flush(phxfs_queue_t *q)
{
	q->stuck = q->ops->flush(q->engine) < 0;
	if (q->stuck) /* its owner may have nothing else to wake up for */
		signal_eventfd(q);
}

static void reap(phxfs_queue_t *q)
{
	struct phx_io *io = q->ops->reap(q->engine), *next;

	for (; io; io = next) {
		next = io->next;
		ring_finished(q, (struct slot *)io);
	}
	flush(q); /* what came back short goes on */
}

static bool start_in_ring(phxfs_queue_t *q, struct slot *slot)
{
	struct phx_io *io = &slot->io;

	io->fd = slot->x.fd;
	io->write = slot->x.write;
	io->addr = slot->x.io;
	io->len = slot->x.len;
	io->off = slot->x.off;
	io->device_id = slot->x.device_id;
	if (q->ops->start(q->engine, io))
		return false;
	slot->state = SLOT_RING;
	slot->tried = true;
	return true;
}

/* ------------------------------------------------------------- submission */

/* Flags of the last descriptor written to, so that a row of writes asks once. */
struct flags_cache {
	int fd, flags;
};

static bool appends(struct slot *slot, struct flags_cache *cache)
{
	if (!slot->x.write)
		return false;
	if (cache->fd != slot->x.fd) {
		cache->fd = slot->x.fd;
		cache->flags = phx_xfer_flags(&slot->x);
	}
	slot->x.flags = cache->flags;
	return cache->flags & O_APPEND;
}

static void submit_one(phxfs_queue_t *q, int op, const phxfs_io_req_t *r, void *user_data,
		       struct flags_cache *cache)
{
	struct slot *slot = pop(&q->free_slots);
	int err;

	q->used++;
	slot->user_data = user_data;
	slot->number = q->submitted++;
	slot->in_lane = false;
	slot->tried = false;
	err = phx_xfer_start_req(&slot->x, op == PHXFS_OP_WRITE, r, NULL);
	if (err) {
		slot->x = (struct phx_xfer){ .fd = r->fd, .write = op == PHXFS_OP_WRITE,
					     .len = r->nbytes, .off = r->f_offset };
		finish(q, slot, err, false);
		announce(q);
		return;
	}
	if (appends(slot, cache)) {
		slot->state = SLOT_LANE;
		q->jobs++;
		push(&q->lane, slot);
		if (!q->lane_busy)
			next_in_lane(q);
		return;
	}
	if (q->ring && slot->x.path == PHXFS_PATH_DIRECT && slot->x.len &&
	    !phx_xfer_must_cut(&slot->x, 0, slot->x.len) && start_in_ring(q, slot))
		return;
	q->jobs++;
	start_job(q, slot, 0);
}

static int check_queue(phxfs_queue_t *q, const char *step)
{
	if (!q)
		return phx_fail(-EINVAL, step, "make one with phxfs_queue_create()", "NULL queue");
	if (q->generation != phx_fork_generation())
		return phx_fail(-ECHILD, step, "make one in this process",
				"a queue of the parent process");
	return 0;
}

int phxfs_queue_submit(phxfs_queue_t *q, int op, const phxfs_io_req_t *reqs,
		       void *const *user_data, int n)
{
	struct flags_cache cache = { .fd = -1 };
	int err, taken;

	err = check_queue(q, "queue_submit");
	if (err)
		return err;
	if (n < 0 || (n && !reqs) || (op != PHXFS_OP_READ && op != PHXFS_OP_WRITE))
		return phx_fail(-EINVAL, "queue_submit", NULL, "op %d, %d requests at %p", op, n,
				(const void *)reqs);
	if (!n)
		return 0;
	pthread_mutex_lock(&q->lock);
	for (taken = 0; taken < n && q->used < q->depth; taken++)
		submit_one(q, op, &reqs[taken], user_data ? user_data[taken] : NULL, &cache);
	if (taken)
		flush(q);
	pthread_mutex_unlock(&q->lock);
	if (!taken)
		return phx_fail(-EAGAIN, "queue_submit", "take completions first",
				"all %u slots of the queue are used", q->depth);
	return taken;
}

/* ---------------------------------------------------------------- waiting */

/* What is left until @deadline; false: nothing. */
static bool time_left(uint64_t deadline, struct timespec *left)
{
	uint64_t now = phx_now_ns();

	if (now >= deadline)
		return false;
	*left = phx_timespec(deadline - now);
	return true;
}

static void sleep_on_condition(phxfs_queue_t *q, const struct timespec *left)
{
	struct timespec until;

	if (!left) {
		pthread_cond_wait(&q->finished_some, &q->lock);
		return;
	}
	until = phx_timespec(phx_now_ns() + (uint64_t)left->tv_sec * 1000000000 +
			     (uint64_t)left->tv_nsec);
	pthread_cond_timedwait(&q->finished_some, &q->lock, &until);
}

/* Sleep until something may have finished; the lock is dropped meanwhile. */
static void sleep_once(phxfs_queue_t *q, unsigned int min, const struct timespec *left)
{
	static const struct timespec soon = { .tv_nsec = 1000000 };
	/* A wake-up is lost where the kernel has no memory for it: never sleep on one. */
	static const struct timespec nap = { .tv_nsec = 50000000 };
	struct waiter self = { .min = min, .next = q->waiters }, **at;

	q->waiters = &self;
	if (!left || left->tv_sec || left->tv_nsec > nap.tv_nsec)
		left = &nap;
	if (q->stuck && (!left || left->tv_sec || left->tv_nsec > soon.tv_nsec))
		left = &soon; /* then what the kernel did not take is offered again */
	if (q->ring) {
		pthread_mutex_unlock(&q->lock);
		q->ops->wait(q->engine, left);
		pthread_mutex_lock(&q->lock);
	} else {
		sleep_on_condition(q, left);
	}
	for (at = &q->waiters; *at != &self; at = &(*at)->next)
		;
	*at = self.next;
}

/* @deadline: 0: none. */
static void wait_until(phxfs_queue_t *q, unsigned int min, uint64_t deadline)
{
	struct timespec left;

	for (reap(q); q->finished < wanted(q, min); reap(q)) {
		if (deadline && !time_left(deadline, &left))
			return;
		wake_ready(q);
		sleep_once(q, min, deadline ? &left : NULL);
	}
}

static int take(phxfs_queue_t *q, struct phxfs_completion *out, int max)
{
	int n = 0;

	while (n < max && q->finished) {
		struct slot *slot = pop(&q->done);

		out[n++] = (struct phxfs_completion){ slot->user_data, slot->result };
		if (slot->result < 0 && slot->result != -ECANCELED)
			phx_xfer_fail((int)slot->result, slot->x.write, slot->x.fd, slot->x.len,
				      slot->x.off);
		slot->state = SLOT_FREE;
		q->finished--;
		q->used--;
		push(&q->free_slots, slot);
	}
	return n;
}

int phxfs_queue_wait(phxfs_queue_t *q, struct phxfs_completion *out, int min, int max,
		     const struct timespec *timeout)
{
	uint64_t deadline = 0;
	int err, n;

	err = check_queue(q, "queue_wait");
	if (err)
		return err;
	if (!out || min < 0 || max < 1 || max < min ||
	    (timeout &&
	     (timeout->tv_sec < 0 || timeout->tv_nsec < 0 || timeout->tv_nsec > 999999999)))
		return phx_fail(-EINVAL, "queue_wait", NULL, "min %d, max %d, out %p", min, max,
				(void *)out);
	if (timeout && timeout->tv_sec < LONGEST_WAIT)
		deadline = phx_now_ns() + (uint64_t)timeout->tv_sec * 1000000000 +
			   (uint64_t)timeout->tv_nsec;
	pthread_mutex_lock(&q->lock);
	phx_range_push("phxfs_queue_wait");
	wait_until(q, (unsigned int)min, deadline);
	phx_range_pop();
	n = take(q, out, max);
	wake_ready(q); /* with what is left, or because nothing is */
	pthread_mutex_unlock(&q->lock);
	return n;
}

/* --------------------------------------------------------- cancel, eventfd */

static bool in_flight(const struct slot *slot)
{
	return slot->state == SLOT_RING || slot->state == SLOT_LANE || slot->state == SLOT_JOB;
}

static struct slot *oldest(phxfs_queue_t *q, const void *user_data)
{
	struct slot *found = NULL;

	for (unsigned int i = 0; i < q->depth; i++) {
		struct slot *slot = &q->slots[i];

		if (in_flight(slot) && slot->user_data == user_data &&
		    (!found || slot->number < found->number))
			found = slot;
	}
	return found;
}

/* False: it is running and cannot be stopped. */
static bool cancel_slot(phxfs_queue_t *q, struct slot *slot)
{
	bool in_lane = slot->in_lane;

	if (slot->state == SLOT_LANE)
		take_out(&q->lane, slot);
	else if (slot->state != SLOT_JOB || !slot->job.slices || slot->tried ||
		 !phx_pool_take_back(&slot->job))
		return false;
	if (slot->state == SLOT_JOB)
		phx_job_free(&slot->job);
	q->jobs--;
	finish(q, slot, -ECANCELED, true);
	if (in_lane)
		next_in_lane(q);
	announce(q);
	return true;
}

int phxfs_queue_cancel(phxfs_queue_t *q, void *user_data)
{
	struct slot *slot;
	int err;

	err = check_queue(q, "queue_cancel");
	if (err)
		return err;
	pthread_mutex_lock(&q->lock);
	reap(q);
	slot = oldest(q, user_data);
	if (!slot)
		err = phx_fail(-ENOENT, "queue_cancel", NULL,
			       "no request with user_data %p in flight", user_data);
	else if (!cancel_slot(q, slot))
		err = phx_fail(-EALREADY, "queue_cancel", "wait for its completion",
			       "the request with user_data %p is running", user_data);
	wake_ready(q);
	pthread_mutex_unlock(&q->lock);
	return err;
}

int phxfs_queue_eventfd(phxfs_queue_t *q)
{
	int fd, err;

	err = check_queue(q, "queue_eventfd");
	if (err)
		return err;
	pthread_mutex_lock(&q->lock);
	if (q->eventfd < 0) {
		fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		err = fd < 0 ? -errno : 0;
		if (!err && q->ring)
			err = q->ops->notify(q->engine, fd);
		if (err && fd >= 0)
			close(fd);
		if (!err) {
			q->eventfd = fd;
			/* Readable from the start where something has finished already. */
			reap(q);
			if (q->finished)
				announce(q);
		}
	}
	if (err)
		phx_fail(err, "queue_eventfd", NULL, "an eventfd for the queue");
	else
		err = q->eventfd;
	pthread_mutex_unlock(&q->lock);
	return err;
}

/* ------------------------------------------------------------- all queues */

static void enlist(phxfs_queue_t *q)
{
	pthread_mutex_lock(&queues_lock);
	q->next = queues;
	if (queues)
		queues->prev = q;
	queues = q;
	pthread_mutex_unlock(&queues_lock);
}

static void delist(phxfs_queue_t *q)
{
	pthread_mutex_lock(&queues_lock);
	*(q->prev ? &q->prev->next : &queues) = q->next;
	if (q->next)
		q->next->prev = q->prev;
	pthread_mutex_unlock(&queues_lock);
}

bool phx_queues_reap(void)
{
	bool any;

	pthread_mutex_lock(&queues_lock);
	any = queues != NULL;
	for (phxfs_queue_t *q = queues; q; q = q->next) {
		pthread_mutex_lock(&q->lock);
		reap(q);
		wake_ready(q);
		pthread_mutex_unlock(&q->lock);
	}
	pthread_mutex_unlock(&queues_lock);
	return any;
}

void phx_queues_fork_prepare(void)
{
	pthread_mutex_lock(&queues_lock);
}

void phx_queues_fork_parent(void)
{
	pthread_mutex_unlock(&queues_lock);
}

void phx_queues_fork_child(void)
{
	queues = NULL; /* the parent's: -ECHILD */
	pthread_mutex_unlock(&queues_lock);
}

/* ------------------------------------------------------ creation, the end */

static int init_queue(phxfs_queue_t *q, unsigned int depth)
{
	pthread_condattr_t monotonic;
	int err;

	err = phx_engine_create(depth, PHX_ENGINE_SHARED, &q->ops, &q->engine);
	if (err)
		return err;
	q->ring = q->ops->asynchronous;
	q->generation = phx_fork_generation();
	q->depth = depth;
	q->eventfd = -1;
	pthread_mutex_init(&q->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&q->finished_some, &monotonic);
	pthread_condattr_destroy(&monotonic);
	empty(&q->free_slots);
	empty(&q->done);
	empty(&q->lane);
	for (unsigned int i = 0; i < depth; i++) {
		q->slots[i].queue = q;
		push(&q->free_slots, &q->slots[i]);
	}
	return 0;
}

int phxfs_queue_create(unsigned int depth, phxfs_queue_t **out)
{
	phxfs_queue_t *q;
	int err;

	phx_init();
	if (depth < 1 || depth > MAX_DEPTH || !out)
		return phx_fail(-EINVAL, "queue_create", "use a depth from 1 to 32768", "depth %u",
				depth);
	q = calloc(1, sizeof(*q) + depth * sizeof(q->slots[0]));
	err = q ? init_queue(q, depth) : -ENOMEM;
	if (err) {
		free(q);
		return phx_fail(err, "queue_create", NULL, "depth %u", depth);
	}
	if (q->ring)
		enlist(q);
	*out = q;
	return 0;
}

/* Cancel what has not started, wait for the rest. */
static void drain(phxfs_queue_t *q)
{
	pthread_mutex_lock(&q->lock);
	for (unsigned int i = 0; i < q->depth; i++) {
		if (q->slots[i].state == SLOT_LANE || q->slots[i].state == SLOT_JOB)
			cancel_slot(q, &q->slots[i]);
	}
	wait_until(q, q->used, 0);
	pthread_mutex_unlock(&q->lock);
}

int phxfs_queue_destroy(phxfs_queue_t *q)
{
	bool mine;

	if (!q)
		return 0;
	mine = q->generation == phx_fork_generation();
	if (mine && q->ring)
		delist(q);
	if (mine)
		drain(q);
	q->ops->destroy(q->engine);
	if (q->eventfd >= 0)
		close(q->eventfd);
	if (mine) {
		pthread_mutex_destroy(&q->lock);
		pthread_cond_destroy(&q->finished_some);
	}
	free(q);
	return mine ? 0 : phx_fail(-ECHILD, "queue_destroy", NULL, "a queue of the parent process");
}
