// SPDX-License-Identifier: Apache-2.0
/*
 * The smallest pool of chunks, and more slices than it has chunks: whoever
 * waits for one must hold none, or nothing moves ever again.
 */
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "stress.h"

#define COUNT 256
#define LEN 65536UL

static void check_file(int fd, size_t at, size_t len)
{
	unsigned char *got = malloc(len);

	CHECK(got);
	EQ(pread(fd, got, len, (off_t)at), len);
	for (size_t i = 0; i < len; i++) {
		if (got[i] != stress_byte(at + i))
			stress_fail(__FILE__, __LINE__, "byte %zu is wrong", at + i);
	}
	free(got);
}

static void fill(unsigned char *to, size_t at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		to[i] = stress_byte(at + i);
}

/* Every fourth write is unaligned, and goes by hand while chunks are in flight. */
static void write_mixed(int flags, size_t shift)
{
	int fd = stress_file(0, O_RDWR | flags), plain = fd;
	unsigned char *memory = stress_memory(COUNT * LEN + LEN);
	static phxfs_io_req_t reqs[COUNT];

	fill(memory, 0, COUNT * LEN);
	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < COUNT; i++) {
			size_t cut = i % 4 == 3 ? shift : 0;

			reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = memory,
						    .buf_offset = (off_t)(i * LEN + cut),
						    .nbytes = LEN - cut,
						    .f_offset = (off_t)(i * LEN + cut) };
		}
		EQ(phxfs_write_batch(reqs, COUNT), 0);
		for (int i = 3; shift && i < COUNT; i += 4)
			EQ(phxfs_write(fd, 0, memory, (off_t)(i * LEN), (ssize_t)shift,
				       (off_t)(i * LEN)),
			   shift);
	}
	EQ(fcntl(fd, F_SETFL, 0), 0);
	check_file(plain, 0, COUNT * LEN);
}

static void buffered_writes(void)
{
	write_mixed(0, 0);
}

static void unaligned_direct_writes(void)
{
	write_mixed(O_DIRECT, 100);
}

static void buffered_reads(void)
{
	int fd = stress_file(COUNT * LEN, O_RDONLY);
	unsigned char *memory = stress_memory(COUNT * LEN);
	static phxfs_io_req_t reqs[COUNT];

	for (int i = 0; i < COUNT; i++)
		reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = memory, .buf_offset = (off_t)(i * LEN),
					    .nbytes = LEN, .f_offset = (off_t)(i * LEN) };
	for (int round = 0; round < 4; round++)
		EQ(phxfs_read_batch(reqs, COUNT), 0);
	for (size_t i = 0; i < COUNT * LEN; i++)
		CHECK(memory[i] == stress_byte(i));
}

/* The ends of the requests lie off the blocks: every slice leaves something over. */
static void unaligned_direct_reads(void)
{
	size_t size = COUNT * LEN - 1000;
	int fd = stress_file(size, O_RDONLY | O_DIRECT);
	unsigned char *memory = stress_memory(COUNT * LEN);
	static phxfs_io_req_t reqs[COUNT];

	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < COUNT; i++)
			reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = memory,
						    .buf_offset = (off_t)(i * LEN),
						    .nbytes = LEN - 7,
						    .f_offset = (off_t)(i * LEN + 3) };
		EQ(phxfs_read_batch(reqs, COUNT), 1);
		EQ(reqs[COUNT - 1].result, LEN - 1003);
	}
	for (size_t i = 0; i < COUNT; i++) {
		for (size_t k = 0; k < (i == COUNT - 1 ? LEN - 1003 : LEN - 7); k++)
			CHECK(memory[i * LEN + k] == stress_byte(i * LEN + 3 + k));
	}
}

static void *appender(void *arg)
{
	int fd = *(int *)arg;
	static unsigned char block[LEN];
	phxfs_io_req_t reqs[16];

	for (int round = 0; round < 8; round++) {
		for (int i = 0; i < 16; i++)
			reqs[i] = (phxfs_io_req_t){ .fd = fd, .device_id = -1, .buf = block,
						    .nbytes = LEN };
		EQ(phxfs_write_batch(reqs, 16), 0);
	}
	return NULL;
}

/* Appends go by hand, reads hold chunks: many threads of both. */
static void appends_beside_reads(void)
{
	enum { THREADS = 64 };
	int fd = stress_file(0, O_RDWR | O_APPEND);
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		EQ(pthread_create(&threads[i], NULL, appender, &fd), 0);
	buffered_reads();
	for (int i = 0; i < THREADS; i++)
		EQ(pthread_join(threads[i], NULL), 0);
	EQ(lseek(fd, 0, SEEK_END), (off_t)(THREADS * 8 * 16 * LEN));
}

#define SMALL "PHX_STAGING_SIZE_MB=1 PHX_PATH=bounce "

static const struct stress_case cases[] = {
	{ "buffered_reads", buffered_reads, SMALL "PHX_IO_WORKERS=2", 0 },
	{ "buffered_reads_sync", buffered_reads, SMALL "PHX_IO_ENGINE=sync", 0 },
	{ "buffered_writes", buffered_writes, SMALL "PHX_IO_WORKERS=1", 0 },
	{ "unaligned_direct_writes", unaligned_direct_writes, SMALL "PHX_IO_WORKERS=2", 0 },
	{ "unaligned_direct_writes_1", unaligned_direct_writes, SMALL "PHX_IO_WORKERS=1", 0 },
	{ "unaligned_direct_reads", unaligned_direct_reads, SMALL "PHX_IO_WORKERS=2", 0 },
	{ "unaligned_direct_reads_sync", unaligned_direct_reads, SMALL "PHX_IO_ENGINE=sync", 0 },
	{ "appends_beside_reads", appends_beside_reads, SMALL "PHX_IO_WORKERS=4", 0 },
};

STRESS_MAIN(cases)
