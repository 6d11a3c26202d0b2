// SPDX-License-Identifier: Apache-2.0
/*
 * Looking into another process: its counters are found as the memfd named
 * "phoenix-stats" among /proc/PID/fd and mapped. The seals make sure that a
 * process that shrinks or replaces it cannot hurt the viewer.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "phx_error.h"
#include "phx_init.h"
#include "phx_sized.h"
#include "phx_stats.h"
#include "phx_time.h"

#define WATCH_NS (10ULL * 1000000000)

struct phxfs_stats_view {
	struct phx_stats_memory *memory;
};

static void watch(struct phx_stats_memory *memory)
{
	atomic_store_explicit(&memory->watch_until_ns, phx_now_ns() + WATCH_NS,
			      memory_order_relaxed);
}

/* Open the memfd among /proc/PID/fd; -errno when there is none. */
static int find_memfd(const char *directory)
{
	static const char prefix[] = "/memfd:" PHX_STATS_NAME;
	struct dirent *entry;
	int fd = -ENOENT;
	DIR *dir;

	dir = opendir(directory);
	if (!dir)
		return errno == ENOENT ? -ESRCH : -errno;
	while (fd == -ENOENT && (entry = readdir(dir))) {
		char target[64] = "";

		if (readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1) < 0 ||
		    strncmp(target, prefix, sizeof(prefix) - 1))
			continue;
		fd = openat(dirfd(dir), entry->d_name, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			fd = -errno;
	}
	closedir(dir);
	return fd;
}

static int map_memfd(int fd, struct phx_stats_memory **memory)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct phx_stats_memory *m;
	struct stat st;

	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) ||
	    st.st_size != (off_t)sizeof(*m))
		return -EPROTO;
	m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED)
		return -errno;
	if (m->magic != PHX_STATS_MAGIC || m->version != PHX_STATS_VERSION ||
	    m->size != sizeof(*m)) {
		munmap(m, sizeof(*m));
		return -EPROTO;
	}
	*memory = m;
	return 0;
}

int phxfs_stats_view_open(pid_t pid, phxfs_stats_view_t **view)
{
	struct phxfs_stats_view *v;
	char directory[32];
	int fd, err;

	if (pid <= 0 || !view)
		return phx_fail(-EINVAL, "stats_view_open", "pass a process id and a view pointer",
				"pid %d", (int)pid);
	phx_init();
	v = calloc(1, sizeof(*v));
	if (!v)
		return phx_fail(-ENOMEM, "stats_view_open", NULL, "pid %d", (int)pid);

	snprintf(directory, sizeof(directory), "/proc/%d/fd", (int)pid);
	fd = find_memfd(directory);
	if (fd < 0) {
		err = phx_fail(fd, "stats_view_open",
			       fd == -ENOENT ? "the process must use libphoenix, have made its "
					       "first call, and run without PHX_STATS=off" :
			       fd == -EACCES ? "run as the same user, or as root" : NULL,
			       "pid %d", (int)pid);
		goto err_free;
	}
	err = map_memfd(fd, &v->memory);
	close(fd);
	if (err) {
		phx_fail(err, "stats_view_open", "use phx and libphoenix of the same version",
			 "counters of pid %d", (int)pid);
		goto err_free;
	}
	watch(v->memory);
	*view = v;
	return 0;

err_free:
	free(v);
	return err;
}

int phxfs_stats_view_read(phxfs_stats_view_t *view, int device_id, struct phxfs_stats *out)
{
	int err = phx_check_size(out, PHX_SIZE_UPTO(struct phxfs_stats, write), "stats_view_read");

	if (err)
		return err;
	if (!view)
		return phx_fail(-EINVAL, "stats_view_read", NULL, "NULL view");
	if (device_id >= PHX_STATS_SLOTS - 1 ||
	    (device_id >= 0 && !atomic_load(&view->memory->gauges[device_id + 1].present)))
		return phx_fail(-ENODEV, "stats_view_read", NULL, "device %d", device_id);
	watch(view->memory);
	return phx_stats_sum(view->memory, device_id < 0 ? 0 : device_id + 1, out);
}

/* The smallest bucket top below which @share per mille of @h's values lie. */
static uint64_t percentile(const uint64_t *bucket, uint64_t count, unsigned int per_mille)
{
	uint64_t need = (count * per_mille + 999) / 1000, seen = 0;

	for (unsigned int i = 0; i < PHX_STATS_BUCKETS; i++) {
		seen += bucket[i];
		if (need && seen >= need)
			return phx_stats_bucket_top(i);
	}
	return 0;
}

int phxfs_stats_view_latency(phxfs_stats_view_t *view, int op, struct phxfs_latency *out)
{
	struct phxfs_latency l = { 0 };
	uint64_t bucket[PHX_STATS_BUCKETS];
	struct phx_histogram *h;
	int err;

	err = phx_check_size(out, PHX_SIZE_UPTO(struct phxfs_latency, p999_ns),
			     "stats_view_latency");
	if (err)
		return err;
	if (!view || (op != PHXFS_OP_READ && op != PHXFS_OP_WRITE))
		return phx_fail(-EINVAL, "stats_view_latency", NULL, "view %p, op %d",
				(void *)view, op);
	watch(view->memory);
	h = &view->memory->latency[op == PHXFS_OP_WRITE];
	/* The process goes on counting: take the count from what was read. */
	for (int i = 0; i < PHX_STATS_BUCKETS; i++) {
		bucket[i] = atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
		l.count += bucket[i];
	}
	l.sum_ns = atomic_load_explicit(&h->sum_ns, memory_order_relaxed);
	l.max_ns = atomic_load_explicit(&h->max_ns, memory_order_relaxed);
	l.p50_ns = percentile(bucket, l.count, 500);
	l.p90_ns = percentile(bucket, l.count, 900);
	l.p99_ns = percentile(bucket, l.count, 990);
	l.p999_ns = percentile(bucket, l.count, 999);
	phx_fill(out, &l, sizeof(l));
	return 0;
}

void phxfs_stats_view_close(phxfs_stats_view_t *view)
{
	if (!view)
		return;
	munmap(view->memory, sizeof(*view->memory));
	free(view);
}
