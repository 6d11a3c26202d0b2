// SPDX-License-Identifier: GPL-2.0-only
/*
 * Struct pages for parts of a BAR. A span is one memremap_pages() mapping; spans never
 * overlap and are multiples of 2 MiB, the unit in which the kernel tracks struct pages, so
 * that no memory beyond what was asked for gains them.
 *
 * FULL: spans cover the BAR from the device's creation to its removal, except where another
 * driver holds a range with a conflicting cache type. STAGING: made when a registration
 * needs them. A span's count is its users: each region once per piece it has in there, and
 * in FULL the device itself. The last user must have seen its pages idle, since
 * memunmap_pages() waits for no pin; then every page of the span is.
 *
 * The pages are MEMORY_DEVICE_GENERIC: the only type that can be pinned for I/O and for RDMA
 * on every kernel. The kernel's own mapping of them is never touched.
 */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/rbtree.h>
#include <linux/slab.h>

#include "phxfs-inject.h"
#include "phxfs.h"

/*
 * Removed devices some of whose spans a draining region still holds: their BAR may be bound
 * again by then, and must not gain a second set of struct pages.
 */
static LIST_HEAD(ghosts);
static DEFINE_MUTEX(ghosts_lock);	/* inside of span_lock */

struct phxfs_span {
	struct rb_node node;		/* dev->spans */
	u64 start;
	u64 length;
	unsigned int users;		/* protected by: dev->span_lock */
	struct dev_pagemap pgmap;
};

static u64 span_end(const struct phxfs_span *s)
{
	return s->start + s->length;
}

static struct phxfs_span *to_span(struct rb_node *node)
{
	return rb_entry_safe(node, struct phxfs_span, node);
}

static bool span_less(struct rb_node *a, const struct rb_node *b)
{
	return rb_entry(a, struct phxfs_span, node)->start <
	       rb_entry(b, struct phxfs_span, node)->start;
}

/* The span that holds @at, else the next one above, else NULL. */
static struct phxfs_span *span_find(struct phxfs_dev *dev, u64 at)
{
	struct rb_node *node = dev->spans.rb_node;
	struct phxfs_span *best = NULL;

	lockdep_assert_held(&dev->span_lock);
	while (node) {
		struct phxfs_span *s = rb_entry(node, struct phxfs_span, node);

		if (span_end(s) > at)
			best = s;
		node = span_end(s) > at ? node->rb_left : node->rb_right;
	}
	return best;
}

static bool haunted(const struct phxfs_dev *dev)
{
	struct phxfs_dev *ghost;
	bool found = false;

	mutex_lock(&ghosts_lock);
	list_for_each_entry(ghost, &ghosts, ghost_node)
		found |= ghost->base < dev->base + dev->size &&
			 dev->base < ghost->base + ghost->size;
	mutex_unlock(&ghosts_lock);
	return found;
}

/*
 * memremap_pages() does not ask: it takes host memory until the OOM killer comes. Half of
 * what is free is ours to take.
 */
static bool memory_for(u64 length)
{
	return PHYS_PFN(PHYS_PFN(length) * sizeof(struct page)) <= si_mem_available() / 2;
}

/* -EINVAL and -EBUSY: a conflicting cache type. -EADDRINUSE: a ghost's. */
static int span_create(struct phxfs_dev *dev, u64 start, u64 length)
{
	struct phxfs_span *s;
	void *addr;

	lockdep_assert_held(&dev->span_lock);
	if (dev->left)
		return -ENODEV;
	if (haunted(dev))
		return -EADDRINUSE;
	if (!memory_for(length))
		return -ENOMEM;
	s = phxfs_inject() ? NULL : kzalloc(sizeof(*s), GFP_KERNEL);
	if (!s)
		return -ENOMEM;
	s->start = start;
	s->length = length;
	/*
	 * Write-combining, or uncached if somebody has it so. Without this a BAR above 4 GiB
	 * would be write-back, in the kernel's alias and in user mappings.
	 */
	if (arch_io_reserve_memtype_wc(start, length)) {
		kfree(s);
		return -EBUSY;
	}
	s->pgmap.type = MEMORY_DEVICE_GENERIC;
	s->pgmap.range.start = start;
	s->pgmap.range.end = start + length - 1;
	s->pgmap.nr_range = 1;
	if (dev->huge)
		phxfs_compound_pagemap(&s->pgmap);
	addr = phxfs_inject() ? ERR_PTR(-ENOMEM) :
	       memremap_pages(&s->pgmap, dev_to_node(&dev->pdev->dev));
	if (IS_ERR(addr)) {
		arch_io_free_memtype_wc(start, length);
		kfree(s);
		return PTR_ERR(addr);
	}
	rb_add(&s->node, &dev->spans, span_less);
	atomic64_add(length, &dev->count.mapped);
	return 0;
}

static void span_put(struct phxfs_dev *dev, struct phxfs_span *s)
{
	lockdep_assert_held(&dev->span_lock);
	if (s->users && --s->users)
		return;
	rb_erase(&s->node, &dev->spans);
	memunmap_pages(&s->pgmap);
	arch_io_free_memtype_wc(s->start, s->length);
	atomic64_sub(s->length, &dev->count.mapped);
	kfree(s);
	if (RB_EMPTY_ROOT(&dev->spans)) {
		mutex_lock(&ghosts_lock);
		list_del_init(&dev->ghost_node);
		mutex_unlock(&ghosts_lock);
	}
}

/* Drop the device's own use; spans that a draining region still holds stay. */
static void full_unmap(struct phxfs_dev *dev)
{
	struct phxfs_span *s, *next;

	mutex_lock(&dev->span_lock);
	for (s = to_span(rb_first(&dev->spans)); s; s = next) {
		next = to_span(rb_next(&s->node));
		span_put(dev, s);
	}
	mutex_unlock(&dev->span_lock);
}

/* The device is removed. In FULL its own use of the spans ends. */
void phxfs_spans_leave(struct phxfs_dev *dev)
{
	if (dev->map_mode == PHXFS_MAP_MODE_FULL)
		full_unmap(dev);
	mutex_lock(&dev->span_lock);
	dev->left = true;
	if (!RB_EMPTY_ROOT(&dev->spans)) {
		mutex_lock(&ghosts_lock);
		list_add(&dev->ghost_node, &ghosts);
		mutex_unlock(&ghosts_lock);
	}
	mutex_unlock(&dev->span_lock);
}

struct skipped {
	u64 start;
	u64 length;
	u64 total;
};

static void report_skipped(struct phxfs_dev *dev, struct skipped *skip)
{
	if (skip->length)
		dev_warn(&dev->device,
			 "%s: BAR range %#llx-%#llx is held by another driver with a conflicting "
			 "cache type: not mapped\n",
			 dev->bdf, skip->start, skip->start + skip->length - 1);
	skip->length = 0;
}

/*
 * Map what can be mapped of [start, start + length), halving where the whole is refused.
 * The depth is at most log2(BAR / 2 MiB).
 */
static int full_map_range(struct phxfs_dev *dev, u64 start, u64 length, struct skipped *skip)
{
	u64 half = round_up(length / 2, PHXFS_SPAN_ALIGN);
	int err = span_create(dev, start, length);

	if (err != -EINVAL && err != -EBUSY)
		return err;
	if (length > PHXFS_SPAN_ALIGN)
		return full_map_range(dev, start, half, skip) ?:
		       full_map_range(dev, start + half, length - half, skip);
	if (skip->start + skip->length != start)
		report_skipped(dev, skip);
	if (!skip->length)
		skip->start = start;
	skip->length += length;
	skip->total += length;
	return 0;
}

/* FULL: struct pages for the whole window. On failure nothing stays mapped. */
int phxfs_full_map(struct phxfs_dev *dev)
{
	u64 start = round_up(dev->base, PHXFS_SPAN_ALIGN);
	u64 end = round_down(dev->base + dev->size, PHXFS_SPAN_ALIGN);
	struct skipped skip = { 0 };
	struct phxfs_span *s;
	int err;

	if (start >= end)
		return -ENXIO;
	mutex_lock(&dev->span_lock);
	err = full_map_range(dev, start, end - start, &skip);
	report_skipped(dev, &skip);
	for (s = to_span(rb_first(&dev->spans)); s; s = to_span(rb_next(&s->node)))
		s->users = 1;
	mutex_unlock(&dev->span_lock);
	if (!err && skip.total == end - start)
		err = -EBUSY;
	if (err)
		full_unmap(dev);
	return err;
}

static u64 piece_length(const struct phxfs_extents *x, u32 i)
{
	return (i + 1 < x->n ? x->ext[i + 1].offset : x->length) - x->ext[i].offset;
}

/*
 * Count the spans behind every piece; with @spans given, use and list each.
 * -ENXIO if any byte has none.
 */
static int spans_walk(struct phxfs_dev *dev, const struct phxfs_extents *x,
		      struct phxfs_span **spans, u32 *n)
{
	struct phxfs_span *s;
	u32 i;

	*n = 0;
	for (i = 0; i < x->n; i++) {
		u64 at = x->ext[i].phys, end = at + piece_length(x, i);

		for (; at < end; at = span_end(s)) {
			s = span_find(dev, at);
			if (!s || s->start > at)
				return -ENXIO;
			if (spans) {
				s->users++;
				spans[*n] = s;
			}
			(*n)++;
		}
	}
	return 0;
}

static int spans_collect(struct phxfs_dev *dev, const struct phxfs_extents *x,
			 struct phxfs_span ***out, u32 *n)
{
	struct phxfs_span **spans;
	int err = spans_walk(dev, x, NULL, n);

	if (err)
		return err;
	spans = phxfs_inject() ? NULL : kvmalloc_array(*n, sizeof(*spans), GFP_KERNEL);
	if (!spans)
		return -ENOMEM;
	spans_walk(dev, x, spans, n);
	*out = spans;
	return 0;
}

int phxfs_full_get_spans(struct phxfs_dev *dev, const struct phxfs_extents *x,
			 struct phxfs_span ***spans, u32 *n)
{
	int err;

	mutex_lock(&dev->span_lock);
	err = spans_collect(dev, x, spans, n);
	mutex_unlock(&dev->span_lock);
	return err;
}

/* Make spans for the parts of [at, end) that have none. */
static int fill_gaps(struct phxfs_dev *dev, u64 at, u64 end)
{
	struct phxfs_span *s;
	int err;

	while (at < end) {
		u64 stop;

		s = span_find(dev, at);
		if (s && s->start <= at) {
			at = span_end(s);
			continue;
		}
		stop = s ? min(end, s->start) : end;
		err = span_create(dev, at, stop - at);
		if (err)
			return err;
		at = stop;
	}
	return 0;
}

static int check_alignment(struct phxfs_dev *dev, const struct phxfs_extents *x)
{
	u32 i;

	for (i = 0; i < x->n; i++) {
		u64 length = piece_length(x, i);

		if (IS_ALIGNED(x->ext[i].phys, PHXFS_SPAN_ALIGN) &&
		    IS_ALIGNED(length, PHXFS_SPAN_ALIGN))
			continue;
		dev_err_ratelimited(&dev->device,
				    "%s: staging piece %u of %u, %#llx+%#llx, is not a whole "
				    "multiple of 2 MiB on a 2 MiB boundary\n",
				    dev->bdf, i + 1, x->n, x->ext[i].phys, length);
		return -EINVAL;
	}
	return 0;
}

/* STAGING: struct pages for exactly the pieces of @x, sharing spans that exist already. */
int phxfs_staging_ensure_span(struct phxfs_dev *dev, const struct phxfs_extents *x,
			      struct phxfs_span ***spans, u32 *n)
{
	struct phxfs_span *s, *next;
	int err = check_alignment(dev, x);
	u32 i;

	if (err)
		return err;
	mutex_lock(&dev->span_lock);
	for (i = 0; i < x->n && !err; i++)
		err = fill_gaps(dev, x->ext[i].phys, x->ext[i].phys + piece_length(x, i));
	if (err == -EINVAL || err == -EBUSY)
		err = -ENXIO;
	else if (err == -EADDRINUSE)
		err = -EBUSY;
	if (!err)
		err = spans_collect(dev, x, spans, n);
	for (s = to_span(rb_first(&dev->spans)); err && s; s = next) {
		next = to_span(rb_next(&s->node));
		if (!s->users)
			span_put(dev, s);
	}
	mutex_unlock(&dev->span_lock);
	return err;
}

void phxfs_put_spans(struct phxfs_dev *dev, struct phxfs_span **spans, u32 n)
{
	mutex_lock(&dev->span_lock);
	while (n--)
		span_put(dev, spans[n]);
	mutex_unlock(&dev->span_lock);
	kvfree(spans);
}
