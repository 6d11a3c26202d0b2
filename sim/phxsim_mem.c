// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxsim: allocations. Pages come from the device's bitmap in the layout asked
 * for, addresses from the context's tree, lowest first, so that a freed address
 * comes back soon, as it does on a real device.
 */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "phxsim.h"

static atomic64_t next_id = ATOMIC64_INIT(0);
static u32 default_layout = PHXSIM_LAYOUT_HUGE;

static const char *const layout_names[PHXSIM_LAYOUT_COUNT] = {
	[PHXSIM_LAYOUT_DEFAULT]		= "default",
	[PHXSIM_LAYOUT_HUGE]		= "huge",
	[PHXSIM_LAYOUT_FRAGMENTED]	= "fragmented",
	[PHXSIM_LAYOUT_SUBSPANS]	= "subspans",
	[PHXSIM_LAYOUT_REVERSED]	= "reversed",
	[PHXSIM_LAYOUT_MISALIGNED]	= "misaligned",
};

int phxsim_set_layout(const char *name)
{
	int i = sysfs_match_string(layout_names, name);

	if (i <= PHXSIM_LAYOUT_DEFAULT)
		return -EINVAL;
	WRITE_ONCE(default_layout, i);
	return 0;
}

/* --- pages ----------------------------------------------------------------- */

static void take(struct phxsim_dev *dev, struct phxsim_alloc *a, u32 at, u32 first, u32 n)
{
	u32 i;

	bitmap_set(dev->used, first, n);
	dev->pages_free -= n;
	for (i = 0; i < n; i++)
		a->page[at + i] = first + i;
}

/* n pages in one piece whose first page is `offset` past a multiple of align */
static bool take_run(struct phxsim_dev *dev, struct phxsim_alloc *a, u32 at, u32 n,
		     u32 start, u32 align, u32 offset)
{
	unsigned long first;

	first = bitmap_find_next_zero_area_off(dev->used, dev->pages, start, n, align - 1,
					       align - offset);
	if (first >= dev->pages)
		return false;
	take(dev, a, at, first, n);
	return true;
}

/* 2 MiB blocks one by one; `gap` blocks stay between two while there is room */
static u32 take_blocks(struct phxsim_dev *dev, struct phxsim_alloc *a, u32 at, u32 gap)
{
	u32 start = 0;

	while (at < a->pages) {
		if (!take_run(dev, a, at, PHXSIM_HUGE_PAGES, start, PHXSIM_HUGE_PAGES, 0)) {
			if (!start)
				break;
			start = 0;
			continue;
		}
		start = a->page[at] + (1 + gap) * PHXSIM_HUGE_PAGES;
		at += PHXSIM_HUGE_PAGES;
	}
	return at;
}

static u32 take_huge(struct phxsim_dev *dev, struct phxsim_alloc *a)
{
	u32 align = a->pages >= PHXSIM_HUGE_PAGES ? PHXSIM_HUGE_PAGES : 1;

	if (take_run(dev, a, 0, a->pages, 0, align, 0))
		return a->pages;
	return align == 1 ? 0 : take_blocks(dev, a, 0, 0);
}

static u32 take_fragmented(struct phxsim_dev *dev, struct phxsim_alloc *a)
{
	unsigned long page = 0;
	u32 at;

	for (at = 0; at < a->pages; at++) {
		page = find_next_zero_bit(dev->used, dev->pages, page);
		if (page >= dev->pages)
			page = find_next_zero_bit(dev->used, dev->pages, 0);
		if (page >= dev->pages)
			break;
		take(dev, a, at, page, 1);
		page += 3;
	}
	return at;
}

static u32 take_reversed(struct phxsim_dev *dev, struct phxsim_alloc *a)
{
	u32 got = take_blocks(dev, a, 0, 0), n = PHXSIM_HUGE_PAGES, i, j;

	for (i = 0, j = got; i + n < j; i += n) {
		u32 k;

		j -= n;
		for (k = 0; k < n; k++)
			swap(a->page[i + k], a->page[j + k]);
	}
	return got;
}

static void give_back(struct phxsim_dev *dev, struct phxsim_alloc *a, u32 got)
{
	u32 i;

	for (i = 0; i < got; i++)
		clear_bit(a->page[i], dev->used);
	dev->pages_free += got;
}

static int take_pages(struct phxsim_dev *dev, struct phxsim_alloc *a)
{
	u32 got = 0;

	mutex_lock(&dev->pages_lock);
	switch (a->layout) {
	case PHXSIM_LAYOUT_HUGE:
		got = take_huge(dev, a);
		break;
	case PHXSIM_LAYOUT_FRAGMENTED:
		got = take_fragmented(dev, a);
		break;
	case PHXSIM_LAYOUT_SUBSPANS:
		got = take_blocks(dev, a, 0, 1);
		break;
	case PHXSIM_LAYOUT_REVERSED:
		got = take_reversed(dev, a);
		break;
	case PHXSIM_LAYOUT_MISALIGNED:
		if (take_run(dev, a, 0, a->pages, 0, PHXSIM_HUGE_PAGES, 1))
			got = a->pages;
		break;
	}
	if (got < a->pages)
		give_back(dev, a, got);
	mutex_unlock(&dev->pages_lock);
	return got < a->pages ? -ENOMEM : 0;
}

/* --- addresses -------------------------------------------------------------- */

static u64 alloc_end(const struct phxsim_alloc *a)
{
	return a->va + ((u64)a->pages << PHXSIM_PAGE_SHIFT);
}

static struct phxsim_alloc *node_alloc(struct rb_node *node)
{
	return rb_entry(node, struct phxsim_alloc, node);
}

static int insert_va(struct phxsim_ctx *ctx, struct phxsim_alloc *a)
{
	u64 bytes = (u64)a->pages << PHXSIM_PAGE_SHIFT, va = PHXSIM_VA_BASE;
	u64 align = bytes >= PHXSIM_HUGE_SIZE ? PHXSIM_HUGE_SIZE : PHXSIM_PAGE_SIZE;
	struct rb_node *node, **link = &ctx->allocs.rb_node, *parent = NULL;

	lockdep_assert_held(&phxsim_api);
	for (node = rb_first(&ctx->allocs); node; node = rb_next(node)) {
		if (va + bytes <= node_alloc(node)->va)
			break;
		va = ALIGN(alloc_end(node_alloc(node)), align);
	}
	if (va + bytes > PHXSIM_VA_END)
		return -ENOMEM;
	a->va = va;
	spin_lock(&ctx->lock);
	while (*link) {
		parent = *link;
		link = va < node_alloc(parent)->va ? &parent->rb_left : &parent->rb_right;
	}
	rb_link_node(&a->node, parent, link);
	rb_insert_color(&a->node, &ctx->allocs);
	spin_unlock(&ctx->lock);
	return 0;
}

/* the allocation that holds va, with a reference */
struct phxsim_alloc *phxsim_alloc_find(struct phxsim_ctx *ctx, u64 va)
{
	struct phxsim_alloc *a = NULL;
	struct rb_node *node;

	spin_lock(&ctx->lock);
	for (node = ctx->allocs.rb_node; node;) {
		a = node_alloc(node);
		if (va < a->va) {
			node = node->rb_left;
		} else if (va >= alloc_end(a)) {
			node = node->rb_right;
		} else {
			kref_get(&a->ref);
			break;
		}
	}
	spin_unlock(&ctx->lock);
	return node ? a : NULL;
}

/* --- allocations -------------------------------------------------------------- */

static void alloc_release(struct kref *ref)
{
	struct phxsim_alloc *a = container_of(ref, struct phxsim_alloc, ref);

	mutex_lock(&a->dev->pages_lock);
	give_back(a->dev, a, a->pages);
	mutex_unlock(&a->dev->pages_lock);
	phxsim_dev_put(a->dev);
	kvfree(a);
}

void phxsim_alloc_put(struct phxsim_alloc *a)
{
	kref_put(&a->ref, alloc_release);
}

static struct phxsim_alloc *alloc_create(struct phxsim_file *file, u64 size, u32 layout)
{
	u64 unit = PHXSIM_PAGE_SIZE, pages;
	struct phxsim_alloc *a;

	if (layout == PHXSIM_LAYOUT_DEFAULT)
		layout = READ_ONCE(default_layout);
	if (layout == PHXSIM_LAYOUT_SUBSPANS || layout == PHXSIM_LAYOUT_REVERSED ||
	    (layout == PHXSIM_LAYOUT_HUGE && size >= PHXSIM_HUGE_SIZE))
		unit = PHXSIM_HUGE_SIZE;
	pages = ALIGN(size, unit) >> PHXSIM_PAGE_SHIFT;
	if (pages > file->dev->pages)
		return ERR_PTR(-ENOMEM);
	a = kvzalloc(struct_size(a, page, pages), GFP_KERNEL);
	if (!a)
		return ERR_PTR(-ENOMEM);
	kref_init(&a->ref);
	INIT_LIST_HEAD(&a->pins);
	a->owner = file;
	a->layout = layout;
	a->pages = pages;
	a->size = size;
	a->id = atomic64_inc_return(&next_id);
	return a;
}

int phxsim_alloc(struct phxsim_file *file, struct phxsim_alloc_args *args)
{
	struct phxsim_dev *dev = file->dev;
	struct phxsim_alloc *a;
	int ret;

	if (!args->size || args->pad || args->layout >= PHXSIM_LAYOUT_COUNT)
		return -EINVAL;
	if (args->size > dev->size)
		return -ENOMEM;
	ret = phxsim_fault_errno(dev, PHXSIM_FAULT_ALLOC);
	if (ret)
		return ret;
	a = alloc_create(file, args->size, args->layout);
	if (IS_ERR(a))
		return PTR_ERR(a);
	ret = take_pages(dev, a);
	if (ret) {
		kvfree(a);
		return ret;
	}
	/* from here on the last put gives pages and device back */
	kref_get(&dev->ref);
	a->dev = dev;
	mutex_lock(&phxsim_api);
	ret = dev->dead ? -ENODEV : insert_va(file->ctx, a);
	/* once inserted, another thread may free it */
	args->va = a->va;
	args->id = a->id;
	mutex_unlock(&phxsim_api);
	if (ret)
		phxsim_alloc_put(a);
	return ret;
}

static void free_locked(struct phxsim_ctx *ctx, struct phxsim_alloc *a)
{
	lockdep_assert_held(&phxsim_api);
	spin_lock(&ctx->lock);
	rb_erase(&a->node, &ctx->allocs);
	spin_unlock(&ctx->lock);
	phxsim_reclaim_alloc(a);
	phxsim_alloc_put(a);
}

int phxsim_free(struct phxsim_file *file, u64 va)
{
	struct phxsim_alloc *a;
	int ret = -EINVAL;

	mutex_lock(&phxsim_api);
	a = phxsim_alloc_find(file->ctx, va);
	if (a && a->va == va && a->owner == file) {
		free_locked(file->ctx, a);
		ret = 0;
	}
	mutex_unlock(&phxsim_api);
	if (a)
		phxsim_alloc_put(a);
	return ret;
}

void phxsim_free_all(struct phxsim_file *file)
{
	struct rb_node *node, *next;

	mutex_lock(&phxsim_api);
	for (node = rb_first(&file->ctx->allocs); node; node = next) {
		next = rb_next(node);
		if (node_alloc(node)->owner == file)
			free_locked(file->ctx, node_alloc(node));
	}
	mutex_unlock(&phxsim_api);
}

int phxsim_query(struct phxsim_file *file, struct phxsim_query *q)
{
	struct phxsim_alloc *a = phxsim_alloc_find(file->ctx, q->va);

	if (!a)
		return -EINVAL;
	q->base = a->va;
	q->size = a->size;
	q->id = a->id;
	q->index = a->dev->index;
	q->layout = a->layout;
	phxsim_alloc_put(a);
	return 0;
}

int phxsim_pages(struct phxsim_file *file, const struct phxsim_pages *p)
{
	u64 __user *out = u64_to_user_ptr(p->offsets);
	struct phxsim_alloc *a;
	u32 i, first;
	int ret = 0;

	if (p->pad)
		return -EINVAL;
	a = phxsim_alloc_find(file->ctx, p->va);
	if (!a)
		return -EINVAL;
	first = (p->va - a->va) >> PHXSIM_PAGE_SHIFT;
	if (p->count > a->pages - first)
		ret = -EINVAL;
	for (i = 0; !ret && i < p->count; i++)
		ret = put_user((u64)a->page[first + i] << PHXSIM_PAGE_SHIFT, out + i);
	phxsim_alloc_put(a);
	return ret;
}
