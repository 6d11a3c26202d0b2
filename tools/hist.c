// SPDX-License-Identifier: Apache-2.0
#include "hist.h"

void hist_merge(struct hist *to, const struct hist *from)
{
	unsigned int i;

	for (i = 0; i < HIST_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
	to->count += from->count;
	to->sum += from->sum;
	if (from->max > to->max)
		to->max = from->max;
}

static uint64_t bucket_top(unsigned int index)
{
	unsigned int shift;

	if (index < HIST_SUB)
		return index;
	shift = (index >> HIST_BITS) - 1;
	return (((uint64_t)(index & (HIST_SUB - 1)) + HIST_SUB + 1) << shift) - 1;
}

uint64_t hist_quantile(const struct hist *h, double share)
{
	uint64_t seen = 0, rank;
	unsigned int i;

	if (!h->count)
		return 0;
	rank = (uint64_t)(share * (double)h->count);
	/* the rank-th smallest, counted from 1, rounded up */
	if ((double)rank < share * (double)h->count || rank == 0)
		rank++;
	for (i = 0; i < HIST_BUCKETS - 1; i++) {
		seen += h->bucket[i];
		if (seen >= rank)
			break;
	}
	return bucket_top(i) < h->max ? bucket_top(i) : h->max;
}

double hist_mean(const struct hist *h)
{
	return h->count ? (double)h->sum / (double)h->count : 0;
}
