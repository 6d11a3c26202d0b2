// SPDX-License-Identifier: Apache-2.0
/*
 * The engine for callers that know sessions ("host:port") and addresses: a
 * cache of connections that replaces what has died, and transfers that find
 * registrations and descriptors themselves.
 *
 * Lock: sessions_lock guards the cache. A thread that connects marks its entry
 * busy and lets go of the lock; others that want the same session wait.
 */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

#define DELAY_FIRST_MS 500
#define DELAY_MAX_MS 4000

/* The next that came before the server was started, the engine's from now on; a user more. */
static struct p2p_conn *adopt(struct p2p_engine *e)
{
	struct p2p_conn *c = NULL;

	pthread_mutex_lock(&e->accept_lock);
	if (!p2p_list_empty(&e->accepted)) {
		c = p2p_list_entry(e->accepted.next, struct p2p_conn, accept_link);
		p2p_list_del(&c->accept_link);
		p2p_conn_ref(c);
		atomic_store(&c->owned, true);
	}
	pthread_mutex_unlock(&e->accept_lock);
	return c;
}

int flagcxP2pEngineStartRpcServer(FlagcxP2pEngine *engine)
{
	struct p2p_engine *e = p2p_engine_get(engine);
	struct p2p_conn *c;
	int rc = 0;

	if (!e)
		return p2p_fail(-EINVAL, "RPC server: no such engine");
	pthread_mutex_lock(&e->accept_lock);
	if (e->accept_stopped)
		rc = -ESHUTDOWN;
	else
		e->rpc_server = true;
	pthread_mutex_unlock(&e->accept_lock);
	while (!rc && (c = adopt(e)) != NULL) {
		/* the control thread may be done with one that has broken */
		if (atomic_load(&c->error) && atomic_exchange(&c->owned, false))
			p2p_conn_destroy(c);
		p2p_conn_put(c);
	}
	p2p_engine_put(e);
	return rc ? p2p_fail(rc, "RPC server: accepting was stopped") : 0;
}

/* ------------------------------------------------------------------ sessions */

static struct p2p_session_cache *find_session(struct p2p_engine *e, const char *name)
{
	struct p2p_session_cache *s;

	for (struct p2p_list *i = e->sessions.next; i != &e->sessions; i = i->next) {
		s = p2p_list_entry(i, struct p2p_session_cache, link);
		if (!strcmp(s->name, name))
			return s;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->name = strdup(name);
	if (!s->name) {
		free(s);
		return NULL;
	}
	p2p_list_add_tail(&e->sessions, &s->link);
	return s;
}

void p2p_rpc_forget(struct p2p_engine *e)
{
	while (!p2p_list_empty(&e->sessions)) {
		struct p2p_session_cache *s =
			p2p_list_entry(e->sessions.next, struct p2p_session_cache, link);

		p2p_list_del(&s->link);
		free(s->name);
		free(s);
	}
}

/*
 * The session's conn if it can be used, with one more user. One that broke, or
 * failed before its caller's eyes, makes room for a new one; its destruction
 * waits for workers, so not with the lock.
 */
static struct p2p_conn *usable(struct p2p_engine *e, struct p2p_session_cache *s)
{
	struct p2p_conn *c = s->conn ? p2p_conn_get(p2p_handle_pointer(s->conn)) : NULL;

	if (!c || !p2p_conn_check(c))
		return c;
	s->conn = 0;
	s->busy = true;
	pthread_mutex_unlock(&e->sessions_lock);
	if (atomic_exchange(&c->owned, false))
		p2p_conn_destroy(c);
	p2p_conn_put(c);
	pthread_mutex_lock(&e->sessions_lock);
	s->busy = false;
	pthread_cond_broadcast(&e->sessions_cond);
	return NULL;
}

static int connect_session(struct p2p_engine *e, const char *host, int port,
			   struct p2p_session_cache *s, struct p2p_conn **out)
{
	struct p2p_conn *c;
	int rc;

	s->busy = true;
	pthread_mutex_unlock(&e->sessions_lock);
	rc = p2p_connect(e, host, port, false, &c);
	pthread_mutex_lock(&e->sessions_lock);
	s->busy = false;
	pthread_cond_broadcast(&e->sessions_cond);
	if (rc) {
		s->delay_ms = s->delay_ms ? P2P_MIN(s->delay_ms * 2, DELAY_MAX_MS) :
					    DELAY_FIRST_MS;
		s->not_before = p2p_now_ns() + s->delay_ms * P2P_NS_PER_MS;
		return rc;
	}
	s->delay_ms = 0;
	s->not_before = 0;
	s->conn = c->handle;
	p2p_conn_ref(c); /* the caller's, beside the owner's that is the engine's now */
	atomic_store(&c->owned, true);
	*out = c;
	return 0;
}

/* The session's conn with one more user. */
static int get_conn(struct p2p_engine *e, const char *session, struct p2p_conn **out)
{
	struct p2p_session_cache *s;
	char host[256];
	int port, rc;

	if (p2p_session_parse(session, host, sizeof(host), &port, -1))
		return p2p_fail(-EINVAL, "session %s is not host:port", session);
	pthread_mutex_lock(&e->sessions_lock);
	s = find_session(e, session);
	while (s && s->busy && !atomic_load(&e->destroying))
		pthread_cond_wait(&e->sessions_cond, &e->sessions_lock);
	if (!s)
		rc = -ENOMEM;
	else if (atomic_load(&e->destroying))
		rc = p2p_fail(-ESHUTDOWN, "session %s: the engine is being destroyed", session);
	else if ((*out = usable(e, s)) != NULL)
		rc = 0;
	else if (p2p_now_ns() < s->not_before)
		rc = p2p_fail(-EHOSTUNREACH, "session %s: not reached just now, tried again later",
			      session);
	else
		rc = connect_session(e, host, port, s, out);
	pthread_mutex_unlock(&e->sessions_lock);
	return rc;
}

FlagcxP2pConn *flagcxP2pEngineGetConn(FlagcxP2pEngine *engine, const char *session)
{
	struct p2p_engine *e = session ? p2p_engine_get(engine) : NULL;
	FlagcxP2pConn *conn = NULL;
	struct p2p_conn *c;
	int rc;

	if (!e) {
		errno = -p2p_fail(-EINVAL, "session: no such engine, or NULL");
		return NULL;
	}
	rc = get_conn(e, session, &c);
	if (!rc) {
		conn = p2p_handle_pointer(c->handle);
		p2p_conn_put(c);
	}
	p2p_engine_put(e);
	if (rc)
		errno = -rc;
	return conn;
}

/* ------------------------------------------------------------------ facade */

void *flagcxP2pRpcEngineCreate(void)
{
	return flagcxP2pEngineCreate();
}

void flagcxP2pRpcEngineDestroy(void *engine)
{
	flagcxP2pEngineDestroy(engine);
}

int flagcxP2pRpcGetPort(void *engine)
{
	return flagcxP2pEngineGetRpcPort(engine);
}

int flagcxP2pRpcStartServer(void *engine)
{
	return flagcxP2pEngineStartRpcServer(engine);
}

int flagcxP2pRpcRegister(void *engine, uint64_t addr, uint64_t size, uint64_t *mrIdOut)
{
	return flagcxP2pEngineReg(engine, (uintptr_t)addr, (size_t)size, mrIdOut);
}

int flagcxP2pRpcRegisterHost(void *engine, uint64_t addr, uint64_t size, uint64_t *mrIdOut)
{
	return flagcxP2pRpcRegister(engine, addr, size, mrIdOut);
}

void *flagcxP2pRpcGetConn(void *engine, const char *session)
{
	return flagcxP2pEngineGetConn(engine, session);
}

/* ------------------------------------------------------- ranges by address */

static int start_ranges(struct p2p_conn *c, struct p2p_xfer *x, const uint64_t *remote,
			uint64_t *id)
{
	FlagcxP2pRdmaDesc *desc = malloc(x->n * sizeof(*desc));
	int rc = p2p_conn_check(c);

	if (!desc)
		return p2p_fail(-ENOMEM, "%llu ranges", (unsigned long long)x->n);
	if (rc)
		p2p_fail(rc, "connection to %s:%d has failed", c->peer_ip, c->peer_port);
	for (uint64_t i = 0; !rc && i < x->n; i++) {
		if (!x->size64[i]) {
			memset(&desc[i], 0, sizeof(desc[i]));
			continue;
		}
		/* the next range often lies in the registration of the last one */
		rc = p2p_conn_desc(c, remote[i], x->size64[i], &desc[i]);
		if (rc)
			p2p_fail(rc, "%s:%d has no registration with %#llx, %llu bytes",
				 c->peer_ip, c->peer_port, (unsigned long long)remote[i],
				 (unsigned long long)x->size64[i]);
	}
	x->desc = desc;
	rc = rc ? rc : p2p_xfer_start(c, x, id);
	free(desc);
	return rc;
}

static int start_batch(struct p2p_conn *c, int count, const uint64_t *local,
		       const uint64_t *remote, const uint64_t *sizes, bool write, uint64_t *id)
{
	struct p2p_xfer x = {
		.opcode = write ? FLAGCX_SLICE_OP_WRITE : FLAGCX_SLICE_OP_READ,
		.policy = FLAGCX_P2P_POLICY_CONNECTOR,
		.n = (uint64_t)count,
		.local_va = local,
		.size64 = sizes,
	};

	return start_ranges(c, &x, remote, id);
}

static int batch(void *conn, int count, const uint64_t *local, const uint64_t *remote,
		 const uint64_t *sizes, bool write, uint64_t *id)
{
	struct p2p_conn *c;
	uint64_t own;
	int rc;

	if (count < 0 || (count && (!local || !remote || !sizes)))
		return p2p_fail(-EINVAL, "batch: NULL, or a negative count");
	c = p2p_conn_get(conn);
	if (!c)
		return p2p_fail(-ENOTCONN, "batch: no such connection");
	own = 0;
	rc = count ? start_batch(c, count, local, remote, sizes, write, &own) : 0;
	if (id)
		*id = own;
	else if (!rc)
		rc = p2p_xfer_finish(c, own, 0);
	p2p_conn_put(c);
	return rc;
}

int flagcxP2pRpcBatchWriteSync(void *conn, int count, const uint64_t *srcVa,
			       const uint64_t *dstVa, const uint64_t *sizes)
{
	return batch(conn, count, srcVa, dstVa, sizes, true, NULL);
}

int flagcxP2pRpcBatchReadSync(void *conn, int count, const uint64_t *localVa,
			      const uint64_t *remoteVa, const uint64_t *sizes)
{
	return batch(conn, count, localVa, remoteVa, sizes, false, NULL);
}

int flagcxP2pRpcBatchStart(void *conn, int count, const uint64_t *localVa,
			   const uint64_t *remoteVa, const uint64_t *sizes, int write,
			   uint64_t *transferId)
{
	if (!transferId)
		return p2p_fail(-EINVAL, "batch: NULL");
	return batch(conn, count, localVa, remoteVa, sizes, write != 0, transferId);
}
