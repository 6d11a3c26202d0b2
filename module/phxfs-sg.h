/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For backends whose driver tells pinned memory as a scatter list: the largest pages that
 * the list's pieces can be cut in, and their addresses.
 */
#ifndef PHXFS_SG_H
#define PHXFS_SG_H

#include <linux/bitops.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

#include "phxfs-pin.h"

/*
 * Sets the pin's page size, at most @limit, and the number of pages.
 * @bus_offset is added to each address. -ENOMEM: a piece has no address; -EIO: pieces that
 * are no whole pages, or too few.
 */
static inline int phxfs_sg_measure(struct phxfs_pin *pin, struct sg_table *sgt, u64 bus_offset,
				   u64 limit)
{
	u64 va = pin->vaddr, bits = limit, size;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sg(sgt->sgl, sg, sgt->nents, i) {
		u64 addr = sg_dma_address(sg);

		if (!addr || !sg_dma_len(sg))
			return -ENOMEM;
		if (va - pin->vaddr >= pin->length)
			break;
		/* congruent with the device address, and cut at page borders only */
		bits |= (addr + bus_offset) - va;
		if (i)
			bits |= va;
		va += sg_dma_len(sg);
	}
	size = 1ULL << __ffs64(bits);
	if (size < PAGE_SIZE) {
		pr_err_ratelimited("%#llx is pinned in pieces that are no pages\n", pin->vaddr);
		return -EIO;
	}
	if (va - pin->vaddr < pin->length) {
		pr_err_ratelimited("%#llx is pinned for %#llx bytes only, not %#llx\n",
				   pin->vaddr, va - pin->vaddr, pin->length);
		return -EIO;
	}
	pin->pt.page_size = size;
	pin->n = phxfs_pin_pages(pin, size);
	return 0;
}

static inline int phxfs_sg_copy(struct phxfs_pin *pin, struct sg_table *sgt, u64 bus_offset)
{
	u64 page = round_down(pin->vaddr, pin->pt.page_size), va = pin->vaddr;
	struct scatterlist *sg;
	unsigned int i;
	u32 k = 0;

	for_each_sg(sgt->sgl, sg, sgt->nents, i) {
		u64 addr = sg_dma_address(sg) + bus_offset, end = va + sg_dma_len(sg);

		for (; k < pin->n && page < end; page += pin->pt.page_size)
			pin->addr[k++] = addr + (page - va);
		va = end;
	}
	return 0;
}

#endif /* PHXFS_SG_H */
