// SPDX-License-Identifier: Apache-2.0
/*
 * What users of storage libraries have suffered, each as a test that it does
 * not happen here: sizes and ends.
 */
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "t_fuse.h"

/* A sparse file with 16 marked bytes at each place. */
static int marked_file(const char *name, off_t size, const off_t *marks, int n)
{
	int fd = t_open(name, O_RDWR | O_CREAT | O_TRUNC);
	uint8_t mark[16];

	T_EQ(ftruncate(fd, size), 0);
	for (int i = 0; i < n; i++) {
		size_t len = size - marks[i] < 16 ? (size_t)(size - marks[i]) : 16;

		t_fill(mark, len, 3, (uint64_t)marks[i]);
		t_pwrite(fd, mark, len, marks[i]);
	}
	return fd;
}

static void big_region(struct t_region *r, size_t len)
{
	len = (len + T_PAGE - 1) / T_PAGE * T_PAGE;
	T_EQ(phxfs_open(0), 0);
	t_map(r, 0, len);
	T_EQ(phxfs_regmem(0, r->p, len, NULL), 0);
}

static void check_marks(const uint8_t *p, size_t size, const off_t *marks, int n)
{
	for (int i = 0; i < n; i++) {
		size_t at = (size_t)marks[i], len = size - at < 16 ? size - at : 16;

		T_PATTERN(p + at, len, 3, at);
		if (at >= 64 && (i == 0 || marks[i - 1] < marks[i] - 80))
			T_ALL(p + at - 64, 64, 0);
	}
}

/* Completions of at most 1,000 bytes, an EINTR and an EAGAIN, and an end. */
static void S02_short_completions_are_resubmitted(void)
{
	struct t_fuse *fs = t_fuse_start(12345, 7);
	struct phxfs_completion out;
	phxfs_io_req_t req;
	phxfs_queue_t *q;
	struct t_region r;
	int fd = t_fuse_open(fs, O_RDWR);

	t_region(&r, 0, T_PAGE);
	T_EQ(phxfs_queue_create(1, &q), 0);
	fs->cut = 1000;
	for (int round = 0; round < 12; round++) {
		off_t at = round % 4 == 3 ? 5000 : 0;
		ssize_t want = at ? 7345 : 10000;

		memset(r.p, T_GUARD, r.len);
		req = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .nbytes = 10000, .f_offset = at };
		t_fuse_fail(fs, round % 2 ? EINTR : EAGAIN, round % 3);
		switch (round / 4) {
		case 0:
			T_EQ(phxfs_read(fd, 0, r.p, 0, 10000, at), want);
			break;
		case 1:
			T_EQ(phxfs_read_batch(&req, 1), want != 10000);
			T_EQ(req.result, want);
			break;
		default:
			T_EQ(phxfs_queue_submit(q, PHXFS_OP_READ, &req, NULL, 1), 1);
			T_EQ(phxfs_queue_wait(q, &out, 1, 1, NULL), 1);
			T_EQ(out.result, want);
		}
		T_PATTERN(r.p, (size_t)want, 7, (uint64_t)at);
		T_ALL(r.p + want, r.len - (size_t)want, T_GUARD);
	}
	/* the same for writes */
	t_fill(r.p, r.len, 8, 0);
	t_fuse_fail(fs, EINTR, 1);
	T_EQ(phxfs_write(fd, 0, r.p, 0, 10000, 5), 10000);
	req = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .nbytes = 10000, .f_offset = 20005 };
	T_PATTERN(fs->data + 5, 10000, 8, 0);
	t_fuse_fail(fs, EAGAIN, 1);
	/* to io_uring the kernel reports a short write of FUSE as EIO */
	if (strcmp(phxfs_io_engine_name(), "io_uring") == 0)
		fs->cut = 0;
	T_EQ(phxfs_write_batch(&req, 1), 0);
	T_PATTERN(fs->data + 20005, 10000, 8, 0);
	T_EQ(phxfs_queue_destroy(q), 0);
	t_region_free(&r);
}

static void S03_the_end_of_the_file_is_exact(void)
{
	static const struct {
		off_t at;
		ssize_t n, want;
	} tries[] = { { 5000, 10000, 7345 }, { 12345, 1, 0 }, { 12344, 1, 1 }, { 1000000, 4096, 0 },
		      { 12288, 4096, 57 } };
	struct t_region r;
	phxfs_io_req_t req;

	t_region(&r, 0, T_PAGE);
	for (int direct = 0; direct < 2; direct++) {
		int fd = t_file("f", 12345, 1, O_RDONLY);

		if (direct)
			fd = open(t_name("f"), O_RDONLY | O_DIRECT | O_CLOEXEC);
		if (fd < 0)
			break;
		for (int i = 0; i < 5; i++) {
			ssize_t got;

			memset(r.p, T_GUARD, r.len);
			got = phxfs_read(fd, 0, r.p, 0, tries[i].n, tries[i].at);
			if (got == -EOPNOTSUPP && direct && t_path_is("direct"))
				continue;
			t_context("try %d, direct %d", i, direct);
			T_EQ(got, tries[i].want);
			T_PATTERN(r.p, (size_t)got, 1, (uint64_t)tries[i].at);
			T_REST(r.p + got, (size_t)(tries[i].n - got), direct);
			T_ALL(r.p + tries[i].n, r.len - (size_t)tries[i].n, T_GUARD);
			memset(r.p, T_GUARD, r.len);
			req = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .nbytes = (size_t)tries[i].n,
						.f_offset = tries[i].at };
			T_EQ(phxfs_read_batch(&req, 1), got != tries[i].n);
			T_EQ(req.result, got);
			T_REST(r.p + got, (size_t)(tries[i].n - got), direct);
			T_ALL(r.p + tries[i].n, r.len - (size_t)tries[i].n, T_GUARD);
		}
	}
	t_region_free(&r);
}

static const off_t two_gib[] = { 0, (1LL << 31) - 4096, (1LL << 31) - 1, 1LL << 31,
				 (1LL << 31) + 12344 };

static void S04_more_than_two_gib_in_one_call(void)
{
	size_t size = (1UL << 31) + 12345;
	struct t_region r;
	int fd, out;

	t_need_memory(3 * T_GIB);
	fd = marked_file("f", (off_t)size, two_gib, 5);
	big_region(&r, size);
	T_EQ(phxfs_read(fd, 0, r.p, 0, (ssize_t)size, 0), 2147495993LL);
	check_marks(r.p, size, two_gib, 5);
	out = t_open("g", O_RDWR | O_CREAT);
	T_EQ(ftruncate(fd, 0), 0); /* its blocks for the copy */
	T_EQ(phxfs_write(out, 0, r.p, 0, (ssize_t)size, 0), 2147495993LL);
	T_EQ(t_size(out), size);
	for (int i = 0; i < 5; i++) {
		uint8_t mark[16];
		size_t len = size - (size_t)two_gib[i] < 16 ? size - (size_t)two_gib[i] : 16;

		t_pread(out, mark, len, two_gib[i]);
		T_PATTERN(mark, len, 3, (uint64_t)two_gib[i]);
	}
	t_region_free(&r);
}

static void S05_sizes_are_not_cut_to_32_bits(void)
{
	off_t marks[] = { 0, (1LL << 32) - 8, (1LL << 32) + 4096 - 16 };
	size_t size = (1UL << 32) + 4096;
	phxfs_io_req_t req;
	struct t_region r;
	int fd;

	/* the memory of holes is never touched when the path is direct */
	fd = t_file("f", 4096, 1, O_RDONLY);
	big_region(&r, size);
	T_EQ(phxfs_read(fd, 0, r.p, 0, 1L << 32, 0), 4096);
	T_PATTERN(r.p, 4096, 1, 0);
	req = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .nbytes = 1UL << 32 };
	T_EQ(phxfs_read_batch(&req, 1), 1);
	T_EQ(req.result, 4096);
	t_need_memory(6 * T_GIB);
	fd = marked_file("g", 8LL << 30, marks, 3);
	T_EQ(phxfs_read(fd, 0, r.p, 0, (ssize_t)size, 0), (ssize_t)size);
	check_marks(r.p, size, marks, 3);
	t_region_free(&r);
}

static void S06_three_reads_at_offsets_of_one_buffer(void)
{
	static const off_t at[] = { 4096, 0, 8192 };
	phxfs_io_req_t reqs[3];
	struct phxfs_completion out[3];
	phxfs_queue_t *q;
	struct t_region r;
	int fd = t_file("f", 3 * 4096, 1, O_RDONLY);

	t_region(&r, 0, T_PAGE);
	for (int i = 0; i < 3; i++)
		reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .buf_offset = at[i],
					    .nbytes = 4096, .f_offset = at[i] };
	T_EQ(phxfs_read_batch(reqs, 3), 0);
	T_PATTERN(r.p, 3 * 4096, 1, 0);
	memset(r.p, T_GUARD, r.len);
	T_EQ(phxfs_queue_create(4, &q), 0);
	T_EQ(phxfs_queue_submit(q, PHXFS_OP_READ, reqs, NULL, 3), 3);
	T_EQ(phxfs_queue_wait(q, out, 3, 3, NULL), 3);
	for (int i = 0; i < 3; i++)
		T_EQ(out[i].result, 4096);
	T_PATTERN(r.p, 3 * 4096, 1, 0);
	T_ALL(r.p + 3 * 4096, r.len - 3 * 4096, T_GUARD);
	T_EQ(phxfs_queue_destroy(q), 0);
	t_region_free(&r);
}

static void S07_three_gib_register_and_the_seam_reads(void)
{
	int fd = t_file("f", T_MIB, 1, O_RDONLY);
	struct t_region r;

	big_region(&r, 3 * T_GIB);
	T_EQ(phxfs_read(fd, 0, r.p, (1L << 30) - 524288, T_MIB, 0), T_MIB);
	T_PATTERN(r.p + (1UL << 30) - 524288, T_MIB, 1, 0);
	T_ALL(r.p + (1UL << 30) - 524288 - 4096, 4096, 0);
	T_ALL(r.p + (1UL << 30) + 524288, 4096, 0);
	T_EQ(phxfs_read(fd, 0, r.p, (2L << 30) - 1, T_MIB, 0), T_MIB);
	T_PATTERN(r.p + (2UL << 30) - 1, T_MIB, 1, 0);
	t_region_free(&r);
}

/* A 3 GiB + 17 file from offset 8 to buffer + 8: data at every seam of a chunk. */
static void S09_no_chunk_seam_is_corrupt(void)
{
	enum { EDGE = 2048 };
	size_t size = 3 * T_GIB + 17;
	uint8_t piece[2 * EDGE];
	struct t_region r;
	ssize_t got;
	int fd;

	t_need_memory(5 * T_GIB);
	fd = t_open("f", O_RDWR | O_CREAT);
	T_EQ(ftruncate(fd, (off_t)size), 0);
	for (size_t at = 0; at < size; at += T_MIB) {
		size_t from = at > EDGE ? at - EDGE : 0;
		size_t len = size - from < sizeof(piece) ? size - from : sizeof(piece);

		t_fill(piece, len, 5, from);
		t_pwrite(fd, piece, len, (off_t)from);
	}
	big_region(&r, size + 8);
	got = phxfs_read(fd, 0, r.p, 8, (ssize_t)size - 8, 8);
	T_EQ(got, (ssize_t)size - 8);
	T_ALL(r.p, 8, 0);
	for (size_t at = 0; at < size; at += T_MIB) {
		size_t from = at > EDGE ? at - EDGE : 8;
		size_t end = size - at < EDGE ? size : at ? at + EDGE : 2 * EDGE;
		size_t hole_end = size - at < T_MIB ? size : at + T_MIB - EDGE;

		T_PATTERN(r.p + from, end - from, 5, from);
		if (end < hole_end)
			T_ALL(r.p + end, hole_end - end, 0);
	}
	T_ALL(r.p + size, r.len - size, 0);
	t_region_free(&r);
}

static void S10_odd_offsets_are_exact(void)
{
	static const size_t b[] = { 0, 1, 3, 511, 4095 }, n[] = { 1, 511, 4097, 1048577 };
	static const off_t f[] = { 0, 1, 511, 4097 };
	struct t_region r;

	t_region(&r, 0, 2 * T_MIB);
	for (int direct = 0; direct < 2; direct++) {
		int fd = t_file("f", 2 * T_MIB, 1, O_RDONLY);

		if (direct)
			fd = open(t_name("f"), O_RDONLY | O_DIRECT | O_CLOEXEC);
		if (fd < 0)
			break;
		for (int i = 0; i < 5 * 4 * 4; i++) {
			size_t at = 16 + b[i % 5], len = n[i / 5 % 4];
			off_t offset = f[i / 20];
			ssize_t got;

			t_context("buffer +%zu, file +%lld, %zu bytes, direct %d", at,
				  (long long)offset, len, direct);
			memset(r.p, T_GUARD, at + len + 16);
			got = phxfs_read(fd, 0, r.p + 16, (off_t)b[i % 5], (ssize_t)len, offset);
			if (got == -EOPNOTSUPP && direct && t_path_is("direct"))
				continue;
			T_EQ(got, len);
			T_PATTERN(r.p + at, len, 1, (uint64_t)offset);
			T_ALL(r.p, at, T_GUARD);
			T_ALL(r.p + at + len, 16, T_GUARD);
		}
	}
	t_region_free(&r);
}

static void S12_interior_pointers_use_the_registration(void)
{
	int fd = t_file("f", T_MIB, 1, O_RDONLY);
	struct phxfs_stats s = { .size = sizeof(s) };
	struct t_region r;

	t_region(&r, 0, 64 * T_MIB);
	T_EQ(phxfs_read(fd, 0, r.p + 4 * T_MIB + 512, 0, T_MIB, 0), T_MIB);
	T_PATTERN(r.p + 4 * T_MIB + 512, T_MIB, 1, 0);
	T_EQ(phxfs_stats(0, &s), 0);
	T_EQ(s.read[PHXFS_PATH_DIRECT].bytes, T_MIB);
	T_EQ(s.read[PHXFS_PATH_BOUNCE].bytes + s.read[PHXFS_PATH_STAGING].bytes, 0);
	t_region_free(&r);
}

static void S13_a_small_destination_is_never_overrun(void)
{
	int fd = t_file("f", 4 * T_PAGE, 1, O_RDONLY);
	struct t_region r;

	T_EQ(phxfs_open(0), 0);
	t_map(&r, 0, 4 * T_PAGE);
	T_EQ(phxfs_regmem(0, r.p, T_PAGE, NULL), 0);
	T_EQ(phxfs_read(fd, 0, r.p, 0, 2 * T_PAGE, 0), -EFAULT);
	T_EQ(phxfs_read(fd, 0, r.p, 1, T_PAGE, 0), -EFAULT);
	T_EQ(phxfs_read(fd, 0, r.p, INT64_MAX, INT64_MAX, INT64_MAX), -EINVAL);
	T_ALL(r.p, r.len, T_GUARD);
	T_EQ(phxfs_close(0), 0);
}

static void S15_batches_of_any_count(void)
{
	static const int counts[] = { 1, 127, 128, 129, 1024, 1025, 3000 };
	phxfs_io_req_t *reqs = calloc(3000, sizeof(*reqs));
	int fd = t_file("f", 3000 * 64, 1, O_RDONLY);
	struct t_region r;

	T_CHECK(reqs);
	t_region(&r, 0, 4 * T_PAGE);
	for (int k = 0; k < 7; k++) {
		memset(r.p, T_GUARD, r.len);
		for (int i = 0; i < counts[k]; i++)
			reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .buf_offset = i * 64,
						    .nbytes = 64, .f_offset = i * 64 };
		T_EQ(phxfs_read_batch(reqs, counts[k]), 0);
		T_PATTERN(r.p, (size_t)counts[k] * 64, 1, 0);
		T_ALL(r.p + counts[k] * 64, 64, T_GUARD);
	}
	T_EQ(phxfs_read_batch(reqs, 0), 0);
	free(reqs);
	t_region_free(&r);
}

static void S16_a_handle_released_early_is_safe(void)
{
	enum { PART = 8 * T_MIB / 64 };
	int fd = t_file("f", 8 * T_MIB, 1, O_RDONLY);

	for (long round = t_scale(100); round > 0; round--) {
		phxfs_io_req_t *reqs = calloc(64, sizeof(*reqs));
		phxfs_batch_t *b;
		struct t_region r;

		T_CHECK(reqs);
		T_EQ(phxfs_open(0), 0);
		t_map(&r, 0, 8 * T_MIB);
		T_EQ(phxfs_regmem(0, r.p, r.len, NULL), 0);
		for (size_t i = 0; i < 64; i++)
			reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .nbytes = PART,
						    .buf_offset = (off_t)(i * PART),
						    .f_offset = (off_t)(i * PART) };
		b = phxfs_batch_submit_read(reqs, 64);
		T_CHECK(b);
		T_EQ(phxfs_batch_destroy(b), 0);
		free(reqs);
		T_EQ(phxfs_deregmem(0, r.p, r.len), 0);
		t_unmap(&r); /* a late write would fault */
		T_EQ(phxfs_close(0), 0);
	}
}

/* Processor time: other processes do not count. */
static uint64_t thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void S19_registration_stays_fast_and_keeps_nothing(void)
{
	enum { N = 10000, ROUNDS = 60 };
	uint64_t took[ROUNDS];
	long rss = 0, growth;
	struct t_region r;
	size_t n = t_sanitized() ? N / 10 : N;

	T_EQ(phxfs_open(0), 0);
	t_map(&r, 0, N * T_PAGE);
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t start = thread_ns();

		for (size_t i = 0; i < n; i++)
			T_EQ(phxfs_regmem(0, r.p + i * T_PAGE, T_PAGE, NULL), 0);
		for (size_t i = 0; i < n; i++)
			T_EQ(phxfs_deregmem(0, r.p + i * T_PAGE, T_PAGE), 0);
		took[round] = thread_ns() - start;
		if (round == 9)
			rss = t_rss_kib();
	}
	growth = t_rss_kib() - rss;
	qsort(took, 10, sizeof(took[0]), by_value);
	qsort(took + ROUNDS - 10, 10, sizeof(took[0]), by_value);
	printf("  first rounds %.2f ms, last %.2f ms, RSS %+ld KiB\n", (double)took[5] / 1e6,
	       (double)took[ROUNDS - 5] / 1e6, growth);
	T_CHECK(growth <= 1024);
	/* a busy machine may slow any round: half as much again is no trend */
	T_CHECK(took[ROUNDS - 5] <= took[5] + took[5] / 2 + 2000000);
	T_EQ(phxfs_close(0), 0);
}

static const struct t_case cases[] = {
	T_CASE(S02_short_completions_are_resubmitted, .flags = T_PATHS | T_ENGINES),
	T_CASE(S03_the_end_of_the_file_is_exact, .flags = T_PATHS | T_ENGINES),
	T_CASE(S04_more_than_two_gib_in_one_call, .timeout = 120),
	T_CASE(S04_more_than_two_gib_in_one_call, .timeout = 120, .env = "PHX_PATH=bounce"),
	T_CASE(S05_sizes_are_not_cut_to_32_bits, .timeout = 120),
	T_CASE(S06_three_reads_at_offsets_of_one_buffer, .flags = T_PATHS | T_ENGINES),
	T_CASE(S07_three_gib_register_and_the_seam_reads, .flags = T_PATHS),
	T_CASE(S09_no_chunk_seam_is_corrupt, .timeout = 120),
	T_CASE(S09_no_chunk_seam_is_corrupt, .timeout = 120,
	       .env = "PHX_PATH=bounce PHX_STAGING_SIZE_MB=1"),
	T_CASE(S10_odd_offsets_are_exact, .flags = T_PATHS),
	T_CASE(S12_interior_pointers_use_the_registration),
	T_CASE(S13_a_small_destination_is_never_overrun, .flags = T_PATHS),
	T_CASE(S15_batches_of_any_count, .flags = T_PATHS | T_ENGINES),
	T_CASE(S16_a_handle_released_early_is_safe, .flags = T_ENGINES),
	T_CASE(S16_a_handle_released_early_is_safe, .flags = T_ENGINES, .env = "PHX_PATH=bounce"),
	T_CASE(S19_registration_stays_fast_and_keeps_nothing),
};

T_MAIN(cases)
