// SPDX-License-Identifier: Apache-2.0
/*
 * Completion queues. One takes as many queue pairs as it has entries for all
 * their work requests at once, since a queue pair that fails completes every
 * one; then the next is made. They share one channel a rail, which wakes the
 * worker.
 *
 * Each worker has its own or, with FLAGCX_P2P_SHARED_CQ, the engine has them
 * and any worker polls: what is another's goes into that one's inbox, in order,
 * and wakes it. Lock: net->cq_lock guards the shared queues, their channels'
 * state and the inboxes, a leaf.
 */
#include "ibrc_p2p.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ---------------------------------------------------------------------- queues */

static void cq_ack(struct p2p_net *net, struct ib_cq *cq)
{
	if (cq->events)
		net->v->ack_cq_events(cq->cq, cq->events);
	cq->events = 0;
}

static struct p2p_list *cqs_of(struct ib_worker *iw)
{
	return iw->net->shared ? &iw->net->cqs : &iw->cqs;
}

static void cqs_lock(struct ib_worker *iw)
{
	if (iw->net->shared)
		pthread_mutex_lock(&iw->net->cq_lock);
}

static void cqs_unlock(struct ib_worker *iw)
{
	if (iw->net->shared)
		pthread_mutex_unlock(&iw->net->cq_lock);
}

static struct ib_channel *channel_of(struct ib_worker *iw, unsigned int rail)
{
	return iw->net->shared ? &iw->net->channel[rail] : &iw->channel[rail];
}

static int cq_new(struct ib_worker *iw, struct ib_rail *rail, uint32_t least, struct ib_cq **out)
{
	struct ib_channel *ch = channel_of(iw, rail->index);
	uint32_t cap = (uint32_t)iw->w->engine->config.g.sharedCqDepth;
	struct ib_cq *cq;

	cap = P2P_MAX(cap, least);
	if (rail->attr.max_cqe > 0)
		cap = P2P_MIN(cap, (uint32_t)rail->attr.max_cqe);
	if (cap < least)
		return -ENOSPC;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	errno = 0;
	cq->cq = iw->net->v->create_cq(rail->ctx, (int)cap, cq, ch->channel, 0);
	if (!cq->cq) {
		free(cq);
		return errno ? -errno : -ENOMEM;
	}
	cq->rail = rail;
	cq->cap = cap;
	p2p_list_add_tail(cqs_of(iw), &cq->link);
	*out = cq;
	return 0;
}

static int cq_take(struct ib_worker *iw, struct ib_rail *rail, uint32_t n, struct ib_cq **out)
{
	struct p2p_list *all = cqs_of(iw);
	int rc;

	for (struct p2p_list *i = all->next; i != all; i = i->next) {
		struct ib_cq *cq = p2p_list_entry(i, struct ib_cq, link);

		if (cq->rail == rail && cq->cap - cq->used >= n) {
			cq->used += n;
			*out = cq;
			return 0;
		}
	}
	rc = cq_new(iw, rail, n, out);
	if (!rc)
		(*out)->used = n;
	return rc;
}

int ib_cq_take(struct ib_worker *iw, struct ib_rail *rail, uint32_t n, struct ib_cq **out)
{
	int rc;

	cqs_lock(iw);
	rc = cq_take(iw, rail, n, out);
	cqs_unlock(iw);
	return rc;
}

static void cqs_free(struct p2p_net *net, struct p2p_list *all)
{
	while (!p2p_list_empty(all)) {
		struct ib_cq *cq = p2p_list_entry(all->next, struct ib_cq, link);

		p2p_list_del(&cq->link);
		cq_ack(net, cq);
		net->v->destroy_cq(cq->cq);
		free(cq);
	}
}

void ib_cq_give(struct ib_worker *iw, struct ib_cq *cq, uint32_t n)
{
	/* an empty one stays for the next conn: making one takes its time */
	cqs_lock(iw);
	cq->used -= n;
	cqs_unlock(iw);
}

/* ------------------------------------------------------------------ completions */

static int status_errno(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_INV_REQ_ERR:
		return -EACCES;
	case IBV_WC_LOC_PROT_ERR:
	case IBV_WC_LOC_ACCESS_ERR:
		return -EFAULT;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return -ETIMEDOUT;
	case IBV_WC_WR_FLUSH_ERR:
		return -ECANCELED;
	default:
		return -EIO;
	}
}

/* The slice of the oldest work request in flight, out of the ring. */
static struct p2p_slice *oldest(struct ib_path *p)
{
	struct p2p_slice *slice = NULL;

	/* the parts of one slice before its last have none */
	for (uint32_t seq = p->tail; seq != p->head && !slice; seq++) {
		struct ib_entry *e = &p->ring[seq & p->mask];

		slice = e->slice;
		e->slice = NULL;
	}
	return slice;
}

/* The oldest work request has broken the queue pair: the others go again. */
static void broken(struct ib_path *p, uint32_t seq, enum ibv_wc_status status)
{
	int err = status_errno(status);
	bool line = err == -ETIMEDOUT || err == -ECANCELED;
	struct p2p_slice *slice = line ? NULL : oldest(p);

	p2p_info("path %u to %s: %s", p->stream.base.index, p->stream.base.conn->peer_ip,
		 p->iw->net->v->wc_status_str(status));
	ib_undo(p);
	p->tail = seq + 1;
	/* what is wrong with it, if anything, the peer can tell */
	if (slice)
		ib_aside(p, slice);
	ib_qp_fail(p, err, err == -ETIMEDOUT || err == -EIO);
}

static void complete(struct ib_worker *iw, const struct ibv_wc *wc)
{
	uint32_t id = (uint32_t)(wc->wr_id >> 32), seq = (uint32_t)wc->wr_id;
	uint32_t index = IB_ID_INDEX(id);
	struct ib_path *p = index < iw->paths ? iw->path[index] : NULL;

	/* one of a queue pair that is gone */
	if (!p || p->id != id || seq - p->tail >= p->head - p->tail)
		return;
	if (p2p_list_empty(&p->pump))
		p2p_list_add_tail(&iw->pump, &p->pump);
	if (wc->status == IBV_WC_SUCCESS) {
		ib_done(p, seq + 1);
		p->fails = 0;
		p->rest_ms = 0;
		p->alive = true;
	} else {
		/* those before it that said nothing were done */
		ib_done(p, seq);
		if (ib_is(p, IB_UP)) {
			broken(p, seq, wc->status);
			return;
		}
		ib_undo(p);
		p->tail = seq + 1;
	}
	if (p->tail == p->head && ib_is(p, IB_DRAINING))
		ib_qp_later(p);
}

/* Entries of a shared queue into their workers' inboxes; workers: who got some. cq_lock held. */
static int sort_one(struct ib_worker *iw, struct ib_cq *cq, uint32_t *workers)
{
	struct p2p_net *net = iw->net;
	uint32_t most = (uint32_t)iw->w->engine->config.g.batchPollSize;
	int n;

	/* nothing is taken out that might find no room */
	for (unsigned int i = 0; i < P2P_WORKERS_MAX; i++)
		if (net->iw[i])
			most = P2P_MIN(most, IB_INBOX - net->iw[i]->inbox_n);
	n = most ? ibv_poll_cq(cq->cq, (int)most, iw->wc) : 0;
	for (int i = 0; i < n; i++) {
		unsigned int owner = IB_ID_WORKER((uint32_t)(iw->wc[i].wr_id >> 32));
		struct ib_worker *to = net->iw[owner];

		if (!to)
			continue; /* it has ended, and its queue pairs before it */
		to->inbox[(to->inbox_first + to->inbox_n++) % IB_INBOX] = iw->wc[i];
		*workers |= 1u << owner;
	}
	return n;
}

/* Everything in the worker's inbox into its paths; how many. */
static int take_inbox(struct ib_worker *iw)
{
	uint32_t most = (uint32_t)iw->w->engine->config.g.batchPollSize, n;
	int total = 0;

	do {
		pthread_mutex_lock(&iw->net->cq_lock);
		n = P2P_MIN(most, iw->inbox_n);
		for (uint32_t i = 0; i < n; i++)
			iw->wc[i] = iw->inbox[iw->inbox_first++ % IB_INBOX];
		iw->inbox_n -= n;
		pthread_mutex_unlock(&iw->net->cq_lock);
		for (uint32_t i = 0; i < n; i++)
			complete(iw, &iw->wc[i]);
		total += (int)n;
	} while (n);
	return total;
}

/* One shared queue, or NULL: all of them. */
static int poll_shared(struct ib_worker *iw, struct ib_cq *only)
{
	struct p2p_net *net = iw->net;
	uint32_t workers = 0;

	pthread_mutex_lock(&net->cq_lock);
	for (struct p2p_list *i = net->cqs.next; i != &net->cqs; i = i->next) {
		struct ib_cq *cq = p2p_list_entry(i, struct ib_cq, link);
		int total = 0, n;

		if (only ? cq != only : !cq->used)
			continue;
		do {
			n = sort_one(iw, cq, &workers);
			total += n > 0 ? n : 0;
		} while (n > 0 && total < (int)cq->cap);
	}
	pthread_mutex_unlock(&net->cq_lock);
	workers &= ~(1u << iw->w->index);
	for (unsigned int i = 0; workers >> i; i++)
		if (workers >> i & 1)
			p2p_worker_wake(&iw->w->engine->worker[i]);
	return take_inbox(iw);
}

int ib_cq_poll(struct ib_worker *iw, struct ib_cq *cq)
{
	int most = (int)iw->w->engine->config.g.batchPollSize, total = 0, n;

	if (iw->net->shared)
		return poll_shared(iw, cq);

	do {
		n = ibv_poll_cq(cq->cq, most, iw->wc);
		for (int i = 0; i < n; i++)
			complete(iw, &iw->wc[i]);
		total += n > 0 ? n : 0;
	} while (n == most && total < (int)cq->cap);
	return total;
}

static void pump_all(struct ib_worker *iw)
{
	while (!p2p_list_empty(&iw->pump)) {
		struct ib_path *p = p2p_list_entry(iw->pump.next, struct ib_path, pump);

		p2p_list_del(&p->pump);
		ib_pump(p);
		ib_busy(p, p->alive);
		p->alive = false;
	}
}

static int poll_queues(struct ib_worker *iw)
{
	struct p2p_list *i, *next;
	int n = iw->net->shared ? poll_shared(iw, NULL) : 0;

	for (i = iw->cqs.next; i != &iw->cqs; i = next) {
		struct ib_cq *cq = p2p_list_entry(i, struct ib_cq, link);

		next = i->next;
		if (cq->used)
			n += ib_cq_poll(iw, cq);
	}
	pump_all(iw);
	return n;
}

int ib_poll(struct p2p_worker *w)
{
	struct ib_worker *iw = ib_worker_of(w);
	int n = iw->own_stream ? p2p_net_tcp.poll(w) : 0;
	uint64_t now;

	ib_qp_work(iw);
	if (!iw->flying && p2p_list_empty(&iw->pump) && !iw->net->shared)
		return n;
	n += poll_queues(iw);
	if (!iw->flying)
		return n;
	now = p2p_now_ns();
	if (n)
		iw->last_done = now;
	return n || now - iw->last_done < IB_SPIN_NS ? 1 : 0;
}

bool ib_arm(struct p2p_worker *w)
{
	struct ib_worker *iw = ib_worker_of(w);
	bool own = iw->own_stream && p2p_net_tcp.arm(w);
	struct p2p_list *all = cqs_of(iw);

	/* also where nothing flies: a caller may post while the worker sleeps */
	cqs_lock(iw);
	for (struct p2p_list *i = all->next; i != all; i = i->next) {
		struct ib_cq *cq = p2p_list_entry(i, struct ib_cq, link);

		if (!cq->used || cq->armed)
			continue;
		cq_ack(iw->net, cq);
		cq->armed = ibv_req_notify_cq(cq->cq, 0) == 0;
		own |= !cq->armed;
	}
	cqs_unlock(iw);
	/* what came before the request raises no event */
	return poll_queues(iw) > 0 || own || !p2p_list_empty(&iw->later);
}

static void on_channel(struct p2p_source *source, uint32_t events)
{
	struct ib_channel *ch = p2p_container_of(source, struct ib_channel, source);
	struct ibv_cq *raw;
	void *context;

	while (!ch->net->v->get_cq_event(ch->channel, &raw, &context)) {
		struct ib_cq *cq = context;

		if (ch->net->shared)
			pthread_mutex_lock(&ch->net->cq_lock);
		cq->armed = false;
		cq->events++;
		if (ch->net->shared)
			pthread_mutex_unlock(&ch->net->cq_lock);
	}
}

/* -------------------------------------------------------------- callers take part */

/*
 * The worker sleeps with its queues armed, so an event wakes it all the same; it
 * finds the turn taken, and nothing to do after that. Shared queues are for
 * workers: what is another's would wait for the caller.
 */
int ib_borrow(struct p2p_path *path)
{
	return ib_is(ib_of(path), IB_UP) && !ib_of(path)->iw->net->shared ? 0 : -EOPNOTSUPP;
}

int ib_step(struct p2p_path *path)
{
	struct ib_path *p = ib_of(path);

	if (p->cq)
		ib_cq_poll(p->iw, p->cq);
	pump_all(p->iw);
	return p->stream.broken ? -ECONNRESET : 0;
}

/* ----------------------------------------------------------------------- ticks */

void ib_tick_soon(struct ib_worker *iw)
{
	struct itimerspec in = { .it_value = { IB_TICK_MS / 1000, IB_TICK_MS % 1000 * 1000000 } };

	/* one that runs is left alone, so a busy path costs two calls a second */
	if (!iw->ticking)
		iw->ticking = timerfd_settime(iw->tick_fd, 0, &in, NULL) == 0;
}

/*
 * A device says when it gives up on a peer. Some never do: rxe takes seven
 * retries for no end of them, and a peer's queue pair may be in error without
 * a word. A flush that does not come must not keep a path either.
 */
static void on_tick(struct p2p_source *source, uint32_t events)
{
	struct ib_worker *iw = p2p_container_of(source, struct ib_worker, tick);
	uint64_t n;

	if (read(iw->tick_fd, &n, sizeof(n)) != sizeof(n))
		return;
	iw->ticking = false;
	iw->ticks++;
	for (uint32_t i = 0; i < iw->paths; i++) {
		struct ib_path *p = iw->path[i];

		if (!p || p->head == p->tail)
			continue;
		if (ib_is(p, IB_UP) &&
		    iw->ticks - p->moved > iw->patience + p->out_bytes / IB_SLOWEST) {
			p->moved = iw->ticks;
			ib_qp_fail(p, -ETIMEDOUT, true);
		} else if (ib_is(p, IB_DRAINING) &&
			   iw->ticks - p->moved > IB_DRAIN_MS / IB_TICK_MS) {
			ib_qp_drop(p);
		}
	}
	if (iw->flying)
		ib_tick_soon(iw);
}

/* Ticks that a device may need until it gives up, and then some. */
static uint32_t patience(const struct p2p_config *cfg)
{
	uint64_t ms = ((uint64_t)4096 << cfg->ib_timeout) * (uint64_t)(cfg->g.retryCnt + 1) *
		      IB_PATIENCE / P2P_NS_PER_MS;

	return (uint32_t)P2P_MIN(P2P_MAX(ms, IB_DRAIN_MS), 600000u) / IB_TICK_MS + 1;
}

static int tick_open(struct ib_worker *iw)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &iw->tick };

	iw->patience = patience(&iw->w->engine->config);
	iw->tick.event = on_tick;
	iw->tick_fd = p2p_fd_track(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	if (iw->tick_fd < 0 || epoll_ctl(iw->w->epoll, EPOLL_CTL_ADD, iw->tick_fd, &ev))
		return -errno;
	return 0;
}

/* --------------------------------------------------------------- start and end */

static int channel_make(struct p2p_net *net, struct ib_channel *ch, struct ib_rail *rail)
{
	ch->net = net;
	ch->source.event = on_channel;
	errno = 0;
	ch->channel = net->v->create_comp_channel(rail->ctx);
	if (!ch->channel)
		return errno ? -errno : -ENOMEM;
	p2p_fd_track(ch->channel->fd);
	return fcntl(ch->channel->fd, F_SETFL,
		     fcntl(ch->channel->fd, F_GETFL) | O_NONBLOCK) ?
		       -errno :
		       0;
}

static void channel_drop(struct p2p_net *net, struct ib_channel *ch)
{
	if (!ch->channel)
		return;
	p2p_fd_untrack(ch->channel->fd);
	net->v->destroy_comp_channel(ch->channel);
	ch->channel = NULL;
}

static int channel_open(struct ib_worker *iw, struct ib_rail *rail)
{
	struct ib_channel *ch = channel_of(iw, rail->index);
	/* of a shared one, one sleeper is enough */
	struct epoll_event ev = { .events = EPOLLIN | (iw->net->shared ? EPOLLEXCLUSIVE : 0),
				  .data.ptr = &ch->source };
	int rc = ch->channel ? 0 : channel_make(iw->net, ch, rail);

	if (!rc && epoll_ctl(iw->w->epoll, EPOLL_CTL_ADD, ch->channel->fd, &ev))
		rc = -errno;
	return rc;
}

void ib_shared_init(struct p2p_net *net)
{
	p2p_list_init(&net->cqs);
	pthread_mutex_init(&net->cq_lock, NULL);
}

void ib_shared_fini(struct p2p_net *net)
{
	cqs_free(net, &net->cqs);
	for (unsigned int i = 0; i < IB_RAILS_MAX; i++)
		channel_drop(net, &net->channel[i]);
	pthread_mutex_destroy(&net->cq_lock);
}

static void iw_free(struct ib_worker *iw)
{
	if (iw->tick_fd >= 0) {
		epoll_ctl(iw->w->epoll, EPOLL_CTL_DEL, iw->tick_fd, NULL);
		p2p_fd_close(iw->tick_fd);
	}
	pthread_mutex_lock(&iw->net->cq_lock);
	iw->net->iw[iw->w->index] = NULL;
	pthread_mutex_unlock(&iw->net->cq_lock);
	cqs_free(iw->net, &iw->cqs);
	for (unsigned int i = 0; i < iw->net->rails; i++) {
		struct ib_channel *ch = channel_of(iw, i);

		if (ch->channel)
			epoll_ctl(iw->w->epoll, EPOLL_CTL_DEL, ch->channel->fd, NULL);
		channel_drop(iw->net, &iw->channel[i]);
	}
	free(iw->path);
	free(iw->generation);
	free(iw->wr);
	free(iw->sge);
	free(iw->aside[0]);
	free(iw->aside[1]);
	free(iw->wc);
	free(iw->inbox);
	free(iw);
}

static int iw_arrays(struct ib_worker *iw)
{
	const FlagcxP2pGlobalConfig *g = &iw->w->engine->config.g;

	iw->wr = calloc(g->maxWrPerPost, sizeof(*iw->wr));
	iw->sge = calloc(g->maxWrPerPost, sizeof(*iw->sge));
	iw->aside[0] = calloc(g->maxWrPerPost, sizeof(*iw->aside[0]));
	iw->aside[1] = calloc(g->maxWrPerPost, sizeof(*iw->aside[1]));
	iw->wc = calloc(g->batchPollSize, sizeof(*iw->wc));
	if (iw->net->shared) {
		iw->inbox = calloc(IB_INBOX, sizeof(*iw->inbox));
		if (!iw->inbox)
			return -ENOMEM;
	}
	return iw->wr && iw->sge && iw->aside[0] && iw->aside[1] && iw->wc ? 0 : -ENOMEM;
}

int ib_worker_init(struct p2p_net *net, struct p2p_worker *w)
{
	struct ib_worker *iw = calloc(1, sizeof(*iw));
	int rc;

	if (!iw)
		return -ENOMEM;
	iw->w = w;
	iw->net = net;
	iw->tick_fd = -1;
	p2p_list_init(&iw->cqs);
	p2p_list_init(&iw->pump);
	p2p_list_init(&iw->later);
	rc = iw_arrays(iw);
	rc = rc ? rc : tick_open(iw);
	for (unsigned int i = 0; !rc && i < net->rails; i++)
		rc = channel_open(iw, &net->rail[i]);
	if (!rc && w->index == 0)
		rc = ib_rails_watch(net, w);
	iw->own_stream = !w->engine->ops[p2p_net_tcp.slot];
	if (!rc && iw->own_stream)
		rc = p2p_net_tcp.worker_init(NULL, w);
	if (rc) {
		iw_free(iw);
		return rc;
	}
	pthread_mutex_lock(&net->cq_lock);
	net->iw[w->index] = iw;
	pthread_mutex_unlock(&net->cq_lock);
	w->net_ctx[p2p_net_ibrc.slot] = iw;
	return 0;
}

void ib_worker_exit(struct p2p_net *net, struct p2p_worker *w)
{
	struct ib_worker *iw = ib_worker_of(w);

	if (iw->own_stream)
		p2p_net_tcp.worker_exit(NULL, w);
	if (w->index == 0)
		ib_rails_unwatch(net, w);
	iw_free(iw);
}
