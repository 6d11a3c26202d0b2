// SPDX-License-Identifier: Apache-2.0
/*
 * What it takes to register device memory with phxfs.ko: mmap and MAP, until every page table
 * entry is there. Usage: bench_map LABEL BYTES...
 *
 * Prints "LABEL BYTES MAP UNMAP", microseconds: the medians of some registrations of each size
 * on device 0. Each is looked at behind the clock: an entry that is missing ends the program,
 * and so does memory that lies in pieces, which would be mapped otherwise.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "phoenix.h"
#include "uapi/phxfs.h"

#define ROUNDS	5
#define PAGE	4096ul
#define PRESENT	(1ull << 63)	/* of an entry of pagemap */

static int fd, pagemap;

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "bench_map: %s: %s (%s)\n", what, strerror(errno), phxfs_last_error());
	exit(1);
}

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e6 + ts.tv_nsec / 1e3;
}

static void check_entries(const char *at, size_t bytes)
{
	static uint64_t entries[1 << 15];
	size_t pages = bytes / PAGE, batch = sizeof(entries) / sizeof(entries[0]);

	for (size_t i = 0; i < pages; i += batch) {
		size_t n = pages - i < batch ? pages - i : batch;
		off_t where = (off_t)(((uintptr_t)at / PAGE + i) * sizeof(entries[0]));

		check(pread(pagemap, entries, n * sizeof(entries[0]), where) ==
		      (ssize_t)(n * sizeof(entries[0])), "pagemap");
		errno = EFAULT;
		for (size_t k = 0; k < n; k++)
			check((entries[k] & PRESENT) != 0, "a page table entry is missing");
	}
}

static void check_pieces(void *at)
{
	struct phxfs_ioctl_region r = { .size = sizeof(r), .c_vaddr = (uintptr_t)at };

	check(!ioctl(fd, PHXFS_IOCTL_REGION, &r), "REGION");
	errno = EINVAL;
	check(r.state == PHXFS_REGION_LIVE && r.pieces == 1, "memory in one piece");
}

static void register_once(void *device, size_t bytes, double *map, double *unmap)
{
	struct phxfs_ioctl_map arg = {
		.n_vaddr = (uintptr_t)device, .n_size = bytes, .c_size = bytes,
	};
	double start = now_us();
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	check(at != MAP_FAILED, "mmap");
	arg.c_vaddr = (uintptr_t)at;
	check(!ioctl(fd, PHXFS_IOCTL_MAP, &arg), "MAP");
	*map = now_us() - start;
	check_entries(at, bytes);
	check_pieces(at);
	start = now_us();
	check(!ioctl(fd, PHXFS_IOCTL_UNMAP, &arg), "UNMAP");
	check(!munmap(at, bytes), "munmap");
	*unmap = now_us() - start;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	double map[ROUNDS], unmap[ROUNDS];

	if (argc < 3) {
		fprintf(stderr, "usage: bench_map LABEL BYTES...\n");
		return 2;
	}
	fd = open("/dev/" PHXFS_DEV_PREFIX "0", O_RDWR | O_CLOEXEC);
	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	check(fd >= 0 && pagemap >= 0, "open");
	for (int i = 2; i < argc; i++) {
		size_t bytes = strtoul(argv[i], NULL, 10);
		void *device;

		check(!phxfs_mem_alloc(0, bytes, &device), "phxfs_mem_alloc");
		for (int n = 0; n < ROUNDS; n++)
			register_once(device, bytes, &map[n], &unmap[n]);
		check(!phxfs_mem_free(0, device), "phxfs_mem_free");
		qsort(map, ROUNDS, sizeof(map[0]), by_value);
		qsort(unmap, ROUNDS, sizeof(unmap[0]), by_value);
		printf("%s %zu %.1f %.1f\n", argv[1], bytes, map[ROUNDS / 2], unmap[ROUNDS / 2]);
	}
	return 0;
}
