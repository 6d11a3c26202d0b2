// SPDX-License-Identifier: Apache-2.0
/*
 * Counters live in a sealed memfd named "phoenix-stats", so that another
 * process can find them as /proc/PID/fd/N and no file is ever left behind.
 * With PHX_STATS=off, or where a memfd cannot be had, they live in private
 * memory and only phxfs_stats() sees them.
 *
 * Counting is always on: two or three relaxed additions to a cache line that
 * only an eighth of the threads share. Latencies cost two clock readings and
 * are measured only while somebody watches: a viewer sets watch_until_ns some
 * seconds ahead and renews it, so a viewer that is killed leaves nothing on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "phx_config.h"
#include "phx_device.h"
#include "phx_error.h"
#include "phx_init.h"
#include "phx_sized.h"
#include "phx_stats.h"
#include "phx_time.h"

#define WATCH_LIMIT_NS (60ULL * 1000000000) /* no honest viewer asks for more */

_Thread_local unsigned int phx_stats_shard __attribute__((tls_model("initial-exec")));
struct phx_stats_memory *phx_stats;

/* Takes the counters where not even a page can be mapped at start. */
static struct phx_stats_memory last_resort;
static int stats_fd = -1;
static dev_t stats_dev; /* which file stats_fd was opened as */
static ino_t stats_ino;

static int make_memfd(void)
{
	int fd = memfd_create(PHX_STATS_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct stat st;

	if (fd < 0)
		return -1;
	if (ftruncate(fd, sizeof(struct phx_stats_memory)) || fstat(fd, &st) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		close(fd);
		return -1;
	}
	stats_dev = st.st_dev;
	stats_ino = st.st_ino;
	return fd;
}

static struct phx_stats_memory *map_at(void *address, int fd)
{
	int flags = (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | (address ? MAP_FIXED : 0);
	void *memory = mmap(address, sizeof(struct phx_stats_memory), PROT_READ | PROT_WRITE,
			    flags, fd, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static void stamp(struct phx_stats_memory *memory)
{
	memory->version = PHX_STATS_VERSION;
	memory->size = sizeof(*memory);
	memory->magic = PHX_STATS_MAGIC;
}

void phx_stats_init(void)
{
	if (phx_config.stats)
		stats_fd = make_memfd();
	phx_stats = map_at(NULL, stats_fd);
	if (!phx_stats && stats_fd >= 0) {
		close(stats_fd);
		stats_fd = -1;
		phx_stats = map_at(NULL, -1);
	}
	if (!phx_stats)
		phx_stats = &last_resort;
	if (phx_config.stats && stats_fd < 0)
		phx_log(PHXFS_LOG_WARN,
			"no memfd for the counters: phx stat cannot see this process");
	stamp(phx_stats);
}

/* A daemon may have closed all descriptors, and the number be another file's. */
static bool is_our_memfd(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && st.st_dev == stats_dev && st.st_ino == stats_ino;
}

/*
 * The child counts from zero in memory of its own, mapped at the same place,
 * since pointers into it are held everywhere. The gauges describe what the
 * child inherits and are carried over.
 */
void phx_stats_fork_child(void)
{
	static struct phx_gauges gauges[PHX_STATS_SLOTS];

	memcpy(gauges, phx_stats->gauges, sizeof(gauges));
	if (stats_fd >= 0) {
		if (is_our_memfd(stats_fd))
			close(stats_fd);
		stats_fd = make_memfd();
	}
	if (phx_stats != &last_resort && !map_at(phx_stats, stats_fd))
		phx_stats = &last_resort; /* the mapping is still shared with the parent */
	if (phx_stats == &last_resort)
		memset(phx_stats, 0, sizeof(*phx_stats));
	memcpy(phx_stats->gauges, gauges, sizeof(gauges));
	stamp(phx_stats);
}

unsigned int phx_stats_new_shard(void)
{
	static atomic_uint next;

	phx_stats_shard = 1 + atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) %
			      PHX_STATS_SHARDS;
	return phx_stats_shard;
}

uint64_t phx_stats_now_watched(void)
{
	uint64_t until = atomic_load_explicit(&phx_stats->watch_until_ns, memory_order_relaxed);
	uint64_t now = phx_now_ns();

	if (now < until && until - now < WATCH_LIMIT_NS)
		return now;
	/* The viewer is gone. If one has just renewed, its value stays. */
	atomic_compare_exchange_strong(&phx_stats->watch_until_ns, &until, 0);
	return 0;
}

/* Sixteen buckets to each power of two: a bucket is at most 1/16 wide. */
unsigned int phx_stats_bucket(uint64_t ns)
{
	unsigned int shift;

	if (ns < 16)
		return (unsigned int)ns;
	shift = 59 - (unsigned int)__builtin_clzll(ns);
	return (shift + 1) * 16 + (unsigned int)((ns >> shift) & 15);
}

uint64_t phx_stats_bucket_top(unsigned int bucket)
{
	unsigned int shift;

	if (bucket < 16)
		return bucket;
	shift = bucket / 16 - 1;
	return ((16ULL + bucket % 16) << shift) + (1ULL << shift) - 1;
}

void phx_stats_latency(bool write, uint64_t start_ns)
{
	struct phx_histogram *h = &phx_stats->latency[write];
	uint64_t now = phx_now_ns();
	uint64_t ns = now > start_ns ? now - start_ns : 0;
	uint64_t max = atomic_load_explicit(&h->max_ns, memory_order_relaxed);

	phx_stats_add(&h->bucket[phx_stats_bucket(ns)], 1);
	phx_stats_add(&h->sum_ns, ns);
	phx_stats_add(&h->count, 1);
	while (ns > max && !atomic_compare_exchange_weak(&h->max_ns, &max, ns))
		;
}

static uint64_t get(_Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

int phx_stats_sum(struct phx_stats_memory *memory, int slot, struct phxfs_stats *out)
{
	struct phx_gauges *gauges = &memory->gauges[slot];
	struct phxfs_stats sum = { 0 };

	sum.registrations = atomic_load_explicit(&gauges->registrations, memory_order_relaxed);
	sum.registered_bytes = get(&gauges->registered_bytes);
	for (int shard = 0; shard < PHX_STATS_SHARDS; shard++) {
		struct phx_counters *c = &memory->counters[slot][shard];

		sum.copies += get(&c->copies);
		sum.copy_bytes += get(&c->copy_bytes);
		sum.retries += get(&c->retries);
		for (int path = 0; path < PHXFS_PATHS; path++) {
			for (int write = 0; write < 2; write++) {
				struct phxfs_path_stats *to = write ? &sum.write[path] :
								      &sum.read[path];

				to->ops += get(&c->io[write][path].ops);
				to->bytes += get(&c->io[write][path].bytes);
				to->errors += get(&c->io[write][path].errors);
			}
		}
	}
	phx_fill(out, &sum, sizeof(sum));
	return 0;
}

int phxfs_stats(int device_id, struct phxfs_stats *out)
{
	int err = phx_check_size(out, PHX_SIZE_UPTO(struct phxfs_stats, write), "stats");

	if (err)
		return err;
	phx_init();
	if (device_id >= 0 && !phx_device_find(device_id))
		return phx_device_missing(device_id, "stats");
	return phx_stats_sum(phx_stats, device_id < 0 ? 0 : device_id + 1, out);
}
