// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "phx_error.h"
#include "phx_file.h"
#include "phx_stats.h"

/* EAGAIN in a row before it is believed: about a second, most of it asleep. */
#define EAGAIN_YIELDS 16
#define EAGAIN_TRIES 1000

#define MIN_BLOCK 512
#define MAX_BLOCK 65536

int phx_file_flags(struct phx_file *file)
{
	if (file->flags < 0) {
		file->flags = fcntl(file->fd, F_GETFL);
		if (file->flags < 0)
			file->flags = 0;
	}
	return file->flags;
}

#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000U
#endif

/* struct statx of kernels that know STATX_DIOALIGN; older headers lack it. */
struct statx_dio {
	uint32_t mask;
	uint32_t unused[37];
	uint32_t mem_align;    /* byte 152 */
	uint32_t offset_align; /* byte 156 */
	uint64_t spare[12];
};

_Static_assert(offsetof(struct statx_dio, offset_align) == 156, "layout of struct statx");
_Static_assert(sizeof(struct statx_dio) == 256, "size of struct statx");

size_t phx_file_page = 4096;

void phx_file_init(void)
{
	long page = sysconf(_SC_PAGESIZE);

	if (page > 4096 && page <= MAX_BLOCK)
		phx_file_page = (size_t)page;
}

static size_t sane(size_t align)
{
	return align && !(align & (align - 1)) && align <= MAX_BLOCK ? align : MIN_BLOCK;
}

void phx_file_demands(struct phx_file *file, size_t *memory, size_t *offset)
{
	struct statx_dio st = { 0 };

	*memory = MIN_BLOCK;
	*offset = MIN_BLOCK;
	if (syscall(SYS_statx, file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) ||
	    !(st.mask & STATX_DIOALIGN))
		return;
	*memory = sane(st.mem_align);
	*offset = sane(st.offset_align);
}

size_t phx_file_block(struct phx_file *file)
{
	size_t memory, offset;

	phx_file_demands(file, &memory, &offset);
	return offset;
}

size_t phx_file_align(struct phx_file *file)
{
	if (!file->align) {
		file->align = phx_file_block(file);
		if (file->align < phx_file_page)
			file->align = phx_file_page;
	}
	return file->align;
}

int phx_file_reopen(struct phx_file *file)
{
	int flags = phx_file_flags(file);
	char path[48];

	if (file->buffered >= 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", file->fd);
	flags &= O_ACCMODE | O_APPEND | O_SYNC | O_DSYNC;
	do {
		file->buffered = open(path, flags | O_CLOEXEC);
	} while (file->buffered < 0 && errno == EINTR);
	if (file->buffered < 0)
		return phx_fail(-errno, "reopen without O_DIRECT",
				"use aligned requests, or a descriptor without O_DIRECT", "%s",
				path);
	return 0;
}

void phx_file_close(struct phx_file *file)
{
	if (file->buffered >= 0)
		close(file->buffered);
	file->buffered = -1;
}

bool phx_file_at_end(struct phx_file *file, off_t end)
{
	struct stat st;

	return !fstat(file->fd, &st) && S_ISREG(st.st_mode) && end >= st.st_size;
}

bool phx_file_retry(int err, unsigned int tries)
{
	static const struct timespec millisecond = { .tv_nsec = 1000000 };

	if (err == -EINTR)
		return true;
	if (err != -EAGAIN || tries >= EAGAIN_TRIES)
		return false;
	if (tries < EAGAIN_YIELDS)
		sched_yield();
	else
		nanosleep(&millisecond, NULL);
	return true;
}

int phx_file_read(struct phx_file *file, bool buffered, void *to, size_t len, off_t off,
		  size_t *moved)
{
	int fd = buffered ? file->buffered : file->fd;
	unsigned int tries = 0;

	*moved = 0;
	for (;;) {
		size_t want = len - *moved < PHXFS_IO_CHUNK ? len - *moved : PHXFS_IO_CHUNK;
		ssize_t n = pread(fd, (char *)to + *moved, want, off + (off_t)*moved);

		if (n > 0)
			*moved += (size_t)n;
		if (n == 0 || (n > 0 && *moved == len))
			return 0;
		if (n < 0) {
			int err = -errno;

			if (!phx_file_retry(err, tries++))
				return err;
		} else {
			tries = 0;
		}
		if (n < 0 || (size_t)n < want)
			phx_stats_add(&phx_stats_mine(file->device_id)->retries, 1);
	}
}

int phx_file_write(struct phx_file *file, bool buffered, const void *from, size_t len, off_t off,
		   size_t *moved)
{
	int fd = buffered ? file->buffered : file->fd;
	unsigned int tries = 0;

	*moved = 0;
	for (;;) {
		size_t want = len - *moved < PHXFS_IO_CHUNK ? len - *moved : PHXFS_IO_CHUNK;
		ssize_t n = pwrite(fd, (const char *)from + *moved, want, off + (off_t)*moved);

		if (n > 0)
			*moved += (size_t)n;
		if (n >= 0 && *moved == len)
			return 0;
		if (n < 0) {
			int err = -errno;

			if (!phx_file_retry(err, tries++))
				return err;
		} else if (n == 0) {
			return 0; /* a device that takes no more, as pwrite() says */
		} else {
			tries = 0;
		}
		if (n < 0 || (size_t)n < want)
			phx_stats_add(&phx_stats_mine(file->device_id)->retries, 1);
	}
}
