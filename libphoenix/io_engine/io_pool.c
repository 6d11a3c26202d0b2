// SPDX-License-Identifier: Apache-2.0
/*
 * The worker pool.
 *
 * Jobs stand in two lists. Batches wait in a FIFO of PHXFS_BATCH_FIFO and run
 * one at a time: the next begins when the last slice of the one before it has
 * finished. All other jobs (requests of queues, large single requests) share
 * the second list: a worker takes a few slices of its first job and moves that
 * to the end, so that a small request waits for a few slices of each large one
 * before it and never for a whole one. Workers take from both lists in turn.
 *
 * A worker claims slices a few at a time (GRAIN, or job->grain bytes) and keeps up
 * to the engine's depth in flight. When it has nothing to claim it sleeps: in
 * the engine's wait() when something is in flight, else on the condition. A
 * new job wakes sleepers of the second kind, and of the first where there are
 * none of the second.
 *
 * Lock: pool.lock protects the lists, every job's part that says so, and the
 * counts. It is a leaf: nothing else is locked, no I/O is done, no done() is
 * called under it. Locks of devices and chunk pools come before it.
 *
 * No thread is bound to a processor or node: on a direct path the bytes never
 * pass through a processor, so that where the request is issued is irrelevant.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io_pool.h"
#include "io_worker.h"
#include "thread_ring.h"
#include "../phx_config.h"
#include "../phx_error.h"

#define GRAIN 32
#define LOOK_NS 50000 /* for more of what comes in quick succession, before sleeping */

struct job_list {
	struct phx_job *first, *last;
	int length;
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work;  /* a job to claim from */
	pthread_cond_t room;  /* in the batches' FIFO */
	struct job_list batches, others;
	struct phx_worker *workers[256];
	int worker_count;
	int idle;             /* workers on work */
	int looking;          /* workers that look at posted */
	_Atomic unsigned int posted; /* jobs, ever */
} pool = {
	.lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, /* held for short */
	.work = PTHREAD_COND_INITIALIZER,
	.room = PTHREAD_COND_INITIALIZER,
};

/* ------------------------------------------------------------------ lists */

static void append(struct job_list *list, struct phx_job *job)
{
	job->prev_job = list->last;
	job->next_job = NULL;
	*(list->last ? &list->last->next_job : &list->first) = job;
	list->last = job;
	list->length++;
}

static void unlink_job(struct job_list *list, struct phx_job *job)
{
	*(job->prev_job ? &job->prev_job->next_job : &list->first) = job->next_job;
	*(job->next_job ? &job->next_job->prev_job : &list->last) = job->prev_job;
	list->length--;
}

/* ----------------------------------------------------------------- claims */

static bool all_claimed(const struct phx_job *job)
{
	return job->next == job->slice_count;
}

/*
 * Claim some neighbouring slices, with the lock held; a count of 0: there are
 * none. The ordered slices of a job are one claim.
 */
static struct phx_claim claim(struct phx_job *job)
{
	bool ordered = job->next >= job->ordered;
	size_t next = job->next, end = ordered ? job->slice_count : job->ordered, bytes = 0;
	struct phx_claim claimed = { &job->slices[next], 0 };

	if (!ordered && end - next > GRAIN)
		end = next + GRAIN;
	if (ordered || job->plain) /* plain slices are small: no need to add them up */
		next = end;
	while (next < end && bytes < job->grain)
		bytes += job->slices[next++].len;
	claimed.count = next - job->next;
	job->next = next;
	return claimed;
}

static struct phx_claim claim_batch(void)
{
	static const struct phx_claim none;

	return pool.batches.first ? claim(pool.batches.first) : none;
}

static struct phx_claim claim_other(void)
{
	struct phx_job *job = pool.others.first;
	struct phx_claim claimed = { 0 };

	if (!job)
		return claimed;
	claimed = claim(job);
	if (job->whole && !all_claimed(job))
		return claimed;
	unlink_job(&pool.others, job);
	if (all_claimed(job))
		job->queued = false;
	else
		append(&pool.others, job);
	return claimed;
}

static struct phx_claim claim_any(bool batch_first)
{
	struct phx_claim claimed = batch_first ? claim_batch() : claim_other();

	if (!claimed.count)
		claimed = batch_first ? claim_other() : claim_batch();
	return claimed;
}

/* ---------------------------------------------------------------- workers */

/* Wait a little for another job, with the lock held, but not meanwhile. */
static void look(struct phx_worker *worker)
{
	unsigned int seen = atomic_load_explicit(&pool.posted, memory_order_relaxed);
	struct timespec now;
	int64_t end = 0, ns = 0;

	worker->hot = false;
	pool.looking++;
	pthread_mutex_unlock(&pool.lock);
	while (ns <= end && atomic_load_explicit(&pool.posted, memory_order_relaxed) == seen) {
		for (int i = 0; i < 16; i++)
			phx_relax();
		clock_gettime(CLOCK_MONOTONIC, &now);
		ns = now.tv_sec * 1000000000LL + now.tv_nsec;
		end = end ? end : ns + LOOK_NS;
	}
	pthread_mutex_lock(&pool.lock);
	pool.looking--;
}

static bool has_room(const struct phx_worker *worker)
{
	return !worker->stalled && !worker->backlog.count &&
	       worker->in_flight + GRAIN <= PHX_ENGINE_DEPTH;
}

/* Claim, or sleep until there is something to claim or to reap. */
static void claim_or_wait(struct phx_worker *worker, bool batch_first)
{
	struct phx_claim claimed = { 0 };

	if (worker->stalled && !worker->chunks)
		return; /* what is stalled can go on */
	pthread_mutex_lock(&pool.lock);
	while (has_room(worker)) {
		claimed = claim_any(batch_first);
		if (claimed.count || worker->in_flight || worker->copies)
			break;
		if (worker->hot) {
			look(worker);
			continue;
		}
		pool.idle++;
		pthread_cond_wait(&pool.work, &pool.lock);
		pool.idle--;
	}
	worker->hot = claimed.count && claimed.first->job->whole;
	if (!claimed.count && has_room(worker) && !worker->copies) {
		worker->ops->arm(worker->engine);
		worker->waiting = true;
	}
	pthread_mutex_unlock(&pool.lock);
	if (claimed.count) {
		worker->backlog = claimed;
		return;
	}
	if (worker->copies) {
		phx_worker_harvest(worker, true); /* soon done; the file side goes on beside */
		return;
	}
	worker->ops->wait(worker->engine, NULL);
	pthread_mutex_lock(&pool.lock);
	worker->waiting = false;
	pthread_mutex_unlock(&pool.lock);
}

static void start_backlog(struct phx_worker *worker)
{
	while (worker->backlog.count && !worker->stalled) {
		worker->backlog.count--;
		phx_worker_start(worker, worker->backlog.first++);
	}
}

static void *work(void *arg)
{
	struct phx_worker *worker = arg;
	bool batch_first = worker->index % 2 == 0;

	for (;;) {
		claim_or_wait(worker, batch_first);
		batch_first = !batch_first;
		phx_worker_reap(worker);
		phx_worker_harvest(worker, false);
		phx_worker_resume(worker);
		start_backlog(worker);
		worker->ops->flush(worker->engine);
		phx_worker_reap(worker);
	}
	return NULL;
}

/* No memory even for the sync engine: slice by slice. */
static void *work_by_hand(void)
{
	for (;;) {
		struct phx_claim claimed;

		pthread_mutex_lock(&pool.lock);
		while (claimed = claim_any(true), !claimed.count) {
			pool.idle++;
			pthread_cond_wait(&pool.work, &pool.lock);
			pool.idle--;
		}
		pthread_mutex_unlock(&pool.lock);
		while (claimed.count--)
			phx_worker_run_slice(claimed.first++);
	}
	return NULL;
}

/* The engine is made by the worker: a ring may belong to its maker only. */
static void *worker_main(void *arg)
{
	struct phx_worker *worker = arg;

	const struct phx_engine_ops *ops;
	struct phx_engine *engine;

	if (phx_engine_create(PHX_ENGINE_DEPTH, PHX_ENGINE_WORKER, &ops, &engine))
		return work_by_hand();
	pthread_mutex_lock(&pool.lock);
	worker->ops = ops;
	worker->engine = engine;
	pthread_mutex_unlock(&pool.lock);
	return work(worker);
}

/* Start one worker, with the lock held and every signal blocked in it. */
static int start_worker(void)
{
	struct phx_worker *worker = calloc(1, sizeof(*worker));
	pthread_attr_t attr;
	sigset_t all, old;
	char name[16];
	int err;

	if (!worker)
		return -ENOMEM;
	worker->index = pool.worker_count;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&worker->thread, &attr, worker_main, worker);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (err) {
		free(worker);
		return -err;
	}
	snprintf(name, sizeof(name), "phx-io-%d", worker->index);
	pthread_setname_np(worker->thread, name);
	pool.workers[pool.worker_count++] = worker;
	return 0;
}

static int start_workers(void)
{
	int err = 0;

	while (!err && pool.worker_count < phx_config.workers)
		err = start_worker();
	return pool.worker_count ? 0 : -EAGAIN;
}

/* Wake as many workers as the job has grains, with the lock held. */
static void wake_workers(const struct phx_job *job)
{
	size_t grains = (job->slice_count + GRAIN - 1) / GRAIN;
	int wanted = grains < (size_t)pool.worker_count ? (int)grains : pool.worker_count;

	if (job->slice_count && job->slices[0].len >= job->grain / GRAIN)
		wanted = job->slice_count < (size_t)pool.worker_count ? (int)job->slice_count :
									pool.worker_count;
	if (job->helpers && wanted > job->helpers)
		wanted = job->helpers;
	atomic_fetch_add_explicit(&pool.posted, 1, memory_order_relaxed);
	wanted -= pool.looking;
	for (int i = 0; i < pool.idle && i < wanted; i++)
		pthread_cond_signal(&pool.work);
	wanted -= pool.idle;
	for (int i = 0; i < pool.worker_count && wanted > 0; i++) {
		struct phx_worker *worker = pool.workers[i];

		if (worker->waiting) {
			worker->waiting = false;
			worker->ops->wake(worker->engine);
			wanted--;
		}
	}
}

/* ------------------------------------------------------------- submission */

int phx_pool_submit_batch(struct phx_job *job, bool wait)
{
	int err;

	pthread_mutex_lock(&pool.lock);
	err = start_workers();
	while (!err && pool.batches.length == PHXFS_BATCH_FIFO) {
		if (wait)
			pthread_cond_wait(&pool.room, &pool.lock);
		else
			err = -EBUSY;
	}
	if (!err) {
		job->queued = true;
		job->batch = true;
		append(&pool.batches, job);
		if (pool.batches.first == job)
			wake_workers(job);
	}
	pthread_mutex_unlock(&pool.lock);
	return err;
}

int phx_pool_ready(void)
{
	int err;

	pthread_mutex_lock(&pool.lock);
	err = start_workers();
	pthread_mutex_unlock(&pool.lock);
	return err;
}

int phx_pool_submit(struct phx_job *job)
{
	int err;

	pthread_mutex_lock(&pool.lock);
	err = start_workers();
	if (!err) {
		job->queued = true;
		append(&pool.others, job);
		wake_workers(job);
	}
	pthread_mutex_unlock(&pool.lock);
	return err;
}

void phx_pool_run_here(struct phx_job *job)
{
	struct phx_slice *slices = job->slices;
	size_t count = job->slice_count;

	/* The job may be gone once the last one has finished. */
	for (size_t i = 0; i < count; i++)
		phx_worker_run_slice(&slices[i]);
}

static struct phx_claim claim_for_help(struct phx_job *job)
{
	struct phx_claim claimed;

	pthread_mutex_lock(&pool.lock);
	claimed = claim(job);
	if (job->queued && all_claimed(job)) {
		unlink_job(&pool.others, job);
		job->queued = false;
	}
	pthread_mutex_unlock(&pool.lock);
	return claimed;
}

/* Without an engine, which would gain nothing; false: it was none. */
static bool run_claim_at_once(struct phx_claim claimed)
{
	bool any = claimed.count;

	while (claimed.count--)
		phx_worker_run_slice(claimed.first++);
	return any;
}

bool phx_pool_help_once(struct phx_job *job)
{
	struct phx_claim claimed = claim_for_help(job);

	return run_claim_at_once(claimed);
}

bool phx_pool_help_any(void)
{
	struct phx_claim claimed = { 0 };

	pthread_mutex_lock(&pool.lock);
	if (pool.others.first && pool.others.first->whole)
		claimed = claim_other();
	pthread_mutex_unlock(&pool.lock);
	return run_claim_at_once(claimed);
}

void phx_pool_help(struct phx_job *job, bool direct)
{
	struct phx_engine *ring = direct ? phx_thread_ring_take() : NULL;
	struct phx_worker self = { .ops = ring ? &phx_engine_io_uring : &phx_engine_sync,
				   .engine = ring };
	struct phx_claim claimed;

	/* A worker for a while: its copies run beside its reads. */
	if (!ring && self.ops->create(1, PHX_ENGINE_CALLER, &self.engine))
		self.engine = NULL;
	while (claimed = claim_for_help(job), claimed.count) {
		if (self.engine)
			phx_worker_run_claim(&self, claimed);
		else
			while (claimed.count--)
				phx_worker_run_slice(claimed.first++);
	}
	if (self.engine) {
		phx_worker_drain(&self);
		if (!ring)
			self.ops->destroy(self.engine);
	}
	if (ring)
		phx_thread_ring_give();
}

bool phx_pool_take_back(struct phx_job *job)
{
	bool taken;

	pthread_mutex_lock(&pool.lock);
	taken = job->queued && job->next == 0;
	if (taken) {
		unlink_job(job->batch ? &pool.batches : &pool.others, job);
		job->queued = false;
	}
	if (taken && job->batch) {
		pthread_cond_signal(&pool.room);
		if (pool.batches.first)
			wake_workers(pool.batches.first);
	}
	pthread_mutex_unlock(&pool.lock);
	return taken;
}

void phx_pool_finished(struct phx_job *job)
{
	if (!job->batch)
		return; /* it left its list when its last slice was claimed */
	pthread_mutex_lock(&pool.lock);
	unlink_job(&pool.batches, job);
	job->queued = false;
	pthread_cond_signal(&pool.room);
	if (pool.batches.first)
		wake_workers(pool.batches.first);
	pthread_mutex_unlock(&pool.lock);
}

/* ------------------------------------------------------------------- fork */

void phx_pool_fork_prepare(void)
{
	pthread_mutex_lock(&pool.lock);
}

void phx_pool_fork_parent(void)
{
	pthread_mutex_unlock(&pool.lock);
}

/*
 * The child has no workers: it forgets the parent's jobs and starts workers of
 * its own when it needs them. The parent's rings are closed here.
 */
void phx_pool_fork_child(void)
{
	for (int i = 0; i < pool.worker_count; i++) {
		struct phx_worker *worker = pool.workers[i];

		if (worker->engine)
			worker->ops->destroy(worker->engine);
		free(worker);
	}
	pool.worker_count = 0;
	pool.idle = 0;
	pool.looking = 0;
	memset(&pool.batches, 0, sizeof(pool.batches));
	memset(&pool.others, 0, sizeof(pool.others));
	pthread_cond_init(&pool.work, NULL);
	pthread_cond_init(&pool.room, NULL);
	pthread_mutex_unlock(&pool.lock);
}
