/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: what this engine has registered, and what a peer has.
 *
 * A registration is found by its id (callers), by its key (frames of peers)
 * and by address. Whoever moves bytes pins it first; MrDestroy makes it
 * unfindable and then waits for the pins. Keys are random and carry a
 * generation, so that an old one is told from a wrong one.
 */
#ifndef P2P_REGION_H
#define P2P_REGION_H

#include "common.h"
#include "wire.h"

#include <pthread.h>

#define P2P_NETS 2

/* What a transport made of a registration; each keeps more behind it. */
struct p2p_mr_net {
	const char *path;  /* as in FlagcxP2pMrInfo */
	char reason[108];  /* why not a better one; "" when it is the best */
};

struct p2p_mr {
	uint64_t base;
	uint64_t size;
	uint64_t id;           /* what callers have */
	uint32_t rkey;
	uint32_t rid;
	int device;            /* phxfs device; -1: host memory */
	uint32_t refs;         /* counted registrations; table lock */
	_Atomic uint32_t pins; /* moves in progress, plus one while findable */
	_Atomic bool gone;     /* not findable any more */
	char reason[96];
	_Atomic(struct p2p_mr_net *) net[P2P_NETS]; /* by the transport's slot; NULL: none yet */
};

struct p2p_mr_table {
	pthread_rwlock_t lock;
	struct p2p_mr **slot;   /* by index of the key */
	uint32_t *generation;   /* of each slot, also when empty */
	uint32_t slots, cap;
	uint32_t *free_slot;
	uint32_t frees;
	struct p2p_mr **sorted; /* by base, then size */
	uint64_t *reach;        /* highest end of sorted[0..i] */
	uint32_t count, sorted_cap;
};

/* The place in its owner's table that a key's rid names. */
uint32_t p2p_mr_index(uint32_t rid);

int p2p_mr_table_init(struct p2p_mr_table *t);
/* Frees what is left; nothing may be pinned. */
void p2p_mr_table_destroy(struct p2p_mr_table *t);

/*
 * Register, or count the same range again. *fresh tells which; where it is
 * true the region (for peers) is in *region.
 */
int p2p_mr_add(struct p2p_mr_table *t, uint64_t base, uint64_t size, int device,
	       const char *reason, uint64_t *id, bool *fresh, struct p2p_region *region);
/*
 * Drop a reference. 1: it was the last; *out is unfindable, region tells
 * peers, and the caller ends with p2p_mr_quiet(), takes it from the transports
 * and frees it. 0: others remain. -ENOENT.
 */
int p2p_mr_del(struct p2p_mr_table *t, uint64_t id, struct p2p_mr **out,
	       struct p2p_region *region);
/* Wait for the pins. */
void p2p_mr_quiet(struct p2p_mr *mr);

/* Pinned registration of an id or a whole range of addresses; NULL. */
struct p2p_mr *p2p_mr_pin_id(struct p2p_mr_table *t, uint64_t id);
struct p2p_mr *p2p_mr_pin_range(struct p2p_mr_table *t, uint64_t va, uint64_t len);
/* The one of those around the range that has the key: ranges may overlap. */
struct p2p_mr *p2p_mr_pin_range_key(struct p2p_mr_table *t, uint64_t va, uint64_t len,
				    uint32_t rkey);
/*
 * Pin for a peer: *out on 0; -ESTALE: the key was of an earlier registration;
 * -EACCES: never one of ours; -EFAULT: outside.
 */
int p2p_mr_pin_key(struct p2p_mr_table *t, uint32_t rid, uint32_t rkey, uint64_t addr,
		   uint64_t len, struct p2p_mr **out);
void p2p_mr_unpin(struct p2p_mr *mr);
uint32_t p2p_mr_count(struct p2p_mr_table *t);
/* Id of the registration that starts at base; 0: none. */
uint64_t p2p_mr_at(struct p2p_mr_table *t, uint64_t base);

/* Visit all under the lock, for the snapshot that a new peer gets. */
void p2p_mr_each(struct p2p_mr_table *t,
		 void (*fn)(void *arg, const struct p2p_region *r, struct p2p_mr *mr), void *arg);

/* ------------------------------------------------------ what a peer has */

#define P2P_REMOTE_MAX 65536u

struct p2p_remote_table {
	pthread_rwlock_t lock;
	struct p2p_region *region; /* by base, then size */
	uint64_t *reach;
	uint32_t count, cap;
};

int p2p_remote_init(struct p2p_remote_table *t);
void p2p_remote_destroy(struct p2p_remote_table *t);
int p2p_remote_add(struct p2p_remote_table *t, const struct p2p_region *r);
void p2p_remote_del(struct p2p_remote_table *t, uint32_t rid, uint32_t rkey);
/* A region that holds the whole range, or the one of them that has the key: 0 or -ENOENT. */
int p2p_remote_find(struct p2p_remote_table *t, uint64_t va, uint64_t len,
		    struct p2p_region *out);
int p2p_remote_find_key(struct p2p_remote_table *t, uint64_t va, uint64_t len, uint32_t rkey,
			struct p2p_region *out);

/* The index-th in order: 0 or -ENOENT. */
int p2p_remote_at(struct p2p_remote_table *t, uint32_t index, struct p2p_region *out);

#endif /* P2P_REGION_H */
