// SPDX-License-Identifier: Apache-2.0
/*
 * Receiving. Headers and descriptors are read into rbuf, with a little of
 * what follows; a body is received into its places, with a little of the next
 * header behind it, so that a stream of frames costs about one system call
 * each. Nothing that the peer says is used before it has been checked.
 */
#include "tcp_p2p.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RX_TURN (8u << 20)  /* bytes of one path before others get their turn */
#define RX_AHEAD 2048u      /* bytes read behind a body */
#define RX_IOV 128

/* ------------------------------------------------------------ places of a body */

static void step_over(struct tcp_path *p)
{
	struct tcp_frame *f = p->in;

	while (p->in_at.ext < f->exts && p->in_at.off == f->ext[p->in_at.ext].len)
		p->in_at = (struct tcp_cursor){ p->in_at.ext + 1, 0 };
}

/* Bytes from here on that are for device memory, up to a chunk. */
static uint32_t stage_span(const struct tcp_path *p)
{
	const struct tcp_frame *f = p->in;
	uint32_t span = 0, off = p->in_at.off;

	for (uint32_t i = p->in_at.ext; i < f->exts && span < TCP_STAGE; i++, off = 0) {
		if (!f->ext[i].len)
			continue;
		if (!f->ext[i].ptr || f->ext[i].device < 0)
			break;
		span += P2P_MIN(f->ext[i].len - off, TCP_STAGE - span);
	}
	return span;
}

/*
 * Where the next bytes go. *whole: the vector holds the rest of the body.
 * -ENOMEM: no stage.
 */
static int places(struct tcp_path *p, struct iovec *iov, int max, bool *whole)
{
	struct tcp_frame *f = p->in;
	struct tcp_cursor at;
	uint64_t bytes = 0;
	int n = 0;

	step_over(p);
	at = p->in_at;
	if (!p->rx_stage_len && f->ext[at.ext].ptr && f->ext[at.ext].device >= 0) {
		if (!tcp_stage_get(p, &p->rx_stage))
			return -ENOMEM;
		p->rx_stage_len = stage_span(p);
		p->rx_stage_got = 0;
		p2p_count(p->base.conn->engine, staging_busy, p->rx_stage_len);
	}
	if (p->rx_stage_len) {
		iov[0].iov_base = p->rx_stage + p->rx_stage_got;
		iov[0].iov_len = p->rx_stage_len - p->rx_stage_got;
		*whole = iov[0].iov_len == p->in_left;
		return 1;
	}
	while (n < max && bytes < p->in_left) {
		struct tcp_ext *x = &f->ext[at.ext];
		uint32_t left = x->len - at.off;

		if (left && x->ptr && x->device >= 0)
			break;
		if (left) {
			iov[n].iov_base = x->ptr ? x->ptr + at.off : p->tw->trash;
			iov[n].iov_len = x->ptr ? left : P2P_MIN(left, TCP_TRASH);
			bytes += iov[n].iov_len;
			if (iov[n++].iov_len < left)
				break;
		}
		at = (struct tcp_cursor){ at.ext + 1, 0 };
	}
	*whole = bytes == p->in_left;
	return n;
}

/* A chunk is complete: copy it to the device, past what is not wanted any more. */
static void stage_flush(struct tcp_path *p)
{
	struct p2p_engine *e = p->base.conn->engine;
	uint32_t done = 0;

	while (done < p->rx_stage_len) {
		struct tcp_ext *x = &p->in->ext[p->in_at.ext];
		uint32_t n = P2P_MIN(x->len - p->in_at.off, p->rx_stage_len - done);
		int rc = 0;

		if (n && x->ptr && !x->err)
			rc = p2p_device_write(x->device, x->ptr + p->in_at.off,
					      p->rx_stage + done, n);
		if (rc)
			x->err = (int16_t)rc;
		done += n;
		p->in_at.off += n;
		step_over(p);
	}
	p2p_count(e, staged, done);
	p2p_uncount(e, staging_busy, p->rx_stage_len);
	p->rx_stage_len = 0;
}

/* n bytes have come to the places. */
static void arrived(struct tcp_path *p, size_t n)
{
	p->in_left -= n;
	if (p->rx_stage_len) {
		p->rx_stage_got += (uint32_t)n;
		if (p->rx_stage_got == p->rx_stage_len)
			stage_flush(p);
		return;
	}
	while (n) {
		struct tcp_ext *x;
		uint32_t step;

		step_over(p);
		x = &p->in->ext[p->in_at.ext];
		step = (uint32_t)P2P_MIN(n, x->len - p->in_at.off);
		p->in_at.off += step;
		n -= step;
	}
}

/* --------------------------------------------------- a peer's request comes */

/* Pin what a descriptor names; consecutive ones are often of one region. */
static int pin(struct p2p_engine *e, const struct p2p_frame_desc *d, struct p2p_mr *last,
	       struct p2p_mr **mr)
{
	if (last && last->rid == d->rid && last->rkey == d->rkey && d->addr >= last->base &&
	    d->len <= last->size && d->addr - last->base <= last->size - d->len &&
	    !atomic_load_explicit(&last->gone, memory_order_acquire)) {
		atomic_fetch_add_explicit(&last->pins, 1, memory_order_relaxed);
		*mr = last;
		return 0;
	}
	return p2p_mr_pin_key(&e->mrs, d->rid, d->rkey, d->addr, d->len, mr);
}

/* Resolve a request's descriptors into a frame; *sum: all their bytes. */
static struct tcp_frame *take_request(struct tcp_path *p, const struct p2p_frame_header *h,
				      const uint8_t *meta, uint64_t *sum, int *rc)
{
	struct p2p_engine *e = p->base.conn->engine;
	struct tcp_frame *f = tcp_frame_get(p->tw, h->count);
	struct p2p_mr *last = NULL;

	*rc = -ENOMEM;
	if (!f)
		return NULL;
	f->h = *h;
	f->exts = h->count;
	*sum = 0;
	*rc = 0;
	for (uint32_t i = 0; i < h->count; i++) {
		struct tcp_ext *x = &f->ext[i];
		struct p2p_frame_desc d;
		int err;

		*x = (struct tcp_ext){ .device = -1 };
		err = p2p_frame_desc_decode(meta + i * P2P_FRAME_DESC, &d);
		if (err) {
			*rc = err; /* later exts are not initialised: unpin the earlier only */
			f->exts = i;
			return f;
		}
		x->len = d.len;
		*sum += d.len;
		x->err = (int16_t)pin(e, &d, last, &x->mr);
		if (x->err) {
			p2p_count(e, refused, 1);
			continue;
		}
		last = x->mr;
		x->ptr = (uint8_t *)(uintptr_t)d.addr;
		x->device = (int16_t)x->mr->device;
	}
	return f;
}

void tcp_answer_encode(struct tcp_frame *f, uint8_t type)
{
	uint8_t *at = f->head + P2P_FRAME_HEADER;

	f->h.type = type;
	f->h.bad = 0;
	f->h.body_len = 0;
	for (uint32_t i = 0; i < f->exts; i++) {
		struct tcp_ext *x = &f->ext[i];

		if (!x->err) {
			f->h.body_len += type == P2P_FRAME_READ_RESP ? x->len : 0;
			continue;
		}
		p2p_frame_bad_encode(&(struct p2p_frame_bad){ i, x->err }, at);
		at += P2P_FRAME_BAD;
		f->h.bad++;
		x->len = 0;
	}
	p2p_frame_encode(&f->h, f->head);
	f->head_len = (size_t)(at - f->head);
}

static void write_applied(struct tcp_path *p, struct tcp_frame *f)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < f->exts; i++)
		bytes += f->ext[i].err ? 0 : f->ext[i].len;
	p2p_count(p->base.conn->engine, served_write, bytes);
	tcp_unpin(f);
	tcp_answer_encode(f, P2P_FRAME_WRITE_ACK);
	tcp_tx_push(p, f);
}

static int begin_request(struct tcp_path *p, const struct p2p_frame_header *h,
			 const uint8_t *meta)
{
	uint64_t sum;
	int rc;
	struct tcp_frame *f = take_request(p, h, meta, &sum, &rc);

	if (!f)
		return rc;
	if (!rc && h->type == P2P_FRAME_WRITE && sum != h->body_len)
		rc = -EPROTO;
	if (!rc && (p->tx.count > TCP_FRAMES_MAX || p->reads_owed > 256))
		rc = -EPROTO;
	if (rc) {
		tcp_unpin(f);
		tcp_frame_put(p->tw, f);
		return rc;
	}
	if (h->type == P2P_FRAME_READ) {
		p->reads_owed++;
		tcp_answer_encode(f, P2P_FRAME_READ_RESP);
		tcp_tx_push(p, f);
		return 0;
	}
	p->in = f;
	p->in_left = sum;
	p->in_at = (struct tcp_cursor){ 0, 0 };
	return 0;
}

/* ------------------------------------------------------ an answer comes */

static int begin_answer(struct tcp_path *p, const struct p2p_frame_header *h,
			const uint8_t *meta)
{
	struct tcp_frame *f = p->flight.first;
	uint8_t want = h->type == P2P_FRAME_WRITE_ACK ? P2P_FRAME_WRITE : P2P_FRAME_READ;
	uint32_t min = 0;
	uint64_t body = 0;

	if (!f || f->h.type != want || f->h.seq != h->seq || f->h.count != h->count)
		return -EPROTO;
	for (uint32_t i = 0; i < h->bad; i++) {
		struct p2p_frame_bad b;
		int rc = p2p_frame_bad_decode(meta + i * P2P_FRAME_BAD, min, h->count, &b);

		if (rc)
			return rc;
		f->ext[b.index].err = (int16_t)b.error;
		f->ext[b.index].len = 0;
		min = b.index + 1;
	}
	for (uint32_t i = 0; want == P2P_FRAME_READ && i < f->exts; i++)
		body += f->ext[i].len;
	if (h->body_len != body)
		return -EPROTO;
	tcp_fifo_pop(&p->flight);
	if (!body) {
		tcp_request_end(p, f);
		return 0;
	}
	p->in = f;
	p->in_left = body;
	p->in_at = (struct tcp_cursor){ 0, 0 };
	return 0;
}

static void body_complete(struct tcp_path *p)
{
	struct tcp_frame *f = p->in;

	p->in = NULL;
	if (f->h.type == P2P_FRAME_WRITE)
		write_applied(p, f);
	else
		tcp_request_end(p, f);
}

/* ------------------------------------------------------------- the stream */

static int begin_frame(struct tcp_path *p, const struct p2p_frame_header *h,
		       const uint8_t *meta)
{
	if (h->type == P2P_FRAME_WRITE || h->type == P2P_FRAME_READ)
		return begin_request(p, h, meta);
	if (h->type == P2P_FRAME_NOTE)
		return p->note ? p->note(p, meta) : -EPROTO;
	return begin_answer(p, h, meta);
}

/* Bytes in rbuf that belong to the body go to their places. */
static int body_from_rbuf(struct tcp_path *p)
{
	while (p->in && p->rpos < p->rlen) {
		struct iovec iov[RX_IOV];
		size_t moved = 0;
		bool whole;
		int n = places(p, iov, RX_IOV, &whole);

		if (n < 0)
			return n;
		for (int i = 0; i < n && p->rpos < p->rlen; i++) {
			size_t step = P2P_MIN(iov[i].iov_len, p->rlen - p->rpos);

			p2p_foreign_begin();
			memcpy(iov[i].iov_base, p->rbuf + p->rpos, step);
			p2p_foreign_end();
			p->rpos += step;
			moved += step;
		}
		arrived(p, moved);
		if (!p->in_left)
			body_complete(p);
	}
	return 0;
}

/* Room in rbuf for need bytes from rpos on. */
static int rbuf_reserve(struct tcp_path *p, size_t need)
{
	uint8_t *bigger;

	if (p->rpos) {
		memmove(p->rbuf, p->rbuf + p->rpos, p->rlen - p->rpos);
		p->rlen -= p->rpos;
		p->rpos = 0;
	}
	if (need <= p->rcap)
		return 0;
	bigger = realloc(p->rbuf, need);
	if (!bigger)
		return -ENOMEM;
	p->rbuf = bigger;
	p->rcap = need;
	return 0;
}

/* Go through what is in rbuf. 0: more is needed; -errno breaks the stream. */
static int parse(struct tcp_path *p)
{
	for (;;) {
		struct p2p_frame_header h;
		size_t need;
		int rc = body_from_rbuf(p);

		if (rc || p->in)
			return rc;
		if (p->rlen - p->rpos < P2P_FRAME_HEADER)
			return rbuf_reserve(p, P2P_FRAME_HEADER);
		rc = p2p_frame_decode(p->rbuf + p->rpos, &h);
		if (rc)
			return rc;
		need = P2P_FRAME_HEADER + p2p_frame_meta(&h);
		if (p->rlen - p->rpos < need)
			return rbuf_reserve(p, need);
		rc = begin_frame(p, &h, p->rbuf + p->rpos + P2P_FRAME_HEADER);
		if (rc)
			return rc;
		p->rpos += need;
	}
}

/*
 * The kernel could not store into the place at the cursor: its memory is gone.
 * Refuse that piece and go on, the stream is whole.
 */
static void place_faulted(struct tcp_path *p)
{
	struct tcp_ext *x;

	step_over(p);
	x = &p->in->ext[p->in_at.ext];
	x->ptr = NULL;
	x->err = -EFAULT;
}

/* One recvmsg: bytes, 0 at the end, -errno. *full: all that was asked for came. */
static ssize_t receive(struct tcp_path *p, bool *full)
{
	struct iovec iov[RX_IOV + 1];
	struct msghdr msg = { .msg_iov = iov };
	size_t body = 0, ask = 0, ahead = 0;
	bool whole = true;
	ssize_t got;
	int n = 0;

	if (p->in) {
		n = places(p, iov, RX_IOV, &whole);
		if (n < 0)
			return n;
		for (int i = 0; i < n; i++)
			body += iov[i].iov_len;
		p->rpos = p->rlen = 0; /* a body is only waited for with rbuf used up */
	}
	if (whole) {
		ahead = p->rcap - p->rlen;
		if (p->in)
			ahead = P2P_MIN(ahead, RX_AHEAD);
		iov[n].iov_base = p->rbuf + p->rlen;
		iov[n++].iov_len = ahead;
	}
	ask = body + ahead;
	msg.msg_iovlen = (size_t)n;
	p2p_foreign_begin();
	do
		got = recvmsg(p->fd, &msg, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	p2p_foreign_end();
	if (got < 0)
		return -errno;
	*full = (size_t)got == ask;
	if (p->in && got) {
		arrived(p, P2P_MIN((size_t)got, body));
		if (!p->in_left)
			body_complete(p);
	}
	if ((size_t)got > body)
		p->rlen += (size_t)got - body;
	return got;
}

bool tcp_rx_turn(struct tcp_path *p)
{
	size_t budget = RX_TURN;

	while (!p->broken) {
		bool full = false;
		ssize_t got = receive(p, &full);
		int rc;

		if (got == -EAGAIN)
			return false;
		if (got == -EFAULT && p->in && !p->rx_stage_len) {
			place_faulted(p);
			continue;
		}
		rc = got == 0 ? -ECONNRESET : got < 0 ? (int)got : parse(p);
		if (rc) {
			tcp_break(p, rc);
			return false;
		}
		tcp_progress(p, true);
		/* a short count: the socket is empty and an edge will come, unless the end came */
		if (!full && !p->hup)
			return false;
		if ((size_t)got >= budget)
			return true;
		budget -= (size_t)got;
	}
	return false;
}

void tcp_rx_cancel(struct tcp_path *p, struct p2p_task *task)
{
	struct tcp_frame *f = p->in;

	for (uint32_t i = 0; f && i < f->exts; i++) {
		struct tcp_ext *x = &f->ext[i];

		if (!x->slice || x->slice->task != task)
			continue;
		x->ptr = NULL;
		p2p_uncount(p->base.conn->engine, posted, 1);
		p2p_task_fail(x->slice, 1, -ECANCELED);
		x->slice = NULL;
	}
}
