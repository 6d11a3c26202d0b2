// SPDX-License-Identifier: Apache-2.0
/*
 * Accounting of a transfer. The thread that ends the last slice finishes the
 * task: by then no path holds a slice of it, so its memory is quiet. It is
 * what publishes the outcome: state is stored with release after everything
 * else, and read with acquire.
 */
#include "engine.h"

#include <stdlib.h>

int p2p_task_error(const struct p2p_task *task)
{
	return -(int)(uint32_t)atomic_load_explicit(&((struct p2p_task *)task)->first,
						    memory_order_relaxed);
}

bool p2p_task_ended(const struct p2p_task *task)
{
	return atomic_load_explicit(&((struct p2p_task *)task)->state, memory_order_acquire) !=
	       FLAGCX_P2P_XFER_PENDING;
}

static void count_latency(struct p2p_engine *e, uint64_t ns)
{
	unsigned int bucket = ns < 256 ? 0 : 64u - (unsigned int)__builtin_clzll(ns) - 8;

	p2p_count(e, latency[P2P_MIN(bucket, P2P_LATENCIES - 1)], 1);
}

static void finish(struct p2p_task *task)
{
	struct p2p_conn *c = task->conn;
	struct p2p_engine *e = c->engine;
	int err = p2p_task_error(task);
	uint32_t state = !err ? FLAGCX_P2P_XFER_DONE : err == -ECANCELED ? FLAGCX_P2P_XFER_CANCELED
									 : FLAGCX_P2P_XFER_FAILED;

	for (uint32_t i = 0; i < task->mrs; i++)
		p2p_mr_unpin(task->mr[i]);
	free(task->mr);
	free(task->slice);
	task->mr = NULL;
	task->slice = NULL;
	count_latency(e, p2p_now_ns() - task->start_ns);
	p2p_count(e, xfers, 1);
	if (err)
		p2p_count(e, xfers_failed, 1);
	p2p_uncount(e, in_flight, 1);
	if (task->ended)
		task->ended(task->arg, err);
	atomic_store_explicit(&task->state, state, memory_order_release);
	p2p_futex_wake_all(&task->state);
	if (atomic_fetch_sub_explicit(&c->flights, 1, memory_order_acq_rel) == 1)
		p2p_conn_signal(c);
	p2p_table_put(&e->tasks, task->handle);
}

static void end_slices(struct p2p_task *task, uint64_t n)
{
	/* acq_rel: the last one sees what all others did before they counted */
	if (atomic_fetch_sub_explicit(&task->left, n, memory_order_acq_rel) == n)
		finish(task);
}

void p2p_task_done(struct p2p_task *task, uint64_t n, uint64_t bytes)
{
	struct p2p_engine *e = task->conn->engine;

	if (task->opcode == FLAGCX_SLICE_OP_READ)
		p2p_count(e, read_bytes, bytes);
	else
		p2p_count(e, write_bytes, bytes);
	atomic_fetch_add_explicit(&task->bytes_done, bytes, memory_order_relaxed);
	end_slices(task, n);
}

void p2p_task_fail(struct p2p_slice *slice, uint64_t n, int err)
{
	struct p2p_task *task = slice->task;
	uint64_t none = 0, first = (uint64_t)slice->entry << 32 | (uint32_t)-err;

	atomic_fetch_add_explicit(&task->failed, n, memory_order_relaxed);
	atomic_compare_exchange_strong_explicit(&task->first, &none, first, memory_order_relaxed,
						memory_order_relaxed);
	end_slices(task, n);
}

int p2p_task_wait(struct p2p_task *task, uint64_t deadline_ns)
{
	if (task->path && !p2p_task_ended(task))
		p2p_pool_help(task->path, task);
	while (!p2p_task_ended(task))
		if (p2p_futex_wait(&task->state, FLAGCX_P2P_XFER_PENDING, deadline_ns) &&
		    !p2p_task_ended(task))
			return -ETIMEDOUT;
	return 0;
}

/* The last user is gone. The flight has ended: it was one of them. */
void p2p_task_release(void *object)
{
	struct p2p_task *task = object;
	struct p2p_conn *c = task->conn;

	free(task);
	p2p_conn_put(c);
}
