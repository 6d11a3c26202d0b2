// SPDX-License-Identifier: Apache-2.0
/* What phoenix.h says of paths and counters: named before, counted after. */
#include "t_fuse.h"

static struct phxfs_stats stats(int device)
{
	struct phxfs_stats s = { .size = sizeof(s) };

	T_EQ(phxfs_stats(device, &s), 0);
	return s;
}

static struct phxfs_path_info query(int fd, int device, const void *buf, size_t n, off_t at,
				    int want)
{
	struct phxfs_path_info info = { .size = sizeof(info) };
	int rc = phxfs_path_query(fd, device, buf, n, at, &info);

	T_EQ(rc, want);
	T_CHECK(memchr(info.text, 0, sizeof(info.text)));
	T_CHECK(*info.text);
	return info;
}

/* What query says is what the counters then show. */
static void the_named_path_is_the_counted_path(void)
{
	static const struct {
		int flags;
		size_t at, n;
		off_t offset;
	} tries[] = {
		{ 0, 0, 1048576, 0 },	     { 0, 7, 100000, 12345 },
		{ O_DIRECT, 0, 1048576, 0 }, { O_DIRECT, 4096, 65536, 8192 },
		{ O_DIRECT, 1, 65536, 1 },   { O_DIRECT, 5, 65536, 4096 },
		{ O_DIRECT, 0, 100, 0 },     { O_DIRECT, 100, 262144, 100 },
		{ O_DIRECT, 0, 65536 + 1, 0 },
	};
	struct t_region r;

	t_need_direct();
	t_region(&r, 0, 2 * T_MIB);
	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		int fd = t_file("f", 2 * T_MIB, 1, O_RDONLY | tries[i].flags);
		struct phxfs_path_info info = { .size = sizeof(info) };
		struct phxfs_stats before, after;
		uint64_t bulk, edge, other = 0;
		ssize_t got;
		int rc;

		t_context("try %zu", i);
		rc = phxfs_path_query(fd, 0, r.p + tries[i].at, tries[i].n, tries[i].offset, &info);
		T_CHECK(rc == 0 || (rc == -EOPNOTSUPP && t_path_is("direct")));
		before = stats(0);
		got = phxfs_read(fd, 0, r.p, (off_t)tries[i].at, (ssize_t)tries[i].n,
				 tries[i].offset);
		after = stats(0);
		T_EQ(got, rc ? rc : (ssize_t)tries[i].n);
		T_CHECK(*info.text && info.path >= 0 && info.path < PHXFS_PATH_EDGE);
		T_EQ(info.direct_bytes + info.chunk_bytes, tries[i].n);
		for (int p = 0; p < PHXFS_PATHS; p++)
			if (p != info.path && p != PHXFS_PATH_EDGE)
				other += after.read[p].bytes - before.read[p].bytes;
		bulk = after.read[info.path].bytes - before.read[info.path].bytes;
		edge = after.read[PHXFS_PATH_EDGE].bytes - before.read[PHXFS_PATH_EDGE].bytes;
		T_EQ(other, 0);
		T_EQ(bulk + edge, rc ? 0 : tries[i].n);
		if (rc == 0 && info.path == PHXFS_PATH_DIRECT)
			T_EQ(bulk, info.direct_bytes);
		if (t_path_is("staging") || t_path_is("bounce")) {
			T_EQ(info.path, t_buffered_path(0, false, tries[i].n));
			T_EQ(info.reason, PHXFS_REASON_FORCED);
			T_EQ(after.copy_bytes - before.copy_bytes, tries[i].n);
		}
		close(fd);
	}
	t_region_free(&r);
}

static void aligned_direct_io_is_the_best_path(void)
{
	struct phxfs_path_info info;
	struct t_region r;
	int fd;

	t_need_direct();
	t_region(&r, 0, T_MIB);
	fd = t_file("f", T_MIB, 1, O_RDONLY | O_DIRECT);
	info = query(fd, 0, r.p, T_MIB, 0, 0);
	T_EQ(info.dma, 1);
	if (phxfs_device_mode(0) == PHXFS_MODE_STAGING) {
		T_EQ(info.path, PHXFS_PATH_STAGING);
		T_EQ(info.reason, PHXFS_REASON_STAGING_MODE);
		T_CHECK(strstr(info.text, "phxfs_map_mode=0"));
		T_EQ(info.chunk_bytes, T_MIB);
	} else {
		T_EQ(info.path, PHXFS_PATH_DIRECT);
		T_EQ(info.reason, PHXFS_REASON_NONE);
		T_EQ(info.direct_bytes, T_MIB);
		T_EQ(info.chunk_bytes, 0);
	}
	t_region_free(&r);
}

static void reasons_name_what_is_in_the_way(void)
{
	struct phxfs_path_info info;
	struct t_region r;
	int fd, buffered, append;

	t_need_direct();
	if (phxfs_device_mode(0) == PHXFS_MODE_STAGING)
		t_skip("in STAGING the mode itself is in the way");
	t_region(&r, 0, T_MIB);
	fd = t_file("f", T_MIB, 1, O_RDWR | O_DIRECT);
	buffered = t_open("f", O_RDWR);
	append = t_open("f", O_RDWR | O_DIRECT | O_APPEND);

	info = query(fd, 0, r.p + 10, 100000, 10, 0);
	T_EQ(info.reason, PHXFS_REASON_EDGES);
	T_EQ(info.path, PHXFS_PATH_DIRECT);
	T_EQ(info.dma, 1);
	T_CHECK(info.chunk_bytes > 0 && info.chunk_bytes < 8192);

	info = query(fd, 0, r.p + 10, 100000, 0, 0);
	T_EQ(info.reason, PHXFS_REASON_INCONGRUENT);
	T_EQ(info.direct_bytes, 0);

	info = query(buffered, 0, r.p, 100000, 0, 0);
	T_EQ(info.path, t_buffered_path(0, false, 100000));
	T_EQ(info.reason, PHXFS_REASON_BUFFERED_FD);
	T_EQ(info.dma, 0);

	/* reads are not appended */
	info = query(append, 0, r.p, 8192, 0, 0);
	T_EQ(info.path, PHXFS_PATH_DIRECT);

	info = query(fd, 0, r.p, 0, 0, 0);
	T_EQ(info.direct_bytes + info.chunk_bytes, 0);
	t_region_free(&r);
}

static void query_fails_as_the_transfer_would(void)
{
	struct {
		struct phxfs_path_info info;
		uint8_t after[64];
	} x;
	struct phxfs_path_info info = { .size = sizeof(info) };
	struct t_region r;
	enum { CLOSED = 900 };
	int fd = t_file("f", T_MIB, 1, O_RDONLY);

	t_region(&r, 0, T_PAGE);
	T_EQ(phxfs_path_query(fd, 0, r.p, T_PAGE + 1, 0, &info), -EFAULT);
	T_EQ(phxfs_path_query(fd, 0, r.p - 1, 1, 0, &info), -EFAULT);
	T_EQ(phxfs_path_query(fd, 7, r.p, 1, 0, &info), -EFAULT);
	T_EQ(phxfs_path_query(fd, 0, r.p, 1, -1, &info), -EINVAL);
	T_EQ(phxfs_path_query(fd, -1, r.p, SIZE_MAX, 0, &info), -EINVAL);
	T_EQ(phxfs_path_query(CLOSED, 0, r.p, 1, 0, &info), -EBADF);
	T_EQ(phxfs_path_query(-1, 0, r.p, 1, 0, &info), -EBADF);
	T_EQ(phxfs_path_query(t_open("f", O_WRONLY), 0, r.p, 1, 0, &info), -EBADF);
	T_EQ(phxfs_path_query(fd, 0, r.p, 1, 0, NULL), -EINVAL);
	info.size = 8;
	T_EQ(phxfs_path_query(fd, 0, r.p, 1, 0, &info), -EINVAL);
	memset(&x, T_GUARD, sizeof(x));
	x.info.size = sizeof(x.info);
	T_EQ(phxfs_path_query(fd, 0, r.p, 1, 0, &x.info), 0);
	T_ALL(x.after, sizeof(x.after), T_GUARD);
	t_region_free(&r);
}

/* PHX_PATH=direct: refused with the reason, or done without a chunk; never in silence. */
static void direct_never_falls_back(void)
{
	struct phxfs_path_info info = { .size = sizeof(info) };
	struct phxfs_stats s;
	struct t_region r;
	ssize_t got;
	int fd;

	t_need_direct();
	t_region(&r, 0, T_MIB);
	fd = t_file("f", T_MIB, 1, O_RDWR | O_DIRECT);
	if (phxfs_device_mode(0) == PHXFS_MODE_STAGING) {
		T_EQ(phxfs_path_query(fd, 0, r.p, T_MIB, 0, &info), -EOPNOTSUPP);
		T_EQ(phxfs_read(fd, 0, r.p, 0, T_MIB, 0), -EOPNOTSUPP);
		T_ALL(r.p, r.len, T_GUARD);
		return;
	}
	T_EQ(phxfs_read(fd, 0, r.p, 0, T_MIB, 0), T_MIB);
	T_PATTERN(r.p, T_MIB, 1, 0);
	t_set(r.p, T_GUARD, r.len);
	for (size_t at = 0; at < 2; at++) {
		int rc = phxfs_path_query(fd, 0, r.p + at, 1000, 1, &info);

		got = phxfs_read(fd, 0, r.p, (off_t)at, 1000, 1);
		if (rc == -EOPNOTSUPP) {
			T_EQ(got, -EOPNOTSUPP);
			T_CHECK(*info.text && info.reason);
			T_CHECK(strstr(phxfs_last_error(), "EOPNOTSUPP"));
			T_ALL(r.p, r.len, T_GUARD);
		} else {
			T_EQ(rc, 0);
			T_EQ(got, 1000);
			T_PATTERN(r.p + at, 1000, 1, 1);
		}
		got = phxfs_write(fd, 0, r.p, (off_t)at, 1000, 1);
		T_CHECK(got == 1000 || got == -EOPNOTSUPP);
	}
	s = stats(0);
	for (int p = PHXFS_PATH_STAGING; p <= PHXFS_PATH_BOUNCE; p++) {
		T_EQ(s.read[p].bytes, 0);
		T_EQ(s.write[p].bytes, 0);
	}
	T_EQ(s.copies, 0);
	t_region_free(&r);
}

/* Each transfer is counted once, with its bytes; failures as errors. */
static void counters_are_exact(void)
{
	int fd = t_file("f", T_MIB, 1, O_RDWR), path = t_buffered_path(0, false, 1000);
	int wpath = t_buffered_path(0, true, 5000);
	bool copied = path != PHXFS_PATH_DIRECT, wcopied = wpath != PHXFS_PATH_DIRECT;
	struct phxfs_stats s0, s1;
	struct t_region r;
	phxfs_io_req_t reqs[10];

	t_region(&r, 0, T_MIB);
	s0 = stats(0);
	T_EQ(s0.registrations, 1);
	T_EQ(s0.registered_bytes, T_MIB);
	for (int i = 0; i < 10; i++)
		T_EQ(phxfs_read(fd, 0, r.p, i, 1000 + i, i), 1000 + i);
	T_EQ(phxfs_write(fd, 0, r.p, 0, 5000, 0), 5000);
	s1 = stats(0);
	T_EQ(s1.read[path].ops - s0.read[path].ops, 10);
	T_EQ(s1.read[path].bytes - s0.read[path].bytes, 10045);
	T_EQ(s1.read[path].errors - s0.read[path].errors, 0);
	T_EQ(s1.write[wpath].ops - s0.write[wpath].ops, 1);
	T_EQ(s1.write[wpath].bytes - s0.write[wpath].bytes, 5000);
	T_EQ(s1.retries - s0.retries, 0);
	T_EQ(s1.copy_bytes - s0.copy_bytes, (copied ? 10045 : 0) + (wcopied ? 5000 : 0));
	T_EQ(s1.copies - s0.copies, (copied ? 10 : 0) + (wcopied ? 1 : 0));

	s0 = s1;
	for (int i = 0; i < 10; i++)
		reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .buf_offset = i * 4096,
					    .nbytes = 4096, .f_offset = i * 4096 };
	T_EQ(phxfs_read_batch(reqs, 10), 0);
	T_EQ(phxfs_readv(fd, 0, (struct phxfs_iov[]){ { r.p, 10 }, { r.p + 100, 20 } }, 2, 0), 30);
	s1 = stats(0);
	T_EQ(s1.read[path].ops - s0.read[path].ops, 11);
	T_EQ(s1.read[path].bytes - s0.read[path].bytes, 40990);

	/* refused before anything moves: no transfer */
	s0 = s1;
	T_EQ(phxfs_readv(fd, 0, (struct phxfs_iov[]){ { r.p, 10 }, { r.p, 2 * T_MIB } }, 2, 0),
	     -EFAULT);
	s1 = stats(0);
	T_EQ(s1.read[path].ops - s0.read[path].ops, 0);

	/* the end of the file is no error; a bad descriptor is one */
	s0 = s1;
	T_EQ(phxfs_read(fd, 0, r.p, 0, 4096, T_MIB - 96), 96);
	T_EQ(phxfs_read(fd, 0, r.p, 0, 4096, 2 * T_MIB), 0);
	T_EQ(phxfs_read(t_open("f", O_WRONLY), 0, r.p, 0, 4096, 0), -EBADF);
	s1 = stats(0);
	T_EQ(s1.read[path].bytes - s0.read[path].bytes, 96);
	T_CHECK(s1.read[path].errors - s0.read[path].errors <= 1);
	t_region_free(&r);
	T_EQ(stats(0).registrations, 0);
}

static void host_buffers_are_counted_apart(void)
{
	int fd = t_file("f", T_MIB, 1, O_RDWR);
	struct phxfs_stats d0, d1, h0, h1;
	uint64_t sum = 0;
	struct t_region r;
	uint8_t host[1000];

	t_region(&r, 0, T_PAGE);
	d0 = stats(0);
	h0 = stats(-1);
	T_EQ(phxfs_read(fd, -1, host, 0, 1000, 0), 1000);
	d1 = stats(0);
	h1 = stats(-1);
	for (int p = 0; p < PHXFS_PATHS; p++) {
		T_EQ(d1.read[p].bytes - d0.read[p].bytes, 0);
		sum += h1.read[p].bytes - h0.read[p].bytes;
	}
	T_EQ(sum, 1000);
	t_region_free(&r);
}

static void stats_check_their_arguments(void)
{
	struct {
		struct phxfs_stats s;
		uint8_t after[64];
	} x;

	memset(&x, T_GUARD, sizeof(x));
	x.s.size = 16;
	T_EQ(phxfs_stats(0, &x.s), -EINVAL);
	x.s.size = 0xa5a5a5a5;
	T_ALL(&x, sizeof(x), T_GUARD);
	x.s.size = sizeof(x.s);
	T_EQ(phxfs_stats(0, &x.s), 0);
	T_ALL(x.after, sizeof(x.after), T_GUARD);
	T_EQ(phxfs_stats(0, NULL), -EINVAL);
	T_EQ(phxfs_stats(9, &x.s), -ENODEV);
}

static void retries_are_counted(void)
{
	struct t_fuse *fs = t_fuse_start(100000, 7);
	struct phxfs_stats s0, s1;
	struct t_region r;
	int fd = t_fuse_open(fs, O_RDONLY);

	t_region(&r, 0, 2 * T_PAGE);
	s0 = stats(0);
	fs->cut = 10000;
	T_EQ(phxfs_read(fd, 0, r.p, 0, 50000, 0), 50000);
	fs->cut = 0;
	t_fuse_fail(fs, EINTR, 1);
	T_EQ(phxfs_read(fd, 0, r.p, 0, 50000, 0), 50000);
	s1 = stats(0);
	T_EQ(s1.retries - s0.retries, 5);
	T_PATTERN(r.p, 50000, 7, 0);
	t_region_free(&r);
}

struct reader {
	uint8_t *to;
	int fd;
};

static long many_reads(void *arg)
{
	struct reader *t = arg;

	for (long i = t_scale(5000); i > 0; i--)
		T_EQ(phxfs_read(t->fd, 0, t->to, i % 100, 512, 0), 512);
	return 0;
}

static void counters_lose_nothing_between_threads(void)
{
	int path = t_buffered_path(0, false, 512), fd = t_file("f", 4096, 1, O_RDONLY);
	struct phxfs_stats s0, s1;
	struct reader reader[8];
	struct t_call c[8];
	struct t_region r;

	t_region(&r, 0, T_PAGE);
	s0 = stats(0);
	for (int i = 0; i < 8; i++) {
		reader[i] = (struct reader){ .to = r.p + i * 1024, .fd = fd };
		t_call(&c[i], many_reads, &reader[i]);
	}
	for (int i = 0; i < 8; i++)
		T_EQ(t_join(&c[i]), 0);
	s1 = stats(0);
	T_EQ(s1.read[path].ops - s0.read[path].ops, 8 * t_scale(5000));
	T_EQ(s1.read[path].bytes - s0.read[path].bytes, 8 * 512 * t_scale(5000));
	t_region_free(&r);
}

static const struct t_case cases[] = {
	T_CASE(the_named_path_is_the_counted_path, .flags = T_PATHS | T_ENGINES),
	T_CASE(aligned_direct_io_is_the_best_path),
	T_CASE(reasons_name_what_is_in_the_way),
	T_CASE(query_fails_as_the_transfer_would, .flags = T_PATHS),
	T_CASE(direct_never_falls_back, .env = "PHX_PATH=direct"),
	T_CASE(counters_are_exact, .flags = T_PATHS | T_ENGINES),
	T_CASE(host_buffers_are_counted_apart, .flags = T_PATHS),
	T_CASE(stats_check_their_arguments),
	T_CASE(retries_are_counted),
	T_CASE(counters_lose_nothing_between_threads, .flags = T_PATHS),
};

T_MAIN(cases)
