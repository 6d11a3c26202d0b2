/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PHX_FILL_H
#define PHX_FILL_H

#include "phx_xfer.h"

/*
 * Run a read of a buffered descriptor that goes through chunks of host memory, by
 * this thread and up to @hands - 1 workers; bytes or -errno. -ENOMEM: nothing
 * was begun.
 */
ssize_t phx_fill_run(struct phx_xfer *x, int hands);

#endif
