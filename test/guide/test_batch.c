// SPDX-License-Identifier: Apache-2.0
/*
 * test_batch DEVICES: batches over the first so many devices (and host memory,
 * which they may mix with): synchronous, asynchronous in a full FIFO,
 * abandoned, and request by request on a queue.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guide.h"

#define BLOCK 65536UL
#define BLOCKS 64
#define SIZE (BLOCK * BLOCKS)

static int devices, fd;
static uint8_t *base[64], *host, *mirror;

/* Request @i of a batch: on the devices by turns; every fifth in host memory. */
static phxfs_io_req_t request(int i)
{
	int device = i % devices;
	phxfs_io_req_t r = {
		.fd = fd,
		.device_id = i % 5 == 4 ? -1 : device,
		.buf = i % 5 == 4 ? mirror : base[device],
		.buf_offset = (off_t)((size_t)i * BLOCK),
		.nbytes = BLOCK - (i % 7 == 3 ? 13 : 0),
		.f_offset = (off_t)((size_t)i * BLOCK) + (i % 7 == 3 ? 13 : 0),
		.result = -1,
	};

	return r;
}

static void clear(void)
{
	memset(host, 0, SIZE);
	memset(mirror, 0, SIZE);
	for (int d = 0; d < devices; d++)
		put(d, base[d], host, SIZE);
}

static void verify(const phxfs_io_req_t *reqs, const char *what)
{
	for (int i = 0; i < BLOCKS; i++) {
		const phxfs_io_req_t *r = &reqs[i];

		EXPECT((long)r->nbytes, r->result);
		if (r->device_id < 0)
			memcpy(host, mirror + r->buf_offset, r->nbytes);
		else
			get(r->device_id, host, (uint8_t *)r->buf + r->buf_offset, r->nbytes);
		check_pattern(host, r->nbytes, 21, (uint64_t)r->f_offset, what);
	}
}

static void fill_file(void)
{
	phxfs_io_req_t reqs[BLOCKS];

	for (int i = 0; i < BLOCKS; i++) {
		reqs[i] = request(i);
		reqs[i].nbytes = BLOCK;
		reqs[i].f_offset = (off_t)((size_t)i * BLOCK);
		pattern(host, BLOCK, 21, (uint64_t)reqs[i].f_offset);
		if (reqs[i].device_id < 0)
			memcpy(mirror + reqs[i].buf_offset, host, BLOCK);
		else
			put(reqs[i].device_id, (uint8_t *)reqs[i].buf + reqs[i].buf_offset, host,
			    BLOCK);
	}
	EXPECT(0, phxfs_write_batch(reqs, BLOCKS));
}

static void make(phxfs_io_req_t *reqs)
{
	for (int i = 0; i < BLOCKS; i++)
		reqs[i] = request(i);
}

static void synchronous(void)
{
	phxfs_io_req_t reqs[BLOCKS];

	clear();
	make(reqs);
	EXPECT(0, phxfs_read_batch(reqs, BLOCKS));
	verify(reqs, "batch");
	/* One buffer outside of every registration: it alone fails. */
	make(reqs);
	reqs[0].buf_offset = (off_t)SIZE;
	EXPECT(1, phxfs_read_batch(reqs, BLOCKS));
	EXPECT(-EFAULT, reqs[0].result);
	EXPECT((long)reqs[1].nbytes, reqs[1].result);
	EXPECT(0, phxfs_read_batch(reqs, 0));
	printf("synchronous batches\n");
}

static void asynchronous(void)
{
	static phxfs_io_req_t reqs[PHXFS_BATCH_FIFO + 1][BLOCKS];
	phxfs_batch_t *handles[PHXFS_BATCH_FIFO + 1];
	int n = 0;

	clear();
	for (int i = 0; i <= PHXFS_BATCH_FIFO; i++) {
		make(reqs[i]);
		handles[n] = phxfs_batch_submit_read(reqs[i], BLOCKS);
		if (handles[n])
			n++;
		else
			EXPECT(EBUSY, errno);
	}
	EXPECT(1, n >= PHXFS_BATCH_FIFO);
	for (int i = 0; i < n - 1; i++) {
		EXPECT(0, phxfs_batch_wait(handles[i]));
		verify(reqs[i], "asynchronous batch");
	}
	EXPECT(0, phxfs_batch_destroy(handles[n - 1]));
	handles[0] = phxfs_batch_submit_read(NULL, 0);
	EXPECT(0, phxfs_batch_wait(handles[0]));
	printf("%d asynchronous batches in the FIFO\n", n);
}

static void one_by_one(void)
{
	struct phxfs_completion done[8];
	phxfs_io_req_t reqs[BLOCKS];
	void *numbers[BLOCKS];
	phxfs_queue_t *queue;
	int sent = 0, back = 0;

	clear();
	make(reqs);
	for (int i = 0; i < BLOCKS; i++)
		numbers[i] = (void *)(uintptr_t)i;
	EXPECT(0, phxfs_queue_create(8, &queue));
	while (back < BLOCKS) {
		int n = sent < BLOCKS ? phxfs_queue_submit(queue, PHXFS_OP_READ, reqs + sent,
							   numbers + sent, BLOCKS - sent) :
					0;

		if (n > 0)
			sent += n;
		else if (n < 0)
			EXPECT(-EAGAIN, n);
		n = (int)MUST(phxfs_queue_wait(queue, done, 1, 8, NULL));
		back += n;
		for (int i = 0; i < n; i++)
			reqs[(uintptr_t)done[i].user_data].result = done[i].result;
	}
	EXPECT(0, phxfs_queue_destroy(queue));
	verify(reqs, "queue");
	printf("a queue, request by request\n");
}

int main(int argc, char **argv)
{
	void *target;

	devices = argument(argc, argv, "DEVICES");
	if (devices < 1 || devices > phxfs_device_count()) {
		printf("FAIL %d devices asked for, %d there\n", devices, phxfs_device_count());
		return 1;
	}
	host = malloc(SIZE);
	mirror = malloc(SIZE);
	fd = make_file(SIZE, 1);
	for (int d = 0; d < devices; d++) {
		void *memory;

		printf("device %d, %s\n", d, mode_name(d));
		MUST(phxfs_open(d));
		MUST(phxfs_mem_alloc(d, SIZE, &memory));
		base[d] = memory;
		MUST(phxfs_regmem(d, base[d], SIZE, &target));
	}
	fill_file();
	synchronous();
	asynchronous();
	one_by_one();
	for (int d = 0; d < devices; d++) {
		EXPECT(0, phxfs_deregmem(d, base[d], SIZE));
		EXPECT(0, phxfs_mem_free(d, base[d]));
		EXPECT(0, phxfs_close(d));
	}
	close(fd);
	free(host);
	free(mirror);
	printf("test_batch: OK\n");
	return 0;
}
