// SPDX-License-Identifier: Apache-2.0
/*
 * libphxsim: devices, memory and synchronous work. Thin over the driver's ioctls;
 * the one state is the table of open devices.
 *
 * table.lock protects the table and is held for moments only, so that a fork need
 * not wait for a long copy. A call in progress counts as a user of the table, and a
 * reset waits until there is none before it closes a descriptor.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../phxsim-uapi.h"
#include "phxsim.h"

#define MAX_DEVICES	64
#define API		__attribute__((visibility("default")))

struct device {
	int fd;
	int index;		/* N of /dev/phxsimN */
	char bdf[16];
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;	/* users fell to 0, or resetting to false */
	int users;		/* calls in progress */
	bool resetting;		/* no call may begin */
	pid_t pid;		/* whose table it is; 0: none yet */
	int count;
	struct device dev[MAX_DEVICES];	/* in order of bdf */
} table = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* --- the table --------------------------------------------------------------- */

static int open_index(int index)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/phxsim%d", index);
	fd = open(path, O_RDWR | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int open_device(struct device *d, int index)
{
	struct phxsim_info info;
	int ret;

	d->fd = open_index(index);
	if (d->fd < 0)
		return d->fd;
	d->index = index;
	if (ioctl(d->fd, PHXSIM_IOC_INFO, &info) < 0)
		ret = -errno;
	else if (info.version != PHXSIM_ABI_VERSION || info.page_size != PHXSIM_PAGE_SIZE)
		ret = -EPROTO;
	else
		ret = 0;
	if (ret) {
		close(d->fd);
		return ret;
	}
	memcpy(d->bdf, info.bdf, sizeof(d->bdf));
	d->bdf[sizeof(d->bdf) - 1] = 0;
	return 0;
}

static int by_bdf(const void *a, const void *b)
{
	return strcmp(((const struct device *)a)->bdf, ((const struct device *)b)->bdf);
}

static void close_table(void)
{
	while (table.count)
		close(table.dev[--table.count].fd);
	table.pid = 0;
}

static int scan_devices(DIR *dir)
{
	struct dirent *e;
	int index, end, ret;

	while ((e = readdir(dir))) {
		end = 0;
		if (sscanf(e->d_name, "phxsim%d%n", &index, &end) != 1 || e->d_name[end])
			continue;
		if (table.count == MAX_DEVICES)
			break;
		ret = open_device(&table.dev[table.count], index);
		if (ret == -ENODEV || ret == -ENXIO || ret == -ENOENT)
			continue;	/* it goes away at this moment */
		if (ret)
			return ret;
		table.count++;
	}
	return table.count ? 0 : -ENODEV;
}

/* Called with table.lock held. */
static int fill_table(void)
{
	DIR *dir;
	int ret;

	if (table.pid == getpid())
		return 0;
	close_table();		/* after a fork: the parent's descriptors */
	dir = opendir("/dev");
	if (!dir)
		return -errno;
	ret = scan_devices(dir);
	closedir(dir);
	if (ret) {
		close_table();
		return ret;
	}
	qsort(table.dev, table.count, sizeof(table.dev[0]), by_bdf);
	table.pid = getpid();
	return 0;
}

/* On success the caller is a user of the table, until table_leave(). */
static int table_enter(void)
{
	int ret;

	pthread_mutex_lock(&table.lock);
	while (table.resetting)
		pthread_cond_wait(&table.changed, &table.lock);
	ret = fill_table();
	if (!ret)
		table.users++;
	pthread_mutex_unlock(&table.lock);
	return ret;
}

static void table_leave(void)
{
	pthread_mutex_lock(&table.lock);
	if (!--table.users)
		pthread_cond_broadcast(&table.changed);
	pthread_mutex_unlock(&table.lock);
}

static void before_fork(void)
{
	pthread_mutex_lock(&table.lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&table.lock);
}

/* The other threads, and with them their calls, are not in the child. */
static void after_fork_child(void)
{
	table.users = 0;
	table.resetting = false;
	table.changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	pthread_mutex_unlock(&table.lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_child);
}

static int call(int dev, unsigned long cmd, void *arg)
{
	int ret = table_enter();

	if (ret)
		return ret;
	if (dev < 0 || dev >= table.count)
		ret = -ENODEV;
	else if (ioctl(table.dev[dev].fd, cmd, arg) < 0)
		ret = -errno;
	table_leave();
	return ret;
}

/* The device that owns ptr, as a number of this library. */
static int find_owner(const void *ptr, struct phxsim_query *q)
{
	int ret, i;

	memset(q, 0, sizeof(*q));
	q->va = (uintptr_t)ptr;
	/* addresses are the process's: any device knows them all */
	ret = call(0, PHXSIM_IOC_QUERY, q);
	if (ret)
		return ret;
	ret = table_enter();
	if (ret)
		return ret;
	ret = -EINVAL;
	for (i = 0; i < table.count; i++)
		if (table.dev[i].index == (int)q->index)
			ret = i;
	table_leave();
	return ret;
}

/* --- devices -------------------------------------------------------------------- */

API int phxsim_init(void)
{
	int ret = table_enter();

	if (!ret)
		table_leave();
	return ret;
}

API int phxsim_device_count(int *count)
{
	int ret = table_enter();

	if (ret)
		return ret;
	*count = table.count;
	table_leave();
	return 0;
}

API int phxsim_device_bdf(int dev, char *bdf, size_t len)
{
	int ret = table_enter();

	if (ret)
		return ret;
	if (dev < 0 || dev >= table.count)
		ret = -ENODEV;
	else if (strlen(table.dev[dev].bdf) >= len)
		ret = -ENOSPC;
	else
		strcpy(bdf, table.dev[dev].bdf);
	table_leave();
	return ret;
}

API int phxsim_device_memory(int dev, uint64_t *total, uint64_t *available)
{
	struct phxsim_info info;
	int ret = call(dev, PHXSIM_IOC_INFO, &info);

	if (ret)
		return ret;
	if (total)
		*total = info.bar_size;
	if (available)
		*available = info.free_bytes;
	return 0;
}

API int phxsim_device_reset(int dev)
{
	int ret = phxsim_init(), fd;

	if (ret)
		return ret;
	pthread_mutex_lock(&table.lock);
	while (table.resetting)
		pthread_cond_wait(&table.changed, &table.lock);
	table.resetting = true;
	while (table.users)
		pthread_cond_wait(&table.changed, &table.lock);
	if (dev < 0 || dev >= table.count) {
		ret = -ENODEV;
		goto out_end_reset;
	}
	fd = open_index(table.dev[dev].index);
	if (fd < 0) {
		ret = fd;
		goto out_end_reset;
	}
	close(table.dev[dev].fd);
	table.dev[dev].fd = fd;
out_end_reset:
	table.resetting = false;
	pthread_cond_broadcast(&table.changed);
	pthread_mutex_unlock(&table.lock);
	return ret;
}

/* --- memory ---------------------------------------------------------------------- */

API int phxsim_mem_alloc(int dev, size_t size, unsigned int layout, void **ptr)
{
	struct phxsim_alloc_args a = { .size = size, .layout = layout };
	int ret = call(dev, PHXSIM_IOC_ALLOC, &a);

	if (!ret)
		*ptr = (void *)(uintptr_t)a.va;
	return ret;
}

API int phxsim_mem_free(void *ptr)
{
	struct phxsim_free_args f = { .va = (uintptr_t)ptr };
	struct phxsim_query q;
	int dev = find_owner(ptr, &q);

	return dev < 0 ? dev : call(dev, PHXSIM_IOC_FREE, &f);
}

API int phxsim_host_alloc(size_t size, void **ptr)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	*ptr = p;
	return 0;
}

API int phxsim_host_free(void *ptr, size_t size)
{
	return munmap(ptr, size) < 0 ? -errno : 0;
}

API int phxsim_pointer_query(const void *ptr, struct phxsim_pointer *out)
{
	struct phxsim_query q;
	int dev = find_owner(ptr, &q);

	if (dev < 0)
		return dev;
	out->base = (void *)(uintptr_t)q.base;
	out->size = q.size;
	out->id = q.id;
	out->dev = dev;
	return 0;
}

API int phxsim_pointer_pages(const void *ptr, uint64_t *offsets, uint32_t count)
{
	struct phxsim_pages p = { .va = (uintptr_t)ptr, .count = count };

	p.offsets = (uintptr_t)offsets;
	return call(0, PHXSIM_IOC_PAGES, &p);
}

/* --- work --------------------------------------------------------------------------- */

/* Goes to the owner of the device memory, because faults are per device. */
static int copy(void *dst, const void *src, size_t n, uint32_t kind)
{
	struct phxsim_copy c = { .len = n, .kind = kind };
	struct phxsim_query q;
	int dev;

	if (!n)
		return 0;
	c.dst = (uintptr_t)dst;
	c.src = (uintptr_t)src;
	dev = find_owner(kind == PHXSIM_DTOH ? src : dst, &q);
	if (dev == -EINVAL)
		return -EFAULT;
	return dev < 0 ? dev : call(dev, PHXSIM_IOC_COPY, &c);
}

API int phxsim_memcpy_htod(void *dst, const void *src, size_t n)
{
	return copy(dst, src, n, PHXSIM_HTOD);
}

API int phxsim_memcpy_dtoh(void *dst, const void *src, size_t n)
{
	return copy(dst, src, n, PHXSIM_DTOH);
}

API int phxsim_memcpy_dtod(void *dst, const void *src, size_t n)
{
	return copy(dst, src, n, PHXSIM_DTOD);
}

API int phxsim_memset(void *ptr, int byte, size_t n)
{
	struct phxsim_fill f = { .len = n, .value = (unsigned char)byte };

	f.va = (uintptr_t)ptr;
	f.kind = PHXSIM_FILL_BYTE;
	return call(0, PHXSIM_IOC_FILL, &f);
}

API int phxsim_fill(void *ptr, uint64_t seed, size_t n)
{
	struct phxsim_fill f = { .len = n, .value = seed, .kind = PHXSIM_FILL_WORDS };

	f.va = (uintptr_t)ptr;
	return call(0, PHXSIM_IOC_FILL, &f);
}

API uint64_t phxsim_pattern(uint64_t seed, uint64_t i)
{
	return phxsim_word(seed, i);
}

API int phxsim_checksum(const void *ptr, size_t n, uint64_t *sum)
{
	struct phxsim_checksum c = { .len = n, .sum = *sum };
	int ret;

	c.va = (uintptr_t)ptr;
	ret = call(0, PHXSIM_IOC_CHECKSUM, &c);
	if (!ret)
		*sum = c.sum;
	return ret;
}

API uint64_t phxsim_checksum_host(const void *data, size_t n, uint64_t sum)
{
	return phxsim_sum(sum, data, n);
}

/* --- faults --------------------------------------------------------------------------- */

API int phxsim_fault(int dev, unsigned int kind, uint32_t skip, uint32_t count, uint64_t arg)
{
	struct phxsim_fault f = { .kind = kind, .skip = skip, .count = count, .arg = arg };

	return call(dev, PHXSIM_IOC_FAULT, &f);
}

API int phxsim_reclaim(int dev, int pid, const void *ptr, uint32_t *callbacks)
{
	struct phxsim_reclaim r = { .pid = pid };
	int ret;

	r.va = (uintptr_t)ptr;
	ret = call(dev, PHXSIM_IOC_RECLAIM, &r);
	if (!ret && callbacks)
		*callbacks = r.callbacks;
	return ret;
}
