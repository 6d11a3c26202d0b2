/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer's keys, for a transport whose hardware checks them: by which key each
 * part of each of its registrations is reached on each of its rails. What is
 * not in here, or is of another generation, has to be asked of the peer itself.
 */
#ifndef P2P_KEYS_H
#define P2P_KEYS_H

#include "wire.h"

#include <pthread.h>

/* What a peer may make us keep: of how many registrations, and how many keys in all. */
#define P2P_KEYSETS_MAX 65536u
#define P2P_KEYS_KEPT_MAX (4u << 20)

struct p2p_keyset {
	struct p2p_keys_head head;
	uint32_t key[]; /* by rail, then by step */
};

struct p2p_key_table {
	pthread_rwlock_t lock;
	struct p2p_keyset **set; /* by index of the registration's key */
	uint32_t cap;
	uint32_t sets, keys;     /* kept in all */
};

int p2p_keys_init(struct p2p_key_table *t);
void p2p_keys_destroy(struct p2p_key_table *t);
/*
 * Take a REGION_KEYS message in place of what was known: 0, -EPROTO, -ENOMEM;
 * -ENOSPC: nothing is known of that registration any more, and the limit is reached.
 */
int p2p_keys_take(struct p2p_key_table *t, const uint8_t *payload, size_t len);
void p2p_keys_del(struct p2p_key_table *t, uint32_t rid, uint32_t rkey);

/* Look-ups go between these. */
void p2p_keys_hold(struct p2p_key_table *t);
void p2p_keys_release(struct p2p_key_table *t);
/* The keys of exactly this registration, if they reach the whole range; NULL. */
const struct p2p_keyset *p2p_keys_find(const struct p2p_key_table *t, uint32_t rid,
				       uint32_t rkey, uint64_t addr, uint64_t len);

#endif /* P2P_KEYS_H */
