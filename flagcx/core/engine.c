// SPDX-License-Identifier: Apache-2.0
/*
 * Engines: made, found, destroyed; their registrations and connections as
 * callers see them.
 *
 * Destruction: the handle is retired, so that no new call enters; everything
 * that may block is ended; then it waits for the calls inside to leave and for
 * the connections to be freed; only then do threads and memory go.
 */
#include "auth.h"
#include "net_adaptor.h"
#include "phoenix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void engine_released(void *object);

/* Names of the process's engines and connections. Nothing of an engine is in here. */
static struct p2p_table engines = P2P_TABLE_INITIALIZER(engine_released);
static struct p2p_table conns = P2P_TABLE_INITIALIZER(p2p_conn_release);

/* The engines in order of making, for GetNotifs. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct p2p_list engine_list = { &engine_list, &engine_list }; /* list_lock */

/* ------------------------------------------------------------------- handles */

static void engine_released(void *object)
{
	struct p2p_engine *e = object;

	atomic_store_explicit(&e->released, 1, memory_order_release);
	p2p_futex_wake_all(&e->released);
}

struct p2p_engine *p2p_engine_get(const FlagcxP2pEngine *handle)
{
	return p2p_process_forked() ? NULL :
				      p2p_table_get(&engines, p2p_pointer_handle(handle));
}

void p2p_engine_put(struct p2p_engine *e)
{
	p2p_table_put(&engines, e->handle);
}

struct p2p_conn *p2p_conn_get(const FlagcxP2pConn *handle)
{
	return p2p_process_forked() ? NULL : p2p_table_get(&conns, p2p_pointer_handle(handle));
}

void p2p_conn_put(struct p2p_conn *c)
{
	p2p_table_put(&conns, c->handle);
}

void p2p_conn_ref(struct p2p_conn *c)
{
	p2p_table_ref(&conns, c->handle);
}

int p2p_conn_enter(struct p2p_conn *c)
{
	return p2p_table_add(&conns, c, &c->handle);
}

bool p2p_conn_leave(struct p2p_conn *c)
{
	return p2p_table_retire(&conns, c->handle);
}

int p2p_engines(struct p2p_engine **out, int cap)
{
	int n = 0;

	if (p2p_process_forked())
		return 0;
	pthread_mutex_lock(&list_lock);
	for (struct p2p_list *i = engine_list.next; i != &engine_list && n < cap; i = i->next) {
		struct p2p_engine *e = p2p_list_entry(i, struct p2p_engine, link);

		if (p2p_table_get(&engines, e->handle))
			out[n++] = e;
	}
	pthread_mutex_unlock(&list_lock);
	return n;
}

/* -------------------------------------------------------------------- making */

static int read_options(struct p2p_engine *e, const FlagcxP2pEngineOptions *given)
{
	FlagcxP2pEngineOptions o = { .device = p2p_device_default() };

	e->config = *p2p_config_get();
	if (given && (given->size < sizeof(uint32_t) * 2 || given->size > 4096))
		return p2p_fail(-EINVAL, "engine options: size field");
	if (given)
		memcpy(&o, given, P2P_MIN(given->size, sizeof(o)));
	if (o.port < 0 || o.port > 65535)
		return p2p_fail(-EINVAL, "engine options: port %d", o.port);
	if (o.port)
		e->config.port = o.port;
	if (o.transport) {
		e->config.transport = p2p_config_transport(o.transport);
		if (e->config.transport < 0)
			return p2p_fail(-EINVAL, "engine options: transport %s", o.transport);
	}
	if ((o.interface && strlen(o.interface) >= sizeof(e->config.ifname)) ||
	    (o.secret && strlen(o.secret) >= sizeof(e->config.secret)) ||
	    (o.hca && strlen(o.hca) >= sizeof(e->config.hca)))
		return p2p_fail(-EINVAL, "engine options: interface, secret or hca too long");
	if (o.interface)
		strcpy(e->config.ifname, o.interface); /* lengths checked above */
	if (o.secret)
		strcpy(e->config.secret, o.secret);
	if (o.hca)
		strcpy(e->config.hca, o.hca);
	e->device = o.device;
	e->private_notifs = o.private_notifs != 0;
	return 0;
}

static int choose_address(struct p2p_engine *e)
{
	struct p2p_iface list[256];
	int n = p2p_iface_list(list, P2P_ARRAY_SIZE(list)), i;

	if (n < 0)
		return p2p_fail(n, "cannot list the network interfaces");
	i = p2p_iface_choose(list, n, e->config.ifname, e->config.family);
	if (i < 0)
		return p2p_fail(i, "no interface that is up fits FLAGCX_SOCKET_IFNAME=%s",
				e->config.ifname);
	snprintf(e->ip, sizeof(e->ip), "%s", list[i].ip);
	return 0;
}

static void init_lists(struct p2p_engine *e)
{
	p2p_list_init(&e->link);
	p2p_list_init(&e->conns);
	p2p_list_init(&e->all);
	p2p_list_init(&e->accepted);
	p2p_list_init(&e->sessions);
	p2p_list_init(&e->notes);
	pthread_mutex_init(&e->conns_lock, NULL);
	pthread_mutex_init(&e->accept_lock, NULL);
	pthread_cond_init(&e->accept_cond, NULL);
	pthread_mutex_init(&e->sessions_lock, NULL);
	pthread_cond_init(&e->sessions_cond, NULL);
	pthread_mutex_init(&e->notif_lock, NULL);
	e->shards = (unsigned int)e->config.g.shardCount;
	for (unsigned int i = 0; i < e->shards; i++)
		pthread_mutex_init(&e->shard[i].lock, NULL);
}

static void fini_lists(struct p2p_engine *e)
{
	while (!p2p_list_empty(&e->notes)) {
		struct p2p_note *n = p2p_list_entry(e->notes.next, struct p2p_note, link);

		p2p_list_del(&n->link);
		p2p_note_free(e, n);
	}
	for (unsigned int i = 0; i < e->shards; i++)
		pthread_mutex_destroy(&e->shard[i].lock);
	pthread_mutex_destroy(&e->notif_lock);
	pthread_cond_destroy(&e->sessions_cond);
	pthread_mutex_destroy(&e->sessions_lock);
	pthread_cond_destroy(&e->accept_cond);
	pthread_mutex_destroy(&e->accept_lock);
	pthread_mutex_destroy(&e->conns_lock);
}

static void let_go(void *arg, const struct p2p_region *r, struct p2p_mr *mr)
{
	p2p_net_dereg(arg, mr);
}

static void close_nets(struct p2p_engine *e)
{
	p2p_mr_each(&e->mrs, let_go, e);
	for (int i = 0; i < P2P_NETS; i++)
		if (e->ops[i])
			e->ops[i]->close(e->net[i]);
}

static int engine_start(struct p2p_engine *e)
{
	int rc = p2p_mr_table_init(&e->mrs);

	if (rc)
		return rc;
	rc = p2p_table_init(&e->tasks, p2p_task_release);
	if (rc)
		goto err_mrs;
	rc = p2p_net_open(e);
	if (rc)
		goto err_tasks;
	rc = p2p_pool_start(e);
	if (rc)
		goto err_nets;
	rc = p2p_table_add(&engines, e, &e->handle);
	if (rc)
		goto err_pool;
	/* last: from here on peers may come */
	rc = p2p_control_start(e);
	if (rc)
		goto err_handle;
	return 0;

err_handle:
	p2p_table_retire(&engines, e->handle);
	p2p_engine_put(e);
err_pool:
	p2p_pool_stop(e);
err_nets:
	close_nets(e);
err_tasks:
	p2p_table_destroy(&e->tasks);
err_mrs:
	p2p_mr_table_destroy(&e->mrs);
	return rc;
}

int flagcxP2pEngineCreateWith(const FlagcxP2pEngineOptions *options, FlagcxP2pEngine **engine)
{
	struct p2p_engine *e;
	int rc;

	if (!engine)
		return p2p_fail(-EINVAL, "engine: NULL");
	if (p2p_process_forked())
		return p2p_fail(-ECHILD, "engine: a forked child must exec first");
	e = calloc(1, sizeof(*e));
	if (!e)
		return p2p_fail(-ENOMEM, "engine");
	rc = read_options(e, options);
	rc = rc ? rc : choose_address(e);
	if (rc)
		goto err_free;
	e->incarnation = p2p_random_u64();
	init_lists(e);
	rc = engine_start(e);
	if (rc)
		goto err_lists;
	pthread_mutex_lock(&list_lock);
	p2p_list_add_tail(&engine_list, &e->link);
	pthread_mutex_unlock(&list_lock);
	p2p_info("engine at %s port %d, transport %s", e->ip, e->port, e->transport_why);
	*engine = p2p_handle_pointer(e->handle);
	return 0;

err_lists:
	fini_lists(e);
err_free:
	free(e);
	return rc;
}

FlagcxP2pEngine *flagcxP2pEngineCreate(void)
{
	FlagcxP2pEngine *engine = NULL;
	int rc = flagcxP2pEngineCreateWith(NULL, &engine);

	if (rc)
		errno = -rc;
	return engine;
}

/* ---------------------------------------------------------------- destroying */

static void destroy_conns(struct p2p_engine *e)
{
	for (;;) {
		struct p2p_conn *c = NULL;

		pthread_mutex_lock(&e->conns_lock);
		for (struct p2p_list *i = e->all.next; i != &e->all && !c; i = i->next) {
			struct p2p_conn *one = p2p_list_entry(i, struct p2p_conn, all_link);

			/* NULL: someone else is destroying it */
			c = p2p_conn_get(p2p_handle_pointer(one->handle));
		}
		pthread_mutex_unlock(&e->conns_lock);
		if (!c)
			return;
		p2p_conn_destroy(c);
		p2p_conn_put(c);
	}
}

static void wait_word(_Atomic uint32_t *word, uint32_t until)
{
	uint32_t seen;

	while ((seen = atomic_load_explicit(word, memory_order_acquire)) != until)
		/* bounded: a wake may have gone to the word before it was ours to see */
		p2p_futex_wait(word, seen, p2p_now_ns() + 50 * P2P_NS_PER_MS);
}

static void end_waits(struct p2p_engine *e)
{
	pthread_mutex_lock(&e->accept_lock);
	e->accept_stopped = true;
	pthread_cond_broadcast(&e->accept_cond);
	pthread_mutex_unlock(&e->accept_lock);
	pthread_mutex_lock(&e->sessions_lock);
	pthread_cond_broadcast(&e->sessions_cond);
	pthread_mutex_unlock(&e->sessions_lock);
}

void flagcxP2pEngineDestroy(FlagcxP2pEngine *engine)
{
	struct p2p_engine *e = p2p_engine_get(engine);

	if (!e)
		return;
	if (!p2p_table_retire(&engines, e->handle)) {
		p2p_engine_put(e); /* another thread is at it */
		return;
	}
	pthread_mutex_lock(&list_lock);
	p2p_list_del(&e->link);
	pthread_mutex_unlock(&list_lock);
	/* under conns_lock: no conn goes live after this */
	pthread_mutex_lock(&e->conns_lock);
	atomic_store(&e->destroying, true);
	pthread_mutex_unlock(&e->conns_lock);
	p2p_control_stop_accept(e);
	end_waits(e);
	destroy_conns(e);
	p2p_engine_put(e); /* ours */
	p2p_engine_put(e); /* the maker's */
	wait_word(&e->released, 1);
	destroy_conns(e); /* those of calls that were still inside */
	p2p_control_stop(e);
	wait_word(&e->objects, 0);
	p2p_pool_stop(e);
	p2p_rpc_forget(e);
	close_nets(e);
	p2p_table_destroy(&e->tasks);
	p2p_mr_table_destroy(&e->mrs);
	fini_lists(e);
	free(e);
}

void flagcxP2pEngineStopAccept(FlagcxP2pEngine *engine)
{
	struct p2p_engine *e = p2p_engine_get(engine);

	if (!e)
		return;
	p2p_control_stop_accept(e);
	pthread_mutex_lock(&e->accept_lock);
	e->accept_stopped = true;
	pthread_cond_broadcast(&e->accept_cond);
	pthread_mutex_unlock(&e->accept_lock);
	p2p_engine_put(e);
}

/* ------------------------------------------------------------- what it says */

int flagcxP2pEngineGetMetadata(FlagcxP2pEngine *engine, char **metadataStr)
{
	struct p2p_engine *e = metadataStr ? p2p_engine_get(engine) : NULL;
	char text[P2P_ADDR_TEXT + 32], *copy;

	if (!e)
		return p2p_fail(-EINVAL, "metadata: no such engine");
	p2p_metadata_format(e->ip, e->port, e->device, text, sizeof(text));
	p2p_engine_put(e);
	copy = strdup(text);
	if (!copy)
		return p2p_fail(-ENOMEM, "metadata");
	*metadataStr = copy;
	return 0;
}

int flagcxP2pEngineGetRpcPort(FlagcxP2pEngine *engine)
{
	struct p2p_engine *e = p2p_engine_get(engine);
	int port;

	if (!e)
		return p2p_fail(-EINVAL, "port: no such engine");
	port = e->port;
	p2p_engine_put(e);
	return port;
}

int flagcxP2pEngineTransport(FlagcxP2pEngine *engine, char *buf, size_t len)
{
	struct p2p_engine *e = buf && len ? p2p_engine_get(engine) : NULL;

	if (!e)
		return p2p_fail(-EINVAL, "transport: no such engine, or no room");
	snprintf(buf, len, "%s", e->transport_why);
	p2p_engine_put(e);
	return 0;
}

static uint64_t load(_Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static uint64_t queued(struct p2p_engine *e)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < e->shards; i++)
		n += load(&e->shard[i].waiting);
	return n;
}

int flagcxP2pEngineStats(FlagcxP2pEngine *engine, FlagcxP2pStats *stats)
{
	struct p2p_engine *e;
	FlagcxP2pStats s = { 0 };

	if (!stats || stats->size < sizeof(uint32_t) * 2)
		return p2p_fail(-EINVAL, "stats: size field");
	e = p2p_engine_get(engine);
	if (!e)
		return p2p_fail(-EINVAL, "stats: no such engine");
	s.size = P2P_MIN(stats->size, (uint32_t)sizeof(s));
	s.connections = atomic_load(&e->peers);
	s.regions = p2p_mr_count(&e->mrs);
	s.in_flight = (uint32_t)load(&e->stats.in_flight);
	s.queued_slices = queued(e);
	s.posted_slices = load(&e->stats.posted);
	s.staging_busy = load(&e->stats.staging_busy);
	s.xfers = load(&e->stats.xfers);
	s.xfers_failed = load(&e->stats.xfers_failed);
	s.read_bytes = load(&e->stats.read_bytes);
	s.write_bytes = load(&e->stats.write_bytes);
	s.served_read_bytes = load(&e->stats.served_read);
	s.served_write_bytes = load(&e->stats.served_write);
	s.served_refused = load(&e->stats.refused);
	s.staged_bytes = load(&e->stats.staged);
	s.notifs_sent = load(&e->stats.notifs_sent);
	s.notifs_received = load(&e->stats.notifs_received);
	s.connects = load(&e->stats.connects);
	s.connects_failed = load(&e->stats.connects_failed);
	s.peers_lost = load(&e->stats.peers_lost);
	s.rdma_bytes = load(&e->stats.rdma);
	for (int i = 0; i < P2P_LATENCIES; i++)
		s.latency_ns[i] = load(&e->stats.latency[i]);
	p2p_engine_put(e);
	memcpy(stats, &s, s.size);
	return 0;
}

/* ------------------------------------------------------------- registrations */

/* Is every page of the range mapped? msync without a flag that acts only looks. */
static bool mapped(uintptr_t addr, size_t size)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = addr & ~(page - 1);

	return msync((void *)first, (addr - first) + size, MS_ASYNC) == 0;
}

int flagcxP2pEngineReg(FlagcxP2pEngine *engine, uintptr_t data, size_t size, FlagcxP2pMr *mrId)
{
	struct p2p_engine *e;
	struct p2p_region region;
	struct p2p_mr *mr = NULL;
	bool fresh;
	int device, rc;

	if (!data || !size || !mrId || size > UINTPTR_MAX - data)
		return p2p_fail(-EINVAL, "register %#zx, %zu bytes", (size_t)data, size);
	device = p2p_device_of((const void *)data);
	if (device < 0 && !mapped(data, size))
		return p2p_fail(-EFAULT, "register %#zx, %zu bytes: not (wholly) mapped",
				(size_t)data, size);
	e = p2p_engine_get(engine);
	if (!e)
		return p2p_fail(-EINVAL, "register: no such engine");
	pthread_mutex_lock(&e->conns_lock);
	rc = p2p_mr_add(&e->mrs, data, size, device,
			device < 0 ? "" : "a stream's bytes pass through host memory", mrId,
			&fresh, &region);
	if (!rc && fresh) {
		p2p_session_tell(e, &region, false);
		mr = p2p_mr_pin_id(&e->mrs, *mrId);
	}
	pthread_mutex_unlock(&e->conns_lock);
	if (mr) {
		/* pinning a large range takes its time: without the lock */
		p2p_net_reg(e, mr);
		pthread_mutex_lock(&e->conns_lock);
		/* behind a farewell nothing more is said of it */
		if (!atomic_load_explicit(&mr->gone, memory_order_relaxed))
			p2p_session_tell_keys(e, mr);
		pthread_mutex_unlock(&e->conns_lock);
		p2p_mr_unpin(mr);
	}
	p2p_engine_put(e);
	return rc ? p2p_fail(rc, "register %#zx, %zu bytes", (size_t)data, size) : 0;
}

static int mr_drop(struct p2p_engine *e, uint64_t id)
{
	struct p2p_region region;
	struct p2p_mr *mr;
	int rc;

	pthread_mutex_lock(&e->conns_lock);
	rc = p2p_mr_del(&e->mrs, id, &mr, &region);
	if (rc > 0)
		p2p_session_tell(e, &region, true);
	pthread_mutex_unlock(&e->conns_lock);
	if (rc > 0) {
		p2p_mr_quiet(mr);
		p2p_net_dereg(e, mr);
		free(mr);
	}
	return rc < 0 ? rc : 0;
}

void flagcxP2pEngineMrDestroy(FlagcxP2pEngine *engine, FlagcxP2pMr mr)
{
	struct p2p_engine *e = p2p_engine_get(engine);

	if (!e)
		return;
	mr_drop(e, mr);
	p2p_engine_put(e);
}

int flagcxP2pRpcDeregister(void *engine, uint64_t addr)
{
	struct p2p_engine *e = p2p_engine_get(engine);
	uint64_t id;
	int rc;

	if (!e)
		return p2p_fail(-EINVAL, "deregister: no such engine");
	id = p2p_mr_at(&e->mrs, addr);
	rc = id ? mr_drop(e, id) : -ENOENT;
	p2p_engine_put(e);
	return rc ? p2p_fail(rc, "deregister %#llx", (unsigned long long)addr) : 0;
}

/* What the most preferred transport made of it; NULL: nothing of its own. */
static const struct p2p_mr_net *mr_net(struct p2p_engine *e, struct p2p_mr *mr)
{
	const struct p2p_mr_net *m = NULL;

	for (int i = 0; i < P2P_NETS && !m; i++)
		if (e->ops[i])
			m = atomic_load_explicit(&mr->net[i], memory_order_acquire);
	return m;
}

int flagcxP2pEngineMrInfo(FlagcxP2pEngine *engine, FlagcxP2pMr mr, FlagcxP2pMrInfo *info)
{
	const struct p2p_mr_net *net;
	struct p2p_engine *e;
	struct p2p_mr *m;
	FlagcxP2pMrInfo full = { 0 };

	if (!info || info->size < sizeof(uint32_t) * 2)
		return p2p_fail(-EINVAL, "registration info: size field");
	e = p2p_engine_get(engine);
	if (!e)
		return p2p_fail(-EINVAL, "registration info: no such engine");
	m = p2p_mr_pin_id(&e->mrs, mr);
	if (m) {
		full.size = P2P_MIN(info->size, (uint32_t)sizeof(full));
		full.device = m->device;
		full.addr = m->base;
		full.length = m->size;
		full.refs = m->refs;
		net = mr_net(e, m);
		snprintf(full.path, sizeof(full.path), "%s",
			 net ? net->path : m->device < 0 ? "host" : "staged");
		snprintf(full.reason, sizeof(full.reason), "%s", net ? net->reason : m->reason);
		p2p_mr_unpin(m);
		memcpy(info, &full, full.size);
	}
	p2p_engine_put(e);
	return m ? 0 : p2p_fail(-ENOENT, "registration info: unknown id");
}

int flagcxP2pEnginePrepareDesc(FlagcxP2pEngine *engine, FlagcxP2pMr mr, const void *data,
			       size_t size, char *descBuf)
{
	FlagcxP2pRdmaDesc desc = { 0 };
	struct p2p_engine *e = descBuf ? p2p_engine_get(engine) : NULL;
	uint64_t addr = (uint64_t)(uintptr_t)data;
	struct p2p_mr *m;
	int rc = -ENOENT;

	if (!e)
		return p2p_fail(-EINVAL, "descriptor: no such engine, or no buffer");
	m = p2p_mr_pin_id(&e->mrs, mr);
	if (m) {
		rc = addr < m->base || size > m->size || addr - m->base > m->size - size ?
			     -EFAULT :
			     0;
		desc.addr = addr;
		desc.size = (uint32_t)size;
		desc.nmsgs = (uint32_t)((uint64_t)size >> 32);
		desc.rkey = m->rkey;
		desc.rid = m->rid;
		desc.idx = e->incarnation;
		p2p_mr_unpin(m);
	}
	p2p_engine_put(e);
	if (rc)
		return p2p_fail(rc, "descriptor of %p, %zu bytes", data, size);
	flagcxP2pSerializeRdmaDesc(&desc, descBuf);
	return 0;
}

int flagcxP2pEngineUpdateDesc(FlagcxP2pRdmaDesc *desc, uint64_t remoteAddr, uint32_t size)
{
	if (!desc)
		return p2p_fail(-EINVAL, "descriptor: NULL");
	desc->addr = remoteAddr;
	desc->size = size;
	desc->nmsgs = 0;
	return 0;
}

static void fill_desc(const struct p2p_conn *c, uint64_t va, uint64_t size,
		      const struct p2p_region *r, FlagcxP2pRdmaDesc *desc)
{
	memset(desc, 0, sizeof(*desc));
	desc->addr = va;
	desc->size = (uint32_t)size;
	desc->nmsgs = (uint32_t)(size >> 32);
	desc->rkey = r->rkey;
	desc->rid = r->rid;
	desc->idx = c->peer_incarnation;
}

int p2p_conn_desc(struct p2p_conn *c, uint64_t va, uint64_t size, FlagcxP2pRdmaDesc *desc)
{
	struct p2p_region r;
	int rc = p2p_remote_find(&c->remote, va, size, &r);

	if (rc)
		rc = p2p_session_query(c, va, size, &r);
	if (!rc)
		fill_desc(c, va, size, &r, desc);
	return rc;
}

int p2p_conn_desc_key(struct p2p_conn *c, uint64_t va, uint64_t size, uint32_t rkey,
		      FlagcxP2pRdmaDesc *desc)
{
	struct p2p_region r, answer;
	int rc = p2p_remote_find_key(&c->remote, va, size, rkey, &r);

	if (rc) {
		/* what the peer has said of registrations before it answers is in the table then */
		rc = p2p_session_query(c, va, size, &answer);
		if (!rc && p2p_remote_find_key(&c->remote, va, size, rkey, &r))
			r = answer;
	}
	if (rc)
		return rc;
	fill_desc(c, va, size, &r, desc);
	desc->rkey = rkey;
	return 0;
}

int flagcxP2pEngineMakeDesc(FlagcxP2pConn *conn, uint64_t remoteVa, uint32_t size,
			    FlagcxP2pRdmaDesc *desc)
{
	struct p2p_conn *c;
	int rc;

	if (!desc || !size)
		return p2p_fail(-EINVAL, "descriptor: NULL or empty");
	c = p2p_conn_get(conn);
	if (!c)
		return p2p_fail(-ENOTCONN, "descriptor: no such connection");
	rc = p2p_conn_check(c);
	rc = rc ? rc : p2p_conn_desc(c, remoteVa, size, desc);
	if (rc)
		p2p_fail(rc, "%s:%d has no registration with %#llx, %u bytes", c->peer_ip,
			 c->peer_port, (unsigned long long)remoteVa, size);
	p2p_conn_put(c);
	return rc;
}

int flagcxP2pEngineRemoteRegion(FlagcxP2pConn *conn, uint32_t index, uint64_t *addr,
				uint64_t *size)
{
	struct p2p_region r;
	struct p2p_conn *c;
	int rc;

	if (!addr || !size)
		return p2p_fail(-EINVAL, "remote region: NULL");
	c = p2p_conn_get(conn);
	if (!c)
		return p2p_fail(-ENOTCONN, "remote region: no such connection");
	rc = p2p_remote_at(&c->remote, index, &r);
	p2p_conn_put(c);
	if (rc)
		return p2p_fail(rc, "remote region %u", index);
	*addr = r.base;
	*size = r.size;
	return 0;
}
