/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a range is cut into slices. Pure arithmetic, shared by every transport.
 */
#ifndef P2P_SLICE_H
#define P2P_SLICE_H

#include <stddef.h>
#include <stdint.h>

struct p2p_mr;
struct p2p_task;

/* One unit of work for a path. Lives in its task's arena. */
struct p2p_slice {
	uint64_t local_va;
	uint64_t remote_va;
	struct p2p_task *task;
	struct p2p_mr *mr; /* of local_va; pinned by the task */
	uint32_t length;  /* at most the port's limit */
	uint32_t rkey;
	uint32_t rid;
	uint32_t entry;   /* of the caller's arrays */
	int16_t device;   /* accelerator of local_va; -1: host */
	uint8_t opcode;   /* enum FlagcxSliceOp */
};

struct p2p_cut {
	size_t block;    /* SIZE_MAX: not cut by the policy */
	size_t fragment; /* a tail up to this joins its neighbour */
	size_t limit;    /* the port's: never exceeded, whatever the policy */
};

/* The cut of a policy (enum FlagcxP2pPolicy); -EINVAL for an unknown one. */
int p2p_cut_init(struct p2p_cut *cut, int policy, size_t slice_size, size_t fragment_limit,
		 size_t port_limit);
/* Length of the next slice when left bytes remain; left > 0. */
static inline size_t p2p_cut_next(const struct p2p_cut *cut, size_t left)
{
	size_t want = left;

	if (left > cut->block && left - cut->block > cut->fragment)
		want = cut->block;
	return want < cut->limit ? want : cut->limit;
}

/* How many slices a range of len bytes makes; 0 for 0. */
static inline size_t p2p_cut_count(const struct p2p_cut *cut, size_t len)
{
	size_t step = cut->block < cut->limit ? cut->block : cut->limit, n = 0;

	/* whole steps first; the last slices are where the rules bite */
	if (len > 3 * step) {
		n = len / step - 2;
		len -= n * step;
	}
	for (; len; n++)
		len -= p2p_cut_next(cut, len);
	return n;
}

#endif /* P2P_SLICE_H */
