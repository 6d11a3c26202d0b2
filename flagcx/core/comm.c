// SPDX-License-Identifier: Apache-2.0
/*
 * Communicators over engines. The id names a meeting point: a private engine
 * of the process that made it, and a thread that tells every rank how to reach
 * all others once they have come. A communicator has an engine of its own;
 * windows are described to the other ranks by notifications.
 *
 * Lock: comm->lock guards windows and what has come from other ranks. It is
 * not held while waiting or sending.
 */
#include "auth.h"
#include "engine.h"
#include "flagcx.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEET_MS 300000u /* how long the ranks may keep one another waiting */
#define LATE_MS 2000u /* for what was said before a connection ended */
#define LOOK_MS 1
#define RANKS_MAX 65536
#define SESSION 96

struct meeting_id {
	uint64_t magic;
	uint64_t cookie;
	char session[SESSION];
};

#define MEETING_MAGIC 0x4d43584850ull

_Static_assert(sizeof(struct meeting_id) <= sizeof(flagcxUniqueId), "fits in an id");

/* What a rank sends to the meeting point. */
struct join_msg {
	uint64_t cookie;
	int32_t rank, nranks;
	char session[SESSION];
};

/* What a rank tells the others of a window. */
struct window_msg {
	int32_t rank;
	uint32_t index;
	uint64_t base, size;
	FlagcxP2pRdmaDesc desc;
};

struct window {
	FlagcxP2pMr mr;
	uint64_t base, size;        /* here */
	struct window_msg *remote;  /* by rank */
	int known;                  /* ranks that have told */
};

struct flagcxComm {
	uint64_t handle;
	FlagcxP2pEngine *engine;
	int nranks, rank;
	char (*session)[SESSION];
	pthread_mutex_t lock;
	struct window *window;      /* lock */
	uint32_t windows;           /* lock: made or told of */
	uint32_t registered;        /* lock: made here */
};

static void comm_release(void *object);
static struct p2p_table comms = P2P_TABLE_INITIALIZER(comm_release);

static flagcxResult_t result_of(int rc)
{
	switch (rc) {
	case 0:
		return flagcxSuccess;
	case -EINVAL:
		return flagcxInvalidArgument;
	case -ENOENT:
	case -EFAULT:
	case -ESTALE:
	case -EBUSY:
		return flagcxInvalidUsage;
	case -ECONNRESET:
	case -ENOTCONN:
	case -ETIMEDOUT:
	case -EHOSTUNREACH:
	case -EPIPE:
	case -EACCES:
		return flagcxRemoteError;
	case -EOPNOTSUPP:
		return flagcxNotSupported;
	default:
		return flagcxSystemError;
	}
}

static uint64_t meet_deadline(void)
{
	return p2p_now_ns() + MEET_MS * P2P_NS_PER_MS;
}

static int private_engine(FlagcxP2pEngine **engine)
{
	FlagcxP2pEngineOptions o = { .size = sizeof(o), .private_notifs = 1 };
	int rc = flagcxP2pEngineCreateWith(&o, engine);

	if (!rc) {
		rc = flagcxP2pEngineStartRpcServer(*engine);
		if (rc)
			flagcxP2pEngineDestroy(*engine);
	}
	return rc;
}

static int session_of(FlagcxP2pEngine *engine, char out[SESSION])
{
	char *text, *mark;
	int rc = flagcxP2pEngineGetMetadata(engine, &text);

	if (rc)
		return rc;
	mark = strchr(text, '?');
	*mark = '\0';
	snprintf(out, SESSION, "%s", text);
	free(text);
	return 0;
}

/* ---------------------------------------------------------- the meeting point */

struct meeting {
	FlagcxP2pEngine *engine;
	uint64_t cookie;
	int nranks, come;
	char (*session)[SESSION];
	FlagcxP2pConn **conn;
};

/* A rank has come; false: what it says makes no sense, or it came before. */
static bool meeting_join(struct meeting *m, const FlagcxP2pNotif *n)
{
	struct join_msg j;

	if (n->msg_len != sizeof(j))
		return false;
	memcpy(&j, n->msg, sizeof(j));
	if (j.cookie != m->cookie || j.nranks < 1 || j.nranks > RANKS_MAX || j.rank < 0 ||
	    j.rank >= j.nranks || (m->nranks && m->nranks != j.nranks))
		return false;
	if (!m->nranks) {
		m->session = calloc((size_t)j.nranks, sizeof(*m->session));
		m->conn = calloc((size_t)j.nranks, sizeof(*m->conn));
		if (!m->session || !m->conn)
			return false;
		m->nranks = j.nranks;
	}
	if (m->conn[j.rank])
		return false;
	j.session[SESSION - 1] = '\0';
	memcpy(m->session[j.rank], j.session, SESSION);
	m->conn[j.rank] = n->conn;
	m->come++;
	return true;
}

static void *meeting_main(void *arg)
{
	struct meeting *m = arg;
	uint64_t deadline = meet_deadline();
	FlagcxP2pNotif n;

	while ((!m->nranks || m->come < m->nranks) && p2p_now_ns() < deadline) {
		if (flagcxP2pEngineGetNotifsV(m->engine, &n, 1) <= 0) {
			poll(NULL, 0, LOOK_MS);
			continue;
		}
		if (!meeting_join(m, &n))
			p2p_warn("a rank that nobody expects came to the meeting point");
		flagcxP2pNotifFree(&n);
	}
	/* a rank that has died meanwhile will be missed by the others at its first use */
	for (int i = 0; m->nranks && m->come == m->nranks && i < m->nranks; i++)
		if (flagcxP2pEngineSendNotifV(m->conn[i], "table", 5, m->session,
					      (size_t)m->nranks * SESSION))
			p2p_warn("rank %d left the meeting point", i);
	flagcxP2pEngineDestroy(m->engine); /* what was sent goes out first */
	free(m->session);
	free(m->conn);
	free(m);
	return NULL;
}

flagcxResult_t flagcxGetUniqueId(flagcxUniqueId *id)
{
	struct meeting_id mid = { .magic = MEETING_MAGIC, .cookie = p2p_random_u64() };
	struct meeting *m;
	pthread_t thread;
	int rc;

	if (!id)
		return result_of(p2p_fail(-EINVAL, "unique id: NULL"));
	m = calloc(1, sizeof(*m));
	if (!m)
		return result_of(p2p_fail(-ENOMEM, "unique id"));
	m->cookie = mid.cookie;
	rc = private_engine(&m->engine);
	if (rc)
		goto err_free;
	rc = session_of(m->engine, mid.session);
	rc = rc ? rc : p2p_thread_start(&thread, "flagcx-meet", meeting_main, m);
	if (rc)
		goto err_engine;
	pthread_detach(thread);
	memset(id, 0, sizeof(*id));
	memcpy(id, &mid, sizeof(mid));
	return flagcxSuccess;

err_engine:
	flagcxP2pEngineDestroy(m->engine);
err_free:
	free(m);
	return result_of(rc);
}

/* -------------------------------------------------------------- communicators */

static void comm_release(void *object)
{
	struct flagcxComm *c = object;

	flagcxP2pEngineDestroy(c->engine);
	for (uint32_t i = 0; i < c->windows; i++)
		free(c->window[i].remote);
	free(c->window);
	free(c->session);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static struct flagcxComm *comm_get(flagcxComm_t comm)
{
	return p2p_process_forked() ? NULL : p2p_table_get(&comms, p2p_pointer_handle(comm));
}

static void comm_put(struct flagcxComm *c)
{
	p2p_table_put(&comms, c->handle);
}

/* Room for window index, and its remotes; lock held. */
static int window_at(struct flagcxComm *c, uint32_t index)
{
	while (c->windows <= index) {
		struct window *bigger = realloc(c->window, (c->windows + 1) * sizeof(*bigger));
		struct window_msg *remote = calloc((size_t)c->nranks, sizeof(*remote));

		if (bigger)
			c->window = bigger;
		if (!bigger || !remote) {
			free(remote);
			return -ENOMEM;
		}
		c->window[c->windows++] = (struct window){ .remote = remote };
	}
	return 0;
}

static void take_window(struct flagcxComm *c, const FlagcxP2pNotif *n)
{
	struct window_msg w;

	if (n->msg_len != sizeof(w))
		return;
	memcpy(&w, n->msg, sizeof(w));
	if (w.rank < 0 || w.rank >= c->nranks || w.index > 65535)
		return;
	pthread_mutex_lock(&c->lock);
	if (!window_at(c, w.index) && !c->window[w.index].remote[w.rank].size) {
		c->window[w.index].remote[w.rank] = w;
		c->window[w.index].known++;
	}
	pthread_mutex_unlock(&c->lock);
}

/* Take what other ranks have told; the table of sessions into *table. */
static void take_all(struct flagcxComm *c, FlagcxP2pNotif *table)
{
	FlagcxP2pNotif n;

	while (flagcxP2pEngineGetNotifsV(c->engine, &n, 1) > 0) {
		if (table && !table->name && !strcmp(n.name, "table")) {
			*table = n;
			continue;
		}
		if (!strcmp(n.name, "window"))
			take_window(c, &n);
		flagcxP2pNotifFree(&n);
	}
}

/*
 * A connection counts as ended when the first of its streams ends; what the
 * peer said before may still be on its way through the session.
 */
static int await_table(struct flagcxComm *c, FlagcxP2pConn *conn)
{
	uint64_t deadline = meet_deadline();
	FlagcxP2pNotif table = { 0 };
	bool ended = false;

	for (;;) {
		uint64_t now = p2p_now_ns();

		take_all(c, &table);
		if (table.name)
			break;
		if (now > deadline)
			return ended ? p2p_fail(-ECONNRESET, "the meeting point has gone") :
				       p2p_fail(-ETIMEDOUT, "not all %d ranks are here", c->nranks);
		if (!ended && flagcxP2pEngineConnStatus(conn)) {
			ended = true;
			deadline = now + LATE_MS * P2P_NS_PER_MS;
		}
		poll(NULL, 0, LOOK_MS);
	}
	if (table.msg_len == (size_t)c->nranks * SESSION)
		c->session = calloc((size_t)c->nranks, sizeof(*c->session));
	if (c->session)
		memcpy(c->session, table.msg, table.msg_len);
	flagcxP2pNotifFree(&table);
	return c->session ? 0 : p2p_fail(-EPROTO, "the meeting point's table");
}

static int comm_join(struct flagcxComm *c, const struct meeting_id *mid)
{
	struct join_msg j = { .cookie = mid->cookie, .rank = c->rank, .nranks = c->nranks };
	FlagcxP2pConn *conn;
	int rc = session_of(c->engine, j.session);

	if (rc)
		return rc;
	conn = flagcxP2pEngineGetConn(c->engine, mid->session);
	if (!conn)
		return -errno;
	rc = flagcxP2pEngineSendNotifV(conn, "join", 4, &j, sizeof(j));
	return rc ? rc : await_table(c, conn);
}

flagcxResult_t flagcxCommInitRank(flagcxComm_t *comm, int nranks, flagcxUniqueId *id, int rank)
{
	struct meeting_id mid;
	struct flagcxComm *c;
	int rc;

	if (!comm || !id || nranks < 1 || nranks > RANKS_MAX || rank < 0 || rank >= nranks)
		return result_of(p2p_fail(-EINVAL, "communicator: rank %d of %d", rank, nranks));
	memcpy(&mid, id, sizeof(mid));
	mid.session[SESSION - 1] = '\0';
	if (mid.magic != MEETING_MAGIC)
		return result_of(p2p_fail(-EINVAL, "communicator: not an id of this library"));
	c = calloc(1, sizeof(*c));
	if (!c)
		return result_of(p2p_fail(-ENOMEM, "communicator"));
	c->nranks = nranks;
	c->rank = rank;
	pthread_mutex_init(&c->lock, NULL);
	rc = private_engine(&c->engine);
	if (rc)
		goto err_free;
	rc = comm_join(c, &mid);
	rc = rc ? rc : p2p_table_add(&comms, c, &c->handle);
	if (rc)
		goto err_engine;
	*comm = p2p_handle_pointer(c->handle);
	return flagcxSuccess;

err_engine:
	flagcxP2pEngineDestroy(c->engine);
err_free:
	free(c->session);
	pthread_mutex_destroy(&c->lock);
	free(c);
	return result_of(rc);
}

flagcxResult_t flagcxCommDestroy(flagcxComm_t comm)
{
	struct flagcxComm *c = comm_get(comm);

	if (!c)
		return result_of(p2p_fail(-EINVAL, "no such communicator"));
	if (p2p_table_retire(&comms, c->handle))
		comm_put(c); /* the maker's */
	comm_put(c);
	return flagcxSuccess;
}

/* -------------------------------------------------------------------- windows */

static int window_make(struct flagcxComm *c, void *buf, size_t size, struct window_msg *w)
{
	FlagcxP2pMr mr;
	char desc[FLAGCX_P2P_DESC_SIZE];
	int rc = flagcxP2pEngineReg(c->engine, (uintptr_t)buf, size, &mr);

	if (rc)
		return rc;
	rc = flagcxP2pEnginePrepareDesc(c->engine, mr, buf, size, desc);
	if (rc)
		return rc;
	*w = (struct window_msg){ .rank = c->rank, .base = (uintptr_t)buf, .size = size };
	flagcxP2pDeserializeRdmaDesc(desc, &w->desc);
	pthread_mutex_lock(&c->lock);
	w->index = c->registered;
	rc = window_at(c, w->index);
	if (!rc) {
		struct window *win = &c->window[w->index];

		c->registered++;
		win->mr = mr;
		win->base = w->base;
		win->size = w->size;
		win->remote[c->rank] = *w;
		win->known++;
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

flagcxResult_t flagcxOneSideRegister(flagcxComm_t comm, void *buf, size_t size)
{
	struct flagcxComm *c = comm_get(comm);
	uint64_t deadline = meet_deadline();
	struct window_msg w;
	int rc;

	if (!c)
		return result_of(p2p_fail(-EINVAL, "no such communicator"));
	rc = window_make(c, buf, size, &w);
	for (int i = 0; !rc && i < c->nranks; i++) {
		FlagcxP2pConn *conn;

		if (i == c->rank)
			continue;
		conn = flagcxP2pEngineGetConn(c->engine, c->session[i]);
		rc = conn ? flagcxP2pEngineSendNotifV(conn, "window", 6, &w, sizeof(w)) : -errno;
	}
	while (!rc) {
		int known;

		take_all(c, NULL);
		pthread_mutex_lock(&c->lock);
		known = c->window[w.index].known;
		pthread_mutex_unlock(&c->lock);
		if (known == c->nranks)
			break;
		if (p2p_now_ns() > deadline)
			rc = p2p_fail(-ETIMEDOUT, "window %u: %d of %d ranks have registered it",
				      w.index, known, c->nranks);
		poll(NULL, 0, LOOK_MS);
	}
	comm_put(c);
	return result_of(rc);
}

/* ------------------------------------------------------------------ transfers */

struct move {
	const size_t *local_off, *remote_off, *size;
	const int *local_win, *remote_win;
	size_t count;
};

struct arrays {
	FlagcxP2pMr *mr;
	void **local;
	FlagcxP2pRdmaDesc *desc;
};

/* One entry; lock held. */
static int resolve(struct flagcxComm *c, int peer, const struct move *m, size_t i,
		   struct arrays *a)
{
	int lw = m->local_win[i], rw = m->remote_win[i];
	const struct window_msg *r;
	const struct window *l;

	if (lw < 0 || rw < 0 || (uint32_t)lw >= c->registered || (uint32_t)rw >= c->windows)
		return p2p_fail(-ENOENT, "entry %zu: no window %d or %d", i, lw, rw);
	l = &c->window[lw];
	r = &c->window[rw].remote[peer];
	if (!r->size)
		return p2p_fail(-ENOENT, "entry %zu: rank %d has no window %d", i, peer, rw);
	if (m->size[i] > l->size || m->local_off[i] > l->size - m->size[i] ||
	    m->size[i] > r->size || m->remote_off[i] > r->size - m->size[i])
		return p2p_fail(-EFAULT, "entry %zu: beyond its window", i);
	a->mr[i] = l->mr;
	a->local[i] = (void *)(uintptr_t)(l->base + m->local_off[i]);
	a->desc[i] = r->desc;
	a->desc[i].addr = r->base + m->remote_off[i];
	return 0;
}

static int move(struct flagcxComm *c, int peer, const struct move *m, int opcode)
{
	struct arrays a = { calloc(m->count, sizeof(*a.mr)), calloc(m->count, sizeof(*a.local)),
			    calloc(m->count, sizeof(*a.desc)) };
	struct p2p_xfer x = {
		.opcode = opcode,
		.policy = FLAGCX_P2P_POLICY_CONNECTOR,
		.n = m->count,
		.mr = a.mr,
		.local = a.local,
		.size = m->size,
		.desc = a.desc,
	};
	struct p2p_conn *conn = NULL;
	uint64_t id;
	int rc = a.mr && a.local && a.desc ? 0 : -ENOMEM;

	pthread_mutex_lock(&c->lock);
	for (size_t i = 0; !rc && i < m->count; i++)
		rc = resolve(c, peer, m, i, &a);
	pthread_mutex_unlock(&c->lock);
	if (!rc) {
		conn = p2p_conn_get(flagcxP2pEngineGetConn(c->engine, c->session[peer]));
		rc = conn ? p2p_xfer_start(conn, &x, &id) : -ECONNRESET;
	}
	rc = rc ? rc : p2p_xfer_finish(conn, id, 0);
	if (conn)
		p2p_conn_put(conn);
	free(a.mr);
	free(a.local);
	free(a.desc);
	return rc;
}

static flagcxResult_t transfer(flagcxComm_t comm, int peer, const struct move *m, int opcode)
{
	struct flagcxComm *c = comm_get(comm);
	int rc;

	if (!c)
		return result_of(p2p_fail(-EINVAL, "no such communicator"));
	if (peer < 0 || peer >= c->nranks)
		rc = p2p_fail(-EINVAL, "rank %d of %d", peer, c->nranks);
	else if (m->count && (!m->local_off || !m->remote_off || !m->size || !m->local_win ||
			      !m->remote_win))
		rc = p2p_fail(-EINVAL, "NULL array");
	else
		rc = m->count ? move(c, peer, m, opcode) : 0;
	comm_put(c);
	return result_of(rc);
}

flagcxResult_t flagcxPut(flagcxComm_t comm, int peer, size_t srcOffset, size_t dstOffset,
			 size_t size, int srcMrIdx, int dstMrIdx)
{
	struct move m = { &srcOffset, &dstOffset, &size, &srcMrIdx, &dstMrIdx, 1 };

	return transfer(comm, peer, &m, FLAGCX_SLICE_OP_WRITE);
}

flagcxResult_t flagcxGet(flagcxComm_t comm, int peer, size_t srcOffset, size_t dstOffset,
			 size_t size, int srcMrIdx, int dstMrIdx)
{
	/* the source is the peer's window here */
	struct move m = { &dstOffset, &srcOffset, &size, &dstMrIdx, &srcMrIdx, 1 };

	return transfer(comm, peer, &m, FLAGCX_SLICE_OP_READ);
}

flagcxResult_t flagcxBatchPut(flagcxComm_t comm, int peer, const size_t *srcOffsets,
			      const size_t *dstOffsets, const size_t *sizes, const int *srcMrIdxs,
			      const int *dstMrIdxs, size_t count)
{
	struct move m = { srcOffsets, dstOffsets, sizes, srcMrIdxs, dstMrIdxs, count };

	return transfer(comm, peer, &m, FLAGCX_SLICE_OP_WRITE);
}
