// SPDX-License-Identifier: Apache-2.0
/*
 * Sending: frames in order, as many at once as one sendmsg takes. What the
 * socket does not take waits for its edge-triggered event.
 */
#include "tcp_p2p.h"

#include <sys/socket.h>

#define TX_BATCH (2u << 20) /* about the most bytes given to one sendmsg */

static int opcode_of(const struct tcp_frame *f)
{
	return f->h.type == P2P_FRAME_READ ? FLAGCX_SLICE_OP_READ : FLAGCX_SLICE_OP_WRITE;
}

static bool is_request(const struct tcp_frame *f)
{
	return f->h.type == P2P_FRAME_WRITE || f->h.type == P2P_FRAME_READ;
}

static uint64_t body_of(const struct tcp_frame *f)
{
	return f->h.body_len;
}

void tcp_tx_push(struct tcp_path *p, struct tcp_frame *f)
{
	f->head_sent = 0;
	f->body_sent = 0;
	f->at = (struct tcp_cursor){ 0, 0 };
	f->zc_sends = f->zc_left = 0;
	if (is_request(f))
		p->unsent[opcode_of(f)] += body_of(f);
	tcp_fifo_push(&p->tx, f);
}

/* Copy device bytes from a place of f's body into the stage; -errno. */
static int stage_fill(struct tcp_path *p, struct tcp_frame *f, struct tcp_cursor at,
		      uint64_t pos)
{
	uint8_t *stage = tcp_stage_get(p, &p->tx_stage);
	uint32_t got = 0;

	if (!stage)
		return -ENOMEM;
	while (got < TCP_STAGE && at.ext < f->exts) {
		struct tcp_ext *x = &f->ext[at.ext];
		uint32_t n = P2P_MIN(x->len - at.off, TCP_STAGE - got);
		int rc;

		if (n && x->device < 0)
			break;
		rc = n ? p2p_device_read(x->device, stage + got, x->ptr + at.off, n) : 0;
		if (rc)
			return rc;
		got += n;
		at.off += n;
		if (at.off == x->len)
			at = (struct tcp_cursor){ at.ext + 1, 0 };
	}
	p->tx_staged = f;
	p->tx_stage_pos = pos;
	p->tx_stage_len = got;
	p2p_count(p->base.conn->engine, staged, got);
	p2p_count(p->base.conn->engine, staging_busy, got);
	return 0;
}

static void stage_free(struct tcp_path *p)
{
	p2p_uncount(p->base.conn->engine, staging_busy, p->tx_stage_len);
	p->tx_staged = NULL;
	p->tx_stage_len = 0;
}

struct gather {
	struct iovec iov[TCP_IOV];
	int n;
	size_t bytes;
};

static void gather_add(struct gather *g, void *ptr, size_t len)
{
	g->iov[g->n].iov_base = ptr;
	g->iov[g->n].iov_len = len;
	g->n++;
	g->bytes += len;
}

/* Add f's unsent body. 1: all of it; 0: what fits; -errno of the device. */
static int gather_body(struct tcp_path *p, struct tcp_frame *f, struct gather *g)
{
	struct tcp_cursor at = f->at;
	uint64_t pos = f->body_sent;

	while (pos < body_of(f)) {
		struct tcp_ext *x = &f->ext[at.ext];
		uint32_t left = x->len - at.off;
		/* a refused piece has no place and no length */
		uint8_t *from = left ? x->ptr + at.off : NULL;

		if (left && x->device >= 0) {
			uint64_t into;
			int rc = p->tx_staged ? 0 : stage_fill(p, f, at, pos);

			if (rc)
				return rc;
			into = pos - p->tx_stage_pos;
			if (p->tx_staged != f || pos < p->tx_stage_pos || into >= p->tx_stage_len)
				return 0;
			left = (uint32_t)P2P_MIN(left, p->tx_stage_len - into);
			from = p->tx_stage + into;
		}
		if (left) {
			if (g->n == TCP_IOV || g->bytes >= TX_BATCH)
				return 0;
			gather_add(g, from, left);
		}
		pos += left;
		at.off += left;
		if (at.off == x->len)
			at = (struct tcp_cursor){ at.ext + 1, 0 };
	}
	return 1;
}

/* A frame of which nothing was sent cannot be: end it another way. */
static void give_up(struct tcp_path *p, struct tcp_frame *prev, struct tcp_frame *f, int err)
{
	if (f->h.type == P2P_FRAME_READ_RESP) {
		for (uint32_t i = 0; i < f->exts; i++)
			f->ext[i].err = (int16_t)err;
		tcp_answer_encode(f, P2P_FRAME_READ_RESP);
		return;
	}
	if (prev)
		prev->next = f->next;
	else
		p->tx.first = f->next;
	if (!f->next)
		p->tx.last = prev ? &prev->next : &p->tx.first;
	p->tx.count--;
	p->unsent[opcode_of(f)] -= body_of(f);
	tcp_request_fail(p, f, err);
}

/* Collect what is to be sent next; -errno breaks the stream. */
static int gather(struct tcp_path *p, struct gather *g)
{
	struct tcp_frame *f, *prev = NULL, *next;

	for (f = p->tx.first; f; f = next) {
		int had = g->n;
		size_t had_bytes = g->bytes;
		int rc;

		next = f->next;
		if (g->n == TCP_IOV || g->bytes >= TX_BATCH)
			return 0;
		if (tcp_zc_span(p, f)) { /* its head goes now, its body by itself */
			if (f->head_sent < f->head_len)
				gather_add(g, f->head + f->head_sent, f->head_len - f->head_sent);
			return 0;
		}
		if (f->head_sent < f->head_len)
			gather_add(g, f->head + f->head_sent, f->head_len - f->head_sent);
		rc = gather_body(p, f, g);
		if (rc < 0) {
			if (f->head_sent)
				return rc;
			g->n = had;
			g->bytes = had_bytes;
			give_up(p, prev, f, rc);
			/* a refusal goes out in its place; a dropped request is gone */
			next = prev ? prev->next : p->tx.first;
			continue;
		}
		if (!rc)
			return 0;
		prev = f;
	}
	return 0;
}

static void advance_body(struct tcp_frame *f, size_t n)
{
	f->body_sent += n;
	while (n) {
		struct tcp_ext *x = &f->ext[f->at.ext];
		uint32_t step = (uint32_t)P2P_MIN(n, x->len - f->at.off);

		n -= step;
		f->at.off += step;
		if (f->at.off == x->len)
			f->at = (struct tcp_cursor){ f->at.ext + 1, 0 };
	}
}

/* The frame is sent: a request waits for its answer, an answer is done with. */
static void sent(struct tcp_path *p, struct tcp_frame *f)
{
	struct p2p_engine *e = p->base.conn->engine;

	if (is_request(f)) {
		p->unsent[opcode_of(f)] -= body_of(f);
		tcp_fifo_push(&p->flight, f);
		return;
	}
	if (f->h.type == P2P_FRAME_READ_RESP) {
		p2p_count(e, served_read, f->h.body_len);
		p->reads_owed--;
	}
	if (f->zc_left) { /* pinned until the kernel has let go of it */
		tcp_fifo_push(&p->held, f);
		return;
	}
	tcp_unpin(f);
	tcp_frame_put(p->tw, f);
}

static void advance(struct tcp_path *p, size_t n)
{
	while (n) {
		struct tcp_frame *f = p->tx.first;
		size_t head = P2P_MIN(n, f->head_len - f->head_sent);
		size_t body = (size_t)P2P_MIN(n - head, body_of(f) - f->body_sent);

		f->head_sent += head;
		advance_body(f, body);
		n -= head + body;
		if (p->tx_staged == f && f->body_sent >= p->tx_stage_pos + p->tx_stage_len)
			stage_free(p);
		if (f->head_sent == f->head_len && f->body_sent == body_of(f))
			sent(p, tcp_fifo_pop(&p->tx));
	}
}

/* One send; the bytes wanted and sent, 0: nothing is left to send; -errno. */
static ssize_t send_some(struct tcp_path *p, size_t *want)
{
	struct tcp_frame *first = p->tx.first;
	struct gather g = { .n = 0 };
	struct msghdr msg = { .msg_iov = g.iov };
	ssize_t n;
	int rc;

	if (first->head_sent == first->head_len) {
		*want = tcp_zc_span(p, first);
		if (*want)
			return tcp_zc_send(p, first);
	}
	rc = gather(p, &g);
	*want = g.bytes;
	if (rc || !g.n)
		return rc; /* what was there has been given up */
	msg.msg_iovlen = (size_t)g.n;
	p2p_foreign_begin();
	n = sendmsg(p->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	p2p_foreign_end();
	return n < 0 ? -errno : n;
}

void tcp_tx_flush(struct tcp_path *p)
{
	while (p->writable && p->tx.first) {
		size_t want;
		ssize_t n = send_some(p, &want);

		if (n == -EINTR)
			continue;
		if (n < 0) {
			if (n != -EAGAIN)
				tcp_break(p, (int)n);
			else
				tcp_await_room(p);
			return;
		}
		if (!want)
			continue;
		advance(p, (size_t)n);
		tcp_progress(p, false);
		/* a short count: the buffer is full and an edge will come */
		if ((size_t)n < want)
			tcp_await_room(p);
	}
}
