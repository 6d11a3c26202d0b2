// SPDX-License-Identifier: Apache-2.0
/* Connections as callers see them: connect, accept, close, ask. */
#include "net_adaptor.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

FlagcxP2pConn *flagcxP2pEngineConnect(FlagcxP2pEngine *engine, const char *ipAddr,
				      int remoteGpuIdx, int remotePort, bool sameProcess)
{
	struct p2p_engine *e;
	struct p2p_conn *c;
	FlagcxP2pConn *conn = NULL;
	int rc;

	if (!ipAddr || remotePort < 1 || remotePort > 65535) {
		errno = -p2p_fail(-EINVAL, "connect: address or port %d", remotePort);
		return NULL;
	}
	e = p2p_engine_get(engine);
	if (!e) {
		errno = -p2p_fail(p2p_process_forked() ? -ECHILD : -EINVAL,
				  "connect: no such engine");
		return NULL;
	}
	rc = p2p_connect(e, ipAddr, remotePort, false, &c);
	if (!rc)
		conn = p2p_handle_pointer(c->handle);
	p2p_engine_put(e);
	if (rc)
		errno = -rc;
	return conn;
}

/* The oldest, with one more user: destruction of the engine may take the owner's. */
static struct p2p_conn *next_accepted(struct p2p_engine *e)
{
	struct p2p_conn *c = NULL;

	if (!p2p_list_empty(&e->accepted)) {
		c = p2p_list_entry(e->accepted.next, struct p2p_conn, accept_link);
		p2p_list_del(&c->accept_link);
		p2p_conn_ref(c);
	}
	return c;
}

FlagcxP2pConn *flagcxP2pEngineAccept(FlagcxP2pEngine *engine, char *ipAddrBuf,
				     size_t ipAddrBufLen, int *remoteGpuIdx)
{
	struct p2p_engine *e = ipAddrBuf && ipAddrBufLen && remoteGpuIdx ?
				       p2p_engine_get(engine) :
				       NULL;
	struct p2p_conn *c = NULL;
	FlagcxP2pConn *conn = NULL;

	if (!e) {
		/* callers loop on this: do not let them burn a core */
		poll(NULL, 0, 1);
		errno = -p2p_fail(-EINVAL, "accept: no such engine, or NULL");
		return NULL;
	}
	pthread_mutex_lock(&e->accept_lock);
	while (!e->accept_stopped && !(c = next_accepted(e)))
		pthread_cond_wait(&e->accept_cond, &e->accept_lock);
	pthread_mutex_unlock(&e->accept_lock);
	if (c) {
		snprintf(ipAddrBuf, ipAddrBufLen, "%s", c->peer_ip);
		*remoteGpuIdx = c->peer_device;
		conn = p2p_handle_pointer(c->handle);
		p2p_conn_put(c);
	} else {
		errno = -p2p_fail(-ESHUTDOWN, "accept: stopped");
	}
	p2p_engine_put(e);
	return conn;
}

void flagcxP2pEngineConnDestroy(FlagcxP2pConn *conn)
{
	struct p2p_conn *c = p2p_conn_get(conn);

	if (!c)
		return;
	p2p_conn_destroy(c);
	p2p_conn_put(c);
}

bool flagcxP2pEngineConnIsLocal(FlagcxP2pConn *conn)
{
	struct p2p_conn *c = p2p_conn_get(conn);
	bool local = c && c->local;

	if (c)
		p2p_conn_put(c);
	return local;
}

int flagcxP2pEngineConnStatus(FlagcxP2pConn *conn)
{
	struct p2p_conn *c = p2p_conn_get(conn);
	int rc;

	if (!c)
		return p2p_fail(-ENOTCONN, "no such connection");
	rc = p2p_conn_check(c);
	if (rc)
		p2p_fail(rc, "connection to %s:%d", c->peer_ip, c->peer_port);
	p2p_conn_put(c);
	return rc;
}

int flagcxP2pEngineConnTransport(FlagcxP2pConn *conn, char *buf, size_t len)
{
	struct p2p_conn *c = buf && len ? p2p_conn_get(conn) : NULL;
	char text[160] = "";
	const char *other = "";

	if (!c)
		return p2p_fail(-ENOTCONN, "transport: no such connection, or no room");
	c->ops->describe(c, text, sizeof(text));
	for (int i = 0; i < P2P_NETS && c->engine->ops[i] != c->ops; i++)
		if (c->engine->ops[i])
			other = c->engine->ops[i]->name;
	snprintf(buf, len, "%s: %s%s%s%s", c->ops->name, text, *other ? " (the peer has no " : "",
		 other, *other ? ")" : "");
	p2p_conn_put(c);
	return 0;
}

int flagcxP2pEngineStartListener(FlagcxP2pConn *conn)
{
	return flagcxP2pEngineConnStatus(conn) ? -ENOTCONN : 0;
}
