/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disjoint address ranges, ordered, searched without a lock.
 *
 * Writers hold a lock of the owner's. A reader walks the tree while it may be
 * changing, and a sequence number tells it whether to walk again: it is odd
 * during a change. For that to be safe a node's memory must stay a node for
 * ever (the owner may reuse it, never free it), and what a reader found must
 * be confirmed by the owner, who knows how a node is kept alive.
 */
#ifndef PHX_RANGES_H
#define PHX_RANGES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct phx_range {
	_Atomic(struct phx_range *) child[2]; /* [0]: lower, [1]: higher addresses */
	_Atomic uintptr_t base;
	_Atomic size_t len;
	int height; /* of the subtree; protected by: the owner's lock */
};

struct phx_ranges {
	_Atomic(struct phx_range *) root;
	_Atomic uint64_t sequence; /* odd: a change is under way */
};

/*
 * The range that holds @addr, or NULL. Without the owner's lock the answer is
 * that of some moment during the call.
 */
struct phx_range *phx_ranges_find(struct phx_ranges *ranges, uintptr_t addr);

/* With the owner's lock held: */

/* Insert @range at @base, @len; the caller made sure that it is free. */
void phx_ranges_insert(struct phx_ranges *ranges, struct phx_range *range, uintptr_t base,
		       size_t len);
void phx_ranges_remove(struct phx_ranges *ranges, struct phx_range *range);
/* The lowest range that shares an address with @base, @len, or NULL. */
struct phx_range *phx_ranges_overlap(struct phx_ranges *ranges, uintptr_t base, size_t len);

#endif
