// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <stdlib.h>

#include "cufile.h"

#define INDEX_BITS 24

struct slot {
	struct cf_object *object; /* NULL: free */
	uint32_t generation;
	uint32_t next_free;       /* index + 1; 0: none */
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
/* Protected by: lock */
static struct slot *slots;
static uint32_t used, room, first_free;

/* Never NULL: the index is counted from 1. */
static void *handle_of(uint32_t index)
{
	return (void *)((uintptr_t)slots[index].generation << INDEX_BITS | (index + 1));
}

static struct slot *slot_of(void *handle, enum cf_kind kind)
{
	uint32_t index = ((uintptr_t)handle & ((1U << INDEX_BITS) - 1)) - 1;

	if (index >= used || !slots[index].object || slots[index].object->kind != kind ||
	    slots[index].generation != (uintptr_t)handle >> INDEX_BITS)
		return NULL;
	return &slots[index];
}

/* The index of a free slot, or -1. */
static int64_t take_slot(void)
{
	uint32_t index = first_free - 1;

	if (first_free) {
		first_free = slots[index].next_free;
		return index;
	}
	if (used == room) {
		uint32_t more = room ? 2 * room : 64;
		struct slot *grown;

		if (more >= 1U << INDEX_BITS)
			return -1;
		grown = realloc(slots, more * sizeof(*slots));
		if (!grown)
			return -1;
		slots = grown;
		room = more;
	}
	slots[used].generation = 0;
	return used++;
}

void *cf_object_add(struct cf_object *object)
{
	void *handle = NULL;
	int64_t index;

	pthread_rwlock_wrlock(&lock);
	index = take_slot();
	if (index >= 0) {
		slots[index].object = object;
		slots[index].generation++;
		handle = handle_of((uint32_t)index);
	}
	pthread_rwlock_unlock(&lock);
	return handle;
}

struct cf_object *cf_object_get(void *handle, enum cf_kind kind)
{
	struct cf_object *object = NULL;
	struct slot *slot;

	pthread_rwlock_rdlock(&lock);
	slot = slot_of(handle, kind);
	if (slot) {
		object = slot->object;
		atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
	}
	pthread_rwlock_unlock(&lock);
	return object;
}

void cf_object_put(struct cf_object *object)
{
	if (atomic_fetch_sub_explicit(&object->refs, 1, memory_order_acq_rel) == 1)
		object->free(object);
}

struct cf_object *cf_object_remove(void *handle, enum cf_kind kind)
{
	struct cf_object *object = NULL;
	struct slot *slot;

	pthread_rwlock_wrlock(&lock);
	slot = slot_of(handle, kind);
	if (slot) {
		object = slot->object;
		slot->object = NULL;
		slot->next_free = first_free;
		first_free = (uint32_t)(slot - slots) + 1;
	}
	pthread_rwlock_unlock(&lock);
	return object;
}

struct cf_object *cf_object_find(enum cf_kind kind,
				 bool (*match)(struct cf_object *object, const void *arg),
				 const void *arg, void **handle)
{
	struct cf_object *found = NULL;

	pthread_rwlock_rdlock(&lock);
	for (uint32_t i = 0; i < used && !found; i++) {
		struct cf_object *object = slots[i].object;

		if (!object || object->kind != kind || !match(object, arg))
			continue;
		found = object;
		*handle = handle_of(i);
		atomic_fetch_add_explicit(&object->refs, 1, memory_order_relaxed);
	}
	pthread_rwlock_unlock(&lock);
	return found;
}
