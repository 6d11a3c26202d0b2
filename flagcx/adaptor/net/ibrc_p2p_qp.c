// SPDX-License-Identifier: Apache-2.0
/*
 * The life of a path's queue pair. Both ends count theirs: the n-th of one is
 * connected with the n-th of the other.
 *
 *   NONE     -> open: made, offered on the stream       -> WAITING
 *   WAITING  -> the peer's offer of the same number: connected, READY said;
 *               the peer's READY: work may be posted    -> UP
 *   UP, WAITING -> a failure here, or an offer of a higher number from a peer
 *               that had one there: to error            -> DRAINING
 *   DRAINING -> all flushed: destroyed, and the next    -> WAITING
 *               or, after too many in a row             -> RESTING
 *   RESTING  -> after a while, or when the peer offers  -> WAITING
 *
 * While it rests everything goes by the stream; while it waits or drains work
 * waits, too.
 */
#include "ibrc_p2p.h"

#include "flagcx/core/auth.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------- words */

static void put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

void ib_note_encode(const struct ib_note *n, uint8_t buf[P2P_FRAME_NOTE_SIZE])
{
	memset(buf, 0, P2P_FRAME_NOTE_SIZE);
	buf[0] = n->kind;
	buf[1] = n->link;
	buf[2] = n->reads;
	put16(buf + 4, n->mtu);
	put16(buf + 6, n->lid);
	put16(buf + 8, n->rail);
	p2p_u32_encode(n->epoch, buf + 12);
	p2p_u32_encode((uint32_t)n->status, buf + 16);
	p2p_u32_encode(n->qpn, buf + 20);
	p2p_u32_encode(n->psn, buf + 24);
	memcpy(buf + 28, n->gid, 16);
}

int ib_note_decode(const uint8_t buf[P2P_FRAME_NOTE_SIZE], struct ib_note *n)
{
	static const uint8_t zero[20];

	*n = (struct ib_note){ .kind = buf[0], .link = buf[1], .reads = buf[2] };
	n->mtu = get16(buf + 4);
	n->lid = get16(buf + 6);
	n->rail = get16(buf + 8);
	n->epoch = p2p_u32_decode(buf + 12);
	n->status = (int32_t)p2p_u32_decode(buf + 16);
	n->qpn = p2p_u32_decode(buf + 20);
	n->psn = p2p_u32_decode(buf + 24);
	memcpy(n->gid, buf + 28, 16);
	if (buf[3] || get16(buf + 10) || memcmp(buf + 44, zero, sizeof(zero)) || !n->epoch)
		return -EPROTO;
	if (n->kind != IB_NOTE_OFFER && n->kind != IB_NOTE_READY)
		return -EPROTO;
	if (n->status > 0 || n->status <= -4096 || n->psn >> 24 || n->qpn >> 24)
		return -EPROTO;
	/* an offer that holds tells how to connect */
	if (n->kind == IB_NOTE_OFFER && !n->status &&
	    (!n->qpn || ib_mtu_bytes(ib_mtu_value(n->mtu)) != n->mtu || n->rail >= IB_RAILS_MAX))
		return -EPROTO;
	return 0;
}

static void say(struct ib_path *p, const struct ib_note *n)
{
	uint8_t buf[P2P_FRAME_NOTE_SIZE];
	int rc;

	ib_note_encode(n, buf);
	rc = tcp_note(&p->stream, buf);
	if (rc) /* the ends would not agree any more */
		p2p_conn_break(p->stream.base.conn, rc);
}

static void offer(struct ib_path *p, int status)
{
	struct ib_rail *rail = p->rail;
	struct ib_note n = {
		.kind = IB_NOTE_OFFER,
		.epoch = p->epoch,
		.status = status,
		.link = (uint8_t)rail->link,
		.reads = (uint8_t)P2P_MIN(rail->attr.max_qp_rd_atom, 255),
		.rail = (uint16_t)rail->index,
		.psn = p->psn,
	};

	pthread_mutex_lock(&rail->lock);
	n.mtu = (uint16_t)rail->mtu;
	n.lid = rail->lid;
	memcpy(n.gid, rail->gid.raw, 16);
	pthread_mutex_unlock(&rail->lock);
	if (!status)
		n.qpn = p->qp->qp_num;
	say(p, &n);
}

void ib_become(struct ib_path *p, enum ib_state state)
{
	static const char *const names[] = { "stopped", "waiting", "up", "draining", "resting" };

	atomic_store_explicit(&p->state, (int)state, memory_order_relaxed);
	p2p_info("path %u to %s:%d: %s, queue pair %u (%u in flight, %u to do)",
		 p->stream.base.index, p->stream.base.conn->peer_ip, p->stream.base.conn->peer_port,
		 names[state], p->epoch, p->head - p->tail, p->todos);
}

/* ------------------------------------------------------------ making, connecting */

static int take_id(struct ib_path *p)
{
	struct ib_worker *iw = p->iw;
	uint32_t i = 0, cap = iw->paths ? iw->paths * 2 : 64;
	void *path, *generation;

	while (i < iw->paths && iw->path[i])
		i++;
	if (i == iw->paths) {
		if (cap > 0x10000)
			return -ENOSPC;
		path = realloc(iw->path, cap * sizeof(*iw->path));
		if (!path)
			return -ENOMEM;
		iw->path = path;
		generation = realloc(iw->generation, cap * sizeof(*iw->generation));
		if (!generation)
			return -ENOMEM;
		iw->generation = generation;
		memset(iw->path + i, 0, (cap - i) * sizeof(*iw->path));
		memset(iw->generation + i, 0, (cap - i) * sizeof(*iw->generation));
		iw->paths = cap;
	}
	iw->path[i] = p;
	/* from 1 on: 0 is no id */
	iw->generation[i] = (uint16_t)(iw->generation[i] % IB_ID_GENERATIONS + 1);
	p->id = IB_ID(iw->generation[i], iw->w->index, i);
	return 0;
}

static int to_init(struct ib_path *p)
{
	const struct p2p_config *cfg = &p->iw->net->engine->config;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = (uint16_t)cfg->ib_pkey,
		.port_num = p->rail->port,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE,
	};

	return -p->iw->net->v->modify_qp(p->qp, &a,
					 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						 IBV_QP_ACCESS_FLAGS);
}

/* As much inline as asked for or, where the device has less, none. */
static int create(struct ib_path *p)
{
	const FlagcxP2pGlobalConfig *g = &p->iw->net->engine->config.g;
	struct ibv_qp_init_attr a;

	for (int pass = 0; pass < 2 && !p->qp; pass++) {
		a = (struct ibv_qp_init_attr){
			.send_cq = p->cq->cq,
			.recv_cq = p->cq->cq,
			.qp_type = IBV_QPT_RC,
			.cap = {
				.max_send_wr = p->depth,
				.max_recv_wr = 1,
				.max_send_sge = (uint32_t)P2P_MIN(
					g->maxSge, (size_t)P2P_MAX(p->rail->attr.max_sge, 1)),
				.max_recv_sge = 1,
				.max_inline_data = pass ? 0 : (uint32_t)g->maxInline,
			},
		};
		errno = 0;
		p->qp = p->iw->net->v->create_qp(p->rail->pd, &a);
	}
	if (!p->qp)
		return errno ? -errno : -ENOMEM;
	p->inline_max = (uint32_t)P2P_MIN(a.cap.max_inline_data, g->maxInline);
	return 0;
}

/* Destroy, and give back what it had. */
static void qp_free(struct ib_path *p)
{
	struct ib_worker *iw = p->iw;

	if (p->qp)
		iw->net->v->destroy_qp(p->qp);
	p->qp = NULL;
	if (p->id && iw->path[IB_ID_INDEX(p->id)] == p)
		iw->path[IB_ID_INDEX(p->id)] = NULL;
	p->id = 0;
	if (p->cq)
		ib_cq_give(iw, p->cq, p->depth);
	p->cq = NULL;
	p->connected = false;
	p->head = p->tail = 0;
}

static int qp_make(struct ib_path *p)
{
	int rc;

	if (atomic_load(&p->rail->state) != IB_RAIL_UP)
		return -ENETDOWN;
	rc = ib_cq_take(p->iw, p->rail, p->depth, &p->cq);
	rc = rc ? rc : take_id(p);
	rc = rc ? rc : create(p);
	rc = rc ? rc : to_init(p);
	if (rc)
		qp_free(p);
	p->psn = (uint32_t)p2p_random_u64() & 0xffffff;
	return rc;
}

static void address(struct ib_path *p, struct ibv_ah_attr *ah)
{
	const struct p2p_config *cfg = &p->iw->net->engine->config;
	const struct ib_note *o = &p->offer;
	struct ib_rail *rail = p->rail;

	*ah = (struct ibv_ah_attr){ .port_num = rail->port, .sl = (uint8_t)cfg->ib_sl };
	pthread_mutex_lock(&rail->lock);
	/* between subnets of InfiniBand the route is global, too */
	ah->is_global = rail->link == IB_LINK_ROCE || memcmp(rail->gid.raw, o->gid, 8) != 0;
	ah->grh.sgid_index = (uint8_t)rail->gid.index;
	pthread_mutex_unlock(&rail->lock);
	ah->dlid = o->lid;
	memcpy(ah->grh.dgid.raw, o->gid, 16);
	ah->grh.hop_limit = 64;
	ah->grh.traffic_class = cfg->g.ibTrafficClass < 0 ? 0 : (uint8_t)cfg->g.ibTrafficClass;
}

static int to_rtr(struct ib_path *p, uint8_t serves, int mtu)
{
	const struct p2p_config *cfg = &p->iw->net->engine->config;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.dest_qp_num = p->offer.qpn,
		.rq_psn = p->offer.psn,
		.max_dest_rd_atomic = serves,
		.min_rnr_timer = 12,
	};

	a.path_mtu = (enum ibv_mtu)ib_mtu_value(
		ib_mtu_choose(cfg->g.mtuLength, mtu, p->offer.mtu));
	address(p, &a.ah_attr);
	return -p->iw->net->v->modify_qp(p->qp, &a,
					 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						 IBV_QP_MAX_DEST_RD_ATOMIC |
						 IBV_QP_MIN_RNR_TIMER);
}

static int to_rts(struct ib_path *p, uint8_t reads)
{
	const struct p2p_config *cfg = &p->iw->net->engine->config;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.timeout = (uint8_t)cfg->ib_timeout,
		.retry_cnt = (uint8_t)cfg->g.retryCnt,
		.rnr_retry = 7,
		.sq_psn = p->psn,
		.max_rd_atomic = reads,
	};

	return -p->iw->net->v->modify_qp(p->qp, &a,
					 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
						 IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						 IBV_QP_MAX_QP_RD_ATOMIC);
}

static int connect_qp(struct ib_path *p)
{
	const struct ibv_device_attr *attr = &p->rail->attr;
	uint8_t reads = ib_read_depth(attr->max_qp_init_rd_atom, p->offer.reads);
	uint8_t serves = ib_read_depth(attr->max_qp_rd_atom, 255);
	struct ib_gid gid;
	int rc, mtu;

	pthread_mutex_lock(&p->rail->lock);
	gid = p->rail->gid;
	mtu = p->rail->mtu;
	pthread_mutex_unlock(&p->rail->lock);
	rc = ib_reach(p->rail->link, &gid, p->offer.link, p->offer.gid, p->offer.lid);
	rc = rc ? rc : to_rtr(p, serves, mtu);
	rc = rc ? rc : to_rts(p, reads);
	if (rc)
		return rc;
	p->reads = reads > 0;
	p->peer_rail = p->offer.rail;
	p->connected = true;
	say(p, &(struct ib_note){ .kind = IB_NOTE_READY, .epoch = p->epoch });
	return 0;
}

/* -------------------------------------------------------------------- failing */

/* No queue pair for a while. status: what the peer must hear, 0: it is its doing. */
static void rest(struct ib_path *p, int err, int status)
{
	struct p2p_conn *c = p->stream.base.conn;

	p->rest_ms = P2P_MIN(p->rest_ms ? p->rest_ms * 2 : IB_REST_FIRST_MS, IB_REST_MAX_MS);
	p->rest_until = p2p_now_ns() + p->rest_ms * P2P_NS_PER_MS;
	p->fails = 0;
	p->last_error = err;
	ib_become(p, IB_RESTING);
	if (p->stream.broken)
		return;
	p2p_warn("path %u to %s:%d has no queue pair (%s)%s", p->stream.base.index, c->peer_ip,
		 c->peer_port, p2p_errno_name(err),
		 p->iw->net->strict ? "" : ": its bytes go by TCP");
	if (status)
		offer(p, status);
	if (p->iw->net->strict)
		p2p_conn_break(c, err);
}

static bool heard(const struct ib_path *p)
{
	return p->offer.kind && p->offer.epoch == p->epoch;
}

/* The peer's offer of the same number is here. */
static void meet(struct ib_path *p)
{
	int rc = p->offer.status ? p->offer.status : connect_qp(p);

	if (!rc)
		return;
	qp_free(p); /* nothing was posted on it */
	rest(p, rc, p->offer.status ? 0 : rc);
}

void ib_qp_open(struct ib_path *p)
{
	int rc = qp_make(p);

	if (rc) {
		rest(p, rc, rc);
		ib_busy(p, false);
		return;
	}
	ib_become(p, IB_WAITING);
	offer(p, 0);
	if (heard(p))
		meet(p);
	ib_busy(p, false);
}

static void to_error(struct ib_path *p)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	p->iw->net->v->modify_qp(p->qp, &a, IBV_QP_STATE);
}

static void drain(struct ib_path *p)
{
	to_error(p);
	ib_become(p, IB_DRAINING);
	p->moved = p->iw->ticks;
	if (p->head == p->tail)
		ib_qp_later(p);
}

void ib_qp_fail(struct ib_path *p, int err, bool counts)
{
	if (!ib_is(p, IB_UP) && !ib_is(p, IB_WAITING))
		return;
	p->fails += counts;
	p->reopen = p->fails < IB_FAILS_MAX;
	p->rest_status = err;
	p->last_error = err;
	p->epoch++;
	drain(p);
}

void ib_qp_later(struct ib_path *p)
{
	if (!p2p_list_empty(&p->later))
		return;
	p2p_list_add_tail(&p->iw->later, &p->later);
	p2p_worker_wake(p->iw->w);
}

static void next_one(struct ib_path *p)
{
	qp_free(p);
	if (p->reopen)
		ib_qp_open(p);
	else
		rest(p, p->last_error, p->rest_status);
	/* what was undone goes on, now or when the next one stands */
	if (p2p_list_empty(&p->pump))
		p2p_list_add_tail(&p->iw->pump, &p->pump);
}

/*
 * Destroy it, flushed or not; what was in flight is in todo then. The entries that
 * it has left are taken out, so that their room may be given to another one.
 */
static void discard(struct ib_path *p)
{
	ib_undo(p);
	p->tail = p->head;
	/* nothing of the hardware's touches memory once it is destroyed */
	p->iw->net->v->destroy_qp(p->qp);
	p->qp = NULL;
	p->iw->path[IB_ID_INDEX(p->id)] = NULL;
	ib_cq_poll(p->iw, p->cq);
}

void ib_qp_drop(struct ib_path *p)
{
	if (!p->qp)
		return;
	if (!ib_is(p, IB_DRAINING)) {
		p->epoch++;
		p->reopen = true; /* where the device is dead that fails, and the peer hears it */
		ib_become(p, IB_DRAINING);
	}
	ib_qp_later(p);
}

void ib_qp_retry(struct ib_path *p)
{
	if (p2p_now_ns() >= p->rest_until && atomic_load(&p->rail->state) == IB_RAIL_UP)
		ib_qp_later(p);
}

void ib_qp_work(struct ib_worker *iw)
{
	while (!p2p_list_empty(&iw->later)) {
		struct ib_path *p = p2p_list_entry(iw->later.next, struct ib_path, later);

		p2p_list_del(&p->later);
		if (ib_is(p, IB_DRAINING)) {
			if (p->qp && p->head != p->tail)
				discard(p);
			next_one(p);
		} else if (ib_is(p, IB_RESTING)) {
			p->epoch++;
			ib_qp_open(p);
		}
	}
}

void ib_qp_stop(struct ib_path *p, int err)
{
	uint64_t until = p2p_now_ns() + IB_DRAIN_MS * P2P_NS_PER_MS;
	struct timespec nap = { .tv_nsec = 50000 };

	p2p_list_del(&p->later);
	if (p->qp) {
		to_error(p); /* also one that was to be dropped as it was */
		/* not DRAINING: nothing is made anew */
		ib_become(p, IB_NONE);
		while (p->head != p->tail && p2p_now_ns() < until &&
		       atomic_load(&p->rail->state) != IB_RAIL_DEAD)
			if (!ib_cq_poll(p->iw, p->cq))
				nanosleep(&nap, NULL);
		discard(p);
		qp_free(p);
	}
	if (!ib_is(p, IB_NONE))
		ib_become(p, IB_NONE);
	p2p_list_del(&p->pump);
	ib_todo_fail(p, err);
	ib_busy(p, false);
}

/* ----------------------------------------------------------------- hearing */

static void on_offer(struct ib_path *p, const struct ib_note *n)
{
	bool next = n->epoch != p->epoch;

	/* of a former one: the peer will hear of ours */
	if ((int32_t)(n->epoch - p->epoch) < 0)
		return;
	p->offer = *n;
	p->epoch = n->epoch;
	if (ib_is(p, IB_DRAINING)) {
		/* it is ours that is next, too */
		p->reopen = !n->status;
		p->rest_status = 0;
		p->last_error = n->status;
	} else if ((next || n->status) && (ib_is(p, IB_UP) || ib_is(p, IB_WAITING))) {
		p->reopen = !n->status;
		p->rest_status = 0;
		p->last_error = n->status;
		drain(p);
	} else if (ib_is(p, IB_WAITING) && !p->connected) {
		meet(p);
	} else if (next && ib_is(p, IB_RESTING) && !n->status) {
		ib_qp_open(p);
	}
}

int ib_on_note(struct tcp_path *stream, const uint8_t *buf)
{
	struct ib_path *p = p2p_container_of(stream, struct ib_path, stream);
	struct ib_note n;
	int rc = ib_note_decode(buf, &n);

	if (rc)
		return rc;
	if (n.kind == IB_NOTE_OFFER)
		on_offer(p, &n);
	else if (n.epoch == p->epoch && ib_is(p, IB_WAITING) && p->connected)
		ib_become(p, IB_UP);
	ib_pump(p);
	ib_busy(p, false);
	return 0;
}
