// SPDX-License-Identifier: Apache-2.0
/*
 * Slices in line for a path. A conn's slices wait in its own two lines, reads
 * and writes; the lock that guards them is one of the engine's shards, by the
 * conn's handle. A path takes from its own conn only, as much as it has room
 * for, so every path of a peer draws on one line and a slow peer's line stops
 * nobody else's.
 */
#include "engine.h"
#include "net_adaptor.h"

static struct p2p_list *line(struct p2p_conn *c, int opcode)
{
	return &c->pend[opcode];
}

static void count(struct p2p_conn *c, int opcode, uint64_t n, bool add)
{
	if (add) {
		atomic_fetch_add_explicit(&c->pending[opcode], n, memory_order_seq_cst);
		atomic_fetch_add_explicit(&c->shard->waiting, n, memory_order_seq_cst);
	} else {
		atomic_fetch_sub_explicit(&c->pending[opcode], n, memory_order_relaxed);
		atomic_fetch_sub_explicit(&c->shard->waiting, n, memory_order_relaxed);
	}
}

int p2p_queue_push(struct p2p_task *task)
{
	struct p2p_conn *c = task->conn;
	int err;

	pthread_mutex_lock(&c->shard->lock);
	/* under the lock: a purge after this finds the task, one before is seen */
	err = atomic_load_explicit(&c->error, memory_order_relaxed);
	if (!err) {
		p2p_list_add_tail(line(c, task->opcode), &task->pend_link);
		count(c, task->opcode, task->slices, true);
	}
	pthread_mutex_unlock(&c->shard->lock);
	return err;
}

unsigned int p2p_queue_pull(struct p2p_conn *c, int opcode, struct p2p_slice **out,
			    unsigned int max, size_t max_bytes)
{
	struct p2p_list *head = line(c, opcode);
	unsigned int n = 0;
	size_t bytes = 0;

	pthread_mutex_lock(&c->shard->lock);
	while (n < max && bytes < max_bytes && !p2p_list_empty(head)) {
		struct p2p_task *task = p2p_list_entry(head->next, struct p2p_task, pend_link);

		while (n < max && bytes < max_bytes && task->next < task->slices) {
			struct p2p_slice *s = &task->slice[task->next];

			/* one slice may exceed the room, so that a large one is not stuck */
			if (n && bytes + s->length > max_bytes)
				goto full;
			bytes += s->length;
			out[n++] = s;
			task->next++;
		}
		if (task->next == task->slices)
			p2p_list_del(&task->pend_link);
	}
full:
	if (n)
		count(c, opcode, n, false);
	pthread_mutex_unlock(&c->shard->lock);
	return n;
}

/* Take a task out of line; the first of its slices that were in it, and how many. */
static struct p2p_slice *take_out(struct p2p_task *task, uint64_t *n)
{
	struct p2p_slice *first;

	*n = task->slices - task->next;
	if (!*n)
		return NULL;
	first = &task->slice[task->next];
	task->next = task->slices;
	p2p_list_del(&task->pend_link);
	count(task->conn, task->opcode, *n, false);
	return first;
}

void p2p_queue_cancel(struct p2p_task *task, int err)
{
	struct p2p_shard *shard = task->conn->shard;
	struct p2p_slice *first = NULL;
	uint64_t n;

	pthread_mutex_lock(&shard->lock);
	/* an ended task has no slices any more, and none in line */
	if (!p2p_list_empty(&task->pend_link))
		first = take_out(task, &n);
	pthread_mutex_unlock(&shard->lock);
	if (first)
		p2p_task_fail(first, n, err);
}

void p2p_queue_purge(struct p2p_conn *c, int err)
{
	for (int opcode = 0; opcode < 2; opcode++) {
		for (;;) {
			struct p2p_slice *first = NULL;
			uint64_t n = 0;

			pthread_mutex_lock(&c->shard->lock);
			if (!p2p_list_empty(line(c, opcode)))
				first = take_out(p2p_list_entry(line(c, opcode)->next,
								struct p2p_task, pend_link),
						 &n);
			pthread_mutex_unlock(&c->shard->lock);
			if (!first)
				break;
			p2p_task_fail(first, n, err);
		}
	}
}
