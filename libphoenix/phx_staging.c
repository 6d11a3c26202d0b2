// SPDX-License-Identifier: Apache-2.0
/*
 * A pool is one span of memory cut into units of 64 KiB. A chunk is an aligned
 * run of 1, 2, 4 ... 64 units, marked in a bitmap in which a set bit is a free
 * unit; 64 units are just one word, so no run crosses words.
 *
 * Waiters are served in the order of their arrival, and a newcomer does not
 * overtake them, so that a stream of small requests cannot starve a large one
 * nor the reverse.
 *
 * Locks: pools_lock protects the making of pools; pool->lock the rest. A pool
 * is made on first use and stays.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "phx_config.h"
#include "phx_error.h"
#include "phx_staging.h"
#include "phx_stats.h"

#define UNIT PHX_CHUNK_MIN
#define WORD_UNITS 64
#define MAX_ORDER 6

struct phx_chunk_pool {
	char *io;      /* constant */
	char *device;  /* constant */
	unsigned int words;
	pthread_mutex_t lock;
	pthread_cond_t returned;
	unsigned long next_ticket, serving; /* protected by: lock */
	uint64_t free[];                    /* protected by: lock */
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
/* [0]: host memory, [1 + N]: device N. Set once, under pools_lock. */
static _Atomic(struct phx_chunk_pool *) pools[1 + PHX_MAX_DEVICES];

size_t phx_staging_size(void)
{
	return (size_t)phx_config.staging_size_mb << 20;
}

/* The device whose pool serves @dev, or NULL for the pool in host memory. */
static struct phx_device *pool_device(struct phx_device *dev)
{
	return dev && dev->mode == PHXFS_MODE_BOUNCE ? dev : NULL;
}

static int make_pool(struct phx_device *dev, struct phx_chunk_pool **out)
{
	size_t size = phx_staging_size();
	unsigned int words = (unsigned int)((size / UNIT + WORD_UNITS - 1) / WORD_UNITS);
	const struct devconn_ops *ops = dev ? dev->ops : &host_connector;
	struct phx_chunk_pool *pool;
	void *memory;
	int err;

	pool = calloc(1, sizeof(*pool) + words * sizeof(pool->free[0]));
	if (!pool)
		return phx_fail(-ENOMEM, "chunk pool", NULL, "its bitmap");
	err = ops->host_alloc(dev ? dev->id : 0, size, &memory);
	if (err) {
		free(pool);
		return phx_fail(err, "chunk pool", "set a smaller PHX_STAGING_SIZE_MB",
				"%ld MiB of host memory", phx_config.staging_size_mb);
	}
	pool->io = memory;
	pool->device = memory;
	pool->words = words;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->returned, NULL);
	for (size_t i = 0; i < size / UNIT; i++)
		pool->free[i / WORD_UNITS] |= 1ULL << (i % WORD_UNITS);
	*out = pool;
	return 0;
}

static int find_pool(struct phx_device *dev, struct phx_chunk_pool **out)
{
	struct phx_device *owner = pool_device(dev);
	int index = owner ? 1 + owner->id : 0, err = 0;
	struct phx_chunk_pool *pool;

	pool = atomic_load_explicit(&pools[index], memory_order_acquire);
	if (!pool) {
		pthread_mutex_lock(&pools_lock);
		pool = atomic_load_explicit(&pools[index], memory_order_relaxed);
		if (!pool) {
			err = make_pool(owner, &pool);
			if (!err)
				atomic_store_explicit(&pools[index], pool, memory_order_release);
		}
		pthread_mutex_unlock(&pools_lock);
	}
	if (!err)
		*out = pool;
	return err;
}

static uint64_t run_mask(unsigned int order)
{
	return order == MAX_ORDER ? UINT64_MAX : (1ULL << (1U << order)) - 1;
}

/* Take an aligned run of 2^order units; false: there is none. */
static bool take(struct phx_chunk_pool *pool, unsigned int order, unsigned int *unit)
{
	uint64_t mask = run_mask(order);

	for (unsigned int w = 0; w < pool->words; w++) {
		if (!pool->free[w])
			continue;
		for (unsigned int bit = 0; bit < WORD_UNITS; bit += 1U << order) {
			if ((pool->free[w] >> bit & mask) == mask) {
				pool->free[w] &= ~(mask << bit);
				*unit = w * WORD_UNITS + bit;
				return true;
			}
		}
	}
	return false;
}

static unsigned int order_of(size_t want)
{
	unsigned int order = 0;

	while (order < MAX_ORDER && UNIT << order < want)
		order++;
	return order;
}

/* The largest run of up to @order, with the lock held. */
static bool take_best(struct phx_chunk_pool *pool, unsigned int order, struct phx_chunk *chunk)
{
	for (int o = (int)order; o >= 0; o--) {
		if (take(pool, (unsigned int)o, &chunk->unit)) {
			chunk->pool = pool;
			chunk->size = UNIT << o;
			chunk->io = pool->io + chunk->unit * UNIT;
			chunk->device = pool->device + chunk->unit * UNIT;
			return true;
		}
	}
	return false;
}

int phx_chunk_get(struct phx_device *dev, size_t want, bool wait, struct phx_chunk *chunk)
{
	struct phx_chunk_pool *pool;
	unsigned long ticket;
	bool got;
	int err;

	err = find_pool(dev, &pool);
	if (err)
		return err;
	pthread_mutex_lock(&pool->lock);
	ticket = pool->next_ticket;
	got = ticket == pool->serving && take_best(pool, order_of(want), chunk);
	if (!got && wait) {
		pool->next_ticket++;
		while (ticket != pool->serving || !take_best(pool, order_of(want), chunk))
			pthread_cond_wait(&pool->returned, &pool->lock);
		pool->serving++;
		pthread_cond_broadcast(&pool->returned);
		got = true;
	}
	pthread_mutex_unlock(&pool->lock);
	return got ? 0 : -EAGAIN;
}

void phx_chunk_put(struct phx_chunk *chunk)
{
	struct phx_chunk_pool *pool = chunk->pool;
	uint64_t mask = run_mask(order_of(chunk->size));

	pthread_mutex_lock(&pool->lock);
	pool->free[chunk->unit / WORD_UNITS] |= mask << (chunk->unit % WORD_UNITS);
	if (pool->serving != pool->next_ticket)
		pthread_cond_broadcast(&pool->returned);
	pthread_mutex_unlock(&pool->lock);
	chunk->pool = NULL;
}

int phx_chunk_to_device(struct phx_device *dev, struct phx_chunk *chunk, size_t at, void *addr,
			size_t n)
{
	phx_stats_copied(dev ? dev->id : -1, n);
	if (!dev) {
		memcpy(addr, chunk->io + at, n);
		return 0;
	}
	return dev->ops->memcpy_htod(dev->id, addr, chunk->device + at, n);
}

int phx_chunk_from_device(struct phx_device *dev, struct phx_chunk *chunk, size_t at,
			  const void *addr, size_t n)
{
	phx_stats_copied(dev ? dev->id : -1, n);
	if (!dev) {
		memcpy(chunk->io + at, addr, n);
		return 0;
	}
	return dev->ops->memcpy_dtoh(dev->id, chunk->device + at, addr, n);
}

/* ------------------------------------------------------------------- fork */

void phx_staging_fork_prepare(void)
{
	pthread_mutex_lock(&pools_lock);
	for (int i = 0; i < 1 + PHX_MAX_DEVICES; i++) {
		struct phx_chunk_pool *pool = atomic_load(&pools[i]);

		if (pool)
			pthread_mutex_lock(&pool->lock);
	}
}

void phx_staging_fork_parent(void)
{
	for (int i = PHX_MAX_DEVICES; i >= 0; i--) {
		struct phx_chunk_pool *pool = atomic_load(&pools[i]);

		if (pool)
			pthread_mutex_unlock(&pool->lock);
	}
	pthread_mutex_unlock(&pools_lock);
}

/*
 * The chunks that other threads of the parent hold are free in the child. A
 * device's pool is pinned by a runtime that does not survive fork: forget it.
 */
void phx_staging_fork_child(void)
{
	for (int i = PHX_MAX_DEVICES; i >= 0; i--) {
		struct phx_chunk_pool *pool = atomic_load(&pools[i]);

		if (!pool)
			continue;
		if (i > 0) {
			atomic_store(&pools[i], NULL);
			continue;
		}
		for (size_t u = 0; u < phx_staging_size() / UNIT; u++)
			pool->free[u / WORD_UNITS] |= 1ULL << (u % WORD_UNITS);
		pool->serving = pool->next_ticket;
		pthread_cond_init(&pool->returned, NULL);
		pthread_mutex_unlock(&pool->lock);
	}
	pthread_mutex_unlock(&pools_lock);
}
