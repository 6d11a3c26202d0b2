// SPDX-License-Identifier: Apache-2.0
/*
 * A slot's state is one word, so that a look-up is one compare-and-swap:
 * generation (32 bits) | retired (1) | users (31). A free slot has no users
 * and counts as retired. A handle is generation (31 bits) | index (32) | 1.
 */
#include "table.h"

#include <stdlib.h>

#define RETIRED (1ull << 31)
#define USERS (RETIRED - 1)
#define GENERATION(state) ((uint32_t)((state) >> 32))
#define GENERATION_BITS 0x7fffffffu

static uint64_t make_handle(uint32_t generation, uint32_t index)
{
	return (uint64_t)(generation & GENERATION_BITS) << 33 | (uint64_t)index << 1 | 1;
}

int p2p_table_init(struct p2p_table *t, void (*release)(void *object))
{
	*t = (struct p2p_table){ .free_head = UINT32_MAX, .release = release };
	return -pthread_mutex_init(&t->lock, NULL);
}

void p2p_table_destroy(struct p2p_table *t)
{
	for (uint32_t i = 0; i < t->chunks; i++)
		free(atomic_load(&t->chunk[i]));
	pthread_mutex_destroy(&t->lock);
}

static struct p2p_slot *slot_at(struct p2p_table *t, uint32_t index)
{
	struct p2p_slot *chunk;

	if (index / P2P_TABLE_CHUNK >= P2P_TABLE_CHUNKS)
		return NULL;
	chunk = atomic_load_explicit(&t->chunk[index / P2P_TABLE_CHUNK], memory_order_acquire);
	return chunk ? &chunk[index % P2P_TABLE_CHUNK] : NULL;
}

static struct p2p_slot *slot_of(struct p2p_table *t, uint64_t handle, uint32_t *generation)
{
	if (!(handle & 1))
		return NULL;
	*generation = (uint32_t)(handle >> 33);
	return slot_at(t, (uint32_t)(handle >> 1));
}

static int grow(struct p2p_table *t)
{
	struct p2p_slot *chunk;
	uint32_t first = t->chunks * P2P_TABLE_CHUNK;

	if (t->chunks == P2P_TABLE_CHUNKS)
		return -ENOSPC;
	chunk = calloc(P2P_TABLE_CHUNK, sizeof(*chunk));
	if (!chunk)
		return -ENOMEM;
	for (uint32_t i = 0; i < P2P_TABLE_CHUNK; i++) {
		atomic_init(&chunk[i].state, (1ull << 32) | RETIRED);
		chunk[i].next_free = i + 1 < P2P_TABLE_CHUNK ? first + i + 1 : t->free_head;
	}
	/* pairs with the acquire in slot_at() */
	atomic_store_explicit(&t->chunk[t->chunks], chunk, memory_order_release);
	t->chunks++;
	t->free_head = first;
	return 0;
}

int p2p_table_add(struct p2p_table *t, void *object, uint64_t *handle)
{
	struct p2p_slot *s;
	uint32_t index, generation;
	int rc = 0;

	pthread_mutex_lock(&t->lock);
	if (t->free_head == UINT32_MAX)
		rc = grow(t);
	if (!rc) {
		index = t->free_head;
		s = slot_at(t, index);
		t->free_head = s->next_free;
		generation = GENERATION(atomic_load_explicit(&s->state, memory_order_relaxed));
		atomic_store_explicit(&s->object, object, memory_order_relaxed);
		*handle = make_handle(generation, index);
		/* publishes the object to p2p_table_get() */
		atomic_store_explicit(&s->state, (uint64_t)generation << 32 | 1,
				      memory_order_release);
	}
	pthread_mutex_unlock(&t->lock);
	return rc;
}

void *p2p_table_get(struct p2p_table *t, uint64_t handle)
{
	uint32_t generation;
	struct p2p_slot *s = slot_of(t, handle, &generation);
	uint64_t state;

	if (!s)
		return NULL;
	state = atomic_load_explicit(&s->state, memory_order_acquire);
	do {
		if ((GENERATION(state) & GENERATION_BITS) != generation || state & RETIRED)
			return NULL;
	} while (!atomic_compare_exchange_weak_explicit(&s->state, &state, state + 1,
							memory_order_acquire,
							memory_order_acquire));
	return atomic_load_explicit(&s->object, memory_order_relaxed);
}

void p2p_table_ref(struct p2p_table *t, uint64_t handle)
{
	uint32_t generation;
	struct p2p_slot *s = slot_of(t, handle, &generation);

	atomic_fetch_add_explicit(&s->state, 1, memory_order_relaxed);
}

void p2p_table_put(struct p2p_table *t, uint64_t handle)
{
	uint32_t generation;
	struct p2p_slot *s = slot_of(t, handle, &generation);
	uint64_t state = atomic_fetch_sub_explicit(&s->state, 1, memory_order_acq_rel) - 1;

	if (state & USERS)
		return;
	/* the last user of a retired object: nobody can find it any more */
	t->release(atomic_load_explicit(&s->object, memory_order_relaxed));
	pthread_mutex_lock(&t->lock);
	atomic_store_explicit(&s->object, NULL, memory_order_relaxed);
	atomic_store_explicit(&s->state, (uint64_t)(GENERATION(state) + 1) << 32 | RETIRED,
			      memory_order_release);
	s->next_free = t->free_head;
	t->free_head = (uint32_t)(handle >> 1);
	pthread_mutex_unlock(&t->lock);
}

bool p2p_table_retire(struct p2p_table *t, uint64_t handle)
{
	uint32_t generation;
	struct p2p_slot *s = slot_of(t, handle, &generation);

	return !(atomic_fetch_or_explicit(&s->state, RETIRED, memory_order_acq_rel) & RETIRED);
}
