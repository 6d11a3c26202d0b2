/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disjoint address ranges of 64 KiB pages, searched without a lock.
 *
 * A radix tree over the page number, eight bits a level. A range stands in
 * every slot that it covers, as high in the tree as it fits: 64 KiB is one
 * slot, 16 MiB aligned is one slot a level higher. A search is four loads for
 * any address below 2^48, whatever the number of ranges, and is never
 * disturbed by a writer: each slot changes by one store, and nodes are never
 * taken away (2 KiB for each 16 MiB of addresses that ever held a small range).
 *
 * A search that runs beside a removal may still find the range. Its memory
 * must therefore stay a range for ever (the owner may reuse it, never free
 * it), and the owner must confirm what was found; see phx_region.c.
 */
#ifndef PHX_RANGES_H
#define PHX_RANGES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define PHX_RANGE_SHIFT 16 /* a page, the unit of ranges */
#define PHX_RANGE_BITS 8
#define PHX_RANGE_FANOUT (1U << PHX_RANGE_BITS)

struct phx_range {
	_Atomic uintptr_t base;
	_Atomic size_t len;
};

struct phx_range_node {
	/* NULL, a range, or with bit 0 set a node one level down */
	_Atomic uintptr_t slot[PHX_RANGE_FANOUT];
};

struct phx_ranges {
	struct phx_range_node low;  /* level 3: addresses below 2^48 */
	struct phx_range_node high; /* level 5: all others */
};

static inline unsigned int phx_range_index(uintptr_t addr, int level)
{
	return addr >> (PHX_RANGE_SHIFT + PHX_RANGE_BITS * level) & (PHX_RANGE_FANOUT - 1);
}

static inline uintptr_t phx_range_step(uintptr_t slot, uintptr_t addr, int level)
{
	return atomic_load_explicit(
		&((struct phx_range_node *)(slot - 1))->slot[phx_range_index(addr, level)],
		memory_order_acquire);
}

/* The range that holds @addr at some moment during the call, or NULL. */
static inline struct phx_range *phx_ranges_find(struct phx_ranges *ranges, uintptr_t addr)
{
	uintptr_t slot;

	if (__builtin_expect(addr >> 48 != 0, 0)) {
		slot = (uintptr_t)&ranges->high + 1;
		for (int level = 5; slot & 1; level--)
			slot = phx_range_step(slot, addr, level);
		return (struct phx_range *)slot;
	}
	slot = phx_range_step((uintptr_t)&ranges->low + 1, addr, 3);
	if (slot & 1)
		slot = phx_range_step(slot, addr, 2);
	if (slot & 1)
		slot = phx_range_step(slot, addr, 1);
	if (slot & 1)
		slot = phx_range_step(slot, addr, 0);
	return (struct phx_range *)slot;
}

/* With the owner's lock held; @base and @len are multiples of a page: */

/*
 * Insert @range at @base, @len; the caller made sure that it is free. -ENOMEM,
 * with nothing inserted.
 */
int phx_ranges_insert(struct phx_ranges *ranges, struct phx_range *range, uintptr_t base,
		      size_t len);
void phx_ranges_remove(struct phx_ranges *ranges, struct phx_range *range);
/* The lowest range that shares an address with @base, @len, or NULL. */
struct phx_range *phx_ranges_overlap(struct phx_ranges *ranges, uintptr_t base, size_t len);

#endif
