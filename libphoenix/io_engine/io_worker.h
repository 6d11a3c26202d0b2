/* SPDX-License-Identifier: Apache-2.0 */
/* A worker: an engine and the slices it has in flight. Used by one thread. */
#ifndef IO_WORKER_H
#define IO_WORKER_H

#include <pthread.h>
#include <stdbool.h>

#include "../phx_job.h"

/* Neighbouring slices of one job. */
struct phx_claim {
	struct phx_slice *first;
	size_t count;
};

struct phx_worker {
	pthread_t thread;
	int index;
	const struct phx_engine_ops *ops;
	struct phx_engine *engine;
	unsigned int in_flight;      /* slices in the engine */
	unsigned int chunks;         /* slices, in the engine or copying, that hold a chunk */
	unsigned int copies;         /* slices whose copy is queued on the device */
	struct phx_slice *copying, **copying_tail; /* these, oldest first, by io.next */
	/* Wait for a chunk, linked by io.next; nothing new is started meanwhile. */
	struct phx_slice *stalled, **stalled_tail;
	struct phx_claim backlog;    /* claimed, not started */
	bool hot;                    /* the last claim was of a whole job */
	/* Protected by the pool's lock: */
	bool waiting;                /* in the engine's wait(), armed */
};

/* Move @slice now, by this thread, with what is left of it, and finish it. */
void phx_worker_run_slice(struct phx_slice *slice);
/* Start @slice in the engine, or run it at once where the engine cannot. */
void phx_worker_start(struct phx_worker *worker, struct phx_slice *slice);
/* Start the slices that wait for a chunk, as far as they can be by now. */
void phx_worker_resume(struct phx_worker *worker);
/* Finish what the engine has finished. */
void phx_worker_reap(struct phx_worker *worker);

/*
 * Go on with slices whose copies are done; with @wait the oldest is waited
 * for. Without async copies there are none.
 */
void phx_worker_harvest(struct phx_worker *worker, bool wait);
/* Start what was claimed, one after the other. */
void phx_worker_run_claim(struct phx_worker *worker, struct phx_claim claimed);
/* Run all that is under way to the end. */
void phx_worker_drain(struct phx_worker *worker);

#endif
