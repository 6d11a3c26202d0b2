// SPDX-License-Identifier: Apache-2.0
/* What phoenix.h says of batches, synchronous and asynchronous. */
#include "t_fuse.h"

enum { N = 64 };

static void fill_reqs(phxfs_io_req_t *reqs, int n, int fd, struct t_region *r, size_t len)
{
	for (int i = 0; i < n; i++)
		reqs[i] = (phxfs_io_req_t){ .fd = fd, .device_id = r->device, .buf = r->p,
					    .buf_offset = (off_t)((size_t)i * len), .nbytes = len,
					    .f_offset = (off_t)((size_t)i * len), .result = 77 };
}

static void batches_move_every_request(void)
{
	phxfs_io_req_t reqs[N];
	struct t_region r;
	phxfs_batch_t *b;
	int rd, wr;

	t_region(&r, 0, N * T_PAGE);
	rd = t_file("f", N * T_PAGE, 1, O_RDONLY);
	wr = t_open("g", O_RDWR | O_CREAT);
	fill_reqs(reqs, N, rd, &r, T_PAGE);
	T_EQ(phxfs_read_batch(reqs, N), 0);
	T_PATTERN(r.p, r.len, 1, 0);
	for (int i = 0; i < N; i++) {
		T_EQ(reqs[i].result, T_PAGE);
		reqs[i].fd = wr;
	}
	T_EQ(phxfs_write_batch(reqs, N), 0);
	t_file_pattern(wr, 0, r.len, 1, 0);

	t_set(r.p, T_GUARD, r.len);
	fill_reqs(reqs, N, rd, &r, T_PAGE);
	b = phxfs_batch_submit_read(reqs, N);
	T_CHECK(b);
	T_EQ(phxfs_batch_wait(b), 0);
	T_PATTERN(r.p, r.len, 1, 0);
	T_EQ(reqs[N - 1].result, T_PAGE);
	t_region_free(&r);
}

static void requests_may_mix_devices_files_and_host_memory(void)
{
	phxfs_io_req_t reqs[N];
	struct t_region m[3];
	static const uint64_t seed[] = { 1, 2, 3, 1 };
	int fd[4];

	t_region(&m[0], 0, 16 * T_PAGE);
	t_region(&m[1], 1, 16 * T_PAGE);
	t_map(&m[2], -1, 16 * T_PAGE);
	fd[0] = t_file("a", T_MIB, 1, O_RDONLY);
	fd[1] = t_file("b", T_MIB, 2, O_RDONLY);
	fd[2] = t_memfile(T_MIB, 3);
	fd[3] = open(t_name("a"), O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (fd[3] < 0)
		fd[3] = fd[0];
	for (int i = 0; i < 48; i++)
		reqs[i] = (phxfs_io_req_t){ .fd = fd[i % 4], .device_id = m[i % 3].device,
					    .buf = m[i % 3].p, .buf_offset = i / 3 * (off_t)T_PAGE,
					    .nbytes = 4096, .f_offset = i * 4096 };
	T_EQ(phxfs_read_batch(reqs, 48), 0);
	for (int i = 0; i < 48; i++)
		T_PATTERN(m[i % 3].p + (size_t)(i / 3) * T_PAGE, 4096, seed[i % 4],
			  (uint64_t)i * 4096);
	t_region_free(&m[0]);
	t_region_free(&m[1]);
}

/* The return value counts the requests that did not move exactly nbytes. */
static void failures_are_counted_and_the_rest_runs(void)
{
	phxfs_io_req_t reqs[8];
	struct t_region r;
	int fd = t_file("f", 4 * T_PAGE, 1, O_RDONLY);

	t_region(&r, 0, 8 * T_PAGE);
	for (int async = 0; async < 2; async++) {
		phxfs_batch_t *b;
		int rc;

		t_set(r.p, T_GUARD, r.len);
		fill_reqs(reqs, 8, fd, &r, T_PAGE);
		reqs[1].fd = -1;                              /* EBADF */
		reqs[2].buf_offset = (off_t)r.len - 100;      /* past the registration */
		reqs[3].nbytes = 2 * T_PAGE;                  /* short at the end of the file */
		reqs[3].buf_offset = 3 * (off_t)T_PAGE;
		reqs[3].f_offset = 3 * (off_t)T_PAGE;
		reqs[4].device_id = 5;                        /* no such device */
		reqs[4].f_offset = 0;
		reqs[5].f_offset = -1;                        /* EINVAL */
		reqs[6].nbytes = 0;                           /* nothing to do: moved exactly 0 */
		reqs[7].f_offset = 0;
		if (async) {
			b = phxfs_batch_submit_read(reqs, 8);
			T_CHECK(b);
			rc = phxfs_batch_wait(b);
		} else {
			rc = phxfs_read_batch(reqs, 8);
		}
		T_EQ(rc, 5);
		T_EQ(reqs[0].result, T_PAGE);
		T_EQ(reqs[1].result, -EBADF);
		T_EQ(reqs[2].result, -EFAULT);
		T_EQ(reqs[3].result, T_PAGE);
		T_EQ(reqs[4].result, -EFAULT);
		T_EQ(reqs[5].result, -EINVAL);
		T_EQ(reqs[6].result, 0);
		T_EQ(reqs[7].result, T_PAGE);
		T_PATTERN(r.p, T_PAGE, 1, 0);
		T_ALL(r.p + T_PAGE, 2 * T_PAGE, T_GUARD);
		T_PATTERN(r.p + 3 * T_PAGE, T_PAGE, 1, 3 * T_PAGE);
		T_ALL(r.p + 4 * T_PAGE, 3 * T_PAGE, T_GUARD);
		T_PATTERN(r.p + 7 * T_PAGE, T_PAGE, 1, 0);
		T_CHECK(*phxfs_last_error());
	}
	t_region_free(&r);
}

static void the_text_of_a_failed_request_comes_with_wait(void)
{
	struct phxfs_completion out;
	phxfs_io_req_t req;
	struct t_region r;
	phxfs_batch_t *b;
	phxfs_queue_t *q;

	t_region(&r, 0, T_PAGE);
	fill_reqs(&req, 1, -1, &r, 4096);
	b = phxfs_batch_submit_read(&req, 1);
	T_CHECK(b);
	T_EQ(phxfs_batch_wait(b), 1);
	T_EQ(req.result, -EBADF);
	T_CHECK(strstr(phxfs_last_error(), "EBADF"));

	req.fd = t_file("f", 10, 1, O_RDONLY);
	req.f_offset = -1;
	T_EQ(phxfs_queue_create(1, &q), 0);
	T_EQ(phxfs_queue_submit(q, PHXFS_OP_READ, &req, NULL, 1), 1);
	T_EQ(phxfs_queue_wait(q, &out, 1, 1, NULL), 1);
	T_EQ(out.result, -EINVAL);
	T_CHECK(strstr(phxfs_last_error(), "EINVAL"));
	T_EQ(phxfs_queue_destroy(q), 0);
	t_region_free(&r);
}

static void empty_batches_are_valid(void)
{
	phxfs_batch_t *b;

	for (int n = 0; n > -3; n--) {
		T_EQ(phxfs_read_batch(NULL, n), 0);
		T_EQ(phxfs_write_batch(NULL, n), 0);
		b = phxfs_batch_submit_read(NULL, n);
		T_CHECK(b);
		T_EQ(phxfs_batch_wait(b), 0);
		b = phxfs_batch_submit_write(NULL, n);
		T_CHECK(b);
		T_EQ(phxfs_batch_destroy(b), 0);
	}
	T_EQ(phxfs_read_batch(NULL, INT32_MIN), 0);
	T_EQ(phxfs_read_batch(NULL, 1), -EINVAL);
	T_EQ(phxfs_write_batch(NULL, 1), -EINVAL);
	errno = 0;
	T_CHECK(!phxfs_batch_submit_read(NULL, 1));
	T_EQ(errno, EINVAL);
	T_CHECK(strstr(phxfs_last_error(), "EINVAL"));
	T_EQ(phxfs_batch_wait(NULL), -EINVAL);
	T_EQ(phxfs_batch_destroy(NULL), 0);
}

/* Sixteen wait or run; the seventeenth is EBUSY, until one is done. */
static void the_fifo_holds_sixteen(void)
{
	struct t_fuse *fs = t_fuse_start(T_MIB, 7);
	phxfs_io_req_t reqs[PHXFS_BATCH_FIFO + 1];
	phxfs_batch_t *b[PHXFS_BATCH_FIFO + 1], *empty;
	struct t_region r;
	int n = 0;

	t_region(&r, 0, 32 * T_PAGE);
	fill_reqs(reqs, PHXFS_BATCH_FIFO + 1, t_fuse_open(fs, O_RDONLY), &r, 4096);
	t_fuse_hold(fs);
	for (; n < PHXFS_BATCH_FIFO; n++) {
		b[n] = phxfs_batch_submit_read(&reqs[n], 1);
		T_CHECK(b[n]);
	}
	for (int i = 0; i < 5; i++) {
		errno = 0;
		T_CHECK(!phxfs_batch_submit_read(&reqs[n], 1));
		T_EQ(errno, EBUSY);
		T_CHECK(strstr(phxfs_last_error(), "EBUSY"));
		T_EQ(reqs[n].result, 77);
	}
	/* an empty one needs no place, or is refused like any other */
	empty = phxfs_batch_submit_read(NULL, 0);
	if (empty)
		T_EQ(phxfs_batch_wait(empty), 0);
	else
		T_EQ(errno, EBUSY);
	t_fuse_release(fs);
	T_EQ(phxfs_batch_wait(b[0]), 0);
	b[n] = phxfs_batch_submit_read(&reqs[n], 1);
	T_CHECK(b[n]);
	for (int i = 1; i <= n; i++)
		T_EQ(phxfs_batch_wait(b[i]), 0);
	T_PATTERN(r.p, (size_t)(n + 1) * 4096, 7, 0);
	t_region_free(&r);
}

/* A finished batch gives its place back, waited for or not. */
static void finished_batches_leave_the_fifo(void)
{
	int fd = t_file("f", T_MIB, 1, O_RDONLY);
	phxfs_io_req_t reqs[40];
	phxfs_batch_t *b[40];
	struct t_region r;

	t_region(&r, 0, 40 * T_PAGE);
	fill_reqs(reqs, 40, fd, &r, 4096);
	for (int i = 0; i < 40; i++)
		T_WAIT((b[i] = phxfs_batch_submit_read(&reqs[i], 1)) != NULL);
	for (int i = 39; i >= 0; i--)
		T_EQ(phxfs_batch_wait(b[i]), 0);
	T_PATTERN(r.p, 40 * 4096, 1, 0);
	t_region_free(&r);
}

static void batches_run_one_at_a_time_in_order(void)
{
	struct t_fuse *fs = t_fuse_start(0, 7);
	phxfs_io_req_t reqs[8];
	phxfs_batch_t *b[8];
	struct t_region r;
	int fd = t_fuse_open(fs, O_WRONLY);

	t_region(&r, 0, 8 * T_PAGE);
	fill_reqs(reqs, 8, fd, &r, 4096);
	t_fuse_hold(fs);
	for (int i = 0; i < 8; i++) {
		b[i] = phxfs_batch_submit_write(&reqs[i], 1);
		T_CHECK(b[i]);
	}
	t_fuse_held(fs, 1);
	t_sleep_ms(50);
	T_EQ(fs->waiting, 1);
	t_fuse_release(fs);
	for (int i = 0; i < 8; i++)
		T_EQ(phxfs_batch_wait(b[i]), 0);
	T_EQ(fs->order_len, 8);
	for (int i = 0; i < 8; i++)
		T_EQ(fs->order[i], i * 4096);
	t_region_free(&r);
}

/* The caller goes on while a batch runs, in every mode. */
static void submit_does_not_wait(void)
{
	struct t_fuse *fs = t_fuse_start(16 * T_MIB, 7);
	phxfs_io_req_t reqs[16];
	struct t_region r;
	phxfs_batch_t *b;
	uint64_t start;

	t_region(&r, 0, 16 * T_MIB);
	fill_reqs(reqs, 16, t_fuse_open(fs, O_RDONLY), &r, T_MIB);
	t_fuse_hold(fs);
	start = t_now_ns();
	b = phxfs_batch_submit_read(reqs, 16);
	T_CHECK(b);
	T_CHECK(t_now_ns() - start < 2000000000ULL);
	/* the array's contents may not be needed any more, results come with wait */
	t_fuse_held(fs, 1);
	for (int i = 0; i < 16; i++)
		T_EQ(reqs[i].result, 77);
	t_fuse_release(fs);
	T_EQ(phxfs_batch_wait(b), 0);
	T_PATTERN(r.p, r.len, 7, 0);
	t_region_free(&r);
}

static long destroy(void *arg)
{
	return phxfs_batch_destroy(arg);
}

/* Destroy drops what has not started, waits for the rest, writes no result. */
static void destroy_drains_and_writes_no_result(void)
{
	struct t_fuse *fs = t_fuse_start(16 * T_MIB, 7);
	phxfs_io_req_t reqs[16], later[16];
	phxfs_batch_t *running, *waiting;
	struct t_call c;
	struct t_region r;
	int fd = t_fuse_open(fs, O_RDONLY);

	t_region(&r, 0, 16 * T_MIB);
	fill_reqs(reqs, 16, fd, &r, T_MIB / 2);
	fill_reqs(later, 16, fd, &r, T_MIB / 2);
	for (int i = 0; i < 16; i++)
		later[i].buf_offset += 8 * (off_t)T_MIB;
	t_fuse_hold(fs);
	running = phxfs_batch_submit_read(reqs, 16);
	waiting = phxfs_batch_submit_read(later, 16);
	T_CHECK(running && waiting);
	t_fuse_held(fs, 1);
	/* the second has not started: its end needs no waiting */
	t_call(&c, destroy, waiting);
	T_WAIT(c.done);
	T_EQ(t_join(&c), 0);
	t_call(&c, destroy, running);
	T_STILL_RUNNING(&c);
	t_fuse_release(fs);
	T_EQ(t_join(&c), 0);
	t_set(r.p, 0x5a, r.len);
	t_sleep_ms(100);
	T_ALL(r.p, r.len, 0x5a);
	for (int i = 0; i < 16; i++) {
		T_EQ(reqs[i].result, 77);
		T_EQ(later[i].result, 77);
	}
	/* the pool still works */
	T_EQ(phxfs_read_batch(reqs, 16), 0);
	t_region_free(&r);
}

static void registrations_are_held_by_a_batch(void)
{
	struct t_fuse *fs = t_fuse_start(T_MIB, 7);
	phxfs_io_req_t reqs[4];
	phxfs_batch_t *first, *second;
	struct t_region r, blocker;
	struct t_call c;
	int fd = t_fuse_open(fs, O_RDONLY);

	t_region(&r, 0, 4 * T_PAGE);
	t_region(&blocker, 0, T_PAGE);
	t_fuse_hold(fs);
	fill_reqs(reqs, 1, fd, &blocker, 4096);
	first = phxfs_batch_submit_read(reqs, 1);
	fill_reqs(reqs + 1, 3, fd, &r, 4096);
	second = phxfs_batch_submit_read(reqs + 1, 3); /* only waiting */
	T_CHECK(first && second);
	t_fuse_held(fs, 1);
	t_call(&c, t_deregister, &r);
	T_STILL_RUNNING(&c);
	t_fuse_release(fs);
	T_EQ(t_join(&c), 0);
	T_PATTERN(r.p, 3 * 4096, 7, 0);
	T_EQ(phxfs_batch_wait(first), 0);
	T_EQ(phxfs_batch_wait(second), 0);
	t_region_free(&blocker);
}

/* Writes to one O_APPEND descriptor keep the order of the array. */
static void appends_of_a_batch_keep_their_order(void)
{
	static const int kinds[] = { 0, O_DIRECT };
	phxfs_io_req_t reqs[200];
	struct t_region r;

	t_need_direct();
	t_region(&r, 0, 2 * T_MIB);
	t_fill(r.p, r.len, 1, 0);
	for (int k = 0; k < 4; k++) {
		int fd = t_file("f", 0, 0, O_WRONLY | O_APPEND | kinds[k % 2]);
		int other = t_open("g", O_WRONLY | O_CREAT);
		size_t end = 0;
		phxfs_batch_t *b;

		for (int i = 0; i < 200; i++) {
			size_t n = 1 + (size_t)i * 53 % 9000;
			/* every fourth goes to another file, in between */
			bool append = i % 4 != 3;

			reqs[i] = (phxfs_io_req_t){ .fd = append ? fd : other, .buf = r.p,
						    .buf_offset = (off_t)end, .nbytes = n,
						    .f_offset = i * 9000 };
			if (append)
				end += n;
		}
		if (k < 2) {
			int rc = phxfs_write_batch(reqs, 200);

			if (t_path_is("direct") && k == 1 && rc == 150)
				continue; /* refused, all of them */
			T_EQ(rc, 0);
		} else {
			b = phxfs_batch_submit_write(reqs, 200);
			T_CHECK(b);
			if (phxfs_batch_wait(b) == 150 && t_path_is("direct") && k == 3)
				continue;
		}
		T_EQ(t_size(fd), end);
		t_file_pattern(fd, 0, end, 1, 0);
	}
	t_region_free(&r);
}

struct reader {
	int fd;
	struct t_region r;
	struct t_call call;
};

static long read_some(void *arg)
{
	struct reader *reader = arg;
	phxfs_io_req_t reqs[16];

	for (long round = t_scale(100); round > 0; round--) {
		fill_reqs(reqs, 16, reader->fd, &reader->r, 8192);
		if (phxfs_read_batch(reqs, 16) != 0)
			return -1;
		if (t_differs(reader->r.p, 16 * 8192, 1, 0) >= 0)
			return -2;
		t_set(reader->r.p, 0, 16 * 8192);
	}
	return 0;
}

/* Synchronous batches of many threads do not run into the FIFO's limit. */
static void synchronous_batches_never_find_the_fifo_full(void)
{
	enum { THREADS = 32 };
	int fd = t_file("f", 16 * 8192, 1, O_RDONLY);
	struct reader readers[THREADS];

	for (int i = 0; i < THREADS; i++) {
		readers[i].fd = fd;
		t_region(&readers[i].r, 0, 16 * 8192);
		t_call(&readers[i].call, read_some, &readers[i]);
	}
	for (int i = 0; i < THREADS; i++)
		T_EQ(t_join(&readers[i].call), 0);
}

/*
 * With the smallest pool: requests that need a chunk beside those that hold
 * them all. Unaligned O_DIRECT writes, and reads that meet the end of the file.
 */
static void mixed_requests_progress_over_the_smallest_pool(void)
{
	enum { MANY = 128 };
	const off_t size = MANY * 65536 - 1000;
	phxfs_io_req_t reqs[MANY];
	struct t_region r;
	int fd;

	t_need_direct();
	t_region(&r, 0, 16 * T_MIB);
	fd = t_file("f", (size_t)size, 1, O_RDWR | O_DIRECT);
	for (int round = 0; round < 4; round++) {
		for (size_t i = 0; i < MANY; i++) {
			reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .nbytes = 65536,
						    .buf_offset = (off_t)(i * 131072),
						    .f_offset = (off_t)(i * 65536) };
			/* past the end in part, or altogether unaligned */
			if (i % 3 == 0)
				reqs[i].f_offset = (MANY - 1) * 65536;
			else if (i % 3 == 1)
				reqs[i].f_offset += 100;
		}
		T_CHECK(phxfs_read_batch(reqs, MANY) >= 0);
		for (size_t i = 0; i < MANY; i++) {
			if (reqs[i].result == -EOPNOTSUPP && t_path_is("direct"))
				continue;
			T_EQ(reqs[i].result, size - reqs[i].f_offset < 65536 ?
						     size - reqs[i].f_offset : 65536);
			T_PATTERN(r.p + i * 131072, (size_t)reqs[i].result, 1,
				  (uint64_t)reqs[i].f_offset);
			/* for the write: disjoint ranges, every other one unaligned */
			reqs[i].f_offset = (off_t)(i * 70000);
			reqs[i].nbytes = i % 2 ? 65536 + 4464 : 65536;
			if (i % 2)
				reqs[i].f_offset -= 4464;
			t_fill(r.p + i * 131072, reqs[i].nbytes, 2, (uint64_t)reqs[i].f_offset);
		}
		if (t_path_is("direct"))
			continue;
		T_EQ(phxfs_write_batch(reqs, MANY), 0);
		for (size_t i = 0; i < MANY; i++)
			t_file_pattern(fd, reqs[i].f_offset, reqs[i].nbytes, 2,
				       (uint64_t)reqs[i].f_offset);
		close(fd);
		fd = t_file("f", (size_t)size, 1, O_RDWR | O_DIRECT);
	}
	t_region_free(&r);
}

/*
 * Neighbours that meet inside a page, one of them aligned to the disk's blocks:
 * the kernel would take that one direct while the other's edge is in the page
 * cache. Then bytes are lost, or fsync(2) says EIO on some other descriptor.
 */
static void neighbours_in_a_page_do_not_spoil_each_other(void)
{
	enum { MANY = 128 };
	phxfs_io_req_t reqs[MANY];
	struct t_region r;
	int fd, other;

	t_need_direct();
	t_region(&r, 0, MANY * 8192);
	fd = t_file("f", MANY * 8192, 1, O_RDWR | O_DIRECT);
	other = t_open("f", O_RDWR);
	for (uint64_t round = 2; round < 2 + (uint64_t)t_scale(100); round++) {
		size_t from = 0, to;

		for (size_t i = 0; i < MANY; i++, from = to) {
			/* of three borders two are the disk's */
			to = (from & ~511UL) + 4096 + 512 * (1 + i % 7) + (i % 3 ? 0 : 100);
			reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = r.p,
						    .buf_offset = (off_t)from,
						    .nbytes = to - from,
						    .f_offset = (off_t)from };
		}
		t_fill(r.p, from, round, 0);
		T_EQ(phxfs_write_batch(reqs, MANY), 0);
		t_file_pattern(fd, 0, from, round, 0);
		T_EQ(fsync(other), 0);
	}
	t_region_free(&r);
}

static void large_batches_work(void)
{
	enum { MANY = 20000 };
	phxfs_io_req_t *reqs = calloc(MANY, sizeof(*reqs));
	struct t_region r;
	int fd = t_file("f", 8 * T_MIB, 1, O_RDONLY);

	T_CHECK(reqs);
	t_region(&r, 0, 16 * T_MIB);
	for (size_t i = 0; i < MANY; i++)
		reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .buf_offset = (off_t)(i * 700),
					    .nbytes = 600, .f_offset = (off_t)(i * 411) };
	T_EQ(phxfs_read_batch(reqs, MANY), 0);
	for (size_t i = 0; i < MANY; i++) {
		T_EQ(reqs[i].result, 600);
		T_PATTERN(r.p + i * 700, 600, 1, i * 411);
		T_ALL(r.p + i * 700 + 600, 100, T_GUARD);
	}
	t_region_free(&r);
	free(reqs);
}

static const struct t_case cases[] = {
	T_CASE(batches_move_every_request, .flags = T_PATHS | T_ENGINES),
	T_CASE(requests_may_mix_devices_files_and_host_memory, .env = "PHX_HOST_DEVICES=2",
	       .flags = T_PATHS),
	T_CASE(failures_are_counted_and_the_rest_runs, .flags = T_PATHS | T_ENGINES),
	T_CASE(the_text_of_a_failed_request_comes_with_wait),
	T_CASE(empty_batches_are_valid),
	T_CASE(the_fifo_holds_sixteen, .flags = T_PATHS | T_ENGINES),
	T_CASE(finished_batches_leave_the_fifo),
	T_CASE(batches_run_one_at_a_time_in_order, .flags = T_PATHS | T_ENGINES),
	T_CASE(submit_does_not_wait, .flags = T_PATHS | T_ENGINES),
	T_CASE(destroy_drains_and_writes_no_result, .flags = T_PATHS | T_ENGINES),
	T_CASE(registrations_are_held_by_a_batch, .flags = T_PATHS),
	T_CASE(appends_of_a_batch_keep_their_order, .flags = T_PATHS | T_ENGINES),
	T_CASE(synchronous_batches_never_find_the_fifo_full, .flags = T_PATHS),
	T_CASE(mixed_requests_progress_over_the_smallest_pool, .flags = T_PATHS | T_ENGINES,
	       .env = "PHX_STAGING_SIZE_MB=1 PHX_IO_WORKERS=1"),
	T_CASE(neighbours_in_a_page_do_not_spoil_each_other, .flags = T_ENGINES),
	T_CASE(large_batches_work, .flags = T_PATHS | T_ENGINES),
};

T_MAIN(cases)
