// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "allocations.h"

/* Where the allocation with @addr is linked; with the lock held. */
static struct allocation **link_of(struct allocations *all, uintptr_t addr)
{
	struct allocation **a = &all->list;

	while (*a && addr - (*a)->base >= (*a)->len)
		a = &(*a)->next;
	return a;
}

void allocations_add(struct allocations *all, struct allocation *a)
{
	pthread_mutex_lock(&all->lock);
	a->id = ++all->last_id;
	a->next = all->list;
	all->list = a;
	pthread_mutex_unlock(&all->lock);
}

bool allocations_find(struct allocations *all, uintptr_t addr, struct allocation *out)
{
	struct allocation *a;

	pthread_mutex_lock(&all->lock);
	a = *link_of(all, addr);
	if (a)
		*out = *a;
	pthread_mutex_unlock(&all->lock);
	return a;
}

bool allocations_take(struct allocations *all, uintptr_t addr, struct allocation *out)
{
	struct allocation **link, *a;

	pthread_mutex_lock(&all->lock);
	link = link_of(all, addr);
	a = *link;
	if (a) {
		*out = *a;
		*link = a->next;
	}
	pthread_mutex_unlock(&all->lock);
	free(a);
	return a;
}
