/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: transfers cut into slices that workers claim. It serves a batch, one
 * request of a queue, or one large request of a caller.
 *
 * A slice is what one worker moves at a time: it ends at a multiple of the
 * slice size in the file, so that only a request's ends can be unaligned.
 * Writes to O_APPEND descriptors have one slice each; those of a job are run
 * by one worker in their order.
 *
 * Who creates: the submitter. Who frees: the submitter, after its done() has
 * run. done() runs once, in the thread that finishes the last slice.
 */
#ifndef PHX_JOB_H
#define PHX_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "phx_staging.h"
#include "phx_xfer.h"
#include "io_engine/io_engine.h"

struct phx_job;

struct phx_slice {
	struct phx_io io;       /* must be first: the engine gives it back */
	struct phx_job *job;
	struct phx_xfer *x;
	size_t at, len;
	size_t moved;
	int err;
	bool ready;             /* io is filled in: for the engine as it is */
	bool by_hand;           /* no longer for the engine */
	struct phx_chunk chunk; /* the worker's, while it moves the slice */
};

struct phx_job {
	struct phx_xfer *xfers;
	ssize_t *results;          /* one for each transfer: OUT, before done() */
	int count;
	struct phx_slice *slices;
	size_t slice_count;
	size_t grain;              /* bytes that a worker claims at once */
	int helpers;               /* workers to wake at most; 0: what the slices need; -1: none */
	void (*call)(struct phx_job *job); /* instead of moving anything; or NULL */
	int pieces;                /* to cut a transfer through chunks into, at least */
	bool patient;              /* others keep the disk busy: waits for copies sleep */
	bool let_out;              /* of the processor's cache, what was read */
	bool whole;                /* run to its end before the jobs behind it */
	bool plain;                /* slices[i] is all of xfers[i] */
	size_t ordered;            /* slices from here on run one after another */
	_Atomic size_t left;       /* slices not finished */
	atomic_bool cancelled;     /* unstarted slices end with -ECANCELED */
	void (*done)(struct phx_job *job);
	/* Protected by the pool's lock: */
	size_t next;               /* first slice not claimed */
	bool queued;               /* stands in a list of the pool */
	bool batch;                /* in the batches' FIFO, not among the others */
	struct phx_job *prev_job, *next_job;
};

/*
 * Cut the transfers into slices. A transfer whose results[i] is negative
 * already (it could not be resolved) is left out. -ENOMEM.
 */
int phx_job_init(struct phx_job *job, struct phx_xfer *xfers, ssize_t *results, int count,
		 void (*done)(struct phx_job *job));
void phx_job_free(struct phx_job *job);

/* No transfer: a worker calls @call; @result and @slice are the caller's. */
void phx_job_init_call(struct phx_job *job, ssize_t *result, struct phx_slice *slice,
		       void (*call)(struct phx_job *job), void (*done)(struct phx_job *job));

/* One direct transfer, cut into pieces of @piece bytes in the caller's @slices. */
void phx_job_init_pieces(struct phx_job *job, struct phx_xfer *x, ssize_t *result,
			 struct phx_slice *slices, size_t piece,
			 void (*done)(struct phx_job *job));

/* The same, but @x begins at its byte @at: what an engine left over. */
int phx_job_init_rest(struct phx_job *job, struct phx_xfer *x, ssize_t *result, size_t at,
		      void (*done)(struct phx_job *job));

/* So many slices have been moved, or not: their moved and err are set. */
void phx_job_finish(struct phx_job *job, size_t slices);

/* Between two looks at what another thread will change soon. */
static inline void phx_relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

/* Run one transfer by this thread and the pool together; bytes or -errno. */
ssize_t phx_job_run_one(struct phx_xfer *x);
void phx_job_fork_child(void);

#endif
