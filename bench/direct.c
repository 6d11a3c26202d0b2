// SPDX-License-Identifier: Apache-2.0
/*
 * What a read into device memory costs over the same read into host memory. Runs where
 * phxfs.ko serves device 0 in FULL mode (bench/vm_direct.sh boots such a machine).
 * Usage: bench_direct FILE
 *
 * Prints "SIZE HOST RAW LIBRARY", in microseconds for one read of SIZE bytes: pread into host
 * memory, pread into the mapped device memory, phxfs_read; the median of many. Ends with
 * "copies N": what the library copied on the way.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "phoenix.h"

#define SPAN	(32u << 20)	/* bytes of the file that are read, and of each buffer */
#define SAMPLES	4000		/* reads of one size, each way */
#define SAMPLES_MIN	51
#define BUDGET_US	3e6

enum way { HOST, RAW, LIBRARY, WAYS };

static int file;
static char *host, *device, *mapped;

static void check(int err, const char *what)
{
	if (!err)
		return;
	fprintf(stderr, "bench_direct: %s: %s (%s)\n", what, strerror(-err), phxfs_last_error());
	exit(1);
}

static ssize_t read_once(enum way way, size_t bytes, off_t at)
{
	ssize_t got;

	if (way == LIBRARY)
		return phxfs_read(file, 0, device, at, (ssize_t)bytes, at);
	got = pread(file, (way == HOST ? host : mapped) + at, bytes, at);
	return got < 0 ? -errno : got;
}

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1e6 + ts.tv_nsec / 1e3;
}

/* Microseconds of one read. */
static double measure(enum way way, size_t bytes, off_t at)
{
	double start = now_us();
	ssize_t got = read_once(way, bytes, at);

	if (got != (ssize_t)bytes)
		check(got < 0 ? (int)got : -EIO, "read");
	return now_us() - start;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The ways take turns read by read: whatever disturbs the machine disturbs all of them. */
static void one_size(size_t bytes)
{
	static double times[WAYS][SAMPLES];
	double end = now_us() + BUDGET_US;
	unsigned int n = 0;

	for (unsigned int i = 0; n < SAMPLES && (n < SAMPLES_MIN || now_us() < end); i++) {
		bool warm = i >= 4;

		/* A place of its own each time: none finds in a cache what another left. */
		for (unsigned int turn = 0; turn < WAYS; turn++) {
			unsigned int place = i / WAYS % 2 ? WAYS - turn : turn;
			enum way way = (enum way)((place + i) % WAYS);
			uint64_t at = (uint64_t)(i * WAYS + turn) * bytes % SPAN;

			times[way][n] = measure(way, bytes, (off_t)at);
		}
		n += warm;
	}
	printf("%zu", bytes);
	for (int way = 0; way < WAYS; way++) {
		qsort(times[way], n, sizeof(double), by_value);
		printf(" %.1f", times[way][n / 2]);
	}
	printf("\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct phxfs_stats stats = { .size = sizeof(stats) };
	void *p;

	if (argc != 2) {
		fprintf(stderr, "usage: bench_direct FILE\n");
		return 2;
	}
	file = open(argv[1], O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (file < 0)
		check(-errno, argv[1]);
	host = aligned_alloc(2u << 20, SPAN);
	if (!host)
		check(-ENOMEM, "host memory");
	memset(host, 1, SPAN);
	check(phxfs_open(0), "phxfs_open");
	if (phxfs_device_mode(0) != PHXFS_MODE_FULL)
		check(-ENODEV, "device 0 in FULL mode");
	check(phxfs_mem_alloc(0, SPAN, &p), "phxfs_mem_alloc");
	device = p;
	check(phxfs_regmem(0, device, SPAN, &p), "phxfs_regmem");
	mapped = p;
	/* Both have been touched: the machine below may have given no memory before. */
	check(phxfs_memcpy_to(0, device, host, SPAN), "phxfs_memcpy_to");

	for (size_t bytes = 4096; bytes <= 16u << 20; bytes *= 4)
		one_size(bytes);

	check(phxfs_stats(0, &stats), "phxfs_stats");
	printf("copies %llu\n", (unsigned long long)stats.copies);
	check(phxfs_deregmem(0, device, SPAN), "phxfs_deregmem");
	check(phxfs_mem_free(0, device), "phxfs_mem_free");
	check(phxfs_close(0), "phxfs_close");
	free(host);
	close(file);
	return 0;
}
