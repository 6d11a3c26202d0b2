/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks: the memory between file and device memory when storage cannot reach
 * the buffer itself. Each device has a pool of PHX_STAGING_SIZE_MB; host
 * buffers, HOST devices and edges share one in host memory.
 *
 * Whoever waits for a chunk must hold none, or be able to give its own back
 * without it: then every wait ends, with the smallest pool too.
 */
#ifndef PHX_STAGING_H
#define PHX_STAGING_H

#include <stdbool.h>
#include <stddef.h>

#include "phx_device.h"

#define PHX_CHUNK_MIN 65536UL
#define PHX_CHUNK_MAX (4UL << 20)

struct phx_chunk_pool;

struct phx_chunk {
	struct phx_chunk_pool *pool;
	char *io;           /* where file I/O reaches it, page aligned */
	char *device;       /* where the device's copies reach it */
	size_t size;        /* a power of two, PHX_CHUNK_MIN to PHX_CHUNK_MAX */
	unsigned int unit;  /* first 64 KiB unit in the pool */
};

size_t phx_staging_size(void);

/*
 * Take a chunk of @want bytes (rounded up to a power of two, at most
 * PHX_CHUNK_MAX), or a smaller one when that is all there is. The pool of
 * @dev; NULL: that in host memory. -EAGAIN: none is free and @wait is false;
 * -ENOMEM: the pool cannot be made.
 */
int phx_chunk_get(struct phx_device *dev, size_t want, bool wait, struct phx_chunk *chunk);
void phx_chunk_put(struct phx_chunk *chunk);

/*
 * Copy between @chunk, from byte @at, and memory at @addr: of @dev, or host
 * memory when @dev is NULL. _async: queued on @slot until phx_chunk_sync().
 */
int phx_chunk_to_device(struct phx_device *dev, struct phx_chunk *chunk, size_t at, void *addr,
			size_t n);
int phx_chunk_from_device(struct phx_device *dev, struct phx_chunk *chunk, size_t at,
			  const void *addr, size_t n);

void phx_staging_fork_prepare(void);
void phx_staging_fork_parent(void);
void phx_staging_fork_child(void);

#endif
