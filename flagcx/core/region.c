// SPDX-License-Identifier: Apache-2.0
/*
 * See region.h. Both tables are sorted arrays with, beside each element, the
 * highest end so far: a look-up finds the last base not above the address and
 * walks back only while something may still reach it, so overlapping regions
 * cost nothing where there are none.
 *
 * Lock: the table's rwlock, a leaf. Pins are atomic; the last unpin of a
 * registration that is no longer findable wakes p2p_mr_quiet().
 */
#include "region.h"
#include "auth.h"

#include <stdlib.h>
#include <string.h>

/* A key's rid: 20 bits of index, 12 of generation. */
#define SLOT_BITS 20
#define SLOT_MASK ((1u << SLOT_BITS) - 1)
#define GENERATION_MASK 0xfffu

uint32_t p2p_mr_index(uint32_t rid)
{
	return rid & SLOT_MASK;
}

int p2p_mr_table_init(struct p2p_mr_table *t)
{
	memset(t, 0, sizeof(*t));
	return -pthread_rwlock_init(&t->lock, NULL);
}

void p2p_mr_table_destroy(struct p2p_mr_table *t)
{
	for (uint32_t i = 0; i < t->count; i++)
		free(t->sorted[i]);
	free(t->slot);
	free(t->generation);
	free(t->free_slot);
	free(t->sorted);
	free(t->reach);
	pthread_rwlock_destroy(&t->lock);
}

/* First index whose (base, size) is not below; binary search. */
static uint32_t lower_bound(struct p2p_mr *const *sorted, uint32_t n, uint64_t base,
			    uint64_t size)
{
	uint32_t lo = 0, hi = n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;
		const struct p2p_mr *m = sorted[mid];

		if (m->base < base || (m->base == base && m->size < size))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void refresh_reach(struct p2p_mr_table *t, uint32_t from)
{
	uint64_t top = from ? t->reach[from - 1] : 0;

	for (uint32_t i = from; i < t->count; i++) {
		uint64_t end = t->sorted[i]->base + t->sorted[i]->size;

		top = P2P_MAX(top, end);
		t->reach[i] = top;
	}
}

static int grow_array(void *array, size_t elem, uint32_t cap)
{
	void **p = array;
	void *bigger = realloc(*p, elem * cap);

	if (!bigger)
		return -ENOMEM;
	*p = bigger;
	return 0;
}

static int reserve(struct p2p_mr_table *t)
{
	uint32_t cap;

	if (t->count == t->sorted_cap) {
		cap = t->sorted_cap ? t->sorted_cap * 2 : 64;
		if (grow_array(&t->sorted, sizeof(*t->sorted), cap) ||
		    grow_array(&t->reach, sizeof(*t->reach), cap))
			return -ENOMEM;
		t->sorted_cap = cap;
	}
	if (!t->frees && t->slots == t->cap) {
		if (t->cap > SLOT_MASK)
			return -ENOSPC;
		cap = t->cap ? t->cap * 2 : 64;
		if (grow_array(&t->slot, sizeof(*t->slot), cap) ||
		    grow_array(&t->generation, sizeof(*t->generation), cap) ||
		    grow_array(&t->free_slot, sizeof(*t->free_slot), cap))
			return -ENOMEM;
		t->cap = cap;
	}
	return 0;
}

static uint32_t take_slot(struct p2p_mr_table *t)
{
	uint32_t s;

	if (t->frees)
		return t->free_slot[--t->frees];
	s = t->slots++;
	t->slot[s] = NULL;
	t->generation[s] = 0;
	return s;
}

static void describe(const struct p2p_mr *m, struct p2p_region *r)
{
	*r = (struct p2p_region){ m->base, m->size, m->rkey, m->rid };
}

static int insert(struct p2p_mr_table *t, struct p2p_mr *m, uint32_t at)
{
	uint32_t s;
	int rc = reserve(t);

	if (rc)
		return rc;
	s = take_slot(t);
	m->rid = (t->generation[s] & GENERATION_MASK) << SLOT_BITS | s;
	m->id = (uint64_t)(t->generation[s] + 1) << SLOT_BITS | s;
	t->slot[s] = m;
	memmove(t->sorted + at + 1, t->sorted + at, (t->count - at) * sizeof(*t->sorted));
	t->sorted[at] = m;
	t->count++;
	refresh_reach(t, at);
	return 0;
}

int p2p_mr_add(struct p2p_mr_table *t, uint64_t base, uint64_t size, int device,
	       const char *reason, uint64_t *id, bool *fresh, struct p2p_region *region)
{
	struct p2p_mr *m = calloc(1, sizeof(*m));
	uint32_t at;
	int rc;

	if (!m)
		return -ENOMEM;
	m->base = base;
	m->size = size;
	m->device = device;
	m->refs = 1;
	atomic_init(&m->pins, 1);
	strncpy(m->reason, reason, sizeof(m->reason) - 1);
	rc = p2p_random(&m->rkey, sizeof(m->rkey));
	if (rc)
		goto err_free;
	pthread_rwlock_wrlock(&t->lock);
	at = lower_bound(t->sorted, t->count, base, size);
	*fresh = at == t->count || t->sorted[at]->base != base || t->sorted[at]->size != size;
	if (*fresh) {
		rc = insert(t, m, at);
		if (!rc) {
			*id = m->id;
			describe(m, region);
			m = NULL;
		}
	} else {
		t->sorted[at]->refs++;
		*id = t->sorted[at]->id;
	}
	pthread_rwlock_unlock(&t->lock);
err_free:
	free(m);
	return rc;
}

static struct p2p_mr *by_id(struct p2p_mr_table *t, uint64_t id)
{
	uint32_t s = (uint32_t)id & SLOT_MASK;
	struct p2p_mr *m = s < t->slots ? t->slot[s] : NULL;

	return m && m->id == id ? m : NULL;
}

int p2p_mr_del(struct p2p_mr_table *t, uint64_t id, struct p2p_mr **out,
	       struct p2p_region *region)
{
	struct p2p_mr *m;
	uint32_t at, s;
	int rc = 0;

	pthread_rwlock_wrlock(&t->lock);
	m = by_id(t, id);
	if (!m) {
		rc = -ENOENT;
	} else if (--m->refs == 0) {
		at = lower_bound(t->sorted, t->count, m->base, m->size);
		memmove(t->sorted + at, t->sorted + at + 1,
			(t->count - at - 1) * sizeof(*t->sorted));
		t->count--;
		refresh_reach(t, at);
		s = (uint32_t)id & SLOT_MASK;
		t->slot[s] = NULL;
		t->generation[s]++;
		t->free_slot[t->frees++] = s;
		describe(m, region);
		atomic_store_explicit(&m->gone, true, memory_order_release);
		*out = m;
		rc = 1;
	}
	pthread_rwlock_unlock(&t->lock);
	return rc;
}

void p2p_mr_unpin(struct p2p_mr *mr)
{
	/* at 0 the waiter may free it, so the count is not touched after that */
	if (atomic_fetch_sub_explicit(&mr->pins, 1, memory_order_acq_rel) == 1)
		p2p_futex_wake_all(&mr->pins);
}

void p2p_mr_quiet(struct p2p_mr *mr)
{
	uint32_t seen = atomic_fetch_sub_explicit(&mr->pins, 1, memory_order_acq_rel) - 1;

	while (seen) {
		/* a bound on each wait: the wake may go to a freed and reused address */
		p2p_futex_wait(&mr->pins, seen, p2p_now_ns() + 100 * P2P_NS_PER_MS);
		seen = atomic_load_explicit(&mr->pins, memory_order_acquire);
	}
}

struct p2p_mr *p2p_mr_pin_id(struct p2p_mr_table *t, uint64_t id)
{
	struct p2p_mr *m;

	pthread_rwlock_rdlock(&t->lock);
	m = by_id(t, id);
	if (m)
		atomic_fetch_add_explicit(&m->pins, 1, memory_order_relaxed);
	pthread_rwlock_unlock(&t->lock);
	return m;
}

static struct p2p_mr *pin_range(struct p2p_mr_table *t, uint64_t va, uint64_t len,
				const uint32_t *rkey)
{
	struct p2p_mr *found = NULL;
	uint32_t i;

	pthread_rwlock_rdlock(&t->lock);
	i = lower_bound(t->sorted, t->count, va, UINT64_MAX);
	/* every element before i has base <= va */
	while (!found && i > 0 && t->reach[i - 1] > va) {
		struct p2p_mr *m = t->sorted[--i];

		if (m->size >= len && va - m->base <= m->size - len &&
		    (!rkey || m->rkey == *rkey))
			found = m;
	}
	if (found)
		atomic_fetch_add_explicit(&found->pins, 1, memory_order_relaxed);
	pthread_rwlock_unlock(&t->lock);
	return found;
}

struct p2p_mr *p2p_mr_pin_range(struct p2p_mr_table *t, uint64_t va, uint64_t len)
{
	return pin_range(t, va, len, NULL);
}

struct p2p_mr *p2p_mr_pin_range_key(struct p2p_mr_table *t, uint64_t va, uint64_t len,
				    uint32_t rkey)
{
	return pin_range(t, va, len, &rkey);
}

int p2p_mr_pin_key(struct p2p_mr_table *t, uint32_t rid, uint32_t rkey, uint64_t addr,
		   uint64_t len, struct p2p_mr **out)
{
	uint32_t s = rid & SLOT_MASK;
	struct p2p_mr *m;
	int rc = 0;

	pthread_rwlock_rdlock(&t->lock);
	m = s < t->slots ? t->slot[s] : NULL;
	if (s >= t->slots)
		rc = -EACCES;
	else if (!m || m->rid != rid)
		rc = -ESTALE;
	else if (m->rkey != rkey)
		rc = -EACCES;
	else if (addr < m->base || len > m->size || addr - m->base > m->size - len)
		rc = -EFAULT;
	if (!rc) {
		atomic_fetch_add_explicit(&m->pins, 1, memory_order_relaxed);
		*out = m;
	}
	pthread_rwlock_unlock(&t->lock);
	return rc;
}

uint32_t p2p_mr_count(struct p2p_mr_table *t)
{
	uint32_t n;

	pthread_rwlock_rdlock(&t->lock);
	n = t->count;
	pthread_rwlock_unlock(&t->lock);
	return n;
}

uint64_t p2p_mr_at(struct p2p_mr_table *t, uint64_t base)
{
	uint64_t id = 0;
	uint32_t i;

	pthread_rwlock_rdlock(&t->lock);
	i = lower_bound(t->sorted, t->count, base, 0);
	if (i < t->count && t->sorted[i]->base == base)
		id = t->sorted[i]->id;
	pthread_rwlock_unlock(&t->lock);
	return id;
}

void p2p_mr_each(struct p2p_mr_table *t,
		 void (*fn)(void *arg, const struct p2p_region *r, struct p2p_mr *mr), void *arg)
{
	struct p2p_region r;

	pthread_rwlock_rdlock(&t->lock);
	for (uint32_t i = 0; i < t->count; i++) {
		describe(t->sorted[i], &r);
		fn(arg, &r, t->sorted[i]);
	}
	pthread_rwlock_unlock(&t->lock);
}

/* ------------------------------------------------------ what a peer has */

int p2p_remote_init(struct p2p_remote_table *t)
{
	memset(t, 0, sizeof(*t));
	return -pthread_rwlock_init(&t->lock, NULL);
}

void p2p_remote_destroy(struct p2p_remote_table *t)
{
	free(t->region);
	free(t->reach);
	pthread_rwlock_destroy(&t->lock);
}

static uint32_t remote_bound(const struct p2p_region *r, uint32_t n, uint64_t base, uint64_t size)
{
	uint32_t lo = 0, hi = n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (r[mid].base < base || (r[mid].base == base && r[mid].size < size))
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void remote_reach(struct p2p_remote_table *t, uint32_t from)
{
	uint64_t top = from ? t->reach[from - 1] : 0;

	for (uint32_t i = from; i < t->count; i++) {
		uint64_t end = t->region[i].base + t->region[i].size;

		top = P2P_MAX(top, end);
		t->reach[i] = top;
	}
}

int p2p_remote_add(struct p2p_remote_table *t, const struct p2p_region *r)
{
	uint32_t at, cap;
	int rc = 0;

	pthread_rwlock_wrlock(&t->lock);
	if (t->count == P2P_REMOTE_MAX) {
		rc = -ENOSPC;
	} else if (t->count == t->cap) {
		cap = t->cap ? t->cap * 2 : 64;
		if (grow_array(&t->region, sizeof(*t->region), cap) ||
		    grow_array(&t->reach, sizeof(*t->reach), cap))
			rc = -ENOMEM;
		else
			t->cap = cap;
	}
	if (!rc) {
		at = remote_bound(t->region, t->count, r->base, r->size);
		memmove(t->region + at + 1, t->region + at, (t->count - at) * sizeof(*t->region));
		t->region[at] = *r;
		t->count++;
		remote_reach(t, at);
	}
	pthread_rwlock_unlock(&t->lock);
	return rc;
}

void p2p_remote_del(struct p2p_remote_table *t, uint32_t rid, uint32_t rkey)
{
	pthread_rwlock_wrlock(&t->lock);
	for (uint32_t i = 0; i < t->count; i++) {
		if (t->region[i].rid != rid || t->region[i].rkey != rkey)
			continue;
		memmove(t->region + i, t->region + i + 1,
			(t->count - i - 1) * sizeof(*t->region));
		t->count--;
		remote_reach(t, i);
		break;
	}
	pthread_rwlock_unlock(&t->lock);
}

static int find_remote(struct p2p_remote_table *t, uint64_t va, uint64_t len,
		       const uint32_t *rkey, struct p2p_region *out)
{
	uint32_t i;
	int rc = -ENOENT;

	pthread_rwlock_rdlock(&t->lock);
	i = remote_bound(t->region, t->count, va, UINT64_MAX);
	while (rc && i > 0 && t->reach[i - 1] > va) {
		const struct p2p_region *r = &t->region[--i];

		if (r->size >= len && va - r->base <= r->size - len &&
		    (!rkey || r->rkey == *rkey)) {
			*out = *r;
			rc = 0;
		}
	}
	pthread_rwlock_unlock(&t->lock);
	return rc;
}

int p2p_remote_find(struct p2p_remote_table *t, uint64_t va, uint64_t len,
		    struct p2p_region *out)
{
	return find_remote(t, va, len, NULL, out);
}

int p2p_remote_find_key(struct p2p_remote_table *t, uint64_t va, uint64_t len, uint32_t rkey,
			struct p2p_region *out)
{
	return find_remote(t, va, len, &rkey, out);
}

int p2p_remote_at(struct p2p_remote_table *t, uint32_t index, struct p2p_region *out)
{
	int rc = -ENOENT;

	pthread_rwlock_rdlock(&t->lock);
	if (index < t->count) {
		*out = t->region[index];
		rc = 0;
	}
	pthread_rwlock_unlock(&t->lock);
	return rc;
}
