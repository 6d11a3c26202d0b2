// SPDX-License-Identifier: Apache-2.0
/*
 * See keys.h. An array by the index in a registration's key, so that a look-up
 * is one step. Lock: the table's rwlock, a leaf; workers read, the control
 * thread writes.
 */
#include "keys.h"
#include "region.h"

#include <stdlib.h>
#include <string.h>

int p2p_keys_init(struct p2p_key_table *t)
{
	memset(t, 0, sizeof(*t));
	return -pthread_rwlock_init(&t->lock, NULL);
}

void p2p_keys_destroy(struct p2p_key_table *t)
{
	for (uint32_t i = 0; i < t->cap; i++)
		free(t->set[i]);
	free(t->set);
	pthread_rwlock_destroy(&t->lock);
}

static int reserve(struct p2p_key_table *t, uint32_t index)
{
	uint32_t cap = t->cap ? t->cap : 64;
	void *bigger;

	if (index < t->cap)
		return 0;
	while (cap <= index)
		cap *= 2;
	bigger = realloc(t->set, cap * sizeof(struct p2p_keyset *));
	if (!bigger)
		return -ENOMEM;
	t->set = bigger;
	memset(t->set + t->cap, 0, (cap - t->cap) * sizeof(struct p2p_keyset *));
	t->cap = cap;
	return 0;
}

static uint32_t keys_of(const struct p2p_keyset *set)
{
	return (uint32_t)set->head.rails * set->head.pieces;
}

static void forget(struct p2p_key_table *t, uint32_t index)
{
	struct p2p_keyset *set = t->set[index];

	if (!set)
		return;
	t->sets--;
	t->keys -= keys_of(set);
	t->set[index] = NULL;
	free(set);
}

static int keep(struct p2p_key_table *t, uint32_t index, struct p2p_keyset *set)
{
	int rc = reserve(t, index);

	if (rc)
		return rc;
	forget(t, index);
	if (t->sets == P2P_KEYSETS_MAX || keys_of(set) > P2P_KEYS_KEPT_MAX - t->keys)
		return -ENOSPC;
	t->sets++;
	t->keys += keys_of(set);
	t->set[index] = set;
	return 0;
}

int p2p_keys_take(struct p2p_key_table *t, const uint8_t *payload, size_t len)
{
	struct p2p_keys_head head;
	struct p2p_keyset *set;
	size_t keys;
	int rc = p2p_keys_head_decode(payload, len, &head);

	if (rc)
		return rc;
	keys = (size_t)head.rails * head.pieces;
	set = malloc(sizeof(*set) + keys * sizeof(uint32_t));
	if (!set)
		return -ENOMEM;
	set->head = head;
	for (size_t i = 0; i < keys; i++)
		set->key[i] = p2p_u32_decode(payload + P2P_KEYS_HEAD + 4 * i);
	pthread_rwlock_wrlock(&t->lock);
	rc = keep(t, p2p_mr_index(head.rid), set);
	pthread_rwlock_unlock(&t->lock);
	if (rc)
		free(set);
	return rc;
}

void p2p_keys_del(struct p2p_key_table *t, uint32_t rid, uint32_t rkey)
{
	uint32_t index = p2p_mr_index(rid);
	struct p2p_keyset *set;

	pthread_rwlock_wrlock(&t->lock);
	set = index < t->cap ? t->set[index] : NULL;
	if (set && set->head.rid == rid && set->head.rkey == rkey)
		forget(t, index);
	pthread_rwlock_unlock(&t->lock);
}

void p2p_keys_hold(struct p2p_key_table *t)
{
	pthread_rwlock_rdlock(&t->lock);
}

void p2p_keys_release(struct p2p_key_table *t)
{
	pthread_rwlock_unlock(&t->lock);
}

const struct p2p_keyset *p2p_keys_find(const struct p2p_key_table *t, uint32_t rid,
				       uint32_t rkey, uint64_t addr, uint64_t len)
{
	uint32_t index = p2p_mr_index(rid);
	const struct p2p_keyset *set = index < t->cap ? t->set[index] : NULL;

	if (!set || set->head.rid != rid || set->head.rkey != rkey || addr < set->head.base ||
	    len > set->head.size || addr - set->head.base > set->head.size - len)
		return NULL;
	return set;
}
