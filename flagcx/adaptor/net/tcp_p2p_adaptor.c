// SPDX-License-Identifier: Apache-2.0
/* The TCP transport's table: life of a path, posting, events, cancelling. */
#include "tcp_p2p.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define RBUF 8192u
#define READ_AHEAD_BYTES (8u << 20)  /* asked for on a path and not come */
#define WRITE_AHEAD_BYTES (16u << 20) /* sent on a path and not answered */

/* ------------------------------------------------------------------- frames */

static const uint32_t class_exts[TCP_CLASSES] = { 8, 64, 256, P2P_FRAME_SLICES };
static const uint32_t class_keep[TCP_CLASSES] = { 64, 64, 16, 4 };

struct tcp_frame *tcp_frame_get(struct tcp_worker *tw, uint32_t exts)
{
	struct tcp_frame *f;
	uint8_t class = 0;
	size_t cap;

	while (class_exts[class] < exts)
		class ++;
	f = tw->free[class];
	if (f) {
		tw->free[class] = f->next;
		tw->frees[class]--;
		return f;
	}
	cap = class_exts[class];
	f = malloc(sizeof(*f) + cap * sizeof(struct tcp_ext) + P2P_FRAME_HEADER +
		   cap * P2P_FRAME_DESC);
	if (!f)
		return NULL;
	f->class = class;
	f->ext = (struct tcp_ext *)(f + 1);
	f->head = (uint8_t *)(f->ext + cap);
	return f;
}

void tcp_frame_put(struct tcp_worker *tw, struct tcp_frame *f)
{
	if (tw->frees[f->class] == class_keep[f->class]) {
		free(f);
		return;
	}
	f->next = tw->free[f->class];
	tw->free[f->class] = f;
	tw->frees[f->class]++;
}

void tcp_unpin(struct tcp_frame *f)
{
	for (uint32_t i = 0; i < f->exts; i++) {
		if (f->ext[i].mr)
			p2p_mr_unpin(f->ext[i].mr);
		f->ext[i].mr = NULL;
	}
}

uint8_t *tcp_stage_get(struct tcp_path *p, uint8_t **stage)
{
	if (!*stage)
		*stage = malloc(TCP_STAGE);
	return *stage;
}

void tcp_break(struct tcp_path *p, int err)
{
	p->broken = true;
	p->writable = false;
	p2p_conn_break(p->base.conn, err);
}

void tcp_progress(struct tcp_path *p, bool heard)
{
	struct timespec ts;
	uint64_t now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
	now = (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
	if (heard)
		atomic_store_explicit(&p->base.conn->last_data, now, memory_order_relaxed);
	atomic_store_explicit(&p->base.busy_since,
			      p->tx.first || p->flight.first || p->other_work ? now : 0,
			      memory_order_relaxed);
}

/* ---------------------------------------------------------------- requests */

static int opcode_of(const struct tcp_frame *f)
{
	return f->h.type == P2P_FRAME_READ ? FLAGCX_SLICE_OP_READ : FLAGCX_SLICE_OP_WRITE;
}

/* Descriptors of the frame's slices into its head, and the sums. */
static void request_encode(struct tcp_frame *f)
{
	uint8_t *at = f->head + P2P_FRAME_HEADER;

	f->bytes = 0;
	for (uint32_t i = 0; i < f->exts; i++, at += P2P_FRAME_DESC) {
		const struct p2p_slice *s = f->ext[i].slice;

		p2p_frame_desc_encode(&(struct p2p_frame_desc){ s->remote_va, s->length, s->rkey,
								s->rid },
				      at);
		f->bytes += s->length;
	}
	f->h.count = (uint16_t)f->exts;
	f->h.bad = 0;
	f->h.body_len = f->h.type == P2P_FRAME_WRITE ? f->bytes : 0;
	p2p_frame_encode(&f->h, f->head);
	f->head_len = (size_t)(at - f->head);
}

static void forget(struct tcp_path *p, struct tcp_frame *f)
{
	p->out_bytes[opcode_of(f)] -= f->bytes;
	p->out_frames[opcode_of(f)]--;
	tcp_frame_put(p->tw, f);
}

static void run_end(struct p2p_task *task, uint64_t n, uint64_t bytes)
{
	if (n)
		p2p_task_done(task, n, bytes);
}

void tcp_request_end(struct tcp_path *p, struct tcp_frame *f)
{
	struct p2p_task *task = NULL;
	uint64_t n = 0, bytes = 0, ended = 0;

	for (uint32_t i = 0; i < f->exts; i++)
		ended += f->ext[i].slice != NULL;
	p2p_uncount(p->base.conn->engine, posted, ended);
	for (uint32_t i = 0; i < f->exts; i++) {
		struct p2p_slice *s = f->ext[i].slice;

		if (!s)
			continue;
		if (f->ext[i].err) {
			p2p_task_fail(s, 1, f->ext[i].err);
			continue;
		}
		/* a run of one task is counted at once; its last slice is still ours till then */
		if (s->task != task) {
			run_end(task, n, bytes);
			task = s->task;
			n = bytes = 0;
		}
		n++;
		bytes += s->length;
	}
	run_end(task, n, bytes);
	forget(p, f);
}

void tcp_request_fail(struct tcp_path *p, struct tcp_frame *f, int err)
{
	for (uint32_t i = 0; i < f->exts; i++)
		f->ext[i].err = (int16_t)err;
	tcp_request_end(p, f);
}

static size_t tcp_room(struct p2p_path *path, int opcode, unsigned int *slices)
{
	struct tcp_path *p = tcp_of(path);
	const FlagcxP2pGlobalConfig *g = &path->worker->engine->config.g;
	uint32_t frames = (uint32_t)g->maxRequests / path->conn->paths;

	if (p->broken)
		return 0;
	if (opcode == FLAGCX_SLICE_OP_READ)
		return p->out_frames[opcode] < g->readBatchWindow &&
				       p->out_bytes[opcode] < READ_AHEAD_BYTES
			       ? TCP_SLICE_MAX
			       : 0;
	return p->unsent[opcode] < TCP_SLICE_MAX && p->out_frames[opcode] < P2P_MAX(frames, 1u) &&
			       p->out_bytes[opcode] < WRITE_AHEAD_BYTES
		       ? TCP_SLICE_MAX
		       : 0;
}

static void tcp_post(struct p2p_path *path, int opcode, struct p2p_slice **slice, unsigned int n)
{
	struct tcp_path *p = tcp_of(path);
	struct tcp_frame *f = tcp_frame_get(p->tw, n);

	if (!f) {
		p2p_uncount(path->conn->engine, posted, n);
		for (unsigned int i = 0; i < n; i++)
			p2p_task_fail(slice[i], 1, -ENOMEM);
		return;
	}
	f->h.type = opcode == FLAGCX_SLICE_OP_READ ? P2P_FRAME_READ : P2P_FRAME_WRITE;
	f->h.seq = p->seq++;
	f->exts = n;
	for (unsigned int i = 0; i < n; i++)
		f->ext[i] = (struct tcp_ext){
			.ptr = (uint8_t *)(uintptr_t)slice[i]->local_va,
			.len = slice[i]->length,
			.device = slice[i]->device,
			.slice = slice[i],
		};
	request_encode(f);
	p->out_bytes[opcode] += f->bytes;
	p->out_frames[opcode]++;
	tcp_tx_push(p, f);
	tcp_progress(p, false);
	tcp_tx_flush(p);
}

int tcp_note(struct tcp_path *p, const uint8_t *note)
{
	struct tcp_frame *f = tcp_frame_get(p->tw, P2P_FRAME_NOTE_SIZE / P2P_FRAME_DESC + 1);

	if (!f)
		return -ENOMEM;
	f->h = (struct p2p_frame_header){ .type = P2P_FRAME_NOTE, .count = 1 };
	f->exts = 0;
	f->bytes = 0;
	p2p_frame_encode(&f->h, f->head);
	memcpy(f->head + P2P_FRAME_HEADER, note, P2P_FRAME_NOTE_SIZE);
	f->head_len = P2P_FRAME_HEADER + P2P_FRAME_NOTE_SIZE;
	tcp_tx_push(p, f);
	tcp_progress(p, false);
	tcp_tx_flush(p);
	return 0;
}

/* ------------------------------------------------------------------- cancel */

/* End the task's slices in a request that the peer may have seen. */
static void drop_slices(struct tcp_path *p, struct tcp_frame *f, struct p2p_task *task)
{
	for (uint32_t i = 0; i < f->exts; i++) {
		struct tcp_ext *x = &f->ext[i];

		if (!x->slice || x->slice->task != task)
			continue;
		x->ptr = NULL; /* what the peer sends for it is thrown away */
		p2p_uncount(p->base.conn->engine, posted, 1);
		p2p_task_fail(x->slice, 1, -ECANCELED);
		x->slice = NULL;
	}
}

/* The same in one that has not started: it shrinks. False: nothing is left. */
static bool shrink(struct tcp_path *p, struct tcp_frame *f, struct p2p_task *task)
{
	int op = opcode_of(f);
	uint32_t kept = 0;

	p->unsent[op] -= f->h.body_len;
	p->out_bytes[op] -= f->bytes;
	drop_slices(p, f, task);
	for (uint32_t i = 0; i < f->exts; i++)
		if (f->ext[i].slice)
			f->ext[kept++] = f->ext[i];
	f->exts = kept;
	request_encode(f);
	p->unsent[op] += f->h.body_len;
	p->out_bytes[op] += f->bytes;
	return kept > 0;
}

static void tcp_cancel(struct p2p_path *path, struct p2p_task *task)
{
	struct tcp_path *p = tcp_of(path);
	struct tcp_fifo keep;
	struct tcp_frame *f;

	tcp_rx_cancel(p, task);
	for (f = p->flight.first; f; f = f->next)
		if (f->h.type == P2P_FRAME_READ)
			drop_slices(p, f, task);
	tcp_fifo_init(&keep);
	while ((f = tcp_fifo_pop(&p->tx)) != NULL) {
		bool request = f->h.type == P2P_FRAME_WRITE || f->h.type == P2P_FRAME_READ;

		if (request && !f->head_sent && p->tx_staged != f) {
			if (!shrink(p, f, task)) {
				forget(p, f);
				continue;
			}
		} else if (f->h.type == P2P_FRAME_READ) {
			drop_slices(p, f, task);
		}
		/* a write under way ends with its answer, soon: its bytes are promised */
		tcp_fifo_push(&keep, f);
	}
	p->tx = keep;
	if (!keep.first)
		p->tx.last = &p->tx.first;
}

/* --------------------------------------------------------------------- path */

static int tcp_path_init(struct p2p_path *path)
{
	struct tcp_path *p = tcp_of(path);

	p->fd = -1;
	p2p_list_init(&p->ready);
	tcp_fifo_init(&p->tx);
	tcp_fifo_init(&p->flight);
	tcp_fifo_init(&p->held);
	p->rbuf = malloc(RBUF);
	p->rcap = RBUF;
	return p->rbuf ? 0 : -ENOMEM;
}

/* Everything that belongs to the worker went with stop. */
static void tcp_path_fini(struct p2p_path *path)
{
	struct tcp_path *p = tcp_of(path);

	if (p->fd >= 0)
		p2p_fd_close(p->fd);
	free(p->rbuf);
	free(p->rx_stage);
	free(p->tx_stage);
}

static int tcp_adopt(struct p2p_path *path, int fd)
{
	struct tcp_path *p = tcp_of(path);
	int on = 1;

	if (p->fd >= 0)
		return -EALREADY;
	if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		return -errno;
	p->fd = fd;
	return 0;
}

static void on_event(struct p2p_source *source, uint32_t events)
{
	struct tcp_path *p = p2p_container_of(source, struct tcp_path, source);

	if (p->broken)
		return;
	if (events & EPOLLERR && p->zc_next)
		tcp_zc_reap(p); /* an error comes with EPOLLHUP beside */
	else if (events & EPOLLERR)
		p->hup = true;
	if (events & (EPOLLRDHUP | EPOLLHUP))
		p->hup = true;
	if (events & EPOLLOUT)
		p->writable = true;
	if (events & ~(uint32_t)EPOLLOUT && tcp_rx_turn(p) && p2p_list_empty(&p->ready))
		p2p_list_add_tail(&p->tw->ready, &p->ready);
	tcp_tx_flush(p);
}

/* What the path waits for; what is there already raises an event again. */
static int ask_events(struct tcp_path *p, int op)
{
	struct epoll_event ev = { .events = EPOLLET, .data.ptr = &p->source };

	p->awaits_room = !p->writable;
	if (!p->borrowed)
		ev.events |= EPOLLIN | EPOLLRDHUP | (p->awaits_room ? EPOLLOUT : 0);
	return epoll_ctl(p->base.worker->epoll, op, p->fd, &ev) ? -errno : 0;
}

void tcp_await_room(struct tcp_path *p)
{
	int rc;

	p->writable = false;
	if (p->borrowed || p->awaits_room)
		return;
	rc = ask_events(p, EPOLL_CTL_MOD);
	if (rc)
		tcp_break(p, rc);
}

static int tcp_start(struct p2p_path *path)
{
	struct tcp_path *p = tcp_of(path);

	p->tw = path->worker->net_ctx[p2p_net_tcp.slot];
	p->source.event = on_event;
	tcp_zc_open(p);
	return ask_events(p, EPOLL_CTL_ADD);
}

static int tcp_borrow(struct p2p_path *path)
{
	struct tcp_path *p = tcp_of(path);
	int rc;

	if (p->broken)
		return -EPIPE;
	p->borrowed = true;
	rc = ask_events(p, EPOLL_CTL_MOD);
	if (rc)
		p->borrowed = false;
	return rc;
}

static int tcp_step(struct p2p_path *path)
{
	struct tcp_path *p = tcp_of(path);

	tcp_rx_turn(p);
	if (!p->writable)
		p->writable = !p->broken; /* nobody tells: try */
	tcp_tx_flush(p);
	return p->broken ? -EPIPE : 0;
}

static void tcp_give_back(struct p2p_path *path)
{
	struct tcp_path *p = tcp_of(path);
	int rc;

	p->borrowed = false;
	rc = p->broken ? 0 : ask_events(p, EPOLL_CTL_MOD);
	if (rc)
		tcp_break(p, rc);
}

static void end_frame(struct tcp_path *p, struct tcp_frame *f, bool ours, int err)
{
	if (ours) {
		tcp_request_fail(p, f, err);
		return;
	}
	tcp_unpin(f);
	tcp_frame_put(p->tw, f);
}

static void tcp_stop(struct p2p_path *path, int err)
{
	struct tcp_path *p = tcp_of(path);
	struct p2p_engine *e = path->worker->engine;
	struct sockaddr nobody = { .sa_family = AF_UNSPEC };
	struct tcp_frame *f;

	p->broken = true;
	p2p_list_del(&p->ready);
	/*
	 * A reset: nothing queued in the kernel reaches the peer's memory any more.
	 * A close alone would not do either while a fork has the descriptor, too.
	 */
	epoll_ctl(path->worker->epoll, EPOLL_CTL_DEL, p->fd, NULL);
	connect(p->fd, &nobody, sizeof(nobody));
	p2p_fd_close(p->fd);
	p->fd = -1;
	/* before a transfer ends: who waits for that finds every gauge at 0 */
	p2p_uncount(e, staging_busy, p->rx_stage_len + p->tx_stage_len);
	p->rx_stage_len = p->tx_stage_len = 0;
	p->tx_staged = NULL;
	if (p->in)
		end_frame(p, p->in, p->in->h.type == P2P_FRAME_READ, err);
	p->in = NULL;
	while ((f = tcp_fifo_pop(&p->held)) != NULL)
		end_frame(p, f, false, err); /* the reset took them out of the kernel's hands */
	while ((f = tcp_fifo_pop(&p->flight)) != NULL)
		end_frame(p, f, true, err);
	while ((f = tcp_fifo_pop(&p->tx)) != NULL)
		end_frame(p, f, f->h.type == P2P_FRAME_WRITE || f->h.type == P2P_FRAME_READ, err);
	atomic_store(&path->busy_since, 0);
}

/* ------------------------------------------------------- worker and transport */

static int tcp_poll(struct p2p_worker *w)
{
	struct tcp_worker *tw = w->net_ctx[p2p_net_tcp.slot];
	struct p2p_list turn;
	int n = 0;

	p2p_list_init(&turn);
	p2p_list_splice_tail(&turn, &tw->ready);
	while (!p2p_list_empty(&turn)) {
		struct tcp_path *p = p2p_list_entry(turn.next, struct tcp_path, ready);

		p2p_list_del(&p->ready);
		if (tcp_rx_turn(p))
			p2p_list_add_tail(&tw->ready, &p->ready);
		tcp_tx_flush(p);
		n++;
	}
	return n;
}

static bool tcp_arm(struct p2p_worker *w)
{
	struct tcp_worker *tw = w->net_ctx[p2p_net_tcp.slot];

	return !p2p_list_empty(&tw->ready);
}

static int tcp_worker_init(struct p2p_net *net, struct p2p_worker *w)
{
	struct tcp_worker *tw = calloc(1, sizeof(*tw));

	if (!tw)
		return -ENOMEM;
	tw->trash = malloc(TCP_TRASH);
	if (!tw->trash) {
		free(tw);
		return -ENOMEM;
	}
	p2p_list_init(&tw->ready);
	w->net_ctx[p2p_net_tcp.slot] = tw;
	return 0;
}

static void tcp_worker_exit(struct p2p_net *net, struct p2p_worker *w)
{
	struct tcp_worker *tw = w->net_ctx[p2p_net_tcp.slot];
	struct tcp_frame *f;

	for (int i = 0; i < TCP_CLASSES; i++)
		while ((f = tw->free[i]) != NULL) {
			tw->free[i] = f->next;
			free(f);
		}
	free(tw->trash);
	free(tw);
}

static int tcp_open(struct p2p_engine *e, struct p2p_net **net, char *why, size_t size)
{
	*net = NULL; /* nothing to keep beside the workers' state */
	snprintf(why, size, "streams from %s", e->ip);
	return 0;
}

static void tcp_close(struct p2p_net *net)
{
}

static size_t tcp_slice_limit(const struct p2p_net *net)
{
	return TCP_SLICE_MAX;
}

static void tcp_describe(struct p2p_conn *c, char *buf, size_t size)
{
	snprintf(buf, size, "%u streams to %s", c->paths, c->peer_ip);
}

const struct p2p_net_ops p2p_net_tcp = {
	.abi = P2P_NET_ABI,
	.name = "tcp",
	.bit = 1,
	.slot = 1,
	.path_size = sizeof(struct tcp_path),
	.open = tcp_open,
	.close = tcp_close,
	.slice_limit = tcp_slice_limit,
	.worker_init = tcp_worker_init,
	.worker_exit = tcp_worker_exit,
	.path_init = tcp_path_init,
	.path_fini = tcp_path_fini,
	.path_adopt = tcp_adopt,
	.path_start = tcp_start,
	.path_stop = tcp_stop,
	.path_room = tcp_room,
	.path_post = tcp_post,
	.path_cancel = tcp_cancel,
	.path_borrow = tcp_borrow,
	.path_step = tcp_step,
	.path_give_back = tcp_give_back,
	.poll = tcp_poll,
	.arm = tcp_arm,
	.mr_reg = p2p_net_nosys_reg,
	.mr_dereg = p2p_net_nosys_dereg,
	.mr_keys = p2p_net_nosys_keys,
	.describe = tcp_describe,
};
