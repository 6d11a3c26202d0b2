/* SPDX-License-Identifier: Apache-2.0 */
/* Start of the library, and what fork() means to it. */
#ifndef PHX_INIT_H
#define PHX_INIT_H

#include <stdatomic.h>
#include <stdbool.h>

extern atomic_bool phx_ready;

/*
 * Counts the forks between the process that loaded the library and this one.
 * An object that cannot outlive a fork keeps the value of its creation and
 * answers -ECHILD when the two differ.
 */
extern atomic_uint phx_generation;

void phx_init_slow(void);

/* Called by every public function that needs settings, devices or counters. */
static inline void phx_init(void)
{
	if (!atomic_load_explicit(&phx_ready, memory_order_acquire))
		phx_init_slow();
}

static inline unsigned int phx_fork_generation(void)
{
	return atomic_load_explicit(&phx_generation, memory_order_relaxed);
}

#endif
