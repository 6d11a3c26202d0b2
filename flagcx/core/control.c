// SPDX-License-Identifier: Apache-2.0
/*
 * The control thread of an engine: the listener, the greetings of newcomers
 * (accept.c), the sessions of live connections, their notifications and
 * heartbeats.
 *
 * A session is read by this thread only and closed by it only; anyone may
 * send on it (p2p_session_send). Connections come and go through two inboxes,
 * so that the list of sessions is this thread's alone.
 *
 * Locks: control->lock guards the inboxes, a leaf; conn->tx_lock the sending.
 */
#include "net_adaptor.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_MS 1000     /* for the peer's end, once it has everything */
#define LINGER_SEND_MS 3000 /* for the next byte that the peer takes */
#define LINGER_MAX_MS 30000
#define BACKLOG 64u         /* broken connections that an Accept may still find */
#define PAUSE_MS 100
#define RX_CHUNK 4096u

struct p2p_control {
	struct p2p_engine *engine;
	pthread_t thread;
	int epoll, wake_fd;
	struct p2p_source wake, listen;
	struct p2p_list sessions;  /* control thread */
	struct p2p_waiting incoming; /* control thread */
	pthread_mutex_t lock;
	struct p2p_list adding;    /* lock */
	struct p2p_list closing;   /* lock */
	_Atomic int listener;      /* -1: closed */
	uint64_t paused_until;     /* ns; 0: listening; control thread */
	_Atomic bool stop_accept, stopping;
	_Atomic uint32_t listener_closed; /* a futex */
};

void p2p_control_wake(struct p2p_engine *e)
{
	uint64_t one = 1;

	if (write(e->control->wake_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: it wakes anyway */
}

/* ------------------------------------------------------------------ sending */

void p2p_session_flush(struct p2p_conn *c)
{
	struct p2p_txbuf *b;

	pthread_mutex_lock(&c->tx_lock);
	while (c->fd >= 0 && (b = c->tx) != NULL) {
		ssize_t n = send(c->fd, b->data + b->sent, b->len - b->sent,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break; /* full, or broken: then the control thread reads the end */
		b->sent += (size_t)n;
		if (b->sent < b->len)
			continue;
		c->tx = b->next;
		if (!c->tx)
			c->tx_end = &c->tx;
		free(b);
	}
	pthread_mutex_unlock(&c->tx_lock);
}

int p2p_session_send(struct p2p_conn *c, const struct p2p_msg *m, const struct p2p_piece *piece,
		     int pieces)
{
	struct p2p_txbuf *b = malloc(sizeof(*b) + P2P_MSG_HEADER + m->len);
	uint8_t *at;
	int rc = 0;

	if (!b)
		return -ENOMEM;
	b->next = NULL;
	b->sent = 0;
	b->len = P2P_MSG_HEADER + m->len;
	p2p_msg_encode(m, b->data);
	at = b->data + P2P_MSG_HEADER;
	for (int i = 0; i < pieces; i++) {
		if (piece[i].len)
			memcpy(at, piece[i].data, piece[i].len);
		at += piece[i].len;
	}
	pthread_mutex_lock(&c->tx_lock);
	if (c->fd < 0) {
		free(b);
		rc = -ENOTCONN;
	} else {
		*c->tx_end = b;
		c->tx_end = &b->next;
	}
	pthread_mutex_unlock(&c->tx_lock);
	if (!rc) {
		atomic_store_explicit(&c->last_tx, p2p_now_ns(), memory_order_relaxed);
		p2p_session_flush(c);
	}
	return rc;
}

static bool tx_empty(struct p2p_conn *c)
{
	bool empty;

	pthread_mutex_lock(&c->tx_lock);
	empty = !c->tx;
	pthread_mutex_unlock(&c->tx_lock);
	return empty;
}

/* ---------------------------------------------------------------- receiving */

static int rx_reserve(struct p2p_conn *c, size_t need)
{
	uint8_t *bigger;

	if (need <= c->rx_cap)
		return 0;
	bigger = realloc(c->rx, need);
	if (!bigger)
		return -ENOMEM;
	c->rx = bigger;
	c->rx_cap = need;
	return 0;
}

/* Handle every whole message in rx; keep the rest. */
static int rx_parse(struct p2p_conn *c)
{
	size_t at = 0;
	int rc = 0;

	while (!rc && c->rx_len - at >= P2P_MSG_HEADER) {
		struct p2p_msg m;

		rc = p2p_msg_decode(c->rx + at, &m);
		if (rc)
			break;
		if (c->rx_len - at < P2P_MSG_HEADER + m.len) {
			rc = rx_reserve(c, P2P_MSG_HEADER + m.len);
			break;
		}
		rc = p2p_session_message(c, &m, c->rx + at + P2P_MSG_HEADER);
		at += P2P_MSG_HEADER + m.len;
	}
	memmove(c->rx, c->rx + at, c->rx_len - at);
	c->rx_len -= at;
	return rc;
}

/* Everything that has come. 0; 1: the peer says no more; -errno. */
static int session_read(struct p2p_conn *c)
{
	for (;;) {
		ssize_t n;
		int rc = rx_reserve(c, P2P_MAX(RX_CHUNK, c->rx_len + 1));

		if (rc)
			return rc;
		n = recv(c->fd, c->rx + c->rx_len, c->rx_cap - c->rx_len, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		if (n == 0)
			return 1;
		c->last_rx = p2p_now_ns();
		c->rx_len += (size_t)n;
		if (c->closing && !c->listening)
			c->rx_len = 0; /* nobody listens any more; only the end matters */
		else
			rc = rx_parse(c);
		if (rc)
			return rc;
	}
}

/* The oldest conn that broke before it was accepted, if there are too many; a user more. */
static struct p2p_conn *forgotten(struct p2p_engine *e)
{
	struct p2p_conn *oldest = NULL;
	unsigned int broken = 0;

	pthread_mutex_lock(&e->accept_lock);
	for (struct p2p_list *i = e->accepted.prev; i != &e->accepted; i = i->prev) {
		struct p2p_conn *c = p2p_list_entry(i, struct p2p_conn, accept_link);

		if (!atomic_load(&c->error))
			continue;
		oldest = c;
		broken++;
	}
	if (broken > BACKLOG) {
		p2p_list_del(&oldest->accept_link);
		p2p_conn_ref(oldest);
	}
	pthread_mutex_unlock(&e->accept_lock);
	return broken > BACKLOG ? oldest : NULL;
}

/*
 * Nobody else destroys the engine's own. One that waits to be accepted is kept
 * a while: what its peer said may be asked about, and an Accept that comes late
 * must not wait for a peer that has come and gone.
 */
static void reap(struct p2p_conn *c)
{
	struct p2p_conn *old;

	if (atomic_exchange(&c->owned, false))
		p2p_conn_destroy(c);
	while ((old = forgotten(c->engine)) != NULL) {
		p2p_conn_destroy(old);
		p2p_conn_put(old);
	}
}

static void session_end(struct p2p_conn *c)
{
	p2p_list_del(&c->session_link);
	/* not left to the close: a fork may have the descriptor, and events go on */
	epoll_ctl(c->engine->control->epoll, EPOLL_CTL_DEL, c->fd, NULL);
	shutdown(c->fd, SHUT_RDWR);
	pthread_mutex_lock(&c->tx_lock);
	p2p_fd_close(c->fd);
	c->fd = -1;
	pthread_mutex_unlock(&c->tx_lock);
	reap(c);
	p2p_conn_put(c);
}

/* All said: tell the peer that nothing follows, and wait for its end. */
static void session_shut(struct p2p_conn *c)
{
	if (c->shut || !tx_empty(c))
		return;
	c->shut = true;
	shutdown(c->fd, SHUT_WR);
}

static void on_session(struct p2p_source *source, uint32_t events)
{
	struct p2p_conn *c = p2p_container_of(source, struct p2p_conn, session);
	int rc = 0;

	if (events & EPOLLOUT)
		p2p_session_flush(c);
	if (events & ~(uint32_t)EPOLLOUT)
		rc = session_read(c);
	if (!c->closing) {
		if (rc) /* comes back through the inbox */
			p2p_conn_break(c, rc > 0 ? -ECONNRESET : rc);
		return;
	}
	if (rc < 0)
		c->linger_until = 0;
	else
		session_shut(c);
	c->ended |= rc > 0;
}

/* ------------------------------------------------------------------ inboxes */

void p2p_control_add(struct p2p_conn *c)
{
	struct p2p_control *ctl = c->engine->control;

	p2p_conn_ref(c);
	pthread_mutex_lock(&ctl->lock);
	p2p_list_add_tail(&ctl->adding, &c->inbox_link);
	pthread_mutex_unlock(&ctl->lock);
	p2p_control_wake(c->engine);
}

void p2p_control_close(struct p2p_conn *c)
{
	struct p2p_control *ctl = c->engine->control;

	pthread_mutex_lock(&ctl->lock);
	/* one that was never polled goes straight from one inbox to the other */
	p2p_list_del(&c->inbox_link);
	p2p_list_add_tail(&ctl->closing, &c->inbox_link);
	pthread_mutex_unlock(&ctl->lock);
	p2p_control_wake(c->engine);
}

static struct p2p_conn *inbox_take(struct p2p_control *ctl, struct p2p_list *inbox)
{
	struct p2p_conn *c = NULL;

	pthread_mutex_lock(&ctl->lock);
	if (!p2p_list_empty(inbox)) {
		c = p2p_list_entry(inbox->next, struct p2p_conn, inbox_link);
		p2p_list_del(&c->inbox_link);
	}
	pthread_mutex_unlock(&ctl->lock);
	return c;
}

/* Bytes said that the peer's host has not acknowledged. */
static uint64_t unheard(struct p2p_conn *c)
{
	uint64_t n = 0;
	int queued = 0;

	pthread_mutex_lock(&c->tx_lock);
	for (struct p2p_txbuf *b = c->tx; b; b = b->next)
		n += b->len - b->sent;
	pthread_mutex_unlock(&c->tx_lock);
	return ioctl(c->fd, SIOCOUTQ, &queued) ? n : n + (uint64_t)queued;
}

/* A closing session lives on while something goes or comes. */
static void linger(struct p2p_conn *c, uint64_t now)
{
	uint64_t left = unheard(c);
	uint64_t ms = left ? LINGER_SEND_MS : LINGER_MS;

	if (c->ended && !left)
		c->linger_end = 0;
	if (left < c->linger_left || !c->linger_until)
		c->linger_until = now + ms * P2P_NS_PER_MS;
	else if (c->listening && c->last_rx + LINGER_MS * P2P_NS_PER_MS > c->linger_until)
		c->linger_until = c->last_rx + LINGER_MS * P2P_NS_PER_MS;
	c->linger_left = left;
}

/*
 * Both ends of an orderly end get across what was said: the one that parts
 * sends what waits, and the one that is left, which learns of it by the first
 * of its streams that ends, still reads what came on this one. A peer that
 * broke the rules, or fell silent, is not waited for.
 */
static void begin_close(struct p2p_conn *c)
{
	int err = atomic_load(&c->error), rc;
	uint64_t now = p2p_now_ns();

	if (p2p_list_empty(&c->session_link))
		p2p_list_add_tail(&c->engine->control->sessions, &c->session_link);
	c->closing = true;
	c->listening = err != -ECANCELED && err != -EPROTO;
	if (err == -EPROTO || err == -ETIMEDOUT)
		return;
	rc = session_read(c);
	if (rc < 0)
		return;
	c->ended = rc;
	c->linger_end = now + LINGER_MAX_MS * P2P_NS_PER_MS;
	p2p_session_flush(c);
	session_shut(c);
	linger(c, now);
}

/* Has a closing session done all it can? */
static bool lingered(struct p2p_control *ctl, struct p2p_conn *c, uint64_t now)
{
	if (!c->linger_until)
		return true;
	linger(c, now);
	/* nobody is left to take what would still come */
	if (c->listening && !c->linger_left && atomic_load(&ctl->stopping))
		return true;
	return now >= c->linger_until || now >= c->linger_end;
}

static void take_inboxes(struct p2p_control *ctl)
{
	struct p2p_conn *c;

	while ((c = inbox_take(ctl, &ctl->adding)) != NULL) {
		struct epoll_event ev = {
			.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
			.data.ptr = &c->session,
		};

		c->session.event = on_session;
		p2p_list_add_tail(&ctl->sessions, &c->session_link);
		if (epoll_ctl(ctl->epoll, EPOLL_CTL_ADD, c->fd, &ev))
			p2p_conn_break(c, -errno);
	}
	while ((c = inbox_take(ctl, &ctl->closing)) != NULL)
		begin_close(c);
}

/* No descriptor to be had: the listener would only keep waking us. */
static void pause_listener(struct p2p_control *ctl)
{
	struct epoll_event ev = { .events = 0, .data.ptr = &ctl->listen };

	epoll_ctl(ctl->epoll, EPOLL_CTL_MOD, atomic_load(&ctl->listener), &ev);
	ctl->paused_until = p2p_now_ns() + PAUSE_MS * P2P_NS_PER_MS;
}

static void resume_listener(struct p2p_control *ctl)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = &ctl->listen };

	ctl->paused_until = 0;
	if (atomic_load(&ctl->listener) >= 0)
		epoll_ctl(ctl->epoll, EPOLL_CTL_MOD, atomic_load(&ctl->listener), &ev);
}

/* ---------------------------------------------------------------- heartbeat */

static uint64_t path_stall(struct p2p_conn *c, uint64_t now)
{
	uint64_t worst = 0;

	for (unsigned int i = 0; i < c->paths; i++) {
		uint64_t since = atomic_load_explicit(&c->path[i]->busy_since,
						      memory_order_relaxed);

		if (since && now > since)
			worst = P2P_MAX(worst, now - since);
	}
	return worst;
}

static void watch(struct p2p_conn *c, uint64_t now)
{
	const struct p2p_config *cfg = &c->engine->config;
	uint64_t heard = P2P_MAX(c->last_rx, atomic_load_explicit(&c->last_data,
								  memory_order_relaxed));
	uint64_t said = atomic_load_explicit(&c->last_tx, memory_order_relaxed);
	uint64_t liveness = (uint64_t)cfg->liveness_ms * P2P_NS_PER_MS;

	if (now > heard && now - heard > liveness)
		p2p_conn_break(c, -ETIMEDOUT);
	else if (path_stall(c, now) > (uint64_t)cfg->stall_ms * P2P_NS_PER_MS)
		p2p_conn_break(c, -ETIMEDOUT);
	else if (now - said >= liveness / 4)
		p2p_session_send(c, &(struct p2p_msg){ .type = P2P_MSG_PING }, NULL, 0);
}

/* Look at every session; the longest that the thread may sleep, ms. */
static int tick(struct p2p_control *ctl)
{
	const struct p2p_config *cfg = &ctl->engine->config;
	uint64_t now = p2p_now_ns(), next;
	int period = P2P_MIN(cfg->liveness_ms / 8, 500);
	struct p2p_list *i, *after;
	int timeout = p2p_list_empty(&ctl->sessions) ? -1 : P2P_MAX(period, 1);

	for (i = ctl->sessions.next; i != &ctl->sessions; i = after) {
		struct p2p_conn *c = p2p_list_entry(i, struct p2p_conn, session_link);

		after = i->next;
		if (!c->closing)
			watch(c, now);
		else if (lingered(ctl, c, now))
			session_end(c);
		else
			timeout = P2P_MIN(timeout, 20);
	}
	next = p2p_waiting_expire(&ctl->incoming, now);
	if (next) {
		int ms = (int)((next - now) / P2P_NS_PER_MS) + 1;

		timeout = timeout < 0 ? ms : P2P_MIN(timeout, ms);
	}
	if (ctl->paused_until && now >= ctl->paused_until)
		resume_listener(ctl);
	else if (ctl->paused_until)
		timeout = timeout < 0 ? PAUSE_MS : P2P_MIN(timeout, PAUSE_MS);
	return timeout;
}

/* ----------------------------------------------------------------- listener */

static void on_listen(struct p2p_source *source, uint32_t events)
{
	struct p2p_control *ctl = p2p_container_of(source, struct p2p_control, listen);

	for (int i = 0; i < 64; i++) {
		union p2p_sockaddr from;
		socklen_t len = sizeof(from);
		int fd = accept4(atomic_load(&ctl->listener), &from.sa, &len,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
				pause_listener(ctl);
			return;
		}
		p2p_waiting_add(&ctl->incoming, ctl->engine, ctl->epoll, p2p_fd_track(fd), &from);
	}
}

static void close_listener(struct p2p_control *ctl)
{
	int fd = atomic_exchange(&ctl->listener, -1);

	if (fd >= 0) {
		epoll_ctl(ctl->epoll, EPOLL_CTL_DEL, fd, NULL);
		shutdown(fd, SHUT_RDWR);
		p2p_fd_close(fd);
	}
	atomic_store(&ctl->listener_closed, 1);
	p2p_futex_wake_all(&ctl->listener_closed);
}

void p2p_control_stop_accept(struct p2p_engine *e)
{
	struct p2p_control *ctl = e->control;

	atomic_store(&ctl->stop_accept, true);
	p2p_control_wake(e);
	while (!atomic_load(&ctl->listener_closed))
		p2p_futex_wait(&ctl->listener_closed, 0, 0);
}

void p2p_control_accepted(struct p2p_conn *c)
{
	struct p2p_engine *e = c->engine;
	bool stopped;

	pthread_mutex_lock(&e->accept_lock);
	stopped = e->accept_stopped;
	if (e->rpc_server || stopped) {
		atomic_store(&c->owned, true);
	} else {
		p2p_list_add_tail(&e->accepted, &c->accept_link);
		pthread_cond_signal(&e->accept_cond);
	}
	pthread_mutex_unlock(&e->accept_lock);
	if (stopped) /* it came in that very moment: nobody will take it */
		p2p_conn_break(c, -ECANCELED);
}

/* ------------------------------------------------------------------- thread */

static void on_wake(struct p2p_source *source, uint32_t events)
{
	struct p2p_control *ctl = p2p_container_of(source, struct p2p_control, wake);
	uint64_t n;

	while (read(ctl->wake_fd, &n, sizeof(n)) < 0 && errno == EINTR)
		;
}

static void *control_main(void *arg)
{
	struct p2p_control *ctl = arg;

	for (;;) {
		struct epoll_event ev[64];
		bool stopping = atomic_load(&ctl->stopping);
		int timeout, n;

		take_inboxes(ctl);
		if (atomic_load(&ctl->stop_accept) && atomic_load(&ctl->listener) >= 0)
			close_listener(ctl);
		timeout = tick(ctl);
		/* sessions end by themselves: they linger a second at most */
		if (stopping && p2p_list_empty(&ctl->sessions))
			break;
		n = epoll_wait(ctl->epoll, ev, P2P_ARRAY_SIZE(ev), timeout);
		for (int i = 0; i < n; i++) {
			struct p2p_source *s = ev[i].data.ptr;

			s->event(s, ev[i].events);
		}
	}
	p2p_waiting_expire(&ctl->incoming, UINT64_MAX);
	close_listener(ctl);
	return NULL;
}

static int listen_socket(struct p2p_engine *e, bool bind_only_ip)
{
	union p2p_sockaddr a = { 0 };
	socklen_t len = sizeof(a);
	int off = 0, on = 1, rc;
	/* an address that was asked for is the only one; else every one, of both families */
	bool v4 = bind_only_ip && !strchr(e->ip, ':');
	int fd = socket(v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 && !bind_only_ip) { /* a kernel without IPv6 */
		v4 = true;
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	}
	if (fd < 0)
		return -errno;
	p2p_fd_track(fd);
	if (v4) {
		a.in.sin_family = AF_INET;
		a.in.sin_port = htons((uint16_t)e->config.port);
		if (bind_only_ip)
			p2p_ip_parse(e->ip, &a);
	} else {
		a.in6.sin6_family = AF_INET6;
		a.in6.sin6_port = htons((uint16_t)e->config.port);
		if (bind_only_ip)
			p2p_ip_parse(e->ip, &a);
		else
			setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	}
	/*
	 * A restart on the same port must not wait until old connections have faded,
	 * so both lives need the flag; but a port that the kernel chooses must be
	 * chosen without it, or two engines may be given the same.
	 */
	if (e->config.port)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, &a.sa, p2p_sockaddr_len(&a)) ||
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) || listen(fd, 1024) ||
	    getsockname(fd, &a.sa, &len)) {
		rc = -errno;
		p2p_fd_close(fd);
		return rc;
	}
	e->port = ntohs(a.sa.sa_family == AF_INET6 ? a.in6.sin6_port : a.in.sin_port);
	return fd;
}

static int watch_fd(struct p2p_control *ctl, int fd, struct p2p_source *source)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = source };

	return epoll_ctl(ctl->epoll, EPOLL_CTL_ADD, fd, &ev) ? -errno : 0;
}

static void control_free(struct p2p_control *ctl)
{
	int listener = atomic_load(&ctl->listener);

	if (listener >= 0)
		p2p_fd_close(listener);
	if (ctl->wake_fd >= 0)
		p2p_fd_close(ctl->wake_fd);
	if (ctl->epoll >= 0)
		p2p_fd_close(ctl->epoll);
	pthread_mutex_destroy(&ctl->lock);
	free(ctl);
}

int p2p_control_start(struct p2p_engine *e)
{
	struct p2p_control *ctl = calloc(1, sizeof(*ctl));
	int rc, fd;

	if (!ctl)
		return -ENOMEM;
	ctl->engine = e;
	ctl->wake.event = on_wake;
	ctl->listen.event = on_listen;
	p2p_list_init(&ctl->sessions);
	p2p_list_init(&ctl->incoming.live);
	p2p_list_init(&ctl->incoming.dead);
	p2p_list_init(&ctl->adding);
	p2p_list_init(&ctl->closing);
	pthread_mutex_init(&ctl->lock, NULL);
	ctl->epoll = p2p_fd_track(epoll_create1(EPOLL_CLOEXEC));
	ctl->wake_fd = p2p_fd_track(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	fd = listen_socket(e, *e->config.ifname != '\0');
	atomic_init(&ctl->listener, fd);
	if (fd < 0) {
		rc = p2p_fail(fd, "cannot listen on port %d of %s", e->config.port,
			      *e->config.ifname ? e->ip : "this host");
		goto err_free;
	}
	rc = ctl->epoll < 0 || ctl->wake_fd < 0 ? -EMFILE : 0;
	rc = rc ? rc : watch_fd(ctl, ctl->wake_fd, &ctl->wake);
	rc = rc ? rc : watch_fd(ctl, fd, &ctl->listen);
	if (rc)
		goto err_free;
	e->control = ctl;
	rc = p2p_thread_start(&ctl->thread, "flagcx-ctl", control_main, ctl);
	if (rc)
		goto err_free;
	return 0;

err_free:
	e->control = NULL;
	control_free(ctl);
	return rc;
}

void p2p_control_stop(struct p2p_engine *e)
{
	struct p2p_control *ctl = e->control;

	if (!ctl)
		return;
	atomic_store(&ctl->stopping, true);
	p2p_control_wake(e);
	pthread_join(ctl->thread, NULL);
	control_free(ctl);
	e->control = NULL;
}
