/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transfer: the slices of one call and how many are still out.
 *
 * Its users (table.h): the caller, until it has collected the outcome; the
 * flight, from submission until the last slice has ended; each look-up.
 * Slices and pins go when the flight ends, the outcome when it is collected.
 */
#ifndef P2P_TASK_H
#define P2P_TASK_H

#include "common.h"
#include "region.h"
#include "slice.h"

struct p2p_conn;

struct p2p_task {
	struct p2p_conn *conn;
	uint64_t handle;
	struct p2p_list conn_link; /* conn->tasks; conn->tasks_lock */
	struct p2p_list pend_link; /* conn->pend[opcode]; shard lock */
	uint64_t next;             /* first slice not yet pulled; shard lock */
	uint8_t opcode;            /* enum FlagcxSliceOp */
	struct p2p_slice *slice;
	uint64_t slices;
	uint64_t bytes;
	struct p2p_mr **mr;        /* pinned for the flight */
	uint32_t mrs;
	uint64_t start_ns;
	struct p2p_path *path;     /* a small one was started on it; NULL */
	void (*ended)(void *arg, int err); /* told its end; NULL: its caller collects it */
	void *arg;
	_Atomic uint64_t left;     /* slices that have not ended */
	_Atomic uint64_t failed;
	_Atomic uint64_t bytes_done;
	_Atomic uint64_t first;    /* first failure: entry << 32 | errno; 0: none */
	_Atomic uint32_t state;    /* enum FlagcxP2pXferState; a futex */
};

/* n slices of the task ended well, bytes in all. */
void p2p_task_done(struct p2p_task *task, uint64_t n, uint64_t bytes);
/* n slices from the given one on (same task) ended with err (negative). */
void p2p_task_fail(struct p2p_slice *slice, uint64_t n, int err);

/* -errno of the first failure, 0 when there is none. */
int p2p_task_error(const struct p2p_task *task);
bool p2p_task_ended(const struct p2p_task *task);
/* Until it has ended or the deadline (0: none): 0 or -ETIMEDOUT. */
int p2p_task_wait(struct p2p_task *task, uint64_t deadline_ns);
/* Table callback. */
void p2p_task_release(void *object);

#endif /* P2P_TASK_H */
