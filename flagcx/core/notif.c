// SPDX-License-Identifier: Apache-2.0
/*
 * Notifications: of any size, whole, once, in order of each connection.
 *
 * A sender may have CREDIT bytes under way that the peer's caller has not
 * taken (or one larger notification), counted by both ends in the same way;
 * taking gives credit back. So neither end's memory grows without bound, and
 * the session itself is never blocked: heartbeats always pass.
 */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

#define CREDIT (64ull << 20)
#define OVERHEAD 64u         /* counted for each, beside its bytes */
#define PART (64u << 10)
#define PATIENCE_NS (1000 * P2P_NS_PER_MS)

static uint64_t cost_of(uint64_t name_len, uint64_t msg_len)
{
	return name_len + msg_len + OVERHEAD;
}

/* ------------------------------------------------------------------- sending */

static int take_credit(struct p2p_conn *c, uint64_t cost)
{
	uint64_t deadline = p2p_now_ns() + PATIENCE_NS;

	for (;;) {
		uint32_t seen = atomic_load_explicit(&c->event, memory_order_acquire);
		uint64_t used = atomic_load_explicit(&c->credit_used, memory_order_acquire);
		int rc = p2p_conn_check(c);

		if (rc)
			return rc;
		if (!used || used + cost <= CREDIT) {
			if (atomic_compare_exchange_strong(&c->credit_used, &used, used + cost))
				return 0;
			continue;
		}
		if (p2p_futex_wait(&c->event, seen, deadline))
			return -ENOBUFS;
	}
}

static int send_parts(struct p2p_conn *c, const char *name, size_t name_len, const char *msg,
		      size_t msg_len)
{
	uint8_t head[P2P_NOTIF_HEAD];
	size_t left = name_len + msg_len, name_at = 0, msg_at = 0;
	bool first = true;
	int rc = 0;

	p2p_notif_head_encode(&(struct p2p_notif_head){ (uint32_t)name_len, msg_len }, head);
	while (!rc && (first || left)) {
		size_t n = P2P_MIN(name_len - name_at, PART);
		size_t k = P2P_MIN(msg_len - msg_at, PART - n);
		struct p2p_piece piece[3] = {
			{ head, first ? sizeof(head) : 0 },
			{ name + name_at, n },
			{ msg + msg_at, k },
		};
		struct p2p_msg m = {
			.type = P2P_MSG_NOTIF,
			.flags = (uint16_t)((first ? P2P_MSG_F_FIRST : 0) |
					    (left == n + k ? P2P_MSG_F_LAST : 0)),
			.len = (uint32_t)(piece[0].len + n + k),
		};

		rc = p2p_session_send(c, &m, piece, 3);
		name_at += n;
		msg_at += k;
		left -= n + k;
		first = false;
	}
	return rc;
}

static int send_notif(struct p2p_conn *c, const char *name, size_t name_len, const char *msg,
		      size_t msg_len)
{
	int rc;

	pthread_mutex_lock(&c->notif_lock);
	rc = take_credit(c, cost_of(name_len, msg_len));
	if (!rc) {
		rc = send_parts(c, name, name_len, msg, msg_len);
		/* half a notification must not be followed by another */
		if (rc)
			p2p_conn_break(c, rc);
	}
	pthread_mutex_unlock(&c->notif_lock);
	if (!rc)
		p2p_count(c->engine, notifs_sent, 1);
	return rc;
}

static const char *hint(int rc)
{
	return rc == -ENOBUFS ? ": the peer's program does not take its notifications" : "";
}

int flagcxP2pEngineSendNotifV(FlagcxP2pConn *conn, const char *name, size_t name_len,
			      const void *msg, size_t msg_len)
{
	struct p2p_conn *c;
	int rc;

	if ((!name && name_len) || (!msg && msg_len))
		return p2p_fail(-EINVAL, "notification: NULL with a length");
	if (name_len > P2P_NOTIF_NAME_MAX || msg_len > P2P_NOTIF_MSG_MAX)
		return p2p_fail(-EMSGSIZE, "notification of %zu + %zu bytes", name_len, msg_len);
	c = p2p_conn_get(conn);
	if (!c)
		return p2p_fail(-ENOTCONN, "notification: no such connection");
	rc = send_notif(c, name, name_len, msg, msg_len);
	if (rc)
		p2p_fail(rc, "notification to %s:%d%s", c->peer_ip, c->peer_port, hint(rc));
	p2p_conn_put(c);
	return rc;
}

/* Length without the zeros at the end: the receiver puts them back. */
static size_t trimmed(const char *field)
{
	size_t n = FLAGCX_P2P_MSG_SIZE;

	while (n && !field[n - 1])
		n--;
	return n;
}

int flagcxP2pEngineSendNotif(FlagcxP2pConn *conn, FlagcxP2pNotifyMsg *notifyMsg)
{
	if (!notifyMsg) {
		p2p_fail(-EINVAL, "notification: NULL");
		return -1;
	}
	if (flagcxP2pEngineSendNotifV(conn, notifyMsg->name, trimmed(notifyMsg->name),
				      notifyMsg->msg, trimmed(notifyMsg->msg)))
		return -1;
	return (int)sizeof(*notifyMsg);
}

/* ----------------------------------------------------------------- receiving */

/* What all peers at once may leave here; those that are gone count, too. */
static uint64_t notes_max(const struct p2p_engine *e)
{
	return P2P_NOTIF_MSG_MAX + CREDIT * (uint64_t)e->config.g.notifMaxPeers;
}

static void note_account(struct p2p_engine *e, const struct p2p_note *n, bool add)
{
	if (add)
		atomic_fetch_add_explicit(&e->notes_cost, n->cost, memory_order_relaxed);
	else
		atomic_fetch_sub_explicit(&e->notes_cost, n->cost, memory_order_relaxed);
}

void p2p_note_free(struct p2p_engine *e, struct p2p_note *note)
{
	note_account(e, note, false);
	free(note->bytes);
	free(note);
}

static size_t whole(const struct p2p_note *n)
{
	return n->name_len + 1 + (size_t)n->msg_len + 1;
}

/* Room for what has been announced, but not far beyond what has come. */
static int note_reserve(struct p2p_note *n, size_t need)
{
	size_t cap = P2P_MIN(P2P_MAX(need, n->cap * 2), whole(n));
	char *bigger;

	if (need <= n->cap)
		return 0;
	bigger = realloc(n->bytes, cap);
	if (!bigger)
		return -ENOMEM;
	n->bytes = bigger;
	n->cap = cap;
	return 0;
}

static int note_append(struct p2p_note *n, const uint8_t *data, size_t len)
{
	size_t name_part;

	if (len > n->name_len + n->msg_len - n->got)
		return -EPROTO;
	if (note_reserve(n, (size_t)n->got + len + 2))
		return -ENOMEM;
	name_part = n->got < n->name_len ? P2P_MIN(len, n->name_len - (size_t)n->got) : 0;
	memcpy(n->bytes + n->got, data, name_part);
	/* behind the name there is a NUL */
	memcpy(n->bytes + n->got + name_part + 1, data + name_part, len - name_part);
	n->got += len;
	return 0;
}

static int note_begin(struct p2p_conn *c, const uint8_t *payload)
{
	struct p2p_notif_head h;
	struct p2p_note *n;
	uint64_t held = atomic_load(&c->notes_held);
	int rc = p2p_notif_head_decode(payload, &h);

	if (rc)
		return rc;
	/* the sender counts as we do; beyond it does not keep to the rules */
	if (held && held + cost_of(h.name_len, h.msg_len) > CREDIT)
		return -EPROTO;
	/* peers that say much and go, one after the other */
	if (atomic_load(&c->engine->notes_cost) > notes_max(c->engine))
		return -ENOBUFS;
	n = calloc(1, sizeof(*n));
	if (!n)
		return -ENOMEM;
	n->conn = c->handle;
	n->cost = cost_of(h.name_len, h.msg_len);
	n->name_len = h.name_len;
	n->msg_len = h.msg_len;
	atomic_fetch_add(&c->notes_held, n->cost);
	note_account(c->engine, n, true);
	c->note = n;
	return note_reserve(n, 2);
}

static void deliver(struct p2p_conn *c, struct p2p_note *n)
{
	struct p2p_engine *e = c->engine;

	n->bytes[n->name_len] = '\0';
	n->bytes[n->name_len + 1 + n->msg_len] = '\0';
	p2p_count(e, notifs_received, 1);
	pthread_mutex_lock(&e->notif_lock);
	p2p_list_add_tail(&e->notes, &n->link);
	pthread_mutex_unlock(&e->notif_lock);
}

int p2p_notif_part(struct p2p_conn *c, const struct p2p_msg *m, const uint8_t *payload)
{
	size_t skip = m->flags & P2P_MSG_F_FIRST ? P2P_NOTIF_HEAD : 0;
	int rc = 0;

	if (!!skip == !!c->note)
		return -EPROTO; /* a first part within another, or a later one without */
	if (skip)
		rc = note_begin(c, payload);
	if (!rc)
		rc = note_append(c->note, payload + skip, m->len - skip);
	if (!rc && m->flags & P2P_MSG_F_LAST) {
		if (c->note->got != c->note->name_len + c->note->msg_len)
			return -EPROTO;
		deliver(c, c->note);
		c->note = NULL;
	}
	return rc;
}

/* -------------------------------------------------------------------- taking */

/* The oldest that passes, out of the queue; NULL. */
static struct p2p_note *take(struct p2p_engine *e, bool small_only)
{
	struct p2p_note *found = NULL;

	pthread_mutex_lock(&e->notif_lock);
	for (struct p2p_list *i = e->notes.next; i != &e->notes && !found; i = i->next) {
		struct p2p_note *n = p2p_list_entry(i, struct p2p_note, link);

		if (!small_only || (n->name_len <= FLAGCX_P2P_MSG_SIZE &&
				    n->msg_len <= FLAGCX_P2P_MSG_SIZE))
			found = n;
	}
	if (found)
		p2p_list_del(&found->link);
	pthread_mutex_unlock(&e->notif_lock);
	return found;
}

/* Give the sender its credit back. */
static void taken(const struct p2p_note *n)
{
	struct p2p_conn *c = p2p_conn_get(p2p_handle_pointer(n->conn));
	uint8_t buf[8];
	struct p2p_piece piece = { buf, sizeof(buf) };
	struct p2p_msg m = { .type = P2P_MSG_NOTIF_CREDIT, .len = sizeof(buf) };

	if (!c)
		return;
	/* before the message: the sender may send again as soon as it has that */
	atomic_fetch_sub(&c->notes_held, n->cost);
	p2p_u64_encode(n->cost, buf);
	p2p_session_send(c, &m, &piece, 1);
	p2p_conn_put(c);
}

int flagcxP2pEngineGetNotifsV(FlagcxP2pEngine *engine, FlagcxP2pNotif *out, int cap)
{
	struct p2p_engine *e = p2p_engine_get(engine);
	struct p2p_note *n;
	int got = 0;

	if (!e)
		return p2p_fail(-EINVAL, "notifications: no such engine");
	while (out && got < cap && (n = take(e, false)) != NULL) {
		out[got++] = (FlagcxP2pNotif){
			.name = n->bytes,
			.name_len = n->name_len,
			.msg = n->bytes + n->name_len + 1,
			.msg_len = (size_t)n->msg_len,
			.conn = p2p_handle_pointer(n->conn),
		};
		taken(n);
		n->bytes = NULL; /* they are the caller's now */
		p2p_note_free(e, n);
	}
	p2p_engine_put(e);
	return got;
}

void flagcxP2pNotifFree(FlagcxP2pNotif *notif)
{
	if (!notif)
		return;
	free(notif->name); /* the message lies in the same piece of memory */
	notif->name = NULL;
	notif->msg = NULL;
}

int flagcxP2pEngineGetNotifs(FlagcxP2pNotifyMsg *msgs, int cap)
{
	struct p2p_engine *engines[1024];
	int n = p2p_engines(engines, P2P_ARRAY_SIZE(engines)), got = 0;

	for (int i = 0; i < n; i++) {
		struct p2p_note *note;

		while (msgs && got < cap && !engines[i]->private_notifs &&
		       (note = take(engines[i], true)) != NULL) {
			memset(&msgs[got], 0, sizeof(msgs[got]));
			memcpy(msgs[got].name, note->bytes, note->name_len);
			memcpy(msgs[got].msg, note->bytes + note->name_len + 1,
			       (size_t)note->msg_len);
			got++;
			taken(note);
			p2p_note_free(engines[i], note);
		}
		p2p_engine_put(engines[i]);
	}
	return got;
}
