// SPDX-License-Identifier: Apache-2.0
/*
 * test_io DEVICE: single reads and writes, right to the byte and to the count,
 * aligned and not, on O_DIRECT and buffered descriptors; then their speed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guide.h"

#define SIZE (4UL << 20)
#define GUARD 0xA5

static int device;
static uint8_t *base, *host;

/* Read @n at @off into byte @at of the buffer: bytes, count, and what lies around. */
static void read_case(int fd, size_t file_size, off_t off, size_t at, size_t n, uint64_t seed)
{
	size_t left = (size_t)off < file_size ? file_size - (size_t)off : 0;
	size_t want = n < left ? n : left;

	memset(host, GUARD, SIZE);
	put(device, base, host, SIZE);
	EXPECT((long)want, phxfs_read(fd, device, base, (off_t)at, (ssize_t)n, off));
	get(device, host, base, SIZE);
	check_pattern(host + at, want, seed, (uint64_t)off, "read");
	for (size_t i = 0; i < SIZE; i++) {
		if ((i < at || i >= at + n) && host[i] != GUARD) {
			printf("FAIL byte %zu outside the request was touched\n", i);
			exit(1);
		}
	}
}

static void write_case(int fd, off_t off, size_t at, size_t n, uint64_t seed)
{
	pattern(host, n, seed, (uint64_t)off);
	put(device, base + at, host, n);
	EXPECT((long)n, phxfs_write(fd, device, base, (off_t)at, (ssize_t)n, off));
}

static void exactness(int direct)
{
	static const size_t sizes[] = { 1, 511, 4096, 4097, 65536, 100003, 1048577 };
	static const off_t offsets[] = { 0, 1, 511, 4096, 70001 };
	const size_t file_size = 2000003;
	int fd = make_file(0, direct);
	uint64_t seed = 11;

	write_case(fd, 0, 0, 1000000, seed);
	write_case(fd, 1000000, 4096, file_size - 1000000, seed);
	EXPECT((long)file_size, lseek(fd, 0, SEEK_END));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (size_t k = 0; k < sizeof(offsets) / sizeof(offsets[0]); k++) {
			read_case(fd, file_size, offsets[k], 4096, sizes[i], seed);
			read_case(fd, file_size, offsets[k], 777, sizes[i], seed);
		}
	}
	read_case(fd, file_size, (off_t)file_size - 7345, 100, 10000, seed);
	read_case(fd, file_size, (off_t)file_size, 100, 1, seed);
	/* A write in the middle leaves its neighbours alone. */
	write_case(fd, 4099, 33, 5000, seed);
	read_case(fd, file_size, 0, 0, 16384, seed);
	EXPECT(-EBADF, phxfs_read(-1, device, base, 0, 4096, 0));
	EXPECT(-EINVAL, phxfs_read(fd, device, base, 0, -1, 0));
	EXPECT(-EINVAL, phxfs_read(fd, device, base, 0, 4096, -1));
	EXPECT(-EFAULT, phxfs_read(fd, device, base, (off_t)SIZE - 1, 2, 0));
	close(fd);
	printf("exact on %s descriptors\n", direct ? "O_DIRECT" : "buffered");
}

static void speed(void)
{
	const size_t file_size = 16UL << 20;
	int fd = make_file(file_size, 1);

	write_case(fd, 0, 0, SIZE, 3);
	for (off_t off = (off_t)SIZE; off < (off_t)file_size; off += (off_t)SIZE)
		EXPECT((long)SIZE, phxfs_write(fd, device, base, 0, (ssize_t)SIZE, off));
	for (size_t n = 4096; n <= SIZE; n *= 16) {
		double start = now(), seconds;
		size_t moved = 0;

		for (off_t off = 0; moved < file_size && moved / n < 256; off += (off_t)n)
			moved += (size_t)MUST(phxfs_read(fd, device, base, 0, (ssize_t)n,
							 off % (off_t)file_size));
		seconds = now() - start;
		printf("%7zu bytes: %8.1f MiB/s, %8.1f us each\n", n,
		       (double)moved / seconds / 1048576,
		       seconds * 1e6 / ((double)moved / (double)n));
	}
	close(fd);
}

int main(int argc, char **argv)
{
	struct phxfs_stats stats = { .size = sizeof(stats) };
	void *memory, *target;

	device = argument(argc, argv, "DEVICE");
	host = malloc(SIZE);
	printf("device %d, %s\n", device, mode_name(device));
	MUST(phxfs_open(device));
	MUST(phxfs_mem_alloc(device, SIZE, &memory));
	base = memory;
	MUST(phxfs_regmem(device, base, SIZE, &target));
	exactness(1);
	exactness(0);
	speed();
	MUST(phxfs_stats(device, &stats));
	printf("bytes read: direct %llu, staging %llu, bounce %llu, edges %llu\n",
	       (unsigned long long)stats.read[PHXFS_PATH_DIRECT].bytes,
	       (unsigned long long)stats.read[PHXFS_PATH_STAGING].bytes,
	       (unsigned long long)stats.read[PHXFS_PATH_BOUNCE].bytes,
	       (unsigned long long)stats.read[PHXFS_PATH_EDGE].bytes);
	EXPECT(0, phxfs_deregmem(device, base, SIZE));
	EXPECT(0, phxfs_mem_free(device, base));
	EXPECT(0, phxfs_close(device));
	free(host);
	printf("test_io: OK\n");
	return 0;
}
