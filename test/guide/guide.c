// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "guide.h"

long must(long result, const char *call, const char *file, int line)
{
	if (result >= 0)
		return result;
	printf("FAIL %s:%d: %s = %ld: %s\n", file, line, call, result, phxfs_last_error());
	exit(1);
}

void expect(long wanted, long result, const char *call, const char *file, int line)
{
	if (result == wanted)
		return;
	printf("FAIL %s:%d: %s = %ld, not %ld (%s)\n", file, line, call, result, wanted,
	       phxfs_last_error());
	exit(1);
}

int argument(int argc, char **argv, const char *what)
{
	char *end;
	long n = argc == 2 ? strtol(argv[1], &end, 10) : -1;

	if (argc != 2 || *end || end == argv[1] || n < 0 || n > 63) {
		fprintf(stderr, "usage: %s %s\n", argv[0], what);
		exit(2);
	}
	return (int)n;
}

int make_file(size_t size, int direct)
{
	const char *dir = getenv("TMPDIR");
	char path[4096];
	int fd, other;

	snprintf(path, sizeof(path), "%s/phoenix-guide.XXXXXX", dir ? dir : "/var/tmp");
	fd = mkstemp(path);
	if (fd < 0 || ftruncate(fd, (off_t)size)) {
		printf("FAIL %s: %s\n", path, strerror(errno));
		exit(1);
	}
	if (direct) {
		other = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
		if (other >= 0) {
			close(fd);
			fd = other;
		} else {
			printf("(%s has no O_DIRECT: the page cache it is)\n", path);
		}
	}
	unlink(path);
	return fd;
}

static uint8_t pattern_byte(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed + i / 8) * 0x9E3779B97F4A7C15ULL;

	x ^= x >> 29;
	x *= 0xBF58476D1CE4E5B9ULL;
	return (uint8_t)(x >> (i % 8 * 8));
}

void pattern(uint8_t *to, size_t n, uint64_t seed, uint64_t from)
{
	for (size_t i = 0; i < n; i++)
		to[i] = pattern_byte(seed, from + i);
}

void check_pattern(const uint8_t *got, size_t n, uint64_t seed, uint64_t from, const char *what)
{
	for (size_t i = 0; i < n; i++) {
		if (got[i] != pattern_byte(seed, from + i)) {
			printf("FAIL %s: byte %zu of %zu is %#x, not %#x\n", what, i, n, got[i],
			       pattern_byte(seed, from + i));
			exit(1);
		}
	}
}

void put(int device, void *dst, const void *src, size_t n)
{
	MUST(phxfs_memcpy_to(device, dst, src, n));
}

void get(int device, void *dst, const void *src, size_t n)
{
	MUST(phxfs_memcpy_from(device, dst, src, n));
}

double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

const char *mode_name(int device)
{
	static const char *const names[] = { "FULL", "STAGING", "BOUNCE", "HOST" };

	return names[MUST(phxfs_device_mode(device))];
}
