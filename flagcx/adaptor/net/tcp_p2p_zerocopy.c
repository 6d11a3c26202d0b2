// SPDX-License-Identifier: Apache-2.0
/*
 * Sends without a copy (MSG_ZEROCOPY). The kernel reads the memory until it
 * says, on the socket's error queue, that the n-th such send is done. Only
 * bodies in host memory are sent so, never heads or stages, which are used
 * again at once.
 *
 * Whose memory must be waited for: that of an answer to a READ, which stays
 * pinned until then. Not that of a WRITE: its answer says that every byte was
 * applied, so what the kernel might still send is thrown away by the peer's.
 *
 * It pays where a device reads the memory. Between processes of one host the
 * kernel copies in the end, and the accounting comes on top; it says so, and
 * then the path goes back to copying.
 */
#include "tcp_p2p.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

enum { NEVER, WHERE_IT_PAYS, ALWAYS };

void tcp_zc_open(struct tcp_path *p)
{
	int how = p->base.worker->engine->config.zerocopy, on = 1;

	if (how == NEVER || (how == WHERE_IT_PAYS && p->base.conn->local))
		return;
	p->zc = setsockopt(p->fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) == 0;
}

size_t tcp_zc_span(const struct tcp_path *p, const struct tcp_frame *f)
{
	struct tcp_cursor at = f->at;
	size_t span = 0;

	if (!p->zc || f->h.body_len - f->body_sent < TCP_ZC_MIN)
		return 0;
	/* as many places as one send takes */
	for (int n = 0; n < TCP_IOV && at.ext < f->exts; at.ext++, at.off = 0) {
		const struct tcp_ext *x = &f->ext[at.ext];

		if (x->len == at.off)
			continue;
		if (x->device >= 0)
			break;
		span += x->len - at.off;
		n++;
	}
	return span < TCP_ZC_MIN ? 0 : span;
}

static int fill(struct tcp_frame *f, struct iovec *iov)
{
	struct tcp_cursor at = f->at;
	int n = 0;

	for (; n < TCP_IOV && at.ext < f->exts; at.ext++, at.off = 0) {
		struct tcp_ext *x = &f->ext[at.ext];

		if (x->len == at.off)
			continue;
		if (x->device >= 0)
			break;
		iov[n].iov_base = x->ptr + at.off;
		iov[n++].iov_len = x->len - at.off;
	}
	return n;
}

ssize_t tcp_zc_send(struct tcp_path *p, struct tcp_frame *f)
{
	struct iovec iov[TCP_IOV];
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)fill(f, iov) };
	ssize_t n;

	p2p_foreign_begin();
	n = sendmsg(p->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_ZEROCOPY);
	p2p_foreign_end();
	if (n < 0 && errno == ENOBUFS) {
		/* no more memory may be pinned or noted: this one goes as others do */
		p->zc = false;
		n = sendmsg(p->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		return n < 0 ? -errno : n;
	}
	if (n <= 0)
		return n < 0 ? -errno : n;
	if (!f->zc_sends++)
		f->zc_first = p->zc_next;
	f->zc_left++;
	p->zc_next++;
	return n;
}

/* Sends lo to hi are done: how many of them were of f? Numbers wrap. */
static uint32_t common(const struct tcp_frame *f, uint32_t lo, uint32_t hi)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < f->zc_sends; i++)
		n += f->zc_first + i - lo <= hi - lo;
	return n;
}

static void done(struct tcp_path *p, uint32_t lo, uint32_t hi)
{
	struct tcp_fifo keep;
	struct tcp_frame *f;

	for (f = p->tx.first; f; f = f->next)
		f->zc_left -= common(f, lo, hi);
	tcp_fifo_init(&keep);
	while ((f = tcp_fifo_pop(&p->held)) != NULL) {
		f->zc_left -= common(f, lo, hi);
		if (f->zc_left) {
			tcp_fifo_push(&keep, f);
			continue;
		}
		tcp_unpin(f);
		tcp_frame_put(p->tw, f);
	}
	p->held = keep;
	if (!keep.first)
		p->held.last = &p->held.first;
}

void tcp_zc_reap(struct tcp_path *p)
{
	for (;;) {
		union {
			struct cmsghdr align;
			char room[256];
		} control;
		struct msghdr msg = { .msg_control = &control, .msg_controllen = sizeof(control) };
		struct cmsghdr *c;

		if (recvmsg(p->fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
			if (errno == EINTR)
				continue;
			return;
		}
		for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
			struct sock_extended_err e;

			if (!(c->cmsg_level == SOL_IP && c->cmsg_type == IP_RECVERR) &&
			    !(c->cmsg_level == SOL_IPV6 && c->cmsg_type == IPV6_RECVERR))
				continue;
			memcpy(&e, CMSG_DATA(c), sizeof(e));
			if (e.ee_origin != SO_EE_ORIGIN_ZEROCOPY)
				continue;
			done(p, e.ee_info, e.ee_data);
			if (e.ee_code & SO_EE_CODE_ZEROCOPY_COPIED &&
			    p->base.worker->engine->config.zerocopy == WHERE_IT_PAYS)
				p->zc = false;
		}
	}
}
