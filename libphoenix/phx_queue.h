/* SPDX-License-Identifier: Apache-2.0 */
/* What the rest of the library asks of all queues together. */
#ifndef PHX_QUEUE_H
#define PHX_QUEUE_H

#include <stdbool.h>

/*
 * Finish what the rings of all queues have finished. False: there is no such
 * queue. No lock of the library may be held.
 */
bool phx_queues_reap(void);

void phx_queues_fork_prepare(void);
void phx_queues_fork_parent(void);
void phx_queues_fork_child(void);

#endif
