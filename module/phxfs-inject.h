/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fault injection: parameter inject=N makes the Nth place from now that asks
 * phxfs_inject() fail, once. A test counts N up until nothing fails any more, and so
 * walks every error path of an operation. Only slow paths ask.
 */
#ifndef PHXFS_INJECT_H
#define PHXFS_INJECT_H

#include <linux/atomic.h>
#include <linux/compiler.h>

extern atomic_t phxfs_inject_countdown;

static inline bool phxfs_inject(void)
{
	if (likely(!atomic_read(&phxfs_inject_countdown)))
		return false;
	return atomic_dec_if_positive(&phxfs_inject_countdown) == 0;
}

#endif /* PHXFS_INJECT_H */
