/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and latency histograms of this process, in memory that another
 * process can look into (see phx_stats.c).
 */
#ifndef PHX_STATS_H
#define PHX_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "phoenix.h"

#define PHX_STATS_SLOTS 65 /* 0: host buffers, 1 + N: device N */
#define PHX_STATS_SHARDS 8
#define PHX_STATS_BUCKETS 976

struct phx_path_counters {
	_Atomic uint64_t ops, bytes, errors;
};

struct phx_counters {
	struct phx_path_counters io[2][PHXFS_PATHS]; /* [is write][path] */
	_Atomic uint64_t copies, copy_bytes, retries;
} __attribute__((aligned(64)));

struct phx_gauges {
	_Atomic uint32_t present; /* there is such a device */
	_Atomic uint32_t registrations;
	_Atomic uint64_t registered_bytes;
} __attribute__((aligned(64)));

struct phx_histogram {
	_Atomic uint64_t count, sum_ns, max_ns;
	_Atomic uint64_t bucket[PHX_STATS_BUCKETS];
} __attribute__((aligned(64)));

/* The shared memory. A change of it changes PHX_STATS_VERSION. */
#define PHX_STATS_MAGIC 0x7374617473786870ULL /* "phxstats" */
#define PHX_STATS_VERSION 2
#define PHX_STATS_NAME "phoenix-stats"
struct phx_stats_memory {
	uint64_t magic;
	uint32_t version;
	uint32_t size;
	_Atomic uint64_t watch_until_ns; /* CLOCK_MONOTONIC; 0: nobody watches */
	struct phx_gauges gauges[PHX_STATS_SLOTS];
	struct phx_histogram latency[2]; /* [is write] */
	struct phx_counters counters[PHX_STATS_SLOTS][PHX_STATS_SHARDS];
};

extern struct phx_stats_memory *phx_stats;

void phx_stats_init(void);
void phx_stats_fork_child(void);

unsigned int phx_stats_new_shard(void);
uint64_t phx_stats_now_watched(void);
void phx_stats_latency(bool write, uint64_t start_ns);

/* Sum a slot's shards of any process's memory into @out, as far as its size. */
int phx_stats_sum(struct phx_stats_memory *memory, int slot, struct phxfs_stats *out);
/* Value range of a histogram bucket: its largest value. */
uint64_t phx_stats_bucket_top(unsigned int bucket);
unsigned int phx_stats_bucket(uint64_t ns);

/* This thread's shard; threads are spread over the shards round robin. */
extern _Thread_local unsigned int phx_stats_shard __attribute__((tls_model("initial-exec")));

static inline struct phx_counters *phx_stats_mine(int device_id)
{
	unsigned int shard = phx_stats_shard;

	if (!shard)
		shard = phx_stats_new_shard();
	return &phx_stats->counters[device_id < 0 ? 0 : device_id + 1][shard - 1];
}

static inline void phx_stats_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* Count @ops transfers, or edges, of @bytes that took @path and failed or not. */
static inline void phx_stats_ops(int device_id, bool write, int path, uint64_t ops,
				 uint64_t bytes, bool failed)
{
	struct phx_path_counters *c = &phx_stats_mine(device_id)->io[write][path];

	phx_stats_add(&c->ops, ops);
	if (bytes)
		phx_stats_add(&c->bytes, bytes);
	if (failed)
		phx_stats_add(&c->errors, 1);
}

static inline void phx_stats_bytes(int device_id, bool write, int path, uint64_t bytes)
{
	phx_stats_add(&phx_stats_mine(device_id)->io[write][path].bytes, bytes);
}

static inline void phx_stats_copied(int device_id, uint64_t bytes)
{
	struct phx_counters *c = phx_stats_mine(device_id);

	phx_stats_add(&c->copies, 1);
	phx_stats_add(&c->copy_bytes, bytes);
}

/* Now, for a later phx_stats_latency(), or 0 when nobody watches. */
static inline uint64_t phx_stats_start(void)
{
	if (!atomic_load_explicit(&phx_stats->watch_until_ns, memory_order_relaxed))
		return 0;
	return phx_stats_now_watched();
}

#endif
