// SPDX-License-Identifier: Apache-2.0
/*
 * register: 60 rounds of 10,000 registrations and as many deregistrations of
 * one page each, in an order that changes by round. Prints two BAR lines:
 * whether the last rounds take longer than the first, and whether memory grows.
 */
#include <fcntl.h>
#include <phoenix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS 60
#define PART 10
#define REGIONS 10000u
#define TIME_LIMIT 1.2
#define GROWTH_LIMIT (1024.0 * 1024.0)

static int die(const char *what)
{
	fprintf(stderr, "register: %s: %s\n", what, phxfs_last_error());
	return 1;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Without stdio or malloc, which would grow the memory that is measured. */
static long resident(void)
{
	static int fd = -1;
	char text[128];
	long total, pages;
	ssize_t n;

	if (fd < 0)
		fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	n = pread(fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	if (sscanf(text, "%ld %ld", &total, &pages) != 2)
		return -1;
	return pages * sysconf(_SC_PAGESIZE);
}

static void shuffle(unsigned int *order, unsigned int *seed)
{
	unsigned int i, j, t;

	for (i = REGIONS - 1; i > 0; i--) {
		j = (unsigned int)rand_r(seed) % (i + 1);
		t = order[i];
		order[i] = order[j];
		order[j] = t;
	}
}

static int one_round(char *memory, unsigned int *order, unsigned int *seed, double *seconds)
{
	double start;
	unsigned int i;

	shuffle(order, seed);
	start = now();
	for (i = 0; i < REGIONS; i++)
		if (phxfs_regmem(0, memory + order[i] * PHXFS_DEVICE_PAGE, PHXFS_DEVICE_PAGE,
				 NULL))
			return die("phxfs_regmem");
	*seconds = now() - start;
	shuffle(order, seed);
	start = now();
	for (i = 0; i < REGIONS; i++)
		if (phxfs_deregmem(0, memory + order[i] * PHXFS_DEVICE_PAGE, PHXFS_DEVICE_PAGE))
			return die("phxfs_deregmem");
	*seconds += now() - start;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double *values)
{
	double sorted[PART];

	memcpy(sorted, values, sizeof(sorted));
	qsort(sorted, PART, sizeof(*sorted), by_value);
	return (sorted[PART / 2 - 1] + sorted[PART / 2]) / 2;
}

static int bar(const char *name, double value, double limit)
{
	int miss = !(value <= limit);

	printf("BAR %s %.3f %.3f %s\n", name, value, limit, miss ? "miss" : "pass");
	return miss;
}

int main(void)
{
	static unsigned int order[REGIONS];
	double seconds[ROUNDS], first, last;
	unsigned int i, seed = 1;
	long before = 0, after;
	void *memory;
	int missed;

	if (phxfs_open(0) || phxfs_mem_alloc(0, REGIONS * PHXFS_DEVICE_PAGE, &memory))
		return die("set up");
	for (i = 0; i < REGIONS; i++)
		order[i] = i;
	for (i = 0; i < ROUNDS; i++) {
		if (one_round(memory, order, &seed, &seconds[i]))
			return 1;
		if (i == 0)
			before = resident();
	}
	after = resident();
	if (before < 0 || after < 0) {
		fprintf(stderr, "register: /proc/self/statm cannot be read\n");
		return 1;
	}
	first = median(seconds);
	last = median(seconds + ROUNDS - PART);
	printf("one registration and deregistration: %.2f us first, %.2f us last\n",
	       first / REGIONS * 1e6, last / REGIONS * 1e6);
	missed = bar("register-last-over-first", last / first, TIME_LIMIT);
	missed += bar("register-growth-bytes", (double)(after - before), GROWTH_LIMIT);
	phxfs_mem_free(0, memory);
	phxfs_close(0);
	return missed != 0;
}
