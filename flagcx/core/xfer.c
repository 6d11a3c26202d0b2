// SPDX-License-Identifier: Apache-2.0
/*
 * Transfers, from a caller's arrays to slices in line and back to an outcome.
 *
 * Everything that can be wrong on this side is found before anything starts;
 * what the peer refuses fails the transfer.
 */
#include "engine.h"
#include "net_adaptor.h"

#include <stdlib.h>
#include <string.h>

static uint64_t size_at(const struct p2p_xfer *x, uint64_t i)
{
	return x->size ? x->size[i] : x->size64[i];
}

static uint64_t local_at(const struct p2p_xfer *x, uint64_t i)
{
	return x->local ? (uint64_t)(uintptr_t)x->local[i] : x->local_va[i];
}

static int check_entry(struct p2p_conn *c, const struct p2p_xfer *x, uint64_t i)
{
	uint64_t size = size_at(x, i), va = local_at(x, i);
	const FlagcxP2pRdmaDesc *d = &x->desc[i];

	if (size > UINT64_MAX - va || size > UINT64_MAX - d->addr)
		return p2p_fail(-EINVAL, "entry %llu: the range wraps", (unsigned long long)i);
	if (d->idx && d->idx != c->peer_incarnation)
		return p2p_fail(-ESTALE,
				"entry %llu: the descriptor is of another life of the peer",
				(unsigned long long)i);
	return 0;
}

static bool covers(const struct p2p_mr *mr, uint64_t va, uint64_t size)
{
	return va >= mr->base && size <= mr->size && va - mr->base <= mr->size - size;
}

/* The registration of an entry, pinned once in the task. */
static int find_mr(struct p2p_task *task, const struct p2p_xfer *x, uint64_t i,
		   struct p2p_mr **out)
{
	struct p2p_mr_table *t = &task->conn->engine->mrs;
	uint64_t va = local_at(x, i), size = size_at(x, i);
	struct p2p_mr *mr;

	/* entries of one call are mostly of few registrations: look at the latest ones first */
	for (uint32_t k = task->mrs, seen = 0; k > 0 && seen < 4; k--, seen++) {
		mr = task->mr[k - 1];
		if (x->mr ? mr->id == x->mr[i] : covers(mr, va, size)) {
			*out = mr;
			return 0;
		}
	}
	mr = x->mr ? p2p_mr_pin_id(t, x->mr[i]) : p2p_mr_pin_range(t, va, size);
	if (!mr)
		return p2p_fail(-ENOENT, "entry %llu: local memory is not registered",
				(unsigned long long)i);
	if ((task->mrs & (task->mrs - 1)) == 0) { /* a power of two is full */
		void *bigger = realloc(task->mr, P2P_MAX(task->mrs * 2, 1u) * sizeof(*task->mr));

		if (!bigger) {
			p2p_mr_unpin(mr);
			return -ENOMEM;
		}
		task->mr = bigger;
	}
	task->mr[task->mrs++] = mr;
	*out = mr;
	return 0;
}

/* Room for n more slices; nothing points into the array yet. */
static int reserve(struct p2p_task *task, uint64_t *room, uint64_t n)
{
	uint64_t want = P2P_MAX(task->slices + n, *room + *room / 2);
	void *bigger;

	if (task->slices + n <= *room)
		return 0;
	if (want > SIZE_MAX / sizeof(*task->slice))
		return -ENOMEM;
	bigger = realloc(task->slice, want * sizeof(*task->slice));
	if (!bigger)
		return p2p_fail(-ENOMEM, "%llu slices", (unsigned long long)want);
	task->slice = bigger;
	*room = want;
	return 0;
}

static void fill(struct p2p_task *task, const struct p2p_cut *cut, const struct p2p_xfer *x,
		 uint64_t i, struct p2p_mr *mr)
{
	uint64_t left = size_at(x, i), off = 0;
	const FlagcxP2pRdmaDesc *d = &x->desc[i];

	while (left) {
		size_t n = p2p_cut_next(cut, left);

		task->slice[task->slices++] = (struct p2p_slice){
			.local_va = local_at(x, i) + off,
			.remote_va = d->addr + off,
			.task = task,
			.mr = mr,
			.length = (uint32_t)n,
			.rkey = d->rkey,
			.rid = d->rid,
			.entry = (uint32_t)i,
			.device = (int16_t)mr->device,
			.opcode = (uint8_t)x->opcode,
		};
		off += n;
		left -= n;
	}
}

static int build_entry(struct p2p_task *task, const struct p2p_cut *cut, const struct p2p_xfer *x,
		       uint64_t i, uint64_t *room)
{
	uint64_t size = size_at(x, i);
	struct p2p_mr *mr = NULL;
	int rc = check_entry(task->conn, x, i);

	if (rc || !size)
		return rc;
	rc = find_mr(task, x, i, &mr);
	if (rc)
		return rc;
	if (!covers(mr, local_at(x, i), size))
		return p2p_fail(-EFAULT, "entry %llu: outside its registration",
				(unsigned long long)i);
	rc = reserve(task, room, p2p_cut_count(cut, size));
	if (rc)
		return rc;
	fill(task, cut, x, i, mr);
	task->bytes += size;
	return 0;
}

/* Slices of every entry, in one pass over the caller's arrays; none: nothing is to be moved. */
static int build(struct p2p_task *task, const struct p2p_xfer *x)
{
	struct p2p_conn *c = task->conn;
	const FlagcxP2pGlobalConfig *g = &c->engine->config.g;
	uint64_t room = 0;
	struct p2p_cut cut;
	int rc = p2p_cut_init(&cut, x->policy, g->sliceSize, g->fragmentLimit, c->slice_limit);

	if (rc)
		return p2p_fail(rc, "policy %d", x->policy);
	rc = reserve(task, &room, x->n); /* mostly exactly so many */
	for (uint64_t i = 0; i < x->n && !rc; i++)
		rc = build_entry(task, &cut, x, i, &room);
	return rc;
}

static void unbuild(struct p2p_task *task)
{
	for (uint32_t i = 0; i < task->mrs; i++)
		p2p_mr_unpin(task->mr[i]);
	free(task->mr);
	free(task->slice);
	free(task);
}

bool p2p_xfer_small(const struct p2p_conn *c, uint64_t slices, uint64_t bytes, bool host)
{
	return host && slices <= c->engine->config.g.maxWrPerPost && bytes <= c->slice_limit;
}

static bool is_small(const struct p2p_task *task)
{
	bool host = true;

	for (uint32_t i = 0; i < task->mrs; i++)
		host &= task->mr[i]->device < 0;
	return p2p_xfer_small(task->conn, task->slices, task->bytes, host);
}

/* In line. False: the conn broke just now, and the task has ended as those before it. */
static bool queue(struct p2p_task *task, uint64_t slices)
{
	int rc = p2p_queue_push(task);

	if (rc)
		p2p_task_fail(task->slice, slices, rc);
	return !rc;
}

/* Enter the task as collectable, flying; queue it. */
static int launch(struct p2p_task *task, uint64_t *id)
{
	struct p2p_conn *c = task->conn;
	struct p2p_engine *e = c->engine;
	struct p2p_path *path = p2p_pool_choose(c);
	uint64_t slices = task->slices;
	bool small = is_small(task);
	int rc = p2p_table_add(&e->tasks, task, &task->handle);

	if (rc)
		return rc;
	*id = task->handle;
	task->path = small ? path : NULL;
	p2p_conn_ref(c); /* the task's, until it is released */
	atomic_store(&task->left, slices);
	p2p_table_ref(&e->tasks, task->handle); /* the flight's */
	atomic_fetch_add(&c->flights, 1);
	p2p_count(e, in_flight, 1);
	if (task->ended) {
		queue(task, slices);
		p2p_table_retire(&e->tasks, *id);
		p2p_table_put(&e->tasks, *id); /* there is no caller to collect it */
		return 0;
	}
	pthread_mutex_lock(&c->tasks_lock);
	p2p_list_add_tail(&c->tasks, &task->conn_link);
	pthread_mutex_unlock(&c->tasks_lock);
	if (queue(task, slices))
		p2p_pool_kick(path, small);
	return 0;
}

int p2p_xfer_start(struct p2p_conn *c, const struct p2p_xfer *x, uint64_t *id)
{
	struct p2p_task *task;
	int rc = p2p_conn_check(c);

	if (rc)
		return p2p_fail(rc, "connection to %s:%d has failed", c->peer_ip, c->peer_port);
	task = calloc(1, sizeof(*task));
	if (!task)
		return -ENOMEM;
	task->conn = c;
	task->opcode = (uint8_t)x->opcode;
	task->start_ns = p2p_now_ns();
	task->ended = x->ended;
	task->arg = x->arg;
	p2p_list_init(&task->conn_link);
	p2p_list_init(&task->pend_link);
	rc = build(task, x);
	if (!rc && !task->slices) {
		unbuild(task);
		*id = 0;
		return 0;
	}
	rc = rc ? rc : launch(task, id);
	if (rc)
		unbuild(task);
	return rc;
}

/* ------------------------------------------------------------------ outcomes */

/* The task of an id, with one more user; NULL. */
static struct p2p_task *find(struct p2p_conn *c, uint64_t id)
{
	struct p2p_task *task = p2p_table_get(&c->engine->tasks, id);

	if (task && task->conn != c) {
		p2p_table_put(&c->engine->tasks, id);
		task = NULL;
	}
	return task;
}

/* Take an ended task's id back; false: another thread did. */
static bool collect(struct p2p_task *task)
{
	struct p2p_conn *c = task->conn;
	struct p2p_table *t = &c->engine->tasks;

	if (!p2p_table_retire(t, task->handle))
		return false;
	pthread_mutex_lock(&c->tasks_lock);
	p2p_list_del(&task->conn_link);
	pthread_mutex_unlock(&c->tasks_lock);
	p2p_table_put(t, task->handle); /* the caller's */
	return true;
}

int p2p_xfer_finish(struct p2p_conn *c, uint64_t id, uint64_t deadline_ns)
{
	struct p2p_table *t = &c->engine->tasks;
	struct p2p_task *task;
	int rc;

	if (!id)
		return 0;
	task = find(c, id);
	if (!task)
		return p2p_fail(-ENOENT, "transfer %#llx: unknown or collected",
				(unsigned long long)id);
	rc = p2p_task_wait(task, deadline_ns);
	if (rc) {
		p2p_fail(rc, "transfer %#llx has not ended in time", (unsigned long long)id);
	} else {
		rc = p2p_task_error(task);
		if (rc)
			p2p_fail(rc, "transfer with %s:%d: entry %llu of %llu bytes", c->peer_ip,
				 c->peer_port, (unsigned long long)(task->first >> 32),
				 (unsigned long long)task->bytes);
		collect(task);
	}
	p2p_table_put(t, id);
	return rc;
}

void p2p_xfer_forget(struct p2p_conn *c)
{
	for (;;) {
		struct p2p_task *task = NULL;

		pthread_mutex_lock(&c->tasks_lock);
		if (!p2p_list_empty(&c->tasks)) {
			task = p2p_list_entry(c->tasks.next, struct p2p_task, conn_link);
			/* still in the list, so its caller's use is there to be copied */
			p2p_table_ref(&c->engine->tasks, task->handle);
			p2p_list_del(&task->conn_link);
		}
		pthread_mutex_unlock(&c->tasks_lock);
		if (!task)
			return;
		collect(task);
		p2p_table_put(&c->engine->tasks, task->handle);
	}
}

bool flagcxP2pEngineXferStatus(FlagcxP2pConn *conn, uint64_t transferId)
{
	struct p2p_conn *c = p2p_conn_get(conn);
	struct p2p_task *task = c ? find(c, transferId) : NULL;
	bool ended = true;

	if (task) {
		int none = 0, err;

		ended = p2p_task_ended(task);
		err = ended ? p2p_task_error(task) : 0;
		if (err && err != -ECANCELED) {
			/* the caller cannot see it here, so it must at the next call */
			atomic_compare_exchange_strong(&c->failed, &none, err);
			p2p_warn("transfer with %s:%d failed: %s", c->peer_ip, c->peer_port,
				 p2p_errno_name(err));
		}
		if (ended)
			collect(task);
		p2p_table_put(&c->engine->tasks, transferId);
	}
	if (c)
		p2p_conn_put(c);
	return ended;
}

static void describe(struct p2p_task *task, FlagcxP2pXferInfo *info)
{
	uint64_t first = atomic_load(&task->first);

	info->state = (int32_t)atomic_load_explicit(&task->state, memory_order_acquire);
	info->quiet = info->state != FLAGCX_P2P_XFER_PENDING;
	info->bytes_total = task->bytes;
	info->bytes_done = atomic_load(&task->bytes_done);
	info->first_error = -(int32_t)(uint32_t)first;
	info->first_failed = first ? first >> 32 : UINT64_MAX;
	info->slices = task->slices;
	info->failed_slices = atomic_load(&task->failed);
}

int flagcxP2pEngineXferQuery(FlagcxP2pConn *conn, uint64_t transferId, FlagcxP2pXferInfo *info)
{
	FlagcxP2pXferInfo full = { 0 };
	struct p2p_conn *c;
	struct p2p_task *task;

	if (!info || info->size < offsetof(FlagcxP2pXferInfo, bytes_total))
		return p2p_fail(-EINVAL, "transfer query: size field");
	full.size = P2P_MIN(info->size, (uint32_t)sizeof(full));
	full.state = FLAGCX_P2P_XFER_DONE;
	full.quiet = 1;
	full.first_failed = UINT64_MAX;
	c = p2p_conn_get(conn);
	task = c && transferId ? find(c, transferId) : NULL;
	if (task) {
		describe(task, &full);
		p2p_table_put(&c->engine->tasks, transferId);
	}
	if (c)
		p2p_conn_put(c);
	if (!task && (transferId || !c))
		return p2p_fail(-ENOENT, "transfer %#llx: unknown or collected",
				(unsigned long long)transferId);
	memcpy(info, &full, full.size);
	return 0;
}

int flagcxP2pEngineXferWait(FlagcxP2pConn *conn, uint64_t transferId, int timeout_ms)
{
	struct p2p_conn *c = p2p_conn_get(conn);
	uint64_t deadline = 0;
	int rc;

	if (!c)
		return p2p_fail(-ENOENT, "transfer wait: no such connection");
	if (timeout_ms >= 0)
		deadline = p2p_now_ns() + (uint64_t)timeout_ms * P2P_NS_PER_MS;
	rc = p2p_xfer_finish(c, transferId, deadline);
	p2p_conn_put(c);
	return rc;
}

int flagcxP2pEngineXferCancel(FlagcxP2pConn *conn, uint64_t transferId)
{
	struct p2p_conn *c = p2p_conn_get(conn);
	struct p2p_task *task = c ? find(c, transferId) : NULL;
	int rc = 0;

	if (task) {
		p2p_queue_cancel(task, -ECANCELED);
		if (!p2p_task_ended(task))
			p2p_pool_cancel(task);
		p2p_task_wait(task, 0);
		p2p_table_put(&c->engine->tasks, transferId);
	} else if (!c || transferId) {
		rc = p2p_fail(-ENOENT, "transfer cancel: unknown or collected");
	}
	if (c)
		p2p_conn_put(c);
	return rc;
}

/* --------------------------------------------------------------- entry points */

static int start(FlagcxP2pConn *conn, struct p2p_xfer *x, uint64_t *id)
{
	struct p2p_conn *c;
	int rc;

	if (!id || !x->mr || !x->local || !x->size || !x->desc || (int64_t)x->n <= 0)
		return p2p_fail(-EINVAL, "transfer: NULL, or no entries");
	c = p2p_conn_get(conn);
	if (!c)
		return p2p_fail(-ENOTCONN, "transfer: no such connection");
	rc = p2p_xfer_start(c, x, id);
	p2p_conn_put(c);
	return rc;
}

static int start_and_wait(FlagcxP2pConn *conn, struct p2p_xfer *x)
{
	struct p2p_conn *c;
	uint64_t id;
	int rc;

	if (x->n == 0)
		return 0;
	if (!x->mr || !x->local || !x->size || !x->desc || (int64_t)x->n < 0)
		return p2p_fail(-EINVAL, "transfer: NULL, or a negative count");
	c = p2p_conn_get(conn);
	if (!c)
		return p2p_fail(-ENOTCONN, "transfer: no such connection");
	rc = p2p_xfer_start(c, x, &id);
	rc = rc ? rc : p2p_xfer_finish(c, id, 0);
	p2p_conn_put(c);
	return rc;
}

#define XFER(op, pol, count, mrs, addrs, sizes_, descs_)                                      \
	(&(struct p2p_xfer){ .opcode = FLAGCX_SLICE_OP_##op, .policy = (pol),                  \
			     .n = (uint64_t)(int64_t)(count), .mr = (mrs), .local = (addrs),   \
			     .size = (sizes_), .desc = (descs_) })

int flagcxP2pEngineRead(FlagcxP2pConn *conn, FlagcxP2pMr mr, const void *data, size_t size,
			FlagcxP2pRdmaDesc desc, uint64_t *transferId)
{
	void *dst = (void *)data; /* the public signature says const */

	return start(conn, XFER(READ, FLAGCX_P2P_POLICY_NIXL, 1, &mr, &dst, &size, &desc),
		     transferId);
}

int flagcxP2pEngineWrite(FlagcxP2pConn *conn, FlagcxP2pMr mr, const void *data, size_t size,
			 FlagcxP2pRdmaDesc desc, uint64_t *transferId)
{
	void *src = (void *)data;

	return start(conn, XFER(WRITE, FLAGCX_P2P_POLICY_NIXL, 1, &mr, &src, &size, &desc),
		     transferId);
}

int flagcxP2pEngineReadVector(FlagcxP2pConn *conn, const FlagcxP2pMr *mrIds, void *const *dst,
			      const size_t *sizes, const FlagcxP2pRdmaDesc *descs, int numIovs,
			      uint64_t *transferId, char *const *ipcBufs)
{
	return start(conn, XFER(READ, FLAGCX_P2P_POLICY_NIXL, numIovs, mrIds, dst, sizes, descs),
		     transferId);
}

int flagcxP2pEngineWriteVector(FlagcxP2pConn *conn, const FlagcxP2pMr *mrIds, void *const *src,
			       const size_t *sizes, const FlagcxP2pRdmaDesc *descs, int numIovs,
			       uint64_t *transferId, char *const *ipcBufs)
{
	return start(conn, XFER(WRITE, FLAGCX_P2P_POLICY_NIXL, numIovs, mrIds, src, sizes, descs),
		     transferId);
}

int flagcxP2pEngineWriteVectorPolicy(FlagcxP2pConn *conn, const FlagcxP2pMr *mrIds,
				     void *const *src, const size_t *sizes,
				     const FlagcxP2pRdmaDesc *descs, int numIovs, int policyKind,
				     uint64_t *transferId)
{
	return start(conn, XFER(WRITE, policyKind, numIovs, mrIds, src, sizes, descs), transferId);
}

int flagcxP2pEngineWriteVectorSync(FlagcxP2pConn *conn, const FlagcxP2pMr *mrIds,
				   void *const *src, const size_t *sizes,
				   const FlagcxP2pRdmaDesc *descs, int numIovs)
{
	return start_and_wait(conn, XFER(WRITE, FLAGCX_P2P_POLICY_NIXL, numIovs, mrIds, src, sizes,
					 descs));
}

int flagcxP2pEngineReadVectorSync(FlagcxP2pConn *conn, const FlagcxP2pMr *mrIds,
				  void *const *dst, const size_t *sizes,
				  const FlagcxP2pRdmaDesc *descs, int numIovs)
{
	return start_and_wait(conn, XFER(READ, FLAGCX_P2P_POLICY_NIXL, numIovs, mrIds, dst, sizes,
					 descs));
}

static int not_supported(const char *what)
{
	return p2p_fail(-EOPNOTSUPP, "%s: two-sided transfers are not part of this engine", what);
}

int flagcxP2pEngineSend(FlagcxP2pConn *conn, FlagcxP2pMr mr, const void *data, size_t size,
			uint64_t *transferId)
{
	return not_supported("send");
}

int flagcxP2pEngineSendVector(FlagcxP2pConn *conn, const FlagcxP2pMr *mrIds,
			      const void *const *src, const size_t *sizes, int numIovs,
			      uint64_t *transferId)
{
	return not_supported("send");
}

int flagcxP2pEngineRecv(FlagcxP2pConn *conn, FlagcxP2pMr mr, void *data, size_t maxSize)
{
	return not_supported("recv");
}
