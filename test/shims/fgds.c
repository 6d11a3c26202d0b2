// SPDX-License-Identifier: Apache-2.0
/* What fgds.h says, on HOST devices and on a device that the processor cannot touch. */
#include <fgds.h>
#include <sys/mman.h>

#include "t_file.h"

#define FAKE "PHX_CONNECTOR=nvidia"
#define LEN (4 * T_PAGE)

/* The call fails with -1 and this errno. */
#define T_ERRNO(call, wanted) \
	do { \
		errno = 0; \
		T_EQ(call, -1); \
		T_EQ(errno, wanted); \
	} while (0)

static char *alloc(size_t len)
{
	void *p;

	T_EQ(phxfs_mem_alloc(0, len, &p), 0);
	return p;
}

static void results_are_0_or_minus_1_with_errno(void)
{
	char *p = alloc(2 * LEN);
	void *target = (void *)1;

	T_ERRNO(fgds_open(-1), ENODEV);
	T_ERRNO(fgds_open(1000), ENODEV);
	T_ERRNO(fgds_close(0), ENODEV);
	T_ERRNO(fgds_close(-1), ENODEV);
	T_ERRNO(fgds_close(1000), ENODEV);
	T_ERRNO(fgds_regmem(0, p, LEN, &target), ENODEV);
	T_ERRNO(fgds_deregmem(0, p, LEN), ENODEV);
	T_EQ(fgds_open(0), 0);
	T_ERRNO(fgds_regmem(0, p, LEN, NULL), EINVAL);
	T_ERRNO(fgds_regmem(0, NULL, LEN, &target), EINVAL);
	T_ERRNO(fgds_regmem(0, p + 1, LEN, &target), EINVAL);
	T_ERRNO(fgds_regmem(0, p, 1, &target), EINVAL);
	T_ERRNO(fgds_regmem(0, p, 0, &target), EINVAL);
	T_ERRNO(fgds_regmem(0, (void *)T_PAGE, LEN, &target), EFAULT);
	T_CHECK(target == (void *)1);
	T_EQ(fgds_regmem(0, p, LEN, &target), 0);
	T_ERRNO(fgds_regmem(0, p, 2 * LEN, &target), EINVAL);
	T_ERRNO(fgds_deregmem(0, p, 2 * LEN), EINVAL);
	T_ERRNO(fgds_deregmem(0, p + T_PAGE, LEN), EINVAL);
	T_ERRNO(fgds_deregmem(0, p, 0), EINVAL);
	T_ERRNO(fgds_deregmem(-1, p, LEN), ENODEV);
	T_EQ(fgds_deregmem(0, p, LEN), 0);
	T_ERRNO(fgds_deregmem(0, p, LEN), EINVAL);
	T_EQ(fgds_close(0), 0);
	T_ERRNO(fgds_close(0), ENODEV);
}

static void opens_and_registrations_are_counted(void)
{
	int fd = t_file("f", LEN, 1, O_RDONLY);
	void *first, *second;
	char *p = alloc(LEN);

	T_EQ(fgds_open(0), 0);
	T_EQ(fgds_open(0), 0);
	T_EQ(fgds_close(0), 0);
	T_EQ(fgds_regmem(0, p, LEN, &first), 0);
	T_EQ(fgds_regmem(0, p, LEN, &second), 0);
	T_CHECK(first == second);
	T_EQ(fgds_deregmem(0, p, LEN), 0);
	T_EQ(fgds_read(fd, 0, p, LEN, 0), LEN);
	T_EQ(fgds_deregmem(0, p, LEN), 0);
	T_ERRNO(fgds_read(fd, 0, p, LEN, 0), EFAULT);
	T_EQ(fgds_close(0), 0);
}

/* The last close takes away what was registered here, though others keep the device open. */
static void the_last_close_deregisters(void)
{
	struct phxfs_stats stats = { .size = sizeof(stats) };
	char *p = alloc(LEN);
	void *target;

	T_EQ(phxfs_open(0), 0);
	T_EQ(fgds_open(0), 0);
	T_EQ(fgds_regmem(0, p, 2 * T_PAGE, &target), 0);
	T_EQ(fgds_regmem(0, p, 2 * T_PAGE, &target), 0);
	T_EQ(fgds_regmem(0, p + 2 * T_PAGE, T_PAGE, &target), 0);
	T_EQ(phxfs_regmem(0, p + 3 * T_PAGE, T_PAGE, NULL), 0);
	T_EQ(fgds_close(0), 0);
	T_EQ(phxfs_stats(0, &stats), 0);
	T_EQ(stats.registrations, 1);
	T_EQ(phxfs_close(0), 0);
	T_EQ(phxfs_mem_free(0, p), 0);
}

/* On HOST devices every call that moves bytes may use the target. */
static void plain_io_uses_the_target(void)
{
	int fd = t_file("f", LEN, 7, O_RDWR);
	char *p = alloc(LEN);
	void *target;

	T_EQ(fgds_open(0), 0);
	T_EQ(fgds_regmem(0, p, LEN, &target), 0);
	T_EQ(pread(fd, target, LEN, 0), LEN);
	T_PATTERN(p, LEN, 7, 0);
	t_fill(target, LEN, 8, 0);
	T_EQ(pwrite(fd, target, LEN, 0), LEN);
	t_file_pattern(fd, 0, LEN, 8, 0);
	T_EQ(fgds_close(0), 0);
}

static void touch(void *arg)
{
	*(volatile char *)arg = 1;
}

/* Elsewhere it fails, whatever is tried. */
static void plain_io_fails_loudly(void)
{
	int fd = t_file("f", LEN, 7, O_RDWR), direct = t_open("f", O_RDWR | O_DIRECT);
	char *p = alloc(LEN);
	void *target;

	T_EQ(fgds_open(0), 0);
	T_EQ(fgds_regmem(0, p, LEN, &target), 0);
	for (size_t at = 0; at < LEN; at += T_PAGE) {
		T_ERRNO(pread(fd, (char *)target + at, 4096, 0), EFAULT);
		T_ERRNO(pread(direct, (char *)target + at, 4096, 0), EFAULT);
		T_ERRNO(pwrite(fd, (char *)target + at, 4096, 0), EFAULT);
		T_ERRNO(pwrite(direct, (char *)target + at, 4096, 0), EFAULT);
	}
	T_CHECK(t_in_child(touch, target) != 0);
	t_file_pattern(fd, 0, LEN, 7, 0);
	T_EQ(fgds_deregmem(0, p, LEN), 0);
	T_EQ(msync(target, LEN, MS_ASYNC), -1); /* it is gone */
	T_EQ(fgds_close(0), 0);
}

/* fgds_read() and fgds_write(), by the buffer's address and by its target. */
static void transfers_work_in_every_mode(void)
{
	int fd = t_file("f", LEN, 3, O_RDWR | O_DIRECT);
	char *p = alloc(LEN), *host = malloc(LEN);
	void *target;

	T_CHECK(host);
	T_EQ(fgds_open(0), 0);
	T_EQ(fgds_regmem(0, p, LEN, &target), 0);
	for (int i = 0; i < 2; i++) {
		char *buf = i ? target : p;

		T_EQ(fgds_read(fd, 0, buf + 3, 70001, 5), 70001);
		T_EQ(phxfs_memcpy_from(0, host, p, LEN), 0);
		T_PATTERN(host + 3, 70001, 3, 5);
		T_EQ(fgds_read(fd, 0, buf, LEN, LEN - 100), 100);
		T_EQ(fgds_read(fd, 0, buf, LEN, 2 * LEN), 0);
		t_fill(host, LEN, 4 + (uint64_t)i, 0);
		T_EQ(phxfs_memcpy_to(0, p, host, LEN), 0);
		T_EQ(fgds_write(fd, 0, buf + 1, 5000, 4097), 5000);
		t_file_pattern(fd, 4097, 5000, 4 + (uint64_t)i, 1);
		T_ERRNO(fgds_read(fd, 0, buf + LEN - 1, 2, 0), EFAULT);
		T_ERRNO(fgds_read(-1, 0, buf, 1, 0), EBADF);
		T_ERRNO(fgds_read(fd, 0, buf, SIZE_MAX, 0), EINVAL);
		T_ERRNO(fgds_read(fd, 0, buf, 1, -1), EINVAL);
		T_ERRNO(fgds_read(fd, -1, buf, 1, 0), ENODEV);
		t_pwrite(fd, memset(host, 0, 4096), 0, 0);
		T_EQ(ftruncate(fd, 0), 0);
		t_fill(host, LEN, 3, 0);
		T_EQ(phxfs_memcpy_to(0, p, host, LEN), 0);
		T_EQ(fgds_write(fd, 0, p, LEN, 0), LEN);
	}
	T_EQ(fgds_close(0), 0);
	free(host);
}

/* Registered, read and deregistered by several threads at once; the counts come out even. */
static char *shared;
static _Atomic size_t part; /* of each page: one a thread */

static long churn(void *arg)
{
	size_t at = part++ * 4096;
	int fd = *(int *)arg;
	void *target;

	for (int i = 0; i < 200; i++) {
		char *p = shared + (size_t)(i % 4) * T_PAGE;
		ssize_t n;

		T_EQ(fgds_open(0), 0);
		T_EQ(fgds_regmem(0, p, T_PAGE, &target), 0);
		n = fgds_read(fd, 0, (char *)(i & 1 ? target : p) + at, 4096, 0);
		T_EQ(n, 4096);
		T_EQ(fgds_deregmem(0, p, T_PAGE), 0);
		T_EQ(fgds_close(0), 0);
	}
	return 0;
}

static void threads_do_not_disturb_each_other(void)
{
	struct phxfs_stats stats = { .size = sizeof(stats) };
	int fd = t_file("f", LEN, 3, O_RDONLY);
	struct t_call calls[4] = { 0 };

	shared = alloc(LEN);
	T_EQ(fgds_open(0), 0);
	for (int i = 0; i < 4; i++)
		t_call(&calls[i], churn, &fd);
	for (int i = 0; i < 4; i++)
		T_EQ(t_join(&calls[i]), 0);
	T_EQ(phxfs_stats(0, &stats), 0);
	T_EQ(stats.registrations, 0);
	T_EQ(fgds_close(0), 0);
	T_ERRNO(fgds_close(0), ENODEV);
}

static const struct t_case cases[] = {
	T_CASE(results_are_0_or_minus_1_with_errno),
	T_CASE(results_are_0_or_minus_1_with_errno, .env = FAKE),
	T_CASE(opens_and_registrations_are_counted),
	T_CASE(opens_and_registrations_are_counted, .env = FAKE),
	T_CASE(the_last_close_deregisters),
	T_CASE(the_last_close_deregisters, .env = FAKE),
	T_CASE(plain_io_uses_the_target),
	T_CASE(plain_io_fails_loudly, .env = FAKE),
	T_CASE(transfers_work_in_every_mode),
	T_CASE(transfers_work_in_every_mode, .env = "PHX_PATH=staging"),
	T_CASE(transfers_work_in_every_mode, .env = FAKE),
	T_CASE(threads_do_not_disturb_each_other),
	T_CASE(threads_do_not_disturb_each_other, .env = FAKE),
};

T_MAIN(cases)
