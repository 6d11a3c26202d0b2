// SPDX-License-Identifier: Apache-2.0
/*
 * Changing the tree of ranges; searching it stands in the header.
 *
 * All functions here work on an inclusive range of addresses, first to last,
 * so that the end of the address space needs no special case.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "phx_ranges.h"

static uintptr_t span(int level) /* addresses that one slot covers, less one */
{
	return ((uintptr_t)1 << (PHX_RANGE_SHIFT + PHX_RANGE_BITS * level)) - 1;
}

static struct phx_range_node *node_of(uintptr_t slot)
{
	return slot & 1 ? (struct phx_range_node *)(slot - 1) : NULL;
}

/* The node below @slot, made if there is none; NULL: no memory. */
static struct phx_range_node *descend(_Atomic uintptr_t *slot)
{
	uintptr_t value = atomic_load_explicit(slot, memory_order_relaxed);
	struct phx_range_node *node;

	if (value)
		return node_of(value);
	node = calloc(1, sizeof(*node));
	if (node) /* release: its empty slots come before it */
		atomic_store_explicit(slot, (uintptr_t)node + 1, memory_order_release);
	return node;
}

/*
 * Put @value into every slot that @first .. @last covers. *reached is the last
 * address that was set, also when memory runs out on the way.
 */
static int fill(struct phx_range_node *node, int level, uintptr_t first, uintptr_t last,
		uintptr_t value, uintptr_t *reached)
{
	uintptr_t at = first;

	for (;;) {
		_Atomic uintptr_t *slot = &node->slot[phx_range_index(at, level)];
		uintptr_t slot_last = at | span(level), end = slot_last < last ? slot_last : last;
		bool whole = !(at & span(level)) && end == slot_last;
		uintptr_t now = atomic_load_explicit(slot, memory_order_relaxed);

		/* A node that is there stays: its slots are set instead. */
		if (whole && !(now & 1)) {
			atomic_store_explicit(slot, value, memory_order_release);
			*reached = end;
		} else if (value || now) {
			struct phx_range_node *below = descend(slot);

			if (!below)
				return -ENOMEM;
			if (fill(below, level - 1, at, end, value, reached))
				return -ENOMEM;
		}
		if (end == last)
			return 0;
		at = end + 1;
	}
}

/* The part of @first .. @last below 2^48 and the part above. */
static int fill_both(struct phx_ranges *ranges, uintptr_t first, uintptr_t last, uintptr_t value,
		     uintptr_t *reached)
{
	const uintptr_t border = (uintptr_t)1 << 48;
	int err = 0;

	if (first < border)
		err = fill(&ranges->low, 3, first, last < border ? last : border - 1, value,
			   reached);
	if (!err && last >= border)
		err = fill(&ranges->high, 5, first > border ? first : border, last, value, reached);
	return err;
}

int phx_ranges_insert(struct phx_ranges *ranges, struct phx_range *range, uintptr_t base,
		      size_t len)
{
	uintptr_t reached = base - 1, ignored;
	int err;

	atomic_store_explicit(&range->base, base, memory_order_relaxed);
	atomic_store_explicit(&range->len, len, memory_order_relaxed);
	err = fill_both(ranges, base, base + (len - 1), (uintptr_t)range, &reached);
	if (err && reached != base - 1)
		fill_both(ranges, base, reached, 0, &ignored);
	return err;
}

void phx_ranges_remove(struct phx_ranges *ranges, struct phx_range *range)
{
	uintptr_t base = atomic_load_explicit(&range->base, memory_order_relaxed);
	size_t len = atomic_load_explicit(&range->len, memory_order_relaxed);
	uintptr_t ignored;

	/* Needs no memory: every slot of the range is there. */
	fill_both(ranges, base, base + (len - 1), 0, &ignored);
}

static struct phx_range *lowest(struct phx_range_node *node, int level, uintptr_t first,
				uintptr_t last)
{
	uintptr_t at = first;

	for (;;) {
		uintptr_t slot = atomic_load_explicit(&node->slot[phx_range_index(at, level)],
						      memory_order_relaxed);
		uintptr_t end = at | span(level);
		struct phx_range *found = NULL;

		if (slot && !(slot & 1))
			return (struct phx_range *)slot;
		if (slot)
			found = lowest(node_of(slot), level - 1, at, end < last ? end : last);
		if (found || end >= last)
			return found;
		at = end + 1;
	}
}

struct phx_range *phx_ranges_overlap(struct phx_ranges *ranges, uintptr_t base, size_t len)
{
	const uintptr_t border = (uintptr_t)1 << 48;
	uintptr_t last = base + (len - 1);
	struct phx_range *found = NULL;

	if (base < border)
		found = lowest(&ranges->low, 3, base, last < border ? last : border - 1);
	if (!found && last >= border)
		found = lowest(&ranges->high, 5, base > border ? base : border, last);
	return found;
}
