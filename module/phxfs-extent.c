// SPDX-License-Identifier: GPL-2.0-only
/*
 * Where a region lies: the vendor's list of pages, checked against the BAR window and
 * merged into contiguous pieces. Nothing a vendor's driver reports is trusted.
 */
#include <linux/slab.h>

#include "phxfs-inject.h"
#include "phxfs.h"

struct piece {
	u64 start;
	u64 length;
};

/* The part of page @i that belongs to the region; the first page may be entered inside. */
static struct piece page_piece(u64 vaddr, u64 length, u64 page_size, const u64 *phys, u64 i)
{
	u64 skew = vaddr & (page_size - 1);
	u64 begin = i ? i * page_size - skew : 0;
	struct piece p = {
		.start = phys[i] + (i ? 0 : skew),
		.length = min(length - begin, page_size - (i ? 0 : skew)),
	};

	return p;
}

static bool in_window(const struct phxfs_dev *dev, const struct piece *p)
{
	return PAGE_ALIGNED(p->start) && p->start >= dev->base &&
	       p->start - dev->base < dev->size &&
	       p->length <= dev->size - (p->start - dev->base);
}

/* @phys has DIV_ROUND_UP(vaddr % page_size + length, page_size) entries. */
int phxfs_extents_get(struct phxfs_dev *dev, u64 vaddr, u64 length, u64 page_size,
		      const u64 *phys, struct phxfs_extents *x)
{
	u64 pages = DIV_ROUND_UP_ULL((vaddr & (page_size - 1)) + length, page_size);
	u64 offset = 0, end = 0, i;
	struct phxfs_extent *ext;
	u32 n = 0;

	for (i = 0; i < pages; i++) {
		struct piece p = page_piece(vaddr, length, page_size, phys, i);

		if (!in_window(dev, &p)) {
			dev_err_ratelimited(&dev->device,
					    "device address %#llx is at %#llx, outside the window "
					    "%#llx+%#llx\n",
					    vaddr + offset, p.start, dev->base, dev->size);
			return -ENXIO;
		}
		if (!i || p.start != end)
			n++;
		end = p.start + p.length;
		offset += p.length;
	}

	ext = phxfs_inject() ? NULL : kvmalloc_array(n, sizeof(*ext), GFP_KERNEL);
	if (!ext)
		return -ENOMEM;

	for (i = 0, n = 0, offset = 0; i < pages; i++) {
		struct piece p = page_piece(vaddr, length, page_size, phys, i);

		if (!i || p.start != end)
			ext[n++] = (struct phxfs_extent){ .phys = p.start, .offset = offset };
		end = p.start + p.length;
		offset += p.length;
	}
	*x = (struct phxfs_extents){ .n = n, .length = length, .ext = ext };
	return 0;
}

void phxfs_extents_free(struct phxfs_extents *x)
{
	kvfree(x->ext);
	*x = (struct phxfs_extents){ 0 };
}

/* Physical address of byte @offset, and how many contiguous bytes follow from there. */
u64 phxfs_extents_phys(const struct phxfs_extents *x, u64 offset, u64 *run)
{
	u32 low = 0, high = x->n - 1;
	u64 end;

	while (low < high) {
		u32 mid = low + (high - low + 1) / 2;

		if (x->ext[mid].offset <= offset)
			low = mid;
		else
			high = mid - 1;
	}
	end = low + 1 < x->n ? x->ext[low + 1].offset : x->length;
	if (run)
		*run = end - offset;
	return x->ext[low].phys + (offset - x->ext[low].offset);
}
