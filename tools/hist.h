/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log-linear histogram of nanoseconds: each power of two is cut into
 * HIST_SUB buckets, so that a percentile is off by less than 1/HIST_SUB.
 * Adding costs a few instructions and no allocation; one owner adds, others
 * merge when it is done.
 */
#ifndef PHX_HIST_H
#define PHX_HIST_H

#include <stdint.h>

#define HIST_BITS 6
#define HIST_SUB (1u << HIST_BITS)
/* 2^42 ns, more than an hour; longer ones share the last bucket */
#define HIST_TOP 42
#define HIST_BUCKETS ((HIST_TOP - HIST_BITS + 1) * HIST_SUB)

struct hist {
	uint64_t count;
	uint64_t sum;
	uint64_t max;
	uint64_t bucket[HIST_BUCKETS];
};

static inline unsigned int hist_index(uint64_t ns)
{
	unsigned int shift;

	if (ns < HIST_SUB)
		return (unsigned int)ns;
	if (ns >> HIST_TOP)
		return HIST_BUCKETS - 1;
	shift = 63u - (unsigned int)__builtin_clzll(ns) - HIST_BITS;
	return ((shift + 1) << HIST_BITS) + (unsigned int)(ns >> shift) - HIST_SUB;
}

static inline void hist_add(struct hist *h, uint64_t ns)
{
	h->bucket[hist_index(ns)]++;
	h->count++;
	h->sum += ns;
	if (ns > h->max)
		h->max = ns;
}

void hist_merge(struct hist *to, const struct hist *from);
/* Upper bound of the bucket that holds the value at this share (0 to 1) of all. */
uint64_t hist_quantile(const struct hist *h, double share);
double hist_mean(const struct hist *h);

#endif
