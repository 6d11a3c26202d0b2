// SPDX-License-Identifier: Apache-2.0
/* The RDMA transport's table: life of a path, posting, ending, cancelling. */
#include "ibrc_p2p.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READS_PER_WINDOW 16u /* of FLAGCX_P2P_READ_BATCH_WINDOW: what devices serve at once */
#define NO_ROOM UINT32_MAX

/* --------------------------------------------------------------------- ending */

void ib_done(struct ib_path *p, uint32_t upto)
{
	struct p2p_engine *e = p->stream.base.conn->engine;
	struct p2p_task *task = NULL;
	uint64_t n = 0, bytes = 0, ended = 0, moved = 0;

	for (uint32_t seq = p->tail; seq != upto; seq++) {
		const struct ib_entry *x = &p->ring[seq & p->mask];

		ended += x->slice != NULL;
		moved += x->slice ? x->slice->length : 0;
		p->out_bytes -= x->bytes;
		p->reads_out -= x->bytes && x->opcode == FLAGCX_SLICE_OP_READ;
	}
	p->moved = p->iw->ticks;
	if (ended) {
		p2p_uncount(e, posted, ended);
		p2p_count(e, rdma, moved);
	}
	for (; p->tail != upto; p->tail++) {
		struct p2p_slice *s = p->ring[p->tail & p->mask].slice;

		if (!s)
			continue;
		/* a run of one task is counted at once; its last slice is still ours till then */
		if (s->task != task) {
			if (n)
				p2p_task_done(task, n, bytes);
			task = s->task;
			n = bytes = 0;
		}
		n++;
		bytes += s->length;
	}
	if (n)
		p2p_task_done(task, n, bytes);
}

void ib_undo(struct ib_path *p)
{
	for (uint32_t seq = p->tail; seq != p->head; seq++) {
		struct ib_entry *x = &p->ring[seq & p->mask];

		if (x->slice)
			p->todo[p->todos++] = x->slice;
		*x = (struct ib_entry){ 0 };
	}
	p->out_bytes = 0;
	p->reads_out = 0;
	p->unsignalled = 0;
}

void ib_aside(struct ib_path *p, struct p2p_slice *slice)
{
	p2p_net_tcp.path_post(&p->stream.base, slice->opcode, &slice, 1);
}

void ib_todo_fail(struct ib_path *p, int err)
{
	uint32_t n = p->todos;

	p2p_uncount(p->stream.base.conn->engine, posted, n);
	p->todos = 0;
	for (uint32_t i = 0; i < n; i++)
		p2p_task_fail(p->todo[i], 1, err);
}

void ib_busy(struct ib_path *p, bool heard)
{
	bool flying = p->head != p->tail;

	if (flying != p->flying) {
		p->flying = flying;
		p->iw->flying += flying ? 1u : -1u;
		if (flying)
			ib_tick_soon(p->iw);
	}
	/* while it waits for its peer the work in line does, too */
	p->stream.other_work = flying || p->todos || ib_is(p, IB_WAITING);
	/* a completion is a sign of life: the queue pair of a dead peer gives none */
	tcp_progress(&p->stream, heard);
}

/* -------------------------------------------------------------------- posting */

/* One part: from an address on, as far as both ends' registrations go in one piece. */
static uint32_t part(const struct ib_path *p, const struct p2p_slice *s, uint32_t off,
		     const struct ib_mr *m, const struct p2p_keyset *keys, uint32_t *lkey,
		     uint32_t *rkey)
{
	uint64_t here = s->local_va + off - s->mr->base;
	uint64_t there = s->remote_va + off - keys->head.base;
	uint64_t len = s->length - off;
	uint32_t i = 0, k = 0;

	if (m->pieces > 1) {
		i = (uint32_t)(here / m->step);
		len = P2P_MIN(len, m->step - here % m->step);
	}
	if (keys->head.pieces > 1) {
		k = (uint32_t)(there / keys->head.step);
		len = P2P_MIN(len, keys->head.step - there % keys->head.step);
	}
	*lkey = m->mr[p->rail->index * m->pieces + i]->lkey;
	*rkey = keys->key[(uint32_t)p->peer_rail * keys->head.pieces + k];
	return (uint32_t)P2P_MIN(len, p->rail->max_msg);
}

static void fill(struct ib_path *p, uint32_t at, const struct p2p_slice *s, uint32_t off,
		 uint32_t len, uint32_t lkey, uint32_t rkey)
{
	bool write = s->opcode == FLAGCX_SLICE_OP_WRITE;
	struct ibv_send_wr *wr = &p->iw->wr[at];
	struct ibv_sge *sge = &p->iw->sge[at];
	uint32_t seq = p->head + at;

	sge->addr = s->local_va + off;
	sge->length = len;
	sge->lkey = lkey;
	wr->wr_id = (uint64_t)p->id << 32 | seq;
	wr->next = NULL;
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	wr->send_flags = 0;
	wr->wr.rdma.remote_addr = s->remote_va + off;
	wr->wr.rdma.rkey = rkey;
	/* the processor reads what goes inline: not an accelerator's memory */
	if (write && s->device < 0 && len <= p->inline_max)
		wr->send_flags = IBV_SEND_INLINE;
	p->ring[seq & p->mask] = (struct ib_entry){ NULL, len, s->opcode };
}

/* Work requests for a slice from place at on; 0: not by RDMA; NO_ROOM. */
static uint32_t build(struct ib_path *p, struct p2p_slice *s, uint32_t at, uint32_t room)
{
	struct p2p_mr_net *base = atomic_load_explicit(&s->mr->net[p2p_net_ibrc.slot],
						       memory_order_acquire);
	const struct ib_mr *m = (const struct ib_mr *)base;
	const struct p2p_keyset *keys;
	uint32_t n = 0, off = 0;

	if (!m || !m->pieces || (s->opcode == FLAGCX_SLICE_OP_READ && !p->reads))
		return 0;
	keys = p2p_keys_find(&p->stream.base.conn->keys, s->rid, s->rkey, s->remote_va, s->length);
	if (!keys || p->peer_rail >= keys->head.rails)
		return 0;
	while (off < s->length) {
		uint32_t lkey, rkey, len = part(p, s, off, m, keys, &lkey, &rkey);

		if (at + n == room)
			return NO_ROOM;
		fill(p, at + n, s, off, len, lkey, rkey);
		off += len;
		n++;
	}
	p->ring[(p->head + at + n - 1) & p->mask].slice = s;
	return n;
}

/* The chain of n in iw->wr; what the device refuses is to be done again. */
static void post_chain(struct ib_path *p, uint32_t n)
{
	struct ibv_send_wr *wr = p->iw->wr, *bad = NULL;
	uint32_t every = P2P_MAX(p->depth / 4, 1u), posted = n, first = p->head;
	int rc;

	for (uint32_t i = 0; i < n; i++) {
		const struct ib_entry *x = &p->ring[(first + i) & p->mask];

		wr[i].next = i + 1 < n ? &wr[i + 1] : NULL;
		if (++p->unsignalled >= every || i + 1 == n) {
			wr[i].send_flags |= IBV_SEND_SIGNALED;
			p->unsignalled = 0;
		}
		p->out_bytes += x->bytes;
		p->reads_out += x->opcode == FLAGCX_SLICE_OP_READ;
	}
	if (p->head == p->tail)
		p->moved = p->iw->ticks;
	p->head += n;
	rc = ibv_post_send(p->qp, wr, &bad);
	if (!rc)
		return;
	posted = bad ? (uint32_t)(bad - wr) : 0;
	for (uint32_t i = posted; i < n; i++) {
		struct ib_entry *x = &p->ring[(first + i) & p->mask];

		if (x->slice)
			p->todo[p->todos++] = x->slice;
		p->out_bytes -= x->bytes;
		p->reads_out -= x->opcode == FLAGCX_SLICE_OP_READ;
		*x = (struct ib_entry){ 0 };
	}
	p->head = first + posted;
	ib_qp_fail(p, rc > 0 ? -rc : rc < 0 ? rc : -EIO, true);
	/* the last that was posted may say nothing when it is done, so no flush ends */
	if (posted && !(wr[posted - 1].send_flags & IBV_SEND_SIGNALED))
		ib_qp_drop(p);
}

static void flush_asides(struct ib_path *p)
{
	struct ib_worker *iw = p->iw;

	for (int op = 0; op < 2; op++) {
		unsigned int n = iw->asides[op];

		iw->asides[op] = 0;
		if (n)
			p2p_net_tcp.path_post(&p->stream.base, op, iw->aside[op], n);
	}
}

/* Some of what is to do; false: no more goes now. */
static bool post_some(struct ib_path *p, bool by_stream)
{
	struct p2p_key_table *keys = &p->stream.base.conn->keys;
	uint32_t most = (uint32_t)p->iw->net->engine->config.g.maxWrPerPost, n = 0, seen = 0;
	uint32_t room = by_stream ? 0 : P2P_MIN(most, p->depth - (p->head - p->tail));
	bool more = true;

	p2p_keys_hold(keys);
	for (; p->todos && seen < most; seen++) {
		struct p2p_slice *s = p->todo[p->todos - 1];
		uint32_t k = by_stream ? 0 : build(p, s, n, room);

		if (k == NO_ROOM && (n || p->head != p->tail)) {
			more = false;
			break;
		}
		if (k == NO_ROOM)
			k = 0; /* in more parts than there will ever be room for */
		if (!k)
			p->iw->aside[s->opcode][p->iw->asides[s->opcode]++] = s;
		n += k;
		p->todos--;
	}
	p2p_keys_release(keys);
	if (n)
		post_chain(p, n);
	flush_asides(p);
	return more && p->todos;
}

void ib_pump(struct ib_path *p)
{
	if (p->stream.broken)
		return; /* the stop is on its way */
	while (p->todos) {
		bool resting = ib_is(p, IB_RESTING);

		if (!resting && !ib_is(p, IB_UP))
			return;
		if (!post_some(p, resting))
			return;
	}
}

static size_t ib_room(struct p2p_path *path, int opcode, unsigned int *slices)
{
	struct ib_path *p = ib_of(path);
	const FlagcxP2pGlobalConfig *g = &path->worker->engine->config.g;
	uint32_t free_ = p->depth - (p->head - p->tail);
	uint32_t reads = (uint32_t)g->readBatchWindow * READS_PER_WINDOW;
	size_t stream = p2p_net_tcp.path_room(path, opcode, slices);

	if (ib_is(p, IB_RESTING))
		ib_qp_retry(p);
	else if (ib_is(p, IB_UP) && atomic_load_explicit(&p->rail->state, memory_order_relaxed) !=
					    IB_RAIL_UP)
		ib_qp_fail(p, -ENETDOWN, true);
	if (ib_is(p, IB_RESTING))
		return stream;
	/* any slice may turn out to go by the stream */
	if (!ib_is(p, IB_UP) || p->todos || !free_ || !stream || p->out_bytes >= IB_AHEAD_BYTES)
		return 0;
	if (opcode == FLAGCX_SLICE_OP_READ) {
		if (p->reads_out >= reads)
			return 0;
		free_ = P2P_MIN(free_, reads - p->reads_out);
	}
	*slices = P2P_MIN(*slices, free_);
	return IB_SLICE_MAX;
}

static void ib_post(struct p2p_path *path, int opcode, struct p2p_slice **slice, unsigned int n)
{
	struct ib_path *p = ib_of(path);

	/* a stack: the first comes off first */
	for (unsigned int i = n; i > 0; i--)
		p->todo[p->todos++] = slice[i - 1];
	ib_pump(p);
	ib_busy(p, false);
}

static void ib_cancel(struct p2p_path *path, struct p2p_task *task)
{
	struct ib_path *p = ib_of(path);
	uint32_t kept = 0, all = p->todos;

	/* what a queue pair has ends by itself, soon; nothing can take it back */
	p->todos = 0;
	for (uint32_t i = 0; i < all; i++) {
		struct p2p_slice *s = p->todo[i];

		if (s->task != task) {
			p->todo[kept++] = s;
			continue;
		}
		p2p_uncount(path->conn->engine, posted, 1);
		p2p_task_fail(s, 1, -ECANCELED);
	}
	p->todos = kept;
	p2p_net_tcp.path_cancel(path, task);
	ib_busy(p, false);
}

/* ----------------------------------------------------------------------- path */

static int ib_path_init(struct p2p_path *path)
{
	struct ib_path *p = ib_of(path);
	struct p2p_engine *e = path->conn->engine;
	struct p2p_net *net = e->net[p2p_net_ibrc.slot];
	const FlagcxP2pGlobalConfig *g = &e->config.g;
	uint32_t ring = 1;
	int rc = p2p_net_tcp.path_init(path);

	if (rc)
		return rc;
	p2p_list_init(&p->pump);
	p2p_list_init(&p->later);
	p->stream.note = ib_on_note;
	p->rail = &net->rail[path->index % net->rails];
	p->epoch = 1;
	p->depth = ib_depth(g->maxRequests, (unsigned int)g->qpsPerConn,
			    (uint32_t)P2P_MAX(p->rail->attr.max_qp_wr, 1));
	while (ring < p->depth)
		ring *= 2;
	p->mask = ring - 1;
	p->ring = calloc(ring, sizeof(*p->ring));
	p->todo_cap = p->depth + (uint32_t)g->maxWrPerPost;
	p->todo = calloc(p->todo_cap, sizeof(struct p2p_slice *));
	if (!p->ring || !p->todo) {
		free(p->ring);
		free(p->todo);
		p2p_net_tcp.path_fini(path);
		return -ENOMEM;
	}
	return 0;
}

static void ib_path_fini(struct p2p_path *path)
{
	struct ib_path *p = ib_of(path);

	free(p->ring);
	free(p->todo);
	p2p_net_tcp.path_fini(path);
}

static int ib_adopt(struct p2p_path *path, int fd)
{
	return p2p_net_tcp.path_adopt(path, fd);
}

static int ib_start(struct p2p_path *path)
{
	struct ib_path *p = ib_of(path);
	int rc;

	p->iw = ib_worker_of(path->worker);
	if (!p->iw->bound)
		ib_rail_bind(p->rail);
	p->iw->bound = true;
	rc = p2p_net_tcp.path_start(path);
	if (!rc)
		ib_qp_open(p);
	return rc;
}

static void ib_stop(struct p2p_path *path, int err)
{
	p2p_net_tcp.path_stop(path, err);
	/* after the stream: nothing that is left is posted on it any more */
	ib_qp_stop(ib_of(path), err);
	atomic_store(&path->busy_since, 0);
}

/* ------------------------------------------------------------------ transport */

static int ib_open(struct p2p_engine *e, struct p2p_net **out, char *why, size_t size)
{
	const struct ib_verbs *v = ib_verbs_get(why, size);
	struct p2p_net *net;
	int rc;

	if (!v)
		return -ENODEV;
	net = calloc(1, sizeof(*net));
	if (!net)
		return -ENOMEM;
	net->engine = e;
	net->v = v;
	net->strict = e->config.transport == P2P_TRANSPORT_IBRC;
	net->shared = e->config.shared_cq;
	ib_shared_init(net);
	rc = ib_rails_open(net, why, size);
	if (rc) {
		ib_shared_fini(net);
		free(net);
		return rc;
	}
	if (e->config.g.enableDestDeviceAffinity)
		p2p_warn("FLAGCX_P2P_DEST_DEV_AFFINITY=1 is refused: paths join the rails of "
			 "both ends in order, whatever the destination");
	*out = net;
	return 0;
}

static void ib_close(struct p2p_net *net)
{
	ib_shared_fini(net);
	ib_rails_close(net);
	free(net);
}

static size_t ib_slice_limit(const struct p2p_net *net)
{
	return IB_SLICE_MAX;
}

static void ib_describe(struct p2p_conn *c, char *buf, size_t size)
{
	unsigned int up = 0;
	const char *name = "";

	for (unsigned int i = 0; i < c->paths; i++) {
		struct ib_path *p = ib_of(c->path[i]);

		up += ib_is(p, IB_UP) && atomic_load(&p->rail->state) == IB_RAIL_UP;
		name = i && strcmp(name, p->rail->name) ? "several devices" : p->rail->name;
	}
	snprintf(buf, size, "%u of %u queue pairs to %s stand, on %s", up, c->paths, c->peer_ip,
		 name);
}

const struct p2p_net_ops p2p_net_ibrc = {
	.abi = P2P_NET_ABI,
	.name = "ibrc",
	.bit = 2,
	.slot = 0,
	.path_size = sizeof(struct ib_path),
	.open = ib_open,
	.close = ib_close,
	.slice_limit = ib_slice_limit,
	.worker_init = ib_worker_init,
	.worker_exit = ib_worker_exit,
	.path_init = ib_path_init,
	.path_fini = ib_path_fini,
	.path_adopt = ib_adopt,
	.path_start = ib_start,
	.path_stop = ib_stop,
	.path_room = ib_room,
	.path_post = ib_post,
	.path_cancel = ib_cancel,
	.path_borrow = ib_borrow,
	.path_step = ib_step,
	.path_give_back = p2p_net_nosys_give_back,
	.poll = ib_poll,
	.arm = ib_arm,
	.mr_reg = ib_mr_reg,
	.mr_dereg = ib_mr_dereg,
	.mr_keys = ib_mr_keys,
	.describe = ib_describe,
};
