/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker pool: PHX_IO_WORKERS threads, started on first use, each with an
 * engine of its own, that claim slices of jobs. See io_pool.c.
 */
#ifndef IO_POOL_H
#define IO_POOL_H

#include <stdbool.h>

#include "../phx_job.h"

/*
 * Queue a batch. -EBUSY: PHXFS_BATCH_FIFO are queued and @wait is false;
 * -EAGAIN: there is no worker and none can be started.
 */
int phx_pool_submit_batch(struct phx_job *job, bool wait);
/* Start the workers if they are not there. -EAGAIN as above. */
int phx_pool_ready(void);
/* Queue a job beside the batches. -EAGAIN as above. */
int phx_pool_submit(struct phx_job *job);
/* Run a job that could not be queued, by this thread alone. */
void phx_pool_run_here(struct phx_job *job);
/*
 * Claim and run slices of @job in this thread until none is left to claim; with
 * @direct several at a time. The job must outlive the call.
 */
void phx_pool_help(struct phx_job *job, bool direct);
/* The same, for some slices only; false: there were none left. */
bool phx_pool_help_once(struct phx_job *job);
/* The same for a job that is to be run whole, if one is first in turn. */
bool phx_pool_help_any(void);
/* Take a queued job back, of which no slice has been claimed; false: too late. */
bool phx_pool_take_back(struct phx_job *job);
/* For phx_job_finish(): all slices of @job are finished. */
void phx_pool_finished(struct phx_job *job);

void phx_pool_fork_prepare(void);
void phx_pool_fork_parent(void);
void phx_pool_fork_child(void);

#endif
