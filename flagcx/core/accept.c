// SPDX-License-Identifier: Apache-2.0
/*
 * Newcomers at the listener. Each is a small state machine on the control
 * thread with a deadline and a fixed buffer, so that one that says nothing,
 * or nonsense, costs a descriptor for some seconds and holds up nobody.
 *
 *   HELLO   -> WELCOME, and wait for AUTH
 *   AUTH    -> a conn, SESSION, and wait until every path has come by DATA
 *   DATA    -> a path of a waiting conn; with the last the conn goes live
 */
#include "auth.h"
#include "net_adaptor.h"

#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define INCOMING_MAX 1024
#define EXPECT_NOTHING UINT16_MAX

struct p2p_incoming {
	struct p2p_source source;
	struct p2p_list link;
	struct p2p_waiting *room;
	int epoll;
	struct p2p_engine *engine;
	int fd;              /* -1: given away, or dropped */
	uint64_t deadline;
	uint16_t expect;        /* greeting kind; 0: HELLO or DATA */
	size_t got;
	uint8_t buf[P2P_GREETING_SIZE];
	struct p2p_greeting hello;
	uint8_t nonce[16];
	union p2p_sockaddr from;
	struct p2p_conn *conn;  /* waiting for its paths */
	bool complete;          /* they have all come */
};

/*
 * End it. What it made and did not finish goes with it. The memory stays until
 * the next turn: an event for it may be waiting in this one.
 */
static void drop(struct p2p_incoming *in, int err)
{
	struct p2p_engine *e = in->engine;
	char ip[64];

	p2p_list_del(&in->link);
	p2p_list_add_tail(&in->room->dead, &in->link);
	in->room->count--;
	if (in->fd >= 0) {
		epoll_ctl(in->epoll, EPOLL_CTL_DEL, in->fd, NULL);
		shutdown(in->fd, SHUT_RDWR);
		p2p_fd_close(in->fd);
	}
	in->fd = -1;
	if (in->conn)
		p2p_conn_destroy(in->conn);
	in->conn = NULL;
	if (err) {
		p2p_count(e, connects_failed, 1);
		p2p_sockaddr_ip(&in->from, ip, sizeof(ip));
		p2p_warn("refused a connection from %s: %s", ip, p2p_errno_name(err));
	}
}

static int say(int fd, const struct p2p_greeting *g)
{
	uint8_t buf[P2P_GREETING_SIZE];

	p2p_greeting_encode(g, buf);
	/* the first bytes on a fresh socket: they fit, or the peer is of no use */
	return send(fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(buf) ?
		       0 :
		       -ECONNRESET;
}

void p2p_greeting_fill(struct p2p_engine *e, uint16_t kind, struct p2p_greeting *g)
{
	memset(g, 0, sizeof(*g));
	g->version = P2P_WIRE_VERSION;
	g->kind = kind;
	g->incarnation = e->incarnation;
	g->cookie = p2p_process_cookie();
	p2p_host_id(g->host);
	for (int i = 0; i < P2P_NETS; i++)
		if (e->ops[i])
			g->transports |= e->ops[i]->bit;
	g->paths = (uint16_t)e->config.g.qpsPerConn;
	g->port = (uint16_t)e->port;
	g->device = e->device;
}

static int on_hello(struct p2p_incoming *in, const struct p2p_greeting *g)
{
	struct p2p_engine *e = in->engine;
	struct p2p_greeting reply;
	int rc = p2p_random(in->nonce, sizeof(in->nonce));

	if (rc)
		return rc;
	in->hello = *g;
	in->expect = P2P_GREETING_AUTH;
	p2p_greeting_fill(e, P2P_GREETING_WELCOME, &reply);
	memcpy(reply.nonce, in->nonce, 16);
	p2p_proof(e->config.secret, strlen(e->config.secret), 'S', g->nonce, in->nonce,
		  e->incarnation, reply.proof);
	return say(in->fd, &reply);
}

/* The best transport that both speak. */
static const struct p2p_net_ops *common(struct p2p_engine *e, uint32_t transports)
{
	for (int i = 0; i < P2P_NETS; i++)
		if (e->ops[i] && e->ops[i]->bit & transports)
			return e->ops[i];
	return NULL;
}

void p2p_conn_meet(struct p2p_conn *c, const struct p2p_greeting *peer,
		   const union p2p_sockaddr *from)
{
	uint8_t host[16];

	p2p_host_id(host);
	c->peer_incarnation = peer->incarnation;
	c->local = !memcmp(host, peer->host, sizeof(host));
	c->same_process = peer->cookie == p2p_process_cookie();
	c->peer_port = peer->port;
	c->peer_device = peer->device;
	p2p_sockaddr_ip(from, c->peer_ip, sizeof(c->peer_ip));
}

static int make_conn(struct p2p_incoming *in, struct p2p_greeting *reply)
{
	struct p2p_engine *e = in->engine;
	const struct p2p_net_ops *ops = common(e, in->hello.transports);
	uint32_t paths = P2P_MIN(in->hello.paths, (uint32_t)e->config.g.qpsPerConn);
	struct p2p_conn *c;
	int rc;

	if (!ops)
		return -EPROTONOSUPPORT;
	if (!paths)
		return -EPROTO;
	if (atomic_load(&e->peers) >= (uint32_t)e->config.g.notifMaxPeers)
		return -EUSERS;
	rc = p2p_conn_new(e, &c);
	if (rc)
		return rc;
	p2p_conn_meet(c, &in->hello, &in->from);
	memcpy(c->nonce_c, in->hello.nonce, 16);
	memcpy(c->nonce_s, in->nonce, 16);
	c->session_id = p2p_random_u64();
	rc = p2p_random(c->token, sizeof(c->token));
	rc = rc ? rc : p2p_conn_make_paths(c, ops, paths);
	if (rc) {
		p2p_conn_destroy(c);
		return rc;
	}
	in->conn = c;
	reply->session = c->session_id;
	memcpy(reply->token, c->token, 16);
	reply->transports = ops->bit;
	reply->paths = (uint16_t)paths;
	return 0;
}

static int on_auth(struct p2p_incoming *in, const struct p2p_greeting *g)
{
	struct p2p_engine *e = in->engine;
	struct p2p_greeting reply;
	uint8_t want[P2P_PROOF];
	int rc = 0, said;

	p2p_proof(e->config.secret, strlen(e->config.secret), 'C', in->hello.nonce, in->nonce,
		  in->hello.incarnation, want);
	p2p_greeting_fill(e, P2P_GREETING_SESSION, &reply);
	if (!p2p_proof_equal(want, g->proof) || g->incarnation != in->hello.incarnation)
		rc = -EACCES;
	else
		rc = make_conn(in, &reply);
	reply.status = rc;
	said = say(in->fd, &reply);
	if (rc || said)
		return rc ? rc : said;
	/* nothing more is expected on it until the conn is live */
	in->expect = EXPECT_NOTHING;
	return 0;
}

static void proof_of_data(const struct p2p_conn *c, unsigned int path, uint8_t out[P2P_PROOF])
{
	p2p_proof(c->token, sizeof(c->token), 'D', c->nonce_c, c->nonce_s,
		  c->session_id ^ path, out);
}

void p2p_greeting_data(struct p2p_conn *c, unsigned int path, struct p2p_greeting *g)
{
	p2p_greeting_fill(c->engine, P2P_GREETING_DATA, g);
	g->session = c->session_id;
	g->path = (uint16_t)path;
	proof_of_data(c, path, g->proof);
}

/* Every path stands: the conn leaves the waiting room. */
static int go_live(struct p2p_incoming *in)
{
	struct p2p_conn *c = in->conn;
	int rc;

	c->fd = in->fd;
	in->fd = -1;
	epoll_ctl(in->epoll, EPOLL_CTL_DEL, c->fd, NULL);
	rc = p2p_conn_live(c, true);
	if (rc)
		return rc;
	in->conn = NULL;
	p2p_count(c->engine, connects, 1);
	p2p_control_accepted(c);
	return 0;
}

static int on_data(struct p2p_incoming *in, const struct p2p_greeting *g)
{
	struct p2p_list *i;

	for (i = in->room->live.next; i != &in->room->live; i = i->next) {
		struct p2p_incoming *w = p2p_list_entry(i, struct p2p_incoming, link);
		struct p2p_conn *c = w->conn;
		uint8_t want[P2P_PROOF];
		int rc;

		if (!c || c->session_id != g->session)
			continue;
		proof_of_data(c, g->path, want);
		if (g->path >= c->paths || c->adopted & 1u << g->path ||
		    !p2p_proof_equal(want, g->proof))
			return -EACCES;
		epoll_ctl(in->epoll, EPOLL_CTL_DEL, in->fd, NULL);
		rc = c->ops->path_adopt(c->path[g->path], in->fd);
		if (rc)
			return rc;
		in->fd = -1;
		c->adopted |= 1u << g->path;
		if (c->adopted == (c->paths == 32 ? UINT32_MAX : (1u << c->paths) - 1))
			w->complete = true;
		return 0;
	}
	return -EACCES;
}

static int on_greeting(struct p2p_incoming *in)
{
	struct p2p_greeting g;
	int rc = p2p_greeting_decode(in->buf, &g);

	if (rc == -EPROTONOSUPPORT && !in->expect && g.kind == P2P_GREETING_HELLO) {
		/* tell it which version we speak */
		p2p_greeting_fill(in->engine, P2P_GREETING_WELCOME, &g);
		g.status = rc;
		say(in->fd, &g);
	}
	if (rc)
		return rc;
	if (in->expect == P2P_GREETING_AUTH && g.kind == P2P_GREETING_AUTH)
		return on_auth(in, &g);
	if (!in->expect && g.kind == P2P_GREETING_HELLO)
		return on_hello(in, &g);
	if (!in->expect && g.kind == P2P_GREETING_DATA)
		return on_data(in, &g);
	return -EPROTO;
}

/*
 * A path has completed another newcomer's conn: let that go live. Not from
 * within on_data(), whose own newcomer is still in hand.
 */
static void complete_others(struct p2p_waiting *room)
{
	struct p2p_list *i, *next;

	for (i = room->live.next; i != &room->live; i = next) {
		struct p2p_incoming *w = p2p_list_entry(i, struct p2p_incoming, link);

		next = i->next;
		if (w->complete)
			drop(w, go_live(w));
	}
}

/* One that waits for its paths says nothing; only its end is of interest. 1: quiet. */
static int watch_waiting(struct p2p_incoming *in)
{
	uint8_t byte;
	ssize_t n = recv(in->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	if (n > 0)
		return -EPROTO;
	if (n == 0)
		return -ECONNRESET;
	return errno == EAGAIN || errno == EINTR ? 1 : -errno;
}

/* Read on. 0: a greeting was dealt with; 1: nothing more has come; -errno. */
static int read_on(struct p2p_incoming *in)
{
	ssize_t n;

	if (in->expect == EXPECT_NOTHING)
		return watch_waiting(in);
	n = recv(in->fd, in->buf + in->got, sizeof(in->buf) - in->got, MSG_DONTWAIT);
	if (n == 0)
		return -ECONNRESET;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 1 : -errno;
	in->got += (size_t)n;
	if (in->got < sizeof(in->buf))
		return 0;
	in->got = 0;
	return on_greeting(in);
}

static void on_event(struct p2p_source *source, uint32_t events)
{
	struct p2p_incoming *in = p2p_container_of(source, struct p2p_incoming, source);
	int rc = 0;

	if (in->fd < 0)
		return; /* dropped in this very turn */
	while (!rc && in->fd >= 0)
		rc = read_on(in);
	if (rc < 0 || in->fd < 0)
		drop(in, rc < 0 ? rc : 0);
	complete_others(in->room);
}

void p2p_waiting_add(struct p2p_waiting *room, struct p2p_engine *e, int epoll, int fd,
		     const union p2p_sockaddr *from)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLRDHUP };
	struct p2p_incoming *in = NULL;
	int on = 1;

	/* too many at once: the newest is turned away, the others have deadlines */
	if (room->count < INCOMING_MAX)
		in = calloc(1, sizeof(*in));
	if (!in) {
		p2p_count(e, connects_failed, 1);
		p2p_fd_close(fd);
		return;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	in->source.event = on_event;
	in->room = room;
	in->engine = e;
	in->epoll = epoll;
	in->fd = fd;
	in->from = *from;
	in->deadline = p2p_now_ns() + P2P_HANDSHAKE_MS * P2P_NS_PER_MS;
	p2p_list_add_tail(&room->live, &in->link);
	room->count++;
	ev.data.ptr = &in->source;
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev))
		drop(in, -errno);
}

uint64_t p2p_waiting_expire(struct p2p_waiting *room, uint64_t now)
{
	struct p2p_list *i, *next;
	uint64_t first = 0;

	for (i = room->live.next; i != &room->live; i = next) {
		struct p2p_incoming *in = p2p_list_entry(i, struct p2p_incoming, link);

		next = i->next;
		if (in->deadline <= now)
			drop(in, now == UINT64_MAX ? 0 : -ETIMEDOUT);
		else if (!first || in->deadline < first)
			first = in->deadline;
	}
	while (!p2p_list_empty(&room->dead)) {
		i = room->dead.next;
		p2p_list_del(i);
		free(p2p_list_entry(i, struct p2p_incoming, link));
	}
	return first;
}
