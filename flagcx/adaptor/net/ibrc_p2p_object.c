// SPDX-License-Identifier: Apache-2.0
/*
 * flagcxNetIbP2p: the RDMA transport behind the table that callers of the
 * collective library know (flagcx_net_adaptor.h).
 *
 *   device  a port that an engine would use; its engine is made with the first
 *           comm or listener and goes with the last
 *   comm    a connection of that engine
 *   slice   a transfer of one entry that nobody collects: its end marks the slice
 *
 * Lock: devices_lock guards the list of devices and their engines' users.
 */
#include "ibrc_p2p.h"

#include "flagcx_net_adaptor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HANDLE_MAGIC "phx-ibp2p "

struct user { /* of an engine */
	FlagcxP2pEngine *engine;
	unsigned int users; /* devices_lock */
};

struct device {
	char name[64];
	char hca[80];
	int port;
	uint64_t speed;
	uint32_t max_msg;
	struct user *now;   /* who comes gets this one; devices_lock */
	bool listening;     /* devices_lock */
};

struct comm {
	struct user *user;
	struct device *device;
	FlagcxP2pConn *conn; /* NULL: a listener */
	volatile int depth;
};

struct request {
	FlagcxP2pConn *conn;
	uint64_t id;
	size_t size;
};

static struct device devices[IB_RAILS_MAX];
static int device_count;
static bool looked;
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;

static flagcxResult_t result(int rc)
{
	switch (rc) {
	case 0:
		return flagcxSuccess;
	case -EINVAL:
	case -ENOENT:
	case -EFAULT:
		return flagcxInvalidArgument;
	case -ENOMEM:
	case -ENODEV:
	case -EMFILE:
		return flagcxSystemError;
	default:
		return flagcxRemoteError;
	}
}

/* --------------------------------------------------------------------- devices */

static int make_engine(const char *hca, FlagcxP2pEngine **engine)
{
	FlagcxP2pEngineOptions o = {
		.size = sizeof(o),
		.transport = "ibrc",
		.device = p2p_device_default(),
		.private_notifs = 1,
		.hca = hca,
	};

	return flagcxP2pEngineCreateWith(&o, engine);
}

/* What an engine would use. */
static int look(void)
{
	FlagcxP2pEngine *handle;
	struct p2p_engine *e;
	struct p2p_net *net;
	int rc = make_engine(NULL, &handle);

	if (rc)
		return rc;
	e = p2p_engine_get(handle);
	net = e->net[p2p_net_ibrc.slot];
	for (unsigned int i = 0; i < net->rails; i++) {
		struct device *d = &devices[i];
		const struct ib_rail *r = &net->rail[i];

		memcpy(d->name, r->name, sizeof(d->name));
		snprintf(d->hca, sizeof(d->hca), "=%s:%u", r->name, r->port);
		d->port = r->port;
		d->speed = r->speed;
		d->max_msg = r->max_msg;
	}
	device_count = (int)net->rails;
	p2p_engine_put(e);
	flagcxP2pEngineDestroy(handle);
	return 0;
}

static flagcxResult_t ad_init(void)
{
	int rc = 0;

	pthread_mutex_lock(&devices_lock);
	if (!looked)
		rc = look();
	looked |= !rc;
	pthread_mutex_unlock(&devices_lock);
	return result(rc);
}

static flagcxResult_t ad_devices(int *ndev)
{
	if (!ndev)
		return flagcxInvalidArgument;
	pthread_mutex_lock(&devices_lock);
	*ndev = device_count;
	pthread_mutex_unlock(&devices_lock);
	return flagcxSuccess;
}

static struct device *device_of(int dev)
{
	int n = 0;

	ad_devices(&n);
	return dev >= 0 && dev < n ? &devices[dev] : NULL;
}

static flagcxResult_t ad_properties(int dev, flagcxNetProperties_t *props)
{
	const struct device *d = device_of(dev);

	if (!d || !props)
		return flagcxInvalidArgument;
	*props = (flagcxNetProperties_t){
		.name = d->name,
		.speed = d->speed,
		.port = d->port,
		.maxMsg = (int)P2P_MIN(d->max_msg, (uint32_t)INT32_MAX),
	};
	return flagcxSuccess;
}

static flagcxResult_t ad_from_name(char *name, int *dev)
{
	int n = 0;

	if (!name || !dev)
		return flagcxInvalidArgument;
	ad_devices(&n);
	for (int i = 0; i < n; i++)
		if (!strcmp(devices[i].name, name)) {
			*dev = i;
			return flagcxSuccess;
		}
	return flagcxInvalidArgument;
}

/* The device's engine with one more user. */
static int take_engine(struct device *d, struct user **out)
{
	struct user *u;
	int rc = 0;

	pthread_mutex_lock(&devices_lock);
	u = d->now;
	if (!u) {
		u = calloc(1, sizeof(*u));
		rc = u ? make_engine(d->hca, &u->engine) : -ENOMEM;
		if (rc) {
			free(u);
			u = NULL;
		}
		d->now = u;
	}
	if (u)
		u->users++;
	pthread_mutex_unlock(&devices_lock);
	*out = u;
	return rc;
}

static void give_engine(struct device *d, struct user *u)
{
	bool last;

	pthread_mutex_lock(&devices_lock);
	last = --u->users == 0;
	if (last && d->now == u)
		d->now = NULL;
	pthread_mutex_unlock(&devices_lock);
	if (!last)
		return;
	flagcxP2pEngineDestroy(u->engine);
	free(u);
}

/* ----------------------------------------------------------------------- comms */

static struct comm *comm_new(struct device *d, struct user *u, FlagcxP2pConn *conn)
{
	struct comm *c = calloc(1, sizeof(*c));

	if (c) {
		c->user = u;
		c->device = d;
		c->conn = conn;
	}
	return c;
}

/* In a handle: the magic and "ip:port", NUL at the end. */
static int write_handle(FlagcxP2pEngine *engine, char *handle)
{
	char *text = NULL;
	int rc = flagcxP2pEngineGetMetadata(engine, &text);

	if (rc)
		return rc;
	text[strcspn(text, "?")] = '\0';
	memset(handle, 0, FLAGCX_NET_HANDLE_MAXSIZE);
	snprintf(handle, FLAGCX_NET_HANDLE_MAXSIZE, HANDLE_MAGIC "%s", text);
	free(text);
	return 0;
}

static flagcxResult_t ad_listen(int dev, void *handle, void **listen_comm)
{
	struct device *d = device_of(dev);
	struct comm *c = NULL;
	struct user *u;
	bool busy;
	int rc;

	if (!d || !handle || !listen_comm)
		return flagcxInvalidArgument;
	pthread_mutex_lock(&devices_lock);
	busy = d->listening;
	d->listening = true;
	pthread_mutex_unlock(&devices_lock);
	if (busy)
		return flagcxInvalidUsage;
	rc = take_engine(d, &u);
	if (rc)
		goto err_free;
	rc = write_handle(u->engine, handle);
	c = rc ? NULL : comm_new(d, u, NULL);
	if (c) {
		*listen_comm = c;
		return flagcxSuccess;
	}
	rc = rc ? rc : -ENOMEM;
	give_engine(d, u);
err_free:
	pthread_mutex_lock(&devices_lock);
	d->listening = false;
	pthread_mutex_unlock(&devices_lock);
	return result(rc);
}

static flagcxResult_t ad_connect(int dev, void *handle, void **send_comm)
{
	struct device *d = device_of(dev);
	char host[FLAGCX_NET_HANDLE_MAXSIZE];
	size_t magic = strlen(HANDLE_MAGIC);
	FlagcxP2pConn *conn;
	struct comm *c;
	struct user *u;
	int port, rc;

	if (!d || !handle || !send_comm || memcmp(handle, HANDLE_MAGIC, magic) ||
	    !memchr(handle, '\0', FLAGCX_NET_HANDLE_MAXSIZE) ||
	    p2p_session_parse((const char *)handle + magic, host, sizeof(host), &port, -1))
		return flagcxInvalidArgument;
	rc = take_engine(d, &u);
	if (rc)
		return result(rc);
	conn = flagcxP2pEngineConnect(u->engine, host, -1, port, false);
	c = conn ? comm_new(d, u, conn) : NULL;
	if (c) {
		*send_comm = c;
		return flagcxSuccess;
	}
	rc = conn ? -ENOMEM : -EHOSTUNREACH;
	flagcxP2pEngineConnDestroy(conn);
	give_engine(d, u);
	return result(rc);
}

static flagcxResult_t ad_accept(void *listen_comm, void **recv_comm)
{
	struct comm *l = listen_comm, *c;
	FlagcxP2pConn *conn;
	char ip[64];
	int device;

	if (!l || l->conn || !recv_comm)
		return flagcxInvalidArgument;
	conn = flagcxP2pEngineAccept(l->user->engine, ip, sizeof(ip), &device);
	if (!conn)
		return flagcxSystemError;
	c = comm_new(l->device, l->user, conn);
	if (!c) {
		flagcxP2pEngineConnDestroy(conn);
		return flagcxSystemError;
	}
	pthread_mutex_lock(&devices_lock);
	l->user->users++;
	pthread_mutex_unlock(&devices_lock);
	*recv_comm = c;
	return flagcxSuccess;
}

static flagcxResult_t ad_close(void *comm)
{
	struct comm *c = comm;

	if (!c || !c->conn)
		return flagcxInvalidArgument;
	flagcxP2pEngineConnDestroy(c->conn);
	give_engine(c->device, c->user);
	free(c);
	return flagcxSuccess;
}

static flagcxResult_t ad_close_listen(void *listen_comm)
{
	struct comm *c = listen_comm;

	if (!c || c->conn)
		return flagcxInvalidArgument;
	/* its engine takes nobody any more: the next listener gets another */
	flagcxP2pEngineStopAccept(c->user->engine);
	pthread_mutex_lock(&devices_lock);
	if (c->device->now == c->user)
		c->device->now = NULL;
	c->device->listening = false;
	pthread_mutex_unlock(&devices_lock);
	give_engine(c->device, c->user);
	free(c);
	return flagcxSuccess;
}

/* --------------------------------------------------------------- registrations */

static flagcxResult_t ad_reg(void *comm, void *data, size_t size, int type, int flags,
			     void **mhandle)
{
	struct comm *c = comm;
	struct flagcxP2pMrHandle *h;
	struct p2p_engine *e;
	struct p2p_mr *mr;
	int rc;

	if (!c || !mhandle)
		return flagcxInvalidArgument;
	h = calloc(1, sizeof(*h));
	if (!h)
		return flagcxSystemError;
	rc = flagcxP2pEngineReg(c->user->engine, (uintptr_t)data, size, &h->id);
	if (rc) {
		free(h);
		return result(rc);
	}
	e = p2p_engine_get(c->user->engine);
	mr = p2p_mr_pin_id(&e->mrs, h->id);
	h->baseVa = mr->base;
	h->size = mr->size;
	h->lkey = h->rkey = mr->rkey;
	p2p_mr_unpin(mr);
	p2p_engine_put(e);
	*mhandle = h;
	return flagcxSuccess;
}

static flagcxResult_t ad_reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset,
				    int fd, int flags, void **mhandle)
{
	return ad_reg(comm, data, size, type, flags, mhandle);
}

static flagcxResult_t ad_dereg(void *comm, void *mhandle)
{
	struct flagcxP2pMrHandle *h = mhandle;
	struct comm *c = comm;

	if (!c || !h)
		return flagcxInvalidArgument;
	flagcxP2pEngineMrDestroy(c->user->engine, h->id);
	free(h);
	return flagcxSuccess;
}

/* ---------------------------------------------------------------------- slices */

static void slice_ended(void *arg, int err)
{
	struct FlagcxSlice *s = arg;

	/* the mark comes last: the slice may be freed then */
	__atomic_fetch_sub((int *)s->qpDepth, 1, __ATOMIC_RELEASE);
	if (err)
		flagcxP2pSliceMarkFailed(s);
	else
		flagcxP2pSliceMarkSuccess(s);
}

/* What of a batch has been queued. */
struct queued {
	uint64_t slices, bytes;
	bool device; /* some of it is an accelerator's */
};

/* The registration of that key around the local range: its id, or false. */
static bool mine(struct p2p_conn *c, const struct FlagcxSlice *s, FlagcxP2pMr *id, bool *device)
{
	struct p2p_mr *mr = p2p_mr_pin_range_key(&c->engine->mrs, s->srcVa, s->length, s->lkey);

	if (!mr)
		return false;
	*id = mr->id;
	*device = mr->device >= 0;
	p2p_mr_unpin(mr);
	return true;
}

/* Queue one, and add it to what is; one that cannot be has ended. */
static void slice_start(struct p2p_conn *c, int opcode, struct FlagcxSlice *s, struct queued *q)
{
	uint64_t length = s->length, va = s->srcVa, id;
	FlagcxP2pRdmaDesc desc;
	FlagcxP2pMr mr;
	bool device;
	struct p2p_xfer x = {
		.opcode = opcode,
		.policy = FLAGCX_P2P_POLICY_NIXL,
		.n = 1,
		.mr = &mr,
		.local_va = &va,
		.size64 = &length,
		.desc = &desc,
		.ended = slice_ended,
		.arg = s,
	};
	int rc = s->opcode == opcode && length && mine(c, s, &mr, &device) ? 0 : -EINVAL;

	rc = rc ? rc : p2p_conn_desc_key(c, s->dstVa, length, s->rkey, &desc);
	rc = rc ? rc : p2p_xfer_start(c, &x, &id);
	if (rc) {
		slice_ended(s, rc);
		return;
	}
	q->slices++;
	q->bytes += length;
	q->device |= device;
}

static flagcxResult_t batch(void *comm, int opcode, int count, struct FlagcxSlice **slices)
{
	struct comm *m = comm;
	struct queued q = { 0 };
	struct p2p_conn *c;

	if (!m || !m->conn || count < 0 || (count && !slices))
		return flagcxInvalidArgument;
	c = p2p_conn_get(m->conn);
	if (!c)
		return flagcxInvalidArgument;
	for (int i = 0; i < count; i++) {
		slices[i]->qpDepth = &m->depth;
		__atomic_fetch_add((int *)&m->depth, 1, __ATOMIC_RELAXED);
		slice_start(c, opcode, slices[i], &q);
	}
	if (q.slices)
		p2p_pool_kick(p2p_pool_choose(c),
			      p2p_xfer_small(c, q.slices, q.bytes, !q.device));
	p2p_conn_put(c);
	return flagcxSuccess;
}

flagcxResult_t flagcxP2pIputBatch(void *sendComm, int count, struct FlagcxSlice **slices)
{
	return batch(sendComm, FLAGCX_SLICE_OP_WRITE, count, slices);
}

flagcxResult_t flagcxP2pIgetBatch(void *sendComm, int count, struct FlagcxSlice **slices)
{
	return batch(sendComm, FLAGCX_SLICE_OP_READ, count, slices);
}

/* ----------------------------------------------------------------- one by one */

static flagcxResult_t one(struct comm *m, int opcode, uint64_t local_off, uint64_t remote_off,
			  size_t size, const struct flagcxP2pMrHandle *local,
			  const struct flagcxP2pMrHandle *remote, void **request)
{
	FlagcxP2pRdmaDesc desc;
	struct p2p_conn *c;
	struct request *r;
	void *data;
	int rc;

	if (!m || !m->conn || !local || !remote || !request)
		return flagcxInvalidArgument;
	c = p2p_conn_get(m->conn);
	if (!c)
		return flagcxInvalidArgument;
	r = calloc(1, sizeof(*r));
	rc = r ? p2p_conn_desc_key(c, remote->baseVa + remote_off, size, remote->rkey, &desc) :
		 -ENOMEM;
	p2p_conn_put(c);
	data = (void *)(uintptr_t)(local->baseVa + local_off);
	if (!rc)
		rc = opcode == FLAGCX_SLICE_OP_WRITE ?
			     flagcxP2pEngineWrite(m->conn, local->id, data, size, desc, &r->id) :
			     flagcxP2pEngineRead(m->conn, local->id, data, size, desc, &r->id);
	if (rc) {
		free(r);
		return result(rc);
	}
	r->conn = m->conn;
	r->size = size;
	*request = r;
	return flagcxSuccess;
}

static flagcxResult_t ad_iput(void *comm, uint64_t src_off, uint64_t dst_off, size_t size,
			      int src_rank, int dst_rank, void **src, void **dst, void **request)
{
	return one(comm, FLAGCX_SLICE_OP_WRITE, src_off, dst_off, size,
		   (const struct flagcxP2pMrHandle *)src, (const struct flagcxP2pMrHandle *)dst,
		   request);
}

static flagcxResult_t ad_iget(void *comm, uint64_t src_off, uint64_t dst_off, size_t size,
			      int src_rank, int dst_rank, void **src, void **dst, void **request)
{
	/* from src, the peer's, to dst, ours */
	return one(comm, FLAGCX_SLICE_OP_READ, dst_off, src_off, size,
		   (const struct flagcxP2pMrHandle *)dst, (const struct flagcxP2pMrHandle *)src,
		   request);
}

static flagcxResult_t ad_test(void *request, int *done, int *sizes)
{
	FlagcxP2pXferInfo info = { .size = sizeof(info) };
	struct request *r = request;
	int rc;

	if (!r || !done)
		return flagcxInvalidArgument;
	*done = 0;
	rc = flagcxP2pEngineXferQuery(r->conn, r->id, &info);
	if (!rc && info.state == FLAGCX_P2P_XFER_PENDING)
		return flagcxSuccess;
	rc = rc ? rc : flagcxP2pEngineXferWait(r->conn, r->id, 0);
	*done = 1;
	if (sizes)
		*sizes = (int)r->size;
	free(r);
	return rc ? flagcxRemoteError : flagcxSuccess;
}

static flagcxResult_t ad_test_batch(void **requests, int count, int *flags, int *done_count)
{
	flagcxResult_t all = flagcxSuccess;
	int n = 0;

	if (count < 0 || !done_count || (count && (!requests || !flags)))
		return flagcxInvalidArgument;
	for (int i = 0; i < count; i++) {
		flagcxResult_t rc = flagcxSuccess;

		flags[i] = !requests[i];
		if (requests[i])
			rc = ad_test(requests[i], &flags[i], NULL);
		if (flags[i])
			requests[i] = NULL;
		n += flags[i];
		all = rc ? rc : all;
	}
	*done_count = n;
	return all;
}

/* ------------------------------------------------------------ what is not here */

static flagcxResult_t no_send(void *comm, void *data, size_t size, int tag, void *mhandle,
			      void *phandle, void **request)
{
	return flagcxNotSupported;
}

static flagcxResult_t no_recv(void *comm, int n, void **data, size_t *sizes, int *tags,
			      void **mhandles, void **phandles, void **request)
{
	return flagcxNotSupported;
}

static flagcxResult_t no_flush(void *comm, int n, void **data, int *sizes, void **mhandles,
			       void **request)
{
	return flagcxNotSupported;
}

static flagcxResult_t no_signal(void *comm, uint64_t src_off, uint64_t dst_off, size_t size,
				int src_rank, int dst_rank, void **src, void **dst,
				uint64_t signal_off, void **signal, uint64_t value, void **request)
{
	return flagcxNotSupported;
}

struct flagcxNetAdaptor flagcxNetIbP2p = {
	.name = "IB_P2P",
	.init = ad_init,
	.devices = ad_devices,
	.getProperties = ad_properties,
	.listen = ad_listen,
	.connect = ad_connect,
	.accept = ad_accept,
	.closeSend = ad_close,
	.closeRecv = ad_close,
	.closeListen = ad_close_listen,
	.regMr = ad_reg,
	.regMrDmaBuf = ad_reg_dmabuf,
	.deregMr = ad_dereg,
	.isend = no_send,
	.irecv = no_recv,
	.iflush = no_flush,
	.test = ad_test,
	.iput = ad_iput,
	.iget = ad_iget,
	.iputSignal = no_signal,
	.getDevFromName = ad_from_name,
	.iputBatch = flagcxP2pIputBatch,
	.testBatch = ad_test_batch,
	.igetBatch = flagcxP2pIgetBatch,
};
