/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chunks: the memory between file and device memory when storage cannot reach
 * the buffer itself. A STAGING device has a pool in its own memory; every other
 * device has one in host memory, pinned where there is an accelerator. Each is
 * of PHX_STAGING_SIZE_MB. Host buffers and the edges of FULL transfers share
 * one more.
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
	void **event;       /* its holder's mark in a queue of copies; made when first used */
};

/* Bytes of the pool that serves transfers of @dev on @path (enum phxfs_path). */
size_t phx_staging_size(struct phx_device *dev, int path);
/* The same for those who hold nothing of the device. */
size_t phx_staging_size_of(struct phx_device *dev);

/* Make the pool in the memory of an open STAGING device. */
int phx_staging_prepare(struct phx_device *dev);
/* Give it back; no transfer uses it any more. */
void phx_staging_drop(struct phx_device *dev);

/*
 * Take a chunk of @want bytes (rounded up to a power of two, at most
 * PHX_CHUNK_MAX), or a smaller one when that is all there is, for a transfer
 * on @path; @dev NULL: in host memory. -EAGAIN: none is free and @wait is
 * false; -ENOMEM and others: the pool cannot be made.
 */
int phx_chunk_get(struct phx_device *dev, int path, size_t want, bool wait,
		  struct phx_chunk *chunk);
void phx_chunk_put(struct phx_chunk *chunk);

/* Whether it lies in device memory. */
bool phx_chunk_on_device(const struct phx_chunk *chunk);

void phx_staging_fork_prepare(void);
void phx_staging_fork_parent(void);
void phx_staging_fork_child(void);

#endif
