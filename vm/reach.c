// SPDX-License-Identifier: Apache-2.0
/*
 * One row of the table of what can be reached: device 0's memory to and from a file, in the
 * module's mode. Usage: vm_reach FILE | vm_reach --map
 *
 * Writes and reads aligned and unaligned ranges, compares every byte through the page cache
 * of the same file, and compares the path that phxfs_path_query() foretells with the one
 * that the counters saw. Prints
 *	works: PATH		the mode's own path: storage reaches the device's memory
 *	fallback: PATH, WHY	another one
 *	refused: ERRNO, WHY
 * and exits 0; 1 when bytes differ, or the path is not the one foretold. --map asks the
 * module alone for a mapping.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "phoenix.h"
#include "uapi/phxfs.h"

#define BUFFER	(8u << 20)
#define ALIGNED	(4u << 20)	/* the first bytes of the file */
#define ODD_AT	(ALIGNED + 513)	/* behind them, unaligned */
#define ODD	1000001u

static const char *file;
static char *device, *host;

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("wrong: ");
	vprintf(format, args);
	va_end(args);
	printf("\n");
	exit(1);
}

/* An answer, and one that the table may hold. */
static void refused(int err)
{
	const char *why = strstr(phxfs_last_error(), ": ");

	printf("refused: %s, %s\n", strerrorname_np(-err), why ? why + 2 : "no reason given");
	exit(0);
}

static unsigned char byte_at(uint64_t offset, unsigned int seed)
{
	uint64_t x = (offset + 1) * 0x9e3779b97f4a7c15ull + seed * 0xda942042e4dd58b5ull;

	return (unsigned char)(x >> 56);
}

static void fill(char *p, size_t n, unsigned int seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)byte_at(i, seed);
}

static void compare(const char *p, size_t n, unsigned int seed, const char *what)
{
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)p[i] != byte_at(i, seed))
			fail("%s: byte %zu of %zu differs", what, i, n);
	}
}

static void transfer(int fd, bool write, size_t n, off_t at)
{
	ssize_t got = write ? phxfs_write(fd, 0, device, 0, (ssize_t)n, at) :
			      phxfs_read(fd, 0, device, 0, (ssize_t)n, at);

	if (got < 0)
		refused((int)got);
	if (got != (ssize_t)n)
		fail("%s of %zu bytes gave %zd", write ? "a write" : "a read", n, got);
}

/* Device -> file -> host, then host -> file -> device, [at, at + n) of the file. */
static void both_ways(int fd, int other, size_t n, off_t at)
{
	fill(host, n, 1);
	if (phxfs_memcpy_to(0, device, host, n))
		fail("%s", phxfs_last_error());
	transfer(fd, true, n, at);
	memset(host, 0, n);
	if (pread(other, host, n, at) != (ssize_t)n)
		fail("reading back: %s", strerror(errno));
	compare(host, n, 1, "what was written");

	fill(host, n, 2);
	if (pwrite(other, host, n, at) != (ssize_t)n || fsync(other))
		fail("writing: %s", strerror(errno));
	transfer(fd, false, n, at);
	memset(host, 0, n);
	if (phxfs_memcpy_from(0, host, device, n))
		fail("%s", phxfs_last_error());
	compare(host, n, 2, "what was read");
}

static struct phxfs_stats counters(void)
{
	struct phxfs_stats s = { .size = sizeof(s) };

	if (phxfs_stats(0, &s))
		fail("%s", phxfs_last_error());
	return s;
}

/* Did the aligned bytes take the path foretold, and no other? */
static void check_path(const struct phxfs_path_info *info, const struct phxfs_stats *before)
{
	struct phxfs_stats now = counters();

	for (int path = 0; path < PHXFS_PATHS; path++) {
		uint64_t want = path == info->path ? ALIGNED : 0;

		if (now.read[path].bytes - before->read[path].bytes != want ||
		    now.write[path].bytes - before->write[path].bytes != want)
			fail("path %d foretold, and path %d took %llu bytes of reads", info->path,
			     path,
			     (unsigned long long)(now.read[path].bytes - before->read[path].bytes));
	}
}

static int open_file(void)
{
	int fd = open(file, O_RDWR | O_DIRECT | O_CLOEXEC);

	if (fd < 0 && errno == EINVAL)	/* no O_DIRECT here */
		fd = open(file, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fail("%s: %s", file, strerror(errno));
	return fd;
}

static void report(const struct phxfs_path_info *info)
{
	static const char *const names[] = { "direct", "staging", "bounce" };
	struct phxfs_device_info dev = { .size = sizeof(dev) };
	const char *why = strstr(info->text, ": ");
	int best;

	if (phxfs_device_info(0, &dev))
		fail("%s", phxfs_last_error());
	best = dev.mode == PHXFS_MODE_FULL    ? PHXFS_PATH_DIRECT :
	       dev.mode == PHXFS_MODE_STAGING ? PHXFS_PATH_STAGING :
						-1;
	if (info->path == best && info->dma)
		printf("works: %s\n", names[info->path]);
	else if (best < 0)
		printf("fallback: %s, %s\n", names[info->path], dev.reason);
	else
		printf("fallback: %s%s, %s\n", names[info->path],
		       info->dma ? "" : " by the page cache", why ? why + 2 : info->text);
}

static void reach(void)
{
	struct phxfs_path_info info = { .size = sizeof(info) };
	struct phxfs_stats before;
	int fd, other, err;
	void *p;

	host = aligned_alloc(4096, BUFFER);
	if (!host)
		fail("no memory");
	err = phxfs_open(0);
	if (!err)
		err = phxfs_mem_alloc(0, BUFFER, &p);
	if (!err) {
		device = p;
		err = phxfs_regmem(0, device, BUFFER, NULL);
	}
	if (err)
		refused(err);
	fd = open_file();
	other = open(file, O_RDWR | O_CLOEXEC);
	if (other < 0)
		fail("%s: %s", file, strerror(errno));
	/* so that no read of the row ends early */
	fill(host, BUFFER, 3);
	if (pwrite(other, host, BUFFER, 0) != BUFFER || fsync(other))
		fail("%s: %s", file, strerror(errno));

	if (phxfs_path_query(fd, 0, device, ALIGNED, 0, &info))
		fail("%s", phxfs_last_error());
	before = counters();
	both_ways(fd, other, ALIGNED, 0);
	check_path(&info, &before);
	both_ways(fd, other, ODD, ODD_AT);
	/* what lies around is as it was */
	if (pread(other, host, BUFFER, 0) != BUFFER)
		fail("%s: %s", file, strerror(errno));
	for (size_t i = ALIGNED; i < BUFFER; i++) {
		if ((i < ODD_AT || i >= ODD_AT + ODD) && (unsigned char)host[i] != byte_at(i, 3))
			fail("byte %zu of the file was nobody's to change", i);
	}
	report(&info);
	if (phxfs_deregmem(0, device, BUFFER) || phxfs_mem_free(0, device) || phxfs_close(0))
		fail("%s", phxfs_last_error());
	close(other);
	close(fd);
	free(host);
}

static const char *module_status(void)
{
	static char line[160];
	FILE *f = fopen("/sys/class/" PHXFS_CLASS "/" PHXFS_DEV_PREFIX "0/status", "r");

	if (!f || !fgets(line, sizeof(line), f))
		fail("the module's status: %s", strerror(errno));
	fclose(f);
	line[strcspn(line, "\n")] = '\0';
	return line;
}

/* What the module says to MAP, whatever the library would do then. */
static void map(void)
{
	size_t length = 2u << 20;
	int fd = open("/dev/" PHXFS_DEV_PREFIX "0", O_RDWR | O_CLOEXEC);
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	struct phxfs_ioctl_map arg = { .c_size = length, .n_size = length };
	void *p;
	int err;

	if (fd < 0 || at == MAP_FAILED)
		fail("%s", strerror(errno));
	if (phxfs_mem_alloc(0, length, &p))
		fail("%s", phxfs_last_error());
	arg.c_vaddr = (uintptr_t)at;
	arg.n_vaddr = (uintptr_t)p;
	err = ioctl(fd, PHXFS_IOCTL_MAP, &arg) ? errno : 0;
	if (err)
		printf("refused: %s, %s\n", strerrorname_np(err), module_status());
	else
		printf("works: mapped\n");
	munmap(at, length);
	close(fd);
	if (phxfs_mem_free(0, p))
		fail("%s", phxfs_last_error());
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: vm_reach FILE | --map\n");
		return 2;
	}
	file = argv[1];
	if (!strcmp(file, "--map"))
		map();
	else
		reach();
	return 0;
}
