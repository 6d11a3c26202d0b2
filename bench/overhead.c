// SPDX-License-Identifier: Apache-2.0
/*
 * overhead MODE FILE N: does the same reads with and without the library, for
 * counting the instructions and system calls between.
 *
 *   pread   N times pread(2) of 4 KiB
 *   phxfs   N times phxfs_read() of 4 KiB
 *   uring   N times 1,000 reads of 4 KiB over one io_uring, by liburing
 *   batch   N times phxfs_read_batch() of the same 1,000
 *
 * Every mode makes the same 10,000 registrations first, so that two runs of
 * one mode differ by their reads alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <phoenix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REGIONS 10000u
#define BLOCK 4096u
#define BATCH 1000u
#define RING 1024u

struct scene {
	int fd;
	char *memory;
	off_t blocks; /* of the file */
};

static int die(const char *what, int error)
{
	const char *text = phxfs_last_error();

	fprintf(stderr, "overhead: %s: %s\n", what, *text ? text : strerror(error));
	return 1;
}

static int set_up(struct scene *s, const char *file)
{
	void *memory;
	size_t i;
	int rc;

	s->fd = open(file, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (s->fd < 0)
		return die(file, errno);
	s->blocks = lseek(s->fd, 0, SEEK_END) / BLOCK;
	if (s->blocks < 1)
		return die("the file is too short", EINVAL);
	rc = phxfs_open(0);
	if (rc)
		return die("phxfs_open", -rc);
	rc = phxfs_mem_alloc(0, REGIONS * PHXFS_DEVICE_PAGE, &memory);
	if (rc)
		return die("phxfs_mem_alloc", -rc);
	s->memory = memory;
	for (i = 0; i < REGIONS; i++) {
		rc = phxfs_regmem(0, s->memory + i * PHXFS_DEVICE_PAGE, PHXFS_DEVICE_PAGE, NULL);
		if (rc)
			return die("phxfs_regmem", -rc);
	}
	return 0;
}

/* Walks all over the regions, the same way in every mode. */
static char *place(const struct scene *s, size_t i)
{
	return s->memory + i * 7919 % REGIONS * PHXFS_DEVICE_PAGE;
}

static off_t offset(const struct scene *s, size_t i)
{
	return (off_t)i * 31 % s->blocks * BLOCK;
}

static int run_pread(const struct scene *s, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (pread(s->fd, place(s, i), BLOCK, offset(s, i)) != BLOCK)
			return die("pread", errno);
	return 0;
}

static int run_phxfs(const struct scene *s, size_t n)
{
	ssize_t got;
	size_t i;

	for (i = 0; i < n; i++) {
		got = phxfs_read(s->fd, 0, place(s, i), 0, BLOCK, offset(s, i));
		if (got != BLOCK)
			return die("phxfs_read", (int)-got);
	}
	return 0;
}

static int harvest(struct io_uring *ring, phxfs_io_req_t *reqs)
{
	unsigned int head, count = 0;
	struct io_uring_cqe *cqe;
	phxfs_io_req_t *req;
	int bad = 0;

	io_uring_for_each_cqe(ring, head, cqe)
	{
		req = io_uring_cqe_get_data(cqe);
		req->result = cqe->res;
		bad += cqe->res != (int)req->nbytes;
		count++;
	}
	io_uring_cq_advance(ring, count);
	return bad ? -EIO : (int)count;
}

static int ring_once(struct io_uring *ring, phxfs_io_req_t *reqs)
{
	struct io_uring_sqe *sqe;
	unsigned int i;
	int got, left;

	for (i = 0; i < BATCH; i++) {
		sqe = io_uring_get_sqe(ring);
		io_uring_prep_read(sqe, reqs[i].fd, reqs[i].buf, (unsigned int)reqs[i].nbytes,
				   (uint64_t)reqs[i].f_offset);
		io_uring_sqe_set_data(sqe, &reqs[i]);
	}
	for (left = BATCH; left; left -= got) {
		got = io_uring_submit_and_wait(ring, (unsigned int)left);
		if (got < 0)
			return got;
		got = harvest(ring, reqs);
		if (got < 0)
			return got;
	}
	return 0;
}

static void fill(const struct scene *s, phxfs_io_req_t *reqs)
{
	size_t i;

	for (i = 0; i < BATCH; i++)
		reqs[i] = (phxfs_io_req_t){
			.fd = s->fd,
			.buf = place(s, i),
			.nbytes = BLOCK,
			.f_offset = offset(s, i),
		};
}

static int run_uring(const struct scene *s, size_t n)
{
	static phxfs_io_req_t reqs[BATCH];
	struct io_uring ring;
	int rc;

	fill(s, reqs);
	rc = io_uring_queue_init(RING, &ring, 0);
	if (rc)
		return die("io_uring_queue_init", -rc);
	while (n-- && !rc)
		rc = ring_once(&ring, reqs);
	io_uring_queue_exit(&ring);
	return rc ? die("io_uring", -rc) : 0;
}

static int run_batch(const struct scene *s, size_t n)
{
	static phxfs_io_req_t reqs[BATCH];
	int rc = 0;

	fill(s, reqs);
	while (n-- && !rc)
		rc = phxfs_read_batch(reqs, BATCH);
	return rc ? die("phxfs_read_batch", -rc) : 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(const struct scene *s, size_t n);
	} modes[] = {
		{ "pread", run_pread },
		{ "phxfs", run_phxfs },
		{ "uring", run_uring },
		{ "batch", run_batch },
	};
	struct scene s;
	size_t i;

	for (i = 0; argc == 4 && i < sizeof(modes) / sizeof(*modes); i++)
		if (!strcmp(argv[1], modes[i].name))
			return set_up(&s, argv[2]) ||
			       modes[i].run(&s, strtoul(argv[3], NULL, 10));
	fprintf(stderr, "usage: overhead pread|phxfs|uring|batch FILE N\n");
	return 2;
}
