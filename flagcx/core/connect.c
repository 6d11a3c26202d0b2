// SPDX-License-Identifier: Apache-2.0
/*
 * Connecting: resolve, dial, greet, bring every path, wait for READY. Runs in
 * the caller's thread with a deadline on every step. A peer that is not there
 * is tried again with growing delays; one that refuses is not.
 */
#include "auth.h"
#include "net_adaptor.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DELAY_FIRST_MS 50
#define DELAY_MAX_MS 2000
#define LITTLE_MS 500 /* left of the time: that tells more of us than of the peer */
#define PATIENCE_MS 100 /* how long a destruction of the engine may go unseen */

static int left_ms(uint64_t deadline)
{
	uint64_t now = p2p_now_ns();

	return now >= deadline ? 0 : (int)((deadline - now) / P2P_NS_PER_MS) + 1;
}

/* Until fd is ready, the deadline, or the engine goes. */
static int wait_fd(struct p2p_engine *e, int fd, short events, uint64_t deadline)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		int left = left_ms(deadline);
		int n;

		if (atomic_load(&e->destroying))
			return -ESHUTDOWN;
		if (!left)
			return -ETIMEDOUT;
		n = poll(&p, 1, P2P_MIN(left, PATIENCE_MS));
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			return 0;
	}
}

static int read_all(struct p2p_engine *e, int fd, void *buf, size_t len, uint64_t deadline)
{
	for (size_t got = 0; got < len;) {
		int rc = wait_fd(e, fd, POLLIN, deadline);
		ssize_t n;

		if (rc)
			return rc;
		n = recv(fd, (char *)buf + got, len - got, MSG_DONTWAIT);
		if (n == 0)
			return -ECONNRESET;
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		got += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int write_greeting(struct p2p_engine *e, int fd, const struct p2p_greeting *g,
			  uint64_t deadline)
{
	uint8_t buf[P2P_GREETING_SIZE];
	size_t sent = 0;

	p2p_greeting_encode(g, buf);
	while (sent < sizeof(buf)) {
		int rc = wait_fd(e, fd, POLLOUT, deadline);
		ssize_t n;

		if (rc)
			return rc;
		n = send(fd, buf + sent, sizeof(buf) - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		sent += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int read_greeting(struct p2p_engine *e, int fd, uint16_t kind, struct p2p_greeting *g,
			 uint64_t deadline)
{
	uint8_t buf[P2P_GREETING_SIZE];
	int rc = read_all(e, fd, buf, sizeof(buf), deadline);

	rc = rc ? rc : p2p_greeting_decode(buf, g);
	if (rc)
		return rc;
	return g->kind == kind ? g->status : -EPROTO;
}

static int dial(struct p2p_engine *e, const union p2p_sockaddr *a, uint64_t deadline, int *out)
{
	int fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1, err = 0, rc = 0;
	socklen_t len = sizeof(err);

	if (fd < 0)
		return -errno;
	p2p_fd_track(fd);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, &a->sa, p2p_sockaddr_len(a))) {
		rc = errno == EINPROGRESS ? wait_fd(e, fd, POLLOUT, deadline) : -errno;
		if (!rc && getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
			rc = -errno;
		rc = rc ? rc : -err;
	}
	if (rc)
		p2p_fd_close(fd);
	else
		*out = fd;
	return rc;
}

/* Prove and be proved to; on 0 session is the acceptor's SESSION. */
static int greet(struct p2p_engine *e, int fd, uint8_t nonce_c[16], struct p2p_greeting *welcome,
		 struct p2p_greeting *session, uint64_t deadline)
{
	size_t key = strlen(e->config.secret);
	struct p2p_greeting g;
	uint8_t want[P2P_PROOF];
	int rc = p2p_random(nonce_c, 16);

	if (rc)
		return rc;
	p2p_greeting_fill(e, P2P_GREETING_HELLO, &g);
	memcpy(g.nonce, nonce_c, 16);
	rc = write_greeting(e, fd, &g, deadline);
	rc = rc ? rc : read_greeting(e, fd, P2P_GREETING_WELCOME, welcome, deadline);
	if (rc)
		return rc;
	p2p_proof(e->config.secret, key, 'S', nonce_c, welcome->nonce, welcome->incarnation, want);
	if (key && !p2p_proof_equal(want, welcome->proof))
		return -EACCES;
	p2p_greeting_fill(e, P2P_GREETING_AUTH, &g);
	p2p_proof(e->config.secret, key, 'C', nonce_c, welcome->nonce, e->incarnation, g.proof);
	rc = write_greeting(e, fd, &g, deadline);
	return rc ? rc : read_greeting(e, fd, P2P_GREETING_SESSION, session, deadline);
}

static int bring_paths(struct p2p_conn *c, const union p2p_sockaddr *a, uint64_t deadline)
{
	for (unsigned int i = 0; i < c->paths; i++) {
		struct p2p_greeting g;
		int fd, rc = dial(c->engine, a, deadline, &fd);

		if (rc)
			return rc;
		p2p_greeting_data(c, i, &g);
		rc = write_greeting(c->engine, fd, &g, deadline);
		rc = rc ? rc : c->ops->path_adopt(c->path[i], fd);
		if (rc) {
			p2p_fd_close(fd);
			return rc;
		}
	}
	return 0;
}

static int await_ready(struct p2p_conn *c, uint64_t deadline)
{
	uint8_t buf[P2P_MSG_HEADER];
	struct p2p_msg m;
	int rc = read_all(c->engine, c->fd, buf, sizeof(buf), deadline);

	rc = rc ? rc : p2p_msg_decode(buf, &m);
	return rc ? rc : m.type == P2P_MSG_READY ? 0 : -EPROTO;
}

/* The peer's table comes right behind READY; a caller may count on it. */
static int await_table(struct p2p_conn *c, uint64_t deadline)
{
	for (;;) {
		uint32_t seen = atomic_load_explicit(&c->event, memory_order_acquire);

		if (atomic_load(&c->error))
			return atomic_load(&c->error);
		if (atomic_load_explicit(&c->remote_ready, memory_order_acquire))
			return 0;
		if (p2p_futex_wait(&c->event, seen, deadline))
			return -ETIMEDOUT;
	}
}

/* One attempt at one address. */
static int attempt(struct p2p_engine *e, const union p2p_sockaddr *a, uint64_t deadline,
		   struct p2p_conn **out)
{
	struct p2p_greeting welcome, session;
	const struct p2p_net_ops *ops;
	uint8_t nonce_c[16];
	struct p2p_conn *c;
	int fd, rc = dial(e, a, deadline, &fd);

	if (rc)
		return rc;
	rc = greet(e, fd, nonce_c, &welcome, &session, deadline);
	ops = rc ? NULL : p2p_net_by_bit(session.transports);
	if (!rc && (!ops || !e->ops[ops->slot]))
		rc = -EPROTONOSUPPORT;
	if (!rc && (!session.paths || session.paths > e->config.g.qpsPerConn))
		rc = -EPROTO;
	rc = rc ? rc : p2p_conn_new(e, &c);
	if (rc) {
		p2p_fd_close(fd);
		return rc;
	}
	c->fd = fd;
	p2p_conn_meet(c, &welcome, a);
	memcpy(c->nonce_c, nonce_c, 16);
	memcpy(c->nonce_s, welcome.nonce, 16);
	memcpy(c->token, session.token, 16);
	c->session_id = session.session;
	rc = p2p_conn_make_paths(c, ops, session.paths);
	rc = rc ? rc : bring_paths(c, a, deadline);
	rc = rc ? rc : await_ready(c, deadline);
	rc = rc ? rc : p2p_conn_live(c, false);
	rc = rc ? rc : await_table(c, deadline);
	if (rc)
		p2p_conn_destroy(c);
	else
		*out = c;
	return rc;
}

/* Is it worth trying again? */
static bool passing(int err)
{
	switch (err) {
	case -ECONNREFUSED:
	case -ECONNRESET:
	case -ECONNABORTED:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -ETIMEDOUT:
	case -EPIPE:
	case -EAGAIN:
		return true;
	default:
		return false;
	}
}

static int nap(struct p2p_engine *e, int ms)
{
	while (ms > 0) {
		int step = P2P_MIN(ms, PATIENCE_MS);

		if (atomic_load(&e->destroying))
			return -ESHUTDOWN;
		poll(NULL, 0, step);
		ms -= step;
	}
	return 0;
}

static int try_addresses(struct p2p_engine *e, const struct addrinfo *list, uint64_t deadline,
			 struct p2p_conn **out)
{
	uint64_t limit = p2p_now_ns() + P2P_HANDSHAKE_MS * P2P_NS_PER_MS;
	int rc = -EHOSTUNREACH;

	for (const struct addrinfo *i = list; i; i = i->ai_next) {
		union p2p_sockaddr a;

		if (i->ai_addrlen > sizeof(a))
			continue;
		memcpy(&a, i->ai_addr, i->ai_addrlen);
		rc = attempt(e, &a, P2P_MIN(deadline, limit), out);
		if (!rc || !passing(rc))
			break;
	}
	return rc;
}

static const char *hint(int rc)
{
	if (rc == -EACCES)
		return ": FLAGCX_P2P_SECRET differs";
	if (rc == -EUSERS)
		return ": FLAGCX_P2P_NOTIF_MAX_PEERS reached";
	return "";
}

int p2p_connect(struct p2p_engine *e, const char *host, int port, bool once,
		struct p2p_conn **out)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
	uint64_t deadline = p2p_now_ns() + (uint64_t)e->config.connect_ms * P2P_NS_PER_MS;
	struct addrinfo *list;
	char service[16];
	int rc, why = 0, delay = DELAY_FIRST_MS;

	snprintf(service, sizeof(service), "%d", port);
	if (getaddrinfo(host, service, &hints, &list))
		return p2p_fail(-EHOSTUNREACH, "connect: the name %s is not known", host);
	for (;;) {
		bool hurried = left_ms(deadline) < LITTLE_MS;

		rc = try_addresses(e, list, deadline, out);
		if (!rc || !passing(rc))
			break;
		/* a nap may leave the last try no time; an earlier one knew more */
		if (rc == -ETIMEDOUT && hurried && why)
			rc = why;
		why = rc;
		p2p_count(e, connects_failed, 1);
		if (once || left_ms(deadline) <= delay)
			break;
		if (nap(e, delay)) {
			rc = -ESHUTDOWN;
			break;
		}
		delay = P2P_MIN(delay * 2, DELAY_MAX_MS);
	}
	freeaddrinfo(list);
	if (!rc) {
		p2p_count(e, connects, 1);
		return 0;
	}
	if (!passing(rc))
		p2p_count(e, connects_failed, 1);
	if (rc == -ECONNREFUSED)
		rc = -EHOSTUNREACH;
	return p2p_fail(rc, "connect to %s port %d%s", host, port, hint(rc));
}
