// SPDX-License-Identifier: Apache-2.0
/*
 * An AVL tree behind a sequence number.
 *
 * Memory order. There are no fences: a writer makes the number odd and then
 * stores every link with release; a reader loads every link with acquire and
 * then the number again. A reader that saw a link of the writer's therefore
 * sees at least the odd number, and walks again. The final store of the even
 * number is a release that the reader's first load acquires.
 *
 * A reader may see a half rotated tree and so even a cycle: its walk is
 * bounded, and a walk that hits the bound counts as disturbed.
 *
 * A writer can be preempted in the middle of a change. Readers then yield the
 * processor instead of spinning.
 */
#include <sched.h>

#include "phx_ranges.h"

#define MAX_DEPTH 64 /* an AVL tree this high would hold 2^44 ranges */

static struct phx_range *child(struct phx_range *node, int side)
{
	return atomic_load_explicit(&node->child[side], memory_order_acquire);
}

static void set_child(struct phx_range *node, int side, struct phx_range *to)
{
	atomic_store_explicit(&node->child[side], to, memory_order_release);
}

static uintptr_t base_of(struct phx_range *node)
{
	return atomic_load_explicit(&node->base, memory_order_acquire);
}

struct phx_range *phx_ranges_find(struct phx_ranges *ranges, uintptr_t addr)
{
	for (unsigned int tries = 1;; tries++) {
		uint64_t sequence = atomic_load_explicit(&ranges->sequence, memory_order_acquire);
		struct phx_range *node, *found = NULL;
		int depth = 0;

		node = atomic_load_explicit(&ranges->root, memory_order_acquire);
		while (node && depth++ < MAX_DEPTH) {
			uintptr_t base = base_of(node);

			if (addr < base) {
				node = child(node, 0);
			} else if (addr - base < atomic_load_explicit(&node->len,
								      memory_order_acquire)) {
				found = node;
				break;
			} else {
				node = child(node, 1);
			}
		}
		if (!(sequence & 1) &&
		    sequence == atomic_load_explicit(&ranges->sequence, memory_order_relaxed))
			return found;
		if (tries % 16 == 0)
			sched_yield();
	}
}

static int height(struct phx_range *node)
{
	return node ? node->height : 0;
}

static void measure(struct phx_range *node)
{
	int low = height(child(node, 0)), high = height(child(node, 1));

	node->height = 1 + (low > high ? low : high);
}

/* Lift the child on @side above @node; returns the new top. */
static struct phx_range *rotate(struct phx_range *node, int side)
{
	struct phx_range *top = child(node, side);

	set_child(node, side, child(top, !side));
	set_child(top, !side, node);
	measure(node);
	measure(top);
	return top;
}

static struct phx_range *balance(struct phx_range *node)
{
	int lean;

	measure(node);
	lean = height(child(node, 1)) - height(child(node, 0));
	if (lean > 1 || lean < -1) {
		int side = lean > 0;
		struct phx_range *heavy = child(node, side);

		if (height(child(heavy, !side)) > height(child(heavy, side)))
			set_child(node, side, rotate(heavy, !side));
		return rotate(node, side);
	}
	return node;
}

static struct phx_range *insert_below(struct phx_range *top, struct phx_range *range)
{
	int side;

	if (!top)
		return range;
	side = base_of(range) > base_of(top);
	set_child(top, side, insert_below(child(top, side), range));
	return balance(top);
}

static struct phx_range *take_lowest(struct phx_range *top, struct phx_range **lowest)
{
	if (!child(top, 0)) {
		*lowest = top;
		return child(top, 1);
	}
	set_child(top, 0, take_lowest(child(top, 0), lowest));
	return balance(top);
}

static struct phx_range *remove_below(struct phx_range *top, struct phx_range *range)
{
	struct phx_range *next, *rest;

	if (top != range) {
		int side = base_of(range) > base_of(top);

		set_child(top, side, remove_below(child(top, side), range));
		return balance(top);
	}
	if (!child(top, 0) || !child(top, 1))
		return child(top, !child(top, 0));
	rest = take_lowest(child(top, 1), &next);
	set_child(next, 0, child(top, 0));
	set_child(next, 1, rest);
	return balance(next);
}

static void begin_change(struct phx_ranges *ranges)
{
	uint64_t sequence = atomic_load_explicit(&ranges->sequence, memory_order_relaxed);

	atomic_store_explicit(&ranges->sequence, sequence + 1, memory_order_relaxed);
}

static void end_change(struct phx_ranges *ranges, struct phx_range *root)
{
	uint64_t sequence = atomic_load_explicit(&ranges->sequence, memory_order_relaxed);

	atomic_store_explicit(&ranges->root, root, memory_order_release);
	atomic_store_explicit(&ranges->sequence, sequence + 1, memory_order_release);
}

static struct phx_range *root_of(struct phx_ranges *ranges)
{
	return atomic_load_explicit(&ranges->root, memory_order_relaxed);
}

void phx_ranges_insert(struct phx_ranges *ranges, struct phx_range *range, uintptr_t base,
		       size_t len)
{
	begin_change(ranges);
	set_child(range, 0, NULL);
	set_child(range, 1, NULL);
	range->height = 1;
	atomic_store_explicit(&range->base, base, memory_order_release);
	atomic_store_explicit(&range->len, len, memory_order_release);
	end_change(ranges, insert_below(root_of(ranges), range));
}

void phx_ranges_remove(struct phx_ranges *ranges, struct phx_range *range)
{
	begin_change(ranges);
	end_change(ranges, remove_below(root_of(ranges), range));
}

struct phx_range *phx_ranges_overlap(struct phx_ranges *ranges, uintptr_t base, size_t len)
{
	struct phx_range *node = root_of(ranges), *lowest = NULL;

	while (node) {
		uintptr_t start = base_of(node);
		size_t size = atomic_load_explicit(&node->len, memory_order_relaxed);

		if (start >= base + len) {
			node = child(node, 0);
		} else if (start + size <= base) {
			node = child(node, 1);
		} else {
			lowest = node;
			node = child(node, 0);
		}
	}
	return lowest;
}
