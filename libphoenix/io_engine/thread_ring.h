/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring of a thread of the program's own: made once, since that takes long, and kept until
 * the thread ends.
 */
#ifndef THREAD_RING_H
#define THREAD_RING_H

#include "io_engine.h"

/* For the calling thread alone until it gives it back; NULL: there is none, or it is taken. */
struct phx_engine *phx_thread_ring_take(void);
void phx_thread_ring_give(void);
/* It is of no use, and nothing is in flight in it: never again in this thread. */
void phx_thread_ring_drop(void);

/*
 * Before the calling thread submits into a ring that may go: have one that stays. Linux from
 * 6.18 on ends a thread's io-wq workers with the thread's last ring, and loses a request that
 * the next ring hands to them meanwhile (see docs/troubleshooting.md). Nothing on others.
 */
void phx_thread_ring_keep(void);

void phx_thread_ring_fork_prepare(void);
void phx_thread_ring_fork_parent(void);
void phx_thread_ring_fork_child(void);

#endif
