// SPDX-License-Identifier: Apache-2.0
/*
 * test_regmem DEVICE: the life of registrations. Pin and unpin in every size
 * and order; duplicates and overlaps; wrong arguments; memory that its owner
 * frees under a registration (the driver's forced reclaim); use after the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guide.h"

#define PAGE 65536UL
#define SIZE (8UL << 20)

static int device;
static uint8_t *host;

/* One byte pattern through the registration, to a file and back. */
static void round_trip(void *base, size_t offset, size_t n, uint64_t seed)
{
	static int fd = -1;

	if (fd < 0)
		fd = make_file(SIZE, 1);
	pattern(host, n, seed, 0);
	put(device, (uint8_t *)base + offset, host, n);
	EXPECT((long)n, phxfs_write(fd, device, base, (off_t)offset, (ssize_t)n, 0));
	memset(host, 0, n);
	put(device, (uint8_t *)base + offset, host, n);
	EXPECT((long)n, phxfs_read(fd, device, base, (off_t)offset, (ssize_t)n, 0));
	get(device, host, (uint8_t *)base + offset, n);
	check_pattern(host, n, seed, 0, "registration");
}

static void sizes(uint8_t *base)
{
	void *target;

	for (size_t len = PAGE; len <= SIZE; len *= 2) {
		EXPECT(0, phxfs_regmem(device, base, len, &target));
		if (!target) {
			printf("FAIL no target address\n");
			exit(1);
		}
		round_trip(base, len - PAGE, PAGE, len);
		EXPECT(0, phxfs_deregmem(device, base, len));
		EXPECT(-EFAULT, phxfs_read(0, device, base, 0, 1, 0));
	}
	printf("registered 64 KiB to %lu MiB\n", SIZE >> 20);
}

static void rules(uint8_t *base)
{
	void *first, *second;

	EXPECT(-EINVAL, phxfs_regmem(device, NULL, PAGE, &first));
	EXPECT(-EINVAL, phxfs_regmem(device, base, 0, &first));
	EXPECT(-EINVAL, phxfs_regmem(device, base + 4096, PAGE, &first));
	EXPECT(-EINVAL, phxfs_regmem(device, base, PAGE + 1, &first));
	EXPECT(-EINVAL, phxfs_deregmem(device, base, PAGE));
	EXPECT(-ENODEV, phxfs_regmem(63, base, PAGE, &first));

	EXPECT(0, phxfs_regmem(device, base, 4 * PAGE, &first));
	EXPECT(0, phxfs_regmem(device, base, 4 * PAGE, &second));
	EXPECT(1, first == second);
	EXPECT(-EINVAL, phxfs_regmem(device, base, 2 * PAGE, &second));
	EXPECT(-EINVAL, phxfs_regmem(device, base + 2 * PAGE, 4 * PAGE, &second));
	EXPECT(0, phxfs_deregmem(device, base, 4 * PAGE));
	round_trip(base, 3 * PAGE, PAGE, 77);
	EXPECT(-EFAULT, phxfs_read(0, device, base, 3 * PAGE, PAGE + 1, 0));
	EXPECT(-EINVAL, phxfs_deregmem(device, base, 2 * PAGE));
	EXPECT(0, phxfs_deregmem(device, base, 4 * PAGE));
	EXPECT(-EINVAL, phxfs_deregmem(device, base, 4 * PAGE));
	printf("duplicates counted, overlaps and wrong arguments refused\n");
}

static void many(uint8_t *base)
{
	enum { N = SIZE / PAGE };
	void *target;

	for (int i = 0; i < N; i++)
		EXPECT(0, phxfs_regmem(device, base + (size_t)(i * 37 % N) * PAGE, PAGE, &target));
	round_trip(base + 5 * PAGE, 0, PAGE, 5);
	for (int i = 0; i < N; i++)
		EXPECT(0, phxfs_deregmem(device, base + (size_t)(i * 53 % N) * PAGE, PAGE));
	printf("%d registrations beside each other, given back in another order\n", N);
}

/*
 * A process that ends with live registrations: its driver takes the memory
 * back by force. What it had is free again afterwards.
 */
static void forced_reclaim(void)
{
	int status;
	pid_t pid;

	fflush(stdout);
	for (int round = 0; round < 3; round++) {
		pid = fork();
		if (!pid) {
			char number[8];

			snprintf(number, sizeof(number), "%d", device);
			execl("/proc/self/exe", "test_regmem", number, "die", (char *)NULL);
			_exit(127);
		}
		EXPECT(pid, waitpid(pid, &status, 0));
		EXPECT(9, WIFSIGNALED(status) ? WTERMSIG(status) : -1);
	}
	printf("killed with live registrations, three times\n");
}

static int die(void)
{
	void *memory, *target;

	MUST(phxfs_open(device));
	MUST(phxfs_mem_alloc(device, SIZE, &memory));
	MUST(phxfs_regmem(device, memory, SIZE, &target));
	raise(9);
	return 1;
}

int main(int argc, char **argv)
{
	void *base, *again;

	if (argc == 3 && !strcmp(argv[2], "die")) {
		device = atoi(argv[1]);
		return die();
	}
	device = argument(argc, argv, "DEVICE");
	host = malloc(SIZE);
	printf("device %d, %s\n", device, mode_name(device));
	EXPECT(-ENODEV, phxfs_regmem(device, (void *)PAGE, PAGE, &again));
	MUST(phxfs_open(device));
	MUST(phxfs_mem_alloc(device, SIZE, &base));
	sizes(base);
	rules(base);
	many(base);
	forced_reclaim();
	/* Memory that was freed and allocated anew can be registered anew. */
	MUST(phxfs_regmem(device, base, SIZE, &again));
	EXPECT(-EBUSY, phxfs_mem_free(device, base));
	EXPECT(0, phxfs_deregmem(device, base, SIZE));
	EXPECT(0, phxfs_mem_free(device, base));
	MUST(phxfs_mem_alloc(device, SIZE, &base));
	MUST(phxfs_regmem(device, base, SIZE, &again));
	round_trip(base, 0, SIZE, 9);
	EXPECT(0, phxfs_close(device)); /* the last close removes it */
	EXPECT(-EFAULT, phxfs_read(0, device, base, 0, 1, 0));
	EXPECT(0, phxfs_mem_free(device, base));
	free(host);
	printf("test_regmem: OK\n");
	return 0;
}
