/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles: an index and a generation, and a count of who uses the object.
 *
 * A handle resolves until it is retired; the object is released when the last
 * user has put it. A look-up takes no lock. Used for engines and connections
 * (one table of the process: names only, nothing of an engine is shared) and
 * for the transfers of an engine.
 */
#ifndef P2P_TABLE_H
#define P2P_TABLE_H

#include "common.h"

#include <pthread.h>

#define P2P_TABLE_CHUNK 256u
#define P2P_TABLE_CHUNKS 4096u /* a million objects */

struct p2p_slot {
	_Atomic uint64_t state; /* generation, retired, users: see table.c */
	void *_Atomic object;
	uint32_t next_free;
};

struct p2p_table {
	pthread_mutex_t lock;     /* making and freeing slots */
	uint32_t free_head;       /* lock */
	uint32_t chunks;          /* lock */
	_Atomic(struct p2p_slot *) chunk[P2P_TABLE_CHUNKS];
	void (*release)(void *object);
};

#define P2P_TABLE_INITIALIZER(fn) \
	{ \
		.lock = PTHREAD_MUTEX_INITIALIZER, .free_head = UINT32_MAX, .release = (fn) \
	}

int p2p_table_init(struct p2p_table *t, void (*release)(void *object));
/* Every object must be gone. */
void p2p_table_destroy(struct p2p_table *t);

/* Enter an object with one user, the caller. 0 is never a handle. */
int p2p_table_add(struct p2p_table *t, void *object, uint64_t *handle);
/* The object with one more user, or NULL. */
void *p2p_table_get(struct p2p_table *t, uint64_t handle);
/* One more user, for who already is one. */
void p2p_table_ref(struct p2p_table *t, uint64_t handle);
void p2p_table_put(struct p2p_table *t, uint64_t handle);
/* The handle resolves no more; users keep the object. False: it was retired before. */
bool p2p_table_retire(struct p2p_table *t, uint64_t handle);

/* A handle as the pointer a caller sees, and back. Odd, so never an object's address. */
static inline void *p2p_handle_pointer(uint64_t handle)
{
	return (void *)(uintptr_t)handle;
}

static inline uint64_t p2p_pointer_handle(const void *pointer)
{
	return (uint64_t)(uintptr_t)pointer;
}

#endif /* P2P_TABLE_H */
