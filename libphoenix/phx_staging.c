// SPDX-License-Identifier: Apache-2.0
/*
 * A pool is cut into units of 64 KiB. A chunk is an aligned run of 1, 2, 4 ...
 * 64 units, marked in a bitmap in which a set bit is a free unit; 64 units are
 * just one word, so no run crosses words.
 *
 * Host memory comes in segments of 16 MiB, when it is first needed: pinning
 * takes time, and a process that moves little should hold little. Memory of a
 * STAGING device is one segment, registered with the module as a whole.
 *
 * Waiters are served in the order of their arrival, and a newcomer does not
 * overtake them, so that a stream of small requests cannot starve a large one
 * nor the reverse.
 *
 * Locks: pools_lock protects the making of pools; pool->lock the rest. A pool
 * is made on first use and stays, but for those in device memory, which the
 * last close of their device takes away.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "phx_config.h"
#include "phx_error.h"
#include "phx_kernel.h"
#include "phx_staging.h"

#define UNIT PHX_CHUNK_MIN
#define WORD_UNITS 64
#define WORD_BYTES (UNIT * WORD_UNITS)
#define MAX_ORDER 6
#define SPAN (2UL << 20)     /* what the module maps a staging pool in */
#define SEGMENT (16UL << 20) /* of host memory */

enum { HOST_POOL = 0, PINNED_POOLS = 1, DEVICE_POOLS = 1 + PHX_MAX_DEVICES,
       POOLS = 1 + 2 * PHX_MAX_DEVICES };

struct segment {
	char *io;     /* where file I/O reaches it */
	char *device; /* where the device's copies reach it */
};

struct phx_chunk_pool {
	/* Constant: */
	struct phx_device *dev;  /* NULL: plain host memory */
	bool on_device;          /* the memory is the device's own */
	_Atomic size_t size;     /* may shrink, once, when memory is short */
	size_t segment_size;
	void *memory;            /* on_device: as allocated */
	size_t allocated;
	/* Protected by: lock */
	pthread_mutex_t lock;
	pthread_cond_t returned;
	unsigned long next_ticket, serving;
	size_t backed;           /* bytes, from the start, that have memory */
	struct segment *segments;
	void **events;           /* of the chunk that begins at a unit: its holder's */
	uint64_t *free;          /* a word for each WORD_BYTES */
};

static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
/*
 * [HOST_POOL], [PINNED_POOLS + N], [DEVICE_POOLS + N] for device N. Set under
 * pools_lock; taken away only by phx_staging_drop().
 */
static _Atomic(struct phx_chunk_pool *) pools[POOLS];

static size_t configured_size(void)
{
	return (size_t)phx_config.staging_size_mb << 20;
}

/*
 * Chunks of the device's own memory for STAGING, host memory that the device's
 * runtime has pinned for BOUNCE and for HOST devices, plain host memory for host
 * buffers and for the edges of FULL transfers.
 */
static int pool_index(struct phx_device *dev, int path)
{
	if (!dev || (path == PHXFS_PATH_DIRECT && dev->mode != PHXFS_MODE_HOST))
		return HOST_POOL;
	if (path == PHXFS_PATH_STAGING && dev->mode == PHXFS_MODE_STAGING)
		return DEVICE_POOLS + dev->id;
	return PINNED_POOLS + dev->id;
}

size_t phx_staging_size(struct phx_device *dev, int path)
{
	struct phx_chunk_pool *pool = atomic_load_explicit(&pools[pool_index(dev, path)],
							   memory_order_acquire);

	return pool ? pool->size : configured_size();
}

size_t phx_staging_size_of(struct phx_device *dev)
{
	size_t size;

	/* Without a transfer that holds the device its pool may be going. */
	pthread_mutex_lock(&pools_lock);
	size = phx_staging_size(dev, dev->path);
	pthread_mutex_unlock(&pools_lock);
	return size;
}

/* ----------------------------------------------------------------- memory */

/* Device memory that the module maps: 2 MiB aligned, as it demands. */
static int map_on_device(struct phx_chunk_pool *pool, size_t size)
{
	struct phx_device *dev = pool->dev;
	struct segment *segment = &pool->segments[0];
	void *mapping;
	int err;

	pool->allocated = size + SPAN;
	err = dev->ops->mem_alloc(dev->id, pool->allocated, &pool->memory);
	if (err)
		return err;
	segment->device = (char *)(((uintptr_t)pool->memory + SPAN - 1) & ~(uintptr_t)(SPAN - 1));
	err = phx_kernel_map(dev->kernel_fd, dev->id, segment->device, size, &mapping);
	if (err) {
		dev->ops->mem_free(dev->id, pool->memory, pool->allocated);
		return err;
	}
	segment->io = mapping;
	return 0;
}

/* Halve the size until it can be had, down to what still makes progress. */
static int make_on_device(struct phx_chunk_pool *pool)
{
	size_t size = (pool->size + SPAN - 1) & ~(SPAN - 1);
	int err;

	for (;;) {
		err = map_on_device(pool, size);
		if (err != -ENOMEM || size <= SPAN)
			break;
		size = (size / 2 + SPAN - 1) & ~(SPAN - 1);
	}
	if (err)
		return phx_fail(err, "staging pool", "set a smaller PHX_STAGING_SIZE_MB",
				"%zu MiB in memory of device %d", size >> 20, pool->dev->id);
	if (size < pool->size)
		phx_log(PHXFS_LOG_WARN, "staging pool of device %d: %zu MiB instead of %ld",
			pool->dev->id, size >> 20, phx_config.staging_size_mb);
	pool->size = size;
	pool->segment_size = size;
	return 0;
}

static void set_free(struct phx_chunk_pool *pool, size_t from, size_t to)
{
	for (size_t u = from / UNIT; u < to / UNIT; u++)
		pool->free[u / WORD_UNITS] |= 1ULL << (u % WORD_UNITS);
	pool->backed = to;
}

/*
 * One more segment of host memory, with the lock held; a short one, and the
 * last, where a whole one cannot be had. False: there is none.
 */
static bool grow(struct phx_chunk_pool *pool)
{
	const struct devconn_ops *ops = pool->dev ? pool->dev->ops : &host_connector;
	size_t left = pool->size - pool->backed;
	size_t whole = left < SEGMENT ? left : SEGMENT, len = whole;
	struct segment *segment = &pool->segments[pool->backed / SEGMENT];
	void *memory;

	if (!len)
		return false;
	while (ops->host_alloc(pool->dev ? pool->dev->id : 0, len, &memory)) {
		if (len == UNIT) {
			pool->size = pool->backed; /* that is all */
			return false;
		}
		len = (len / 2 + UNIT - 1) & ~(UNIT - 1);
	}
	if (len < whole)
		pool->size = pool->backed + len;
	segment->io = memory;
	segment->device = memory;
	set_free(pool, pool->backed, pool->backed + len);
	return true;
}

static void free_pool(struct phx_chunk_pool *pool)
{
	free(pool->free);
	free(pool->events);
	free(pool->segments);
	free(pool);
}

static int make_pool(struct phx_device *dev, bool on_device, struct phx_chunk_pool **out)
{
	struct phx_chunk_pool *pool = calloc(1, sizeof(*pool));
	size_t size = configured_size() + SPAN; /* rounding included */
	int err = 0;

	if (!pool)
		return phx_fail(-ENOMEM, "chunk pool", NULL, "no memory for it");
	pool->dev = dev;
	pool->on_device = on_device;
	pool->size = configured_size();
	pool->segment_size = SEGMENT;
	pool->segments = calloc(size / SEGMENT + 1, sizeof(*pool->segments));
	pool->free = calloc(size / WORD_BYTES + 1, sizeof(*pool->free));
	pool->events = calloc(size / UNIT, sizeof(*pool->events));
	if (!pool->segments || !pool->free || !pool->events)
		err = phx_fail(-ENOMEM, "chunk pool", NULL, "no memory for its bitmap");
	else if (on_device)
		err = make_on_device(pool);
	else if (!grow(pool))
		err = phx_fail(-ENOMEM, "chunk pool", "free memory, or set a smaller "
			       "PHX_STAGING_SIZE_MB", "host memory for device %d",
			       dev ? dev->id : -1);
	if (err) {
		free_pool(pool);
		return err;
	}
	if (on_device)
		set_free(pool, 0, pool->size);
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->returned, NULL);
	*out = pool;
	return 0;
}

static int find_pool(struct phx_device *dev, int path, struct phx_chunk_pool **out)
{
	int index = pool_index(dev, path), err = 0;
	struct phx_chunk_pool *pool;

	pool = atomic_load_explicit(&pools[index], memory_order_acquire);
	if (!pool) {
		pthread_mutex_lock(&pools_lock);
		pool = atomic_load_explicit(&pools[index], memory_order_relaxed);
		if (!pool) {
			err = make_pool(index == HOST_POOL ? NULL : dev, index >= DEVICE_POOLS,
					&pool);
			if (!err)
				atomic_store_explicit(&pools[index], pool, memory_order_release);
		}
		pthread_mutex_unlock(&pools_lock);
	}
	if (!err)
		*out = pool;
	return err;
}

int phx_staging_prepare(struct phx_device *dev)
{
	struct phx_chunk_pool *pool;

	return find_pool(dev, PHXFS_PATH_STAGING, &pool);
}

void phx_staging_drop(struct phx_device *dev)
{
	struct phx_chunk_pool *pool;

	/* phx_staging_size_of() may look at it until the lock is ours. */
	pthread_mutex_lock(&pools_lock);
	pool = atomic_exchange(&pools[DEVICE_POOLS + dev->id], NULL);
	pthread_mutex_unlock(&pools_lock);
	if (!pool)
		return;
	for (size_t u = 0; u < pool->size / UNIT; u++) {
		if (pool->events[u])
			dev->ops->event_free(dev->id, pool->events[u]);
	}
	phx_kernel_unmap(dev->kernel_fd, dev->id, pool->segments[0].device, pool->size,
			 pool->segments[0].io);
	dev->ops->mem_free(dev->id, pool->memory, pool->allocated);
	pthread_mutex_destroy(&pool->lock);
	pthread_cond_destroy(&pool->returned);
	free_pool(pool);
}

/* ----------------------------------------------------------------- chunks */

static uint64_t run_mask(unsigned int order)
{
	return order == MAX_ORDER ? UINT64_MAX : (1ULL << (1U << order)) - 1;
}

static unsigned int order_of(size_t want)
{
	unsigned int order = 0;

	while (order < MAX_ORDER && UNIT << order < want)
		order++;
	return order;
}

static void fill_chunk(struct phx_chunk_pool *pool, unsigned int unit, unsigned int order,
		       struct phx_chunk *chunk)
{
	size_t at = unit * UNIT;
	struct segment *segment = &pool->segments[at / pool->segment_size];

	at %= pool->segment_size;
	chunk->pool = pool;
	chunk->unit = unit;
	chunk->event = &pool->events[unit];
	chunk->size = UNIT << order;
	chunk->io = segment->io + at;
	chunk->device = segment->device + at;
}

/* Take an aligned run of 2^order units; false: there is none. */
static bool take(struct phx_chunk_pool *pool, unsigned int order, struct phx_chunk *chunk)
{
	uint64_t mask = run_mask(order);

	for (size_t w = 0; w * WORD_BYTES < pool->backed; w++) {
		if (!pool->free[w])
			continue;
		for (unsigned int bit = 0; bit < WORD_UNITS; bit += 1U << order) {
			if ((pool->free[w] >> bit & mask) == mask) {
				pool->free[w] &= ~(mask << bit);
				fill_chunk(pool, (unsigned int)w * WORD_UNITS + bit, order, chunk);
				return true;
			}
		}
	}
	return false;
}

/* A run of @order, from new memory if need be; else the largest there is. */
static bool take_best(struct phx_chunk_pool *pool, unsigned int order, struct phx_chunk *chunk)
{
	do {
		if (take(pool, order, chunk))
			return true;
	} while (grow(pool));
	while (order-- > 0) {
		if (take(pool, order, chunk))
			return true;
	}
	return false;
}

int phx_chunk_get(struct phx_device *dev, int path, size_t want, bool wait,
		  struct phx_chunk *chunk)
{
	struct phx_chunk_pool *pool;
	unsigned long ticket;
	bool got;
	int err;

	err = find_pool(dev, path, &pool);
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

bool phx_chunk_on_device(const struct phx_chunk *chunk)
{
	return chunk->pool->on_device;
}

/* ------------------------------------------------------------------- fork */

void phx_staging_fork_prepare(void)
{
	pthread_mutex_lock(&pools_lock);
	for (int i = 0; i < POOLS; i++) {
		struct phx_chunk_pool *pool = atomic_load(&pools[i]);

		if (pool)
			pthread_mutex_lock(&pool->lock);
	}
}

void phx_staging_fork_parent(void)
{
	for (int i = POOLS - 1; i >= 0; i--) {
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
	for (int i = POOLS - 1; i >= 0; i--) {
		struct phx_chunk_pool *pool = atomic_load(&pools[i]);

		if (!pool)
			continue;
		if (pool->dev && pool->dev->mode != PHXFS_MODE_HOST) {
			atomic_store(&pools[i], NULL);
			continue;
		}
		set_free(pool, 0, pool->backed);
		pool->serving = pool->next_ticket;
		pthread_cond_init(&pool->returned, NULL);
		pthread_mutex_unlock(&pool->lock);
	}
	pthread_mutex_unlock(&pools_lock);
}
