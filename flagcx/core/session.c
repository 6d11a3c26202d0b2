// SPDX-License-Identifier: Apache-2.0
/*
 * What sessions carry: the tables of registrations, kept current, and
 * questions about them. Messages are handled on the control thread.
 */
#include "net_adaptor.h"

#include <stdlib.h>
#include <string.h>

#define QUERY_MS 1000

/* ------------------------------------------------------------------- telling */

struct batch {
	struct p2p_conn *conn;
	uint8_t *buf;
	size_t len;
	int rc;
};

static void batch_send(struct batch *b, uint16_t flags)
{
	struct p2p_piece piece = { b->buf, b->len };
	struct p2p_msg m = {
		.type = P2P_MSG_REGION_ADD,
		.flags = flags,
		.len = (uint32_t)b->len,
	};

	if (!b->rc)
		b->rc = p2p_session_send(b->conn, &m, &piece, 1);
	b->len = 0;
}

static void batch_add(void *arg, const struct p2p_region *r, struct p2p_mr *mr)
{
	struct batch *b = arg;

	if (b->len + P2P_REGION_WIRE > 240 * P2P_REGION_WIRE)
		batch_send(b, 0);
	p2p_region_encode(r, b->buf + b->len);
	b->len += P2P_REGION_WIRE;
}

/* By which keys the conn's transport reaches a registration of ours; 0 when it needs none. */
static int send_keys(struct p2p_conn *c, const struct p2p_mr *mr)
{
	const struct p2p_mr_net *net = atomic_load_explicit(
		&((struct p2p_mr *)mr)->net[c->ops->slot], memory_order_acquire);
	size_t len = net ? c->ops->mr_keys(net, mr, NULL, 0) : 0;
	struct p2p_msg m = { .type = P2P_MSG_REGION_KEYS, .len = (uint32_t)len };
	struct p2p_piece piece = { NULL, len };
	uint8_t *buf;
	int rc;

	if (!len || len > P2P_MSG_MAX)
		return 0;
	buf = malloc(len);
	if (!buf)
		return -ENOMEM;
	c->ops->mr_keys(net, mr, buf, len);
	piece.data = buf;
	rc = p2p_session_send(c, &m, &piece, 1);
	free(buf);
	return rc;
}

static void keys_add(void *arg, const struct p2p_region *r, struct p2p_mr *mr)
{
	struct batch *b = arg;

	if (!b->rc)
		b->rc = send_keys(b->conn, mr);
}

void p2p_session_tell_keys(struct p2p_engine *e, const struct p2p_mr *mr)
{
	for (struct p2p_list *i = e->conns.next; i != &e->conns; i = i->next)
		/* one that is not told asks the peer itself each time, as for any unknown key */
		send_keys(p2p_list_entry(i, struct p2p_conn, link), mr);
}

int p2p_session_table(struct p2p_conn *c)
{
	uint8_t buf[240 * P2P_REGION_WIRE];
	struct batch b = { .conn = c, .buf = buf };

	/* keys first: who has the whole table then has them, too */
	p2p_mr_each(&c->engine->mrs, keys_add, &b);
	p2p_mr_each(&c->engine->mrs, batch_add, &b);
	batch_send(&b, P2P_MSG_F_LAST);
	return b.rc;
}

void p2p_session_tell(struct p2p_engine *e, const struct p2p_region *r, bool gone)
{
	uint8_t buf[P2P_REGION_WIRE];
	struct p2p_piece piece = { buf, sizeof(buf) };
	struct p2p_msg m = { .type = P2P_MSG_REGION_ADD, .len = P2P_REGION_WIRE };

	p2p_region_encode(r, buf);
	if (gone) {
		p2p_u32_encode(r->rid, buf);
		p2p_u32_encode(r->rkey, buf + 4);
		m.type = P2P_MSG_REGION_DEL;
		m.len = 8;
		piece.len = 8;
	}
	for (struct p2p_list *i = e->conns.next; i != &e->conns; i = i->next)
		/* a peer that cannot be told is lost, and noticed elsewhere */
		p2p_session_send(p2p_list_entry(i, struct p2p_conn, link), &m, &piece, 1);
}

/* ------------------------------------------------------------------- hearing */

static int on_region_add(struct p2p_conn *c, const struct p2p_msg *m, const uint8_t *payload)
{
	for (uint32_t i = 0; i < m->len; i += P2P_REGION_WIRE) {
		struct p2p_region r;
		int rc = p2p_region_decode(payload + i, &r);

		/* a table that is full is no reason to part: what is missing is asked for */
		if (!rc && p2p_remote_add(&c->remote, &r) == -ENOMEM)
			rc = -ENOMEM;
		if (rc)
			return rc;
	}
	if (m->flags & P2P_MSG_F_LAST) {
		atomic_store_explicit(&c->remote_ready, true, memory_order_release);
		p2p_conn_signal(c);
	}
	return 0;
}

static void on_region_del(struct p2p_conn *c, const struct p2p_msg *m, const uint8_t *payload)
{
	for (uint32_t i = 0; i < m->len; i += 8) {
		uint32_t rid = p2p_u32_decode(payload + i);
		uint32_t rkey = p2p_u32_decode(payload + i + 4);

		p2p_remote_del(&c->remote, rid, rkey);
		p2p_keys_del(&c->keys, rid, rkey);
	}
}

/* Keys that are not known here cost the peer a question, so too many are no reason to part. */
static int on_keys(struct p2p_conn *c, const struct p2p_msg *m, const uint8_t *payload)
{
	int rc = p2p_keys_take(&c->keys, payload, m->len);

	if (rc != -ENOSPC)
		return rc;
	if (!c->keys_full)
		p2p_warn("%s:%d has more registrations than the %u, or more keys than the %u, "
			 "that are kept of a peer: the others' bytes go by the stream",
			 c->peer_ip, c->peer_port, P2P_KEYSETS_MAX, P2P_KEYS_KEPT_MAX);
	c->keys_full = true;
	return 0;
}

static int on_query(struct p2p_conn *c, const struct p2p_msg *m, const uint8_t *payload)
{
	uint64_t va = p2p_u64_decode(payload), len = p2p_u64_decode(payload + 8);
	struct p2p_mr *mr = p2p_mr_pin_range(&c->engine->mrs, va, len);
	struct p2p_msg reply = { .type = P2P_MSG_REGION_ANSWER, .arg = m->arg };
	uint8_t buf[P2P_REGION_WIRE];
	struct p2p_piece piece = { buf, sizeof(buf) };

	if (!mr)
		return p2p_session_send(c, &reply, NULL, 0);
	p2p_region_encode(&(struct p2p_region){ mr->base, mr->size, mr->rkey, mr->rid }, buf);
	p2p_mr_unpin(mr);
	reply.len = sizeof(buf);
	return p2p_session_send(c, &reply, &piece, 1);
}

/* Only the question asked last is waited for, by one thread. */
static int on_answer(struct p2p_conn *c, const struct p2p_msg *m, const uint8_t *payload)
{
	struct p2p_region r = { 0 };
	int rc = m->len ? p2p_region_decode(payload, &r) : 0;

	if (rc)
		return rc;
	pthread_mutex_lock(&c->answer_lock);
	c->answer = r;
	c->answer_rc = m->len ? 0 : -ENOENT;
	c->answer_id = m->arg;
	pthread_mutex_unlock(&c->answer_lock);
	p2p_conn_signal(c);
	return 0;
}

static void on_credit(struct p2p_conn *c, const uint8_t *payload)
{
	uint64_t n = p2p_u64_decode(payload);
	uint64_t used = atomic_load_explicit(&c->credit_used, memory_order_relaxed);

	while (!atomic_compare_exchange_weak_explicit(&c->credit_used, &used,
						      used - P2P_MIN(n, used),
						      memory_order_acq_rel, memory_order_relaxed))
		;
	p2p_conn_signal(c);
}

int p2p_session_message(struct p2p_conn *c, const struct p2p_msg *m, const uint8_t *payload)
{
	switch (m->type) {
	case P2P_MSG_PING:
		return 0;
	case P2P_MSG_REGION_ADD:
		return on_region_add(c, m, payload);
	case P2P_MSG_REGION_DEL:
		on_region_del(c, m, payload);
		return 0;
	case P2P_MSG_REGION_QUERY:
		return on_query(c, m, payload);
	case P2P_MSG_REGION_ANSWER:
		return on_answer(c, m, payload);
	case P2P_MSG_REGION_KEYS:
		return on_keys(c, m, payload);
	case P2P_MSG_NOTIF:
		return p2p_notif_part(c, m, payload);
	case P2P_MSG_NOTIF_CREDIT:
		on_credit(c, payload);
		return 0;
	default:
		return -EPROTO; /* READY comes before a conn is live */
	}
}

/* -------------------------------------------------------------------- asking */

static bool answered(struct p2p_conn *c, uint32_t id, struct p2p_region *out, int *rc)
{
	bool yes;

	pthread_mutex_lock(&c->answer_lock);
	yes = c->answer_id == id;
	if (yes) {
		*rc = c->answer_rc;
		*out = c->answer;
	}
	pthread_mutex_unlock(&c->answer_lock);
	return yes;
}

static int await_answer(struct p2p_conn *c, uint32_t id, struct p2p_region *out)
{
	uint64_t deadline = p2p_now_ns() + QUERY_MS * P2P_NS_PER_MS;

	for (;;) {
		uint32_t seen = atomic_load_explicit(&c->event, memory_order_acquire);
		int rc;

		if (answered(c, id, out, &rc))
			return rc;
		rc = atomic_load(&c->error);
		if (rc)
			return rc;
		if (p2p_futex_wait(&c->event, seen, deadline))
			return -ENOENT; /* a peer too busy to answer has not shown the region */
	}
}

int p2p_session_query(struct p2p_conn *c, uint64_t va, uint64_t len, struct p2p_region *out)
{
	uint8_t buf[16];
	struct p2p_piece piece = { buf, sizeof(buf) };
	struct p2p_msg m = { .type = P2P_MSG_REGION_QUERY, .len = sizeof(buf) };
	int rc;

	p2p_u64_encode(va, buf);
	p2p_u64_encode(len, buf + 8);
	pthread_mutex_lock(&c->query_lock);
	m.arg = ++c->query_id;
	rc = p2p_session_send(c, &m, &piece, 1);
	rc = rc ? rc : await_answer(c, m.arg, out);
	pthread_mutex_unlock(&c->query_lock);
	/* what comes from outside is checked like the table is */
	if (!rc && (va < out->base || len > out->size || va - out->base > out->size - len))
		rc = -ENOENT;
	return rc;
}
