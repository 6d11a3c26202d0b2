/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single calls whose end is looked for instead of slept for (PHX_POLL_KB).
 *
 * Falling asleep and being woken costs a few microseconds, and what the processor
 * had in its caches: what follows, a device's copy say, then takes longer too. Of a
 * transfer of 4 KiB that is a seventh. A look costs a processor, though, so
 * it has to be asked for. What workers do they do many at a time, and never poll.
 */
#ifndef IO_POLL_H
#define IO_POLL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "../phx_config.h"
#include "../phx_file.h"

/* Whether a call of @len bytes is one for it; the descriptor must be O_DIRECT too. */
static inline bool phx_poll_size(size_t len)
{
	return len - 1 < (size_t)phx_config.poll_kb << 10;
}

/*
 * As phx_file_read() and phx_file_write() on the file's own descriptor, in every
 * respect: whatever the ring does not simply do, they are called for.
 */
int phx_poll_read(struct phx_file *file, void *to, size_t len, off_t off, size_t *moved);
int phx_poll_write(struct phx_file *file, const void *from, size_t len, off_t off, size_t *moved);

#endif
