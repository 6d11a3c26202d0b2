// SPDX-License-Identifier: Apache-2.0
/* Encoding and checked decoding. See wire.h. */
#include "wire.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define GREETING_MAGIC 0x3150325058485031ull
#define MSG_MAGIC 0x43503250u
#define FRAME_MAGIC 0x44503250u

static void put16(uint8_t *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, sizeof(v));
}

static void put32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

static void put64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

static uint16_t get16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

static uint32_t get32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

static uint64_t get64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

void p2p_u64_encode(uint64_t v, uint8_t buf[8])
{
	put64(buf, v);
}

uint64_t p2p_u64_decode(const uint8_t buf[8])
{
	return get64(buf);
}

void p2p_u32_encode(uint32_t v, uint8_t buf[4])
{
	put32(buf, v);
}

uint32_t p2p_u32_decode(const uint8_t buf[4])
{
	return get32(buf);
}

/* A status or refusal from the wire: an errno value as we know them, negative. */
static int status_valid(int32_t status)
{
	return status <= 0 && status > -4096;
}

void p2p_greeting_encode(const struct p2p_greeting *g, uint8_t buf[P2P_GREETING_SIZE])
{
	memset(buf, 0, P2P_GREETING_SIZE);
	put64(buf, GREETING_MAGIC);
	put16(buf + 8, g->version);
	put16(buf + 10, g->kind);
	put32(buf + 12, (uint32_t)g->status);
	put64(buf + 16, g->incarnation);
	put64(buf + 24, g->cookie);
	memcpy(buf + 32, g->nonce, 16);
	memcpy(buf + 48, g->host, 16);
	put64(buf + 64, g->session);
	memcpy(buf + 72, g->token, 16);
	memcpy(buf + 88, g->proof, 32);
	put32(buf + 120, g->transports);
	put16(buf + 124, g->paths);
	put16(buf + 126, g->path);
	put16(buf + 128, g->port);
	put32(buf + 132, (uint32_t)g->device);
}

int p2p_greeting_decode(const uint8_t buf[P2P_GREETING_SIZE], struct p2p_greeting *g)
{
	static const uint8_t zero[24];

	memset(g, 0, sizeof(*g));
	if (get64(buf) != GREETING_MAGIC)
		return -EPROTO;
	g->version = get16(buf + 8);
	g->kind = get16(buf + 10);
	if (g->version != P2P_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	g->status = (int32_t)get32(buf + 12);
	g->incarnation = get64(buf + 16);
	g->cookie = get64(buf + 24);
	memcpy(g->nonce, buf + 32, 16);
	memcpy(g->host, buf + 48, 16);
	g->session = get64(buf + 64);
	memcpy(g->token, buf + 72, 16);
	memcpy(g->proof, buf + 88, 32);
	g->transports = get32(buf + 120);
	g->paths = get16(buf + 124);
	g->path = get16(buf + 126);
	g->port = get16(buf + 128);
	g->device = (int32_t)get32(buf + 132);
	if (get16(buf + 130) || memcmp(buf + 136, zero, sizeof(zero)) ||
	    g->kind < P2P_GREETING_HELLO || g->kind > P2P_GREETING_DATA ||
	    !status_valid(g->status) || !g->incarnation)
		return -EPROTO;
	return 0;
}

void p2p_msg_encode(const struct p2p_msg *m, uint8_t buf[P2P_MSG_HEADER])
{
	put32(buf, MSG_MAGIC);
	put16(buf + 4, m->type);
	put16(buf + 6, m->flags);
	put32(buf + 8, m->len);
	put32(buf + 12, m->arg);
}

/* Does a message of this type come with this many bytes? */
static int msg_len_valid(const struct p2p_msg *m)
{
	switch (m->type) {
	case P2P_MSG_PING:
	case P2P_MSG_READY:
		return m->len == 0;
	case P2P_MSG_REGION_ADD:
		return m->len % P2P_REGION_WIRE == 0;
	case P2P_MSG_REGION_DEL:
		return m->len && m->len % 8 == 0;
	case P2P_MSG_REGION_QUERY:
		return m->len == 16;
	case P2P_MSG_REGION_ANSWER:
		return m->len == 0 || m->len == P2P_REGION_WIRE;
	case P2P_MSG_NOTIF:
		return m->flags & P2P_MSG_F_FIRST ? m->len >= P2P_NOTIF_HEAD : m->len > 0;
	case P2P_MSG_NOTIF_CREDIT:
		return m->len == 8;
	case P2P_MSG_REGION_KEYS:
		return m->len > P2P_KEYS_HEAD && (m->len - P2P_KEYS_HEAD) % 4 == 0;
	default:
		return 0;
	}
}

int p2p_msg_decode(const uint8_t buf[P2P_MSG_HEADER], struct p2p_msg *m)
{
	if (get32(buf) != MSG_MAGIC)
		return -EPROTO;
	m->type = get16(buf + 4);
	m->flags = get16(buf + 6);
	m->len = get32(buf + 8);
	m->arg = get32(buf + 12);
	if (m->len > P2P_MSG_MAX || !msg_len_valid(m) ||
	    m->flags & ~(P2P_MSG_F_FIRST | P2P_MSG_F_LAST))
		return -EPROTO;
	return 0;
}

void p2p_region_encode(const struct p2p_region *r, uint8_t buf[P2P_REGION_WIRE])
{
	put64(buf, r->base);
	put64(buf + 8, r->size);
	put32(buf + 16, r->rkey);
	put32(buf + 20, r->rid);
}

int p2p_region_decode(const uint8_t buf[P2P_REGION_WIRE], struct p2p_region *r)
{
	r->base = get64(buf);
	r->size = get64(buf + 8);
	r->rkey = get32(buf + 16);
	r->rid = get32(buf + 20);
	return r->size && r->size <= UINT64_MAX - r->base ? 0 : -EPROTO;
}

void p2p_keys_head_encode(const struct p2p_keys_head *h, uint8_t buf[P2P_KEYS_HEAD])
{
	put64(buf, h->base);
	put64(buf + 8, h->size);
	put64(buf + 16, h->step);
	put32(buf + 24, h->rkey);
	put32(buf + 28, h->rid);
	put16(buf + 32, h->rails);
	put16(buf + 34, h->pieces);
	put32(buf + 36, 0);
}

int p2p_keys_head_decode(const uint8_t *buf, size_t len, struct p2p_keys_head *h)
{
	if (len < P2P_KEYS_HEAD)
		return -EPROTO;
	h->base = get64(buf);
	h->size = get64(buf + 8);
	h->step = get64(buf + 16);
	h->rkey = get32(buf + 24);
	h->rid = get32(buf + 28);
	h->rails = get16(buf + 32);
	h->pieces = get16(buf + 34);
	if (get32(buf + 36) || !h->size || h->size > UINT64_MAX - h->base || !h->step ||
	    !h->rails || !h->pieces)
		return -EPROTO;
	/* so many steps hold all of it, and no fewer do */
	if ((h->size - 1) / h->step + 1 != h->pieces)
		return -EPROTO;
	return len - P2P_KEYS_HEAD == (size_t)h->rails * h->pieces * 4 ? 0 : -EPROTO;
}

void p2p_notif_head_encode(const struct p2p_notif_head *h, uint8_t buf[P2P_NOTIF_HEAD])
{
	put32(buf, h->name_len);
	put32(buf + 4, 0);
	put64(buf + 8, h->msg_len);
}

int p2p_notif_head_decode(const uint8_t buf[P2P_NOTIF_HEAD], struct p2p_notif_head *h)
{
	h->name_len = get32(buf);
	h->msg_len = get64(buf + 8);
	if (get32(buf + 4) || h->name_len > P2P_NOTIF_NAME_MAX || h->msg_len > P2P_NOTIF_MSG_MAX)
		return -EPROTO;
	return 0;
}

void p2p_frame_encode(const struct p2p_frame_header *h, uint8_t buf[P2P_FRAME_HEADER])
{
	put32(buf, FRAME_MAGIC);
	buf[4] = h->type;
	buf[5] = 0;
	put16(buf + 6, h->count);
	put32(buf + 8, h->seq);
	put32(buf + 12, h->bad);
	put64(buf + 16, h->body_len);
	put64(buf + 24, 0);
}

int p2p_frame_decode(const uint8_t buf[P2P_FRAME_HEADER], struct p2p_frame_header *h)
{
	int answer;

	if (get32(buf) != FRAME_MAGIC || buf[5] || get64(buf + 24))
		return -EPROTO;
	h->type = buf[4];
	h->count = get16(buf + 6);
	h->seq = get32(buf + 8);
	h->bad = get32(buf + 12);
	h->body_len = get64(buf + 16);
	if (h->type < P2P_FRAME_WRITE || h->type >= P2P_FRAME_TYPES || !h->count ||
	    h->count > P2P_FRAME_SLICES)
		return -EPROTO;
	answer = h->type == P2P_FRAME_WRITE_ACK || h->type == P2P_FRAME_READ_RESP;
	if (h->bad > (answer ? h->count : 0))
		return -EPROTO;
	/* the sum of at most count lengths of 32 bits */
	if (h->type == P2P_FRAME_WRITE || h->type == P2P_FRAME_READ_RESP)
		return h->body_len <= (uint64_t)h->count * UINT32_MAX ? 0 : -EPROTO;
	return h->body_len ? -EPROTO : 0;
}

size_t p2p_frame_meta(const struct p2p_frame_header *h)
{
	if (h->type == P2P_FRAME_NOTE)
		return P2P_FRAME_NOTE_SIZE;
	return h->type == P2P_FRAME_WRITE || h->type == P2P_FRAME_READ ?
		       (size_t)h->count * P2P_FRAME_DESC :
		       (size_t)h->bad * P2P_FRAME_BAD;
}

void p2p_frame_desc_encode(const struct p2p_frame_desc *d, uint8_t buf[P2P_FRAME_DESC])
{
	put64(buf, d->addr);
	put32(buf + 8, d->len);
	put32(buf + 12, d->rkey);
	put32(buf + 16, d->rid);
	put32(buf + 20, 0);
}

int p2p_frame_desc_decode(const uint8_t buf[P2P_FRAME_DESC], struct p2p_frame_desc *d)
{
	d->addr = get64(buf);
	d->len = get32(buf + 8);
	d->rkey = get32(buf + 12);
	d->rid = get32(buf + 16);
	return d->len && !get32(buf + 20) ? 0 : -EPROTO;
}

void p2p_frame_bad_encode(const struct p2p_frame_bad *b, uint8_t buf[P2P_FRAME_BAD])
{
	put32(buf, b->index);
	put32(buf + 4, (uint32_t)b->error);
}

int p2p_frame_bad_decode(const uint8_t buf[P2P_FRAME_BAD], uint32_t min, uint32_t count,
			 struct p2p_frame_bad *b)
{
	b->index = get32(buf);
	b->error = (int32_t)get32(buf + 4);
	return b->index >= min && b->index < count && b->error && status_valid(b->error) ?
		       0 :
		       -EPROTO;
}
