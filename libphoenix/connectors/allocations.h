/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a connector has allocated itself, for runtimes that cannot tell the extent of an
 * allocation. Safe from any thread.
 */
#ifndef ALLOCATIONS_H
#define ALLOCATIONS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allocation {
	struct allocation *next;
	uintptr_t base;  /* what the runtime gave, and takes back */
	size_t len;
	uint64_t id;     /* never used again */
};

struct allocations {
	pthread_mutex_t lock;
	struct allocation *list; /* protected by: lock, as the next */
	uint64_t last_id;
};

#define ALLOCATIONS_INIT { .lock = PTHREAD_MUTEX_INITIALIZER }

/* Takes @a, of malloc(), over; base and len are set. */
void allocations_add(struct allocations *all, struct allocation *a);
/* The one with @addr inside. */
bool allocations_find(struct allocations *all, uintptr_t addr, struct allocation *out);
/* The same, and forget it. */
bool allocations_take(struct allocations *all, uintptr_t addr, struct allocation *out);

#endif
