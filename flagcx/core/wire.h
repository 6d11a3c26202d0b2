/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes over the wire, as bytes: little-endian, every size checked before
 * it is used, every reserved byte zero or refused. Pure functions, fuzzed.
 *
 * A TCP connection to an engine starts with a greeting of fixed size. The
 * connector says HELLO; the acceptor WELCOME, with its proof of the secret;
 * the connector AUTH, with its own; the acceptor SESSION. From then on the
 * connection carries control messages. A data stream starts with DATA, which
 * names the session and proves that it belongs to it, and carries frames.
 */
#ifndef P2P_WIRE_H
#define P2P_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define P2P_WIRE_VERSION 1

/* --------------------------------------------------------------- greetings */

#define P2P_GREETING_SIZE 160

enum p2p_greeting_kind {
	P2P_GREETING_HELLO = 1,
	P2P_GREETING_WELCOME = 2,
	P2P_GREETING_AUTH = 3,
	P2P_GREETING_SESSION = 4,
	P2P_GREETING_DATA = 5,
};

struct p2p_greeting {
	uint16_t version;
	uint16_t kind;        /* enum p2p_greeting_kind */
	int32_t status;       /* WELCOME, SESSION: 0 or why not, -errno */
	uint64_t incarnation; /* of the sender's engine; never 0 */
	uint64_t cookie;      /* of the sender's process */
	uint8_t nonce[16];
	uint8_t host[16];     /* boot id */
	uint64_t session;     /* SESSION, DATA */
	uint8_t token[16];    /* SESSION: what DATA proves to know */
	uint8_t proof[32];    /* WELCOME, AUTH: of the secret; DATA: of the token */
	uint32_t transports;  /* HELLO: what it speaks; SESSION: the one chosen (bits) */
	uint16_t paths;
	uint16_t path;        /* DATA */
	uint16_t port;        /* where the sender listens */
	int32_t device;
};

void p2p_greeting_encode(const struct p2p_greeting *g, uint8_t buf[P2P_GREETING_SIZE]);
/*
 * 0; -EPROTO: not a greeting; -EPROTONOSUPPORT: one of another version (g has
 * version and kind then).
 */
int p2p_greeting_decode(const uint8_t buf[P2P_GREETING_SIZE], struct p2p_greeting *g);

/* --------------------------------------------------------- control messages */

#define P2P_MSG_HEADER 16
#define P2P_MSG_MAX (256u << 10) /* payload bytes of one message */

enum p2p_msg_type {
	P2P_MSG_PING = 1,
	P2P_MSG_READY = 2,         /* acceptor: every path stands */
	P2P_MSG_REGION_ADD = 3,    /* regions */
	P2P_MSG_REGION_DEL = 4,    /* keys */
	P2P_MSG_REGION_QUERY = 5,  /* one range; arg is its number */
	P2P_MSG_REGION_ANSWER = 6, /* one region or none; arg as asked */
	P2P_MSG_NOTIF = 7,         /* a part of a notification */
	P2P_MSG_NOTIF_CREDIT = 8,  /* bytes that the receiver has taken */
	P2P_MSG_REGION_KEYS = 9,   /* the transport's keys of one region */
	P2P_MSG_TYPES,
};

enum p2p_msg_flags {
	P2P_MSG_F_FIRST = 1,    /* NOTIF: starts with a part header */
	P2P_MSG_F_LAST = 2,     /* NOTIF: completes it; REGION_ADD: the table is whole */
};

struct p2p_msg {
	uint16_t type;
	uint16_t flags;
	uint32_t len;
	uint32_t arg;
};

void p2p_msg_encode(const struct p2p_msg *m, uint8_t buf[P2P_MSG_HEADER]);
int p2p_msg_decode(const uint8_t buf[P2P_MSG_HEADER], struct p2p_msg *m);

#define P2P_REGION_WIRE 24
#define P2P_REGIONS_PER_MSG (P2P_MSG_MAX / P2P_REGION_WIRE)

struct p2p_region {
	uint64_t base;
	uint64_t size;
	uint32_t rkey;
	uint32_t rid;
};

void p2p_region_encode(const struct p2p_region *r, uint8_t buf[P2P_REGION_WIRE]);
/* -EPROTO when it is empty or wraps. */
int p2p_region_decode(const uint8_t buf[P2P_REGION_WIRE], struct p2p_region *r);

#define P2P_KEYS_HEAD 40
#define P2P_KEYS_MAX ((P2P_MSG_MAX - P2P_KEYS_HEAD) / 4)

/* A region is reached by one key on each rail for each step of its bytes. */
struct p2p_keys_head {
	uint64_t base;
	uint64_t size;
	uint64_t step;
	uint32_t rkey;
	uint32_t rid;
	uint16_t rails;
	uint16_t pieces;
};

void p2p_keys_head_encode(const struct p2p_keys_head *h, uint8_t buf[P2P_KEYS_HEAD]);
/* len: of the message, with rails x pieces keys of 4 bytes behind the head. */
int p2p_keys_head_decode(const uint8_t *buf, size_t len, struct p2p_keys_head *h);

#define P2P_NOTIF_HEAD 16
#define P2P_NOTIF_NAME_MAX (64u << 10)
#define P2P_NOTIF_MSG_MAX (1ull << 30)

struct p2p_notif_head {
	uint32_t name_len;
	uint64_t msg_len;
};

void p2p_notif_head_encode(const struct p2p_notif_head *h, uint8_t buf[P2P_NOTIF_HEAD]);
int p2p_notif_head_decode(const uint8_t buf[P2P_NOTIF_HEAD], struct p2p_notif_head *h);

void p2p_u64_encode(uint64_t v, uint8_t buf[8]);
uint64_t p2p_u64_decode(const uint8_t buf[8]);
void p2p_u32_encode(uint32_t v, uint8_t buf[4]);
uint32_t p2p_u32_decode(const uint8_t buf[4]);

/* ------------------------------------------------------- frames of a stream */

#define P2P_FRAME_HEADER 32
#define P2P_FRAME_DESC 24
#define P2P_FRAME_BAD 8
#define P2P_FRAME_NOTE_SIZE 64
#define P2P_FRAME_SLICES 1024 /* the most in one frame */

enum p2p_frame_type {
	P2P_FRAME_WRITE = 1,     /* descriptors, then the bytes of all of them */
	P2P_FRAME_READ = 2,      /* descriptors */
	P2P_FRAME_WRITE_ACK = 3, /* refused slices */
	P2P_FRAME_READ_RESP = 4, /* refused slices, then the bytes of the others */
	P2P_FRAME_NOTE = 5,      /* a word of the transport's own */
	P2P_FRAME_TYPES,
};

struct p2p_frame_header {
	uint8_t type;
	uint16_t count;    /* slices of the request; the same in the answer */
	uint32_t seq;      /* of the request; the same in the answer */
	uint32_t bad;      /* refused slices, in an answer */
	uint64_t body_len; /* bytes after header and descriptors */
};

struct p2p_frame_desc {
	uint64_t addr;
	uint32_t len;
	uint32_t rkey;
	uint32_t rid;
};

struct p2p_frame_bad {
	uint32_t index;
	int32_t error; /* -errno */
};

void p2p_frame_encode(const struct p2p_frame_header *h, uint8_t buf[P2P_FRAME_HEADER]);
int p2p_frame_decode(const uint8_t buf[P2P_FRAME_HEADER], struct p2p_frame_header *h);
/* Bytes between header and body. */
size_t p2p_frame_meta(const struct p2p_frame_header *h);
void p2p_frame_desc_encode(const struct p2p_frame_desc *d, uint8_t buf[P2P_FRAME_DESC]);
int p2p_frame_desc_decode(const uint8_t buf[P2P_FRAME_DESC], struct p2p_frame_desc *d);
void p2p_frame_bad_encode(const struct p2p_frame_bad *b, uint8_t buf[P2P_FRAME_BAD]);
/* -EPROTO: beyond count, out of order (index below min), or no error. */
int p2p_frame_bad_decode(const uint8_t buf[P2P_FRAME_BAD], uint32_t min, uint32_t count,
			 struct p2p_frame_bad *b);

#endif /* P2P_WIRE_H */
